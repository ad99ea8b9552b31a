"""The recipe of an encoder that is pretrained on raw text by predicting hidden tokens."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from narrows._plural import count
from narrows.data.masking import PREDICTED_SHARE
from narrows.errors import RecipeError
from narrows.training.sections import CardText, OptimiserSection, Recipe, Section

__all__ = [
    "MaskingSection",
    "PretrainingDataSection",
    "PretrainingEvaluateSection",
    "PretrainingModelSection",
    "PretrainingOptimiser",
    "PretrainingRecipe",
    "RawPart",
    "StepsSection",
]


class PretrainingModelSection(Section):
    """Attributes:
    checkpoint: folder, hub id, or the output of another run, to go on with; or `family`, or `preset`.
    family: model type of transformers, or of this library, that has a masked language model; random weights.
    preset: a Funnel by the paper's name, such as B4-4-4H768; random weights.
    config: fields of that family's config; the others have its defaults, or the preset's. The vocabulary is the
        tokenizer's.
    tokenizer: beside `family` or `preset`: a folder under that of the runs or of the data, or a checkpoint; `bytes` is
        `narrows.hf.byte_tokenizer`, and a folder of that name is `./bytes`.
    attention: implementation, as transformers names them; the model's default when empty. On a CPU `eager` trains
        faster.
    """

    checkpoint: str | None = None
    family: str | None = None
    preset: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    tokenizer: str | None = None
    attention: str | None = None


class RawPart(Section):
    """Raw text.

    Attributes:
        file: path under the data folder; of several files with `*`, in the order of their names.
        format: how documents are told apart, of `narrows.data.RAW_LAYOUTS`.
    """

    file: str
    format: Literal["text", "lines", "file", "articles"] = "text"


class PretrainingDataSection(Section):
    """Attributes:
    train: a part that stands twice is seen twice.
    tune: documents to evaluate on.
    tune_share: without `tune`, share of the training documents that is held out for it.
    length: tokens of every row, special ones among them.
    segments: 2: pairs, of which one half follows in the text; whether they do is kept and not learnt, as in the paper.
    """

    train: list[RawPart] = Field(min_length=1)
    tune: list[RawPart] = Field(default_factory=list)
    tune_share: float = Field(0.0, ge=0, lt=1)
    length: int = Field(512, ge=8)
    segments: Literal[1, 2] = 1

    @property
    def tunes(self) -> bool:
        """Whether there is anything to evaluate on."""
        return bool(self.tune) or self.tune_share > 0


class MaskingSection(Section):
    """See `narrows.data.mask_tokens`.

    Attributes:
        num_predict: tokens of a row; a sixth when empty, which is the paper's 85 of 512.
        hide_keys: predicted places are not looked at by attention, as in the paper's code for masked language models.
    """

    strategy: Literal["single_token", "whole_word", "token_span", "word_span"] = "single_token"
    num_predict: int | None = Field(None, ge=1)
    as_mask: float = Field(0.8, ge=0, le=1)
    as_random: float = Field(0.1, ge=0, le=1)
    hide_keys: bool = False

    def predicted(self, length: int) -> int:
        """Tokens of a row to predict."""
        return int(length * PREDICTED_SHARE) if self.num_predict is None else self.num_predict


class StepsSection(OptimiserSection):
    """Attributes:
    steps: of the optimiser, in all; or `epochs`.
    epochs: passes over the rows; 1 when neither is given.
    gradient_checkpointing: compute layers again in the backward pass, for memory.
    """

    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0, le=1000)  # type: ignore[assignment]
    gradient_checkpointing: bool = False

    def check_steps(self, path: Path) -> None:
        """Refuse both.

        Raises:
            RecipeError: steps and epochs.
        """
        if self.steps is not None and self.epochs is not None:
            raise RecipeError(
                f"expected optimiser.steps or optimiser.epochs in {path}, got both; leave one of them out"
            )


class PretrainingOptimiser(StepsSection):
    """The common section with the Funnel paper's settings as defaults.

    Attributes:
        learning_rate: when empty, 1e-4, and 8e-5 for more than 24 layers, where 1e-4 was not stable.
        warmup: share of the steps. When empty, the paper's 10,000 steps, and a tenth of a run that is shorter than ten
            times that.
        beta2: of AdamW.
        dropout: of hidden states and of attention, where `model.config` does not say.
    """

    learning_rate: float | None = Field(None, gt=0)  # type: ignore[assignment]
    warmup: float | None = Field(None, ge=0, lt=1)  # type: ignore[assignment]
    beta2: float = Field(0.99, gt=0, lt=1)
    dropout: float = Field(0.1, ge=0, lt=1)


class PretrainingEvaluateSection(Section):
    """Attributes:
    limit: tune rows, evenly spread, that an evaluation reads; none: all.
    """

    limit: int | None = Field(None, ge=1)


class PretrainingRecipe(Recipe):
    """A whole run of one encoder."""

    task: Literal["masked-lm"]  # type: ignore[assignment]
    model: PretrainingModelSection
    data: PretrainingDataSection
    masking: MaskingSection = MaskingSection()  # type: ignore[call-arg]
    optimiser: PretrainingOptimiser = PretrainingOptimiser()  # type: ignore[call-arg]
    evaluate: PretrainingEvaluateSection = PretrainingEvaluateSection()  # type: ignore[call-arg]

    @property
    def batch_rows(self) -> int:
        """Rows of a forward pass."""
        return self.optimiser.batch_tokens // self.data.length

    def check(self, path: Path) -> None:
        """Where the model comes from, and numbers that go together.

        Raises:
            RecipeError: they do not.
        """
        self._check_model(path)
        if self.data.tune and self.data.tune_share:
            raise RecipeError(
                f"expected data.tune or data.tune_share in {path}, got both; name the documents or hold some out"
            )
        self.optimiser.check_steps(path)
        if self.batch_rows < 1:
            raise RecipeError(
                f"expected optimiser.batch_tokens in {path} of at least a row, {self.data.length}, got "
                f"{self.optimiser.batch_tokens}; raise it"
            )
        masking = self.masking
        if masking.as_mask + masking.as_random > 1 + 1e-9:
            raise RecipeError(
                f"expected masking.as_mask and masking.as_random in {path} of 1 together at most, got "
                f"{masking.as_mask} and {masking.as_random}; lower one of them"
            )
        room = self.data.length - self.data.segments - 1
        if masking.predicted(self.data.length) > room:
            raise RecipeError(
                f"expected masking.num_predict in {path} of at most {room}, the text of a row of data.length "
                f"{self.data.length}, got {masking.num_predict}; lower it"
            )

    def _check_model(self, path: Path) -> None:
        model = self.model
        named = [name for name in ("checkpoint", "family", "preset") if getattr(model, name) is not None]
        if len(named) != 1:
            raise RecipeError(
                f"expected one of model.checkpoint, model.family and model.preset in {path}, got "
                f"{' and '.join(named) or 'none'}; name one of them"
            )
        if model.checkpoint is None and model.tokenizer is None:
            raise RecipeError(f"expected model.tokenizer in {path} beside model.{named[0]}, got none; name one")
        if model.checkpoint is not None and (model.config or model.tokenizer is not None):
            raise RecipeError(
                f"expected no model.{'config' if model.config else 'tokenizer'} in {path} beside model.checkpoint, "
                "which has its own; leave it out"
            )

    def checkpoints(self) -> tuple[str, ...]:
        """The model's, where it starts from one."""
        return () if self.model.checkpoint is None else (self.model.checkpoint,)

    def card_text(self) -> CardText:
        """What such an encoder is."""
        data = self.data
        tune = [f"- tune: `{part.file}`" for part in data.tune]
        if data.tune_share:
            tune = [f"- tune: {data.tune_share:.1%} of the documents"]
        return CardText(
            family=self.model.family or ("masked-lm" if self.model.preset is None else "narrows-funnel"),
            pipeline="fill-mask",
            about=(
                f"An encoder pretrained on raw text, rows of {count(data.length, 'token')} of which it predicts "
                f"{self.masking.predicted(data.length)}, chosen by `{self.masking.strategy}`. Loads with "
                "`AutoModelForMaskedLM`, after `narrows.register_all()` if it is of a family of narrows."
            ),
            data="\n".join([*(f"- train: `{part.file}`" for part in data.train), *tune]),
        )
