"""Span corruption: every token once, in its order, in the inputs or in the targets; as much as was asked for."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.span_corruption import corrupt_spans, corrupted_lengths
from narrows.errors import UsageError

SENTINELS = list(range(1000, 1100))


def restored(corrupted) -> list[int]:
    """The text again: each span in the place of its sentinel."""
    spans: dict[int, list[int]] = {}
    sentinel = -1
    for token in corrupted.targets:
        if token >= 1000:
            sentinel = token
            assert sentinel not in spans
            spans[sentinel] = []
        else:
            spans[sentinel].append(token)
    text: list[int] = []
    for token in corrupted.inputs:
        text += spans.pop(token) if token >= 1000 else [token]
    assert not spans
    return text


@given(
    length=st.integers(2, 700),
    seed=st.integers(0, 10**6),
    density=st.floats(0.01, 0.99),
    span=st.floats(1, 20),
    sentinels=st.integers(1, 100),
)
def test_every_token_is_once_in_the_inputs_or_the_targets(length, seed, density, span, sentinels) -> None:
    ids = [token % 900 for token in range(length)]
    names = SENTINELS[:sentinels]
    made = corrupt_spans(ids, sentinels=names, random=Random(seed), noise_density=density, mean_span=span)
    assert restored(made) == ids
    used = [token for token in made.inputs if token >= 1000]
    assert used == names[: len(used)] == [token for token in made.targets if token >= 1000]
    noise = len(made.targets) - len(used)
    assert noise == min(max(round(length * density), 1), length - 1)
    # It begins with what is left and ends with a span, and no span touches the next.
    assert made.inputs[0] < 1000 and made.inputs[-1] >= 1000
    assert all(not (a >= 1000 and b >= 1000) for a, b in zip(made.inputs, made.inputs[1:], strict=False))
    assert all(not (a >= 1000 and b >= 1000) for a, b in zip(made.targets, made.targets[1:], strict=False))
    lengths = corrupted_lengths(length, sentinels=sentinels, noise_density=density, mean_span=span)
    assert (len(made.inputs), len(made.targets)) == lengths


def test_t5s_numbers() -> None:
    # 512 tokens: round(0.15 * 512) = 77 taken out, in round(77 / 3) = 26 spans.
    assert corrupted_lengths(512, sentinels=100) == (512 - 77 + 26, 77 + 26)
    # With fewer sentinels the spans are fewer and longer.
    assert corrupted_lengths(8192, sentinels=100) == (8192 - 1229 + 100, 1229 + 100)


def test_the_seed_decides_and_all_places_are_reached() -> None:
    ids = list(range(60))
    one, same, other = (corrupt_spans(ids, sentinels=SENTINELS, random=Random(seed)) for seed in (1, 1, 2))
    assert one == same != other
    taken = set()
    for seed in range(300):
        taken.update(t for t in corrupt_spans(ids, sentinels=SENTINELS, random=Random(seed)).targets if t < 1000)
    # The first token is always left, as in T5's code.
    assert taken == set(range(1, 60))


@pytest.mark.parametrize(
    ("ids", "options", "text"),
    [
        ([5], {}, "expected at least 2 tokens to corrupt, got 1; leave such a text out"),
        ([], {}, "expected at least 2 tokens to corrupt, got 0"),
        ([5, 6], {"sentinels": []}, "expected at least one sentinel to put in the place of a span, got none; pass"),
        ([5, 6], {"noise_density": 0.0}, "expected a noise_density above 0 and below 1, got 0.0; T5's is 0.15"),
        ([5, 6], {"noise_density": 1.0}, "expected a noise_density above 0 and below 1, got 1.0"),
        ([5, 6], {"mean_span": 0.5}, "expected a mean_span of at least 1, got 0.5; T5's is 3"),
    ],
)
def test_what_cannot_be_is_refused(ids, options, text) -> None:
    with pytest.raises(UsageError, match=text):
        corrupt_spans(ids, **{"sentinels": SENTINELS, "random": Random(0), **options})
