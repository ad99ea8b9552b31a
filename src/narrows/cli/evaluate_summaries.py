"""The part of `narrows evaluate` that is for summarisers: ROUGE with its intervals, alone or beside another's."""

import json as json_module
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from narrows.cli import options
from narrows.cli.evaluation_files import default_file, write_json
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.data import SummaryExample
    from narrows.evaluation.rouge import Rouge, RougeScore
    from narrows.evaluation.summaries import SummaryEvaluation

__all__ = ["Layout", "Records", "Words", "is_summariser", "run"]

Layout = Annotated[
    str | None,
    typer.Option(
        "--layout",
        help="Of a summariser's data: jsonl unless said, or squality, qmsum, multi-news, arxiv, pubmed, wcep, "
        "wcep-10, govreport. Of --task classification: a format of labelled data, such as rte or "
        "'{format: folders, folds: 10, take: [9]}'.",
        show_default=False,
    ),
]
Records = Annotated[
    int | None,
    typer.Option("--records", min=1, help="How many records, evenly spread, to summarise.", show_default="all"),
]
Words = Annotated[
    Literal["english-stemmed", "english", "unicode"] | None,
    typer.Option("--words", help="How ROUGE finds words: english-stemmed unless said.", show_default=False),
]

_CHANGING = ("records", "max_input_tokens", "truncation", "beams", "max_new_tokens", "prefix")
_NAMES = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "average": "average",
}


def is_summariser(model: str) -> bool:
    """Whether a checkpoint is of a kind that writes text, by its config."""
    from narrows.hf.checkpoints import checkpoint_folder
    from narrows.hf.trained_inputs import SEQ2SEQ_TYPES

    config = json_module.loads((checkpoint_folder(model) / "config.json").read_text(encoding="utf-8"))
    return config.get("model_type") in SEQ2SEQ_TYPES


def run(
    model: str,
    data: Path,
    *,
    split: Path | None,
    part: str | None,
    against: str | None,
    predictions: Path | None,
    given: Mapping[str, Any],
    work: Mapping[str, Any],
    json: bool,
) -> None:
    """Summarise the records of a file with a model, score them, and write what came of it.

    Args:
        given: the options of summarisers, None where one was not given.
        work: device, padded tokens of a batch, and whether to be quiet.
    """
    from transformers.utils import logging

    from narrows.evaluation.rouge import Rouge
    from narrows.evaluation.summaries import compare_summaries

    logging.disable_progress_bar()
    examples = _examples(data, split, part, given)
    rouge = Rouge(words=given["words"] or "english-stemmed")
    target = predictions or _default_file(model, data, part, given)
    work = {**work, "device": options.place(work["device"])}
    if against is not None:
        _check_rival(against, given)
    found, reading = _evaluate(model, examples, target, rouge=rouge, given=given, **work)
    figures = _figures(found, model=model, data=data, part=part, reading=reading, words=rouge.words)
    if against is not None:
        theirs = _rival(against, examples, data, part, rouge=rouge, given=given, work=work)
        differences = compare_summaries(found.scores, theirs)
        figures["against"] = {
            "model": against,
            "differences": {name: difference._asdict() for name, difference in differences.items()},
        }
    write_json(target.with_name(target.name + ".scores.json"), figures)
    if json:
        options.emit_json(figures)
    else:
        _print_table(figures)
    options.stderr_console(quiet=work["quiet"]).print(f"predictions in {target}", markup=False)


def _examples(data: Path, split: Path | None, part: str | None, given: Mapping[str, Any]) -> "list[SummaryExample]":
    from narrows.data import evenly_spread, normalize_title, read_split, read_summaries

    if (split is None) != (part is None):
        raise UsageError("expected --split and --part together, got one of them; pass both or none")
    examples = list(read_summaries(data, layout=given["layout"] or "jsonl"))
    if split is not None and part is not None:
        parts = read_split(split)
        if part not in parts:
            raise UsageError(f"expected --part to be one of {', '.join(parts)}, got {part!r}; choose one of them")
        examples = [example for example in examples if normalize_title(example.id) in parts[part]]
    if not examples:
        raise UsageError(f"expected records in {data}, got none; check the file and --part")
    return list(evenly_spread(examples, given["records"]))


def _evaluate(
    model: str,
    examples: "Sequence[SummaryExample]",
    target: Path,
    *,
    rouge: "Rouge",
    given: Mapping[str, Any],
    device: str,
    batch_tokens: int,
    quiet: bool,
) -> "tuple[SummaryEvaluation, dict[str, Any]]":
    """An evaluation, and what was read and how it was written."""
    from narrows.evaluation.summaries import evaluate_summaries
    from narrows.hf.seq2seq import input_encoder, load_seq2seq
    from narrows.hf.trained_inputs import TrainedInputs

    loaded, tokenizer = load_seq2seq(model)
    loaded.to(device)
    reading = _reading(loaded.config, model, given)
    how = TrainedInputs(**reading).make_truncation()
    encoder = input_encoder(
        tokenizer, truncation=how, max_tokens=reading["max_input_tokens"], prefix=reading.get("prefix", "")
    )
    writing = _writing(loaded.generation_config, given)
    with options.progress(len(examples), f"Summarising with {model}", quiet) as advance:
        found = evaluate_summaries(
            loaded,
            tokenizer,
            examples,
            encoder=encoder,
            rouge=rouge,
            predictions=target,
            reading=reading,
            options=writing,
            batch_tokens=batch_tokens,
            on_examples=advance,
        )
    return found, {**reading, **writing}


