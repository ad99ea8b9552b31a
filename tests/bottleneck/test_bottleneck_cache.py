"""Room in a cache: what is kept stays right, and is not copied for each token."""

import copy

import torch

from narrows.bottleneck import BottleneckConfig, BottleneckForCausalLM


def _model(**changes) -> BottleneckForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 3, "bottleneck_ratio": 2, "bottleneck_heads": 1}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = BottleneckForCausalLM(BottleneckConfig(**sizes, **ids, num_attention_heads=2, **changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "convolution" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(1))


def test_room_of_a_cache_changes_nothing_and_is_not_made_for_each_token() -> None:
    model, ids = _model(layer_pattern="bottleneck,full"), _ids(2, 40)
    with torch.inference_mode():
        cache = model(ids[:, :3], use_cache=True).cache
        places, kept = set(), None
        for place in range(3, 30):
            kept = model(ids[:, place : place + 1], cache=cache).logits
            places.add(cache.layers[1].keys.data_ptr())
        torch.testing.assert_close(kept[:, 0], model(ids[:, :30]).logits[:, -1], atol=1e-5, rtol=1e-4)
        assert len(places) == 2
        # Texts that change their order, or are read on by two, leave what others hold alone.
        other = copy.deepcopy(cache)
        cache.reorder_cache(torch.tensor([1, 0]))
        for one, rows in ((other, ids), (cache, ids.flip(0))):
            found = model(rows[:, 30:31], cache=one).logits[:, 0]
            torch.testing.assert_close(found, model(rows[:, :31]).logits[:, -1], atol=1e-5, rtol=1e-4)


def test_narrow_states_can_be_taken_back_and_go_on_in_the_same_room() -> None:
    model, ids = _model(cache_kind="narrow_states"), _ids(1, 12)
    with torch.inference_mode():
        cache = model(ids[:, :6], use_cache=True).cache
        for place in (6, 7, 8):
            model(ids[:, place : place + 1], cache=cache)
        cache.crop(-2)
    # Outside of inference mode, what was made in it cannot be written to.
    with torch.no_grad():
        found = model(ids[:, 7:8], cache=cache).logits[:, 0]
    torch.testing.assert_close(found, model(ids[:, :8]).logits[:, -1], atol=1e-5, rtol=1e-4)
