"""`Reader`: exact offsets, scores that do not depend on company, refusal, and what is wrong with a store."""

import math
import shutil

import pytest

from narrows.documents import Document
from narrows.errors import StoreDamagedError, StoreError, StoreMismatchError, UsageError
from narrows.serving import Engine, Reader
from narrows.serving.words import is_inside_word
from narrows.store import Store

QUESTION = "where was the boat at night?"


def answered(result):
    return [answer for answer in result.answers if answer.answer]


def check_exact(result, texts) -> None:
    """Every answer stands where it says, in whole words, in its context, and overlaps no other."""
    found = answered(result)
    for answer in found:
        text = texts[answer.document]
        assert text[answer.start : answer.end] == answer.answer
        assert text[answer.context_start :].startswith(answer.context)
        assert answer.context_start <= answer.start
        assert answer.end <= answer.context_start + len(answer.context)
        assert answer.passage.startswith(f"{answer.document}:")
        assert not is_inside_word(text, answer.start) and not is_inside_word(text, answer.end)
    scores = [answer.score for answer in found]
    assert scores == sorted(scores, reverse=True)
    for index, one in enumerate(found):
        for other in found[index + 1 :]:
            assert one.document != other.document or one.end <= other.start or other.end <= one.start


@pytest.mark.parametrize("question", [QUESTION, "who is it?", "river", "渡し船 🙂"])
def test_answers_from_a_store_are_exact(reader, tiny_store, texts, question) -> None:
    result = reader.ask(tiny_store, question, top_k=12)
    assert result.candidates > 0
    # Fewer than asked for where all that is left of a passage is signs.
    assert 8 <= len(answered(result)) <= 12
    assert all(any(letter.isalnum() for letter in answer.answer) for answer in answered(result))
    check_exact(result, texts)


@pytest.mark.parametrize("question", ["???", "😀", "...", " ?! ", "、。？", "« — »", "\u200b?"])
def test_a_question_without_a_letter_or_digit_is_refused(reader, tiny_store, question) -> None:
    with pytest.raises(UsageError, match="^expected a question with a letter or digit in it, got .*; ask in at least"):
        reader.ask(tiny_store, question)
    with pytest.raises(UsageError, match="^expected a question with a letter or digit in it, got "):
        reader.answer(question, "The boat went down the river.")


@pytest.mark.parametrize("question", ["", "   ", "\n\t", "\u3000", "\u0301"])
def test_a_blank_question_is_refused(reader, tiny_store, question) -> None:
    for ask in (lambda: reader.ask(tiny_store, question), lambda: reader.answer(question, "The boat.")):
        with pytest.raises(UsageError, match="expected a question, got an empty one; ask in at least one word"):
            ask()


@pytest.mark.parametrize("question", ["水深？", "😀 river", "湖?", "где?", "7", "ก็", "?!a"])
def test_a_question_of_any_script_with_a_letter_or_digit_is_read(reader, question) -> None:
    assert reader.answer(question, "The boat went down the river.").candidates == 1


@pytest.mark.parametrize("length", [1, 5, 40])
def test_answers_from_a_text_are_exact(reader, prose, length) -> None:
    text = prose(9, length)
    result = reader.answer(QUESTION, text, top_k=6)
    check_exact(result, {"context": text})
    assert 1 <= len(answered(result)) <= 6


def test_no_answer_is_longer_than_the_model_allows(reader, prose) -> None:
    for answer in answered(reader.answer(QUESTION, prose(3, 30), top_k=30)):
        assert len(reader.engine.tokenize([answer.answer])[0].ids) <= 8


def test_stored_passages_answer_as_the_texts_do(reader, tiny_store, texts) -> None:
    documents = [Document(id=name, title="", text=text, sha256="") for name, text in texts.items()]
    read = reader.answer(QUESTION, documents, top_k=10)
    stored = reader.ask(tiny_store, QUESTION, candidates=1000, top_k=10, retrieval="bm25")
    with Store.open(tiny_store, expect=None) as store:
        everything = len(store.first(1000))
    assert read.candidates == everything
    best = {(a.document, a.start, a.end): a.score for a in answered(read)}
    if stored.candidates == everything:
        assert set(best) == {(a.document, a.start, a.end) for a in answered(stored)}
    for answer in answered(stored):
        if (place := (answer.document, answer.start, answer.end)) in best:
            assert answer.score == pytest.approx(best[place], abs=1e-5)


def test_a_score_does_not_depend_on_what_is_read_beside_it(reader, texts) -> None:
    documents = [Document(id=name, title="", text=text, sha256="") for name, text in texts.items()]
    together = reader.answer(QUESTION, documents, top_k=500)
    for document in documents:
        alone = answered(reader.answer(QUESTION, [document], top_k=500))
        among = [answer for answer in answered(together) if answer.document == document.id]
        assert [(a.start, a.end) for a in alone] == [(a.start, a.end) for a in among]
        assert [a.score for a in alone] == pytest.approx([a.score for a in among], abs=1e-5)


def test_scores_are_the_calibrated_margins(reader, prose) -> None:
    config = reader.engine.config
    plain = answered(reader.answer(QUESTION, prose(2, 8), top_k=5))
    config.no_answer_scale, config.no_answer_bias = 0.5, -0.7
    scaled = answered(reader.answer(QUESTION, prose(2, 8), top_k=5))
    for before, after in zip(plain, scaled, strict=True):
        margin = math.log(before.score / (1 - before.score))
        assert after.score == pytest.approx(1 / (1 + math.exp(0.7 - margin / 2)), abs=1e-4)


