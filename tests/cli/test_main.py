"""The top level of the command line: the list of verbs, lazy imports, exit codes, and how errors end."""

import errno
import io
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import torch
import typer
from pydantic import BaseModel

import narrows
from narrows.cli import options
from narrows.cli.main import VERBS, main
from narrows.errors import StoreError, UsageError


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch):
    """Put a function in place of the verb `ask`."""

    def install(command) -> None:
        module = ModuleType("narrows.cli.ask")
        module.command = command
        monkeypatch.setitem(sys.modules, "narrows.cli.ask", module)

    monkeypatch.delenv("NARROWS_DEBUG", raising=False)
    return install


def _raiser(error: BaseException):
    def command() -> None:
        raise error

    return command


def test_help_lists_every_verb_with_its_line(capsys) -> None:
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, line in VERBS.items():
        assert f"{name} {line}" in shown


def test_no_arguments_show_the_help(capsys) -> None:
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_help_imports_no_verb_and_nothing_heavy() -> None:
    code = (
        "import sys; from narrows.cli.main import main; main(['--help']);"
        "heavy = {'torch', 'transformers', 'lance', 'rich', 'numpy'} & set(sys.modules);"
        "verbs = [m for m in sys.modules if m.startswith('narrows.cli.') and m != 'narrows.cli.main'];"
        "sys.exit(f'{heavy} {verbs}' if heavy or verbs else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_shows_its_help_without_torch(name: str) -> None:
    code = (
        f"import sys; from narrows.cli.main import main; code = main([{name!r}, '--help']);"
        "heavy = {'torch', 'transformers', 'lance'} & set(sys.modules);"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"narrows {name}" in result.stdout


def test_version(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"narrows {narrows.__version__}\n"


def test_the_installed_program_answers() -> None:
    program = Path(sys.executable).parent / "narrows"
    result = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"narrows {narrows.__version__}\n")


def test_unknown_verb_names_the_nearest(capsys) -> None:
    assert main(["evalute"]) == 2
    assert "No such command 'evalute'. Did you mean 'evaluate'?" in capsys.readouterr().err


def test_unknown_verb_far_from_all(capsys) -> None:
    assert main(["xyzzy"]) == 2
    assert capsys.readouterr().err == "narrows: error: No such command 'xyzzy'; see `narrows --help`\n"


def test_unknown_option_is_wrong_use(capsys, verb) -> None:
    verb(lambda: None)
    assert main(["ask", "--colour"]) == 2
    assert capsys.readouterr().err == "narrows: error: No such option: --colour; see `narrows ask --help`\n"


def test_a_verb_of_verbs_alone_shows_its_help(capsys) -> None:
    assert main(["store"]) == 2
    assert capsys.readouterr().err.startswith("Usage: narrows store ")


def test_what_is_not_confirmed_is_not_done(capsys, verb) -> None:
    verb(_raiser(typer.Abort()))
    assert main(["ask"]) == 1
    assert capsys.readouterr() == ("", "Aborted!\n")


def test_an_error_stays_on_its_line(capsys, verb) -> None:
    verb(_raiser(UsageError("expected no\nline\x1b[31m, got caf\udce9; rename it")))
    assert main(["ask"]) == 2
    assert capsys.readouterr().err == "narrows: error: expected no line [31m, got caf\\udce9; rename it\n"


def test_error_of_narrows_is_one_sentence_with_its_exit_code(capsys, verb) -> None:
    verb(_raiser(StoreError("the store has no passages; index some documents first")))
    assert main(["ask"]) == 1
    shown = capsys.readouterr()
    assert shown.err == "narrows: error: the store has no passages; index some documents first\n"
    assert shown.out == ""


def test_usage_error_of_narrows_exits_with_two(capsys, verb) -> None:
    verb(_raiser(UsageError("expected a question, got nothing; write one")))
    assert main(["ask"]) == 2
    assert capsys.readouterr().err == "narrows: error: expected a question, got nothing; write one\n"


@pytest.mark.parametrize(
    ("message", "shown"), [("first line\nsecond line", "first line second line"), ("", "no message")]
)
def test_other_error_is_one_line_with_a_hint(capsys, verb, message: str, shown: str) -> None:
    verb(_raiser(RuntimeError(message)))
    assert main(["ask"]) == 1
    assert capsys.readouterr().err == (
        f"narrows: error: RuntimeError: {shown} (run again with --debug for the traceback)\n"
    )


@pytest.mark.parametrize("arguments", [["--debug", "ask"], ["ask", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(capsys, verb, arguments) -> None:
    verb(_raiser(StoreError("no passages")))
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert shown.endswith("narrows: error: no passages\n")


def test_debug_by_the_environment(capsys, verb, monkeypatch) -> None:
    verb(_raiser(RuntimeError("broken")))
    monkeypatch.setenv("NARROWS_DEBUG", "1")
    assert main(["ask"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("NARROWS_DEBUG", "0")
    assert main(["ask"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_debug_after_two_dashes_is_text(capsys, verb) -> None:
    def command(question: str) -> None:
        typer.echo(question)

    verb(command)
    assert main(["ask", "--", "--debug"]) == 0
    assert capsys.readouterr().out == "--debug\n"


def test_interrupt(verb) -> None:
    verb(_raiser(KeyboardInterrupt()))
    assert main(["ask"]) == 130


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (3, 3), ("a text", 1)])
def test_a_verb_may_leave_with_its_own_code(verb, code, expected) -> None:
    verb(_raiser(SystemExit(code)))
    assert main(["ask"]) == expected


@pytest.mark.parametrize(
    "body",
    ["while True: sys.stdout.write('line\\n' * 1000)", "sys.stdout.write('a line that waits in the buffer')"],
    ids=["while writing", "at the end"],
)
def test_a_reader_that_left_is_no_error(body: str) -> None:
    code = (
        "import sys; from types import ModuleType; from narrows.cli.main import main\n"
        "def command():\n"
        "    sys.stdin.readline()\n"
        f"    {body}\n"
        "module = ModuleType('narrows.cli.ask'); module.command = command\n"
        "sys.modules['narrows.cli.ask'] = module\n"
        "sys.exit(main(['ask']))\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


_WRITER = (
    "import sys; from types import ModuleType; from narrows.cli.main import main; from narrows.cli import options\n"
    "def command(): {body}\n"
    "module = ModuleType('narrows.cli.ask'); module.command = command\n"
    "sys.modules['narrows.cli.ask'] = module\n"
    "sys.exit(main(['ask']))\n"
)


@pytest.mark.parametrize(
    ("body", "to", "code", "sentence"),
    [
        ("options.emit_json([1])", ">&-", 0, ""),
        ("print(1)", ">&-", 0, ""),
        ("raise ValueError('x')", "2>&-", 1, ""),
        ("raise ValueError('x')", "<&- >&- 2>&-", 1, ""),
        (
            "print(1)",
            ">/dev/full",
            1,
            "narrows: error: expected room for the output, got No space left on device; make room or write it "
            "elsewhere\n",
        ),
    ],
)
def test_a_stream_that_takes_nothing_is_no_traceback(body: str, to: str, code: int, sentence: str) -> None:
    line = shlex.join([sys.executable, "-c", _WRITER.format(body=body)])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(["sh", "-c", f"{line} {to}"], capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (code, "", sentence)


def test_text_that_stdout_cannot_write_is_spelled_out() -> None:
    line = [sys.executable, "-c", _WRITER.format(body="print('caf\\udce9 \\u00e9'); options.emit_json('\\u00e9')")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, result.stdout) == (0, 'caf\\udce9 \\xe9\n"\\u00e9"\n')


def test_group_of_verbs(capsys, monkeypatch) -> None:
    app = typer.Typer()

    @app.command()
    def info(folder: str) -> None:
        """Say what a store holds."""
        typer.echo(f"store {folder}")

    module = ModuleType("narrows.cli.store")
    module.app = app
    monkeypatch.setitem(sys.modules, "narrows.cli.store", module)
    assert main(["store", "info", "passages"]) == 0
    assert capsys.readouterr().out == "store passages\n"
    assert main(["store", "--help"]) == 0
    assert "Say what a store holds." in capsys.readouterr().out


def test_shared_options_are_parsed_and_checked(capsys, verb) -> None:
    def command(
        model: options.Model = "default",
        device: options.Device = "auto",
        dtype: options.Dtype = "float32",
        batch_tokens: options.BatchTokens = 1024,
        json: options.Json = False,
        quiet: options.Quiet = False,
    ) -> None:
        options.emit_json([model, device, dtype, batch_tokens, json, quiet], indent=None)

    verb(command)
    assert main(["ask"]) == 0
    assert json.loads(capsys.readouterr().out) == ["default", "auto", "float32", 1024, False, False]
    given = ["-m", "m", "--device", "cpu", "--dtype", "bfloat16", "--batch-tokens", "9", "--json", "-q"]
    assert main(["ask", *given]) == 0
    assert json.loads(capsys.readouterr().out) == ["m", "cpu", "bfloat16", 9, True, True]
    for wrong in (["--device", "tpu"], ["--dtype", "int8"], ["--batch-tokens", "0"]):
        assert main(["ask", *wrong]) == 2


class Span(NamedTuple):
    start: int
    end: int


@dataclass
class Result:
    span: Span
    path: Path


class Setting(BaseModel):
    rate: float


def test_emit_json_writes_what_results_hold(capsys) -> None:
    options.emit_json(
        {
            "result": Result(Span(1, 2), Path("a/b")),
            "score": np.float32(0.5),
            "ids": torch.tensor([1, 2]),
            "setting": [Setting(rate=2.0)],
            "text": "Zürich",
        }
    )
    written = capsys.readouterr().out
    assert "Zürich" in written
    assert json.loads(written) == {
        "result": {"span": {"start": 1, "end": 2}, "path": "a/b"},
        "score": 0.5,
        "ids": [1, 2],
        "setting": [{"rate": 2.0}],
        "text": "Zürich",
    }


def test_emit_json_is_always_json(capsys) -> None:
    options.emit_json({"name": "caf\udce9.txt", "id": "\ud800"})
    assert json.loads(capsys.readouterr().out) == {"name": "caf\udce9.txt", "id": "\ud800"}


def test_emit_json_refuses_what_json_cannot_say() -> None:
    with pytest.raises(TypeError, match="expected something with a JSON form, got object; convert it first"):
        options.emit_json({"thing": object()})
    with pytest.raises(ValueError, match="not JSON compliant"):
        options.emit_json({"score": float("nan")})


def test_progress_goes_to_stderr_with_its_count(capsys) -> None:
    with options.progress(3, "Encoding passages") as advance:
        advance(1)
        advance(2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Encoding passages" in shown.err
    assert "3/3" in shown.err


def test_progress_leaves_nothing_before_an_error(capsys) -> None:
    with pytest.raises(UsageError), options.progress(3, "Encoding passages") as advance:
        advance(1)
        raise UsageError("expected more")
    assert capsys.readouterr().err == ""


def test_a_device_that_is_not_here_is_refused() -> None:
    assert options.place("cpu") == "cpu"
    if not torch.cuda.is_available():
        assert options.place("auto") == "cpu"
        with pytest.raises(
            UsageError, match=r"expected a device that is here \(cpu\), got --device cuda; use --device"
        ):
            options.place("cuda")


def test_quiet_shows_nothing(capsys) -> None:
    with options.progress(3, "Encoding passages", quiet=True) as advance:
        advance(3)
    options.stderr_console(quiet=True).print("remark")
    assert capsys.readouterr() == ("", "")


def test_remarks_go_to_stderr(capsys) -> None:
    options.stderr_console().print("remark")
    assert capsys.readouterr() == ("", "remark\n")


def test_a_full_disk_in_the_midst_of_writing_is_one_sentence(capsys, monkeypatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stdout", Full())
    assert main(["inspect", "mask", "full", "--length", "8"]) == 1
    assert "narrows: error: expected room for what is written, got No space left" in capsys.readouterr().err


def test_a_place_without_permission_is_one_sentence_wherever_it_is_met(capsys, monkeypatch) -> None:
    class Locked(io.StringIO):
        def write(self, text: str) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "locked/config.json")

    monkeypatch.setattr(sys, "stdout", Locked())
    assert main(["inspect", "mask", "full", "--length", "8"]) == 1
    assert capsys.readouterr().err == (
        "narrows: error: expected permission to use 'locked/config.json', got Permission denied; "
        "change it or choose another place\n"
    )
