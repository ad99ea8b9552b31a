"""`narrows evaluate` of summarisers: ROUGE with its intervals, taken up again, beside another, options by kind."""

import json
import shutil

import pytest

from narrows.cli.main import main
from narrows.evaluation.rouge import Rouge


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "test.jsonl"
    records = [
        {
            "id": f"r{number}",
            "document": "the king walked to the old mill . " * (number + 1),
            "summary": ["the king walked .", "a walk to the mill ."],
            **({"query": "who walked ?"} if number % 2 else {}),
        }
        for number in range(5)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def ask(tiny_seq2seq, tmp_path, data, capsys):
    """Runs the verb with a kind of model; predictions lie in the test's folder."""

    def run(kind, *options):
        arguments = [str(tiny_seq2seq(kind)), str(data), "--predictions", str(tmp_path / f"{kind}.jsonl")]
        code = main(["evaluate", *arguments, *options])
        shown = capsys.readouterr()
        return code, shown.out, " ".join(shown.err.split())

    return run


READ = ("--max-input-tokens", "24", "--max-new-tokens", "6")


@pytest.mark.parametrize("kind", ["mulla", "longt5", "t5"])
def test_summaries_are_scored_as_rouge_scores_them(kind, ask, tmp_path, data) -> None:
    code, out, _ = ask(kind, "--json", *READ)
    assert code == 0
    figures = json.loads(out)
    assert figures == json.loads((tmp_path / f"{kind}.jsonl.scores.json").read_text())
    written = [json.loads(line) for line in (tmp_path / f"{kind}.jsonl").read_text().splitlines()]
    references = {record["id"]: record["summary"] for record in map(json.loads, data.read_text().splitlines())}
    rouge = Rouge()
    scores = [rouge.score(one["text"], references[one["id"]]) for one in written]
    assert figures["records"] == len(scores) == 5
    assert figures["rouge"]["rouge1"]["mean"] == pytest.approx(sum(score.rouge1 for score in scores) / 5)
    assert figures["tokens_not_read"] == sum(one["dropped"] for one in written) > 0
    assert figures["records_cut"] == sum(one["dropped"] > 0 for one in written)
    assert figures["reading"]["truncation"] == {"name": "head"}


def test_a_prefix_is_the_models_or_the_calls(ask, tiny_seq2seq, data, tmp_path, capsys) -> None:
    shutil.copytree(tiny_seq2seq("t5"), tmp_path / "own")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    noted = {"max_input_tokens": 24, "truncation": {"name": "head"}, "prefix": "the king: "}
    (tmp_path / "own" / "config.json").write_text(json.dumps({**config, "narrows_inputs": noted}))
    code, out, _ = ask("t5", "--json", *READ, "--prefix", "the king: ")
    given = json.loads(out)
    assert code == 0 and given["reading"]["prefix"] == "the king: "
    assert main(["evaluate", str(tmp_path / "own"), str(data), "--json", "--max-new-tokens", "6"]) == 0
    own = json.loads(capsys.readouterr().out)
    assert {**own, "model": ""} == {**given, "model": ""}
    # Another prefix is another evaluation, with a file of its own.
    assert main(["evaluate", str(tmp_path / "own"), str(data), "--json", "--prefix", "a/b: "]) == 0
    assert (tmp_path / "own" / "evaluation" / "test-prefix-a_b_.jsonl").is_file()


def test_a_truncation_named_as_the_models_own_keeps_its_options(tiny_seq2seq, data, tmp_path, capsys) -> None:
    shutil.copytree(tiny_seq2seq("t5"), tmp_path / "own")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    noted = {"max_input_tokens": 24, "truncation": {"name": "head+tail", "head_share": 0.25}}
    (tmp_path / "own" / "config.json").write_text(json.dumps({**config, "narrows_inputs": noted}))
    for given, expected in (
        ([], noted["truncation"]),
        (["--truncation", "head+tail"], noted["truncation"]),
        (["--truncation", "head"], {"name": "head"}),
    ):
        assert main(["evaluate", str(tmp_path / "own"), str(data), "--json", "--max-new-tokens", "3", *given]) == 0
        assert json.loads(capsys.readouterr().out)["reading"]["truncation"] == expected


def test_a_stopped_evaluation_goes_on(ask, tmp_path, monkeypatch) -> None:
    ask("mulla", "--json", *READ)
    path = tmp_path / "mulla.jsonl"
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:9])
    (tmp_path / "mulla.jsonl.rouge-english-stemmed.jsonl").unlink()
    from narrows.evaluation import summaries

    read = []
    kept = summaries.write_texts

    def count(model, tokenizer, inputs, **options):
        read.extend(inputs)
        return kept(model, tokenizer, inputs, **options)

    monkeypatch.setattr(summaries, "write_texts", count)
    code, out, _ = ask("mulla", "--json", *READ)
    assert code == 0 and len(read) == 3
    assert path.read_text() == whole
    assert json.loads(out)["records"] == 5


