"""The real rows, at sizes that take a moment."""

import json

import pytest

from narrows.bench import deformer, memory, quality, speed, workload
from narrows.bench.rows import Context
from narrows.data import Answer, QAExample

WORK = workload.Workload(question=5, passage=11, passages=3)


def test_row_names_are_unique_and_their_sources_are_patterns():
    rows = [row for group in deformer.groups(Context()) for row in group.rows]
    assert len({row.name for row in rows}) == len(rows) > 40
    assert all(row.sources for row in rows)


def test_a_row_of_a_shipped_model_depends_on_all_that_is_loaded_of_it_and_not_on_its_card():
    from narrows.bench.results import _PACKAGE

    for group in deformer.groups(Context()):
        for row in group.rows:
            files = {path.relative_to(_PACKAGE).as_posix() for mark in row.sources for path in _PACKAGE.glob(mark)}
            assert not [name for name in files if name.endswith(".md")], row.name
            for name in ("reader", "teacher"):
                here = {f"deformer/weights/{name}/{file}" for file in ("config.json", "delta.safetensors")}
                assert files & here in (set(), here), row.name
    by_name = {row.name: row for group in deformer.groups(Context()) for row in group.rows}
    assert all(pattern in by_name["f1-student"].sources for pattern in deformer._SHIPPED["reader"])
    assert not set(deformer._SHIPPED["reader"]) & set(by_name["f1-teacher"].sources)


def test_the_bars_are_those_promised():
    bars = {row.name: row.bar for group in deformer.groups(Context()) for row in group.rows if row.bar is not None}
    assert bars["minilm-k4"] == 2.7 and bars["bert-base-k9"] == 3.6 and bars["bert-base-k10"] == 5.1
    assert bars["f1-int8-states"] == 0.2 and bars["bytes-int8-states"] == 0.27
    assert bars["questions-found"] == 60 and bars["questions-refused"] == 50


def test_speed_rows_compare_with_the_faster_batch_and_at_equal_precision():
    found = speed.speed_rows("tiny", (1, 2), Context(rounds=1), rounds=5, work=WORK, precisions=("float32", "bfloat16"))
    assert set(found) >= {"tiny-k1", "tiny-k2-batch1", "tiny-k2-bare", "tiny-k2-bfloat16"}
    assert found["tiny-k2"].detail["peer"].startswith("joint/float32/batch")
    assert found["tiny-k2-bfloat16"].detail["peer"].startswith("joint/bfloat16/batch")
    assert found["tiny-k2-batch32"].detail["peer"] == "joint/float32/batch 3"
    assert found["tiny-k2"].arithmetic > found["tiny-k1"].arithmetic > 1


def test_stored_and_bare_reading_give_the_same_shapes_and_nearly_the_same_logits(tmp_path):
    engine = workload.split_engine(workload.SIZES["tiny"], 2)
    rows = workload.write_store(engine, WORK, tmp_path / "store", codec="fp32")
    with workload.Store.open(tmp_path / "store", expect=engine.fingerprint("fp32")) as store:
        stored = workload.stored_reading(engine, WORK, store, rows)()
    bare = workload.bare_reading(engine, WORK)()
    assert [len(one.start) for one in stored] == [WORK.passage - 1] * WORK.passages
    for one, other in zip(stored, bare, strict=True):
        assert one.null == pytest.approx(other.null, abs=1e-5)


def test_without_f1_the_fastest_row_says_that_nothing_is_near():
    known = {"f1-teacher": 80.0, "f1-student": 70.0}
    found = speed.fastest_within(Context(known=known), rounds=1, split_layer=4)
    assert found.value is None and "no precision within 1.0 F1" in found.detail["note"]


def test_indexing_is_sampled_by_hundredths():
    samples, seconds = memory.index_many(size_name="tiny", split_layer=1, passages=30, tokens=12)
    assert len(samples) == 100 and min(samples) > 2**20 and seconds > 0


