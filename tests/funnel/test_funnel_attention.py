"""Funnel attention: every form equals the reference in values and gradients, within the memory that it promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from narrows.core import attend
from narrows.errors import UsageError
from narrows.funnel.attention import Geometry, attend_relative, chosen_backend, factor_tables, relative_table

FORMS = ["sdpa", "tiled", "factorized"]


def _compare(got, expected, budget):
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype and one.isfinite().all()
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, atol=budget * scale, rtol=0)


@st.composite
def _cases(draw):
    keys, shift = draw(st.integers(1, 70)), draw(st.sampled_from([1, 1, 2, 3]))
    queries = keys if shift == 1 and draw(st.booleans()) else max(1, keys // shift + draw(st.integers(-1, 1)))
    options = {
        "shift": shift,
        "batch": draw(st.integers(1, 3)),
        "separate_cls": draw(st.booleans()),
        "segments": draw(st.integers(0, 3)),
        "masked": draw(st.booleans()),
    }
    return queries, keys, options


@pytest.mark.parametrize("backend", FORMS)
@given(case=_cases())
def test_every_form_equals_the_reference_in_fp64(inputs, backend, case):
    queries, keys, options = case
    given = inputs(queries, keys, **options)
    expected, got = given.values_and_gradients("reference"), given.values_and_gradients(backend)
    if backend == "factorized":  # has tables of its own, of no gradient
        expected, got = expected[:-1], got[:-1]
    # Tables are rounded to fp32, each in its own way.
    _compare(got, expected, 1e-5 if backend == "factorized" else 1e-11)


@pytest.mark.parametrize("backend", ["sdpa", "tiled"])
@pytest.mark.parametrize(("queries", "keys", "shift"), [(150, 150, 1), (66, 131, 2), (1, 2, 2)])
@pytest.mark.parametrize(("dtype", "budget"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_every_form_equals_the_reference_in_single_and_half(inputs, backend, queries, keys, shift, dtype, budget):
    given = inputs(queries, keys, shift=shift, masked=True, dtype=dtype)
    _compare(given.values_and_gradients(backend), given.values_and_gradients("reference"), budget)


@pytest.mark.parametrize("segments", [0, 2])
@pytest.mark.parametrize("separate_cls", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(inputs, dropout, separate_cls, segments):
    given = inputs(3, 6, shift=2, separate_cls=separate_cls, segments=segments, masked=True)

    def seeded(*tensors):
        torch.manual_seed(0)
        return given.run("tiled", dropout=dropout, tensors=tensors)

    assert torch.autograd.gradcheck(seeded, given.differentiable(), fast_mode=True)


@pytest.mark.parametrize("backend", ["reference", *FORMS])
def test_rows_of_only_padding_are_zeros_and_pass_nothing(inputs, backend):
    given = inputs(9, 9, masked=True)
    out = given.run(backend)
    assert (out[-1] == 0).all() and out.isfinite().all()
    gradients = torch.autograd.grad(out[-1].sum(), given.differentiable(), allow_unused=True, materialize_grads=True)
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("backend", ["reference", *FORMS])
def test_padding_changes_nothing(inputs, backend):
    given = inputs(20, 20)
    real = given._replace(mask=torch.arange(20) < torch.tensor([[13], [20]]))
    whole = real.run(backend)[0, :, :13]
    geometry = given.geometry._replace(queries=13, keys=13)
    tables = given.tables[7 : 7 + geometry.distances]
    alone = given._replace(
        states=tuple(states[:1, :, :13] for states in given.states),
        tables=tables,
        geometry=geometry,
        segments=tuple(ids[:1, :13] for ids in given.segments),
    )
    torch.testing.assert_close(alone.run(backend)[0], whole, atol=1e-6 if backend == "factorized" else 1e-12, rtol=0)


@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled"])
def test_without_terms_it_is_plain_attention(inputs, backend):
    given = inputs(7, 7, masked=True)
    query, key, value = given.states
    got = attend_relative(
        query, key, value, terms=None, tables=None, geometry=given.geometry, mask=given.mask, backend=backend
    )
    torch.testing.assert_close(got, attend(query, key, value, mask=given.mask[:, None, None], backend="reference"))


@pytest.mark.parametrize("backend", ["sdpa", "tiled"])
def test_terms_of_zero_leave_plain_attention(inputs, backend):
    given = inputs(80, 80)
    tensors = [*given.states, *(torch.zeros_like(term) for term in given.terms), given.tables]
    expected = attend(*given.states, backend="reference")
    torch.testing.assert_close(given.run(backend, tensors=tensors), expected)


def test_half_precision_is_as_good_at_512_tokens_as_at_64(inputs):
    """Tables in the model's dtype are wrong by 2 at 512 tokens; ours are fp32."""
    errors = {"sdpa": [], "tiled": []}
    for length in (64, 256, 512):
        exact = inputs(length, length, dtype=torch.float32)
        half = [tensor.detach().bfloat16() for tensor in exact.differentiable()]
        half[-1] = exact.tables.detach()
        expected = exact.run("reference", tensors=[tensor.float() for tensor in half])
        for backend, found in errors.items():
            out = exact.run(backend, tensors=half)
            assert out.dtype == torch.bfloat16
            found.append(float((out.float() - expected).abs().mean() / expected.abs().mean()))
    for found in errors.values():
        assert max(found) < 0.02 and max(found) < 2 * found[0]


