"""The rows of Funnel, at sizes that take a moment."""

import pytest
import torch

from narrows.bench import funnel, funnel_distilled, funnel_numbers
from narrows.bench.funnel_models import FunnelSide, build, task
from narrows.bench.funnel_numbers import alone_rows, cost_rows, loss_rows, precision_rows
from narrows.bench.pairs import Pair, compare_memory, compare_times, needs_memory, sides_of
from narrows.bench.results import digest
from narrows.bench.rows import Context

GROUPS = funnel.groups(Context())
TIMED = [group for group in GROUPS if "rounds" in group.size and "pairs" in group.measure.keywords]
TINY = {"L12H768": "L2H64", "B6-6-6H768": "B1-2H64", "B6-3x2-3x2H768": "B1-1x2H64", "B4-4-4H768": "B1-1H64"}


def tiny(side: FunnelSide | None) -> FunnelSide | None:
    return side and side._replace(layout=TINY[side.layout], length=16, batch=2, vocabulary=50)


def shrunk(found: list[Pair]) -> list[Pair]:
    return [pair._replace(ours=tiny(pair.ours), peer=tiny(pair.peer)) for pair in found]


def test_row_names_are_unique_and_what_is_ours_has_sources():
    rows = [row for group in GROUPS for row in group.rows]
    assert len({row.name for row in rows}) == len(rows) > 50
    assert all(bool(row.sources) != ("BERT" in row.name) for row in rows)
    assert all(digest(row.sources) for row in rows)


def test_the_bars_are_those_promised():
    bars = {row.name: (row.side, row.bar) for group in GROUPS for row in group.rows if row.bar is not None}
    assert bars == {
        "time-B6-6-6-512": ("at most", 0.98),
        "time-B4-4-4-512": ("at most", 0.66),
        "time-B6-6-6-128": ("at most", 1.0),
        "speed-B6-6-6-512": ("at least", 1.5),
        "speed-B4-4-4-512": ("at least", 1.5),
        "speed-B6-6-6-128": ("at least", 1.3),
        "speed-B4-4-4-128": ("at least", 1.3),
        "training-memory": ("at most", 0.6),
        "training-memory-checkpointed": ("at most", 0.25),
        "long-4096-memory": ("at most", 0.1),
        "long-8192-resident": ("below", 1.5),
        "cost-flops": ("at most", 2.0),
        "cost-parameters": ("at most", 2.0),
        "alone-batched": ("at most", 10.0),
        "bf16-error-growth": ("at most", 1.5),
        "mlm-first-loss": ("at most", 20.0),
        "distilled-mrr": ("at least", -0.02),
        "distilled-time-256": ("at most", 0.7),
    }


def test_the_table_has_every_layout_at_every_length():
    names = {row.name for group in GROUPS for row in group.rows}
    for what in ("time", "memory"):
        for layout in ("L12", "B6-6-6", "B6-3x2-3x2", "B4-4-4", "BERT"):
            assert {f"{what}-{layout}-{length}" for length in (128, 256, 512)} <= names


def test_a_time_beside_bert_says_what_arithmetic_predicts():
    predicted = {pair.row: pair.arithmetic for group in TIMED for pair in group.measure.keywords["pairs"]}
    assert predicted["time-B6-6-6-512"] == pytest.approx(0.94, abs=0.01)
    assert predicted["time-B4-4-4-512"] == pytest.approx(0.63, abs=0.01)
    assert predicted["pretraining-time-B6-6-6-512"] == pytest.approx(1.12, abs=0.01)
    assert predicted["speed-B6-6-6-512"] is None


@pytest.mark.parametrize("group", TIMED, ids=lambda group: group.rows[0].name)
def test_every_timed_row_is_measured(group):
    found = compare_times(Context(rounds=1), pairs=shrunk(group.measure.keywords["pairs"]), rounds=3)
    assert list(found) == [row.name for row in group.rows]
    assert all(measured.value > 0 and measured.detail["rounds"] == 1 for measured in found.values())


@pytest.mark.parametrize("model", ["ours", "hf", "bert"])
def test_each_model_does_each_work(model):
    for work in ("forward", "step", "pretrain"):
        layout = "L2H64" if model == "bert" else "B1-1H64"
        side = FunnelSide(model, layout, 17, batch=3, work=work, vocabulary=50)
        built = build(side)
        assert built.training == (work != "forward")
        result = task(built, side)()
        slots = {"ours": 9, "hf": 9, "bert": 17}[model]
        assert result.isfinite().all() and result.shape == ((3, slots, 64) if work == "forward" else ())
        gradients = [parameter.grad for parameter in built.parameters()]
        assert all((gradient is None) == (work == "forward") for gradient in gradients)
        assert work == "forward" or any(gradient.any() for gradient in gradients)


