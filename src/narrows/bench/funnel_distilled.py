"""A distilled encoder beside its teacher: what it has lost at finding texts, and the time it takes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from narrows.bench.funnel_cost import encoder_flops, plain_flops
from narrows.bench.probes import in_turn, ratio
from narrows.bench.rows import Context, Group, Measurement, Row
from narrows.data import read_retrieval
from narrows.evaluation.encoders import EncoderEvaluation, compare_encoders, evaluate_retrieval
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT
from narrows.serving.embedder import Embedder

__all__ = ["distilled_groups", "retrieval_rows", "time_rows"]

_SOURCES = (
    "core/*.py",
    "data/retrieval.py",
    "evaluation/encoders.py",
    "evaluation/retrieval.py",
    "funnel/*.py",
    "hf/sentence_encoder.py",
    "hf/sentence_layout.py",
    "serving/batching.py",
    "serving/embedder.py",
)
_DATA = "squad_reqa/eval-500.json.gz"
_LENGTHS = (128, 256, 512)
_BATCH = 8


def distilled_groups() -> list[Group]:
    """Rows of `--models distilled=DIR`, beside `teacher=DIR` or all-MiniLM-L6-v2."""
    found = Row(name="distilled-mrr", unit="MRR", peer="its teacher, difference", bar=-0.02, sources=_SOURCES)
    times = tuple(
        Row(
            name=f"distilled-time-{length}",
            unit="×",
            peer="its teacher",
            bar=0.7 if length == 256 else None,
            side="at most",
            sources=_SOURCES,
        )
        for length in _LENGTHS
    )
    return [
        Group(rows=(found,), measure=retrieval_rows, size="ReQA SQuAD, 500 questions, all candidates", missing=_needs),
        Group(
            rows=times,
            measure=partial(time_rows, rounds=15),
            size=f"{', '.join(map(str, _LENGTHS))} tokens, batch {_BATCH}, 15 rounds",
            missing=partial(_needs, data=False),
        ),
    ]


def _needs(context: Context, *, data: bool = True) -> str | None:
    if "distilled" not in context.models:
        return "needs a distilled encoder: pass --models distilled=DIR"
    if not data:
        return None
    if context.data is None:
        return "needs data: pass --data DIR or set NARROWS_DATA"
    return None if (context.data / _DATA).is_file() else f"needs data: no {_DATA} in {context.data}"


def _both(context: Context) -> dict[str, Embedder]:
    """The distilled encoder and its teacher."""
    teacher: Path | str = context.models.get("teacher", DEFAULT_CHECKPOINT)
    sources = {"distilled": context.models["distilled"], "teacher": teacher}
    return {name: Embedder.from_pretrained(source, device="cpu") for name, source in sources.items()}


def retrieval_rows(context: Context) -> dict[str, Measurement]:
    """MRR@10 less the teacher's, from 0 to 1, and its 95 % interval over the questions."""
    assert context.data is not None
    data = read_retrieval(context.data / _DATA)
    found: dict[str, EncoderEvaluation] = {}
    for name, embedder in _both(context).items():
        context.say(f"{name} reads {len(data.candidates):,} candidates")
        queries, documents = (
            partial(side.embed, truncate=True) for side in (embedder.of_queries(), embedder.of_documents())
        )
        found[name] = evaluate_retrieval(documents, data, embed_queries=queries)
    apart = compare_encoders(found["distilled"], found["teacher"])["mrr@10"]
    return {
        "distilled-mrr": Measurement(
            value=apart.mean_difference / 100,
            spread=(apart.low / 100, apart.high / 100),
            detail={name: {score: one.mean for score, one in each.scores.items()} for name, each in found.items()},
        )
    }


def time_rows(
    context: Context, *, rounds: int, lengths: tuple[int, ...] = _LENGTHS, batch: int = _BATCH
) -> dict[str, Measurement]:
    """Seconds for a batch of texts without padding, by the teacher's."""
    both, found = _both(context), {}
    for length in lengths:
        times = in_turn(
            {name: _reading(embedder, length, batch) for name, embedder in both.items()},
            rounds=context.rounds or rounds,
            seconds=context.seconds,
        )
        measured = ratio(times["distilled"], times["teacher"])
        arithmetic = _flops(both["distilled"], length, batch) / _flops(both["teacher"], length, batch)
        found[f"distilled-time-{length}"] = Measurement(
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
