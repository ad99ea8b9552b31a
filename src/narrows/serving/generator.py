"""`Generator`: a text goes on, piece by piece, by any causal language model."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers.generation.streamers import BaseStreamer

from narrows.errors import UsageError
from narrows.hf.causal import load_causal
from narrows.hf.encoders import place
from narrows.serving.words import require_unicode

__all__ = ["Generated", "Generator", "Sampling"]

# What stands for bytes that are no character yet.
_INCOMPLETE = "\ufffd"


class Sampling(NamedTuple):
    """How the next token is drawn.

    Attributes:
        temperature: what logits are divided by; below 1 likely tokens become likelier.
        top_k: only the likeliest so many; None: all.
        top_p: only the likeliest that together have this probability; 1: all.
        seed: the same one gives the same text.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0


class Generated(NamedTuple):
    """What a model wrote.

    Attributes:
        text: after the prompt, without special tokens.
        tokens: how many were written, the end among them.
        prompt_tokens: how many were read.
        ended: whether the model ended the text by itself.
        seconds: reading and writing.
        cache_bytes: of what was remembered of the tokens; 0 where the cache is of another kind.
    """

    text: str
    tokens: int
    prompt_tokens: int
    ended: bool
    seconds: float
    cache_bytes: int


class Generator:
    """Goes on with a text.

    Example:
        >>> generator = Generator.from_pretrained("my-language-model")  # doctest: +SKIP
        >>> generator.generate("The river", max_new_tokens=50).text  # doctest: +SKIP
    """

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def from_pretrained(cls, path: str | Path, *, device: str = "auto", dtype: str = "float32") -> "Generator":
        """Load a model and its tokenizer.

        Args:
            path: a folder or a hub id of a causal language model.
            device: `auto` (a GPU where there is one), `cpu` or `cuda`.
            dtype: `float32` or `bfloat16`.

        Raises:
            ConversionError: another kind of checkpoint, or one without a tokenizer.
            UsageError: another dtype, or no such device.
        """
        chosen = place(device)
        model, tokenizer = load_causal(path, dtype=dtype)
        return cls(model.to(chosen), tokenizer)

    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Generated:
        """Go on with a prompt.

        Args:
            prompt: what the text begins with; empty: the model's own beginning of a text.
            max_new_tokens: tokens that are written at most.
            sampling: how tokens are drawn; None: the likeliest each time.
            on_text: told of each piece as it is written; of a character of several tokens when it is whole.

        Raises:
            UsageError: a prompt that is not Unicode or too long, an empty one for a model that has no token for a
                beginning, or a number out of its range.
        """
        require_unicode(prompt, "a prompt")
        if max_new_tokens < 1:
            raise UsageError(f"expected max_new_tokens of at least 1, got {max_new_tokens}; pass a larger one")
        ids = self._ids(prompt)
        self._require_room(len(ids), max_new_tokens)
        options = {"do_sample": False, "num_beams": 1} if sampling is None else self._drawn(sampling)
        pieces = _Pieces(self.tokenizer, on_text)
        began = time.perf_counter()
        outputs = self.model.generate(
            torch.tensor([ids], device=self.model.device),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=self.model.device),
            max_new_tokens=max_new_tokens,
            pad_token_id=self._padding(),
            streamer=pieces,
            return_dict_in_generate=True,
            **options,
        )
        written = outputs.sequences[0, len(ids) :].tolist()
        return Generated(
            text=pieces.text,
            tokens=len(written),
            prompt_tokens=len(ids),
            ended=bool(written) and written[-1] in self._ends(),
            seconds=time.perf_counter() - began,
            cache_bytes=getattr(getattr(outputs, "cache", None), "num_bytes", 0),
        )

    def _ids(self, prompt: str) -> list[int]:
        ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        start = self.model.config.bos_token_id
        if ids:
            return ids
        if start is None:
            raise UsageError(
                "expected a prompt for this model, whose config.json names no token that a text begins with "
                "(bos_token_id), got nothing; pass some text"
            )
        return [start]

    def _require_room(self, prompt: int, new: int) -> None:
        # The names under which models of transformers say how far their positions go; rotary ones go on.
        config = self.model.config
        longest = getattr(config, "n_positions", None) or getattr(config, "max_position_embeddings", None)
        if longest and prompt + new > longest:
            raise UsageError(
                f"expected a prompt and new tokens of {longest:,} together at most, the model's positions, got "
                f"{prompt:,} and {new:,}; shorten one of them"
            )

    def _drawn(self, sampling: Sampling) -> dict[str, Any]:
        for name, right in (
            ("temperature", 0 < sampling.temperature < float("inf")),
            ("top_k", sampling.top_k is None or sampling.top_k >= 1),
            ("top_p", 0 < sampling.top_p <= 1),
        ):
            if not right:
                value = getattr(sampling, name)
                raise UsageError(
                    f"expected a temperature above 0, a top_k of at least 1 and a top_p above 0 and up to 1, got "
                    f"{name} {value}; change it"
                )
        torch.manual_seed(sampling.seed)
        return {
            "do_sample": True,
            "num_beams": 1,
            "temperature": sampling.temperature,
            "top_k": 0 if sampling.top_k is None else sampling.top_k,
            "top_p": sampling.top_p,
        }

    def _ends(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [] if ends is None else [ends]

    def _padding(self) -> int | None:
        """Needed by transformers, though a single text has none."""
        padding = self.model.config.pad_token_id
        return padding if padding is not None else next(iter(self._ends()), None)


class _Pieces(BaseStreamer):
    """Tokens as they come, as text once their characters are whole."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None):
        self._tokenizer, self._on_text = tokenizer, on_text
        self._ids: list[int] = []
        # Of the ids, those that are decoded again for the sake of the space before a word, and those already told.
        self._from = self._told = 0
        self._parts: list[str] = []
        self._is_prompt = True

    @property
    def text(self) -> str:
        """All that was told."""
        return "".join(self._parts)

    def put(self, value: torch.Tensor) -> None:
        if self._is_prompt:
            self._is_prompt = False
            return
        self._ids += value.flatten().tolist()
        self._tell(is_last=False)

    def end(self) -> None:
        self._tell(is_last=True)

    def _tell(self, *, is_last: bool) -> None:
        before = self._decoded(self._ids[self._from : self._told])
        now = self._decoded(self._ids[self._from :])
        if len(now) <= len(before) or (now.endswith(_INCOMPLETE) and not is_last):
            return
        piece = now[len(before) :]
        self._from, self._told = self._told, len(self._ids)
        self._parts.append(piece)
        if self._on_text is not None:
            self._on_text(piece)

    def _decoded(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
