"""Writes expressions of ListOps to train, tune and test on: `python -m narrows.data.listops OUT`.

Without options: those of Long Range Arena, 96,000, 2,000 and 2,000 expressions of 500 to 2,000 tokens. OUT becomes a
folder with train.tsv.gz, tune.tsv.gz, test.tsv.gz and listops.json; the format `listops` of a recipe reads them.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tqdm.auto import tqdm

from narrows._plural import count
from narrows.data.listops.write import write_listops
from narrows.errors import NarrowsError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line, whose help tells the arguments; ends the process."""
    summary, about = str(__doc__).split("\n\n", maxsplit=1)
    parser = argparse.ArgumentParser(prog="python -m narrows.data.listops", description=summary, epilog=about)
    parser.add_argument("out", type=Path, help="folder to make")
    for name, default, about in (
        ("rows", 96_000, "expressions to train on"),
        ("held-out", 2000, "expressions to tune by, and to test on"),
        ("least", 500, "tokens of the shortest"),
        ("most", 2000, "tokens of the longest"),
        ("max-depth", 10, "operators within one another, at most"),
        ("max-arguments", 10, "arguments of an operator, at most"),
        ("seed", 0, "of all that is drawn"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{about} (%(default)s)")
    arguments = parser.parse_args(argv)
    settings = {name: value for name, value in vars(arguments).items() if name != "out"}
    try:
        with tqdm(total=arguments.rows + 2 * arguments.held_out, desc="Writing", unit=" expressions") as bar:
            labels = write_listops(arguments.out, on_row=bar.update, **settings)
    except NarrowsError as error:
        parser.exit(error.exit_code, f"narrows: error: {error}\n")
    for part, found in labels.items():
        sys.stdout.write(f"{part}: {count(found.total(), 'expression')}, {_shares(found)}\n")


def _shares(labels: Counter[int]) -> str:
    return ", ".join(f"{label}: {labels[label] / labels.total():.1%}" for label in range(10))


if __name__ == "__main__":
    main()
