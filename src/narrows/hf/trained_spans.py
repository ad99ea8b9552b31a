"""How a span reader reads and when it refuses to answer, as its config says it."""

from typing import Any, NamedTuple

from narrows.errors import ConversionError

__all__ = ["SPANS_FIELD", "TrainedSpans", "is_noted", "note_spans", "trained_spans"]

SPANS_FIELD = "narrows_spans"
"""The config's field; transformers keeps fields that it does not know. A DeFormer's config has fields of its own."""


class TrainedSpans(NamedTuple):
    """How a span reader was trained to read, and its rule for refusing.

    Attributes:
        max_question_tokens: longer questions are cut.
        max_passage_tokens: widest window over a passage.
        overlap: tokens that consecutive windows share at least.
        max_answer_tokens: longest answer.
        no_answer_scale: of the rule; see `narrows.evaluation.calibration.NoAnswerRule`.
        no_answer_bias: of the rule.
        no_answer_threshold: of the rule.
    """

    max_question_tokens: int = 64
    max_passage_tokens: int = 320
    overlap: int = 128
    max_answer_tokens: int = 30
    no_answer_scale: float = 1.0
    no_answer_bias: float = 0.0
    no_answer_threshold: float = 0.5


def note_spans(config: Any, spans: TrainedSpans) -> None:
    """Write into a config how its model reads."""
    setattr(config, SPANS_FIELD, spans._asdict())


def is_noted(config: Any) -> bool:
    """Whether a config that is no DeFormer's says how its model reads."""
    return getattr(config, SPANS_FIELD, None) is not None


def trained_spans(config: Any) -> TrainedSpans:
    """How a span reader reads; the defaults where its config does not say.

    Raises:
        ConversionError: the config says something else there.
    """
    if config.model_type == "narrows-deformer":
        found = {name: getattr(config, name) for name in TrainedSpans._fields if name != "overlap"}
        # An answer no longer than this lies whole in some window.
        return TrainedSpans(**found, overlap=min(128, config.max_passage_tokens // 2))
    noted = getattr(config, SPANS_FIELD, None)
    if noted is None:
        return TrainedSpans()
    try:
        return TrainedSpans(**noted)
    except TypeError as error:
        raise ConversionError(
            f"expected {', '.join(TrainedSpans._fields)} under {SPANS_FIELD!r} of config.json, got {noted!r:.80}; mend "
            "or remove it"
        ) from error
