"""The cost model of funnels: the paper's own figures, and counts that can be made by hand."""

import pytest

from narrows.bench.funnel_cost import Seen, decoder_flops, encoder_flops, layers_seen, paper_flops, plain_flops
from narrows.funnel.config import FunnelConfig
from narrows.funnel.presets import PRESETS, preset


@pytest.mark.parametrize(
    ("name", "relative"),
    [
        ("B4-4-4H768", 0.58),
        ("B6-3x2-3x2H768", 0.88),
        ("B6-6-6H768", 0.88),
        ("B8-8-8H1024", 2.07),
        ("B10-10-10H1024", 2.60),
        ("L24H1024", 3.56),
    ],
)
def test_relative_operations_are_the_papers(name, relative) -> None:
    assert paper_flops(preset(name)) / paper_flops(preset("L12H768")) == pytest.approx(relative, rel=0.02)


def test_layouts_of_the_ablation_cost_what_the_paper_says() -> None:
    base = paper_flops(preset("B6-6-6H768"))
    assert paper_flops(preset("B8-8H768")) / base == pytest.approx(1.14, rel=0.02)
    assert paper_flops(preset("B5-5-5-5H768")) / base == pytest.approx(0.89, rel=0.02)


@pytest.mark.parametrize(("name", "relative"), [("B6-6-6H768", 0.93), ("B4-4-4H768", 0.63)])
def test_all_operations_at_512_tokens_beside_bert_base(name, relative) -> None:
    bert = plain_flops(layers=12, width=768, length=512, rows=4)
    assert encoder_flops(preset(name), length=512, rows=4) / bert == pytest.approx(relative, abs=0.01)


def test_the_first_layer_of_a_block_sees_the_keys_of_the_block_before() -> None:
    config = FunnelConfig(block_sizes=[1, 1, 2], block_repeats=[2, 1, 1])
    assert layers_seen(config, 10) == [Seen(10, 10), Seen(10, 10), Seen(6, 10), Seen(4, 6), Seen(4, 4)]
    config.pool_q_only = False
    assert layers_seen(config, 10)[2:] == [Seen(6, 6), Seen(4, 4), Seen(4, 4)]


def test_without_pooling_and_positions_it_is_a_plain_encoder() -> None:
    plain = preset("L2H64", position_type="absolute")
    assert encoder_flops(plain, length=37, rows=3) == plain_flops(layers=2, width=64, length=37, rows=3)


def test_the_decoder_runs_over_all_tokens() -> None:
    config = preset("B1-1H64", num_decoder_layers=2, decoder_repeats=[1, 2])
    assert decoder_flops(config, length=9) == 3 * encoder_flops(preset("L1H64"), length=9)


def test_rows_share_the_projected_positions() -> None:
    config = preset("B2-2H64")
    assert encoder_flops(config, length=16, rows=4) < 4 * encoder_flops(config, length=16)


@pytest.mark.parametrize("name", PRESETS)
def test_the_page_has_these_counts(name, repository_root) -> None:
    bert, config = plain_flops(layers=12, width=768, length=512, rows=4), preset(name)
    encoder = encoder_flops(config, length=512, rows=4)
    whole = encoder + decoder_flops(config, length=512, rows=4)
    counts = (paper_flops(config) / paper_flops(preset("L12H768")), encoder / bert, whole / bert)
    page = (repository_root / "docs" / "funnel.md").read_text(encoding="utf-8")
    assert f" | {' | '.join(f'{count:.2f}' for count in counts)} | " in next(
        line for line in page.splitlines() if line.startswith(f"| {name} |")
    )
