"""`narrows generate`: a text goes on, by any causal language model."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.serving.generator import Sampling

__all__ = ["command"]


def command(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the text begins with; - is stdin, '' nothing.")],
    model: options.Model,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Tokens that are written at most.")
    ] = 256,
    sample: Annotated[bool, typer.Option("--sample", help="Draw each token, instead of taking the likeliest.")] = False,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="With --sample: below 1 likely tokens become likelier.", show_default="1"),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", help="With --sample: only the likeliest so many.", show_default="all"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", help="With --sample: only the likeliest of this probability.", show_default="1"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="With --sample: of the draw.", show_default="0")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a text, by a bottleneck model or any other causal language model.

    The prompt and what follows it are written to stdout as they come; how many tokens, how fast, and what was
    remembered of them is told on stderr.
    """
    from narrows.cli.convert import require_checkpoint

    require_checkpoint(model)
    sampling = _sampling(sample, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    if prompt == "-":
        prompt = _from_stdin()
    from transformers.utils import logging

    from narrows.serving.generator import Generator

    logging.disable_progress_bar()
    generator = Generator.from_pretrained(model, device=device, dtype=dtype)
    if not json:
        _write(prompt)
    found = generator.generate(
        prompt, max_new_tokens=max_new_tokens, sampling=sampling, on_text=None if json else _write
    )
    if json:
        options.emit_json({"prompt": prompt, **found._asdict()})
    else:
        _write("\n")
    remembered = f", {found.cache_bytes / 1e6:.1f} MB remembered" if found.cache_bytes else ""
    speed = found.tokens / max(found.seconds, 1e-9)
    options.stderr_console(quiet=quiet).print(
        f"{count(found.prompt_tokens, 'token')} read, {found.tokens:,} written at {speed:,.0f} a second{remembered}",
        markup=False,
        soft_wrap=True,
    )


def _sampling(sample: bool, given: dict[str, float | int | None]) -> "Sampling | None":
    chosen = {name: value for name, value in given.items() if value is not None}
    if not sample:
        if chosen:
            name = next(iter(chosen)).replace("_", "-")
            raise UsageError(f"expected --sample beside --{name}, got --{name} alone; add it or leave this out")
        return None
    from narrows.serving.generator import Sampling

    return Sampling(**chosen)  # type: ignore[arg-type]


def _from_stdin() -> str:
    content = options.stdin_bytes().read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"expected UTF-8 on stdin, got another encoding (byte {error.start:,}); convert it first"
        ) from error


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
