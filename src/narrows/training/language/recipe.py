"""The recipe of a causal language model, over bytes or subwords."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from narrows._plural import count
from narrows.errors import RecipeError
from narrows.hf.byte_tokenizer import BYTES
from narrows.training.pretraining.recipe import RawPart, StepsSection
from narrows.training.sections import CardText, Recipe, Section

__all__ = [
    "LanguageDataSection",
    "LanguageEvaluateSection",
    "LanguageModelSection",
    "LanguageOptimiser",
    "LanguageRecipe",
]

_PARTS = 3
_NEW_RATE = 1e-3
_FURTHER_RATE = 5e-5


class LanguageModelSection(Section):
    """Attributes:
    checkpoint: folder, hub id, or the output of another run, to go on with; or `family`.
    family: model type of transformers, or of this library, that has a causal language model; random weights.
    config: fields of that family's config; the others have its defaults. The vocabulary is the tokenizer's.
    tokenizer: `bytes`: 260 ids, of which the first 256 are the values of a byte; or a folder under that of the runs or
        of the data, or a checkpoint. Beside `checkpoint` it may be left out: as that reads.
    attention: implementation, as transformers names them; the model's default when empty.
    """

    checkpoint: str | None = None
    family: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    tokenizer: str | None = None
    attention: str | None = None


class LanguageDataSection(Section):
    """Attributes:
    train: a part that stands twice is seen twice. `format` is of subwords only: bytes are read as they stand.
    tune: text to evaluate on.
    test: text that the model of a run is scored on, once.
    split: in the place of `tune` and `test`: shares of all bytes of the train files in their order, which are
        trained on, evaluated on and tested on.
    length: tokens that the model reads in a row, each of which foretells the next.
    """

    train: list[RawPart] = Field(min_length=1)
    tune: list[RawPart] = Field(default_factory=list)
    test: list[RawPart] = Field(default_factory=list)
    split: list[float] | None = Field(None, min_length=_PARTS, max_length=_PARTS)
    length: int = Field(512, ge=2)

    @property
    def tunes(self) -> bool:
        """Whether there is anything to evaluate on."""
        return bool(self.tune) or self.split is not None

    @property
    def tests(self) -> bool:
        """Whether there is anything to test on."""
        return bool(self.test) or self.split is not None

    def parts(self) -> dict[str, Sequence[RawPart]]:
        """The named files by what they are for."""
        return {"train": self.train, "tune": self.tune, "test": self.test}


class LanguageOptimiser(StepsSection):
    """The common section, with AdamW as language models are trained with it.

    Attributes:
        batch_tokens: tokens of a forward pass.
        learning_rate: when empty, 1e-3 of random weights and 5e-5 of a checkpoint that goes on.
        beta2: of AdamW.
        dropout: in the place of all rates of the model, where `model.config` does not say.
    """

    batch_tokens: int = Field(8192, ge=2)
    learning_rate: float | None = Field(None, gt=0)  # type: ignore[assignment]
    warmup: float = Field(0.05, ge=0, lt=1)
    beta2: float = Field(0.95, gt=0, lt=1)


class LanguageEvaluateSection(Section):
    """Attributes:
    limit: share of the tune text, its beginning, that an evaluation reads; none: all. Of subwords whole pieces of
        16,000 characters.
    stride: tokens that a window foretells anew, with at least `data.length` - `stride` before them; none:
        `data.length`, windows that do not overlap.
    """

    limit: float | None = Field(None, gt=0, le=1)
    stride: int | None = Field(None, ge=1)


class LanguageRecipe(Recipe):
    """A whole run of one causal language model."""

    task: Literal["causal-lm"]  # type: ignore[assignment]
    model: LanguageModelSection
    data: LanguageDataSection
    optimiser: LanguageOptimiser = LanguageOptimiser()  # type: ignore[call-arg]
    evaluate: LanguageEvaluateSection = LanguageEvaluateSection()  # type: ignore[call-arg]

    @property
    def batch_rows(self) -> int:
        """Rows of a forward pass."""
        return self.optimiser.batch_tokens // self.data.length

    @property
    def learning_rate(self) -> float:
        """Of the optimiser, where the recipe says none too."""
        usual = _NEW_RATE if self.model.checkpoint is None else _FURTHER_RATE
        return usual if self.optimiser.learning_rate is None else self.optimiser.learning_rate

    def check(self, path: Path) -> None:
        """Where the model and the data come from, and numbers that go together.

        Raises:
            RecipeError: they do not.
        """
        self._check_model(path)
        self._check_data(path)
        self.optimiser.check_steps(path)
        if self.batch_rows < 1:
            raise RecipeError(
                f"expected optimiser.batch_tokens in {path} of at least a row, {self.data.length}, got "
                f"{self.optimiser.batch_tokens}; raise it"
            )
        stride = self.evaluate.stride
        if stride is not None and stride > self.data.length:
            raise RecipeError(
                f"expected evaluate.stride in {path} of at most data.length, {self.data.length}, got {stride}; lower it"
            )

    def _check_model(self, path: Path) -> None:
        model = self.model
        if (model.checkpoint is None) == (model.family is None):
            got = "neither" if model.family is None else "both"
            raise RecipeError(f"expected model.checkpoint or model.family in {path}, got {got}; name one of them")
        if model.checkpoint is None and model.tokenizer is None:
            raise RecipeError(
                f"expected model.tokenizer in {path} beside model.family, got none; name one, or {BYTES!r}"
            )
        if model.checkpoint is not None and model.config:
            raise RecipeError(
                f"expected no model.config in {path} beside model.checkpoint, which has its own; leave it out"
            )

    def _check_data(self, path: Path) -> None:
        data = self.data
        if data.split is None:
            return
        named = [name for name in ("tune", "test") if getattr(data, name)]
        if named:
            raise RecipeError(
                f"expected data.split or data.{named[0]} in {path}, got both; cut the train files or name others"
            )
        if min(data.split) <= 0 or abs(sum(data.split) - 1) > 1e-6:  # noqa: PLR2004
            raise RecipeError(
                f"expected data.split in {path} as three shares above 0, 1 together, got {data.split}; mend them"
            )
        if self.model.tokenizer not in (None, BYTES):
            raise RecipeError(
                f"expected model.tokenizer {BYTES!r} in {path} beside data.split, which cuts bytes, got "
                f"{self.model.tokenizer!r}; name files under data.tune instead"
            )

    def checkpoints(self) -> tuple[str, ...]:
        """The model's, where it starts from one."""
        return () if self.model.checkpoint is None else (self.model.checkpoint,)

    def card_text(self) -> CardText:
        """What such a model is."""
        data, model = self.data, self.model
        reads = "bytes: the id of a byte is its value" if model.tokenizer == BYTES else "subwords"
        if model.tokenizer is None:
            reads = "what its start reads"
        files = [f"- {use}: `{part.file}`" for use, parts in data.parts().items() for part in parts]
        if data.split is not None:
            shares = ", ".join(f"{share:.4g}" for share in data.split)
            files.append(f"- of these, in their order, train, tune and test have the shares {shares}")
        stride = data.length if self.evaluate.stride is None else self.evaluate.stride
        return CardText(
            family=model.family or "causal-lm",
            pipeline="text-generation",
            about=(
                f"A causal language model over {reads}, trained on rows of {count(data.length, 'token')}. Loads with "
                "`AutoModelForCausalLM`, after `narrows.register_all()` if it is of a family of narrows. Scores are of "
                f"windows of {count(data.length, 'token')} that move on by {stride:,}: `loss` in nats a token, "
                "`bits_per_byte` of the text, `perplexity` of a token."
            ),
            data="\n".join(files),
            best=data.tunes,
            decimals=4,
        )
