"""Strict conversion of checkpoints: a table of rules, applied once, with a report of every tensor.

Every source tensor is used or dropped with a reason; every target tensor is filled or listed as new. Anything else is
an error before a file is written.
"""

import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from narrows._plural import count
from narrows.errors import ConversionError

__all__ = ["ConversionReport", "Drop", "New", "Rename", "apply_rules", "load_tensors"]


@dataclass(frozen=True)
class Rename:
    """A tensor keeps its values under another name. `{n}` in both names stands for one and the same number."""

    source: str
    target: str

    def inverse(self) -> "Rename":
        return Rename(self.target, self.source)


@dataclass(frozen=True)
class Drop:
    """A source tensor that the target has no use for, and why. `source` is a regular expression of the whole name."""

    source: str
    reason: str


@dataclass(frozen=True)
class New:
    """A target tensor that the source may lack, and what it starts from. `target` is a regular expression."""

    target: str
    reason: str


@dataclass
class ConversionReport:
    """What became of every tensor.

    Attributes:
        used: source name → target name.
        dropped: source name → reason.
        new: target name → reason.
    """

    used: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, dict[str, str]]:
        return {"used": self.used, "dropped": self.dropped, "new": self.new}

    def save(self, folder: Path) -> Path:
        """Write `conversion.json` beside the converted model."""
        path = folder / "conversion.json"
        path.write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    def summary(self) -> str:
        """A few lines for people: tensors that differ only in numbers, as those of a model's layers, are one line."""
        lines = [f"{count(len(self.used), 'tensor')} used, {len(self.dropped)} dropped, {len(self.new)} new"]
        lines += [f"  dropped {line}" for line in _by_kind(self.dropped)]
        lines += [f"  new {line}" for line in _by_kind(self.new)]
        return "\n".join(lines)


def _by_kind(reasons: Mapping[str, str]) -> list[str]:
    """A line for each name, or for all names that have a reason and all but their numbers in common."""
    kinds: dict[tuple[str, str], list[list[str]]] = {}
    for name, reason in sorted(reasons.items()):
        parts = re.split(r"(\d+)", name)
        kinds.setdefault(("*".join(parts[::2]), reason), []).append(parts)
    lines = []
    for (_, reason), names in kinds.items():
        # A number that is the same in all of them stays.
        shown = "".join(column[0] if len(set(column)) == 1 else "*" for column in zip(*names, strict=True))
        lines.append(f"{shown}{f' ({len(names)})' if len(names) > 1 else ''}: {reason}")
    return lines


def apply_rules(
    source: Mapping[str, Tensor], target: Mapping[str, Tensor], rules: Sequence[Rename | Drop | New]
) -> tuple[dict[str, Tensor], ConversionReport]:
    """The target's tensors filled from the source's; new ones keep the target's values.

    Args:
        source: the checkpoint's tensors.
        target: the freshly built model's `state_dict()`.
        rules: the first one that matches a name is applied.

    Raises:
        ConversionError: a source tensor without a rule, a target tensor filled twice or neither filled nor allowed to
            be new, or unlike shapes.
    """
    report = ConversionReport()
    filled: dict[str, Tensor] = {}
    for name, tensor in source.items():
        rule = _rule_for(name, rules)
        if isinstance(rule, Drop):
            report.dropped[name] = rule.reason
            continue
        wanted = _renamed(name, rule)
        _check(name, wanted, tensor, target, filled)
        filled[wanted] = tensor
        report.used[name] = wanted
    for name, tensor in target.items():
        if name in filled:
            continue
        reasons = [rule.reason for rule in rules if isinstance(rule, New) and re.fullmatch(rule.target, name)]
        if not reasons:
            raise ConversionError(
                f"expected the checkpoint to hold a tensor for {name}, got none among {len(source)}; "
                "it is incomplete or of another architecture"
            )
        filled[name] = tensor
        report.new[name] = reasons[0]
    return filled, report


def load_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder: safetensors (one file or sharded), or `.bin` without code execution.

    Raises:
        ConversionError: no weights in the folder, a shard that is missing, or a file that cannot be read.
    """
    files = _weight_files(folder)
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            part = (
                load_file(path)
                if path.suffix == ".safetensors"
                else torch.load(path, map_location="cpu", weights_only=True)
            )
        except _UNREADABLE as error:
            raise ConversionError(
                f"expected weights in {path}, got a file that cannot be read ({error}); fetch it again"
            ) from error
        tensors.update(part)
    return tensors


_UNREADABLE = (SafetensorError, OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError)


def _weight_files(folder: Path) -> list[Path]:
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        whole = folder / f"{stem}.{suffix}"
        if whole.is_file():
            return [whole]
        shards = sorted(folder.glob(f"{stem}-*-of-*.{suffix}"))
        if shards:
            expected = int(shards[0].stem.rpartition("-")[2])
            if len(shards) != expected:
                raise ConversionError(
                    f"expected {count(expected, 'file')} of weights in {folder}, got {len(shards)}; "
                    "fetch the missing ones"
                )
            return shards
    raise ConversionError(
        f"expected model.safetensors or pytorch_model.bin in {folder}, got neither; pass a checkpoint's folder"
    )


def _rule_for(name: str, rules: Sequence[Rename | Drop | New]) -> Rename | Drop:
    for rule in rules:
        if isinstance(rule, Rename) and _matches(rule.source, name):
            return rule
        if isinstance(rule, Drop) and re.fullmatch(rule.source, name):
            return rule
    raise ConversionError(
        f"expected a rule for every tensor of the checkpoint, got none for {name}; "
        "this checkpoint has a part that the target cannot hold"
    )


def _matches(template: str, name: str) -> bool:
    # A table may name every tensor of a deep model: no pattern is compiled where names are merely compared.
    return template == name if "{n}" not in template else re.fullmatch(_pattern(template), name) is not None


def _pattern(template: str) -> str:
    return re.escape(template).replace(re.escape("{n}"), r"(\d+)")


def _renamed(name: str, rule: Rename) -> str:
    match = re.fullmatch(_pattern(rule.source), name)
    number = match.group(1) if match and match.groups() else ""
    return rule.target.replace("{n}", number)


def _check(name: str, wanted: str, tensor: Tensor, target: Mapping[str, Tensor], filled: Mapping[str, Tensor]) -> None:
    if wanted not in target:
        raise ConversionError(
            f"expected {name} to fill {wanted}, got a target without it; the checkpoint has more layers or parts "
            "than its config says"
        )
    if wanted in filled:
        raise ConversionError(
            f"expected one source for {wanted}, got a second one, {name}; the checkpoint holds a part twice"
        )
    if tensor.shape != target[wanted].shape:
        raise ConversionError(
            f"expected {name} of shape {tuple(target[wanted].shape)}, got {tuple(tensor.shape)}; "
            "the checkpoint does not fit its config"
        )
