"""The rules of conversion and the reading of weights, on tensors made by hand."""

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from narrows.errors import ConversionError
from narrows.hf.conversion import ConversionReport, Drop, New, Rename, apply_rules, load_tensors

RULES = [
    Rename("a.{n}.x", "b.{n}.y"),
    Rename("head", "top"),
    Rename("old_head", "top"),
    Drop(r"junk\..*", "of no use"),
    New("fresh", "to be trained"),
]


def test_each_tensor_is_renamed_dropped_or_new():
    source = {
        "a.0.x": torch.tensor(1.0),
        "a.11.x": torch.tensor(2.0),
        "head": torch.tensor(3.0),
        "junk.z": torch.ones(9),
    }
    target = {name: torch.tensor(0.0) for name in ("b.0.y", "b.11.y", "top", "fresh")}
    filled, report = apply_rules(source, target, RULES)
    assert {name: float(tensor) for name, tensor in filled.items()} == {
        "b.0.y": 1,
        "b.11.y": 2,
        "top": 3,
        "fresh": 0,
    }
    assert report == ConversionReport(
        used={"a.0.x": "b.0.y", "a.11.x": "b.11.y", "head": "top"},
        dropped={"junk.z": "of no use"},
        new={"fresh": "to be trained"},
    )
    assert report.summary().splitlines() == [
        "3 tensors used, 1 dropped, 1 new",
        "  dropped junk.z: of no use",
        "  new fresh: to be trained",
    ]


def test_tensors_that_differ_in_numbers_are_one_line() -> None:
    dropped = {f"block.{n}.layer.0.norm": "no place" for n in (0, 2, 10)}
    dropped |= {"block.1.layer.0.norm": "another reason", "block.0.layer.1.norm.x": "no place", "head": "no place"}
    new = {f"table.{n}": "starts as a copy" for n in (1, 2)}
    report = ConversionReport(dropped=dropped, new=new)
    assert report.summary().splitlines() == [
        "0 tensors used, 6 dropped, 2 new",
        "  dropped block.*.layer.0.norm (3): no place",
        "  dropped block.0.layer.1.norm.x: no place",
        "  dropped block.1.layer.0.norm: another reason",
        "  dropped head: no place",
        "  new table.* (2): starts as a copy",
    ]
    assert report.as_dict() == {"used": {}, "dropped": dropped, "new": new}


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        (
            {"who": 1},
            {},
            "expected a rule for every tensor of the checkpoint, got none for who; this checkpoint has",
        ),
        ({"a.x.x": 1}, {}, "got none for a.x.x"),
        (
            {},
            {"top": 1},
            "expected the checkpoint to hold a tensor for top, got none among 0; it is incomplete",
        ),
        (
            {"a.3.x": 1},
            {"b.2.y": 1},
            "expected a.3.x to fill b.3.y, got a target without it; the checkpoint has more",
        ),
        (
            {"head": 1, "old_head": 1},
            {"top": 1},
            "expected one source for top, got a second one, old_head; the check",
        ),
        (
            {"head": 2},
            {"top": 3},
            r"expected head of shape \(3,\), got \(2,\); the checkpoint does not fit its config",
        ),
    ],
)
def test_a_misfit_is_named(source, target, text):
    source, target = ({name: torch.zeros(size) for name, size in each.items()} for each in (source, target))
    with pytest.raises(ConversionError, match=text):
        apply_rules(source, target, RULES)


@given(st.lists(st.integers(0, 99), unique=True, max_size=7))
def test_the_inverse_of_renaming_gives_the_source_back(numbers):
    rules = [Rename("a.{n}.x", "b.y.{n}"), Rename("head", "top")]
    source = {f"a.{n}.x": torch.tensor(float(n)) for n in numbers} | {"head": torch.tensor(-1.0)}
    there, _ = apply_rules(source, {f"b.y.{n}": torch.zeros(()) for n in numbers} | {"top": torch.zeros(())}, rules)
    back, report = apply_rules(there, source, [rule.inverse() for rule in rules])
    assert {name: float(t) for name, t in back.items()} == {name: float(t) for name, t in source.items()}
    assert not report.new and not report.dropped


def test_the_whole_file_wins_over_others_beside_it(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    save_file({"x": torch.ones(1)}, tmp_path / "model.fp16.safetensors")
    torch.save({"x": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    assert load_tensors(tmp_path)["x"].item() == 0


def test_a_folder_without_weights_is_an_error(tmp_path):
    with pytest.raises(
        ConversionError, match="expected model.safetensors or pytorch_model.bin in .*, got neither; pass a"
    ):
        load_tensors(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_truncated_file_is_an_error(name, tmp_path):
    path = tmp_path / name
    tensors = {"x": torch.arange(999)}
    save_file(tensors, path) if name.endswith("safetensors") else torch.save(tensors, path)
    whole = path.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ConversionError, match=f"expected weights in .*{name}, got a file that cannot be read"):
            load_tensors(tmp_path)


class _Harmful:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code of a checkpoint was run')",))


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    torch.save({"x": _Harmful()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="expected weights in .*, got a file that cannot be read"):
        load_tensors(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(_Harmful()))
    with pytest.raises(ConversionError, match="expected weights in .*, got a file that cannot be read"):
        load_tensors(tmp_path)
