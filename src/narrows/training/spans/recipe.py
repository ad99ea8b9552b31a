"""The recipe of a span reader: an encoder as it is, or a DeFormer: a joint teacher, a split model, a distilled one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from narrows._plural import count
from narrows.errors import RecipeError
from narrows.training.sections import CardText, FineTuningSection, Recipe, Section, Times, require_once

__all__ = ["DataPart", "DataSection", "LossSection", "ModelSection", "SpanRecipe", "TuneSection"]

# Formats whose articles a split names.
_WITH_TITLES = ("squad", "cloze")


class ModelSection(Section):
    """Attributes:
    checkpoint: folder, hub id, or the output of another run.
    split_layer: k of the DeFormer to train; none: the checkpoint is trained as the encoder that it is.
    head: of an encoder: `plain` (start and end logits), or a Funnel's `conditional` (the end given the start, and
        whether there is an answer); none: the checkpoint's own, plain where it has none.
    """

    checkpoint: str
    split_layer: int | None = Field(None, ge=0)
    head: Literal["plain", "conditional"] | None = None


class LossSection(Section):
    """γ·task + α·kd + β·lrs. `distance` is of LRS; `temperature` of KD."""

    task: float = Field(1.0, ge=0)
    kd: float = Field(0.0, ge=0)
    lrs: float = Field(0.0, ge=0)
    temperature: float = Field(2.0, gt=0)
    distance: Literal["mse", "euclidean"] = "mse"


class TuneSection(Section):
    """What is trained: everything, all layers but not the embeddings, the layers from the split up (and the
    head), or LoRA adapters on those layers. `layers` saves a tenth to a fifth of a step, since the word
    embeddings' gradient is dense. With `upper` and `lora` the layers below the split read every text once,
    before training, in fp32 and without dropout, into a file of the run's folder.
    """

    what: Literal["all", "layers", "upper", "lora"] = "all"
    lora_rank: int = Field(16, ge=1)


class DataPart(Section):
    """One source of examples.

    Attributes:
        format: `squad` (v1.1 or v2.0 JSON), `qamr` (JSONL), `pairs` (questions and texts without labels;
            see `narrows.data.read_pairs`), or `cloze` (running text, out of which questions are made; see
            `narrows.data.cloze`).
        file: path under the data folder, or under that of the runs, which is looked at first.
        split: of `squad` and `cloze`: JSON file with lists of titles by part, and the part taken.
        part: name of that part.
        answers: keep all questions, or only those with or without an answer.
        negatives: share of questions repeated with another passage that does not answer.
        join: contexts in a passage; above 1 the neighbours of an example's context in the file stand around it.
        times: how often the part is seen in an epoch; of training data only.
    """

    format: Literal["squad", "qamr", "pairs", "cloze"]
    file: str
    split: str | None = None
    part: str | None = None
    answers: Literal["all", "answerable", "unanswerable"] = "all"
    negatives: float = Field(0.0, ge=0, le=1)
    join: int = Field(1, ge=1)
    times: Times = 1


class DataSection(Section):
    """Attributes:
    train: what is learnt.
    tune: by which the best checkpoint is chosen.
    tune_limit: examples, evenly spread.
    max_question_tokens: longer questions are cut.
    max_passage_tokens: widest window over a passage.
    overlap: tokens that consecutive windows share at least.
    max_answer_tokens: longest answer that is given; none: as the checkpoint says, else 30.
    """

    train: list[DataPart] = Field(min_length=1)
    tune: list[DataPart] = Field(default_factory=list)
    tune_limit: int | None = Field(None, ge=1)
    max_question_tokens: int = Field(64, ge=1)
    max_passage_tokens: int = Field(320, ge=8)
    overlap: int = Field(128, ge=0)
    max_answer_tokens: int | None = Field(None, ge=1)


class SpanRecipe(Recipe):
    """A whole run of a span reader.

    Attributes:
        model: what is trained.
        teacher: checkpoint to distil from.
        losses: weights of what is minimised; distillation is of DeFormers.
        tune: what of a DeFormer is trained.
        optimiser: its `dropout` is none: a DeFormer is trained without, an encoder with its checkpoint's own rates.
    """

    task: Literal["question-answering"] = "question-answering"  # type: ignore[assignment]
    model: ModelSection
    teacher: str | None = None
    losses: LossSection = LossSection()  # type: ignore[call-arg]
    tune: TuneSection = TuneSection()  # type: ignore[call-arg]
    data: DataSection
    optimiser: FineTuningSection = FineTuningSection()  # type: ignore[call-arg]

    def check(self, path: Path) -> None:
        """Losses and what they need, and keys that are of DeFormers only or of other encoders only.

        Raises:
            RecipeError: a distillation without a teacher, no loss at all, or a key that the model or a part of the data
                has no use for.
        """
        if (self.losses.kd or self.losses.lrs) and self.teacher is None:
            raise RecipeError(
                f"expected `teacher` in {path} since losses.kd or losses.lrs is above 0, got none; "
                "name a checkpoint or set both to 0"
            )
        if not (self.losses.task or self.losses.kd or self.losses.lrs):
            raise RecipeError(f"expected a loss above 0 in {path}, got 0 for task, kd and lrs; raise one of them")
        self._check_parts(path)
        if self.model.split_layer is None:
            self._check_encoder(path)
        elif self.model.head is not None:
            raise RecipeError(
                f"expected no 'model.head' in {path} beside 'model.split_layer', whose head is plain, got "
                f"{self.model.head!r}; leave one of them out"
            )

    def _check_parts(self, path: Path) -> None:
        require_once(self.data.tune, "tune", path)
        for part in (*self.data.train, *self.data.tune):
            if (part.split is None) != (part.part is None):
                raise RecipeError(
                    f"expected `split` and `part` together in {path}, got one for {part.file}; give both or none"
                )
            if part.split is not None and part.format not in _WITH_TITLES:
                raise RecipeError(
                    f"expected no `split` in {path} for the format {part.format}, which has no titles, got "
                    f"{part.split!r}; leave it out"
                )

    def _check_encoder(self, path: Path) -> None:
        of_deformers = {
            "teacher": self.teacher is not None,
            "losses.kd": self.losses.kd > 0,
            "losses.lrs": self.losses.lrs > 0,
            "tune.what": self.tune.what != "all",
        }
        named = [name for name, given in of_deformers.items() if given]
        if named:
            raise RecipeError(
                f"expected 'model.split_layer' in {path} for {named[0]!r}, which is of DeFormers, got none; add it (0: "
                "not split), or leave that key out"
            )

    def checkpoints(self) -> tuple[str, ...]:
        """The model's, and the teacher's."""
        return (self.model.checkpoint,) if self.teacher is None else (self.model.checkpoint, self.teacher)

    def card_text(self) -> CardText:
        """What the reader is."""
        lines = [*_data_lines(self.data.train, "train"), *_data_lines(self.data.tune, "tune")]
        if self.model.split_layer is None:
            about = (
                f"`{self.model.checkpoint}` fine-tuned to answer with a span of a passage, read in windows of "
                f"{count(self.data.max_passage_tokens, 'token')}.\nScores: `narrows evaluate MODEL DATA`. Loads with "
                "the class that `architectures` in config.json names, after `narrows.register_all()` if it is of a "
                "family of narrows."
            )
            return CardText(family="reader", about=about, data="\n".join(lines))
        about = (
            f"An extractive reader made with narrows: a DeFormer whose layers below {self.model.split_layer} read "
            "question\nand passage apart, so that a passage can be read once and stored.\n"
            "Load it with `DeformerForQuestionAnswering.from_pretrained`."
        )
        return CardText(family="deformer", about=about, data="\n".join(lines))


def _data_lines(parts: Sequence[DataPart], use: str) -> list[str]:
    lines = []
    for part in parts:
        which = f", part `{part.part}` of `{part.split}`" if part.split else ""
        answers = "" if part.answers == "all" else f", {part.answers} questions only"
        lines.append(f"- {use}: `{part.file}` ({part.format}{which}{answers})")
    return lines
