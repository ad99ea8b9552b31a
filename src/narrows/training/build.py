"""The one knot: a recipe becomes model, teacher, data, objective and trainer."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoTokenizer, TrainingArguments

from narrows.data import SpanEncoder
from narrows.deformer import DeformerForQuestionAnswering
from narrows.deformer.convert import convert_checkpoint, from_pretrained_encoder
from narrows.errors import UsageError
from narrows.evaluation.metrics import squad_scores
from narrows.evaluation.spans import predict_spans
from narrows.hf.checkpoints import checkpoint_folder
from narrows.hf.register import register_all
from narrows.training.data import BatchPlan, SpanRows, collate_rows, read_parts
from narrows.training.objective import SpanObjective
from narrows.training.recipe import Recipe
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["Run", "build_model", "build_run"]

_SECONDS_BETWEEN_CHECKPOINTS = 600


class Run(NamedTuple):
    """A trainer ready to go, the signal it listens to, and what the card says of the data."""

    trainer: NarrowsTrainer
    stop: StopSignal
    tokenizer: Any
    rows: int
    truncated_questions: int


def build_model(checkpoint: str, *, split_layer: int, dropout: float = 0.0) -> tuple[DeformerForQuestionAnswering, Any]:
    """A span model split at k, from a DeFormer (another run's output) or any BERT checkpoint, and its tokenizer."""
    register_all()
    folder = checkpoint_folder(checkpoint)
    if AutoConfig.from_pretrained(folder).model_type == "narrows-deformer":
        source = DeformerForQuestionAnswering.from_pretrained(folder, dtype=torch.float32)
        model = from_pretrained_encoder(source, split_layer=split_layer)
    else:
        model, _ = convert_checkpoint(folder, split_layer=split_layer, task="question-answering")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
        if hasattr(module, "attention_dropout"):
            # Dropout on attention weights leaves the fast kernel; dropout on the layers' outputs does not.
            module.attention_dropout = 0.0
    model.config.hidden_dropout_prob, model.config.attention_probs_dropout_prob = dropout, 0.0
    return model, AutoTokenizer.from_pretrained(folder)


def build_run(recipe: Recipe, *, data: Path, output: Path, quiet: bool = False) -> Run:
    """Everything a run needs, in `output`."""
    torch.manual_seed(recipe.optimiser.seed)
    model, tokenizer = build_model(
        recipe.model.checkpoint, split_layer=recipe.model.split_layer, dropout=recipe.optimiser.dropout
    )
    model.config.max_question_tokens = recipe.data.max_question_tokens
    model.config.max_passage_tokens = recipe.data.max_passage_tokens
    _choose_trainable(model, recipe)
    teacher = None
    if recipe.teacher is not None and (recipe.losses.kd or recipe.losses.lrs):
        teacher_config = AutoConfig.from_pretrained(checkpoint_folder(recipe.teacher))
        teacher, _ = build_model(recipe.teacher, split_layer=getattr(teacher_config, "split_layer", 0))
        if teacher.config.num_hidden_layers != model.config.num_hidden_layers:
            raise UsageError(
                f"expected a teacher of {model.config.num_hidden_layers} layers, got {teacher.config.num_hidden_layers}; "
                "distil from a model of the student's depth"
            )
    rows = SpanRows(read_parts(recipe.data.train, data, seed=recipe.optimiser.seed), tokenizer, recipe.data)
    plan = BatchPlan(
        rows.lengths,
        batch_tokens=recipe.optimiser.batch_tokens,
        epochs=recipe.optimiser.epochs,
        seed=recipe.optimiser.seed,
    )
    tune_features, evaluate_model = _tune_evaluation(recipe, tokenizer, data) if recipe.data.tune else (None, None)
    stop = StopSignal()
    trainer = NarrowsTrainer(
        objective=SpanObjective(recipe.losses, split_layer=recipe.model.split_layer, teacher=teacher),
        plan=plan,
        collate=partial(collate_rows, pad=tokenizer.pad_token_id),
        evaluate_model=evaluate_model,
        layer_decay=recipe.optimiser.layer_decay,
        model=model,
        args=_arguments(recipe, output, quiet=quiet),
        train_dataset=rows,
        eval_dataset=tune_features,
        callbacks=[stop, ClockCheckpoint(_SECONDS_BETWEEN_CHECKPOINTS), JsonLog(output / "log.jsonl")],
    )
    return Run(trainer, stop, tokenizer, len(rows), rows.truncated_questions)


def _choose_trainable(model: DeformerForQuestionAnswering, recipe: Recipe) -> None:
    if recipe.tune.what == "all":
        return
    model.deformer.backbone.embeddings.requires_grad_(False)
    for layer in model.deformer.backbone.layers[: model.config.split_layer]:
        layer.requires_grad_(False)


def _tune_evaluation(recipe: Recipe, tokenizer: Any, data: Path):
    examples = read_parts(recipe.data.tune, data, seed=recipe.optimiser.seed)
    if recipe.data.tune_limit is not None and recipe.data.tune_limit < len(examples):
        # Evenly spread, so that every article has its share.
        step = len(examples) / recipe.data.tune_limit
        examples = [examples[int(index * step)] for index in range(recipe.data.tune_limit)]
    encoder = SpanEncoder(
        tokenizer,
        max_question_tokens=recipe.data.max_question_tokens,
        max_passage_tokens=recipe.data.max_passage_tokens,
        overlap=recipe.data.overlap,
    )
    features = encoder.encode(examples).features

    def evaluate(model: nn.Module) -> dict[str, float]:
        model.eval()
        predictions = predict_spans(
            model,
            examples,
            features,
            cls=tokenizer.cls_token_id,
            sep=tokenizer.sep_token_id,
            pad=tokenizer.pad_token_id,
        )
        answerable = [
            (prediction, example) for prediction, example in zip(predictions, examples, strict=True) if example.answers
        ]
        scores = squad_scores({e.id: p.text for p, e in answerable}, [e for _, e in answerable])
        return {"f1": scores.f1, "exact": scores.exact}

    return features, evaluate


def _arguments(recipe: Recipe, output: Path, *, quiet: bool) -> TrainingArguments:
    optimiser = recipe.optimiser
    evaluates = bool(recipe.data.tune)
    return TrainingArguments(
        output_dir=str(output),
        num_train_epochs=1,
        gradient_accumulation_steps=optimiser.accumulation,
        learning_rate=optimiser.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=optimiser.warmup,
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.max_grad_norm,
        bf16=optimiser.dtype == "bfloat16",
        use_cpu=not torch.cuda.is_available(),
        seed=optimiser.seed,
        logging_steps=20,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=recipe.evaluate_every,
        save_strategy="steps",
        save_steps=recipe.evaluate_every,
        save_total_limit=2,
        load_best_model_at_end=evaluates,
        metric_for_best_model="f1" if evaluates else None,
        greater_is_better=True if evaluates else None,
        remove_unused_columns=False,
        report_to="tensorboard",
        disable_tqdm=quiet,
    )
