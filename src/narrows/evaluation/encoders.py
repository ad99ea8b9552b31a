"""How good an encoder is at finding texts and at telling classes apart. Any function from texts to vectors will do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from narrows.data.labelled import LabelledTexts
from narrows.data.retrieval import RetrievalData
from narrows.errors import UsageError
from narrows.evaluation.bootstrap import Interval, MeanInterval, bootstrap, paired_bootstrap
from narrows.evaluation.probes import linear_probe
from narrows.evaluation.retrieval import judged_ranks, ndcg, recall, reciprocal_rank

__all__ = ["Embed", "EncoderEvaluation", "compare_encoders", "evaluate_probe", "evaluate_retrieval"]

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to vectors, `[texts, width]` in fp32, in their order."""

_FIRST, _MANY = 10, 100


@dataclass(frozen=True)
class EncoderEvaluation:
    """What an evaluation found.

    Attributes:
        scores: by name, mean in percent and its 95 % interval over queries or tested texts.
        each: by name, the score in percent of each query or tested text, for `compare_encoders`.
        facts: what was scored: numbers of queries, candidates or texts, the width of the vectors.
    """

    scores: Mapping[str, MeanInterval]
    each: Mapping[str, Sequence[float]]
    facts: Mapping[str, Any]


def evaluate_retrieval(embed: Embed, data: RetrievalData, *, embed_queries: Embed | None = None) -> EncoderEvaluation:
    """Looks through all candidates for each query, by the cosine of their vectors.

    Args:
        embed: vectors of candidates, and of queries unless those have a function of their own.
        data: from `read_retrieval`.
        embed_queries: of encoders that read queries in another way.

    Returns:
        `mrr@10`, `ndcg@10`, `recall@10` and `recall@100`.

    Raises:
        UsageError: vectors of another number than texts, or that are not finite.

    Example:
        `evaluate_retrieval(encoder.embed, read_retrieval("squad_reqa/eval-500.json.gz")).scores["mrr@10"]`
    """
    candidates = _unit(_vectors(embed, data.candidates))
    queries = _unit(_vectors(embed_queries or embed, data.queries))
    each: dict[str, list[float]] = {}
    for query, gains in zip(queries, data.gains, strict=True):
        ranks = judged_ranks(candidates @ query, gains)
        right = [rank for candidate, rank in ranks.items() if gains[candidate] > 0]
        found = {
            f"mrr@{_FIRST}": reciprocal_rank(right, k=_FIRST),
            f"ndcg@{_FIRST}": ndcg(list(ranks.values()), [gains[candidate] for candidate in ranks], k=_FIRST),
            f"recall@{_FIRST}": recall(right, k=_FIRST),
            f"recall@{_MANY}": recall(right, k=_MANY),
        }
        for name, value in found.items():
            each.setdefault(name, []).append(100 * value)
    facts = {
        "queries": len(data.queries),
        "queries_without_a_right_candidate": data.left_out,
        "candidates": len(data.candidates),
        "width": candidates.shape[1],
    }
    return _evaluation(each, facts)


def evaluate_probe(embed: Embed, data: LabelledTexts, *, seed: int = 0) -> EncoderEvaluation:
    """Fits a linear probe on the vectors of labelled texts; see `linear_probe`.

    Args:
        embed: vectors of texts.
        data: from `read_labelled`.
        seed: of the draw that chooses the penalty.

    Returns:
        `accuracy`.

    Raises:
        UsageError: as `evaluate_retrieval` and `linear_probe`.
        MissingExtraError: scikit-learn is not installed.
    """
    vectors = _vectors(embed, data.texts)
    found = linear_probe(vectors, data.labels, data.parts, seed=seed)
    facts = {
        "texts": len(found.tested),
        "train_texts": found.train_texts,
        "parts": len(found.strengths),
        "inverse_penalties": found.strengths,
        "classes": list(data.classes),
        "width": vectors.shape[1],
    }
    return _evaluation({"accuracy": [100.0 * right for right in found.right]}, facts)


def compare_encoders(ours: EncoderEvaluation, theirs: EncoderEvaluation) -> dict[str, Interval]:
    """By score, that of one encoder less that of another on the same data, in points, and its 95 % interval.

    Raises:
        UsageError: they were not scored on the same queries or texts.
    """
    return {name: paired_bootstrap(ours.each[name], theirs.each.get(name, ())) for name in ours.each}


def _evaluation(each: Mapping[str, Sequence[float]], facts: Mapping[str, Any]) -> EncoderEvaluation:
    return EncoderEvaluation({name: bootstrap(values) for name, values in each.items()}, each, facts)


def _vectors(embed: Embed, texts: Sequence[str]) -> np.ndarray:
    vectors = np.asarray(embed(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise UsageError(
            f"expected a finite vector for each of {len(texts):,} texts, got {vectors.shape} with "
            f"{int((~np.isfinite(vectors)).sum())} numbers that are not finite; check the encoder."
        )
    return vectors


def _unit(vectors: np.ndarray) -> np.ndarray:
    # A vector of nothing but zeros is like no other one.
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