def test_a_step_starts_from_gradients_of_zero_and_a_checkpointed_one_has_the_same(monkeypatch):
    side = FunnelSide("ours", "B1-1H64", 17, batch=2, work="step", vocabulary=50)
    built, found = build(side), []
    for recompute in (False, True, False):
        torch.manual_seed(0)
        task(built, side._replace(recompute=recompute))()
        found.append([parameter.grad.clone() for parameter in built.parameters()])
        assert built.is_gradient_checkpointing == recompute
    for one, other in zip(found[0], found[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[2], strict=True))


def test_sides_that_differ_in_the_text_share_a_model():
    sides = [
        FunnelSide("ours", "B1-1H64", n, batch=b, recompute=again) for n, b, again in ((8, 1, True), (9, 2, False))
    ]
    assert sides[0].needs == sides[1].needs != sides[0]._replace(work="step").needs


def test_a_side_that_would_not_fit_is_left_out_with_a_reason(monkeypatch):
    from types import SimpleNamespace

    long = [Pair("a", "share", FunnelSide("ours", "B6-6-6H768", 4096, 1), FunnelSide("hf", "B6-6-6H768", 4096, 1))]
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=5e9))
    assert needs_memory(Context(), pairs=long) == "needs about 8 GB of free memory, got 5.0"
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=9e9))
    assert needs_memory(Context(), pairs=long) is None


def test_a_quick_run_takes_half_of_the_layers_and_is_not_held_to_the_bars_of_time():
    (timed,) = [group for group in TIMED if group.quick is not None]
    halves = sides_of(timed.quick.keywords["pairs"])
    assert {side.layout for side in halves} == {"L6H768", "B3-3-3H768", "B3-1x3-1x3H768", "B2-2-2H768"}
    assert {side.batch for side in halves} == {1} and not timed.quick_judged
    judged = {row.name for group in GROUPS if group.quick is not None and group.quick_judged for row in group.rows}
    assert judged == {
        "alone-batched", "bf16-error-64", "bf16-error-256", "bf16-error-512", "bf16-error-growth", "mlm-first-loss",
        "cost-flops", "cost-parameters",
    }  # fmt: skip
    assert sum(group.quick_seconds for group in GROUPS if group.quick is not None) < 45


@pytest.mark.slow
def test_memory_is_that_of_each_side():
    ours, peer = FunnelSide("ours", "L1H64", 1024, 1, vocabulary=50), FunnelSide("hf", "L1H64", 1024, 1, vocabulary=50)
    found = compare_memory(Context(), pairs=[Pair("share", "share", ours, peer)])
    assert 0 < found["share"].value < 0.6


def test_a_peak_counts_the_scores_that_transformers_holds():
    side = FunnelSide("hf", "L1H64", 1024, 1, vocabulary=50)
    # Scores by distance: 1,024 × 2,048 numbers, 8 MiB, and by key.
    # In a process of its own: one that ran other tests holds freed memory that the scores would go into.
    assert 10 < compare_memory(Context(), pairs=[Pair("peak", "share", side, None)])["peak"].value < 512


def test_a_whole_peak_is_more_than_what_was_loaded():
    peak, before = funnel_numbers.whole_peak(**FunnelSide("ours", "B1-1H64", 256, 1, vocabulary=50)._asdict())
    assert 2**26 < before <= peak


def test_resident_bytes_are_told_in_gigabytes(monkeypatch):
    monkeypatch.setattr(funnel_numbers, "in_own_process", lambda *names, **options: [1_250_000_000, 1_000_000_000])
    found = funnel_numbers.resident_rows(Context(), row="a", side=FunnelSide("ours", "B1-1H64", 8))
    assert found["a"].value == 1.25 and found["a"].detail["gigabytes"] == {"loaded": 1.0, "peak": 1.25}


def test_alone_and_batched_agree_and_a_difference_is_seen(monkeypatch):
    found = alone_rows(Context(), layout="B1-1H64", longest=9)["alone-batched"]
    assert 0 <= found.value < 10 and len(found.detail) == 4
    real = funnel_numbers._real
    monkeypatch.setattr(
        funnel_numbers, "_real", lambda model, texts, **options: real(model, texts, **options) + 0.5 * len(options)
    )
    found = alone_rows(Context(), layout="B1-1H64", longest=9)["alone-batched"]
    assert found.value == pytest.approx(0.5e6, rel=1e-3)


def test_errors_of_bfloat16_are_small_and_transformers_stand_beside_them():
    found = precision_rows(Context(), layout="L1H64", lengths=(16, 40))
    assert 0 < found["bf16-error-16"].value < 5 and 0 < found["bf16-error-40"].value < 5
    assert found["bf16-error-growth"].value >= 1 and set(found["bf16-error-growth"].detail["transformers"]) == {
        "16",
        "40",
    }


