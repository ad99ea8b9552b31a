"""Distilled encoders beside their teacher: what they have lost at finding and telling apart, and the time they take."""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from narrows.bench.funnel_cost import encoder_flops, plain_flops
from narrows.bench.probes import in_turn, ratio
from narrows.bench.rows import Context, Group, Measurement, Row
from narrows.data import read_labelled, read_retrieval
from narrows.evaluation.encoders import EncoderEvaluation, compare_encoders, evaluate_probe, evaluate_retrieval
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT
from narrows.serving.embedder import Embedder

__all__ = ["distilled_groups", "score_rows", "time_rows"]

_SOURCES = (
    "core/*.py",
    "data/labelled.py",
    "data/retrieval.py",
    "evaluation/encoders.py",
    "evaluation/probes.py",
    "evaluation/retrieval.py",
    "funnel/*.py",
    "hf/sentence_encoder.py",
    "hf/sentence_layout.py",
    "serving/batching.py",
    "serving/embedder.py",
)
_LENGTHS = (128, 256, 512)
_BATCH = 8


class _Task(NamedTuple):
    """What vectors are good for.

    Attributes:
        path: of the data.
        probe: whether classes are told apart; else texts are found.
        score: of the evaluation.
        unit: what the score is called.
        size: what is scored.
    """

    path: str
    probe: bool
    score: str
    unit: str
    size: str


_TASKS = {
    "mrr": _Task("squad_reqa/eval-500.json.gz", False, "mrr@10", "MRR", "ReQA SQuAD, 500 questions, all candidates"),
    "ndcg": _Task("ir/dbpedia_5k", False, "ndcg@10", "nDCG", "DBpedia, 5k candidates"),
    "sst2": _Task("glue/SST-2", True, "accuracy", "accuracy", "SST-2, a linear probe"),
    "movie-reviews": _Task(
        "textcls/nltk/movie_reviews.zip", True, "accuracy", "accuracy", "movie reviews, a linear probe"
    ),
}
# The bars are of the first, which has its teacher's width and depth.
_BARS = {"distilled-mrr": -0.02, "distilled-time-256": 0.7}


def distilled_groups() -> list[Group]:
    """Rows of `--models distilled=DIR` and `smaller=DIR`, beside `teacher=DIR` or all-MiniLM-L6-v2."""
    return [group for student in ("distilled", "smaller") for group in _groups(student)]


def _groups(student: str) -> list[Group]:
    found = []
    for name, task in _TASKS.items():
        key = f"{student}-{name}"
        row = Row(name=key, unit=task.unit, peer="its teacher, difference", bar=_BARS.get(key), sources=_SOURCES)
        measure = partial(score_rows, student=student, task=name)
        missing = partial(_needs, student=student, path=task.path)
        found.append(Group(rows=(row,), measure=measure, size=task.size, missing=missing))
    times = tuple(
        Row(name=key, unit="×", peer="its teacher", bar=_BARS.get(key), side="at most", sources=_SOURCES)
        for key in (f"{student}-time-{length}" for length in _LENGTHS)
    )
    size = f"{', '.join(map(str, _LENGTHS))} tokens, batch {_BATCH}, 15 rounds"
    measure = partial(time_rows, student=student, rounds=15)
    found.append(Group(rows=times, measure=measure, size=size, missing=partial(_needs, student=student)))
    return found


def _needs(context: Context, *, student: str, path: str | None = None) -> str | None:
    if student not in context.models:
        return f"needs a distilled encoder: pass --models {student}=DIR"
    if path is None:
        return None
    if context.data is None:
        return "needs data: pass --data DIR or set NARROWS_DATA"
    return None if (context.data / path).exists() else f"needs data: no {path} in {context.data}"


def _sources(context: Context, student: str) -> tuple[Path | str, Path | str]:
    """The student and its teacher."""
    return context.models[student], context.models.get("teacher", DEFAULT_CHECKPOINT)


def score_rows(context: Context, *, student: str, task: str) -> dict[str, Measurement]:
    """A score less the teacher's, from 0 to 1, and its 95 % interval over what was scored."""
    assert context.data is not None
    ours, theirs = (_evaluated(source, context.data, task, context.say) for source in _sources(context, student))
    score = _TASKS[task].score
    apart = compare_encoders(ours, theirs)[score]
    means = [found.scores[score].mean / 100 for found in (ours, theirs)]
    return {
        f"{student}-{task}": Measurement(
            value=apart.mean_difference / 100,
            spread=(apart.low / 100, apart.high / 100),
            detail={
                "peer": f"{means[0]:.3f} less its teacher's {means[1]:.3f}",
                student: {name: one.mean for name, one in ours.scores.items()},
                "teacher": {name: one.mean for name, one in theirs.scores.items()},
            },
        )
    }


@lru_cache(maxsize=2 * len(_TASKS))
def _evaluated(source: Path | str, data: Path, task: str, say: Callable[[str], None]) -> EncoderEvaluation:
    """An encoder's scores; the teacher's are asked for by every student."""
    where = data / _TASKS[task].path
    say(f"{source} reads {where.name}")
    embedder = Embedder.from_pretrained(source, normalize=True, device="cpu")
    if _TASKS[task].probe:
        return evaluate_probe(partial(embedder.embed, truncate=True), read_labelled(where))
    queries, documents = (
        partial(side.embed, truncate=True) for side in (embedder.of_queries(), embedder.of_documents())
    )
    return evaluate_retrieval(documents, read_retrieval(where), embed_queries=queries)


def time_rows(
    context: Context, *, student: str, rounds: int, lengths: tuple[int, ...] = _LENGTHS, batch: int = _BATCH
) -> dict[str, Measurement]:
    """Seconds for a batch of texts without padding, by the teacher's."""
    both = [Embedder.from_pretrained(source, device="cpu") for source in _sources(context, student)]
    found = {}
    for length in lengths:
        times = in_turn(
            {name: _reading(each, length, batch) for name, each in zip(("student", "teacher"), both, strict=True)},
            rounds=context.rounds or rounds,
            seconds=context.seconds,
        )
        measured = ratio(times["student"], times["teacher"])
        arithmetic = _flops(both[0], length, batch) / _flops(both[1], length, batch)
        found[f"{student}-time-{length}"] = Measurement(
            value=measured.median, spread=(measured.low, measured.high), arithmetic=arithmetic
        )
    return found


def _reading(embedder: Embedder, length: int, batch: int) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, embedder.encoder.model.config.vocab_size, (batch, length), generator=generator)

    def read() -> Tensor:
        with torch.inference_mode():
            return embedder.vectors({"input_ids": ids, "attention_mask": torch.ones_like(ids)})

    return read


def _flops(embedder: Embedder, length: int, batch: int) -> int:
    config = embedder.encoder.model.config
    if config.model_type == "narrows-funnel":
        return encoder_flops(config, length=length, rows=batch)
    return plain_flops(layers=config.num_hidden_layers, width=config.hidden_size, length=length, rows=batch)
