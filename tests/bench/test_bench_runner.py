"""The runner over a small family of its own: what is kept, what is carried over, what falls short."""

from types import SimpleNamespace

import pytest

from narrows.bench import runner
from narrows.bench.results import digest, load_results, results_file
from narrows.bench.rows import Context, Group, Measurement, Row
from narrows.errors import NarrowsError, UsageError

SOURCES = ("errors.py",)


def _family(value=3.0, *, quick=None, judged=True, missing=None, wrong=None, sources=SOURCES):
    group = Group(
        rows=(
            Row(name="fast", unit="×", bar=2.0, sources=sources),
            Row(name="plain", unit="s", sources=sources),
        ),
        measure=lambda context: {
            "fast": Measurement(value=value, spread=(2.5, 3.5), detail={"rounds": 7}),
            "plain": Measurement(value=1.0),
        },
        size="100 rounds",
        quick=quick,
        quick_size="1 round",
        quick_judged=judged,
        missing=lambda context: missing,
    )
    other = Group(
        rows=(Row(name="other", unit="F1", bar=50.0, sources=sources),),
        measure=lambda context: {"other": Measurement(value=60.0 + (context.known.get("fast") or 0.0))},
        size="all",
    )
    return SimpleNamespace(CHECKS={"sane": lambda: wrong}, groups=lambda context: [group, other])


@pytest.fixture
def bench(monkeypatch, tmp_path):
    def run(module, **options):
        monkeypatch.setattr(runner, "find_family", lambda name: module)
        return {line.name: line for line in runner.run("toy", Context(), folder=tmp_path, **options)}

    return run


def test_a_full_run_measures_keeps_and_lets_later_rows_see_earlier_ones(bench, tmp_path):
    lines = bench(_family())
    assert lines["fast"].measured and lines["fast"].holds is True and lines["plain"].holds is None
    assert lines["other"].value == 63.0
    kept = load_results(results_file(tmp_path, "toy"))
    assert kept["rows"]["fast"]["spread"] == [2.5, 3.5]
    # The rounds that were run, not those that a row runs by default.
    assert (kept["rows"]["fast"]["size"], kept["rows"]["plain"]["size"]) == ("7 rounds", "100 rounds")
    assert kept["rows"]["fast"]["digest"] == digest(SOURCES)
    (described,) = kept["runs"].values()
    assert set(described) >= {"date", "machine", "versions", "commit", "dirty", "seed"}
    assert set(described["versions"]) == {"python", "torch", "transformers", "lance", "narrows"}
    assert set(described["machine"]) >= {"cpu", "cores", "memory_gib", "load_average"}


def test_a_failing_check_stops_before_anything_is_measured(bench, tmp_path):
    with pytest.raises(NarrowsError, match=r"gate of toy to hold, got a failure of the check 'sane' \(off by 3\)"):
        bench(_family(wrong="off by 3"))
    assert not results_file(tmp_path, "toy").exists()


def test_a_value_under_its_bar_falls_short(bench):
    assert bench(_family(1.9))["fast"].holds is False


def test_a_quick_run_says_its_size_carries_the_rest_and_writes_nothing(bench, tmp_path):
    bench(_family())
    before = results_file(tmp_path, "toy").read_bytes()
    quick = {"fast": Measurement(value=2.2), "plain": Measurement(value=1.0)}
    lines = bench(_family(quick=lambda context: quick), quick=True)
    assert lines["fast [1 round]"].value == 2.2
    assert lines["other"].measured is False and lines["other"].holds is True
    assert lines["other"].date and lines["other"].file == str(results_file(tmp_path, "toy"))
    assert results_file(tmp_path, "toy").read_bytes() == before


def test_a_quick_value_has_no_bar_where_that_is_for_the_full_size(bench):
    quick = {"fast": Measurement(value=1.2), "plain": Measurement(value=1.0)}
    assert bench(_family(quick=lambda context: quick), quick=True)["fast [1 round]"].holds is False
    line = bench(_family(quick=lambda context: quick, judged=False), quick=True)["fast [1 round]"]
    assert line.value == 1.2 and line.bar is None and line.holds is None
    assert bench(_family(1.2, judged=False))["fast"].holds is False


def test_a_carried_row_falls_short_where_full_runs_have_left_it_out(bench):
    bench(_family(), only=["other"])
    lines = bench(_family(), quick=True)
    assert len(lines) == 3
    assert lines["fast"].holds is False and lines["fast"].value is None
    assert lines["plain"].holds is None
    assert "never measured" in lines["fast"].note


def test_a_quick_run_without_a_results_file_says_so_and_holds_what_it_measures_only(monkeypatch, tmp_path):
    quick = {"fast": Measurement(value=1.2), "plain": Measurement(value=1.0)}
    monkeypatch.setattr(runner, "find_family", lambda name: _family(quick=lambda context: quick))
    said = []
    lines = {
        line.name: line
        for line in runner.run("toy", Context(say=said.append), quick=True, folder=tmp_path / "elsewhere")
    }
    file = results_file(tmp_path / "elsewhere", "toy")
    assert [text for text in said if "results" in text] == [
        f"expected the results of a full run in {file}, got no such file, so that rows which are not measured now have "
        "no value; name their folder by --results, or run `narrows bench toy` without --quick to write them"
    ]
    assert lines["other"].value is None and lines["other"].holds is None and lines["other"].bar is None
    assert lines["fast [1 round]"].holds is False
    assert not file.parent.exists()


def test_a_carried_row_falls_short_when_its_code_has_changed(bench):
    bench(_family())
    lines = bench(_family(sources=("errors.py", "__init__.py")), quick=True)
    assert lines["fast"].value == 3.0 and lines["fast"].holds is False
    assert "older than the code" in lines["fast"].note


def test_a_row_whose_data_is_missing_carries_the_last_value(bench):
    bench(_family(3.0))
    lines = bench(_family(9.0, missing="needs data: pass --data DIR"))
    assert lines["fast"].value == 3.0 and lines["fast"].measured is False
    assert "needs data" in lines["fast"].note


def test_some_rows_leave_the_others_in_the_file(bench, tmp_path):
    bench(_family(3.0))
    lines = bench(_family(4.0), only=["fa*"])
    assert list(lines) == ["fast"]
    rows = load_results(results_file(tmp_path, "toy"))["rows"]
    assert rows["fast"]["value"] == 4.0 and rows["other"]["value"] == 63.0


def test_a_quick_run_leaves_out_what_its_time_does_not_hold(bench):
    lines = bench(_family(quick=lambda context: {}), quick=True, began=-1e9)
    assert "no time left" in lines["fast"].note


def test_an_unknown_row_is_named(bench):
    with pytest.raises(UsageError, match="expected names of rows, got 'slow', which fits none"):
        bench(_family(), only=["slow"])


def test_a_digest_changes_with_content_and_name_of_a_file(tmp_path):
    (tmp_path / "a.py").write_text("one")
    first = digest(["*.py"], tmp_path)
    (tmp_path / "a.py").write_text("two")
    second = digest(["*.py"], tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, digest(["*.py"], tmp_path)}) == 3


def test_sources_that_are_not_there_are_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"expected files at nothing/\*\.py"):
        digest(["nothing/*.py"], tmp_path)


def test_a_file_that_is_no_results_file_is_named(tmp_path):
    (tmp_path / "toy.json").write_text('{"rows": 3}')
    with pytest.raises(UsageError, match="expected the results of `narrows bench` in .*toy.json"):
        load_results(tmp_path / "toy.json")
