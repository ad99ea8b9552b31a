"""Any encoder and a pooling: one vector a text, kept in the layout of sentence-transformers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from narrows.core.pooling import masked_mean, window_means
from narrows.data import token_budget_batches
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all

__all__ = [
    "Embedded",
    "Pooling",
    "Reading",
    "SentenceEncoder",
    "dense_of",
    "embed_texts",
    "load_sentence_encoder",
    "longest_text",
    "pooling_of",
    "pools",
    "read_rows",
    "save_modules",
]

Pooling = Literal["mean", "cls"]

_MODULES = "modules.json"
_POOLING, _DENSE, _NORMALIZE = "1_Pooling", "2_Dense", "3_Normalize"
# Tokenizers without a limit of their own say one of this size.
_NO_LIMIT = 1_000_000
# As sentence-transformers names what it makes an object of.
_TYPES = "sentence_transformers.models."


class Reading(NamedTuple):
    """What an encoder made of rows.

    Attributes:
        embedding: `[batch, width]`, pooled, not normalised.
        states: `[batch, slots, width]` after the embeddings and after each layer; empty unless asked for.
        logits: of the head; None without one.
    """

    embedding: Tensor
    states: tuple[Tensor, ...]
    logits: Tensor | None


def read_rows(
    model: nn.Module, input_ids: Tensor, attention_mask: Tensor, *, pooling: Pooling, states: bool = False
) -> Reading:
    """Run a model of transformers' kind, with or without a head, on rows that are padded on the right.

    A model whose last states are fewer than its tokens says in `pooled_attention_mask` which of them are real, or pools
    by `config.pooling_size` (2), with or without `config.separate_cls`.

    Args:
        model: takes `input_ids` and `attention_mask`.
        input_ids: `[batch, length]`.
        attention_mask: `[batch, length]`, nonzero for real tokens.
        pooling: `mean` over real states, or `cls`, the first one.
        states: whether the states of all layers are wanted.
    """
    # A model with a head gives no last state by name.
    has_head = getattr(model, "base_model", model) is not model
    outputs = model(
        input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=states or has_head, return_dict=True
    )
    last = getattr(outputs, "last_hidden_state", None)
    last = _flat(outputs.hidden_states)[-1] if last is None else last
    kept = _flat(outputs.hidden_states) if states else ()
    logits = getattr(outputs, "logits", None)
    if pooling == "cls":
        return Reading(last[:, 0], kept, logits)
    real = getattr(outputs, "pooled_attention_mask", None)
    if real is None or real.shape[1] != last.shape[1]:
        nothing = last.new_zeros(*input_ids.shape, 1)
        real = window_means(nothing, attention_mask != 0, slots=last.shape[1], **pools(model)).real
    return Reading(masked_mean(last, real != 0), kept, logits)


def _flat(states: Any) -> tuple[Tensor, ...]:
    """States of all layers in one row; Funnel has a tuple for each block."""
    return tuple(each for part in states for each in (part if isinstance(part, tuple | list) else (part,)))


def pools(model: nn.Module) -> dict[str, Any]:
    """How a model's states get fewer: `pooling_size` and `separate_cls`, as `window_means` takes them."""
    config: Any = model.config
    return {
        "pooling_size": getattr(config, "pooling_size", 2),
        "separate_cls": bool(getattr(config, "separate_cls", False)),
    }


class SentenceEncoder(nn.Module):
    """An encoder, a pooling, and a linear layer where one belongs to it.

    Args:
        model: see `read_rows`.
        pooling: see `read_rows`.
        dense: of the pooled vector; None: there is none.
    """

    def __init__(self, model: nn.Module, *, pooling: Pooling, dense: nn.Linear | None = None):
        super().__init__()
        self.model, self.dense = model, dense
        self.pooling: Pooling = pooling

    def read(self, input_ids: Tensor, attention_mask: Tensor, *, states: bool = False) -> Reading:
        """As `read_rows`; the embedding has gone through the linear layer."""
        reading = read_rows(self.model, input_ids, attention_mask, pooling=self.pooling, states=states)
        return reading if self.dense is None else reading._replace(embedding=self.dense(reading.embedding))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Vectors `[batch, width]`, of length 1."""
        return nn.functional.normalize(self.read(input_ids, attention_mask).embedding.float(), dim=-1)


class Embedded(NamedTuple):
    """Vectors `[texts, width]` in fp32, of length 1, and how many texts were cut to the encoder's room."""

    vectors: np.ndarray
    truncated: int


def load_sentence_encoder(checkpoint: str | Path, *, pooling: Pooling | None = None) -> tuple[SentenceEncoder, Any]:
    """An encoder in fp32 and its tokenizer.

    Args:
        checkpoint: folder or hub id of any encoder.
        pooling: None: what its `modules.json` says; mean without one.

    Raises:
        ConversionError: no checkpoint, one without a tokenizer, or one with a pooling that is neither mean nor cls.
    """
    register_all()
    folder = checkpoint_folder(checkpoint)
    require_tokenizer(folder)
    if AutoConfig.from_pretrained(folder).is_encoder_decoder:
        raise ConversionError(
            f"expected an encoder in {checkpoint}, got a model that writes text; choose a model of BERT's kind"
        )
    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32)
    encoder = SentenceEncoder(model, pooling=pooling or pooling_of(folder), dense=dense_of(folder))
    return encoder.eval(), AutoTokenizer.from_pretrained(folder)


