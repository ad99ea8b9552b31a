"""How well a causal language model foretells a text: sliding windows over its tokens, each scored once."""

import inspect
import math
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from narrows.errors import UsageError
from narrows.evaluation.bootstrap import MeanInterval, bootstrap_score

__all__ = ["LanguageEvaluation", "Line", "Window", "evaluate_line", "sliding_windows", "token_losses"]

# Logits of a forward pass at most, unless a single row has more: a quarter of a gigabyte in fp32.
_MOST_LOGITS = 1 << 26
# Above, a double has no room for e to that power.
_LARGEST_EXPONENT = 709.0


class Line(Protocol):
    """A text as one line of tokens, wherever they lie."""

    @property
    def scored_bytes(self) -> int:
        """Bytes, in UTF-8, of what is foretold: all tokens but the first."""
        ...

    def __len__(self) -> int:
        """Tokens."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Ids of the tokens from `start` up to `stop`, int64."""
        ...


class Window(NamedTuple):
    """What is read at once: tokens `start` to `stop` (not with it), which foretell the tokens one further on.

    Attributes:
        scored: of those, how many at the end are scored here.
    """

    start: int
    stop: int
    scored: int


class LanguageEvaluation(NamedTuple):
    """What an evaluation found.

    Attributes:
        nats: float64 `[windows]`, the sum of the losses of the tokens that were scored in a window.
        tokens: int64 `[windows]`, how many these were.
        bytes: of the text that all of them stand for.
    """

    nats: np.ndarray
    tokens: np.ndarray
    bytes: int

    @property
    def loss(self) -> float:
        """Nats a token."""
        return float(self.nats.sum() / self.tokens.sum())

    def scores(self) -> dict[str, float]:
        """`loss` (nats a token), `bits_per_byte` of the text and `perplexity` of a token, infinite beyond a double."""
        return self.of_loss(self.loss)

    def intervals(self) -> dict[str, MeanInterval]:
        """The same, each with its 95 % interval: a bootstrap over windows."""

        def score(chosen: np.ndarray) -> float:
            return float(self.nats[chosen].sum() / self.tokens[chosen].sum())

        ends = [self.of_loss(loss) for loss in bootstrap_score(score, len(self.nats))]
        return {name: MeanInterval(*(end[name] for end in ends)) for name in ends[0]}

    def of_loss(self, loss: float) -> dict[str, float]:
        """`scores`, were this the loss of a token.

        Example:
            >>> LanguageEvaluation(np.zeros(1), np.array([8]), 16).of_loss(math.log(4))["bits_per_byte"]
            1.0
        """
        bits = loss * float(self.tokens.sum()) / math.log(2)
        perplexity = math.exp(loss) if loss < _LARGEST_EXPONENT else math.inf
        # A loss that is no number is shown as none.
        return {"loss": loss, "bits_per_byte": bits / self.bytes, "perplexity": perplexity if loss == loss else loss}


def sliding_windows(tokens: int, *, length: int, stride: int | None = None) -> Iterator[Window]:
    """Windows over a line of tokens such that each token but the first is scored once.

    The first window scores all that it foretells; each later one its last `stride`, which have at least
    `length` - `stride` tokens before them. The last one is moved back to be whole, and scores the rest.

    Args:
        tokens: of the line.
        length: that a model reads at once.
        stride: from 1 to `length`, which it is when None: then windows do not overlap, which is fastest.

    Raises:
        UsageError: a stride out of range, or fewer than 2 tokens, of which none is foretold.

    Example:
        >>> list(sliding_windows(8, length=4, stride=2))
        [Window(start=0, stop=4, scored=4), Window(start=2, stop=6, scored=2), Window(start=3, stop=7, scored=1)]
    """
    stride = length if stride is None else stride
    if not 1 <= stride <= length:
        raise UsageError(f"expected a stride from 1 to the length, {length}, got {stride}; choose one of these")
    if tokens < 2:
        raise UsageError(
            f"expected at least 2 tokens of text to score, the first of which foretells the second, got {tokens}; "
            "name more text"
        )
    # Token number `done` is the last that was scored; the very last is foretold and not read.
    done = min(length, tokens - 1)
    yield Window(0, done, done)
    while done < tokens - 1:
        stop = min(done + stride, tokens - 1)
        yield Window(stop - length, stop, stop - done)
        done = stop


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each token in at least fp32.

    Args:
        logits: `[batch, tokens, vocabulary]`.
        targets: ids, `[batch, tokens]`.

    Returns:
        `[batch, tokens]`.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def evaluate_line(
    model: Any,
    line: Line,
    *,
    length: int,
    stride: int | None = None,
    batch_tokens: int = 8192,
    autocast: bool = False,
    on_tokens: Callable[[int], None] | None = None,
) -> LanguageEvaluation:
    """Score each token of a line, but the first, by a causal language model.

    Args:
        model: called as `model(input_ids=[batch, tokens]).logits`, which are `[batch, tokens, vocabulary]`; it is in
            evaluation mode afterwards.
        line: of the text.
        length: tokens that the model reads at once.
        stride: see `sliding_windows`.
        batch_tokens: tokens of a forward pass; fewer where the vocabulary is large.
        autocast: compute in bfloat16, but for the losses.
        on_tokens: told how many tokens were scored, for a progress bar.

    Raises:
        UsageError: see `sliding_windows`.
    """
    model.eval()
    device = model.device
    rows = max(1, min(batch_tokens // length, _MOST_LOGITS // (length * model.config.vocab_size)))
    options = _options(model)
    nats: list[Tensor] = []
    tokens: list[int] = []
    for batch in _batches(sliding_windows(len(line), length=length, stride=stride), rows):
        ids = torch.from_numpy(np.stack([line.read(window.start, window.stop + 1) for window in batch])).to(device)
        scored = batch[0].scored
        with torch.inference_mode():
            with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
                logits = model(input_ids=ids[:, :-1], **options).logits
            nats.append(token_losses(logits[:, -scored:], ids[:, -scored:]).double().sum(1).cpu())
        tokens += [scored] * len(batch)
        if on_tokens is not None:
            on_tokens(scored * len(batch))
    return LanguageEvaluation(torch.cat(nats).numpy(), np.array(tokens, dtype=np.int64), line.scored_bytes)


def _options(model: Any) -> dict[str, Any]:
    """What keeps a model from holding keys and values that nobody asks for."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def _batches(windows: Iterator[Window], rows: int) -> Iterator[list[Window]]:
    """Windows that follow one another and are alike, so that no token is padding."""
    for _, alike in groupby(windows, key=lambda window: (window.stop - window.start, window.scored)):
        while batch := list(islice(alike, rows)):
            yield batch
