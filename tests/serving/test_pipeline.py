"""The question-answering task of transformers 4, for BERT and for DeFormers."""

import pytest
import torch
import transformers
from transformers import AutoTokenizer, BertForQuestionAnswering

import narrows
from narrows.errors import UsageError
from narrows.serving.pipeline import QuestionAnsweringPipeline

QUESTION = "where was the boat?"


@pytest.fixture(scope="session")
def bert_qa_folder(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert-qa")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = BertForQuestionAnswering.from_pretrained(tiny_bert)
        torch.nn.init.normal_(model.qa_outputs.weight, std=0.5)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def qa(bert_qa_folder) -> QuestionAnsweringPipeline:
    narrows.register_pipeline()
    return transformers.pipeline("question-answering", model=str(bert_qa_folder), device="cpu")


def check(answer, context) -> None:
    assert list(answer) == ["score", "start", "end", "answer"]
    assert context[answer["start"] : answer["end"]] == answer["answer"]
    assert 0 <= answer["score"] <= 1 + 1e-6


def same(one, other) -> bool:
    places = [(a["start"], a["end"]) for a in one] == [(a["start"], a["end"]) for a in other]
    return places and [a["score"] for a in one] == pytest.approx([a["score"] for a in other], abs=1e-5)


def test_the_task_is_known_and_registering_twice_is_quiet(qa, caplog) -> None:
    assert isinstance(qa, QuestionAnsweringPipeline)
    narrows.register_pipeline()
    assert not caplog.records


def test_a_deformer_answers_as_its_split_model_does(tiny_reader_folder, reader) -> None:
    narrows.register_all()
    narrows.register_pipeline()
    pipe = transformers.pipeline("question-answering", model=str(tiny_reader_folder), device="cpu")
    context = "the boat went down the river at night"
    found = pipe(question=QUESTION, context=context, top_k=3, max_answer_len=8)
    best = reader.answer(QUESTION, context).answers[-1]
    assert (found[0]["start"], found[0]["end"]) == (best.start, best.end)
    for answer in found:
        check(answer, context)


@pytest.mark.parametrize("sentences", [1, 3, 30])
@pytest.mark.parametrize("top_k", [1, 2, 7])
def test_answers_are_exact_and_have_one_form(qa, prose, sentences, top_k) -> None:
    context = prose(5, sentences)
    found = qa(question=QUESTION, context=context, top_k=top_k)
    assert isinstance(found, dict if top_k == 1 else list)
    found = [found] if top_k == 1 else found
    for answer in found:
        check(answer, context)
    places = {(answer["start"], answer["end"]) for answer in found}
    assert len(places) == len(found) <= top_k
    scores = [answer["score"] for answer in found]
    assert scores == sorted(scores, reverse=True)


def test_the_score_is_the_softmax_product_of_the_window(qa) -> None:
    context = "the boat"
    encoded = qa.tokenizer(QUESTION, context, return_tensors="pt")
    with torch.inference_mode():
        outputs = qa.model(**encoded)
    sides = encoded.sequence_ids(0)
    read = torch.tensor([index == 0 or side == 1 for index, side in enumerate(sides)])
    start = outputs.start_logits[0].masked_fill(~read, -1e4).softmax(-1)
    end = outputs.end_logits[0].masked_fill(~read, -1e4).softmax(-1)
    first = sides.index(1)
    wanted = {
        (0, 3): start[first] * end[first],
        (0, 8): start[first] * end[first + 1],
        (4, 8): start[first + 1] * end[first + 1],
        (0, 0): start[0] * end[0],
    }
    found = qa(question=QUESTION, context=context, top_k=9, handle_impossible_answer=True)
    assert {(a["start"], a["end"]): pytest.approx(a["score"], abs=1e-6) for a in found} == {
        place: float(score) for place, score in wanted.items()
    }


@pytest.mark.parametrize("batch_size", [2, 3, 50])
def test_the_batch_size_changes_nothing(qa, prose, batch_size) -> None:
    questions = [{"question": QUESTION, "context": prose(seed, 1 + 6 * seed)} for seed in range(4)]
    one = qa(questions, top_k=4)
    for alone, among in zip(one, qa(questions, top_k=4, batch_size=batch_size), strict=True):
        assert same(alone, among)


def test_padding_on_the_left_gives_exact_answers(bert_qa_folder, prose) -> None:
    narrows.register_pipeline()
    tokenizer = AutoTokenizer.from_pretrained(bert_qa_folder, padding_side="left")
    pipe = transformers.pipeline(
        "question-answering", model=str(bert_qa_folder), tokenizer=tokenizer, device="cpu", top_k=3
    )
    inputs = [{"question": QUESTION, "context": prose(seed, 2 + 8 * seed)} for seed in range(3)]
    for item, found in zip(inputs, pipe(inputs, batch_size=4), strict=True):
        for answer in found:
            check(answer, item["context"])


def test_special_tokens_in_a_text_are_text(qa) -> None:
    context = "the boat [SEP] went [CLS] down [PAD] the [MASK] river"
    [window] = qa.preprocess(("what [SEP] went?", context))
    special = set(qa.tokenizer.all_special_ids)
    assert [i for i in window.inputs["input_ids"] if i in special] == [
        qa.tokenizer.cls_token_id,
        qa.tokenizer.sep_token_id,
        qa.tokenizer.sep_token_id,
    ]
    found = "".join(context[place[0] : place[1]] for place in window.offsets if place is not None)
    assert found == context.replace(" ", "")


def test_lists_give_a_result_a_question(qa, prose) -> None:
    contexts = [prose(seed, 2) for seed in range(3)]
    alone = [qa(question=QUESTION, context=context, top_k=2) for context in contexts]
    for found in (
        qa([{"question": QUESTION, "context": context} for context in contexts], top_k=2),
        qa(data=[{"question": QUESTION, "context": context} for context in contexts], topk=2),
        qa(question=[QUESTION] * 3, context=contexts, top_k=2),
        qa(question=QUESTION, context=contexts, top_k=2),
        qa(*({"question": QUESTION, "context": context} for context in contexts), top_k=2),
    ):
        assert len(found) == 3
        assert all(same(one, other) for one, other in zip(alone, found, strict=True))
    assert isinstance(qa([{"question": QUESTION, "context": contexts[0]}]), list)
    assert isinstance(qa({"question": QUESTION, "context": contexts[0]}), dict)
    assert qa([]) == []


def test_every_token_of_a_long_context_is_in_a_window(qa, prose) -> None:
    context = prose(3, 60)
    for options in ({}, {"doc_stride": 0}, {"max_seq_len": 30, "doc_stride": 10}, {"max_seq_len": 16}):
        windows = qa.preprocess((QUESTION, context), **options)
        covered = {place for window in windows for place in window.offsets if place is not None}
        assert covered == {
            tuple(o)
            for o in qa.tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        }


def test_words_are_kept_whole_when_aligned(qa) -> None:
    context = "zebrafish quaggas xylophones"
    borders = {0, 9, 10, 17, 18, 28}
    for answer in qa(question=QUESTION, context=context, top_k=20):
        assert {answer["start"], answer["end"]} <= borders
    pieces = qa(question=QUESTION, context=context, top_k=20, align_to_words=False)
    assert any(not {answer["start"], answer["end"]} <= borders for answer in pieces)


def test_answers_keep_to_their_length(qa, prose) -> None:
    context = prose(1, 5)
    offsets = qa.tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    found = qa(question=QUESTION, context=context, top_k=30, max_answer_len=2, align_to_words=False)
    for answer in found:
        inside = [o for o in offsets if answer["start"] <= o[0] and o[1] <= answer["end"]]
        assert 1 <= len(inside) <= 2


def test_no_answer_competes_when_asked_to(qa, prose) -> None:
    context = prose(1, 1)
    found = qa(question=QUESTION, context=context, top_k=500, handle_impossible_answer=True)
    [none] = [answer for answer in found if answer["answer"] == ""]
    check(none, context)
    assert (none["start"], none["end"]) == (0, 0)
    plain = qa(question=QUESTION, context=context, top_k=500)
    assert all(answer["answer"] for answer in plain)


@pytest.mark.parametrize("context", ["", "   ", "\n"])
def test_a_context_without_words_has_a_defined_result(qa, context) -> None:
    nothing = {"start": 0, "end": 0, "answer": ""}
    assert qa(question=QUESTION, context=context) == {"score": 0.0, **nothing}
    found = qa(question=QUESTION, context=context, handle_impossible_answer=True, top_k=3)
    assert found == [{"score": 1.0, **nothing}]
    mixed = qa(question=QUESTION, context=["the boat", context, "the town"], batch_size=2)
    assert [bool(answer["answer"]) for answer in mixed] == [True, False, True]


@pytest.mark.parametrize(
    "name", ["topk", "doc_stride", "max_answer_len", "max_seq_len", "max_question_len", "align_to_words"]
)
def test_none_stands_for_the_default(qa, name) -> None:
    # Words of several tokens, so that `align_to_words` matters.
    asked = {"question": QUESTION, "context": "zebrafish quaggas xylophones"}
    assert same(qa(**asked, top_k=9, **{name: None}), qa(**asked, top_k=9))
    assert same([qa(**asked, top_k=None)], [qa(**asked)])


def test_a_long_question_is_cut_with_a_warning(qa, monkeypatch) -> None:
    said = []
    monkeypatch.setattr("narrows.serving.pipeline.logger.warning", said.append)
    check(qa(question="why " * 90, context="the boat", max_question_len=10), "the boat")
    assert said == ["a question of 90 tokens was cut to max_question_len=10"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"question": ""}, "expected a question, got an empty one"),
        ({"question": "\u200b"}, "expected a question with a letter or digit in it, got "),
        ({"question": "?!"}, "expected a question with a letter or digit in it, got '\\?!'; ask in at least one word"),
        ({"question": 5}, "expected `question` to be a text, got a int"),
        ({"context": None}, "expected `context` to be a text, got a NoneType"),
        ({"question": ["a", "b"], "context": ["c"]}, "as many contexts as questions, got 1 and 2"),
        ({"top_k": 0}, "`top_k` must be at least 1, got 0"),
        ({"topk": 0}, "`top_k` must be at least 1, got 0"),
        ({"max_answer_len": 0}, "`max_answer_len` must be at least 1, got 0"),
        ({"batch_size": -1}, "`batch_size` must be at least 1, got -1"),
        ({"top_n": 3}, "takes doc_stride, .* got 'top_n'; leave it out"),
        ({"max_seq_len": 5}, "must leave room for the context beside a question of 8 tokens, got 5"),
        ({"max_seq_len": 200}, "`max_seq_len` must be at most the model's 128 positions, got 200"),
        (
            {"doc_stride": 2048},
            r"`doc_stride` \(tokens that windows share\) must be from 0 to 119 here, got 2048",
        ),
        (
            {"question": "wh\udce9re?"},
            "expected `question` in Unicode, but its character 2 is a byte that is not UTF-8",
        ),
        ({"context": "\ud83d boat"}, "expected `context` in Unicode, but its character 0 is a byte that is not UTF-8"),
        ({"doc_stride": -1}, "got -1; lower it, or raise `max_seq_len`"),
    ],
)
def test_what_cannot_be_asked_is_refused(qa, arguments, message) -> None:
    with pytest.raises(UsageError, match=message):
        qa(**({"question": QUESTION, "context": "the boat"} | arguments))


