"""The loss of the next token: fp32, one mean over the step, and the same in chunks of logits."""

import pytest
import torch
from torch.nn import functional
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from narrows.training.language.objective import NextTokenObjective

_VOCABULARY = 50
_SIZES = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}


def _gpt2(**fields) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=_VOCABULARY, n_layer=2, n_embd=16, n_head=2, n_positions=64, **fields))


def _llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(vocab_size=_VOCABULARY, tie_word_embeddings=False, **_SIZES))


def _batch(rows: int = 5, length: int = 12) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, _VOCABULARY, (rows, length + 1), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}


def _gradients(model, objective: NextTokenObjective, batches) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    counts, total = objective.counts(batches), 0.0
    for batch in batches:
        loss = objective(model, batch, counts)
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("make", [_gpt2, _llama])
@pytest.mark.parametrize("most_logits", [1 << 24, 7 * _VOCABULARY, 1])
def test_it_is_the_mean_of_the_step_however_it_is_split(make, most_logits) -> None:
    torch.manual_seed(0)
    model, batch = make().eval(), _batch()
    objective = NextTokenObjective(model, most_logits=most_logits)
    logits = model(batch["input_ids"]).logits
    expected = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    wanted = torch.autograd.grad(expected, weights)
    for split in ([[0, 1, 2, 3, 4]], [[0], [1, 2, 3], [4]]):
        parts = [{name: tensor[rows] for name, tensor in batch.items()} for rows in split]
        loss, gradients = _gradients(model, objective, parts)
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        for one, other in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_chunks_hold_no_more_logits_than_are_said() -> None:
    torch.manual_seed(0)
    model, batch, sizes = _gpt2().eval(), _batch(), []
    objective = NextTokenObjective(model, most_logits=7 * _VOCABULARY)
    model.lm_head.register_forward_hook(lambda module, given, made: sizes.append(made.numel()))
    objective(model, batch, objective.counts([batch])).backward()
    assert max(sizes) <= 7 * _VOCABULARY
    sizes.clear()
    # A small vocabulary: all at once.
    objective = NextTokenObjective(model)
    sizes.clear()
    objective(model, batch, objective.counts([batch]))
    assert sizes == [60 * _VOCABULARY]


def test_in_bfloat16_the_loss_is_in_fp32_and_chunks_change_nothing() -> None:
    torch.manual_seed(0)
    model, batch, losses, kinds = _llama().eval(), _batch(), [], []
    model.lm_head.register_forward_hook(lambda module, given, made: kinds.append(made.dtype))
    objectives = [NextTokenObjective(model, most_logits=most_logits) for most_logits in (1 << 24, 7 * _VOCABULARY)]
    # As accelerate does it, once the objective is there: the model's own call alone is cast.
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    for objective in objectives:
        kinds.clear()
        losses.append(objective(model, batch, objective.counts([batch])))
        assert set(kinds) == {torch.bfloat16} and losses[-1].dtype == torch.float32
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize(
    "model",
    [
        Gemma2ForCausalLM(
            Gemma2Config(vocab_size=_VOCABULARY, head_dim=8, num_key_value_heads=1, pad_token_id=0, **_SIZES)
        ),
        GraniteForCausalLM(GraniteConfig(vocab_size=_VOCABULARY, logits_scaling=4.0, **_SIZES)),
    ],
    ids=["a cap", "a scale"],
)
def test_logits_that_are_changed_behind_the_head_are_taken_whole(model) -> None:
    batch = _batch()
    model.train()
    objective = NextTokenObjective(model, most_logits=1)
    assert model.training
    model.eval()
    expected = functional.cross_entropy(model(batch["input_ids"]).logits.flatten(0, 1), batch["labels"].flatten())
    torch.testing.assert_close(objective(model, batch, objective.counts([batch])), expected)


def test_a_model_without_a_head_module_is_taken_whole() -> None:
    model, batch = _gpt2().eval(), _batch()
    model.get_output_embeddings = lambda: None  # type: ignore[method-assign]
    objective = NextTokenObjective(model, most_logits=1)
    expected = functional.cross_entropy(model(batch["input_ids"]).logits.flatten(0, 1), batch["labels"].flatten())
    torch.testing.assert_close(objective(model, batch, objective.counts([batch])), expected)
