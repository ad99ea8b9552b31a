"""`narrows inspect` from the command line."""

import json
import subprocess
import sys

import pytest

from narrows.cli.main import main


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main(["inspect", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_mask_is_drawn_with_its_legend_and_numbers(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    code, out, err = run(capsys, "mask", "mulla", "--length", "400", "--local-radius", "10")
    assert code == 0 and err == ""
    lines = out.splitlines()
    assert lines[0].startswith("mulla: length 400, variant dynamic, local_radius 10, pooling_rate 8, num_levels 3")
    assert "│level 1 " in lines[2] and max(len(line) for line in lines[2:27]) <= 60
    assert "[█] all of a cell's pairs are visible" in out
    assert "  level 2: 50 keys, 7,520 visible pairs (37.6 %)" in out
    assert out.endswith("every query sees the whole text: yes\n")


def test_json_counts_exactly(capsys) -> None:
    code, out, _ = run(
        capsys, "mask", "deformer", "--split-layer", 1, "--question-tokens", 3, "--passage-tokens", 7, "--json"
    )
    found = json.loads(out)
    assert code == 0 and found["settings"] == {
        "split_layer": 1,
        "question_tokens": 3,
        "passage_tokens": 7,
        "length": 10,
    }
    lower, upper = found["masks"]
    assert (lower["name"], lower["visible_pairs"], lower["share_of_full"]) == ("layer 1", 58, 0.58)
    assert (lower["sees_whole_text"], upper["sees_whole_text"], upper["visible_pairs"]) == (False, True, 100)
    assert upper["blocks"] == [
        {"name": "tokens", "keys": 10, "visible_pairs": 100, "share_of_block": 1.0, "least_reach": 10}
    ]


def test_both_kinds_of_layers_are_drawn(capsys) -> None:
    _, out, _ = run(capsys, "mask", "deformer", "--question-tokens", 2, "--passage-tokens", 3)
    assert "layers 1–2\n" in out and "layers 3 and up\n" in out and "\n1 │████      │\n2 │    ██████│\n" in out


def test_reach_names_its_levels(capsys) -> None:
    code, out, _ = run(capsys, "mask", "mulla", "--length", 300, "--local-radius", 5, "--view", "reach")
    assert code == 0 and "[ ] not reached  [█] level 1  [▓] level 2  [▒] level 3" in out
    assert "│tokens " in out
    _, out, _ = run(capsys, "mask", "tglobal", "--length", 40, "--local-radius", 5, "--view", "reach")
    assert "[█] tokens  [▓] global" in out


def test_a_picture_file_beside_the_json(tmp_path, capsys) -> None:
    path = tmp_path / "p.png"
    code, out, err = run(capsys, "mask", "local", "--length", 90, "--local-radius", 9, "-o", path, "--json")
    assert code == 0 and json.loads(out)["family"] == "local" and path.stat().st_size > 1000
    assert err == f"wrote {path}\n"
    assert run(capsys, "mask", "local", "--length", 90, "-o", path, "--json", "--quiet")[2] == ""


def test_a_bar_where_it_takes_long(capsys, monkeypatch) -> None:
    from narrows.cli import inspect

    monkeypatch.setattr(inspect, "_QUICK", 10)
    assert "Asking what queries see" in run(capsys, "mask", "full", "--length", 20)[2]
    assert run(capsys, "mask", "full", "--length", 20, "--quiet")[2] == ""


def test_levels_of_a_file(folder, checkpoint, capsys) -> None:
    arguments = ["levels", folder / "river.txt", "-m", checkpoint, "--local-radius", 2, "--pooling-rate", 4]
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "") and "river.txt: 20 tokens" in out
    assert "level  slots  tokens a slot  tokens a window  a query sees  at least" in out
    assert "level 2, slot 0 (tokens 0–3): The boat went down" in out
    assert out.endswith("every query sees the whole text: yes\n")
    code, out, _ = run(capsys, *arguments, "--variant", "fixed", "--num-levels", 2, "--slots", 0, "--json")
    found = json.loads(out)
    assert code == 0 and found["settings"]["num_levels"] == 2 and found["sees_whole_text"] is False
    assert [(level["slots"], level["samples"]) for level in found["levels"]] == [(20, []), (5, [])]
    code, out, _ = run(capsys, *arguments, "--variant", "fixed", "--num-levels", 1)
    assert code == 0 and out.endswith("every query sees the whole text: no (the one that sees least sees 15.0 %)\n")


@pytest.mark.parametrize("kind", ["mulla", "longt5"])
def test_levels_are_those_of_the_model(folder, tiny_seq2seq, kind, capsys) -> None:
    model = tiny_seq2seq(kind)
    # Making it showed a bar.
    capsys.readouterr()
    radius = json.loads((model / "config.json").read_text())["local_radius"]
    code, out, err = run(capsys, "levels", folder / "river.txt", "-m", model, "--json", "-q")
    settings = json.loads(out)["settings"]
    assert (code, err, settings["local_radius"]) == (0, "", radius) and radius != 127
    other = ["--local-radius", radius + 1, "--variant", "fixed", "--num-levels", 2]
    code, out, _ = run(capsys, "levels", folder / "river.txt", "-m", model, "--json", *other)
    settings = json.loads(out)["settings"]
    assert (settings["variant"], settings["local_radius"], settings["num_levels"]) == ("fixed", radius + 1, 2)


def test_levels_of_html_are_those_of_its_text(tmp_path, checkpoint, capsys) -> None:
    path = tmp_path / "a.html"
    path.write_text("<title>t</title><p>The boat went <b>down</b> the river.</p>")
    code, out, _ = run(capsys, "levels", path, "-m", checkpoint, "--json")
    found = json.loads(out)
    assert code == 0 and found["tokens"] == 7 and found["levels"][0]["samples"][0]["text"] == "The"


def test_nearly_all_is_not_shown_as_all() -> None:
    from narrows.cli.inspect import _percent

    assert [_percent(share) for share in (1.0, 0.99999, 0.5, 0.0123456, 0.0)] == [
        "100.0 %",
        "over 99.9 %",
        "50.0 %",
        "1.23 %",
        "0 %",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mask", "funnels"], "expected a family, one of deformer, mulla, funnel, local, tglobal, full, got 'funnels'"),
        (["mask", "mulla", "--split-layer", "2"], "`split_layer` must come with deformer, got it with mulla"),
        (["mask", "local", "--variant", "fixed"], "`variant` must come with mulla, got it with local; leave it out"),
        (["mask", "mulla", "--length", "0"], "`length` must be at least 1, got 0; choose a larger one"),
        (["mask", "mulla", "--local-radius", "0"], "`local_radius` must be at least 1, got 0; choose a larger one"),
        (["mask", "mulla", "--pooling-rate", "1"], "`pooling_rate` must be at least 2, got 1; choose a larger one"),
        (
            ["mask", "full", "--view", "reach"],
            "`view` must be mask where a query sees one kind of keys, got reach for full",
        ),
        (["mask", "full", "-o", "p.jpg"], "expected a file name that ends in .png, got p.jpg; the picture is a PNG"),
        (["levels", "nowhere.txt"], "expected a folder or a file, but nowhere.txt does not exist; check the path"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, capsys) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and err.startswith(f"narrows: error: {sentence}") and err.count("\n") == 1


def test_texts_that_have_no_levels(tmp_path, folder, checkpoint, capsys) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "two.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    for name, part in (
        ("empty.txt", "expected text in empty.txt, but it is empty; fill it or leave it out"),
        ("picture.png", "has the suffix '.png'"),
        ("two.jsonl", "expected one text, got 2 documents in"),
        ("library", "library is a folder; name a file, or use `narrows index` on it"),
    ):
        code, out, err = run(capsys, "levels", tmp_path / name, "-m", checkpoint)
        assert code == 2 and out == "" and part in err and err.count("\n") == 1
    code, out, err = run(capsys, "levels", folder / "river.txt", "-m", tmp_path / "no-model")
    assert code == 1 and out == "" and "neither here nor reachable" in err


@pytest.mark.parametrize("verb", ["mask", "levels"])
def test_help_comes_without_anything_heavy(verb: str) -> None:
    code = (
        f"import sys; from narrows.cli.main import main; code = main(['inspect', {verb!r}, '--help']);"
        "heavy = {'torch', 'transformers', 'numpy', 'matplotlib', 'lance'} & set(sys.modules);"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
