"""The rows of DeFormer: what is measured, beside which peer, and the bar each has to reach."""

from functools import partial

from narrows.bench.gate import DEFORMER
from narrows.bench.memory import help_rows, indexing_rows, question_rows
from narrows.bench.quality import (
    curve_rows,
    given_passage_rows,
    library_rows,
    needs_both,
    needs_data,
    needs_library,
    needs_shipped,
    precision_rows,
    squad2_rows,
    student_rows,
    tune_rows,
)
from narrows.bench.rows import Context, Group, Measurement, Row
from narrows.bench.speed import PRECISIONS, fastest_within, speed_rows
from narrows.bench.workload import Workload

__all__ = ["CHECKS", "groups"]

CHECKS = DEFORMER

_MODEL = (
    "core/attention.py",
    "core/linear.py",
    "core/masks.py",
    "deformer/bert.py",
    "deformer/split.py",
    "deformer/model.py",
    "deformer/backbones.py",
)
_ASKING = (*_MODEL, "store/codecs.py", "store/reader.py", "store/rows.py", "serving/engine.py")
_INDEXING = (*_ASKING, "store/writer.py", "serving/indexing.py", "serving/passages.py", "documents/*.py")
# Its texts come from a data set, through the codec: no store is opened.
_ANSWERS = (
    *_MODEL,
    "store/codecs.py",
    "serving/engine.py",
    "serving/answers.py",
    "serving/passages.py",
    "deformer/*.py",
    "evaluation/metrics.py",
)
# What is loaded of a shipped model; its card is for people.
_SHIPPED = {
    name: tuple(f"deformer/weights/{name}/*.{kind}" for kind in ("json", "safetensors"))
    for name in ("teacher", "reader")
}
_READER = (*_ANSWERS, *_SHIPPED["reader"])
_BOTH = (*_ANSWERS, *_SHIPPED["teacher"], *_SHIPPED["reader"])
_LIBRARY = (
    *_READER,
    "store/reader.py",
    "store/rows.py",
    "serving/candidates.py",
    "serving/asking.py",
    "serving/reader.py",
    "documents/*.py",
)

_FULL = Workload()
_QUICK = Workload(passages=8)
_JOINT = "joint sdpa fp32, the faster batch size"


def groups(context: Context) -> list[Group]:
    """All rows, in the order of the table; quality first, since a speed row asks for it."""
    return [
        _help(),
        *_quality(),
        *[_curve(name) for name in context.models],
        _library(),
        _given_passage("reader"),
        _given_passage("teacher"),
        _minilm(),
        _large("bert-base", {9: 3.6, 10: 5.1}, rounds=9),
        _large("bert-large", {20: None, 21: None}, rounds=5),
        _fastest(),
        _question_memory(),
        _indexing(),
    ]


def _size(work: Workload, rounds: int) -> str:
    return f"{work.question} + {work.passage} tokens, {work.passages} passages, {rounds} rounds"


def _minilm() -> Group:
    rows = [
        *_speed("minilm", 4, 2.7),
        Row(name="minilm-k4-bfloat16", unit="×", peer="joint bf16", bar=1.0, sources=_ASKING),
        Row(name="minilm-k4-int8", unit="×", peer="joint dynamic int8", bar=1.0, sources=_ASKING),
        Row(name="minilm-k4-bfloat16-to-fp32", unit="×", peer=_JOINT, sources=_ASKING),
        Row(name="minilm-k4-int8-to-fp32", unit="×", peer=_JOINT, sources=_ASKING),
    ]
    measure = partial(speed_rows, "minilm", (4,), precisions=PRECISIONS)
    return Group(
        rows=tuple(rows),
        measure=partial(measure, rounds=15),
        size=_size(_FULL, 15),
        quick=partial(measure, rounds=3, work=_QUICK),
        quick_size=_size(_QUICK, 3),
        quick_seconds=15,
    )


def _large(size: str, bars: dict[int, float | None], *, rounds: int) -> Group:
    rows = tuple(row for k, bar in bars.items() for row in _speed(size, k, bar))
    return Group(rows=rows, measure=partial(speed_rows, size, tuple(bars), rounds=rounds), size=_size(_FULL, rounds))


def _speed(size: str, k: int, bar: float | None) -> list[Row]:
    name = f"{size}-k{k}"
    return [
        Row(name=name, unit="×", peer=_JOINT, bar=bar, sources=_ASKING),
        Row(name=f"{name}-batch1", unit="×", peer="joint sdpa fp32, batch 1", sources=_ASKING),
        Row(name=f"{name}-batch32", unit="×", peer="joint sdpa fp32, batch 32", sources=_ASKING),
        Row(name=f"{name}-bare", unit="×", peer=_JOINT, sources=_ASKING),
    ]


def _fastest() -> Group:
    row = Row(name="fastest-within-1-f1", unit="×", peer=_JOINT, bar=3.5, sources=(*_ASKING, *_BOTH))

    def measure(context: Context) -> dict[str, Measurement]:
        from narrows.bench.quality import load_engine

        k = load_engine("reader").config.split_layer
        return {row.name: fastest_within(context, rounds=15, split_layer=k)}

    return Group(rows=(row,), measure=measure, size=_size(_FULL, 15), missing=needs_shipped)


