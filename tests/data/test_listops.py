"""ListOps: values against the published ones and a plain reference, expressions within their bounds, files whole."""

import gzip
import json
import random
import subprocess
import sys
from collections import Counter
from itertools import islice
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data import (
    LISTOPS_TOKENS,
    evaluate_listops,
    generate_listops,
    listops_tokens,
    read_examples,
    write_listops,
)
from narrows.data.listops import write
from narrows.data.listops.__main__ import main
from narrows.errors import OutputError, UsageError

PARTS = ("train", "tune", "test")
REFERENCE = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: int(str(sum(values))[-1]),
}
_TREES = st.recursive(
    st.integers(0, 9),
    lambda inner: st.tuples(st.sampled_from(sorted(REFERENCE)), st.lists(inner, min_size=1, max_size=6)),
)


def _written(tree, round_brackets: bool = False) -> str:
    if isinstance(tree, int):
        return str(tree)
    operator, arguments = tree
    text = operator
    for part in [*(_written(argument, round_brackets) for argument in arguments), "]"]:
        text = f"( {text} {part} )" if round_brackets else f"{text} {part}"
    return text


def _value(tree) -> int:
    return tree if isinstance(tree, int) else REFERENCE[tree[0]]([_value(argument) for argument in tree[1]])


def _shape(expression: str) -> tuple[int, int, int]:
    """Its depth, and the fewest and the most arguments of an operator."""
    deepest, open_arguments, closed = 0, [0], []
    for token in expression.split():
        if token == "]":
            closed.append(open_arguments.pop())
            continue
        open_arguments[-1] += 1
        if token.startswith("["):
            open_arguments.append(0)
            deepest = max(deepest, len(open_arguments) - 1)
    return deepest, min(closed), max(closed)


@given(tree=_TREES)
def test_values_are_those_of_a_plain_reference(tree) -> None:
    assert evaluate_listops(_written(tree)) == _value(tree)
    assert evaluate_listops(_written(tree, round_brackets=True)) == _value(tree)
    assert " ".join(listops_tokens(_written(tree, round_brackets=True))) == _written(tree)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MED 1 4 ]", 2),
        ("[MED 9 1 2 ]", 2),
        ("[SM 9 9 9 ]", 7),
        ("[MIN 3 ]", 3),
        (" [MAX\t1\n2 ] ", 2),
        ("( ( ( ( ( [SM 6 ) 5 ) 9 ) 0 ) ] )", 0),
    ],
)
def test_values_by_hand(expression, value) -> None:
    assert evaluate_listops(expression) == value


def test_any_depth() -> None:
    deep = 50_000
    assert evaluate_listops("[SM 1 " * deep + "7" + " ]" * deep) == (deep + 7) % 10


def test_the_published_labels(shared_data) -> None:
    path = shared_data / "listops" / "test_d20s.tsv.gz"
    examples = read_examples(path, layout="listops")
    assert len(examples) == 10_000
    assert all(str(evaluate_listops(example.text)) == example.label for example in examples)
    with gzip.open(path, "rt") as file:
        assert all(str(evaluate_listops(line.split("\t")[1])) == line[0] for line in islice(file, 1000))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("", r"expected an expression of ListOps such as \[MAX 2 9 \], got no words; pass one\.$"),
        ("( ( ) )", "expected an expression of ListOps such as .*, got no words"),
        ("[MAX 2 12 ]", r"expected words of ListOps \(\[MIN, .*, \], 0 to 9\), got '12' as word 3; correct it\.$"),
        ("[max 2 1 ]", r"got '\[max' as word 1; correct it"),
        ("[MAX 2 ٣ ]", "got '٣' as word 3"),
        ("[MAX 2 3]", r"got '3\]' as word 3"),
        ("[MAX ]", r"expected at least one argument of \[MAX, got its end as word 2; correct it\.$"),
        ("]", r"expected an operator of ListOps to close, got \] alone as word 1; correct it\.$"),
        ("[MAX 1 ] ]", r"expected one expression of ListOps, got \] after its end as word 4; cut it\.$"),
        ("1 2", "expected one expression of ListOps, got 2 after its end as word 2"),
        ("[MAX 1 [MIN 2", r"expected a \] for each operator of ListOps, got 2 operators open at the end; complete the"),
    ],
)
def test_what_is_no_expression_is_refused(expression, text) -> None:
    with pytest.raises(UsageError, match=text):
        evaluate_listops(expression)


