"""A recipe of a span reader becomes model, teacher, data, objective and trainer."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from accelerate import PartialState
from torch import nn
from transformers import AutoConfig, AutoTokenizer

from narrows._plural import count
from narrows.data import PairLayout, QAExample, SpanEncoder, SpanFeature, evenly_spread
from narrows.deformer import DeformerForQuestionAnswering
from narrows.deformer.bert import BertLayer
from narrows.deformer.convert import convert_checkpoint, from_pretrained_encoder
from narrows.errors import UsageError
from narrows.evaluation.metrics import squad_scores
from narrows.evaluation.resuming import require_unique
from narrows.evaluation.span_models import layout_of
from narrows.evaluation.spans import predict_spans
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.training.arguments import fine_tuning_arguments
from narrows.training.batches import BatchPlan
from narrows.training.spans.data import SpanRows, collate_rows, read_parts
from narrows.training.spans.encoder import (
    answer_tokens,
    build_encoder,
    encoder_objective,
    load_layout,
    require_labels,
    save_encoder,
    score_on_tune,
)
from narrows.training.spans.objective import ConditionalObjective, SpanObjective
from narrows.training.spans.recipe import SpanRecipe
from narrows.training.spans.states import store_states
from narrows.training.spans.tuning import choose_trainable
from narrows.training.tasks import Plan, Run, find_checkpoint
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["build_model", "build_run", "plan_run"]


def build_model(checkpoint: str, *, split_layer: int, dropout: float = 0.0) -> tuple[DeformerForQuestionAnswering, Any]:
    """A span model split at k, from a DeFormer (as a run leaves it) or a BERT checkpoint; its tokenizer."""
    register_all()
    folder = checkpoint_folder(checkpoint)
    require_tokenizer(folder)
    if AutoConfig.from_pretrained(folder).model_type == "narrows-deformer":
        source = DeformerForQuestionAnswering.from_pretrained(folder, dtype=torch.float32)
        model = from_pretrained_encoder(source, split_layer=split_layer)
    else:
        model, _ = convert_checkpoint(folder, split_layer=split_layer, task="question-answering")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
        if isinstance(module, BertLayer):
            # Dropout on attention weights leaves the fast kernel; dropout on the layers' outputs does not.
            module.attention_dropout = 0.0
    model.config.hidden_dropout_prob, model.config.attention_probs_dropout_prob = dropout, 0.0
    if not torch.cuda.is_available():
        # On a CPU the fused kernel's backward pass takes three times that of plain products (docs/log.md).
        model.set_attn_implementation("eager")
    return model, AutoTokenizer.from_pretrained(folder)


def plan_run(recipe: SpanRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Read and cut a recipe's data, and count; no model is built."""
    if recipe.model.split_layer is None:
        tokenizer, layout = load_layout(recipe, runs=runs)
        return _plan(recipe, *_rows(recipe, tokenizer, data, runs, layout))
    register_all()
    folder = checkpoint_folder(find_checkpoint(recipe.model.checkpoint, runs))
    require_tokenizer(folder)
    return _plan(recipe, *_rows(recipe, AutoTokenizer.from_pretrained(folder), data, runs))


