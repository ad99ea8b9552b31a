"""Bytes into characters: UTF-8, or UTF-16 with a byte order mark, and nothing else."""

import codecs

from narrows.errors import DocumentError

__all__ = ["UnsupportedEncoding", "decode_text", "starts_as_utf16"]

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class UnsupportedEncoding(DocumentError):
    """A file is neither UTF-8 nor UTF-16 with a byte order mark."""


def starts_as_utf16(data: bytes) -> bool:
    """Whether `data` begins with a UTF-16 byte order mark (and not the UTF-32 one that contains it)."""
    return data.startswith(_UTF16_MARKS) and not data.startswith(codecs.BOM_UTF32_LE)


def decode_text(data: bytes, name: str, *, offset: int = 0) -> str:
    """Decode the bytes of a file without changing a character of it; only a byte order mark is dropped.

    Args:
        data: the bytes.
        name: the name of the file for error messages.
        offset: where in the file `data` begins, in bytes, so that error messages name places in the file.

    Returns:
        The characters, line ends as they are in the file.

    Raises:
        UnsupportedEncoding: for NUL bytes, and for bytes that are not UTF-8 (or, after its mark, UTF-16).
    """
    encoding, mark = "UTF-8", 0
    if offset == 0 and starts_as_utf16(data):
        encoding, mark = ("UTF-16-LE" if data.startswith(codecs.BOM_UTF16_LE) else "UTF-16-BE"), 2
    elif offset == 0 and data.startswith(codecs.BOM_UTF8):
        mark = 3
    try:
        text = codecs.decode(memoryview(data)[mark:], encoding)
    except UnicodeDecodeError as error:
        where = offset + mark + error.start
        message = (
            f"expected {encoding} text in {name}, but byte {where} is not {encoding} ({error.reason}); "
            "save the file as UTF-8 or leave it out"
        )
        raise UnsupportedEncoding(message) from error
    nul = text.find("\0")
    if nul >= 0:
        where = offset + mark + len(text[:nul].encode(encoding))
        raise UnsupportedEncoding(
            f"expected text in {name}, but byte {where} is a NUL as in binary files; "
            "convert the file to UTF-8 text or leave it out"
        )
    return text
