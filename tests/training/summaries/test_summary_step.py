"""A step of a summariser: the same however the batch is split, and the cross entropy of transformers' own models."""

from functools import partial

import pytest
import torch
from torch.utils.data import Sampler
from transformers import Seq2SeqTrainingArguments

from narrows.hf.seq2seq import load_seq2seq
from narrows.training.summaries.build import build_run
from narrows.training.summaries.data import Row, collate_rows
from narrows.training.summaries.objective import SummaryObjective
from narrows.training.summaries.stages import Item
from narrows.training.summaries.trainer import SummaryTrainer


class _Fixed(Sampler[list[int]]):
    def __init__(self, batches: list[list[int]]):
        self._batches = batches

    def __iter__(self):
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


ROWS = [Row([5 + n % 7] * (9 + 4 * n) + [1], [6 + n] * (2 + 3 * n) + [1]) for n in range(5)]


def _step(checkpoint, tmp_path, batches) -> dict[str, torch.Tensor]:
    """Weights after a step of SGD over all batches."""
    model, _ = load_seq2seq(checkpoint, dropout_rate=0.0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = SummaryTrainer(
        optimizer_name="adafactor",
        objective=SummaryObjective(),
        plan=_Fixed(batches),
        collate=partial(collate_rows, pad=0, start=0),
        evaluate_model=None,
        model=model.train(),
        args=Seq2SeqTrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=1,
            gradient_accumulation_steps=len(batches),
            max_grad_norm=0.0,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=ROWS,
        optimizers=(optimiser, torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0)),
    )
    trainer.train()
    assert trainer.state.global_step == 1
    return model.state_dict()


@pytest.mark.parametrize("kind", ["mulla", "t5", "longt5"])
def test_a_step_does_not_depend_on_how_the_batch_is_split(kind, tiny_seq2seq, tmp_path) -> None:
    # The targets have 3, 6, 9, 12 and 15 labels: a mean over micro-batches would weigh them unequally.
    start = load_seq2seq(tiny_seq2seq(kind))[0].state_dict()
    whole = _step(tiny_seq2seq(kind), tmp_path, [[0, 1, 2, 3, 4]])
    parts = _step(tiny_seq2seq(kind), tmp_path, [[4], [0, 3], [1, 2]])
    moved = 0.0
    for name, tensor in whole.items():
        moved = max(moved, float((tensor - start[name]).abs().max()))
        torch.testing.assert_close(tensor, parts[name], atol=2e-6, rtol=1e-5)
    assert moved > 1e-4


@pytest.mark.parametrize("kind", ["mulla", "t5", "longt5", "tglobal"])
def test_the_loss_is_the_models_own(kind, tiny_seq2seq) -> None:
    model, _ = load_seq2seq(tiny_seq2seq(kind))
    batch = collate_rows(ROWS, pad=0, start=0)
    objective = SummaryObjective()
    ours = objective(model, batch, objective.counts([batch]))
    theirs = model(**{name: batch[name] for name in ("input_ids", "attention_mask", "labels")}).loss
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_a_batch_without_labels_has_no_loss(tiny_seq2seq) -> None:
    model, _ = load_seq2seq(tiny_seq2seq("mulla"))
    batch = collate_rows(ROWS[:1], pad=0, start=0)
    batch["labels"] = torch.full_like(batch["labels"], -100)
    objective = SummaryObjective()
    assert float(objective(model, batch, objective.counts([batch])).detach()) == 0.0


def test_collated_rows_are_padded_and_shifted() -> None:
    batch = collate_rows([Row([5, 6, 1], [7, 1]), Row([8, 1], [9, 9, 1])], pad=0, start=2)
    assert batch["input_ids"].tolist() == [[5, 6, 1], [8, 1, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[7, 1, -100], [9, 9, 1]]
    assert batch["decoder_input_ids"].tolist() == [[2, 7, 0], [2, 9, 9]]


def test_adafactor_has_transformers_settings(summary_recipe, summaries_folder, tmp_path) -> None:
    run = build_run(summary_recipe(), data=summaries_folder, output=tmp_path, quiet=True)
    optimiser = run.trainer.create_optimizer()
    assert type(optimiser).__name__ == "Adafactor"
    for group in optimiser.param_groups:
        assert (group["lr"], group["scale_parameter"], group["relative_step"]) == (1e-3, False, False)
    scheduler = run.trainer.create_scheduler(10)
    assert {scheduler.lr_lambdas[0](step) for step in range(10)} == {1.0}


@pytest.mark.parametrize("prefix", ["", "the king: "])
def test_training_evaluation_and_use_read_the_same_tokens(prefix, summary_recipe, summaries_folder, tmp_path) -> None:
    from narrows.hf.seq2seq import input_encoder
    from narrows.hf.trained_inputs import trained_inputs
    from narrows.training.summaries.data import read_examples

    recipe = summary_recipe(data={"prefix": prefix})
    run = build_run(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    noted = trained_inputs(run.trainer.model.config)
    assert noted == recipe.trained_inputs() and noted.prefix == prefix
    rows, (_, tokenizer) = run.trainer.train_dataset, load_seq2seq(recipe.model.checkpoint)
    encoder = input_encoder(tokenizer, truncation=noted.make_truncation(), max_tokens=32, prefix=noted.prefix)
    begins = [] if not prefix else tokenizer(prefix, add_special_tokens=False).input_ids
    for number, example in enumerate(read_examples(recipe.data.train[0], summaries_folder)):
        row = rows[Item(0, 0, number)]
        assert row.input_ids == encoder.encode(example.documents, query=example.query).inputs[0]
        assert row.input_ids[: len(begins)] == begins
        assert row.labels == [*tokenizer(example.summary).input_ids[:11], 1]
