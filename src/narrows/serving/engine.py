"""A split span model at work: passages in, states out; a question and states in, logits out.

The engine knows the model and its tokenizer, and the identity of the states they make. It opens no store.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer

from narrows._plural import count
from narrows._text import surrogate_in
from narrows.data import AS_PLAIN_TEXT, restore, token_budget_batches
from narrows.deformer import DeformerConfig, DeformerForQuestionAnswering
from narrows.deformer.loading import load_reader
from narrows.deformer.register import register
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.tokenizers import tokenizer_digest
from narrows.store import FORMAT_VERSION, Fingerprint

__all__ = ["Engine", "PassageLogits", "TokenizedText"]

PRECISIONS = ("float32", "bfloat16", "int8")


class TokenizedText(NamedTuple):
    """Token ids of a text without special tokens, and each token's `(start, end)` characters."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class PassageLogits(NamedTuple):
    """Logits of a passage's tokens (without its [SEP]), and their sum at [CLS], for no answer."""

    start: Float[Tensor, " tokens"]
    end: Float[Tensor, " tokens"]
    null: float


class Engine:
    """Encodes passages once and reads them for any question.

    Args:
        model: a span model with fp32 weights; the engine puts it in eval mode.
        tokenizer: its fast tokenizer.
        device: `cpu` or `cuda`.
        precision: of the layers above the split at question time: `float32`, `bfloat16` (layers cast), or
            `int8` (weights int8, activations quantised as they come; CPU only). Passages are always encoded
            in fp32, so that a store does not depend on it.
        batch_tokens: padded tokens, question included, of a forward pass.

    Raises:
        UsageError: an unknown precision, int8 on another device than the CPU, or a model whose passage
            positions depend on the question.
    """

    def __init__(
        self,
        model: DeformerForQuestionAnswering,
        tokenizer: Any,
        *,
        device: str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
    ):
        if precision not in PRECISIONS:
            raise UsageError(
                f"`precision` must be one of {', '.join(PRECISIONS)}, got {precision!r}; choose one of them"
            )
        if precision == "int8" and device != "cpu":
            raise UsageError(f"precision int8 runs on the CPU only, got device {device!r}; choose bfloat16 there")
        if model.config.passage_positions != "restart":
            raise UsageError(
                f"expected a model whose passages restart at position 0, got passage_positions "
                f"{model.config.passage_positions!r}; convert the checkpoint with passage_positions='restart'"
            )
        self.model: Any = model.eval()
        self.model.to(device)
        self.tokenizer = tokenizer
        self.config: DeformerConfig = self.model.config
        self.device = device
        self.precision = precision
        self._batch_tokens = batch_tokens
        self._identity = _identity(model, tokenizer)
        _cast_upper(model, precision)

    @classmethod
    def from_pretrained(cls, checkpoint: str | Path, **options: Any) -> "Engine":
        """The engine of a DeFormer with a span head.

        A joint reader is not taken as it is: it was trained with passages that count on after the question, and would
        answer a little wrongly, without a word, when they restart at 0.

        Raises:
            ConversionError: another kind of checkpoint, or one without a trained span head.
        """
        folder = checkpoint_folder(checkpoint)
        register()
        require_tokenizer(folder)
        kind = AutoConfig.from_pretrained(folder).model_type
        if kind != DeformerConfig.model_type:
            raise ConversionError(
                f"expected a DeFormer, got a checkpoint of model type {kind!r} in {checkpoint}; "
                "convert it with `narrows convert` and distil it with `narrows train`"
            )
        return cls(load_reader(folder), AutoTokenizer.from_pretrained(folder), **options)

    def fingerprint(self, codec: str) -> Fingerprint:
        """Identity of the states that this engine stores with a codec."""
        weights, tokenizer = self._identity
        config = self.config
        # The same weights give other states with other heads, another activation or another epsilon.
        encoder = f"{config.num_attention_heads} heads, {config.hidden_act}, eps {config.layer_norm_eps:g}"
        return Fingerprint(
            weights=weights,
            tokenizer=tokenizer,
            split_layer=config.split_layer,
            layout=f"{config.backbone} ({encoder}): passage [SEP], segment 1, positions {config.passage_positions}",
            width=config.hidden_size,
            codec=codec,
            format_version=FORMAT_VERSION,
        )

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Tokens of whole texts, of any length, with true character offsets."""
        encoded = self.tokenizer(list(texts), **AS_PLAIN_TEXT)
        return [
            TokenizedText(ids, [tuple(offset) for offset in offsets])
            for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]

    def encode_passages(self, passages: Sequence[Sequence[int]]) -> list[Float[Tensor, "tokens width"]]:
        """States after layer k of passages, each of its true length.

        Args:
            passages: token ids, each closed by [SEP] (`close_passage`).

        Returns:
            fp32 states on the CPU, in the order of `passages`.
        """
        lengths = [len(passage) for passage in passages]
        batches = token_budget_batches(lengths, batch_tokens=self._batch_tokens)
        states: list[Tensor] = []
        for batch in batches:
            ids, real = self._pad([passages[index] for index in batch])
            with torch.inference_mode():
                encoded = self.model.deformer.encode_side(ids, real, segment=1).cpu()
            states += [encoded[row, : lengths[index]].clone() for row, index in enumerate(batch)]
        return [states[place] for place in restore([index for batch in batches for index in batch])]

    def close_passage(self, ids: Sequence[int]) -> list[int]:
        """A passage's token ids with its closing [SEP]."""
        return [*ids, self.tokenizer.sep_token_id]

    def encode_question(self, question: str) -> Float[Tensor, "1 length width"]:
        """States after layer k of `[CLS] question [SEP]`.

        Raises:
            UsageError: an empty question, one that is not Unicode, or one longer than its room.
        """
        ids = self.check_question(question)
        row = torch.tensor([[self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id]], device=self.device)
        with torch.inference_mode():
            return self.model.deformer.encode_side(row, segment=0)

    def check_question(self, question: str) -> list[int]:
        """A question's token ids without special tokens.

        Raises:
            UsageError: an empty question, one that is not Unicode, or one longer than its room.
        """
        place = surrogate_in(question)
        if place is not None:
            raise UsageError(
                f"expected a question in Unicode, but its character {place} is a byte that is not UTF-8 or half of a "
                "surrogate pair; type it anew or save it as UTF-8"
            )
        ids = self.tokenize([question])[0].ids if question.strip() else []
        if not ids:
            raise UsageError("expected a question, got an empty one; ask in at least one word")
        room = self.config.max_question_tokens
        if len(ids) > room:
            raise UsageError(
                f"a question must have at most {count(room, 'token')}, got {len(ids)}; ask it in fewer words"
            )
        return ids

    def shorten_question(self, question: str) -> str:
        """A question, or the beginning that fits of one that is longer than its room, as training cuts it."""
        offsets = self.tokenize([question])[0].offsets
        room = self.config.max_question_tokens
        return question if len(offsets) <= room else question[: offsets[room - 1][1]]

    def read(
        self,
        question: Float[Tensor, "1 length width"],
        lengths: Sequence[int],
        fetch: Callable[[Sequence[int]], Float[Tensor, "batch longest width"]],
    ) -> list[PassageLogits]:
        """Logits of every passage for one question.

        In float32 a passage's logits do not depend on what is read beside it, but for rounding; in int8 they
        do within the error of int8, since a batch's activations share one scale.

        Args:
            question: of `encode_question`.
            lengths: states of each passage, its [SEP] included.
            fetch: gives the padded states of the passages at some indices, `[batch, longest, width]`; called
                once a batch, so that no more than a batch is decoded at a time.
        """
        results: list[PassageLogits | None] = [None] * len(lengths)
        for batch, padded in self._batches(question.shape[1], lengths, fetch):
            logits = self._logits(question, padded, [lengths[index] for index in batch])
            for row, index in enumerate(batch):
                tokens = logits[row, 1 : lengths[index]]
                results[index] = PassageLogits(tokens[:, 0], tokens[:, 1], float(logits[row, 0].sum()))
        return [result for result in results if result is not None]

    def _batches(
        self, question_length: int, lengths: Sequence[int], fetch: Callable[[Sequence[int]], Tensor]
    ) -> Iterator[tuple[list[int], Tensor]]:
        joined = [question_length + length for length in lengths]
        for batch in token_budget_batches(joined, batch_tokens=self._batch_tokens):
            yield batch, fetch(batch)

    def _logits(self, question: Tensor, padded: Tensor, lengths: Sequence[int]) -> Tensor:
        real = None
        if min(lengths) < padded.shape[1]:
            real = torch.arange(padded.shape[1]) < torch.tensor(lengths)[:, None]
            real = real.to(self.device)
        dtype = torch.bfloat16 if self.precision == "bfloat16" else torch.float32
        with torch.inference_mode():
            return self.model.score_spans(question.to(dtype), padded.to(self.device, dtype), real).float().cpu()

    def _pad(self, passages: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        longest = max(len(passage) for passage in passages)
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[*passage, *[pad] * (longest - len(passage))] for passage in passages], device=self.device)
        if all(len(passage) == longest for passage in passages):
            return ids, None
        lengths = torch.tensor([len(passage) for passage in passages], device=self.device)
        return ids, torch.arange(longest, device=self.device) < lengths[:, None]


def _identity(model: DeformerForQuestionAnswering, tokenizer: Any) -> tuple[str, str]:
    """sha256 of what a passage's states depend on: embedder and lower layers, and the tokenizer."""
    weights = hashlib.sha256()
    lower = model.deformer.backbone.layers[: model.config.split_layer]
    for part in (model.deformer.backbone.embeddings, lower):
        for name, tensor in sorted(part.state_dict().items()):
            weights.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            weights.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return weights.hexdigest(), tokenizer_digest(tokenizer)


def _cast_upper(model: DeformerForQuestionAnswering, precision: str) -> None:
    layers = model.deformer.backbone.layers
    for index in range(model.config.split_layer, len(layers)):
        if precision == "bfloat16":
            layers[index].to(torch.bfloat16)
        elif precision == "int8":
            layers[index] = _quantised(layers[index])
    if precision == "bfloat16":
        model.qa_outputs.to(torch.bfloat16)


def _quantised(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        # torch announces the move of its quantisation to torchao with every call; the pin of torch guards us.
        warnings.filterwarnings("ignore", message=r"torch\.(ao\.quantization|quantize_per_tensor)")
        return torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)
