"""A store whose file has a damaged end, which would end the process inside Lance, on the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

# One process, which is to live through all of it, and has less memory than the damaged file asks for.
COMMANDS = """
import resource, sys
from narrows.cli.main import main

resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
model, folder, store = sys.argv[1:]
ask = ["ask", store, "where is the boat", "--model", model, "--quiet"]
index = ["index", folder, "-o", store, "--model", model, "--quiet"]
for command in (ask, ["store", "info", store], index, ["store", "verify", "--repair", store], index, ask):
    code = main(command)
    print(f"[{command[0]} {code}]", flush=True)
    print(f"[{command[0]} {code}]", file=sys.stderr, flush=True)
"""


def index(folder: Path, store: Path, model: Path) -> None:
    from narrows.cli.main import main

    assert main(["index", str(folder), "-o", str(store), "--model", str(model), "--quiet"]) == 0


@pytest.mark.parametrize("kind", ["data", "_indices"])
def test_each_command_says_one_sentence_and_the_remedy_works(checkpoint, folder, tmp_path, kind) -> None:
    store = tmp_path / "s"
    index(folder, store, checkpoint)
    file = max((store / "passages.lance" / kind).rglob("*.lance"))
    content = bytearray(file.read_bytes())
    content[-13] ^= 0x80
    file.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, str(checkpoint), str(folder), str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended = [line for line in done.stdout.splitlines() if line.startswith("[")]
    sentences = [line for line in done.stderr.splitlines() if "the end of the file" in line]
    name = file.relative_to(store).as_posix()
    assert all(
        line.startswith(f"narrows: error: the end of the file {name} in the store {store} is not what was written")
        and line.endswith(f"run `narrows store verify --repair {store}` and then `narrows index {folder} -o {store}`")
        for line in sentences
    ), done.stderr
    if kind == "data":
        assert ended == ["[ask 1]", "[store 1]", "[index 1]", "[store 1]", "[index 0]", "[ask 0]"]
        assert len(sentences) == 3
    else:
        # The passages are all there, and are not looked for.
        assert ended == ["[ask 1]", "[store 0]", "[index 1]", "[store 1]", "[index 0]", "[ask 0]"]
        assert len(sentences) == 2
