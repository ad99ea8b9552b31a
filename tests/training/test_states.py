"""Training from stored lower states: the gradients of the computed path, and no lower layer in a step."""

from collections import namedtuple

import pytest
import torch

from narrows.errors import UsageError
from narrows.training.spans import states as states_module
from narrows.training.spans.build import build_model, build_run
from narrows.training.spans.data import SpanRows, collate_rows, read_parts
from narrows.training.spans.objective import SpanObjective
from narrows.training.spans.recipe import DataPart, LossSection
from narrows.training.spans.states import Side, store_states


@pytest.fixture
def parts(make_recipe, squad_folder, tiny_bert):
    torch.manual_seed(0)
    model, tokenizer = build_model(str(tiny_bert), split_layer=3)
    examples = read_parts([DataPart(format="squad", file="train.json")], squad_folder, seed=0)
    return model, SpanRows(examples, tokenizer, make_recipe().data)


def _counting(modules) -> list[int]:
    calls = [0]

    def count(*_):
        calls[0] += 1

    for module in modules:
        module.register_forward_pre_hook(count)
    return calls


def test_stored_states_give_the_gradients_of_the_computed_path(parts, tmp_path, tiny_bert) -> None:
    model, rows = parts
    teacher, _ = build_model(str(tiny_bert), split_layer=0)
    objective = SpanObjective(LossSection(kd=1.0, lrs=1.0), split_layer=3, teacher=teacher)
    backbone = model.deformer.backbone
    for module in (backbone.embeddings, backbone.layers[:3]):
        module.requires_grad_(False)
    chosen = [0, 5, 9, 11]

    def gradients() -> tuple[float, dict[str, torch.Tensor]]:
        model.zero_grad()
        batch = collate_rows([rows[index] for index in chosen], pad=0)
        loss = objective(model, batch, objective.counts([batch]))
        loss.backward()
        return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}

    expected_loss, expected = gradients()
    rows.use_states(store_states(model, rows.sides(), folder=tmp_path, batch_tokens=200, quiet=True))
    calls = _counting([backbone.embeddings, *backbone.layers[:3]])
    loss, found = gradients()
    assert calls == [0]
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-5), name


def test_no_lower_layer_runs_in_the_steps_of_a_run(make_recipe, squad_folder, tmp_path) -> None:
    recipe = make_recipe(
        tune={"what": "upper"},
        optimiser={"epochs": 0.3},
        data={"train": [{"format": "squad", "file": "train.json"}], "tune": []},
    )
    run = build_run(recipe, data=squad_folder, output=tmp_path, quiet=True)
    backbone = run.trainer.model.deformer.backbone
    below, above = _counting([backbone.embeddings, *backbone.layers[:3]]), _counting(backbone.layers[3:])
    run.trainer.train()
    assert below == [0]
    assert above == [2 * run.trainer.state.global_step]


def test_a_stopped_file_is_gone_on_with_and_a_complete_one_reused(parts, tmp_path, monkeypatch) -> None:
    model, rows = parts
    sides = rows.sides()
    whole = store_states(model, sides, folder=tmp_path / "whole", batch_tokens=200, quiet=True)
    # Every batch is noted, and the fourth is where the process dies.
    monkeypatch.setattr(states_module, "_SECONDS_BETWEEN_FLUSHES", -1)
    calls = []

    def die(*_):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt

    hook = model.deformer.backbone.embeddings.register_forward_pre_hook(die)
    with pytest.raises(KeyboardInterrupt):
        store_states(model, sides, folder=tmp_path / "cut", batch_tokens=200, quiet=True)
    hook.remove()
    again = _counting([model.deformer.backbone.embeddings])
    resumed = store_states(model, sides, folder=tmp_path / "cut", batch_tokens=200, quiet=True)
    rest = again[0]
    assert all(torch.equal(resumed.row(side), whole.row(side)) for side in sides)
    store_states(model, sides, folder=tmp_path / "cut", batch_tokens=200, quiet=True)
    assert again[0] == rest > 0

    model.deformer.backbone.layers[0].query.bias.data += 1
    other = store_states(model, sides, folder=tmp_path / "cut", batch_tokens=200, quiet=True)
    assert again[0] == rest + rest + 3
    assert not torch.equal(other.row(sides[0]), whole.row(sides[0]))


@pytest.mark.parametrize("damage", ["deleted", "shortened"])
def test_states_that_were_deleted_beside_their_ledger_are_made_again(damage, parts, tmp_path) -> None:
    model, rows = parts
    options = {"folder": tmp_path, "batch_tokens": 300, "quiet": True}
    expected = store_states(model, rows.sides(), **options).row(rows.sides()[0]).clone()
    (path,) = tmp_path.glob("*.f32")
    path.unlink() if damage == "deleted" else path.write_bytes(path.read_bytes()[:-4])
    assert torch.equal(store_states(model, rows.sides(), **options).row(rows.sides()[0]), expected)


def test_each_side_is_stored_once(parts, tmp_path) -> None:
    model, _ = parts
    sides = [Side(0, (2, 9, 3)), Side(1, (9, 8, 3)), Side(0, (2, 9, 3)), Side(1, (2, 9, 3))]
    states = store_states(model, sides, folder=tmp_path, batch_tokens=50, quiet=True)
    assert next(tmp_path.glob("*.f32")).stat().st_size == 9 * 24 * 4
    assert states.row(sides[0], sides[1]).shape == (6, 24)
    assert not torch.allclose(states.row(sides[0]), states.row(sides[3]))


def test_a_disk_without_room_is_refused(parts, tmp_path, monkeypatch) -> None:
    model, rows = parts
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(states_module.shutil, "disk_usage", lambda _: usage(10))
    with pytest.raises(UsageError, match=r"expected .* GB of free disk for the states in .*, got 0.00 GB; free some"):
        store_states(model, rows.sides(), folder=tmp_path, batch_tokens=200, quiet=True)