def test_other_settings_are_another_evaluation(ask) -> None:
    ask("mulla", "--json", *READ)
    code, _, err = ask("mulla", "--json", "--max-input-tokens", "30", "--max-new-tokens", "6")
    assert code == 2
    assert "expected predictions of the same model and questions in" in err


def test_a_difference_is_paired(ask, tmp_path, data, tiny_seq2seq) -> None:
    perfect = tmp_path / "perfect.jsonl"
    records = [json.loads(line) for line in data.read_text().splitlines()]
    perfect.write_text("".join(json.dumps({"id": r["id"], "text": r["summary"][0]}) + "\n" for r in records))
    code, out, _ = ask("mulla", "--against", str(perfect), *READ)
    assert code == 0
    assert "ROUGE-1 over the other" in out and "average over the other" in out and "tokens not read" in out
    figures = json.loads((tmp_path / "mulla.jsonl.scores.json").read_text())
    mean = figures["rouge"]["rouge1"]["mean"]
    assert figures["against"]["differences"]["rouge1"]["mean_difference"] == pytest.approx(mean - 100)


def test_another_model_is_read_in_the_same_way(ask, tmp_path, tiny_seq2seq) -> None:
    import shutil

    other = tmp_path / "other"
    shutil.copytree(tiny_seq2seq("t5"), other)
    code, out, _ = ask("mulla", "--against", str(other), "--json", *READ)
    assert code == 0
    theirs = json.loads(out)["against"]["differences"]
    assert theirs.keys() == {"rouge1", "rouge2", "rougeL", "rougeLsum", "average"}
    # Greedy and beams of one model have a file each.
    assert (other / "evaluation" / "test-max_input_tokens-24-max_new_tokens-6.jsonl").is_file()


def test_options_of_the_other_kind_are_refused_by_name(ask, checkpoint, data, capsys) -> None:
    for option in (["--calibrate"], ["--candidates", "3"], ["--questions", "2"], ["--retrieval", "bm25"]):
        code, _, err = ask("mulla", *option)
        assert code == 2
        assert f"expected {option[0]} for readers only, and the model is a summariser" in err
    for option in (["--layout", "jsonl"], ["--records", "2"], ["--words", "unicode"], ["--beams", "2"]):
        code = main(["evaluate", str(checkpoint), str(data), *option])
        assert code == 2
        err = " ".join(capsys.readouterr().err.split())
        assert f"expected {option[0]} for summarisers only, and the model is a reader" in err


def test_each_mistake_is_one_sentence(ask, tmp_path, checkpoint, data) -> None:
    (tmp_path / "half.jsonl").write_text('{"id": "r0", "text": "the king"}\n')
    (tmp_path / "other.jsonl").write_text('{"name": "r0"}\n')
    (tmp_path / "parts.json").write_text('{"test": ["none"]}')
    split = ["--split", str(tmp_path / "parts.json"), "--part"]
    for options, text in (
        ([], "expected --max-input-tokens, since"),
        (["--layout", "squalit", *READ], "did you mean 'squality'?"),
        (["--against", str(tmp_path / "no.jsonl"), *READ], "expected predictions at"),
        (
            ["--against", str(tmp_path / "half.jsonl"), *READ],
            "of the same records, got none for 'r1'; evaluate both on",
        ),
        (["--against", str(tmp_path / "other.jsonl"), *READ], "expected `id` and `text` in line 1 of"),
        (["--against", str(checkpoint), *READ], "expected another summariser for --against"),
        (["--against", str(tmp_path / "parts.json"), *READ], "expected a checkpoint's folder or a hub id, got"),
        ([*split, "tune", *READ], "expected --part to be one of test, got 'tune'; choose one of them"),
        ([*split, "test", *READ], "got none; check the file and --part"),
        (["--part", "test", *READ], "expected --split and --part together, got one of them; pass both or none"),
    ):
        code, _, err = ask("mulla", *options)
        assert code == 2, options
        assert text in err, (options, err)
        # What cannot be compared is told before the model itself is asked.
        assert "Summarising" not in err or str(tmp_path / "half.jsonl") in options
    data.write_text(data.read_text().replace('"r1"', '"r0"'))
    code, _, err = ask("mulla", *READ)
    assert code == 2 and "expected every id once, got 'r0' twice; give each record its own" in err


def test_some_records_are_evenly_spread(ask, tmp_path) -> None:
    code, _, _ = ask("t5", "--records", "2", "--quiet", *READ)
    assert code == 0
    written = [json.loads(line)["id"] for line in (tmp_path / "t5.jsonl").read_text().splitlines()]
    assert written == ["r0", "r2"]
