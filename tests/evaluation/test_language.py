"""Sliding evaluation: each token once, with enough before it, and what a plain loop over single tokens finds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from narrows.errors import UsageError
from narrows.evaluation.language import LanguageEvaluation, evaluate_line, sliding_windows, token_losses

_LENGTH = 16


class _Line:
    def __init__(self, tokens: int):
        self._ids = np.random.default_rng(0).integers(0, 20, tokens)
        self.scored_bytes = 3 * (tokens - 1)

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self._ids[start:stop]


def _gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": _LENGTH, "initializer_range": 0.5}
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, bos_token_id=None, eos_token_id=None, **sizes))


def _llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    return LlamaForCausalLM(LlamaConfig(vocab_size=20, initializer_range=0.5, **sizes))


@given(tokens=st.integers(2, 90), length=st.integers(1, 40), data=st.data())
def test_each_token_is_scored_once_with_enough_before_it(tokens, length, data) -> None:
    stride = data.draw(st.one_of(st.none(), st.integers(1, length)))
    windows = list(sliding_windows(tokens, length=length, stride=stride))
    scored = []
    for window in windows:
        assert 0 <= window.start < window.stop < tokens and window.stop - window.start <= length
        ones = range(window.stop + 1 - window.scored, window.stop + 1)
        # The first window has what there is; it is the only one that may be shorter than `length`.
        if window is not windows[0]:
            assert window.stop - window.start == length
            assert all(token - window.start >= length - (stride or length) for token in ones)
        scored += ones
    assert scored == list(range(1, tokens))
    # No more is read than the strides ask for.
    assert len(windows) == 1 + max(0, math.ceil((tokens - 1 - length) / (stride or length)))


def test_windows_by_hand() -> None:
    assert [tuple(window) for window in sliding_windows(10, length=4)] == [(0, 4, 4), (4, 8, 4), (5, 9, 1)]
    assert [tuple(window) for window in sliding_windows(3, length=4, stride=1)] == [(0, 2, 2)]


@pytest.mark.parametrize("make", [_gpt2, _llama])
@pytest.mark.parametrize(("tokens", "stride"), [(2, 5), (9, 3), (17, 16), (18, 16), (50, 1), (61, 7), (64, None)])
@torch.no_grad()
def test_it_is_what_a_loop_over_single_tokens_finds(make, tokens, stride) -> None:
    model, line = make().eval(), _Line(tokens)
    expected = 0.0
    for target in range(1, tokens):
        # The window that scores it: the first, or the one whose last `step` tokens it is among.
        step = stride or _LENGTH
        stop = min(tokens - 1, _LENGTH + step * math.ceil(max(0, target - _LENGTH) / step))
        start = max(0, stop - _LENGTH)
        logits = model(torch.from_numpy(line.read(start, target))[None]).logits[0, -1]
        expected -= float(logits.double().log_softmax(0)[line.read(target, target + 1)[0]])
    told: list[int] = []
    found = evaluate_line(model, line, length=_LENGTH, stride=stride, batch_tokens=40, on_tokens=told.append)
    assert int(found.tokens.sum()) == sum(told) == tokens - 1
    assert float(found.nats.sum()) == pytest.approx(expected, rel=1e-5)
    scores = found.scores()
    assert scores["loss"] == pytest.approx(expected / (tokens - 1), rel=1e-5)
    assert scores["bits_per_byte"] == pytest.approx(expected / math.log(2) / (3 * (tokens - 1)), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(expected / (tokens - 1)), rel=1e-5)


def test_it_does_not_depend_on_batches_and_leaves_no_training_mode() -> None:
    model, line = _gpt2().train(), _Line(80)
    # Dropout would change it.
    first = evaluate_line(model, line, length=_LENGTH, stride=4, batch_tokens=_LENGTH)
    assert not model.training
    second = evaluate_line(model, line, length=_LENGTH, stride=4, batch_tokens=10_000)
    np.testing.assert_allclose(first.nats, second.nats, rtol=1e-5)
    assert np.array_equal(first.tokens, second.tokens)


def test_a_large_vocabulary_makes_small_batches(monkeypatch) -> None:
    model, rows = _gpt2(), []
    model.register_forward_pre_hook(lambda module, _, given: rows.append(len(given["input_ids"])), with_kwargs=True)
    monkeypatch.setattr("narrows.evaluation.language._MOST_LOGITS", 3 * _LENGTH * 20)
    evaluate_line(model, _Line(10 * _LENGTH + 1), length=_LENGTH)
    assert rows == [3, 3, 3, 1]


def test_losses_are_in_fp32() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.bfloat16)
    targets = torch.randint(0, 5, (2, 3))
    found = token_losses(logits, targets)
    expected = -logits.float().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_intervals_hold_the_scores() -> None:
    generator = np.random.default_rng(1)
    found = LanguageEvaluation(generator.uniform(8, 12, 50), np.full(50, 10), 1000)
    scores, intervals = found.scores(), found.intervals()
    assert scores.keys() == intervals.keys() == {"loss", "bits_per_byte", "perplexity"}
    for name, interval in intervals.items():
        assert interval.mean == pytest.approx(scores[name]) and interval.low < interval.mean < interval.high
    # One window varies by nothing.
    alone = LanguageEvaluation(np.array([3.0]), np.array([2]), 4).intervals()["loss"]
    assert alone.low == alone.mean == alone.high == 1.5


def test_a_loss_beyond_doubles_and_one_that_is_none() -> None:
    assert LanguageEvaluation(np.array([800.0]), np.array([1]), 1).scores()["perplexity"] == math.inf
    assert all(map(math.isnan, LanguageEvaluation(np.array([math.nan]), np.array([1]), 1).scores().values()))


def test_what_cannot_be_scored() -> None:
    with pytest.raises(UsageError, match="expected a stride from 1 to the length, 4, got 5; choose one of these"):
        list(sliding_windows(9, length=4, stride=5))
    with pytest.raises(UsageError, match="expected a stride from 1 to the length, 4, got 0"):
        list(sliding_windows(9, length=4, stride=0))
    with pytest.raises(UsageError, match="expected at least 2 tokens of text to score, .*, got 1; name more text"):
        list(sliding_windows(1, length=4))
