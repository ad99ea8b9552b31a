"""The recipe of a small encoder that learns to find planted facts; see `narrows.data.planted`."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from narrows.errors import RecipeError
from narrows.training.sections import CardText, OptimiserSection, Recipe, Section

__all__ = ["PlantedDataSection", "PlantedModelSection", "PlantedRecipe"]


class PlantedModelSection(Section):
    """An encoder of T5's kind with random weights.

    Attributes:
        attention: `local` and `tglobal` are transformers' LongT5, `fixed` and `dynamic` are Mulla.
        local_radius: tokens that a query sees to each side. Layers × radius is as far as local attention carries.
        pooling_rate, num_levels: of Mulla; empty: those that the variant has by default.
        global_block_size: tokens a global token of `tglobal` sums up.
        start: output of another run with LongT5's attention and the same shape, which is converted to a Mulla.
        new_tables: what the tables of fixed levels then start from, as `narrows convert` has it.
    """

    attention: Literal["local", "tglobal", "fixed", "dynamic"]
    layers: int = Field(4, ge=1)
    width: int = Field(128, ge=8)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(256, ge=8)
    local_radius: int = Field(15, ge=1)
    pooling_rate: int | None = Field(None, ge=2)
    num_levels: int | None = Field(None, ge=1)
    global_block_size: int = Field(16, ge=1)
    start: str | None = None
    new_tables: Literal["local", "global"] = "local"


class PlantedDataSection(Section):
    """Attributes:
    train_text, test_text: files of running text, plain or gz; the words of one are never seen with the other.
    vocabulary, names, values, facts, questions: see `PlantedFacts`.
    lengths: tokens of the training texts, in turn.
    texts: training texts an epoch.
    test_lengths: tokens of the test texts; longer ones than `lengths` ask for what was not trained.
    tests: texts a test length.
    """

    train_text: str
    test_text: str
    vocabulary: int = Field(1000, ge=10)
    names: int = Field(32, ge=1)
    values: int = Field(32, ge=2)
    facts: int = Field(1, ge=1)
    questions: int = Field(16, ge=1)
    lengths: list[int] = Field(min_length=1)
    texts: int = Field(10_000, ge=1)
    test_lengths: list[int] = Field(min_length=1)
    tests: int = Field(200, ge=1)


class PlantedRecipe(Recipe):
    """A whole run of one encoder."""

    task: Literal["planted-facts"]  # type: ignore[assignment]
    model: PlantedModelSection
    data: PlantedDataSection
    optimiser: OptimiserSection = OptimiserSection()  # type: ignore[call-arg]

    @property
    def reach(self) -> int:
        """Tokens that local attention of these layers carries a fact."""
        return self.model.layers * self.model.local_radius

    def check(self, path: Path) -> None:
        """Options of one attention are refused by name for another.

        Raises:
            RecipeError: such an option, a width that the heads do not divide, or a batch smaller than a text.
        """
        model = self.model
        mulla = model.attention in ("fixed", "dynamic")
        if model.pooling_rate is not None and not mulla:
            raise RecipeError(
                f"expected no 'model.pooling_rate' in {path} with attention {model.attention!r}, got "
                f"{model.pooling_rate}; remove it"
            )
        if model.num_levels is not None and model.attention != "fixed":
            raise RecipeError(
                f"expected no 'model.num_levels' in {path} with attention {model.attention!r}, got "
                f"{model.num_levels}; remove it"
            )
        if model.start is not None and not mulla:
            raise RecipeError(
                f"expected no 'model.start' in {path} with attention {model.attention!r}, got {model.start!r}; nothing "
                "is converted to it: remove it"
            )
        if model.width % model.heads:
            raise RecipeError(
                f"expected 'model.width' in {path} to be a multiple of the {model.heads} heads, got {model.width}; "
                "change one of them"
            )
        if max(self.data.lengths) > self.optimiser.batch_tokens:
            raise RecipeError(
                f"expected 'optimiser.batch_tokens' in {path} of at least the longest text, {max(self.data.lengths)}, "
                f"got {self.optimiser.batch_tokens}; raise it"
            )

    def checkpoints(self) -> tuple[str, ...]:
        """The one whose encoder is converted, where there is one."""
        return () if self.model.start is None else (self.model.start,)

    def card_text(self) -> CardText:
        """What such an encoder is."""
        return CardText(
            family="mulla",
            about=f"A small encoder with {self.model.attention} attention that finds facts planted in long texts.",
            data=f"- train: facts in `{self.data.train_text}`\n- test: facts in `{self.data.test_text}`",
        )