def test_extreme_margins_do_not_overflow(reader) -> None:
    for bias in (1e6, -1e6):
        reader.engine.config.no_answer_bias = bias
        assert reader.answer(QUESTION, "the boat").no_answer_score == (0.0 if bias > 0 else 1.0)


def test_the_threshold_decides(reader, tiny_store) -> None:
    reader.engine.config.no_answer_threshold = 0.0
    taken = reader.ask(tiny_store, QUESTION)
    best = taken.answers[0]
    assert not taken.refused and len(taken.answers) == 3
    assert taken.no_answer_score == pytest.approx(1 - best.score)
    reader.engine.config.no_answer_threshold = 1.1
    refused = reader.ask(tiny_store, QUESTION)
    assert refused.refused
    first = refused.answers[0]
    assert (first.answer, first.document, first.start, first.end) == ("", "", 0, 0)
    assert first.score == refused.no_answer_score == pytest.approx(taken.no_answer_score)
    assert refused.answers[1:] == taken.answers


def test_the_form_of_a_result(reader, tiny_store) -> None:
    said = reader.ask(tiny_store, QUESTION).as_dict()
    assert list(said) == ["question", "answers", "no_answer_score", "candidates", "seconds"]
    assert list(said["answers"][0]) == ["answer", "score", "document", "start", "end", "context", "passage"]
    assert said["question"] == QUESTION and said["seconds"] > 0


@pytest.mark.parametrize("context", ["", " \n\t "])
def test_a_text_without_words_has_no_answer(reader, context) -> None:
    result = reader.answer(QUESTION, context)
    assert (result.refused, result.candidates, result.no_answer_score) == (True, 0, 1.0)
    assert [answer.answer for answer in result.answers] == [""]


def test_a_text_that_is_not_unicode_is_refused(reader) -> None:
    with pytest.raises(UsageError, match="expected the text of context in Unicode, but its character 3 is a byte that"):
        reader.answer("where was the boat?", "caf\udce9 and the boat")


def test_fewer_candidates_are_read_when_fewer_are_wanted(reader, tiny_store) -> None:
    assert reader.ask(tiny_store, QUESTION, candidates=2).candidates == 2
    assert reader.ask(tiny_store, "who is it?", candidates=2).candidates == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"question": " "}, "expected a question, got an empty one"),
        ({"question": "why " * 70}, "a question must have at most 64 tokens, got 70"),
        ({"top_k": 0}, "`top_k` must be at least 1, got 0"),
        ({"candidates": 0}, "`candidates` must be at least 1, got 0"),
        ({"retrieval": "magic"}, "`retrieval` must be one of bm25, dense, both, got 'magic'"),
    ],
)
def test_what_cannot_be_asked_is_refused(reader, tiny_store, arguments, message) -> None:
    with pytest.raises(UsageError, match=message):
        reader.ask(tiny_store, **({"question": QUESTION} | arguments))


def test_a_store_of_another_model_says_what_differs(tiny_bert, reader, tiny_store) -> None:
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    model, _ = convert_checkpoint(tiny_bert, split_layer=2, task="question-answering")
    other = Reader(Engine(model, AutoTokenizer.from_pretrained(tiny_bert)))
    message = "was written by another model: weights .* in the model; split layer 3 in the store, 2 in the model"
    with pytest.raises(StoreMismatchError, match=message):
        other.ask(tiny_store, QUESTION)
    with Store.open(tiny_store, expect=None) as opened, pytest.raises(StoreMismatchError, match=message):
        other.ask(opened, QUESTION)


def test_a_missing_store_is_named(reader, tmp_path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        reader.ask(tmp_path / "nowhere", QUESTION)


def test_a_truncated_file_is_told_and_not_answered_around(reader, tiny_store, tmp_path) -> None:
    copy = tmp_path / "damaged.store"
    shutil.copytree(tiny_store, copy)
    for path in (copy / "passages.lance" / "data").iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StoreDamagedError, match="narrows store verify --repair"):
        reader.ask(copy, QUESTION)


def test_a_flipped_byte_names_the_passage(reader, tiny_store, tmp_path) -> None:
    copy = tmp_path / "flipped.store"
    shutil.copytree(tiny_store, copy)
    with Store.open(copy, expect=None) as store:
        [row] = store.first(1)
        states = bytes(store.load([row]).states[0])
    for path in (copy / "passages.lance" / "data").iterdir():
        data = bytearray(path.read_bytes())
        place = data.find(states)
        if place >= 0:
            data[place + 5] ^= 255
            path.write_bytes(data)
            break
    with pytest.raises(StoreDamagedError, match=r"passage '.*:\d+' in the store .* is damaged"):
        reader.ask(copy, "who is it?")


def test_tokens_that_are_not_those_of_the_text_are_told(reader, tmp_path) -> None:
    import numpy as np

    from narrows.store import StoredDocument, StoredPassage

    engine = reader.engine
    ids = engine.close_passage(engine.tokenize(["the boat"])[0].ids)
    [states] = engine.encode_passages([ids])
    with Store.create(tmp_path / "odd.store", engine.fingerprint("fp32")) as store:
        passage = StoredPassage(
            passage_id="odd:0",
            document_id="odd",
            title="",
            start=0,
            end=8,
            text="the ship",
            token_ids=np.asarray(ids, dtype=np.int32),
            states=store.codec.encode(states),
        )
        with store.writer() as writer:
            writer.put([StoredDocument(document_id="odd", sha256="1" * 64, title="", passages=[passage])])
            writer.finish()
        with pytest.raises(StoreMismatchError, match="tokens of passage 'odd:0' .* to be those of its text"):
            reader.ask(store, QUESTION)
