"""Rows of summarisers: cut anew for each length, windows, several references, plain text, and what is refused."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest

from narrows.data import TokenCache
from narrows.data.span_corruption import corrupted_lengths
from narrows.errors import UsageError
from narrows.hf.seq2seq import load_seq2seq
from narrows.training.summaries.build import build_run, plan_run
from narrows.training.summaries.data import CorruptedRows, read_corpus, read_examples, read_text_corpus
from narrows.training.summaries.recipe import CorruptionSection, DataPart
from narrows.training.summaries.stages import GrowingPlan, Item

TRAIN = {"format": "jsonl", "file": "train.jsonl"}


@pytest.fixture
def cache(tiny_seq2seq, tmp_path):
    return TokenCache(tmp_path / "tokens", tokenizer=load_seq2seq(tiny_seq2seq("t5"))[1])


def test_a_document_of_several_records_is_tokenized_once(summaries_folder, cache) -> None:
    part = DataPart(format="jsonl", file="train.jsonl", references="all", times=2)
    corpus = read_corpus([part, DataPart(**TRAIN)], summaries_folder, cache)
    assert len(corpus.records) == 21 * 2 + 21
    assert [record.times for record in corpus.records] == [2] * 42 + [1] * 21
    documents = {place for record in corpus.records for place in record.documents}
    texts = {text for example in read_examples(part, summaries_folder) for text in example.documents}
    assert len(documents) == len(texts) < 21 * 2
    # Documents once, and a summary for each record.
    assert len(corpus.tokens) == len(texts) + len(corpus.records)
    assert corpus.records[0].documents == corpus.records[42].documents


def test_a_part_of_a_split_is_chosen_by_id(summaries_folder) -> None:
    part = DataPart(**TRAIN, split="split.json", part="few")
    assert [example.id for example in read_examples(part, summaries_folder)] == ["r1", "r4"]
    with pytest.raises(UsageError, match="expected `part` to be one of few, none, got 'many'; mend the recipe"):
        list(read_examples(part.model_copy(update={"part": "many"}), summaries_folder))
    with pytest.raises(UsageError, match="expected records in .*, got none after the choice of ids; mend the recipe"):
        list(read_examples(part.model_copy(update={"part": "none"}), summaries_folder))
    with pytest.raises(UsageError, match="expected data at .*no.jsonl, got nothing there; pass --data DIR or set"):
        list(read_examples(DataPart(format="jsonl", file="no.jsonl"), summaries_folder))


def test_inputs_grow_with_the_stages(summary_recipe, summaries_folder, tmp_path) -> None:
    recipe = summary_recipe(data={"lengths": [16, 32]})
    run = build_run(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    rows = run.trainer.train_dataset
    for number in range(len(rows)):
        short, long = rows[Item(0, 0, number)], rows[Item(1, 0, number)]
        assert len(short.input_ids) <= 16 and len(long.input_ids) <= 32
        assert short.input_ids[:-1] == long.input_ids[: len(short.input_ids) - 1]
        assert short.labels == long.labels
        assert rows.stages[0].lengths[number] == len(short.input_ids) + len(short.labels)


def test_each_window_is_a_row(summary_recipe, summaries_folder, tmp_path) -> None:
    recipe = summary_recipe(data={"truncation": {"name": "windows", "overlap": 4}, "max_input_tokens": 24})
    run = build_run(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    rows = run.trainer.train_dataset
    assert len(rows) > 21 and run.plan.rows == len(rows)
    assert "documents" not in run.plan.truncated
    several = next(record for record in rows.stages[0].records if len(record) > 1)
    assert len({tuple(rows[Item(0, 0, row)].labels) for row in several}) == 1
    assert len({tuple(rows[Item(0, 0, row)].input_ids) for row in several}) == len(several)


def test_plain_text_is_corrupted_anew_in_each_epoch(corruption_recipe, summaries_folder, tmp_path) -> None:
    recipe = corruption_recipe()
    run = build_run(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    rows = run.trainer.train_dataset
    first, again, later = rows[Item(0, 0, 2)], rows[Item(0, 0, 2)], rows[Item(0, 1, 2)]
    assert first == again != later
    assert all(len(rows[Item(0, 0, number)].input_ids) <= 32 for number in range(len(rows)))
    inputs, targets = corrupted_lengths(31, sentinels=100)
    assert (len(first.input_ids), len(first.labels)) == (inputs + 1, targets + 1)
    assert rows.stages[0].lengths[2] == inputs + targets + 2
    assert run.plan == plan_run(recipe, data=summaries_folder)


class _Tokens(list):
    def lengths(self) -> np.ndarray:
        return np.array([len(piece) for piece in self])


@pytest.mark.parametrize(
    ("lengths", "shares"), [((17, 65), (0.5, 0.5)), ((9, 33, 129), (0.2, 0.3, 0.5)), ((65,), (1,))]
)
@pytest.mark.parametrize("epochs", [1, 2])
def test_an_epoch_of_growing_windows_reads_each_token_once(lengths, shares, epochs) -> None:
    pieces = [list(range(length)) for length in (40, 900, 7, 333, 2000, 128, 64)]
    times = [1, 1, 1, 1, 1, 3, 1]
    rows = CorruptedRows(
        _Tokens(pieces),
        times,
        list(zip(lengths, shares, strict=True)),
        corruption=CorruptionSection(),
        sentinels=range(5000, 5100),
        eos=1,
        seed=0,
    )
    seen = Counter(
        (piece, token)
        for batch in GrowingPlan(rows.stages, batch_tokens=400, epochs=epochs, seed=0)
        for item in batch
        for piece, start, end in [rows._windows[item.stage][item.row]]
        for token in range(start, end)
    )
    assert all(number == epochs * times[piece] for (piece, _), number in seen.items())
    # Ends that are too short for spans are left out.
    total = sum(len(piece) for piece in pieces)
    assert 0.93 * total < len(seen) <= total


def test_gzipped_text_is_read_and_empty_text_refused(summaries_folder, tmp_path, cache) -> None:
    text = (summaries_folder / "text.txt").read_text()
    with gzip.open(tmp_path / "text.txt.gz", "wt") as file:
        file.write(text)
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "blank.txt").write_text(" \n\n")
    (tmp_path / "broken.txt.gz").write_text("no gzip")
    both = [
        read_text_corpus([DataPart(format="text", file=name, times=3)], tmp_path, cache)
        for name in ("text.txt", "text.txt.gz")
    ]
    assert both[0][1] == both[1][1] == [3]
    assert both[0][0][0].tolist() == both[1][0][0].tolist()
    with pytest.raises(UsageError, match="expected text in .*blank.txt, got none; mend the recipe"):
        read_text_corpus([DataPart(format="text", file="blank.txt")], tmp_path, cache)
    with pytest.raises(UsageError, match="broken.txt.gz: expected"):
        read_text_corpus([DataPart(format="text", file="broken.txt.gz")], tmp_path, cache)


def test_documents_of_records_are_text_too_each_once(summaries_folder, cache) -> None:
    few = DataPart(**TRAIN, split="split.json", part="few", times=2)
    tokens, times = read_text_corpus([few, DataPart(format="text", file="text.txt")], summaries_folder, cache)
    documents = {text for example in read_examples(few, summaries_folder) for text in example.documents}
    # Each of the two records has the same second document.
    assert len(documents) == 3 and times == [2, 2, 2, 1] and len(tokens) == 4


def test_text_too_short_to_take_spans_out_of_is_refused(corruption_recipe, tmp_path) -> None:
    (tmp_path / "text.txt").write_text("a boat")
    with pytest.raises(
        UsageError, match="expected text of at least 8 tokens to take spans out of, got less; name more"
    ):
        plan_run(corruption_recipe(), data=tmp_path)


@pytest.mark.slow
def test_real_data_becomes_rows(shared_data, summary_recipe, tmp_path) -> None:
    if not (shared_data / "longdoc").is_dir():
        pytest.skip("needs longdoc/ among the data sets")
    recipe = summary_recipe(
        data={
            "train": [{"format": "squality", "file": "longdoc/squality_v1-3/dev.jsonl.gz", "references": "all"}],
            "tune": [],
            "lengths": [512, 1024],
            "max_input_tokens": 1024,
            "max_output_tokens": 128,
        },
        optimiser={"epochs": 1, "batch_tokens": 4096},
    )
    plan = plan_run(recipe, data=shared_data)
    assert plan.rows == 500
    assert plan.truncated["documents at 512 tokens"] == plan.truncated["documents at 1,024 tokens"] == 500
    assert json.dumps(plan._asdict())