def test_of_robertas_positions_those_before_its_padding_are_not_read(bert_qa_folder, prose) -> None:
    narrows.register_pipeline()
    tokenizer = AutoTokenizer.from_pretrained(bert_qa_folder, model_max_length=1000)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=42,
        type_vocab_size=2,
        pad_token_id=1,
    )
    model = transformers.RobertaForQuestionAnswering(config).eval()
    roberta = transformers.pipeline("question-answering", model=model, tokenizer=tokenizer, device="cpu")
    context = prose(1, 20)
    for options in ({}, {"max_seq_len": 40}):
        check(roberta(question=QUESTION, context=context, **options), context)
    with pytest.raises(UsageError, match="`max_seq_len` must be at most the model's 40 positions, got 41"):
        roberta(question=QUESTION, context=context, max_seq_len=41)


def test_wrong_forms_of_input_are_refused(qa) -> None:
    with pytest.raises(UsageError, match="expected both `question` and `context`.* got question; pass one"):
        qa(question=QUESTION)
    with pytest.raises(UsageError, match="expected `question` and `context`, got nothing"):
        qa()
    with pytest.raises(UsageError, match="expected a dict with `question` and `context`, got the keys question"):
        qa([{"question": QUESTION}])
    with pytest.raises(UsageError, match="expected a dict with `question` and `context`, got a str"):
        qa("where?")


def test_a_tokenizer_without_padding_reads_one_by_one(bert_qa_folder) -> None:
    narrows.register_pipeline()
    tokenizer = AutoTokenizer.from_pretrained(bert_qa_folder)
    tokenizer.pad_token = None
    pipe = transformers.pipeline("question-answering", model=str(bert_qa_folder), tokenizer=tokenizer, device="cpu")
    check(pipe(question=QUESTION, context="the boat"), "the boat")
    with pytest.raises(UsageError, match="`batch_size` above 1 needs a tokenizer with a padding token"):
        pipe(question=QUESTION, context="the boat", batch_size=2)
