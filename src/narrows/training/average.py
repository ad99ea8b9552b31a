"""One model out of several of a kind: `python -m narrows.training.average OUT MODEL MODEL …`.

Models that were trained from one start lie in one valley as a rule, and the mean of their weights is better than each
(Wortsman et al. 2022, "Model soups"), at the cost of one. Whether it is here, `narrows evaluate` tells on tune data.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoTokenizer

from narrows._plural import count
from narrows.errors import NarrowsError, UsageError
from narrows.evaluation.run import load_span_model
from narrows.hf.tokenizers import tokenizer_digest
from narrows.training.writing import require_place, written_whole

__all__ = ["average_models"]


def average_models(checkpoints: Sequence[str | Path]) -> Any:
    """The model whose weights are the mean of several models' weights.

    Args:
        checkpoints: two or more span models of one shape, split layer and tokenizer, trained from one start.

    Returns:
        The mean, in fp32, with the first model's config.

    Raises:
        UsageError: fewer than two, or models that differ in shape, split layer or tokenizer.
        ConversionError: a checkpoint without a trained span head.
    """
    if len(checkpoints) < 2:
        raise UsageError(f"expected two models or more to average, got {len(checkpoints)}; name another one")
    mean, tokenizer = load_span_model(checkpoints[0])
    split_layer = getattr(mean.config, "split_layer", None)
    tensors: dict[str, Tensor] = {name: tensor.double() for name, tensor in mean.state_dict().items()}
    for checkpoint in checkpoints[1:]:
        model, other = load_span_model(checkpoint)
        added = model.state_dict()
        same = {name: tensor.shape for name, tensor in added.items()} == {n: t.shape for n, t in tensors.items()}
        if not same or getattr(model.config, "split_layer", None) != split_layer:
            raise UsageError(
                f"expected models of one shape and split layer, got {checkpoints[0]} and {checkpoint}; "
                "average models of one kind"
            )
        if tokenizer_digest(other) != tokenizer_digest(tokenizer):
            raise UsageError(
                f"expected models of one tokenizer, got another in {checkpoint} than in {checkpoints[0]}; "
                "average models of one kind"
            )
        for name, tensor in added.items():
            tensors[name] += tensor.double()
    mean.load_state_dict({name: (tensor / len(checkpoints)).float() for name, tensor in tensors.items()})
    return mean


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line, whose help tells the arguments; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m narrows.training.average", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the new model")
    parser.add_argument("models", nargs="+", help="checkpoints of span models, trained from one start")
    arguments = parser.parse_args(argv)
    try:
        if arguments.out.exists():
            raise UsageError(f"expected a new folder to write to, got {arguments.out}, which is there; choose another")
        require_place(arguments.out)
        model = average_models(arguments.models)
        tokenizer, card = AutoTokenizer.from_pretrained(arguments.models[0]), _card(arguments.models)
        with written_whole(arguments.out) as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            if card:
                (folder / "README.md").write_text(card, encoding="utf-8")
    except NarrowsError as error:
        parser.exit(error.exit_code, f"narrows: error: {error}\n")
    parser.exit(0, f"{arguments.out}: the mean of {count(len(arguments.models), 'model')}\n")


def _card(models: Sequence[str]) -> str:
    """The first model's card, if it has one, with what it was averaged with."""
    readme = Path(models[0]) / "README.md"
    if not readme.is_file():
        return ""
    made_of = ", ".join(f"`{_name_of(Path(name).resolve())}`" for name in models)
    note = (
        f"The mean of the weights of {made_of} (`python -m narrows.training.average`); the card, its scores included, "
        "is the first one's."
    )
    return f"{readme.read_text(encoding='utf-8')}\n{note}\n"


def _name_of(model: Path) -> str:
    """The run that a model is the outcome of, or with the checkpoint where it is one on the way."""
    return model.parent.name if model.name == "model" else f"{model.parent.name}/{model.name}"


if __name__ == "__main__":
    main()