@given(
    least=st.integers(4, 60),
    room=st.integers(0, 40),
    depth=st.integers(3, 6),
    arguments=st.integers(5, 10),
    seed=st.integers(0),
)
def test_expressions_are_within_their_bounds(least, room, depth, arguments, seed) -> None:
    settings = {"least": least, "most": least + room, "max_depth": depth, "max_arguments": arguments, "seed": seed}
    found = list(islice(generate_listops(**settings), 5))
    for label, expression in found:
        assert least <= len(expression.split()) <= least + room
        deepest, fewest, most = _shape(expression)
        assert deepest <= depth and 2 <= fewest <= most <= arguments
        assert set(expression.split()) <= set(LISTOPS_TOKENS)
        assert label == evaluate_listops(expression)
    random.seed(seed + 1)
    assert list(islice(generate_listops(**settings), 5)) == found


def test_expressions_of_long_range_arenas_size() -> None:
    found = list(islice(generate_listops(seed=5), 300))
    lengths = [len(expression.split()) for _, expression in found]
    assert 500 <= min(lengths) < 600 and 1900 < max(lengths) <= 2000
    assert 1100 < sum(lengths) / len(lengths) < 1400
    shapes = [_shape(expression) for _, expression in found]
    assert max(depth for depth, _, _ in shapes) == 10
    assert {most for _, _, most in shapes} == {10} and {fewest for _, fewest, _ in shapes} == {2}
    labels = Counter(label for label, _ in found)
    # Chance is a tenth: MIN and MAX make 0 and 9 the commonest.
    assert set(labels) == set(range(10)) and max(labels.values()) < 0.25 * len(found)
    assert found != list(islice(generate_listops(seed=6), 300))


@pytest.mark.parametrize("length", [4, 5, 12, 13, 14])
def test_every_length_is_reached(length) -> None:
    found = list(islice(generate_listops(least=length, most=length), 20))
    assert {len(expression.split()) for _, expression in found} == {length}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"least": 3}, r"expected least of at least 4, got 3; raise it\.$"),
        ({"least": 50, "most": 49}, "expected most of at least 50, got 49; raise it"),
        ({"max_depth": 0}, "expected max_depth of at least 1, got 0; raise it"),
        ({"max_arguments": 1}, "expected max_arguments of at least 2, got 1; raise it"),
    ],
)
def test_numbers_that_are_too_small_are_refused_at_once(settings, text) -> None:
    with pytest.raises(UsageError, match=text):
        generate_listops(**settings)


@pytest.mark.parametrize(
    ("least", "most", "depth", "arguments"), [(500, 2000, 2, 10), (13, 20, 1, 10), (5, 6, 10, 2), (24, 24, 2, 3)]
)
def test_lengths_that_are_out_of_reach_are_refused(least, most, depth, arguments) -> None:
    examples = generate_listops(least=least, most=most, max_depth=depth, max_arguments=arguments)
    with pytest.raises(
        UsageError,
        match=rf"expected lengths of ListOps that a depth of {depth} and {arguments} arguments reach, got {least} to "
        rf"{most} tokens; change one of them\.$",
    ):
        list(islice(examples, 3))


def _lines(folder, part):
    with gzip.open(folder / f"{part}.tsv.gz", "rt") as file:
        return file.read().splitlines()


