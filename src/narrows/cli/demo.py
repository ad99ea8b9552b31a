"""`narrows demo`: the main job from end to end, on a small library."""

import json as jsonlib
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.cli.index import index_progress, look_at, reasons_of_failure, show_report, show_skipped, show_unknown
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.serving import Reader, Result
    from narrows.store import Store

# Chosen by document and style, one a document, before any answer was seen; then every third of those without an answer.
QUESTIONS = ("q01", "q09", "q10", "q18", "q22", "q29", "q30", "q34", "q46", "q55", "q58", "q61", "q64", "q67")
_CANDIDATES = 32
_ROUNDS = 5
_MEASURE_SECONDS = 40.0
_RIGHT = 0.8


def command(
    library: Annotated[
        Path | None, typer.Option("--library", help="Folder of documents.", show_default="examples/library")
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option("--questions", help="JSON Lines of questions.", show_default="questions.jsonl beside the library"),
    ] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Keep the store here.", show_default="not kept")] = None,
    model: options.OptionalModel = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read a small library, ask it questions, and show what was saved.

    Without --model the reader that comes with narrows answers.
    """
    import tempfile

    from narrows.cli.ask import load_reader, show_result
    from narrows.serving.indexing import index_folder

    library = library or _examples() / "library"
    asked = _chosen(questions or library.parent / "questions.jsonl")
    reader = load_reader(model, device="cpu", precision="float32", batch_tokens=8192)
    with ExitStack() as stack:
        place = store or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="narrows-"))) / "library"
        _say(f"Reader: {_name_of(model, reader)}\n", json=json)
        with reasons_of_failure() as on_problem, index_progress(quiet=quiet) as advance:
            report = index_folder(library, place, reader.engine, on_progress=advance, on_problem=on_problem)
        info = look_at(place)
        if not quiet:
            show_skipped(report.skipped)
            show_unknown(report.unknown)
        if not json:
            show_report(report, info)
        opened = stack.enter_context(reader.open_store(place))
        rows = []
        for question in asked:
            result = reader.ask(opened, question["question"], candidates=_CANDIDATES, top_k=1)
            rows.append({"id": question["id"], "right": is_right(result, question), **result.as_dict()})
            if not json:
                typer.echo(f"\n{question['question']}")
                show_result(result)
                typer.echo(_verdict(result, question))
        right = sum(row["right"] for row in rows)
        _say(f"\n{right} of these {len(rows)} right; `narrows bench deformer` asks all of them.", json=json)
        faster = load_reader(model, device="cpu", precision="bfloat16", batch_tokens=8192)
        times = measure(reader, faster, opened, asked[0]["question"])
    if json:
        store_numbers = {key: value for key, value in vars(info).items() if key != "fingerprint"}
        options.emit_json({"store": store_numbers, "questions": rows, "seconds": times})
    else:
        _show_times(times)


def is_right(result: "Result", question: dict[str, Any]) -> bool:
    """Whether the first answer is an expected one in its document (word F1 of 0.8), or rightly refused."""
    from narrows.evaluation.metrics import f1

    first = result.answers[0]
    if not question["answers"] or result.refused:
        return result.refused and not question["answers"]
    golds = [gold["text"] for gold in question["answers"] if gold["document"] == first.document]
    return bool(golds) and f1(first.answer, golds) >= _RIGHT


def measure(reader: "Reader", faster: "Reader", store: "Store", question: str) -> dict[str, float]:
    """Median seconds of a question over its stored passages, and of transformers' joint model over the same.

    The joint model has the sizes of ours and random weights, which take the time that trained ones take. Ours
    includes the search and loading the states; the joint model starts from token ids that are ready.
    `faster` is the same reader with bf16 above the split, which reads the same store.
    """
    from narrows.bench.probes import in_turn

    found = store.load([each.row_id for each in reader.find(store, question, candidates=_CANDIDATES)])
    passages = [ids.tolist() for ids in found.token_ids]
    contenders: dict[str, Callable[[], object]] = {
        "stored": lambda: reader.ask(store, question, candidates=_CANDIDATES, top_k=1),
        "stored, bf16": lambda: faster.ask(store, question, candidates=_CANDIDATES, top_k=1),
    }
    read = _joint_reading(reader, question, passages)
    contenders[f"joint, batch {len(passages)}"] = lambda: read(len(passages))
    contenders["joint, batch 1"] = lambda: read(1)
    times = in_turn(contenders, rounds=_ROUNDS, seconds=_MEASURE_SECONDS)
    counts = {"passages": len(passages), "rounds": len(times["stored"])}
    return counts | {name: statistics.median(took) for name, took in times.items()}


def _joint_reading(reader: "Reader", question: str, passages: Sequence[list[int]]) -> Callable[[int], list[Any]]:
    """Gives a function that reads all passages jointly with the question, in batches of a size."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    engine, config = reader.engine, reader.engine.config
    sizes = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
    )
    model = BertForQuestionAnswering._from_config(
        BertConfig(**{name: getattr(config, name) for name in sizes}), attn_implementation="sdpa"
    ).eval()
    tokenizer = engine.tokenizer
    head = [tokenizer.cls_token_id, *engine.tokenize([question])[0].ids, tokenizer.sep_token_id]
    joined = sorted(([*head, *ids] for ids in passages), key=len, reverse=True)

    def batch(rows: list[list[int]]) -> dict[str, torch.Tensor | None]:
        longest = len(rows[0])
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        places = torch.arange(longest).expand_as(ids)
        mask = None if len(rows[-1]) == longest else (places < lengths[:, None]).long()
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (places >= len(head)).long()}

    def read(size: int) -> list[Any]:
        with torch.inference_mode():
            return [model(**batch(joined[at : at + size])) for at in range(0, len(joined), size)]

    return read


