"""A gradient step: the same however the batch is split, on the parameters it should touch and no others."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import Sampler
from transformers import TrainingArguments

from narrows.errors import UsageError
from narrows.training.optimiser import parameter_groups
from narrows.training.spans.build import build_model, build_run
from narrows.training.spans.data import SpanRows, collate_rows, read_part, read_parts
from narrows.training.spans.objective import SpanObjective
from narrows.training.spans.recipe import DataPart, LossSection
from narrows.training.trainer import NarrowsTrainer

PARTS = [
    DataPart(format="pairs", file="pairs.json"),
    DataPart(format="squad", file="train.json"),
]


class _Fixed(Sampler[list[int]]):
    def __init__(self, batches: list[list[int]]):
        self._batches = batches

    def __iter__(self):
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


@pytest.fixture
def rows(make_recipe, squad_folder, tiny_bert) -> SpanRows:
    _, tokenizer = build_model(str(tiny_bert), split_layer=2)
    return SpanRows(read_parts(PARTS, squad_folder, seed=0), tokenizer, make_recipe().data)


def _step(rows, tiny_bert, tmp_path, batches, losses, *, steps=1) -> dict[str, torch.Tensor]:
    """Weights after a step of SGD over all batches."""
    torch.manual_seed(0)
    teacher, _ = build_model(str(tiny_bert), split_layer=0)
    teacher.deformer.backbone.layers[1].query.weight.data.mul_(1.5)
    torch.manual_seed(0)
    model, tokenizer = build_model(str(tiny_bert), split_layer=2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = NarrowsTrainer(
        objective=SpanObjective(losses, split_layer=2, teacher=teacher),
        plan=_Fixed(batches * steps),
        collate=partial(collate_rows, pad=tokenizer.pad_token_id),
        evaluate_model=None,
        layer_decay=1.0,
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=1,
            gradient_accumulation_steps=len(batches),
            max_grad_norm=1e9,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=rows,
        optimizers=(optimiser, torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0)),
    )
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    trainer.train()
    assert trainer.state.global_step == steps
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.state_dict().items())
    return model.state_dict()


@pytest.mark.parametrize(
    "losses",
    [LossSection(), LossSection(task=0.5, kd=1.0, lrs=2.0), LossSection(task=0.0, kd=1.0)],
    ids=["task", "all three", "no labels"],
)
def test_a_step_does_not_depend_on_how_the_batch_is_split(losses, rows, tiny_bert, tmp_path) -> None:
    # Rows 0-3 have no labels: the first micro-batch is made of them alone.
    whole = _step(rows, tiny_bert, tmp_path, [list(range(14))], losses)
    parts = _step(rows, tiny_bert, tmp_path, [[0, 1], [2], [3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13]], losses)
    moved = 0.0
    torch.manual_seed(0)
    start = build_model(str(tiny_bert), split_layer=2)[0].state_dict()
    for name, tensor in whole.items():
        moved = max(moved, float((tensor - start[name]).abs().max()))
        assert torch.allclose(tensor, parts[name], atol=2e-6, rtol=1e-5), name
    assert moved > 1e-4


def test_unlabelled_rows_alone_give_no_task_loss(rows, tiny_bert) -> None:
    model, _ = build_model(str(tiny_bert), split_layer=2)
    objective = SpanObjective(LossSection(), split_layer=2, teacher=None)
    batch = collate_rows([rows[0], rows[1]], pad=0)
    assert int(batch["start_positions"].max()) == -1
    loss = objective(model, batch, objective.counts([batch]))
    loss.backward()
    assert float(loss) == 0.0


def test_no_decay_of_norms_and_biases_and_lower_rates_below(tiny_bert) -> None:
    model, _ = build_model(str(tiny_bert), split_layer=2)
    groups = parameter_groups(model, learning_rate=1.0, weight_decay=0.01, layer_decay=0.5)
    of = {id(parameter): group for group in groups for parameter in group["params"]}
    assert len(of) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        group = of[id(parameter)]
        decays = not (name.endswith("bias") or "norm" in name)
        assert group["weight_decay"] == (0.01 if decays else 0.0), name
        # The head learns as fast as the top layer.
        depth = 5 if name.startswith("qa_outputs") else 0
        if "layers." in name:
            depth = int(name.split("layers.")[1].split(".")[0]) + 1
        assert group["lr"] == 0.5 ** (5 - depth), name


@pytest.mark.parametrize("what", ["layers", "upper", "lora"])
def test_frozen_parameters_stay_as_they_were(what, make_recipe, squad_folder, tmp_path) -> None:
    recipe = make_recipe(
        tune={"what": what, "lora_rank": 2},
        optimiser={"epochs": 0.3, "warmup": 0.0},
        data={"train": [{"format": "squad", "file": "train.json"}], "tune": []},
    )
    run = build_run(recipe, data=squad_folder, output=tmp_path, quiet=True)
    model = run.trainer.model
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    run.trainer.train()
    for name, parameter in model.named_parameters():
        trains = _TRAINS[what](name)
        assert parameter.requires_grad == trains, name
        assert torch.equal(before[name], parameter) != trains, name
        assert trains or parameter.grad is None
    run.save(tmp_path / "plain")
    saved = load_file(tmp_path / "plain" / "model.safetensors")
    assert saved and not any("lora" in name or "base_layer" in name for name in saved)


_TRAINS = {
    "layers": lambda name: "embeddings" not in name,
    "upper": lambda name: "qa_outputs" in name or "layers.3." in name or "layers.4." in name,
    "lora": lambda name: "qa_outputs" in name or "lora_" in name,
}


def test_bfloat16_steps_keep_float32_weights(make_recipe, squad_folder, tmp_path) -> None:
    recipe = make_recipe(optimiser={"dtype": "bfloat16", "epochs": 0.3})
    run = build_run(recipe, data=squad_folder, output=tmp_path, quiet=True)
    assert run.trainer.train().training_loss > 0
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in run.trainer.model.parameters())


def test_a_teacher_of_another_depth_is_refused(make_recipe, squad_folder, tmp_path, tiny_bert) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(tiny_bert)
    config.num_hidden_layers = 2
    BertModel(config).save_pretrained(tmp_path / "short")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "short" / name).write_bytes((tiny_bert / name).read_bytes())
    recipe = make_recipe(teacher=str(tmp_path / "short"), losses={"kd": 1.0})
    with pytest.raises(UsageError, match="expected a teacher of 5 layers, got 2; distil from a model of the"):
        build_run(recipe, data=squad_folder, output=tmp_path / "out", quiet=True)


def test_data_that_is_not_there_or_has_nothing_is_refused(squad_folder, tmp_path) -> None:
    with pytest.raises(UsageError, match="expected data at .*none.json, got no such file; pass --data"):
        read_part(DataPart(format="squad", file="none.json"), squad_folder, seed=0)
    (tmp_path / "split.json").write_text('{"test": ["no such title"]}')
    (tmp_path / "train.json").write_bytes((squad_folder / "train.json").read_bytes())
    part = DataPart(format="squad", file="train.json", split="split.json", part="tune")
    with pytest.raises(UsageError, match="expected `part` to be one of test, got 'tune'; mend the recipe"):
        read_part(part, tmp_path, seed=0)
    with pytest.raises(UsageError, match="got none after the choice of titles and answers; mend the recipe"):
        read_part(part.model_copy(update={"part": "test"}), tmp_path, seed=0)


def test_so_few_epochs_that_nothing_is_left_are_refused(make_recipe, squad_folder, tmp_path) -> None:
    recipe = make_recipe(optimiser={"epochs": 0.001})
    with pytest.raises(
        UsageError, match="expected at least one batch in 0.001 epochs, got none; raise optimiser.epochs"
    ):
        build_run(recipe, data=squad_folder, output=tmp_path, quiet=True)


def test_rows_are_labelled_where_the_answer_is(rows) -> None:
    for index, feature in enumerate(rows.features):
        row, example = rows[index], rows.examples[feature.example]
        if feature.answerable:
            first = row.start - len(feature.question_ids) - 2
            last = row.end - len(feature.question_ids) - 2
            found = example.context[feature.passage_offsets[first][0] : feature.passage_offsets[last][1]]
            assert found == example.answers[0].text
        else:
            assert (row.start, row.end) == ((0, 0) if example.impossible or example.answers else (-1, -1))


def test_distilling_without_a_teacher_is_refused(tiny_bert):
    model, _ = build_model(str(tiny_bert), split_layer=1)
    objective = SpanObjective(LossSection(kd=1.0), split_layer=1, teacher=None)
    batch = {
        "input_ids": torch.tensor([[2, 5, 3, 6, 3]]),
        "attention_mask": torch.ones(1, 5, dtype=torch.long),
        "token_type_ids": torch.tensor([[0, 0, 0, 1, 1]]),
        "start_positions": torch.tensor([3]),
        "end_positions": torch.tensor([3]),
    }
    with pytest.raises(UsageError, match="expected a teacher for kd 1.0 and lrs 0.0, got none; pass one"):
        objective(model, batch, objective.counts([batch]))