def _default_file(model: str, data: Path, part: str | None, given: Mapping[str, Any]) -> Path:
    """As of a reader, with the options that change what is written in its name: each has a file of its own."""
    path = default_file(model, data, part)
    # A prefix holds what no file's name should; two that look alike are told apart by what is kept in the file.
    values = {name: re.sub(r"[^\w+.]+", "_", str(given[name])) for name in _CHANGING if given[name] is not None}
    changes = [f"-{name}-{value}" for name, value in values.items()]
    return path.with_name(f"{path.stem}{''.join(changes)}{path.suffix}")


def _reading(config: Any, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The longest input, the truncation and a prefix: what was given, else what the model was trained on."""
    from narrows.hf.trained_inputs import trained_inputs

    trained = trained_inputs(config)
    length = given["max_input_tokens"] or (None if trained is None else trained.max_input_tokens)
    if length is None:
        raise UsageError(
            f"expected --max-input-tokens, since {model} does not say what it was trained to read, got none; "
            "pass it, such as 16384"
        )
    prefix = given["prefix"]
    if prefix is None and trained is not None:
        prefix = trained.prefix
    # Left out where there is none: a file of an evaluation from before there were prefixes is gone on with.
    before = {"prefix": prefix} if prefix else {}
    if trained is None:
        how: Mapping[str, Any] = {"name": given["truncation"] or "head"}
    else:
        how = trained.truncation_named(given["truncation"] or trained.truncation["name"])
    return {"max_input_tokens": length, "truncation": dict(how), **before}


def _writing(generation: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `generate`, said also where they are the model's own, so that they stand among the figures."""
    return {
        "num_beams": given["beams"] or generation.num_beams or 1,
        "max_new_tokens": given["max_new_tokens"] or generation.max_new_tokens,
    }


def _check_rival(against: str, given: Mapping[str, Any]) -> None:
    """Refuse what nothing can be compared with, before the hours that the model itself may take."""
    from transformers import AutoConfig

    from narrows.cli.convert import require_checkpoint
    from narrows.evaluation.summaries import read_summaries_written
    from narrows.hf.checkpoints import checkpoint_folder
    from narrows.hf.seq2seq import load_seq2seq_tokenizer

    if against.endswith(".jsonl"):
        if not Path(against).is_file():
            raise UsageError(f"expected predictions at {against}, got no such file; check --against")
        read_summaries_written(Path(against))
        return
    require_checkpoint(against)
    if not is_summariser(against):
        raise UsageError(f"expected another summariser for --against, got {against}; compare models of one kind")
    load_seq2seq_tokenizer(against)
    _reading(AutoConfig.from_pretrained(checkpoint_folder(against)), against, given)


def _rival(
    against: str,
    examples: "Sequence[SummaryExample]",
    data: Path,
    part: str | None,
    *,
    rouge: "Rouge",
    given: Mapping[str, Any],
    work: Mapping[str, Any],
) -> "Mapping[str, RougeScore]":
    """The scores of another model's summaries, or of those of a file."""
    from narrows.evaluation.summaries import read_summaries_written, score_texts

    if against.endswith(".jsonl"):
        return score_texts(read_summaries_written(Path(against)), examples, rouge=rouge)
    target = _default_file(against, data, part, given)
    return _evaluate(against, examples, target, rouge=rouge, given=given, **work)[0].scores


def _figures(
    found: "SummaryEvaluation",
    *,
    model: str,
    data: Path,
    part: str | None,
    reading: Mapping[str, Any],
    words: str,
) -> dict[str, Any]:
    from importlib.metadata import version

    rouge = found.rouge._asdict()
    total = rouge.pop("total")
    return {
        "model": model,
        "data": data.name,
        "part": part,
        "records": total,
        "rouge": {name: interval._asdict() for name, interval in rouge.items()},
        "words": words,
        "reading": reading,
        "tokens": found.tokens,
        "tokens_not_read": found.dropped,
        "records_cut": found.cut,
        "versions": {package: version(package) for package in ("narrows", "torch", "transformers", "rouge-score")},
    }


def _print_table(figures: Mapping[str, Any]) -> None:
    for name, label in _NAMES.items():
        value = figures["rouge"][name]
        typer.echo(f"{label:<22}{value['mean']:>8.2f}  [{value['low']:.2f}, {value['high']:.2f}]")
    typer.echo(f"{'records':<22}{figures['records']:>8,}")
    typer.echo(f"{'records cut':<22}{figures['records_cut']:>8,}")
    typer.echo(f"{'tokens not read':<22}{figures['tokens_not_read']:>8,}  of {figures['tokens']:,}")
    for name, other in figures.get("against", {}).get("differences", {}).items():
        interval = f"[{other['low']:+.2f}, {other['high']:+.2f}]"
        typer.echo(f"{_NAMES[name] + ' over the other':<26}{other['mean_difference']:>+8.2f}  {interval}")
