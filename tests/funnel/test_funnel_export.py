"""One graph for all lengths: export and compilation."""

import pytest
import torch

from narrows.funnel import FunnelBaseModel, FunnelModel


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (FunnelModel, {}),
        (FunnelBaseModel, {"attention_type": "factorized", "pooling_type": "max"}),
        (FunnelBaseModel, {"pooling_size": 3, "separate_cls": False, "pooling_type": "top_attention"}),
        (FunnelModel, {"position_type": "absolute", "pool_q_only": False}),
    ],
    ids=str,
)
def test_an_export_reads_lengths_it_was_not_made_with(kind, options, masked, build, ids, together):
    model = build(kind, **options)

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


@pytest.mark.slow
def test_one_compilation_serves_all_lengths(build, ids, together):
    torch._dynamo.reset()
    graphs = []

    def count(graph, _inputs):
        graphs.append(graph)
        return graph

    model = build(FunnelModel)
    compiled = torch.compile(model, backend=count, dynamic=True)
    for length in (20, 9, 13, 33, 64, 130):
        batch = together(ids(length, 5), "left")
        with torch.no_grad():
            torch.testing.assert_close(compiled(**batch)[0], model(**batch)[0], atol=1e-5, rtol=0)
    assert len(graphs) == 1
