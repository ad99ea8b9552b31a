"""One graph for all lengths: export and compilation."""

import subprocess
import sys

import pytest
import torch

from narrows.funnel import FunnelBaseModel, FunnelModel

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "masked", "options"),
    [
        (FunnelModel, True, {}),
        (FunnelModel, False, {"position_type": "absolute", "pool_q_only": False}),
        (FunnelBaseModel, True, {"attention_type": "factorized", "pooling_type": "max"}),
        (FunnelBaseModel, True, {"pooling_size": 3, "separate_cls": False, "pooling_type": "top_attention"}),
    ],
    ids=str,
)
def test_an_export_reads_lengths_it_was_not_made_with(kind, masked, options, build, ids, together):
    model = build(kind, block_sizes=[1, 1, 1], **options)

    def inputs(*lengths: int) -> dict[str, torch.Tensor]:
        batch = together(ids(*lengths), "left")
        del batch["token_type_ids"]
        return batch if masked else {"input_ids": batch["input_ids"]}

    sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=11, max=512)}
    made_with = inputs(20, 9)
    program = torch.export.export(
        model, (), made_with, dynamic_shapes={name: sizes for name in made_with}, strict=False
    ).module()
    for length in (8, 9, 13, 14, 61, 130):
        batch = inputs(length, 3, length // 2)
        with torch.no_grad():
            torch.testing.assert_close(program(**batch)[0], model(**batch)[0], atol=1e-5, rtol=0)


_COMPILED = """
import torch
from narrows.funnel import FunnelConfig, FunnelModel

graphs = []

def count(graph, inputs):
    graphs.append(graph)
    return graph

sizes = dict(vocab_size=61, block_sizes=[1, 1, 1], num_decoder_layers=1, d_model=12, n_head=3, d_head=4, d_inner=20)
model = FunnelModel(FunnelConfig(**sizes)).eval()
compiled = torch.compile(model, backend=count, dynamic=True)
for length in (20, 9, 13, 33, 64, 130):
    tokens, mask = torch.randint(0, 61, (2, length)), torch.ones(2, length, dtype=torch.long)
    mask[1, : length // 2] = 0
    with torch.no_grad():
        got, want = (each(tokens, attention_mask=mask).last_hidden_state for each in (compiled, model))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
print(len(graphs))
"""


def test_one_compilation_serves_all_lengths():
    """In a process of its own: torch would trace the checks of shapes that these tests put around functions."""
    done = subprocess.run([sys.executable, "-c", _COMPILED], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr[-2000:]
