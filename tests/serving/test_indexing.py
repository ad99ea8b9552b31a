"""From a folder to a store: what is read, what is left, and what a killed run leaves behind."""

import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from narrows.deformer.convert import convert_checkpoint
from narrows.documents import Document
from narrows.errors import DocumentError, StoreBusyError, StoreError, StoreMismatchError, UsageError
from narrows.serving import indexing, pieces
from narrows.serving.engine import Engine
from narrows.serving.indexing import index_folder
from narrows.serving.pieces import pieces_of
from narrows.store import Store, verify
from narrows.store import writer as writing


@pytest.fixture(scope="module")
def checkpoint(tiny_bert, tmp_path_factory) -> Path:
    """A random split span model with its tokenizer, as a folder."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tiny-deformer")
    model, _ = convert_checkpoint(tiny_bert, split_layer=3, task="question-answering", max_passage_tokens=60)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def engine(checkpoint) -> Engine:
    return Engine.from_pretrained(checkpoint)


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "library"
    (root / "more").mkdir(parents=True)
    for number in range(6):
        (root / f"note{number}.txt").write_text(sentences(number, 12))
    (root / "more" / "page.md").write_text("# The river\n\nThe boat went down the river.\n")
    (root / "more" / "rows.jsonl").write_text('{"id": "a", "text": "One bird."}\n{"id": "b", "text": "Two birds."}\n')
    return root


def sentences(seed: int, number: int) -> str:
    words = ["the", "river", "boat", "town", "clock", "night", "sea", "bird", "stone", "house", "father"]
    choice = random.Random(seed)
    return " ".join(f"The {' '.join(choice.choices(words, k=7))}." for _ in range(number))


def rows(path: Path) -> dict[str, tuple[str, int, int, bytes]]:
    with Store.open(path, expect=None) as store:
        ids = store.documents()
        found = {}
        for document in ids:
            index = 0
            while True:
                try:
                    [passage] = store.take([f"{document}:{index}"])
                except UsageError:
                    break
                found[passage.passage_id] = (passage.text, passage.start, passage.end, passage.states)
                index += 1
        return found


def test_every_passage_is_an_exact_slice_with_the_states_of_its_tokens(tmp_path, engine, folder) -> None:
    report = index_folder(folder, tmp_path / "s", engine, codec="fp32")
    assert report.documents_read == 9 and not report.skipped
    assert verify(tmp_path / "s").ok
    with Store.open(tmp_path / "s", expect=engine.fingerprint("fp32")) as store:
        info = store.info()
        assert (info.passages, info.tokens, info.documents) == (report.passages, report.tokens, 9)
        [first] = store.take(["note3.txt:1"])
    assert (folder / "note3.txt").read_text()[first.start : first.end] == first.text
    [states] = engine.encode_passages([first.token_ids.tolist()])
    stored = np.frombuffer(first.states, dtype=np.float32).reshape(states.shape)
    np.testing.assert_allclose(stored, states.numpy(), atol=1e-5)


def test_indexing_again_reads_only_what_changed(tmp_path, engine, folder) -> None:
    store = tmp_path / "s"
    index_folder(folder, store, engine)
    before = rows(store)
    again = index_folder(folder, store, engine)
    assert (again.documents_read, again.documents_unchanged, again.passages) == (0, 9, 0)
    assert rows(store) == before
    (folder / "note2.txt").write_text("A short one.")
    (folder / "more" / "page.md").unlink()
    (folder / "more" / "rows.jsonl").write_text('{"id": "b", "text": "Two birds."}\n')
    done: list[str] = []
    third = index_folder(folder, store, engine, on_progress=lambda progress: done.extend(progress.documents))
    assert (third.documents_read, third.documents_unchanged, third.documents_removed) == (1, 6, 2)
    assert done == ["note2.txt"]
    after = rows(store)
    assert after["note2.txt:0"][0] == "A short one." and "note2.txt:1" not in after
    assert not any(name.startswith(("more/page.md", "more/rows.jsonl#a:")) for name in after)
    assert verify(store).ok


def test_progress_ends_at_the_whole(tmp_path, engine, folder, monkeypatch) -> None:
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 100)
    monkeypatch.setattr(indexing, "_COMMITS_PER_TIDYING", 2)
    seen = []
    report = index_folder(folder, tmp_path / "s", engine, on_progress=seen.append)
    assert len(seen) > 3 and sum(len(progress.documents) for progress in seen) == 9
    assert [progress.bytes_done for progress in seen] == sorted(progress.bytes_done for progress in seen)
    assert seen[-1].passages == report.passages and 0 < seen[-1].bytes_done <= seen[-1].bytes_total
    assert seen[0].seconds_left > 0
    assert verify(tmp_path / "s").ok


def test_a_run_shares_one_pool_of_memory_from_its_start(tmp_path, engine, folder, monkeypatch) -> None:
    there: list[bool] = []
    monkeypatch.setattr(indexing, "share_one_pool", lambda: there.append((tmp_path / "s").exists()))
    index_folder(folder, tmp_path / "s", engine)
    assert there == [False]


def test_groups_do_not_change_what_is_stored(tmp_path, engine, folder, monkeypatch) -> None:
    index_folder(folder, tmp_path / "one", engine, codec="fp32")
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 30)
    index_folder(folder, tmp_path / "many", engine, codec="fp32")
    one, many = rows(tmp_path / "one"), rows(tmp_path / "many")
    assert one.keys() == many.keys()
    for name, (*head, states) in one.items():
        assert head == list(many[name][:3])
        left, right = (np.frombuffer(raw, dtype=np.float32) for raw in (states, many[name][3]))
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_a_large_document_is_written_piece_by_piece(tmp_path, engine, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 2000)
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 300)
    folder = tmp_path / "library"
    folder.mkdir()
    text = sentences(1, 400)
    (folder / "large.txt").write_text(text)
    (folder / "small.txt").write_text("A small one.")
    seen = []
    report = index_folder(folder, tmp_path / "s", engine, on_progress=seen.append)
    assert report.documents_read == 2 and len(seen) > 5
    cut = [progress.cutting for progress in seen if progress.cutting is not None]
    assert cut[0] == (0, len(text)) and [one.bytes_done for one in cut] == sorted(one.bytes_done for one in cut)
    assert [progress.bytes_done for progress in seen] == sorted(progress.bytes_done for progress in seen)
    stored = rows(tmp_path / "s")
    covered = np.zeros(len(text), dtype=bool)
    for name, (passage, start, end, _) in stored.items():
        if name.startswith("large"):
            assert text[start:end] == passage
            covered[start:end] = True
    assert all(covered[place] or text[place].isspace() for place in range(len(text)))
    (folder / "large.txt").write_text(sentences(2, 300))
    assert index_folder(folder, tmp_path / "s", engine).documents_read == 1
    assert verify(tmp_path / "s").ok
    assert len(rows(tmp_path / "s")) < len(stored)


def test_a_large_document_that_fails_leaves_the_store_as_it_was(tmp_path, engine, folder, monkeypatch) -> None:
    index_folder(folder, tmp_path / "s", engine)
    before = rows(tmp_path / "s")
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 2000)
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 300)
    (folder / "aaa.txt").write_text(sentences(1, 400))
    calls = []

    def fail_at_the_third(passages):
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("no room for states")
        return Engine.encode_passages(engine, passages)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "encode_passages", fail_at_the_third)
        with pytest.raises(MemoryError, match="no room for states"):
            index_folder(folder, tmp_path / "s", engine)
    assert verify(tmp_path / "s").ok and rows(tmp_path / "s") == before
    assert index_folder(folder, tmp_path / "s", engine).documents_read == 1


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    """What is longer than a note is a large document, in several groups and files."""
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 1000)
    monkeypatch.setattr(pieces, "_TOKENIZED_AT_ONCE", 3)
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 150)
    monkeypatch.setattr(writing, "_BYTES_PER_FRAGMENT", 1)


def test_a_large_document_has_the_passages_of_its_pieces(tmp_path, engine, folder, small_pieces) -> None:
    text = "Žluť 渡し船 café 🙂 ".join(sentences(number, 3) for number in range(40)) + "x" * 3000
    (folder / "large.txt").write_text(text)
    seen = []
    index_folder(folder, tmp_path / "s", engine, on_progress=seen.append)
    assert [progress.bytes_done for progress in seen] == sorted(progress.bytes_done for progress in seen)
    assert seen[-1].bytes_done <= seen[-1].bytes_total
    expected = list(pieces.tokenized_passages(engine, Document("large.txt", "", text, "0")))
    with Store.open(tmp_path / "s", expect=None) as store:
        stored = store.take([f"large.txt:{number}" for number in range(len(expected))])
        assert [(row.start, row.end, row.token_ids.tolist()) for row in stored] == [tuple(one) for one in expected]
        assert all(text[row.start : row.end] == row.text for row in stored)
        assert f"large.txt:{len(expected)}" not in rows(tmp_path / "s")
    assert verify(tmp_path / "s").ok


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works as at a terminal; a shell's background job is started without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("small_pieces", "interruptible")
@pytest.mark.parametrize("moment", [1, 2, 5])
def test_a_large_document_that_is_interrupted_loses_nothing(tmp_path, engine, folder, moment) -> None:
    (folder / "large.txt").write_text(sentences(1, 100))
    index_folder(folder, tmp_path / "s", engine)
    before = rows(tmp_path / "s")
    (folder / "large.txt").write_text(sentences(2, 80))
    (folder / "a.txt").write_text("A new one.")
    calls = []

    def interrupt(passages):
        calls.append(1)
        # The first call encodes what comes before the large one.
        if len(calls) == 1 + moment:
            signal.raise_signal(signal.SIGINT)
        return Engine.encode_passages(engine, passages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "encode_passages", interrupt)
        with pytest.raises(KeyboardInterrupt):
            index_folder(folder, tmp_path / "s", engine)
    assert verify(tmp_path / "s").ok
    assert {name: value for name, value in rows(tmp_path / "s").items() if name != "a.txt:0"} == before
    again = index_folder(folder, tmp_path / "s", engine)
    assert (again.documents_read, again.documents_unchanged) == (1, 10)
    assert verify(tmp_path / "s").ok
    index_folder(folder, tmp_path / "anew", engine)
    assert rows(tmp_path / "s") == rows(tmp_path / "anew")


@pytest.mark.parametrize("text", ["x" * 5000, "word " * 1000, "一" * 3000 + "。" + "二" * 3000, "a\n\nb" * 1500, ""])
def test_pieces_join_to_the_text(text, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 1000)
    cut = list(pieces_of(Document("d", "", text, "0")))
    assert "".join(piece.text for _, piece in cut) == text
    assert all(text[start : start + len(piece.text)] == piece.text for start, piece in cut)
    assert all(len(piece.text) <= 1000 for _, piece in cut)
    if " " in text or "\n" in text:
        assert all(piece.text[-1].isspace() or piece is cut[-1][1] for _, piece in cut)


def test_a_file_that_cannot_be_read_keeps_what_was_read_of_it(tmp_path, engine, folder) -> None:
    index_folder(folder, tmp_path / "s", engine)
    (folder / "note0.txt").write_bytes(b"\x00\x01binary")
    (folder / "more" / "rows.jsonl").write_text('{"id": "a", "text": "One bird."}\nno json\n')
    (folder / "picture.png").write_bytes(b"\x89PNG")
    told: list[str] = []
    report = index_folder(folder, tmp_path / "s", engine, on_problem=lambda name, error: told.append(str(error)))
    assert report.documents_removed == 0 and report.documents_read == 0
    assert [skipped.name for skipped in report.skipped] == ["picture.png", "more/rows.jsonl", "note0.txt"]
    assert [skipped.reason for skipped in report.skipped] == told
    assert "binary" in told[2]
    assert {"note0.txt:0", "more/rows.jsonl#b:0"} <= rows(tmp_path / "s").keys()


def test_a_document_without_words_is_skipped(tmp_path, engine, folder) -> None:
    (folder / "blank.txt").write_text("\u200b\u200b")
    report = index_folder(folder, tmp_path / "s", engine)
    assert [skipped.name for skipped in report.skipped] == ["blank.txt"]
    assert "expected words in blank.txt" in report.skipped[0].reason


def test_a_large_document_without_words_is_skipped(tmp_path, engine, folder, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 3)
    (folder / "blank.txt").write_text("\u200b" * 20)
    report = index_folder(folder, tmp_path / "s", engine)
    assert "expected words in blank.txt" in report.skipped[0].reason


def test_two_documents_of_one_name_are_told(tmp_path, engine, folder) -> None:
    (folder / "x.jsonl").write_text('{"id": "a.txt", "text": "One bird."}\n')
    (folder / "x.jsonl#a.txt").write_text("Another bird.")
    report = index_folder(folder, tmp_path / "s", engine)
    assert "comes twice; rename one of them" in report.skipped[0].reason
    assert verify(tmp_path / "s").ok


def test_a_store_inside_the_folder_is_not_read(tmp_path, engine, folder) -> None:
    index_folder(folder, folder / "own.narrows", engine)
    report = index_folder(folder, folder / "own.narrows", engine)
    assert report.skipped == [] and report.documents_unchanged == 9


def test_nothing_to_read(tmp_path, engine) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DocumentError, match="holds none"):
        index_folder(tmp_path / "empty", tmp_path / "s", engine)
    with pytest.raises(DocumentError, match="does not exist"):
        index_folder(tmp_path / "nowhere", tmp_path / "s", engine)
    assert not (tmp_path / "s").exists()


def test_nothing_readable_removes_nothing(tmp_path, engine, folder) -> None:
    index_folder(folder, tmp_path / "s", engine)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_bytes(b"\x00")
    with pytest.raises(DocumentError, match="not one could be"):
        index_folder(tmp_path / "other", tmp_path / "s", engine)
    assert len(rows(tmp_path / "s")) > 0


def test_a_store_path_that_is_no_store(tmp_path, engine, folder) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="a passage store is a folder, but .* is a file"):
        index_folder(folder, tmp_path / "file", engine)
    with pytest.raises(StoreError, match="is not a passage store"):
        index_folder(folder, folder, engine)


def test_a_store_of_another_model_or_codec_or_kind(tmp_path, engine, folder, tiny_bert) -> None:
    store = tmp_path / "s"
    index_folder(folder, store, engine)
    with pytest.raises(StoreMismatchError, match="codec int8 in the store, fp16 in the model"):
        index_folder(folder, store, engine, codec="fp16")
    model, _ = convert_checkpoint(tiny_bert, split_layer=1, task="question-answering")
    with pytest.raises(StoreMismatchError, match="split layer 3 in the store, 1 in the model"):
        index_folder(folder, store, Engine(model, engine.tokenizer))
    with pytest.raises(UsageError, match="expected a store with vectors of width 384, .* has width 0"):
        index_folder(folder, store, engine, dense=True)


def test_dense_vectors_are_of_the_passages(tmp_path, engine, folder) -> None:
    from narrows.serving.embedding import PassageEmbedder

    index_folder(folder, tmp_path / "s", engine, dense=True)
    with Store.open(tmp_path / "s", expect=None) as store:
        vector = PassageEmbedder().embed(["Two birds."])[0]
        best = store.nearest(vector, 1)[0]
        assert best.score == pytest.approx(1.0, abs=1e-3)
        assert store.load([best.row_id]).texts == ["Two birds."]


def test_a_second_run_at_once_is_told_in_one_sentence(tmp_path, engine, folder) -> None:
    index_folder(folder, tmp_path / "s", engine)
    with (
        Store.open(tmp_path / "s", expect=None) as store,
        store.writer(),
        pytest.raises(StoreBusyError, match="takes one writer at a time"),
    ):
        index_folder(folder, tmp_path / "s", engine)


def test_questions_are_read_while_a_run_writes(tmp_path, engine, folder, monkeypatch) -> None:
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 50)
    monkeypatch.setattr(indexing, "_COMMITS_PER_TIDYING", 2)
    index_folder(folder, tmp_path / "s", engine)
    for number in range(10, 40):
        (folder / f"note{number}.txt").write_text(sentences(number, 12))
    (folder / "note0.txt").write_text("Something else.")
    failures: list[BaseException] = []
    stop = threading.Event()
    with Store.open(tmp_path / "s", expect=engine.fingerprint("int8")) as store:
        hits = [hit.row_id for hit in store.search("river", 8)]
        before = [bytes(states) for states in store.load(hits).states]

        def read() -> None:
            try:
                while not stop.is_set():
                    assert [bytes(states) for states in store.load(hits).states] == before
                    assert [hit.row_id for hit in store.search("river", 8)] == hits
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            assert index_folder(folder, tmp_path / "s", engine).documents_read == 31
        finally:
            stop.set()
            thread.join()
    assert not failures
    assert verify(tmp_path / "s").ok


# Importing torch takes seconds, so one process imports everything and forks a child for each run; Lance,
# which may not be forked once it runs, is first used in the child.
NURSERY = """
import os, signal, sys, torch
torch.set_num_threads(1)
from narrows.serving import indexing, pieces
from narrows.serving.engine import Engine
from narrows.store import tidying, writer
indexing._GROUP_TOKENS, indexing._COMMITS_PER_TIDYING = 100, 3
tidying._MANY_FILES, tidying._ROWS_OF_FULL_SEGMENT = 4, 40
# Every fifth document is a large one, in several files.
pieces._PIECE_CHARACTERS, writer._BYTES_PER_FRAGMENT = 1000, 1
engine = Engine.from_pretrained(sys.argv[1])
def tell(progress):
    os.write(1, "".join(f"{name}\\n" for name in progress.documents).encode())
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        indexing.index_folder(sys.argv[2], sys.argv[3], engine, on_progress=tell)
        os.write(1, b"done\\n")
        os._exit(0)
    os.write(1, f"child {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


def killed_at_random_moments(
    tmp_path: Path, checkpoint: Path, in_a_child: Callable[..., list[str]], times: int, seed: int
) -> None:
    folder, store = tmp_path / "many", tmp_path / "s"
    folder.mkdir()
    names = [f"d{number:02}.txt" for number in range(40)]
    for number, name in enumerate(names):
        (folder / name).write_text(sentences(number, 8 if number % 5 else 40))
    moments = random.Random(seed)
    reported: set[str] = set()
    command = [sys.executable, "-c", NURSERY, str(checkpoint), str(folder), str(store)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as nursery:
        assert nursery.stdout.readline() == "ready\n", nursery.stderr.read()
        for turn in range(times):
            moment = moments.randrange(9), moments.uniform(0, 0.1)
            reported |= set(in_a_child(nursery, kill_after=moment)) - {"done"}
            if not store.exists():
                assert not reported
                continue
            report = verify(store)
            assert report.ok, report.damages
            if (store / "manifest.json").exists():
                with Store.open(store, expect=None) as opened:
                    assert reported <= set(opened.documents())
            # Changed documents give every turn something to write.
            for name in moments.sample(names, 12):
                number = int(name[1:3])
                (folder / name).write_text(sentences(1000 * turn + number + 50, 8 if number % 5 else 40))
        assert reported
        assert in_a_child(nursery)[-1] == "done"
    assert verify(store).ok
    with Store.open(store, expect=None) as opened:
        assert set(opened.documents()) == set(names)


def test_a_run_killed_twenty_times_loses_nothing_reported(tmp_path, checkpoint, in_a_child) -> None:
    killed_at_random_moments(tmp_path, checkpoint, in_a_child, 20, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_fifty_times_loses_nothing_reported(tmp_path, checkpoint, in_a_child) -> None:
    killed_at_random_moments(tmp_path, checkpoint, in_a_child, 50, seed=2)


def test_a_run_killed_before_its_first_commit_verifies_as_empty(tmp_path, engine, folder, monkeypatch) -> None:
    def fail(passages):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "encode_passages", fail)
        with pytest.raises(KeyboardInterrupt):
            index_folder(folder, tmp_path / "s", engine)
    report = verify(tmp_path / "s")
    assert report.ok and report.passages == 0
    assert index_folder(folder, tmp_path / "s", engine).documents_read == 9


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_line_of_fifty_megabytes_needs_little_memory(tmp_path, engine) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    line = sentences(3, 2000).replace(".", "")
    with (folder / "line.txt").open("w") as file:
        while file.tell() < 50_000_000:
            file.write(line)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = index_folder(folder, tmp_path / "s", engine)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert report.documents_read == 1 and report.passages > 100_000
    # The text itself takes 50 MB, twice while it is read; the states would take 450 MB.
    assert grown < 300_000
    assert verify(tmp_path / "s").ok


def test_progress_ends_with_every_byte_though_files_hold_more_than_their_text(tmp_path, engine) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "a.html").write_text(f"<html><head><script>{'x' * 5000}</script></head><body>the boat</body></html>")
    (folder / "b.txt").write_bytes(b"\x00\x01" * 500)
    seen = []
    index_folder(folder, tmp_path / "s", engine, on_progress=seen.append)
    assert seen[0].bytes_done < seen[0].bytes_total and seen[0].seconds_left > 0
    assert seen[-1].bytes_done == seen[-1].bytes_total and seen[-1].seconds_left is None


def test_unknown_words_are_counted_over_all_passages_of_a_large_document(tmp_path, engine, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 2000)
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "runes.txt").write_text("ᚠᚢᚦᚨᚱᚲ " * 2000)
    report = index_folder(folder, tmp_path / "s", engine)
    [found] = report.unknown
    assert found.document == "runes.txt" and found.tokens == report.tokens and found.unknown > 1900
    assert index_folder(folder, tmp_path / "s", engine).unknown == []
