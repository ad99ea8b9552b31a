"""The paper's span head beside a plain writing-out of it."""

import pytest
import torch
from torch.nn import functional

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads import FunnelForConditionalQuestionAnswering

LENGTH = 9


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = FunnelConfig(
        vocab_size=43,
        d_model=16,
        n_head=2,
        d_head=8,
        d_inner=24,
        block_sizes=[1, 1],
        num_decoder_layers=1,
        initializer_std=0.3,
        start_n_top=3,
        end_n_top=2,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    return FunnelForConditionalQuestionAnswering(config).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(1, 43, (2, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def question():
    """No answer begins or ends in the first tokens but [cls]."""
    mask = torch.zeros(2, LENGTH, dtype=torch.long)
    mask[:, 1:4] = 1
    return mask


def ends_given(model, states, start):
    """Logits of one row's ends given one start, token by token: dense, tanh, norm, dense over both states joined."""
    head = model.end_logits
    joined = [torch.cat([state, states[start]]) for state in states]
    hidden = [head.layer_norm(torch.tanh(head.dense_0(each))) for each in joined]
    return torch.stack([head.dense_1(each)[0] for each in hidden])


def log_probabilities(logits, mask):
    return functional.log_softmax(logits.masked_fill(mask != 0, -1e30), -1)


def reference(model, ids, question):
    """For each row: the log probabilities of starts, those of ends for each of the likeliest starts, answerability."""
    for row, mask in zip(model.funnel(ids).last_hidden_state, question, strict=True):
        starts = log_probabilities(model.start_logits.dense(row)[:, 0], mask)
        tried = starts.topk(3).indices.tolist()
        ends = {start: log_probabilities(ends_given(model, row, start), mask) for start in tried}
        head = model.answer_class
        joined = torch.cat([(starts.exp()[:, None] * row).sum(0), row[0]])
        yield starts, tried, ends, head.dense_1(torch.tanh(head.dense_0(joined)))[0]


@torch.no_grad()
def test_search_keeps_the_likeliest_ends_of_the_likeliest_starts(model, ids, question) -> None:
    outputs = model(ids, p_mask=question)
    for row, (starts, tried, ends, answer) in enumerate(reference(model, ids, question)):
        assert outputs.start_top_index[row].tolist() == tried
        torch.testing.assert_close(outputs.start_top_log_probs[row], starts[tried])
        for place, start in enumerate(tried):
            best = ends[start].topk(2)
            assert outputs.end_top_index[row, place].tolist() == best.indices.tolist()
            torch.testing.assert_close(outputs.end_top_log_probs[row, place], best.values)
        torch.testing.assert_close(outputs.answer_logits[row], answer)
    assert outputs.end_logits is None and outputs.loss is None


@torch.no_grad()
def test_loss_is_half_of_spans_and_half_of_answerability(model, ids, question) -> None:
    start, end, impossible = torch.tensor([5, 0]), torch.tensor([7, 0]), torch.tensor([0, 1])
    outputs = model(ids, start_positions=start, end_positions=end, is_impossible=impossible, p_mask=question)
    expected = []
    states = model.funnel(ids).last_hidden_state
    for row, (starts, _, _, answer) in enumerate(reference(model, ids, question)):
        ends = log_probabilities(ends_given(model, states[row], int(start[row])), question[row])
        spans = -starts[start[row]] - ends[end[row]]
        binary = functional.binary_cross_entropy_with_logits(answer, impossible[row].float())
        expected.append(0.5 * spans + 0.5 * binary)
    torch.testing.assert_close(outputs.loss, torch.stack(expected).mean())
    assert outputs.start_top_index is None
    halves = model(ids, start_positions=start, end_positions=end, p_mask=question, num_items_in_batch=4)
    whole = model(ids, start_positions=start, end_positions=end, p_mask=question)
    torch.testing.assert_close(halves.loss * 2, whole.loss)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(model, ids, question, side) -> None:
    before = 4 if side == "left" else 0
    pads = (before, 4 - before)
    padded, mask, p_mask = (functional.pad(each, pads) for each in (ids, torch.ones_like(ids), question))
    alone, batched = model(ids, p_mask=question), model(padded, attention_mask=mask, p_mask=p_mask)
    torch.testing.assert_close(batched.answer_logits, alone.answer_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(batched.end_top_log_probs, alone.end_top_log_probs, atol=1e-5, rtol=1e-5)
    assert torch.equal(batched.end_top_index - before, alone.end_top_index)


@torch.no_grad()
def test_a_text_shorter_than_the_search(model, ids) -> None:
    outputs = model(ids[:, :1])
    assert outputs.start_top_index.tolist() == [[0], [0]]
    assert outputs.end_top_index.tolist() == [[[0]], [[0]]]


def test_used_wrongly(model, ids) -> None:
    with pytest.raises(UsageError, match="expected `start_positions` and `end_positions` with `is_impossible`, got"):
        model(ids, is_impossible=torch.ones(2))
    with pytest.raises(UsageError, match="`start_positions` must lie in a row of 9, got 0 to 9; use that of"):
        model(ids, start_positions=torch.tensor([0, 9]))
    with pytest.raises(UsageError, match=r"`p_mask` must be \[batch, length\] as the inputs, \[2, 9\], got \[2, 3\]"):
        model(ids, p_mask=torch.zeros(2, 3))