def embed_texts(
    encoder: SentenceEncoder,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    max_tokens: int | None = None,
    batch_tokens: int = 8192,
    on_texts: Callable[[int], None] | None = None,
) -> Embedded:
    """Vectors of texts, each the same alone as in a batch.

    Args:
        encoder: in evaluation mode, where it is to run.
        tokenizer: of the encoder.
        texts: any.
        max_tokens: longer texts are read up to there; None: the encoder's own limit.
        batch_tokens: padded tokens of a forward pass.
        on_texts: told how many texts are done, for a progress bar.

    Raises:
        UsageError: neither the encoder nor the caller says how long a text may be.
    """
    room = max_tokens or longest_text(encoder.model, tokenizer)
    device = next(encoder.parameters()).device
    rows = (
        tokenizer(list(texts), truncation=True, max_length=room, split_special_tokens=True)["input_ids"]
        if texts
        else []
    )
    # Only those that fill the room may have been cut.
    full = [text for text, row in zip(texts, rows, strict=True) if len(row) == room]
    whole = tokenizer(full, split_special_tokens=True, verbose=False)["input_ids"] if full else []
    made: dict[int, np.ndarray] = {}
    for batch in token_budget_batches([len(row) for row in rows], batch_tokens=batch_tokens):
        padded = nn.utils.rnn.pad_sequence(
            [torch.tensor(rows[index]) for index in batch], batch_first=True, padding_value=tokenizer.pad_token_id
        )
        lengths = torch.tensor([len(rows[index]) for index in batch])
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
        with torch.inference_mode():
            vectors = encoder(padded.to(device), mask.to(device)).cpu().numpy()
        made.update(zip(batch, vectors, strict=True))
        if on_texts is not None:
            on_texts(len(batch))
    stacked = np.stack([made[index] for index in range(len(rows))]) if rows else np.empty((0, 0), dtype=np.float32)
    return Embedded(stacked, sum(len(row) > room for row in whole))


def pooling_of(folder: Path) -> Pooling:
    """The pooling that a checkpoint's `modules.json` names; mean without one.

    Raises:
        ConversionError: it names another one than mean or cls.
    """
    if not (folder / _MODULES).is_file() or not (folder / _POOLING / "config.json").is_file():
        return "mean"
    config = json.loads((folder / _POOLING / "config.json").read_text(encoding="utf-8"))
    modes = [config["pooling_mode"]] if isinstance(config.get("pooling_mode"), str) else []
    modes += [name.removeprefix("pooling_mode_") for name, on in config.items() if on is True and "_mode_" in name]
    names: dict[str, Pooling] = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}
    if len(modes) != 1 or modes[0] not in names:
        raise ConversionError(
            f"expected mean or cls as the pooling of {folder}, got {' and '.join(modes) or 'none'}; "
            "choose another encoder"
        )
    return names[modes[0]]


def save_modules(
    folder: Path, *, pooling: Pooling, width: int, max_tokens: int, dense: nn.Linear | None = None
) -> None:
    """Write beside a checkpoint what makes a sentence encoder of it, for sentence-transformers and for us.

    Args:
        folder: of the checkpoint.
        pooling: see `read_rows`.
        width: of the pooled vector.
        max_tokens: texts are read up to there.
        dense: of the pooled vector, where there is one.
    """
    parts = [("", "Transformer"), (_POOLING, "Pooling")]
    parts += [(_DENSE, "Dense")] if dense is not None else []
    parts += [(_NORMALIZE, "Normalize")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": _TYPES + kind}
        for number, (path, kind) in enumerate(parts)
    ]
    _write(folder / _MODULES, modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    _write(
        folder / _POOLING / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
        },
    )
    (folder / _NORMALIZE).mkdir(exist_ok=True)
    if dense is not None:
        fields = {
            "in_features": dense.in_features,
            "out_features": dense.out_features,
            "bias": dense.bias is not None,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
        _write(folder / _DENSE / "config.json", fields)
        tensors = {f"linear.{name}": tensor.detach().cpu().contiguous() for name, tensor in dense.state_dict().items()}
        save_file(tensors, folder / _DENSE / "model.safetensors", metadata={"format": "pt"})


def dense_of(folder: Path) -> nn.Linear | None:
    """The linear layer after the pooling that a checkpoint's `modules.json` names; None: there is none.

    Raises:
        ConversionError: there are several, or one with an activation.
    """
    if not (folder / _MODULES).is_file():
        return None
    modules = json.loads((folder / _MODULES).read_text(encoding="utf-8"))
    paths = [module["path"] for module in modules if module["type"].endswith(".Dense")]
    if not paths:
        return None
    fields = json.loads((folder / paths[0] / "config.json").read_text(encoding="utf-8"))
    if len(paths) > 1 or not fields["activation_function"].endswith("Identity"):
        raise ConversionError(
            f"expected one linear layer without an activation after the pooling of {folder}, got {len(paths)} with "
            f"{fields['activation_function']}; choose another encoder"
        )
    dense = nn.Linear(fields["in_features"], fields["out_features"], bias=fields["bias"])
    tensors = load_file(folder / paths[0] / "model.safetensors")
    dense.load_state_dict({name.removeprefix("linear."): tensor for name, tensor in tensors.items()})
    return dense


def longest_text(model: nn.Module, tokenizer: Any) -> int:
    """Tokens that a model and its tokenizer allow a text, special ones included.

    Raises:
        UsageError: neither of them names a limit.
    """
    config: Any = model.config
    limits = [getattr(config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT]
    if not known:
        raise UsageError(
            "expected a longest text, since neither the encoder nor its tokenizer names one, got none; pass it, "
            "such as 512"
        )
    return min(known)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
