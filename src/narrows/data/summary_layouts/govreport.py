"""GovReport (Huang et al. 2021): reports of two offices as trees of sections, with their official summaries.

A file of ids (`split_ids/gao_train.ids`) stands for the reports that it names (`gao/*.json` beside `split_ids`).
Records of a GAO report hold `report` and `highlight`, lists of sections; those of a CRS report hold `reports`, one
section, and `summary`, a list of paragraphs. A section has `section_title`, `paragraphs` and `subsections`. Copies on
hubs (`ccdv/govreport-summarization`) hold `report` and `summary` as texts.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from narrows.data.files import field, lines, load_json
from narrows.data.summary_layouts.record import (
    Layout,
    Raw,
    SummaryExample,
    filled,
    json_records,
    record_id,
    string_or_strings,
    strings,
)
from narrows.errors import UsageError

__all__ = ["GOV_REPORT"]

# What the office advises is no summary of the report; the authors left it out.
_NO_SUMMARY = "what gao recommends"
_DEEPEST = 100


def _records(path: Path) -> Iterator[Raw]:
    if path.suffix != ".ids":
        yield from json_records(path)
        return
    folder = path.parent.parent / path.stem.partition("_")[0]
    for line in lines(path):
        if name := line.strip():
            report = folder / f"{name}.json"
            yield Raw(str(report), partial(load_json, report, "the report that the list of ids names"))


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    if by_crs := isinstance(record, dict) and "reports" in record:
        report = "\n".join(_paragraphs(field(record, "reports", dict, where), where))
    elif isinstance(record, dict) and isinstance(record.get("report"), str):
        report = field(record, "report", str, where)
    else:
        report = _text(field(record, "report", list, where), where)
    if by_crs or "summary" in record:
        summary = "\n".join(string_or_strings(record, "summary", where))
    else:
        sections = field(record, "highlight", list, where)
        told = [s for s in sections if not _title(s, where).casefold().startswith(_NO_SUMMARY)]
        summary = "\n".join(text for s in told for text in strings(s, "paragraphs", where))
    yield SummaryExample(
        id=record_id(record, "id", number, where),
        documents=filled([report], "report", where),
        references=filled([summary], "summary", where),
    )


def _text(sections: list[Any], where: str) -> str:
    return "\n".join(text for section in sections for text in _paragraphs(section, where))


def _paragraphs(section: Any, where: str, depth: int = 0) -> Iterator[str]:
    """Titles and paragraphs in reading order, blank ones left out."""
    if depth > _DEEPEST:
        raise UsageError(f"{where}: expected at most {_DEEPEST} levels of sections, got more; correct the record.")
    for text in (_title(section, where), *strings(section, "paragraphs", where)):
        if text.strip():
            yield text.strip()
    # The deepest sections may leave the key out.
    for part in field(section, "subsections", list, where) if "subsections" in section else ():
        yield from _paragraphs(part, where, depth + 1)


def _title(section: Any, where: str) -> str:
    return field(section, "section_title", str, where)


GOV_REPORT = Layout(_records, _examples)
