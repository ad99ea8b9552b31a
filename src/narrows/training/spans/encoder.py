"""A span reader that is an encoder as it is: any family's span head, or a Funnel's conditional one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoTokenizer

from narrows.data import PairLayout, QAExample, SpanFeature, pair_layout
from narrows.errors import UsageError
from narrows.evaluation.metrics import squad_scores
from narrows.evaluation.span_models import has_conditional_head, span_head
from narrows.evaluation.spans import predict_spans, span_inputs
from narrows.funnel.heads import FunnelForConditionalQuestionAnswering
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.hf.trained_spans import TrainedSpans, note_spans, trained_spans
from narrows.training.dropout import set_dropout
from narrows.training.heads import load_with_head, require_positions
from narrows.training.spans.data import SpanRows, is_labelled
from narrows.training.spans.objective import ConditionalObjective, SpanObjective
from narrows.training.spans.recipe import SpanRecipe
from narrows.training.tasks import find_checkpoint

__all__ = [
    "answer_tokens",
    "build_encoder",
    "encoder_objective",
    "load_layout",
    "require_labels",
    "save_encoder",
    "score_on_tune",
]


def load_layout(recipe: SpanRecipe, *, runs: Path | None) -> tuple[Any, PairLayout]:
    """The checkpoint's tokenizer, and how it joins a pair.

    Raises:
        ConversionError: there is none.
        UsageError: a checkpoint of a DeFormer, or see `pair_layout`.
    """
    register_all()
    folder = checkpoint_folder(find_checkpoint(recipe.model.checkpoint, runs))
    require_tokenizer(folder)
    if AutoConfig.from_pretrained(folder).model_type == "narrows-deformer":
        raise UsageError(
            f"expected 'model.split_layer' for the DeFormer {recipe.model.checkpoint}, got none; add it to the recipe"
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer, pair_layout(tokenizer)


def build_encoder(recipe: SpanRecipe, layout: PairLayout, *, runs: Path | None) -> Any:
    """The model in fp32; a head that the checkpoint lacks is new, by torch's seed.

    Raises:
        ConversionError: a checkpoint that is damaged, or of a family without such a head.
        UsageError: fewer positions than rows may have tokens.
    """
    checkpoint = recipe.model.checkpoint
    folder = checkpoint_folder(find_checkpoint(checkpoint, runs))
    config = AutoConfig.from_pretrained(folder)
    if recipe.optimiser.dropout is not None:
        set_dropout(config, recipe.optimiser.dropout)
    head = recipe.model.head
    conditional = head == "conditional" or (head is None and has_conditional_head(config))
    auto = span_head(config, checkpoint, conditional=conditional)
    # A start and an end, whatever the checkpoint classified before.
    config.num_labels = 2
    model = load_with_head(auto, folder, config, checkpoint)
    longest = recipe.data.max_question_tokens + recipe.data.max_passage_tokens + layout.special_tokens
    key = f"data.max_question_tokens, data.max_passage_tokens and {layout.special_tokens} special tokens together"
    require_positions(model, checkpoint, tokens=longest, key=key)
    return model.train()


def encoder_objective(recipe: SpanRecipe, model: Any, layout: PairLayout) -> SpanObjective | ConditionalObjective:
    """The head's loss."""
    inputs = span_inputs(model, layout)
    if isinstance(model, FunnelForConditionalQuestionAnswering):
        return ConditionalObjective(recipe.losses.task, inputs=inputs)
    return SpanObjective(recipe.losses, split_layer=0, teacher=None, inputs=inputs)


def answer_tokens(recipe: SpanRecipe, model: Any) -> int:
    """Longest answer: the recipe's, or what the checkpoint says."""
    return recipe.data.max_answer_tokens or trained_spans(model.config).max_answer_tokens


def require_labels(rows: SpanRows) -> None:
    """Refuse rows that nothing can be learnt from without a teacher.

    Raises:
        UsageError: a question of which nothing is known.
    """
    for example in rows.examples:
        if not is_labelled(example):
            raise UsageError(
                f"expected an answer to each question, or that there is none, got neither for {example.id!r}; keep "
                "those with `answers: answerable`, or label them with `python -m narrows.training.label`"
            )


def score_on_tune(
    model: nn.Module,
    *,
    examples: Sequence[QAExample],
    features: Sequence[SpanFeature],
    layout: PairLayout,
    max_answer_tokens: int,
) -> Mapping[str, float]:
    """F1 and exact match in percent, with refusals where some question is impossible; leaves the model in eval mode."""
    model.eval()
    found = predict_spans(model, examples, features, layout=layout, max_answer_tokens=max_answer_tokens)
    refuses = any(example.impossible for example in examples)
    # At a margin of 0 an answer and none are as likely.
    texts = {e.id: "" if refuses and p.margin < 0 else p.text for e, p in zip(examples, found, strict=True)}
    scores = squad_scores(texts, examples)
    parts = {"has_answer_f1": scores.has_answer_f1, "no_answer_accuracy": scores.no_answer_accuracy} if refuses else {}
    return {"f1": scores.f1, "exact": scores.exact, **{name: part for name, part in parts.items() if part is not None}}


def save_encoder(model: Any, tokenizer: Any, recipe: SpanRecipe, folder: Path) -> None:
    """The model with how it reads, and its tokenizer; when it refuses is not fitted yet."""
    data = recipe.data
    reading = TrainedSpans(
        max_question_tokens=data.max_question_tokens,
        max_passage_tokens=data.max_passage_tokens,
        overlap=data.overlap,
        max_answer_tokens=answer_tokens(recipe, model),
    )
    note_spans(model.config, reading)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
