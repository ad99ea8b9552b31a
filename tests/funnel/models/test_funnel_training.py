"""Training: gradients, checkpointing, dropout, initial weights, and what is kept for the backward pass."""

import math

import pytest
import torch
from torch.nn import functional

from narrows.funnel import FunnelBaseModel, FunnelModel


def _gradients(model, batch):
    states = model(**batch).last_hidden_state
    (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("attention_type", ["relative_shift", "factorized"])
def test_checkpointing_changes_no_gradient_dropout_included(reentrant, attention_type, build, ids, together):
    batch, gradients = together(ids(23, 9), "left"), []
    rates = {"hidden_dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.1}
    for checkpointing in (False, True):
        model = build(FunnelModel, attention_type=attention_type, block_repeats=[1, 2, 1], **rates).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
            if reentrant:
                model.enable_input_require_grads()
        torch.manual_seed(5)
        gradients.append(_gradients(model, batch))
    for name, gradient in gradients[0].items():
        assert gradient is not None and gradient.any(), name
        largest = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-5 * largest, rtol=0)


@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_gradients_are_those_of_the_reference(backend, build, ids, together):
    batch = together(ids(40, 9), "left")
    want = _gradients(build(FunnelModel, funnel_backend="reference"), batch)
    for name, gradient in _gradients(build(FunnelModel, funnel_backend=backend), batch).items():
        torch.testing.assert_close(gradient, want[name], atol=2e-5 * max(1.0, float(want[name].abs().max())), rtol=0)


def test_a_gradient_does_not_depend_on_the_batch(build, ids, together):
    rows = ids(23, 9, 2)
    parts = [together([row], "right") for row in rows]
    whole = together(rows, "left")
    model = build(FunnelModel)
    model(**whole).last_hidden_state.square().sum().backward()
    together_ = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for part in parts:
        model(**part).last_hidden_state.square().sum().backward()
    for one, parameter in zip(together_, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, one, atol=1e-4 * max(1.0, float(one.abs().max())), rtol=0)


@pytest.mark.parametrize("rate", ["hidden_dropout", "attention_dropout", "activation_dropout"])
def test_dropout_reaches_the_states_in_training_only(rate, build, ids):
    model, row = build(FunnelBaseModel, **{rate: 0.5}), ids(30)[0][None]
    with torch.no_grad():
        assert torch.equal(model(row)[0], model(row)[0])
        model.train()
        assert not torch.equal(model(row)[0], model(row)[0])


def test_dropout_reaches_the_sinusoids_once_a_forward(build, ids):
    """With no other dropout left, a model still differs from itself; a kept table does not."""
    for attention_type in ("relative_shift", "factorized"):
        model = build(FunnelBaseModel, hidden_dropout=0.5, attention_type=attention_type).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        row = ids(30)[0][None]
        with torch.no_grad():
            assert not torch.equal(model(row)[0], model(row)[0])
            model.eval()
            assert torch.equal(model(row)[0], model(row)[0])


def test_fresh_weights_are_drawn_from_a_truncated_normal(config):
    model = FunnelModel(config(d_model=64, d_inner=200, d_embed=40, vocab_size=500, pad_token_id=0))
    for name, weight in model.named_parameters():
        weight = weight.detach()
        if "layer_norm" in name:
            assert torch.equal(weight, torch.full_like(weight, float(name.endswith("weight"))))
        elif name.endswith("bias") and "r_" not in name.rsplit(".", 1)[-1]:
            assert not weight.any(), name
        else:
            # Of a normal of 0.02, cut at two deviations, the deviation is 0.0176.
            assert weight.any() and float(weight.abs().max()) <= 0.04
            assert weight.numel() < 500 or abs(float(weight.std()) / 0.0176 - 1) < 0.1, name
    assert not model.embeddings.word_embeddings.weight[0].any()


def test_a_fresh_models_words_are_as_good_as_equal_in_likelihood(config):
    """Within a fifth of ln V; transformers' draws begin at many times it."""
    torch.manual_seed(0)
    model = FunnelModel(config(d_model=192, n_head=3, d_head=64, d_inner=768, vocab_size=2000)).eval()
    tokens = torch.randint(0, 2000, (4, 64))
    with torch.no_grad():
        logits = model(tokens).last_hidden_state @ model.embeddings.word_embeddings.weight.T
    loss = functional.cross_entropy(logits.flatten(0, 1), torch.randint(0, 2000, (256,)))
    assert abs(float(loss) / math.log(2000) - 1) < 0.2


def test_of_the_first_blocks_states_only_the_last_are_kept_without_gradients(build, ids):
    """Weak references to what each layer gave, when the last layer ends."""
    import weakref

    model, alive, given = build(FunnelModel, block_sizes=[3, 2]), [], []

    def note(_module, _inputs, output):
        alive[:] = [each() is not None for each in given]
        given.append(weakref.ref(output))

    layers = [*model.encoder.blocks[0], *model.encoder.blocks[1], *model.decoder.layers]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        model(ids(30)[0][None])
    for hook in hooks:
        hook.remove()
    # The skip, and what the encoder gave.
    assert alive == [False, False, True, False, True]
