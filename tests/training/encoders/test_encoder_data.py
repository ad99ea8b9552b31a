"""Raw text as rows: whole sentences in their order, up to each length in turn, as a tokenizer reads them."""

import json

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from narrows.errors import UsageError
from narrows.training.encoders.data import TextRow, collate_rows, read_rows, special_tokens
from narrows.training.encoders.recipe import TextPart


@pytest.fixture
def tokenizer(tiny_bert):
    return AutoTokenizer.from_pretrained(tiny_bert)


@pytest.fixture
def read(text_folder, tmp_path, tokenizer):
    def make(*parts, lengths=(40,), teacher=None):
        chosen = [TextPart.model_validate(part) for part in parts]
        return read_rows(
            chosen,
            text_folder,
            cache=tmp_path / "tokens",
            tokenizer=tokenizer,
            teacher_tokenizer=teacher,
            lengths=lengths,
        )

    return make


def _texts(rows, tokenizer):
    return [tokenizer.decode(rows[n].input_ids, skip_special_tokens=True) for n in range(len(rows))]


def test_rows_are_whole_sentences_and_do_not_reach_over_the_end_of_a_text(read, tokenizer) -> None:
    rows = read({"format": "text", "file": "plain.txt"}, lengths=(1000,))
    assert len(rows) == 3 and rows.truncated == 0
    expected = tokenizer(
        "The king went to the old mill. A child found the gold road beside the water.\n"
        "Who built the boat? It was made of wood! The river is long and the mountain is high."
    )["input_ids"]
    assert rows[0] == TextRow(expected, None)
    assert rows.lengths == [len(rows[n].input_ids) for n in range(3)]


def test_a_small_length_gives_single_sentences_and_lengths_come_in_turn(read, tokenizer) -> None:
    single = read({"format": "text", "file": "plain.txt"}, lengths=(3, 60))
    sizes = [text.count(".") + text.count("?") + text.count("!") for text in _texts(single, tokenizer)]
    # Rows 0, 2, … hold one sentence, the others what is left of the text.
    assert sizes == [1, 4, 1, 1, 1, 1]
    rows = read({"format": "text", "file": "plain.txt"}, lengths=(20,))
    assert max(rows.lengths) <= 20 or rows.truncated


def test_every_sentence_stands_once_and_times_repeats_its_text(read, tokenizer) -> None:
    once = read({"format": "articles", "file": "tune.txt"}, lengths=(16, 40))
    twice = read({"format": "articles", "file": "tune.txt", "times": 2}, lengths=(16, 40))
    assert sorted(_texts(twice, tokenizer)) == sorted(2 * _texts(once, tokenizer))
    whole = "".join("".join(_texts(once, tokenizer)).split())
    assert whole.count("year0") == whole.count("year2") == 1


def test_pairs_are_two_texts_each(read, tokenizer) -> None:
    texts = _texts(read({"format": "pairs", "file": "pairs.json"}), tokenizer)
    assert len(texts) == 4 and texts[0].startswith("who came") and texts[2].startswith("where")