def _quality() -> list[Group]:
    size = "SQuAD 1.1, 12 test articles"
    found = []
    for who, model in (("teacher", "teacher"), ("student", "reader")):
        for precision in PRECISIONS:
            name = who if precision == "float32" else f"{who}-{precision}"
            bar = 76.0 if name == "teacher" else None
            rows = (
                Row(name=f"f1-{name}", unit="F1", bar=bar, sources=(*_ANSWERS, *_SHIPPED[model])),
                Row(name=f"em-{name}", unit="EM", sources=(*_ANSWERS, *_SHIPPED[model])),
            )
            measure = partial(precision_rows, who=who, model=model, precision=precision)
            found.append(Group(rows=rows, measure=measure, size=size, missing=needs_both))
    beside = (
        Row(name="f1-student-to-teacher", unit="F1", peer="teacher", sources=_BOTH),
        Row(name="f1-int8-states", unit="F1", peer="fp32 states", bar=0.2, side="at most", sources=_READER),
        Row(name="bytes-int8-states", unit="×", peer="fp32 states", bar=0.27, side="at most", sources=_READER),
    )
    found.append(Group(rows=beside, measure=student_rows, size=size, missing=needs_both))
    tune = (
        Row(name="f1-tune-teacher", unit="F1", sources=(*_ANSWERS, *_SHIPPED["teacher"])),
        Row(name="f1-tune-student", unit="F1", sources=_READER),
        Row(name="f1-tune-student-to-teacher", unit="F1", peer="teacher", bar=-1.0, sources=_BOTH),
    )
    found.append(Group(rows=tune, measure=tune_rows, size="SQuAD 1.1, 4 tune articles", missing=needs_both))
    found += [_squad2("reader"), _squad2("teacher", suffix="-teacher")]
    return found


def _squad2(model: str, *, suffix: str = "") -> Group:
    sources = (*_ANSWERS, *_SHIPPED[model])
    # The teacher says how much of what is missing is its own; the bars are the reader's.
    gain, balanced = (5.0, 60.0) if model == "reader" else (None, None)
    rows = (
        Row(name=f"squad2-f1{suffix}", unit="F1", sources=sources),
        Row(name=f"squad2-f1-gain{suffix}", unit="F1", peer="better of always and never", bar=gain, sources=sources),
        Row(name=f"squad2-balanced{suffix}", unit="%", peer="50 for always and never", bar=balanced, sources=sources),
    )
    measure = partial(squad2_rows, model=model, suffix=suffix)
    return Group(rows=rows, measure=measure, size="SQuAD 2.0, the same articles", missing=needs_both)


def _curve(name: str) -> Group:
    rows = (
        Row(name=f"f1-curve-{name}", unit="F1", sources=_ANSWERS),
        Row(name=f"em-curve-{name}", unit="EM", sources=_ANSWERS),
        Row(name=f"f1-tune-curve-{name}", unit="F1", sources=_ANSWERS),
        Row(name=f"em-tune-curve-{name}", unit="EM", sources=_ANSWERS),
    )
    return Group(
        rows=rows,
        measure=partial(curve_rows, name=name),
        size="SQuAD 1.1, 12 test articles (4 tune ones where named), bf16 above the split",
        missing=needs_data,
    )


def _library() -> Group:
    rows = (
        Row(name="questions-found", unit="%", bar=60.0, sources=_LIBRARY),
        Row(name="questions-refused", unit="%", bar=50.0, sources=_LIBRARY),
        Row(name="questions-recall", unit="%", sources=_LIBRARY),
        Row(name="questions-word-overlap", unit="%", sources=_LIBRARY),
    )
    return Group(rows=rows, measure=library_rows, size="examples/questions.jsonl", missing=needs_library)


def _given_passage(model: str) -> Group:
    sources = (*_ANSWERS, *_SHIPPED[model], "serving/asking.py", "serving/reader.py", "documents/*.py")
    row = Row(name=f"questions-given-passage-{model}", unit="%", sources=sources)
    measure = partial(given_passage_rows, model=model)
    return Group(
        rows=(row,), measure=measure, size="examples/questions.jsonl, the passage known", missing=needs_library
    )


def _question_memory() -> Group:
    rows = (
        Row(
            name="memory-question",
            unit="×",
            peer="joint, all passages",
            bar=1.0,
            side="below",
            sources=_ASKING,
        ),
        Row(name="memory-question-batch1", unit="×", peer="joint, batch 1", sources=_ASKING),
    )
    measure = partial(question_rows, size_name="minilm", split_layer=4)
    return Group(
        rows=rows,
        measure=partial(measure, work=_FULL),
        size=f"minilm k=4, {_FULL.passages} passages",
        quick=partial(measure, work=_QUICK),
        quick_size=f"minilm k=4, {_QUICK.passages} passages",
        quick_seconds=35,
    )


def _indexing() -> Group:
    rows = (
        Row(name="memory-indexing", unit="×", bar=1.05, side="at most", sources=_INDEXING),
        Row(name="indexing-rate", unit="passages/s", sources=_INDEXING),
    )
    return Group(
        rows=rows,
        measure=partial(indexing_rows, size_name="minilm", split_layer=4, passages=20_000, tokens=100),
        size="minilm k=4, 20,000 passages of 100 tokens",
        quick=partial(indexing_rows, size_name="tiny", split_layer=2, passages=3000, tokens=100),
        quick_size="3 layers of width 32, 3,000 passages of 100 tokens",
        quick_seconds=15,
    )


def _help() -> Group:
    row = Row(
        name="help",
        unit="s",
        bar=0.5,
        side="below",
        sources=("cli/main.py", "cli/__init__.py", "__init__.py"),
    )
    return Group(
        rows=(row,),
        measure=partial(help_rows, rounds=9),
        size="9 processes",
        quick=partial(help_rows, rounds=3),
        quick_size="3 processes",
        quick_seconds=2,
    )
