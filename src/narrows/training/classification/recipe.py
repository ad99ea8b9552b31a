"""The recipe of an encoder that is fine-tuned on labelled data."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from narrows.data import CLASS_LAYOUTS, PROBLEMS
from narrows.errors import RecipeError
from narrows.training.sections import CardText, FineTuningSection, Recipe, Section, Times, require_once

__all__ = ["ClassDataSection", "ClassModelSection", "ClassRecipe", "LabelledPart"]

_METRICS = {
    "classes": ("accuracy", "f1", "matthews"),
    "regression": ("pearson", "spearman"),
    "choices": ("accuracy",),
    "tags": ("f1", "accuracy"),
}
_PIPELINES = {
    "classes": "text-classification",
    "regression": "text-classification",
    "choices": "multiple-choice",
    "tags": "token-classification",
}


class ClassModelSection(Section):
    """Attributes:
    checkpoint: folder or hub id of any encoder, or the output of another run.
    """

    checkpoint: str


class LabelledPart(Section):
    """One source of labelled examples; see `narrows.data.read_examples`.

    Attributes:
        format: a name of `narrows.data.CLASS_LAYOUTS`.
        file: path under the data folder: a file, a folder or a .zip, as the format has it.
        fields: names in the file of text, pair and label, or columns of word and tag.
        skip_broken: leave out lines with another number of columns, such as the few of QQP.
        folds: cut the examples (of each class, where there are classes) into so many parts, of which `take` names those
            that are kept, from 0.
        times: how often the part is seen in an epoch; of training data only.
    """

    format: str
    file: str
    fields: dict[str, str] = Field(default_factory=dict)
    skip_broken: bool = False
    folds: int | None = Field(None, ge=2)
    take: list[int] = Field(default_factory=list)
    times: Times = 1

    @field_validator("format")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in CLASS_LAYOUTS:
            raise ValueError(f"choose one of {', '.join(CLASS_LAYOUTS)}")
        return name


class ClassDataSection(Section):
    """Attributes:
    train: what is learnt.
    tune: by which the best checkpoint is chosen, and in a sweep the best learning rate.
    test: never looked at in training; a sweep that chooses scores its choice on it, once.
    tune_limit: examples, evenly spread.
    max_tokens: of a text or pair, special tokens included.
    truncate: whether longer ones are cut; otherwise they are refused.
    """

    train: list[LabelledPart] = Field(min_length=1)
    tune: list[LabelledPart] = Field(default_factory=list)
    test: list[LabelledPart] = Field(default_factory=list)
    tune_limit: int | None = Field(None, ge=1)
    max_tokens: int = Field(128, ge=4)
    truncate: bool = False


class ClassRecipe(Recipe):
    """A whole run of one classifier.

    Attributes:
        problem: `classes` of texts or pairs, `regression`, one of several `choices`, or `tags` of words.
        labels: in the model's order; those of the checkpoint where they are the same, otherwise the sorted ones of the
            training data.
        metric: by which the best checkpoint is chosen: `accuracy`, `f1`, `matthews`, `pearson` or `spearman`; the
            problem's first one when empty.
    """

    task: Literal["classification"]  # type: ignore[assignment]
    problem: Literal["classes", "regression", "choices", "tags"] = "classes"
    labels: list[str] = Field(default_factory=list)
    metric: str | None = None
    model: ClassModelSection
    data: ClassDataSection
    optimiser: FineTuningSection = FineTuningSection()  # type: ignore[call-arg]

    @property
    def chosen_metric(self) -> str:
        """The score by which the best checkpoint is chosen."""
        return self.metric or _METRICS[self.problem][0]

    def check(self, path: Path) -> None:
        """Formats and a metric for the problem, rows that fit into a batch.

        Raises:
            RecipeError: they do not go together.
        """
        data = self.data
        require_once(data.tune, "tune", path)
        require_once(data.test, "test", path)
        for part in (*data.train, *data.tune, *data.test):
            if CLASS_LAYOUTS[part.format].kind is not PROBLEMS[self.problem]:
                raise RecipeError(
                    f"expected data for the problem {self.problem!r} in {path}, got the format {part.format}; change "
                    "one of them"
                )
            if (part.folds is None) != (not part.take):
                raise RecipeError(
                    f"expected 'folds' and 'take' in {path} together, got {part.folds} and {part.take} for "
                    f"{part.file}; give both or neither"
                )
        if self.chosen_metric not in _METRICS[self.problem]:
            raise RecipeError(
                f"expected a metric of {self.problem} in {path} ({', '.join(_METRICS[self.problem])}), got "
                f"{self.metric!r}; choose one of them"
            )
        if self.labels and self.problem in ("regression", "choices"):
            raise RecipeError(
                f"expected no 'labels' in {path} for {self.problem}, which has none, got {self.labels}; remove them"
            )
        if data.max_tokens > self.optimiser.batch_tokens:
            raise RecipeError(
                f"expected 'optimiser.batch_tokens' in {path} of at least 'data.max_tokens', {data.max_tokens}, got "
                f"{self.optimiser.batch_tokens}; raise it"
            )

    def checkpoints(self) -> tuple[str, ...]:
        """The model's."""
        return (self.model.checkpoint,)

    def card_text(self) -> CardText:
        """What a classifier is."""
        data = self.data
        uses = (("train", data.train), ("tune", data.tune), ("test", data.test))
        lines = [f"- {use}: {_shown(part)}" for use, parts in uses for part in parts]
        about = (
            f"`{self.model.checkpoint}` fine-tuned on labelled data ({self.problem}), read up to {data.max_tokens} "
            f"tokens{' and cut there' if data.truncate else ''}.\nScores on test data: `narrows evaluate MODEL DATA "
            "--task classification`. Loads with transformers' Auto classes, after `narrows.register_all()` if it is of "
            "a family of narrows."
        )
        return CardText(family=self.problem, pipeline=_PIPELINES[self.problem], about=about, data="\n".join(lines))


def _shown(part: LabelledPart) -> str:
    folds = "" if part.folds is None else f", {len(part.take)} of {part.folds} folds"
    return f"`{part.file}` ({part.format}{folds})"
