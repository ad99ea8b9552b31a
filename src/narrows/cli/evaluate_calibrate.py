"""The part of `narrows evaluate` that fits when a reader refuses an answer, and writes it into the model's config."""

import json as json_module
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from narrows.cli.evaluation_files import write_json
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.data import QAExample
    from narrows.evaluation.run import NoAnswerRule, Prediction

__all__ = ["fit_rule", "read_config", "require_both_kinds", "update_config"]


def require_both_kinds(examples: "Sequence[QAExample]", where: str) -> None:
    """Before an hour of reading: a rule for refusing needs questions to refuse.

    Raises:
        UsageError: under two questions with an answer, or without.
    """
    answerable = sum(bool(example.answers) for example in examples)
    if not 2 <= answerable <= len(examples) - 2:
        raise UsageError(
            f"expected at least 2 questions with an answer and 2 without, got {answerable} and "
            f"{len(examples) - answerable} in {where}; calibrate on data in the layout of SQuAD v2.0"
        )


def fit_rule(predictions: "Mapping[str, Prediction]", examples: "Sequence[QAExample]", folder: Path) -> "NoAnswerRule":
    """Fit the rule on the predictions of a model, and write it into the config in its folder."""
    import math

    from narrows.evaluation.calibration import NoAnswerRule, answer_probability, choose_threshold, fit_no_answer

    usable = [example for example in examples if math.isfinite(predictions[example.id].margin)]
    scale, bias = fit_no_answer(
        [predictions[example.id].margin for example in usable], [bool(example.answers) for example in usable]
    )
    probabilities = {
        example.id: answer_probability(predictions[example.id].margin, scale=scale, bias=bias) for example in examples
    }
    texts = {name: prediction.text for name, prediction in predictions.items()}
    threshold = choose_threshold(probabilities, texts, examples).threshold
    update_config(folder, no_answer_scale=scale, no_answer_bias=bias, no_answer_threshold=threshold)
    return NoAnswerRule(scale, bias, threshold)


def update_config(folder: Path, **fields: float) -> None:
    """Write fields into the config of a reader: a DeFormer's own, or those of how another one reads.

    Raises:
        UsageError: the folder holds another kind of model.
    """
    from narrows.hf.trained_spans import SPANS_FIELD

    config = read_config(folder)
    nested = {SPANS_FIELD: {**config[SPANS_FIELD], **fields}} if SPANS_FIELD in config else fields
    write_json(folder / "config.json", {**config, **nested})


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a DeFormer, or of another reader that `narrows train` made.

    Raises:
        UsageError: the folder holds another kind of model.
    """
    from narrows.hf.checkpoints import checkpoint_folder
    from narrows.hf.trained_spans import SPANS_FIELD

    # Says which of its files is damaged.
    checkpoint_folder(folder)
    config = json_module.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "narrows-deformer" and SPANS_FIELD not in config:
        raise UsageError(
            f"expected a DeFormer to calibrate, got {folder} of type {config.get('model_type')!r}, which `narrows "
            "train` did not make; convert it with `narrows convert`"
        )
    return config
