"""The reference of Funnel attention gives what transformers' class gives, block by block, pooled queries included."""

from typing import Any, cast

import pytest
import torch
from transformers import FunnelConfig
from transformers.models.funnel.modeling_funnel import FunnelAttentionStructure, FunnelRelMultiheadAttention

from narrows.funnel.attention import RelativeTerms, attend_relative
from narrows.funnel.positions import Geometry, factor_tables, relative_table

HEADS, DIM, WIDTH = 3, 4, 12


def _peer(attention_type: str, separate_cls: bool, truncate_seq: bool):
    config = FunnelConfig(
        vocab_size=7,
        block_sizes=[1, 1, 1],
        d_model=WIDTH,
        n_head=HEADS,
        d_head=DIM,
        attention_type=attention_type,
        separate_cls=separate_cls,
        truncate_seq=truncate_seq,
    )
    torch.manual_seed(0)
    layers = [FunnelRelMultiheadAttention(config, block).double().eval() for block in range(3)]
    for layer in layers:
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return layers, FunnelAttentionStructure(config).eval()


def _ours(layer, query, key, *, geometry, segments, mask, attention_type):
    """What the peer's layer computes, with our attention inside."""
    split = lambda states: states.unflatten(-1, (HEADS, DIM)).transpose(1, 2)  # noqa: E731
    terms = RelativeTerms(layer.r_w_bias, layer.r_r_bias, layer.r_s_bias, layer.r_kernel, layer.seg_embed)
    make = relative_table if attention_type == "relative_shift" else factor_tables
    attended = attend_relative(
        split(layer.q_head(query)),
        split(layer.k_head(key)),
        split(layer.v_head(key)),
        terms=terms,
        geometry=geometry,
        query_segments=segments[0],
        key_segments=segments[1],
        mask=mask,
        tables=make(geometry, width=WIDTH),
        backend="reference" if attention_type == "relative_shift" else "factorized",
    )
    return layer.layer_norm(query + layer.post_proj(attended.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("truncate_seq", [True, False])
@pytest.mark.parametrize("separate_cls", [True, False])
@pytest.mark.parametrize("attention_type", ["relative_shift", "factorized"])
@pytest.mark.parametrize("length", [8, 11, 16])
def test_scores_are_those_of_transformers(length, attention_type, separate_cls, truncate_seq):
    layers, structure = _peer(attention_type, separate_cls, truncate_seq)
    states = torch.randn(2, length, WIDTH, dtype=torch.float64)
    ids = torch.randint(0, 2, (2, length))
    ids[:, 0] = 2
    mask = torch.ones(2, length)
    mask[1, length - 3 :] = 0
    inputs = structure.init_attention_inputs(states, mask.double(), ids)
    pool = lambda t: structure.stride_pool(t, 1)  # noqa: E731
    for block, layer in enumerate(layers):
        stride, first = 2**block, 1 - 2**block if separate_cls else 0
        if block:
            old_ids, (keys, old_first) = ids, (states, 1 - 2 ** (block - 1) if separate_cls else 0)
            pooled, inputs = structure.pre_attention_pooling(states, inputs)
            ids = pool(ids)
            (expected,) = layer(pooled, keys, keys, inputs)
            real = cast(Any, inputs)[2].bool()
            geometry = Geometry(pooled.shape[1], keys.shape[1], first, stride, old_first, stride // 2, separate_cls)
            got = _ours(
                layer,
                pooled,
                keys,
                geometry=geometry,
                segments=(ids, old_ids),
                mask=real,
                attention_type=attention_type,
            )
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)
            states, inputs = expected, structure.post_attention_pooling(inputs)
        (expected,) = layer(states, states, states, inputs)
        real = cast(Any, inputs)[2].bool()
        geometry = Geometry(states.shape[1], states.shape[1], first, stride, first, stride, separate_cls)
        got = _ours(
            layer,
            states,
            states,
            geometry=geometry,
            segments=(ids, ids),
            mask=real,
            attention_type=attention_type,
        )
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)
        states = expected
