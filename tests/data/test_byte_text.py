"""The bytes of files as one array in a file: exact, made once, whole or not at all; each mistake told."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data import byte_split, byte_text, read_byte_text
from narrows.errors import OutputError, UsageError

TEXT = bytes(range(256)) * 9 + "a river é\n".encode()
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture
def write(tmp_path):
    """Writes bytes, packed as the name says."""

    def write(name: str, data: bytes = TEXT):
        path = tmp_path / name
        path.write_bytes(PACK["." + name.rpartition(".")[2] if name.endswith((".gz", ".bz2", ".xz")) else ""](data))
        return path

    return write


def _kept(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "a.txt.bz2", "a.xz"])
def test_a_file_is_its_bytes(name, write, tmp_path) -> None:
    found = read_byte_text(write(name), folder=tmp_path / "new" / "cache")
    assert isinstance(found, np.memmap) and found.dtype == np.uint8 and not found.flags.writeable
    assert found.tobytes() == TEXT
    (kept,) = _kept(tmp_path / "new" / "cache")
    assert str(found.filename).endswith(kept)
    again = np.memmap(found.filename, dtype=np.uint8, mode="r", shape=found.shape)
    assert np.array_equal(again, found)


def test_files_follow_in_their_order(write, tmp_path, monkeypatch) -> None:
    # More than one block of each.
    monkeypatch.setattr(byte_text, "_AT_ONCE", 100)
    files = [write("b.gz"), write("a", b"x" * 301), write("c.xz", b"end")]
    found = read_byte_text(files, folder=tmp_path / "cache")
    assert found.tobytes() == TEXT + b"x" * 301 + b"end"
    assert read_byte_text(files[::-1], folder=tmp_path / "cache").tobytes() == b"end" + b"x" * 301 + TEXT
    assert len(_kept(tmp_path / "cache")) == 2


def test_it_is_made_once_and_anew_when_anything_changes(write, tmp_path) -> None:
    folder, path = tmp_path / "cache", write("a.gz")
    first = read_byte_text(path, folder=folder)
    (kept,) = folder.iterdir()
    made = kept.stat().st_mtime_ns, kept.stat().st_ino
    # The same bytes under another name; what is compared is what files hold.
    assert read_byte_text(str(write("b.gz").replace(tmp_path / "c.gz")), folder=folder).tobytes() == first.tobytes()
    assert (kept.stat().st_mtime_ns, kept.stat().st_ino) == made and len(_kept(folder)) == 1
    assert read_byte_text(write("a.gz", b"other"), folder=folder).tobytes() == b"other"
    # Packed bytes under a plain name are text themselves.
    packed = gzip.compress(b"other")
    (tmp_path / "plain").write_bytes(packed)
    assert read_byte_text(tmp_path / "plain", folder=folder).tobytes() == packed
    assert len(_kept(folder)) == 3


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"X" + data[1:], lambda data: b""]
)
def test_a_kept_file_that_was_changed_is_made_again(damage, write, tmp_path) -> None:
    folder, path = tmp_path / "cache", write("a.gz")
    read_byte_text(path, folder=folder)
    (kept,) = folder.iterdir()
    data = kept.read_bytes()
    kept.write_bytes(damage(data))
    assert read_byte_text(path, folder=folder).tobytes() == TEXT
    assert kept.read_bytes() == data and len(_kept(folder)) == 1


def test_the_real_one(shared_data, tmp_path) -> None:
    path = next(path for path in sorted((shared_data / "lm_text").rglob("*.bz2")))
    assert read_byte_text(path, folder=tmp_path).tobytes() == bz2.decompress(path.read_bytes())


def _damaged(name: str, place: int | None = None):
    """A packed file cut short, or with a byte changed."""
    data = PACK["." + name.rpartition(".")[2]](TEXT)
    return data[:-20] if place is None else data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a", b"", r"a: expected text, got an empty file; fetch it again or leave it out\.$"),
        ("a.gz", gzip.compress(b"", mtime=0), "a.gz: expected text, got an empty file"),
        ("a.gz", b"plain text", r"a\.gz: expected a file packed as \.gz, got Not a gzipped file \(b'pl'\); fetch it"),
        (
            "a.gz",
            _damaged("a.gz"),
            "expected a file packed as .gz, got Compressed file ended before .*; fetch it again",
        ),
        ("a.gz", _damaged("a.gz", -6), "expected a file packed as .gz, got CRC check failed"),
        (
            "a.bz2",
            b"plain text",
            "expected a file packed as .bz2, got Invalid data stream; fetch it again or rename it",
        ),
        ("a.bz2", _damaged("a.bz2"), "expected a file packed as .bz2, got Compressed file ended before"),
        ("a.xz", b"plain text", "expected a file packed as .xz, got Input format not supported by decoder; fetch"),
        ("a.xz", _damaged("a.xz", 60), "expected a file packed as .xz, got Corrupt input data"),
        ("a.zip", b"PK", r"expected a file that is plain or packed as \.gz, \.bz2, \.xz, got \.zip; unpack it\.$"),
    ],
)
def test_what_cannot_be_read_is_refused_and_leaves_nothing(name, data, text, tmp_path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UsageError, match=text):
        read_byte_text([path], folder=tmp_path / "cache")
    assert not (tmp_path / "cache").exists() or not _kept(tmp_path / "cache")


def test_files_that_are_none_are_refused(tmp_path, write) -> None:
    with pytest.raises(UsageError, match=r"expected at least one file of text, got none; name one\.$"):
        read_byte_text([], folder=tmp_path)
    with pytest.raises(UsageError, match="gone.gz: expected a file, got nothing at this path; check the path"):
        read_byte_text([write("a"), tmp_path / "gone.gz"], folder=tmp_path / "cache")
    with pytest.raises(UsageError, match="expected a readable file, got Is a directory; check the path"):
        read_byte_text(tmp_path, folder=tmp_path / "cache")


def test_a_place_that_cannot_be_written_is_named(write, tmp_path) -> None:
    path = write("a")
    with pytest.raises(OutputError, match=r"expected a folder for bytes, got .*a \(File exists\); choose another\.$"):
        read_byte_text(path, folder=path)
    kept = read_byte_text(path, folder=tmp_path / "cache").filename
    (tmp_path / "cache" / str(kept)).unlink()
    # A folder in the file's place, which nothing replaces.
    (tmp_path / "cache" / str(kept)).mkdir()
    with pytest.raises(
        OutputError, match=r"expected room and permission to write .*, got Is a directory; make room or"
    ):
        read_byte_text(path, folder=tmp_path / "cache")
    assert len(_kept(tmp_path / "cache")) == 1


def test_enwik8s_parts() -> None:
    train, tune, test = byte_split(100_000_000)
    assert (train, tune, test) == (slice(0, 90_000_000), slice(90_000_000, 95_000_000), slice(95_000_000, 100_000_000))


@given(length=st.integers(40, 10**10), first=st.floats(0.1, 0.8), second=st.floats(0.05, 0.1))
def test_parts_follow_one_another_and_are_all(length, first, second) -> None:
    shares = (first, second, 1 - first - second)
    parts = byte_split(length, shares)
    assert parts[0].start == 0 and parts[-1].stop == length
    assert all(before.stop == after.start for before, after in zip(parts, parts[1:], strict=False))
    for part, share in zip(parts, shares, strict=True):
        assert abs(part.stop - part.start - share * length) <= 1 + 1e-6


@pytest.mark.parametrize("length", [0, 1, 2, 9])
def test_too_short_a_text_is_refused(length) -> None:
    with pytest.raises(UsageError, match=rf"expected text for the shares 0.9, 0.05, 0.05, got {length} bytes?; name"):
        byte_split(length)


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5), (0.5, 0.5, 0.1), (1.0, 0.0, 0.0), (1.5, -0.25, -0.25), (float("nan"),) * 3]
)
def test_shares_that_are_none_are_refused(shares) -> None:
    with pytest.raises(UsageError, match=r"expected three shares above 0 that are 1 together, got \["):
        byte_split(100, shares)