def test_files_are_read_back_and_differ(tmp_path) -> None:
    settings = {"least": 6, "most": 12, "seed": 1}
    labels = write_listops(tmp_path / "new" / "a", rows=400, held_out=50, **settings)
    assert sorted(path.name for path in (tmp_path / "new" / "a").iterdir()) == [
        "listops.json",
        *sorted(f"{part}.tsv.gz" for part in PARTS),
    ]
    everything = []
    for part, rows in zip(PARTS, (400, 50, 50), strict=True):
        examples = read_examples(tmp_path / "new" / "a" / f"{part}.tsv.gz", layout="listops")
        assert len(examples) == rows
        assert Counter(int(example.label) for example in examples) == labels[part]
        assert all(str(evaluate_listops(example.text)) == example.label for example in examples)
        everything += [example.text for example in examples]
    assert len(set(everything)) == len(everything)
    kept = json.loads((tmp_path / "new" / "a" / "listops.json").read_text())
    assert kept.pop("labels")["tune"] == {str(label): count for label, count in sorted(labels["tune"].items())}
    assert kept == {"rows": 400, "held_out": 50, "max_depth": 10, "max_arguments": 10, **settings}
    # Equal settings, equal files; and more to train on leaves the rest as it is.
    write_listops(tmp_path / "b", rows=400, held_out=50, **settings)
    write_listops(tmp_path / "c", rows=410, held_out=50, **settings)
    for part in PARTS:
        data = (tmp_path / "new" / "a" / f"{part}.tsv.gz").read_bytes()
        assert data == (tmp_path / "b" / f"{part}.tsv.gz").read_bytes()
        assert _lines(tmp_path / "c", part)[: len(_lines(tmp_path / "b", part))] == _lines(tmp_path / "b", part)


def test_a_folder_is_there_whole_or_not_at_all(tmp_path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_listops(tmp_path / "a", rows=3, held_out=1, least=6, most=12, on_row=stop)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a").mkdir()
    told = []
    write_listops(tmp_path / "a", rows=3, held_out=1, least=6, most=12, on_row=lambda: told.append(1))
    assert len(told) == 5 and len(list((tmp_path / "a").iterdir())) == 4


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    for name in ("file", "full"):
        with pytest.raises(
            UsageError, match=rf"expected a new or empty folder to write to, got .*{name}; name another"
        ):
            write_listops(tmp_path / name, rows=1)
    with pytest.raises(OutputError, match="expected room and permission to write .*, got Not a directory; make room"):
        write_listops(tmp_path / "file" / "below" / "a", rows=1)
    for settings in ({"rows": 0}, {"rows": 1, "held_out": 0}):
        with pytest.raises(UsageError, match="expected (rows|held_out) of at least 1, got 0; raise it"):
            write_listops(tmp_path / "a", **settings)
    # Four operators and two digits.
    monkeypatch.setattr(write, "_MOST_REPEATS", 500)
    with pytest.raises(
        UsageError, match="expected expressions of ListOps that differ, got no more than about 400; ask"
    ):
        write_listops(tmp_path / "a", rows=1000, held_out=1, least=4, most=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def _ends(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    # A bar may stand before.
    return caught.value.code, out, err.splitlines()[-1] if err else ""


def test_the_command(tmp_path, capsys) -> None:
    options = ["--rows", 40, "--held-out", 10, "--least", 6, "--most", 12, "--seed", 1]
    main([str(argument) for argument in (tmp_path / "a", *options)])
    out = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in out] == list(PARTS)
    assert out[0].startswith("train: 40 expressions, 0: ") and out[0].count("%") == 10
    assert len(_lines(tmp_path / "a", "train")) == 40 and len(_lines(tmp_path / "a", "test")) == 10
    code, out, said = _ends(capsys, tmp_path / "a", *options)
    assert (code, out) == (2, "") and said.startswith("narrows: error: expected a new or empty folder to write to")
    code, out, said = _ends(capsys, "--help")
    assert code == 0 and "--max-arguments" in out and "Long Range Arena" in out


def test_the_command_as_a_module_says_nothing_else(tmp_path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "narrows.data.listops", str(tmp_path / "a"), "--rows", "0"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.splitlines()[-1] == "narrows: error: expected rows of at least 1, got 0; raise it."
    assert "Warning" not in ended.stderr