def test_the_first_loss_is_near_a_guess():
    found = loss_rows(Context(), layout="B1-1H64", length=12)["mlm-first-loss"]
    assert found.value < 20 and found.detail["loss"] == pytest.approx(found.detail["uniform"], rel=0.2)


def test_counts_are_near_the_published_ones():
    found = cost_rows(Context())
    assert 0 < found["cost-flops"].value < 2 and 0 < found["cost-parameters"].value < 2


def test_rows_of_a_distilled_encoder_say_what_they_need(tmp_path):
    scored, *_, timed = funnel_distilled.distilled_groups()[:5]
    assert scored.missing(Context()) == "needs a distilled encoder: pass --models distilled=DIR"
    context = Context(models={"distilled": tmp_path})
    assert scored.missing(context) == "needs data: pass --data DIR or set NARROWS_DATA"
    assert timed.missing(context) is None
    context = Context(models={"distilled": tmp_path}, data=tmp_path)
    assert scored.missing(context) == f"needs data: no squad_reqa/eval-500.json.gz in {tmp_path}"
    smaller = funnel_distilled.distilled_groups()[5:]
    assert {group.missing(context) for group in smaller} == {"needs a distilled encoder: pass --models smaller=DIR"}
    assert not [row for group in smaller for row in group.rows if row.bar is not None]


@pytest.fixture
def student_and_teacher(tmp_path, tiny_bert):
    from transformers import AutoTokenizer, BertModel

    from narrows.bench.funnel_models import bert_config
    from narrows.funnel import FunnelBaseModel, preset

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    student = FunnelBaseModel(preset("B1-1H64", vocab_size=len(tokenizer)))
    teacher = BertModel(bert_config(preset("L2H64", vocab_size=len(tokenizer))))
    for name, model in (("student", student), ("teacher", teacher)):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    return tmp_path / "student", tmp_path / "teacher"


def test_a_distilled_encoder_is_timed_and_scored_beside_its_teacher(tmp_path, monkeypatch, student_and_teacher):
    from narrows import Embedder
    from narrows.data import RetrievalData
    from narrows.funnel import FunnelBaseModel

    student, teacher = student_and_teacher
    context = Context(models={"distilled": student, "teacher": teacher}, data=tmp_path, rounds=1)
    found = funnel_distilled.time_rows(context, student="distilled", rounds=3, lengths=(16,), batch=2)[
        "distilled-time-16"
    ]
    assert found.value > 0 and 0.5 < found.arithmetic < 1.2

    data = RetrievalData(("a", "b"), ("x", "y"), ({0: 1.0}, {1: 1.0}), 0)
    vectors = {"teacher": [[1.0, 0.0], [0.0, 1.0]], "distilled": [[1.0, 0.0], [1.0, 0.0]]}

    def embed(embedder, texts, *, truncate):
        name = "distilled" if isinstance(embedder.encoder.model, FunnelBaseModel) else "teacher"
        of_texts = vectors["teacher"] if list(texts) == ["x", "y"] else vectors[name]
        return torch.tensor(of_texts).numpy()

    monkeypatch.setattr(funnel_distilled, "read_retrieval", lambda path: data)
    monkeypatch.setattr(Embedder, "embed", embed)
    scored = funnel_distilled.score_rows(context, student="distilled", task="mrr")["distilled-mrr"]
    # Of the second question the distilled one finds the right text second.
    assert scored.value == pytest.approx(-0.25) and scored.spread[0] <= scored.value <= scored.spread[1]
    assert scored.detail["peer"] == "0.750 less its teacher's 1.000"
    assert scored.detail["teacher"]["ndcg@10"] == pytest.approx(100.0)


def test_a_smaller_encoder_is_probed_beside_its_teacher(tmp_path, monkeypatch, student_and_teacher):
    from narrows.data import LabelledTexts

    words = [f"w{number % 7} w{number % 5} w{10 * (number % 2)}" for number in range(40)]
    labels = tuple(number % 2 for number in range(40))
    data = LabelledTexts(tuple(words), labels, tuple(-1 if number < 20 else 0 for number in range(40)), ("a", "b"))
    monkeypatch.setattr(funnel_distilled, "read_labelled", lambda path: data)
    student, teacher = student_and_teacher
    context = Context(models={"smaller": student, "teacher": teacher}, data=tmp_path)
    found = funnel_distilled.score_rows(context, student="smaller", task="sst2")["smaller-sst2"]
    ours, theirs = found.detail["smaller"]["accuracy"], found.detail["teacher"]["accuracy"]
    assert found.value == pytest.approx((ours - theirs) / 100) and 0 <= ours <= 100