@pytest.mark.slow
def test_the_memory_of_a_question_is_above_nothing():
    found = memory.question_rows(Context(), size_name="tiny", split_layer=2, work=WORK)
    assert set(found) == {"memory-question", "memory-question-batch1"}
    assert all(row.value >= 0 for row in found.values())


def _examples():
    context = "w10 w11 w12 w13 w14 w15 w16 w17"
    return [
        QAExample(id="a", title="", question="w1 w2", context=context, answers=(Answer("w11 w12", 4),)),
        QAExample(id="b", title="", question="w3 " * 100, context=context, answers=(Answer("w17", 28),)),
        QAExample(id="c", title="", question="w3", context="w20 w21", answers=()),
    ]


def test_examples_are_answered_from_their_own_context_and_long_questions_are_cut():
    engine = workload.split_engine(workload.SIZES["tiny"], 2)
    examples = _examples()
    found = {codec: quality.answer_examples(engine, examples, codec=codec) for codec in ("fp32", "int8")}
    for example in examples:
        assert found["fp32"].texts[example.id] in example.context
        assert 0 <= found["fp32"].scores[example.id] <= 1
    assert found["int8"].state_bytes / found["fp32"].state_bytes == pytest.approx((32 + 2) / (32 * 4))


def test_quality_rows_say_what_they_need(tmp_path):
    assert "--data" in quality.needs_data(Context())
    assert "no squad/" in quality.needs_data(Context(data=tmp_path))
    assert "example library" in quality.needs_library(Context(examples=tmp_path))
    (tmp_path / "squad").mkdir()
    assert quality.needs_data(Context(data=tmp_path)) is None


def test_word_overlap_takes_the_sentence_with_most_content_words():
    documents = {
        "a.txt": "The clock was built in 1887. The bell of the clock rings.",
        "b.txt": "Nothing here.",
    }
    answer = [{"text": "1887", "document": "a.txt", "start": 23}]
    assert quality.word_overlap_finds("When was the clock built?", answer, documents)
    assert not quality.word_overlap_finds("When was the bell of the clock made?", answer, documents)


def test_the_library_is_scored_from_question_to_answer(tmp_path):
    from narrows.serving.indexing import index_folder
    from narrows.serving.reader import Reader

    library = tmp_path / "library"
    library.mkdir()
    (library / "a.txt").write_text("w1 w2 w3. w4 w5 w6.")
    questions = [
        {"question": "w1 w2", "answers": [{"text": "w2", "document": "a.txt", "start": 3}]},
        {"question": "w4", "answers": []},
    ]
    engine = workload.split_engine(workload.SIZES["tiny"], 2)
    index_folder(library, tmp_path / "store", engine)
    found = quality.score_library(Reader(engine), tmp_path / "store", library, json.loads(json.dumps(questions)))
    assert found["questions-recall"].value == 100.0
    assert set(found) == {
        "questions-found",
        "questions-refused",
        "questions-recall",
        "questions-word-overlap",
    }


def test_a_question_given_its_passage_counts_though_it_would_be_refused(tmp_path):
    from narrows.serving.reader import Reader

    (tmp_path / "a.txt").write_text("The bell rings.\n\nThe clock was built in 1887 by Maria Keller.")
    answer = {"text": "1887", "document": "a.txt", "start": 40}
    nowhere = {"text": "1887", "document": "b.txt", "start": 40}
    engine = quality.load_engine("reader")
    engine.config.no_answer_threshold = 2.0
    reader = Reader(engine)
    assert reader.answer("When was the clock built?", (tmp_path / "a.txt").read_text()).answers[0].answer == ""
    questions = [
        {"question": "When was the clock built?", "answers": [answer]},
        {"question": "When was the clock built?", "answers": [nowhere]},
        {"question": "Who stole the clock?", "answers": []},
    ]
    assert quality.score_given_passage(reader, tmp_path, questions).value == 50.0
