"""A recipe of a summariser becomes model, data, objective and trainer."""

import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Seq2SeqTrainingArguments

from narrows._plural import count
from narrows.data import SummaryExample, TokenCache, evenly_spread, token_budget_batches
from narrows.data.long_inputs import InputEncoder
from narrows.evaluation.rouge import Rouge
from narrows.evaluation.summaries import mean_scores, write_summaries
from narrows.hf.seq2seq import input_encoder
from narrows.training.summaries.data import (
    CorruptedRows,
    Rows,
    SummaryRows,
    collate_rows,
    read_corpus,
    read_examples,
    read_text_corpus,
)
from narrows.training.summaries.model import build_model, build_tokenizer, require_sentinels
from narrows.training.summaries.objective import SummaryObjective
from narrows.training.summaries.recipe import DataPart, SummaryRecipe
from narrows.training.summaries.stages import GrowingPlan, Item
from narrows.training.summaries.trainer import SummaryTrainer
from narrows.training.tasks import Plan, Run
from narrows.training.trainer import ClockCheckpoint, JsonLog, StopSignal

__all__ = ["build_run", "plan_run"]

Evaluate = Callable[[nn.Module], dict[str, float]]


def plan_run(recipe: SummaryRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Read and cut a recipe's data, and count; no model is built and nothing is kept."""
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(recipe, recipe.data.train, tokenizer, data, Path(folder))
        return _plan(recipe, rows, _batches(recipe, rows))


def build_run(recipe: SummaryRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`: token ids in `tokens/`, and in `truncation.jsonl` what is not read.

    Of several processes each reads the data, and the first alone writes what is not read.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.
    """
    torch.manual_seed(recipe.optimiser.seed)
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    rows = _rows(recipe, recipe.data.train, tokenizer, data, output / "tokens")
    batches = _batches(recipe, rows)
    model = build_model(recipe, tokenizer, runs=runs)
    stop = StopSignal()
    trainer = SummaryTrainer(
        optimizer_name=recipe.optimiser.optimizer,
        objective=SummaryObjective(),
        plan=batches,
        collate=_collate(model),
        evaluate_model=_evaluation(recipe, tokenizer, data, output),
        model=model,
        args=_arguments(recipe, output, quiet=quiet),
        train_dataset=rows,
        # Only so that transformers agrees to evaluate: what is read is the evaluation's own.
        eval_dataset=rows if recipe.data.tune else None,
        callbacks=[stop, ClockCheckpoint(), JsonLog(output / "log.jsonl")],
    )

    if trainer.is_world_process_zero():
        _write_cuts(rows, output / "truncation.jsonl")

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return Run(trainer, stop, _plan(recipe, rows, batches), save)


def _rows(recipe: SummaryRecipe, parts: Sequence[DataPart], tokenizer: Any, data: Path, folder: Path) -> Any:
    cache = TokenCache(folder, tokenizer=tokenizer)
    stages = recipe.data.stages()
    if recipe.corrupts:
        tokens, times = read_text_corpus(parts, data, cache)
        return CorruptedRows(
            tokens,
            times,
            stages,
            corruption=recipe.corruption,
            sentinels=require_sentinels(tokenizer),
            eos=tokenizer.eos_token_id,
            seed=recipe.optimiser.seed,
        )
    return SummaryRows(
        read_corpus(parts, data, cache),
        [(_encoder(recipe, tokenizer, length), length, share) for length, share in stages],
        max_output_tokens=recipe.data.max_output_tokens,
        eos=tokenizer.eos_token_id,
    )


def _encoder(recipe: SummaryRecipe, tokenizer: Any, max_tokens: int) -> InputEncoder:
    """One for training and evaluation, so that both read alike."""
    cut = recipe.data.truncation.make()
    return input_encoder(tokenizer, truncation=cut, max_tokens=max_tokens, prefix=recipe.data.prefix)


def _batches(recipe: SummaryRecipe, rows: Rows) -> GrowingPlan:
    optimiser = recipe.optimiser
    return GrowingPlan(rows.stages, batch_tokens=optimiser.batch_tokens, epochs=optimiser.epochs, seed=optimiser.seed)


def _plan(recipe: SummaryRecipe, rows: Rows, batches: GrowingPlan) -> Plan:
    """Rows and tokens of an epoch at the last length; records that are cut at each of them."""
    last = rows.stages[-1]
    seen = [row for record in last.records for row in record]
    truncated: dict[str, int] = {}
    for max_tokens, _ in recipe.data.stages():
        cut = [cut for cut in rows.cuts if cut.max_input_tokens == max_tokens]
        name = "documents" if len(rows.stages) == 1 else f"documents at {count(max_tokens, 'token')}"
        truncated[name] = sum(bool(one.dropped) for one in cut)
    # The same ones at each length.
    longest = recipe.data.max_input_tokens
    truncated["summaries"] = sum(bool(cut.target_dropped) for cut in rows.cuts if cut.max_input_tokens == longest)
    steps = -(-len(batches) // recipe.optimiser.accumulation)
    tokens = sum(last.lengths[row] for row in seen)
    return Plan(len(seen), tokens, steps, {name: number for name, number in truncated.items() if number})


def _write_cuts(rows: Rows, path: Path) -> None:
    path.write_text(
        "".join(json.dumps(cut._asdict(), ensure_ascii=False) + "\n" for cut in rows.cuts), encoding="utf-8"
    )


def _collate(model: Any):
    return partial(collate_rows, pad=model.config.pad_token_id, start=model.config.decoder_start_token_id)


def _evaluation(recipe: SummaryRecipe, tokenizer: Any, data: Path, output: Path) -> Evaluate | None:
    if not recipe.data.tune:
        return None
    autocast = recipe.optimiser.dtype == "bfloat16"
    if recipe.corrupts:
        rows = _rows(recipe, recipe.data.tune, tokenizer, data, output / "tokens")
        return partial(_loss, rows=rows, recipe=recipe, autocast=autocast)
    examples = evenly_spread([e for part in recipe.data.tune for e in read_examples(part, data)], recipe.evaluate.limit)
    return partial(_rouge, examples=examples, tokenizer=tokenizer, recipe=recipe, autocast=autocast)


def _rouge(
    model: Any, *, examples: Sequence[SummaryExample], tokenizer: Any, recipe: SummaryRecipe, autocast: bool
) -> dict[str, float]:
    """Mean ROUGE of what the model writes of the tune data, a few records in memory at a time."""
    model.eval()
    rouge = Rouge(words=recipe.evaluate.words)
    written = write_summaries(
        model,
        tokenizer,
        examples,
        encoder=_encoder(recipe, tokenizer, recipe.data.max_input_tokens),
        options=recipe.generation.options(),
        batch_tokens=recipe.evaluate.batch_tokens,
        autocast=autocast,
    )
    means = mean_scores(rouge.score(one.text, one.example.references) for one in written)
    return {name: value for name, value in means.items() if name == "average" or name in recipe.evaluate.scores}


def _loss(model: Any, *, rows: CorruptedRows, recipe: SummaryRecipe, autocast: bool) -> dict[str, float]:
    """Cross entropy of a token to be written, in the same spans at every evaluation."""
    model.eval()
    objective, collate = SummaryObjective(), _collate(model)
    last = len(rows.stages) - 1
    chosen = evenly_spread(range(len(rows)), recipe.evaluate.limit)
    lengths = [rows.stages[last].lengths[row] for row in chosen]
    total, labels = 0.0, 0
    for batch in token_budget_batches(lengths, batch_tokens=recipe.evaluate.batch_tokens):
        made = collate([rows[Item(last, 0, chosen[place])] for place in batch])
        made = {name: tensor.to(model.device) for name, tensor in made.items()}
        counts = objective.counts([made])
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            loss = objective(model, made, counts)
        total += float(loss) * int(counts.labels)
        labels += int(counts.labels)
    return {"loss": total / labels}


def _arguments(recipe: SummaryRecipe, output: Path, *, quiet: bool) -> Seq2SeqTrainingArguments:
    optimiser = recipe.optimiser
    evaluates = bool(recipe.data.tune)
    schedule = "linear" if optimiser.schedule == "linear" else "constant_with_warmup"
    return Seq2SeqTrainingArguments(
        output_dir=str(output),
        num_train_epochs=1,
        gradient_accumulation_steps=optimiser.accumulation,
        learning_rate=optimiser.learning_rate,
        lr_scheduler_type=schedule,
        warmup_steps=optimiser.warmup,
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.max_grad_norm,
        bf16=optimiser.dtype == "bfloat16",
        activation_checkpointing=optimiser.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if optimiser.gradient_checkpointing else None,
        use_cpu=not torch.cuda.is_available(),
        seed=optimiser.seed,
        logging_steps=20,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=recipe.evaluate_every,
        save_strategy="steps",
        save_steps=recipe.evaluate_every,
        load_best_model_at_end=evaluates,
        metric_for_best_model=("loss" if recipe.corrupts else "average") if evaluates else None,
        greater_is_better=not recipe.corrupts if evaluates else None,
        remove_unused_columns=False,
        report_to="tensorboard",
        disable_tqdm=quiet,
    )