def _examples() -> Path:
    """The folder `examples`: here, or in the checkout that narrows runs from."""
    for folder in (Path("examples"), Path(__file__).resolve().parents[3] / "examples"):
        if (folder / "library").is_dir():
            return folder
    raise UsageError(
        "expected the folder examples/library here or in narrows' checkout, but there is none; "
        "name a folder with --library"
    )


def _chosen(file: Path) -> list[dict[str, Any]]:
    """The fixed selection of a file of questions; the first ten when it has none of them."""
    try:
        found = [jsonlib.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        known = [_known(question) for question in found]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f'expected lines of {{"id", "question", "answers"}} in {file}, but it cannot be read as such '
            f"({type(error).__name__}); name another file with --questions"
        ) from error
    chosen = [question for question in known if question["id"] in QUESTIONS] or known[: len(QUESTIONS)]
    if not chosen:
        raise UsageError(f"expected questions in {file}, but it is empty; name another file with --questions")
    return chosen


def _known(question: dict[str, Any]) -> dict[str, Any]:
    """The fields of a question that are looked at; an error of Python's where one is missing or of another kind."""
    golds = [{"text": gold["text"], "document": gold["document"]} for gold in question["answers"]]
    for text in (question["question"], *(text for gold in golds for text in gold.values())):
        if not isinstance(text, str):
            raise TypeError("no text")
    return {"id": question["id"], "question": question["question"], "answers": golds}


def _name_of(model: str | None, reader: "Reader") -> str:
    config = reader.engine.config
    split = f"layers 1 to {config.split_layer} of {config.num_hidden_layers} stored"
    if model is not None:
        return f"{model}, {split}"
    from importlib.resources import files

    card = files("narrows.deformer") / "weights" / "reader" / "README.md"
    lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
    title = next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "shipped with narrows")
    label = " (preliminary weights)" if any("preliminary" in line.lower() for line in lines) else ""
    return f"{title}{label}, {split}"


def _verdict(result: "Result", question: dict[str, Any]) -> str:
    expected = " / ".join(gold["text"] for gold in question["answers"]) or "no answer"
    return "  ✓ right" if is_right(result, question) else f"  ✗ expected: {expected}"


def _show_times(times: dict[str, float]) -> None:
    joint = {name: took for name, took in times.items() if name.startswith("joint")}
    ours, faster = times["stored"], times["stored, bf16"]
    passages, rounds = round(times["passages"]), round(times["rounds"])
    typer.echo(f"\nOne question over {count(passages, 'passage')}, median of {count(rounds, 'run')} in turn:")
    typer.echo(f"  stored passages, search and loading included   {1000 * ours:8.1f} ms")
    typer.echo(f"  the same, --precision bfloat16                 {1000 * faster:8.1f} ms")
    for name, took in joint.items():
        times_ours = f"{took / ours:.1f}× and {took / faster:.1f}× ours"
        typer.echo(f"  {f'transformers {name}':<45}  {1000 * took:8.1f} ms   {times_ours}")
    typer.echo("  (the joint model has the same sizes, sdpa and random weights: it is there for its time only)")


def _say(text: str, *, json: bool) -> None:
    if not json:
        typer.echo(text)