def build_run(recipe: SpanRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.

    Raises:
        UsageError: see `read_part`; an encoder's see `load_layout`, `build_encoder` and `require_labels`.
        ConversionError: see `convert_checkpoint` and `build_encoder`.
    """
    torch.manual_seed(recipe.optimiser.seed)
    if recipe.model.split_layer is None:
        parts = _encoder_parts(recipe, data, runs)
    else:
        parts = _deformer_parts(recipe, data, runs, output, split_layer=recipe.model.split_layer, quiet=quiet)
    stop = StopSignal()
    trainer = NarrowsTrainer(
        objective=parts.objective,
        plan=parts.plan,
        collate=parts.collate,
        evaluate_model=parts.evaluate,
        layer_decay=recipe.optimiser.layer_decay,
        model=parts.model,
        args=fine_tuning_arguments(
            recipe.optimiser,
            output,
            evaluate_every=recipe.evaluate_every,
            metric="f1" if recipe.data.tune else None,
            quiet=quiet,
        ),
        train_dataset=parts.rows,
        eval_dataset=parts.tune,
        callbacks=[stop, ClockCheckpoint(), JsonLog(output / "log.jsonl")],
    )
    return Run(trainer, stop, _plan(recipe, parts.rows, parts.plan), parts.save)


class _Parts(NamedTuple):
    """What a run is made of, whatever the model; `tune` only has transformers agree to evaluate."""

    model: Any
    rows: SpanRows
    plan: BatchPlan
    collate: Callable[..., dict[str, torch.Tensor]]
    objective: SpanObjective | ConditionalObjective
    tune: Sequence[SpanFeature] | None
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None
    save: Callable[[Path], None]


def _encoder_parts(recipe: SpanRecipe, data: Path, runs: Path | None) -> _Parts:
    tokenizer, layout = load_layout(recipe, runs=runs)
    rows, plan = _rows(recipe, tokenizer, data, runs, layout)
    require_labels(rows)
    model = build_encoder(recipe, layout, runs=runs)
    features = evaluate = None
    if recipe.data.tune:
        examples, features = _tune(recipe, tokenizer, data)
        evaluate = partial(
            score_on_tune,
            examples=examples,
            features=features,
            layout=layout,
            max_answer_tokens=answer_tokens(recipe, model),
        )
    pad, segment = layout.padding
    collate = partial(collate_rows, pad=pad, pad_segment=segment)
    save = partial(save_encoder, model, tokenizer, recipe)
    return _Parts(model, rows, plan, collate, encoder_objective(recipe, model, layout), features, evaluate, save)


def _deformer_parts(
    recipe: SpanRecipe, data: Path, runs: Path | None, output: Path, *, split_layer: int, quiet: bool
) -> _Parts:
    model, tokenizer = build_model(
        find_checkpoint(recipe.model.checkpoint, runs),
        split_layer=split_layer,
        dropout=recipe.optimiser.dropout or 0.0,
    )
    model.config.max_question_tokens = recipe.data.max_question_tokens
    model.config.max_passage_tokens = recipe.data.max_passage_tokens
    if recipe.data.max_answer_tokens is not None:
        model.config.max_answer_tokens = recipe.data.max_answer_tokens
    finish = choose_trainable(model, recipe.tune)
    teacher = _teacher(recipe, runs, layers=model.config.num_hidden_layers)
    rows, plan = _rows(recipe, tokenizer, data, runs)
    if recipe.tune.what in ("upper", "lora") and split_layer > 0:
        _store_lower_states(model, rows, recipe, output, quiet=quiet)
    features = evaluate = None
    if recipe.data.tune:
        examples, features = _tune(recipe, tokenizer, data)
        if not any(example.answers for example in examples):
            raise UsageError(
                f"expected questions with an answer in the tune data of {recipe.name}, by which a DeFormer's best "
                "checkpoint is chosen, got none; name others, or leave `tune` out"
            )
        evaluate = partial(_score_answerable, examples=examples, features=features, tokenizer=tokenizer)

    def save(folder: Path) -> None:
        finish().save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    collate = partial(collate_rows, pad=tokenizer.pad_token_id)
    objective = SpanObjective(recipe.losses, split_layer=split_layer, teacher=teacher)
    return _Parts(model, rows, plan, collate, objective, features, evaluate, save)


def _teacher(recipe: SpanRecipe, runs: Path | None, *, layers: int) -> DeformerForQuestionAnswering | None:
    if recipe.teacher is None or not (recipe.losses.kd or recipe.losses.lrs):
        return None
    checkpoint = find_checkpoint(recipe.teacher, runs)
    config = AutoConfig.from_pretrained(checkpoint_folder(checkpoint))
    teacher, _ = build_model(checkpoint, split_layer=getattr(config, "split_layer", 0))
    if teacher.config.num_hidden_layers != layers:
        raise UsageError(
            f"expected a teacher of {count(layers, 'layer')}, got {teacher.config.num_hidden_layers}; "
            "distil from a model of the student's depth"
        )
    return teacher


def _rows(
    recipe: SpanRecipe, tokenizer: Any, data: Path, runs: Path | None, layout: PairLayout | None = None
) -> tuple[SpanRows, BatchPlan]:
    optimiser = recipe.optimiser
    examples = read_parts(recipe.data.train, data, seed=optimiser.seed, runs=runs)
    rows = SpanRows(examples, tokenizer, recipe.data, layout=layout)
    plan = BatchPlan(
        rows.lengths,
        batch_tokens=optimiser.batch_tokens,
        epochs=optimiser.epochs,
        seed=optimiser.seed,
        batch_rows=optimiser.batch_rows,
    )
    return rows, plan


def _plan(recipe: SpanRecipe, rows: SpanRows, batches: BatchPlan) -> Plan:
    steps = -(-len(batches) // recipe.optimiser.accumulation)
    cut = {"questions": rows.truncated_questions} if rows.truncated_questions else {}
    return Plan(len(rows), sum(rows.lengths), steps, cut)


def _store_lower_states(
    model: DeformerForQuestionAnswering, rows: SpanRows, recipe: SpanRecipe, output: Path, *, quiet: bool
) -> None:
    """The frozen lower layers read every text once, here, and never again in a step."""
    state = PartialState()
    cast(nn.Module, model).to(state.device if torch.cuda.is_available() else "cpu")
    with state.main_process_first():
        states = store_states(
            model,
            rows.sides(),
            folder=output / "states",
            batch_tokens=recipe.optimiser.batch_tokens,
            quiet=quiet or not state.is_main_process,
        )
    rows.use_states(states)


def _tune(recipe: SpanRecipe, tokenizer: Any, data: Path) -> tuple[Sequence[QAExample], list[SpanFeature]]:
    """Examples of the tune data, and their windows."""
    examples = evenly_spread(read_parts(recipe.data.tune, data, seed=recipe.optimiser.seed), recipe.data.tune_limit)
    require_unique(example.id for example in examples)
    encoder = SpanEncoder(
        tokenizer,
        max_question_tokens=recipe.data.max_question_tokens,
        max_passage_tokens=recipe.data.max_passage_tokens,
        overlap=recipe.data.overlap,
    )
    return examples, encoder.encode(examples).features


def _score_answerable(
    model: Any, *, examples: Sequence[QAExample], features: Sequence[SpanFeature], tokenizer: Any
) -> dict[str, float]:
    """Of the questions that have an answer: when a DeFormer refuses is fitted after training."""
    model.eval()
    predictions = predict_spans(
        model,
        examples,
        features,
        layout=layout_of(model, tokenizer),
        max_answer_tokens=model.config.max_answer_tokens,
    )
    answerable = [(p, example) for p, example in zip(predictions, examples, strict=True) if example.answers]
    scores = squad_scores({e.id: p.text for p, e in answerable}, [e for _, e in answerable])
    return {"f1": scores.f1, "exact": scores.exact}