def test_fields_of_json_lines_are_texts_and_what_is_repeated_stands_once(read, tokenizer, text_folder) -> None:
    records = [
        ("Who came?", "A bird came."),
        ("Where?", "A bird came."),
        ("Who came?", "The sea."),
        ("Where?", "A bird."),
    ]
    lines = [json.dumps({"question": question, "context": text, "id": 3}) for question, text in records]
    (text_folder / "own.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]) + "\n")
    rows = read({"format": "jsonl", "file": "own.jsonl", "fields": ["question", "context"]})
    said = ["who came?", "a bird came.", "where?", "who came?", "the sea.", "where?", "a bird."]
    assert [text.replace(" ?", "?").replace(" .", ".") for text in _texts(rows, tokenizer)] == said
    with pytest.raises(UsageError, match="own.jsonl: line 1: expected a key 'passage', got only"):
        read({"format": "jsonl", "file": "own.jsonl", "fields": ["passage"]})
    with pytest.raises(UsageError, match="own.jsonl: line 1: expected 'id' to be a string, got int"):
        read({"format": "jsonl", "file": "own.jsonl", "fields": ["id"]})


def test_questions_and_contexts_of_a_part_of_squad_are_texts(read, tokenizer, text_folder) -> None:
    def article(title, *questions):
        asked = [
            {"id": f"{title}{n}", "question": text, "answers": [], "is_impossible": True}
            for n, text in enumerate(questions)
        ]
        return {"title": title, "paragraphs": [{"context": f"The {title} is old.", "qas": asked}]}

    file = {"data": [article("mill", "Who came?", "Where?"), article("boat", "Who built it?")]}
    (text_folder / "squad.json").write_text(json.dumps(file))
    (text_folder / "split.json").write_text(json.dumps({"train": ["mill"], "test": ["boat"]}))
    whole = _texts(read({"format": "squad", "file": "squad.json"}), tokenizer)
    part = {"format": "squad", "file": "squad.json", "split": "split.json"}
    assert len(whole) == 5
    assert _texts(read({**part, "part": "train"}), tokenizer) == whole[:3]
    with pytest.raises(UsageError, match="expected `part` to be one of train, test, got 'tune'; mend the recipe"):
        read({**part, "part": "tune"})


def test_a_sentence_that_is_too_long_is_cut_and_counted(read, tokenizer) -> None:
    rows = read({"format": "text", "file": "plain.txt"}, lengths=(8,))
    assert rows.truncated > 0 and max(rows.lengths) == 8
    cut = rows[rows.lengths.index(8)].input_ids
    assert len(cut) == 8 and cut[0] == tokenizer.cls_token_id and cut[-1] == tokenizer.sep_token_id


def test_a_teacher_with_another_tokenizer_reads_the_same_sentences(read, tokenizer, tiny_seq2seq) -> None:
    other = AutoTokenizer.from_pretrained(tiny_seq2seq("t5"))
    rows = read({"format": "text", "file": "plain.txt"}, lengths=(30, 60), teacher=other)
    for number in range(len(rows)):
        row = rows[number]
        assert rows.lengths[number] == max(len(row.input_ids), len(row.teacher_ids))
        theirs = other.decode(row.teacher_ids, skip_special_tokens=True)
        ours = tokenizer.decode(row.input_ids, skip_special_tokens=True)
        if len(row.teacher_ids) < 60 and rows.lengths[number] < 60:
            assert "".join(theirs.lower().split()) == "".join(ours.split())
    batch = collate_rows([rows[0], rows[1]], pad=0, teacher_pad=other.pad_token_id)
    assert batch["teacher_ids"].shape == batch["teacher_mask"].shape
    assert int(batch["teacher_mask"][0].sum()) == len(rows[0].teacher_ids)


def test_rows_are_padded_on_the_right() -> None:
    batch = collate_rows([TextRow([5, 6], None), TextRow([7], None)], pad=9, teacher_pad=9)
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert batch["input_ids"].tolist() == [[5, 6], [7, 9]] and batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert batch["attention_mask"].dtype == torch.long


def test_special_tokens_are_what_stands_around_a_text(tokenizer) -> None:
    assert special_tokens(tokenizer) == ([tokenizer.cls_token_id], [tokenizer.sep_token_id])


def test_what_is_refused(read, text_folder) -> None:
    (text_folder / "empty.txt").write_text("\n\n")
    with pytest.raises(UsageError, match="expected text in .*empty.txt, got none; mend the recipe"):
        read({"format": "text", "file": "empty.txt"})
    with pytest.raises(
        UsageError, match="expected data at .*none.txt, got no such file; pass --data DIR or set NARROWS_DATA"
    ):
        read({"format": "text", "file": "none.txt"})

    class Odd(PreTrainedTokenizerFast):
        def __init__(self):
            pass

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [1, 2] if add_special_tokens else [3]}

    with pytest.raises(UsageError, match=r"expected a tokenizer that puts its special tokens around .*got \[1, 2\]"):
        special_tokens(Odd())