def test_dropout_keeps_the_mean_and_repeats_with_its_seed(inputs):
    given = inputs(70, 70, dtype=torch.float32)
    expected, total = given.run("tiled"), 0.0
    torch.manual_seed(0)
    draws = 300
    with torch.no_grad():
        for _ in range(draws):
            total = total + given.run("tiled", dropout=0.2)
    assert float((total / draws - expected.detach()).abs().mean()) < 0.02
    torch.manual_seed(7)
    first = given.values_and_gradients("tiled", dropout=0.2)
    torch.manual_seed(7)
    _compare(given.values_and_gradients("tiled", dropout=0.2), first, 0.0)
    assert not torch.equal(given.run("tiled", dropout=0.2), first[0])


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_gives_the_same_gradients(inputs, use_reentrant):
    given = inputs(70, 70, masked=True)

    def gradients(call):
        torch.manual_seed(3)
        out = call(*given.differentiable())
        out.square().sum().backward()
        got = [tensor.grad for tensor in given.differentiable()]
        for tensor in given.differentiable():
            tensor.grad = None
        return [out, *got]

    def attention(*tensors):
        return given.run("tiled", dropout=0.1, tensors=tensors)

    # Leaves that are checked for gradients by hand, since reentrant checkpointing calls `backward` itself.
    given = given._replace(tables=given.tables.detach().requires_grad_())
    straight = gradients(attention)
    again = gradients(lambda *tensors: checkpoint(attention, *tensors, use_reentrant=use_reentrant))
    _compare(again, straight, 1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_nothing_of_every_pair_is_kept_for_the_backward_pass(inputs, dropout):
    length = 400
    given, saved = inputs(length, length, masked=True, dtype=torch.float32), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        given.run("tiled", dropout=dropout).sum()
    assert saved and max(saved) < length * length


def test_under_autocast_the_result_is_in_the_states_dtype(inputs):
    given = inputs(9, 9, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = given.run("tiled")
    assert torch.equal(out, given.run("tiled"))


def test_the_choice_of_a_backend_can_be_asked_for():
    assert chosen_backend("auto") == "tiled" and chosen_backend("sdpa") == "sdpa"
    assert chosen_backend("auto", tables=factor_tables(Geometry(2, 2), width=4)) == "factorized"
    with pytest.raises(
        UsageError, match="`backend` must be auto or one of reference, factorized, .*, got 'flash'; choose"
    ):
        chosen_backend("flash")


def test_inputs_that_do_not_fit_are_refused(inputs):
    given = inputs(5, 5)
    query, key, value = given.states
    fitting = {"terms": given.terms, "tables": given.tables, "geometry": given.geometry}
    with pytest.raises(
        UsageError, match="`geometry` must have the 5 queries and 5 keys of the states, got 5 and 6; make"
    ):
        attend_relative(query, key, value, **{**fitting, "geometry": given.geometry._replace(keys=6)})
    with pytest.raises(
        UsageError, match="`terms` and `tables` must be given together, or neither .*; give both or none"
    ):
        attend_relative(query, key, value, **{**fitting, "tables": None})
    with pytest.raises(
        UsageError, match="`tables` must have a row for each of the 9 distances of this geometry, got 8; mak"
    ):
        attend_relative(query, key, value, **{**fitting, "tables": given.tables[1:]})
    with pytest.raises(
        UsageError, match="`dropout` must be a probability from 0 to below 1, got 1; pass 0 outside training"
    ):
        attend_relative(query, key, value, **fitting, dropout=1)
    with pytest.raises(
        UsageError, match="`tables` for the backend 'factorized' must come from `factor_tables`, got one table"
    ):
        attend_relative(query, key, value, **fitting, backend="factorized")
    factors = {**fitting, "tables": factor_tables(given.geometry, width=12)}
    with pytest.raises(
        UsageError, match="`tables` for the backend 'sdpa' must come from `relative_table`, got factors of pos"
    ):
        attend_relative(query, key, value, **factors, backend="sdpa")


@settings(max_examples=5)
@given(length=st.integers(65, 200))
def test_kept_products_change_nothing(inputs, length):
    given = inputs(length, length, dtype=torch.float32)
    shared = [*given.differentiable()[:-1], relative_table(given.geometry, width=12)]
    with torch.no_grad():
        first, second = (given.run("tiled", tensors=shared) for _ in range(2))
        torch.testing.assert_close(first, given.run("reference"), atol=1e-5, rtol=0)
    assert torch.equal(first, second)
