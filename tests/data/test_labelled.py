"""Labelled texts in two layouts, whole and broken."""

import gzip
import zipfile

import pytest

from narrows.data import read_labelled
from narrows.errors import UsageError


@pytest.fixture
def tables(tmp_path):
    folder = tmp_path / "SST"
    folder.mkdir()
    (folder / "train.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\ngood \t1\nbad\t0\n"))
    (folder / "test.tsv").write_text("sentence\tlabel\nfine\t1\n")
    return folder


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "reviews.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("reviews/README", "about")
        for name in ("pos", "neg"):
            file.mkdir(f"reviews/{name}")
            for number in range(20):
                file.writestr(f"reviews/{name}/cv{number:03}.txt", f"{name} {number} \n")
    return path


def test_tables_of_glue(tables) -> None:
    assert read_labelled(tables) == (("good", "bad", "fine"), (1, 0, 1), (-1, -1, 0), ("0", "1"))


def test_an_archive_with_a_folder_a_class(archive) -> None:
    data = read_labelled(archive)
    assert data.classes == ("neg", "pos") and len(data.texts) == 40
    assert data.texts[0] == "neg 0" and data.labels[0] == 0 and data.labels[-1] == 1
    for part in range(10):
        inside = [label for label, where in zip(data.labels, data.parts, strict=True) if where == part]
        assert sorted(inside) == [0, 0, 1, 1]


def test_the_real_ones(shared_data) -> None:
    sst = read_labelled(shared_data / "glue" / "SST-2")
    assert (sst.parts.count(-1), sst.parts.count(0), sst.classes) == (60_614, 872, ("0", "1"))
    reviews = read_labelled(shared_data / "textcls" / "nltk" / "movie_reviews.zip")
    assert (len(reviews.texts), sum(reviews.labels), reviews.classes) == (2_000, 1_000, ("neg", "pos"))


def test_what_is_refused(tables, archive, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"expected a folder with train.tsv .*, got another one; pass one of these"):
        read_labelled(tmp_path / "a.txt")
    (tables / "test.tsv").write_text("fine\n")
    with pytest.raises(UsageError, match="test.tsv: line 1: expected a sentence and a label between a tab, got 'fine"):
        read_labelled(tables)
    (tables / "test.tsv").unlink()
    with pytest.raises(UsageError, match="expected test.tsv or test.tsv.gz in it, got neither; pass a folder with"):
        read_labelled(tables)
    (tables / "test.tsv").write_text("fine\t1\n")
    (tables / "train.tsv.gz").write_bytes(gzip.compress(b"good\t1\n"))
    with pytest.raises(UsageError, match="expected texts of at least 2 classes, got 1; check the labels"):
        read_labelled(tables)
    archive.write_bytes(b"no archive")
    with pytest.raises(UsageError, match="reviews.zip: expected a .zip archive, got File is not a zip file; fetch it"):
        read_labelled(archive)
    with pytest.raises(UsageError, match="none.zip: expected a file, got nothing at this path"):
        read_labelled(tmp_path / "none.zip")
