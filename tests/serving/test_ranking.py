"""Answers from a store: what the reader and the first stage say together, and the rule of its own."""

import itertools
import math

import pytest
import torch

from narrows.deformer import DeformerConfig
from narrows.evaluation.calibration import NoAnswerRule, answer_probability
from narrows.serving.answers import ReadPassage, best_answers, passage_rule, ranked_spans, store_rule
from narrows.serving.engine import PassageLogits
from narrows.store import Store

QUESTION = "where was the boat at night?"
RULE = NoAnswerRule(0.5, -0.25, 0.5)


def made_passages(seed: int, bonuses: list[float]) -> tuple[list[ReadPassage], list[list[tuple[int, int]]]]:
    """Passages of unlike lengths with random logits; every second token is the rest of a word."""
    generator = torch.Generator().manual_seed(seed)
    passages, offsets = [], []
    for number, bonus in enumerate(bonuses):
        tokens = 4 + 3 * number
        text = " ".join(["ab"] * tokens)
        places = [(3 * place, 3 * place + 1) for place in range(tokens)]
        places = [(start + token % 2, end + token % 2) for token, (start, end) in enumerate(places)]
        logits = PassageLogits(
            torch.randn(tokens, generator=generator) * 3, torch.randn(tokens, generator=generator) * 3, 0.5 * number
        )
        passages.append(
            ReadPassage(
                id=f"d:{number}", document=f"d{number}", title="", start=0, text=text, logits=logits, bonus=bonus
            )
        )
        offsets.append(places)
    return passages, offsets


def every_span(passages, offsets, max_tokens) -> list[tuple[float, int, int, int]]:
    """Margins with bonus of all spans of whole words: passage, first and last character, by plain loops."""
    found = []
    for index, (passage, places) in enumerate(zip(passages, offsets, strict=True)):
        start, end, null = passage.logits
        for first, last in itertools.combinations_with_replacement(range(len(places)), 2):
            # A token at an even place begins its word, one at an odd place ends it.
            if last - first < max_tokens and first % 2 == 0 and last % 2 == 1:
                margin = float(start[first] + end[last]) - null + passage.bonus
                found.append((margin, index, places[first][0], places[last][1]))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bonuses", [[0.0] * 5, [0.0, 9.0, 2.5, 0.0, 40.0], [3.0, 2.0, 1.0, 0.5, 0.0]])
def test_the_order_is_that_of_all_spans_by_margin_and_bonus(seed, bonuses) -> None:
    passages, offsets = made_passages(seed, bonuses)
    everything = every_span(passages, offsets, max_tokens=4)
    taken: list[tuple[float, int, int, int]] = []
    for span in everything:
        if not any(span[1] == other[1] and span[2] < other[3] and other[2] < span[3] for other in taken):
            taken.append(span)
    answers = best_answers(passages, offsets.__getitem__, max_tokens=4, rule=RULE, count=6)
    assert [(a.document, a.start, a.end) for a in answers] == [(f"d{index}", s, e) for _, index, s, e in taken[:6]]
    expected = [answer_probability(margin, scale=0.5, bias=-0.25) for margin, *_ in taken[:6]]
    assert [answer.score for answer in answers] == pytest.approx(expected, abs=1e-9)


def test_only_the_passages_that_could_be_best_are_tokenized() -> None:
    passages, offsets = made_passages(0, [0.0, 0.0, 0.0, 0.0, 1000.0])
    asked: list[int] = []

    def offsets_of(index: int):
        asked.append(index)
        return offsets[index]

    assert next(ranked_spans(passages, offsets_of, max_tokens=4)).passage == 4
    assert asked == [4]


def test_the_rule_of_a_store_falls_back_on_that_of_a_passage() -> None:
    config = DeformerConfig(no_answer_scale=0.5, no_answer_bias=-1.0, no_answer_threshold=0.6)
    assert store_rule(config) == passage_rule(config) == NoAnswerRule(0.5, -1.0, 0.6)
    fitted = DeformerConfig(store_no_answer_scale=0.1, store_no_answer_bias=0.0, store_no_answer_threshold=0.3)
    assert store_rule(fitted) == NoAnswerRule(0.1, 0.0, 0.3)
    assert passage_rule(fitted) == NoAnswerRule(1.0, 0.0, 0.5)


def logit(score: float) -> float:
    return math.log(score / (1 - score))


def test_a_point_of_evidence_adds_its_weight_to_the_margin(reader, tiny_store) -> None:
    config = reader.engine.config
    config.no_answer_scale = 0.1
    with Store.open(tiny_store, expect=None) as store:
        found = reader.find(store, QUESTION, candidates=1000)
        scores = dict(zip((p.passage_id for p in store.take([c.row_id for c in found])), found, strict=True))
    plain = reader.ask(tiny_store, QUESTION, candidates=1000, top_k=1000).answers
    config.retrieval_weight = 2.0
    weighted = reader.ask(tiny_store, QUESTION, candidates=1000, top_k=1000).answers
    margins = {(a.passage, a.start, a.end): logit(a.score) for a in plain if a.answer}
    compared = 0
    for answer in weighted:
        before = margins.get((answer.passage, answer.start, answer.end))
        if answer.answer and before is not None:
            assert logit(answer.score) == pytest.approx(before + 0.2 * scores[answer.passage].evidence, abs=1e-3)
            compared += 1
    assert compared > 20
    assert [a.passage for a in plain] != [a.passage for a in weighted]


def test_a_stores_answers_do_not_depend_on_how_passages_are_batched(tiny_reader_folder, reader, tiny_store) -> None:
    from narrows.serving import Reader

    single = Reader.from_pretrained(tiny_reader_folder, batch_tokens=1)
    for one in (reader, single):
        one.engine.config.retrieval_weight = 0.7
        one.engine.config.no_answer_scale = 0.1
    together, alone = (one.ask(tiny_store, QUESTION, top_k=20).answers for one in (reader, single))
    assert [(a.document, a.start, a.end) for a in together] == [(a.document, a.start, a.end) for a in alone]
    assert [a.score for a in together] == pytest.approx([a.score for a in alone], abs=1e-5)


def test_a_store_is_refused_by_its_own_threshold_and_a_text_by_another(reader, tiny_store, prose) -> None:
    config = reader.engine.config
    config.no_answer_threshold = 0.0
    assert not reader.ask(tiny_store, QUESTION).refused
    config.store_no_answer_scale, config.store_no_answer_bias, config.store_no_answer_threshold = 0.1, -1.0, 1.1
    result = reader.ask(tiny_store, QUESTION)
    assert result.refused and not reader.answer(QUESTION, prose(2, 8)).refused
    config.store_no_answer_threshold = 0.0
    taken = reader.ask(tiny_store, QUESTION)
    assert not taken.refused and taken.no_answer_score == result.no_answer_score
