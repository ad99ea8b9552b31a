"""PDF into text, by pypdf (extra `pdf`)."""

import io
import logging

from narrows._optional import require
from narrows._plural import count
from narrows.errors import DocumentError

__all__ = ["PAGE_BREAK", "extract_pdf"]

PAGE_BREAK = "\n\n"
"""Between the texts of two pages: an end of a paragraph, since nothing tells whether one goes on."""

# What pypdf has to say of files that it mends belongs to programs that ask for it, not on stderr beside our own
# sentences, where Python puts what no one handles.
logging.getLogger("pypdf").addHandler(logging.NullHandler())


def extract_pdf(data: bytes, name: str) -> tuple[str, str]:
    """Take the text out of a PDF, page after page, in the order in which each page draws it.

    The text is what pypdf makes of the file; one file and one version of pypdf give one text, to which all offsets
    refer. A file that needs no password to be opened is read even where it is encrypted with RC4.

    Args:
        data: the bytes of the file.
        name: the name of the file for error messages.

    Returns:
        The text, pages joined by `PAGE_BREAK`, and the title in the file's metadata, which may be empty. Characters
        that no text holds (NUL, halves of surrogate pairs) are replaced by U+FFFD.

    Raises:
        DocumentError: it needs a password or a package of its own, is damaged, or has no text (a scan).
        MissingExtraError: pypdf is not installed.
    """
    pypdf = require("pypdf", extra="pdf", purpose=f"read {name}")
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        # The reader has tried the empty password already; asked again, it says whether that was the right one.
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentError(
                f"expected a PDF that opens without a password, but {name} is encrypted; "
                "save a copy without a password or leave it out"
            )
        pages = [page.extract_text() for page in reader.pages]
        counted = reader.root_object["/Pages"].get("/Count", 0)
        # Pages that are not there any more are passed over by the parser: a text would be short and not say so.
        if counted > len(pages):
            raise ValueError(f"{len(pages)} of its {count(counted, 'page')} can be found")
        title = (reader.metadata and reader.metadata.title) or ""
    except (DocumentError, MemoryError):
        raise
    except pypdf.errors.DependencyError as error:
        raise DocumentError(
            f"expected a PDF that pypdf reads by itself, but for {name} {str(error).rstrip('.')}; "
            "install that, or save a copy without what needs it"
        ) from error
    except Exception as error:
        # Bytes that are no PDF make nearly anything fail inside a parser that mends what it can.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DocumentError(
            f"expected a whole PDF in {name}, but it is damaged ({reason:.120}); save it anew or leave it out"
        ) from error
    text = PAGE_BREAK.join(page for page in map(_clean, pages) if page)
    if not text or text.isspace():
        raise DocumentError(
            f"expected text in {name}, but its pages hold none, as in a scan; recognise the text first (OCR, "
            "such as `ocrmypdf IN OUT`) or leave it out"
        )
    return text, _clean(str(title))


def _clean(text: str) -> str:
    """Only characters that UTF-8 can hold and no NUL; a surrogate pair becomes the character it stands for."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd").strip()
