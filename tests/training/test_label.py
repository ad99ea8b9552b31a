"""Pairs labelled by a reader: SQuAD that our own reader takes, in the order that brings neighbours together."""

import gzip
import json
from pathlib import Path

import pytest

from narrows.data import QAExample, read_squad
from narrows.errors import UsageError
from narrows.evaluation.spans import SpanPrediction
from narrows.training import label
from narrows.training.label import label_examples, main, surest, write_squad


@pytest.fixture(scope="module")
def labeller(tiny_bert, tmp_path_factory) -> Path:
    """A random span model with its tokenizer; passages of at most 20 tokens."""
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    folder = tmp_path_factory.mktemp("labeller")
    model, _ = convert_checkpoint(
        tiny_bert, split_layer=1, task="question-answering", max_passage_tokens=20, max_answer_tokens=6
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def pairs(folder: Path, ids) -> Path:
    document = {
        "question_ids": list(ids),
        "questions": [f"what was found in the year {name}?" for name in ids],
        "answers": [f"In the year {name} a child found the café beside the water. " * 3 for name in ids],
    }
    path = folder / "pairs.json"
    path.write_text(json.dumps(document))
    return path


def ends(capsys, *arguments) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert out == ""
    # Bars of loading weights may stand before.
    return caught.value.code, err.splitlines(keepends=True)[-1]


def test_labelled_pairs_are_squad_in_order(labeller, tmp_path, capsys) -> None:
    out = tmp_path / "made" / "labelled.json.gz"
    code, said = ends(capsys, labeller, pairs(tmp_path, ["30", "4", "100"]), out)
    assert (code, said) == (0, f"{out}: 3 of 3 questions\n")
    examples = list(read_squad(out))
    assert [example.id for example in examples] == ["4", "30", "100"]
    for example in examples:
        assert example.question == f"what was found in the year {example.id}?"
        assert len(example.answers) == 1 and len(example.answers[0].text.split()) <= 6
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize("ids", [["b", "a"], ["10", "9", "q1"], ["²", "1"], ["-1", "-2"]])
def test_ids_that_are_no_numbers_keep_their_order(ids, labeller, tmp_path, capsys) -> None:
    out = tmp_path / "labelled.json.gz"
    assert ends(capsys, labeller, pairs(tmp_path, ids), out)[0] == 0
    assert [example.id for example in read_squad(out)] == ids


def test_the_surest_share_is_kept(labeller, tmp_path, capsys) -> None:
    out = tmp_path / "labelled.json.gz"
    code, said = ends(capsys, labeller, pairs(tmp_path, "1234"), out, "--share", "0.5")
    assert (code, said) == (0, f"{out}: 2 of 4 questions\n")
    examples = [QAExample(name, "", "?", "a b") for name in "abcd"]
    spans = [SpanPrediction("a", 0, 1, 0.0, margin) for margin in (1.0, 3.0, -2.0, 2.0)]
    kept, theirs = surest(examples, spans, share=0.5)
    assert [example.id for example in kept] == ["b", "d"] and [span.margin for span in theirs] == [3.0, 2.0]
    assert surest(examples, spans, share=1.0) == (examples, spans)
    for share in (0.0, 1.5, -1.0):
        with pytest.raises(UsageError, match=f"expected a share above 0 and at most 1, got {share}; pass one such"):
            surest(examples, spans, share=share)


def test_spans_lie_at_their_offsets_over_all_windows(labeller) -> None:
    context = "The café 🙂 stands by the water. " * 9
    examples = [QAExample("1", "", "where is it?", context), QAExample("2", "", "who?", "A king.")]
    for example, span in zip(examples, label_examples(labeller, examples, batch_tokens=64), strict=True):
        assert span.text and example.context[span.start : span.end] == span.text


def test_an_empty_span_is_left_out_and_one_context_written_once(tmp_path) -> None:
    examples = [
        QAExample("a", "T", "?", "One two."),
        QAExample("b", "U", "?", "Three."),
        QAExample("c", "T", "??", "One two."),
        QAExample("d", "T", "?", ""),
    ]
    spans = [
        SpanPrediction("One", 0, 3, 1.0, 1.0),
        SpanPrediction("Three", 0, 5, 1.0, 1.0),
        SpanPrediction("two", 4, 7, 1.0, 1.0),
        SpanPrediction("", 0, 0, 0.0, 0.0),
    ]
    path = tmp_path / "a.json.gz"
    assert write_squad(examples, spans, path) == 3
    assert [(e.id, e.title, e.answers[0].text) for e in read_squad(path)] == [
        ("a", "T", "One"),
        ("c", "T", "two"),
        ("b", "U", "Three"),
    ]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert len(json.load(file)["data"][0]["paragraphs"]) == 1


def test_used_wrongly(labeller, tmp_path, capsys, monkeypatch) -> None:
    source, out = pairs(tmp_path, "12"), tmp_path / "out.json.gz"

    def never(*_):
        raise AssertionError("nothing is read before the request is checked")

    with monkeypatch.context() as patched:
        patched.setattr(label, "load_span_model", never)
        code, said = ends(capsys, labeller, source, tmp_path / "out.json")
        assert code == 2 and "narrows: error: expected a file to write that ends in .json.gz, got" in said
        (tmp_path / "taken").write_text("")
        code, said = ends(capsys, labeller, source, tmp_path / "taken" / "out.json.gz")
        assert code == 2 and "narrows: error: expected a folder to write to, got" in said
        (tmp_path / "folder.json.gz").mkdir()
        code, said = ends(capsys, labeller, source, tmp_path / "folder.json.gz")
        assert code == 2 and "expected a file to write, got the folder" in said and "choose another name" in said
        code, said = ends(capsys, labeller, tmp_path / "none.json", out)
        assert code == 2 and "expected a file, got nothing at this path" in said
        code, said = ends(capsys, labeller, source, out, "--share", "2")
        assert code == 2 and "expected a share above 0 and at most 1, got 2.0" in said
        source.write_text("{}")
        code, said = ends(capsys, labeller, source, out)
        assert code == 2 and "expected a key 'question_ids'" in said
    pairs(tmp_path, "12")
    code, said = ends(capsys, tmp_path / "no", source, out)
    assert code == 1 and "expected a checkpoint's folder or a hub id, got" in said
    assert not out.exists()


def test_a_full_disk_is_one_sentence_and_keeps_the_former_file(labeller, tmp_path, capsys, full_disk) -> None:
    out = tmp_path / "out.json.gz"
    out.write_text("former")
    source = pairs(tmp_path, [str(number) for number in range(300)])
    with full_disk(1000):
        code, said = ends(capsys, labeller, source, out)
    assert code == 1
    assert said == (
        f"narrows: error: expected room and permission to write {out}, got File too large; make room or choose another "
        "place\n"
    )
    assert out.read_text() == "former"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json.gz", "pairs.json"]


def test_progress_is_shown_by_question(labeller, tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        main([str(labeller), str(pairs(tmp_path, [str(n) for n in range(300)])), str(tmp_path / "out.json.gz")])
    shown = capsys.readouterr()
    assert shown.out == "" and "Labelling" in shown.err and "300/300" in shown.err and "256/300" in shown.err


def test_a_model_without_a_span_head_is_refused(tiny_bert, tmp_path, capsys) -> None:
    code, said = ends(capsys, tiny_bert, pairs(tmp_path, "12"), tmp_path / "out.json.gz")
    assert code == 1 and "expected a checkpoint with a trained span head, got" in said
