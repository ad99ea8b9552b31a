"""The recipe of an encoder that is distilled from another on raw text."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from narrows.errors import RecipeError
from narrows.training.sections import CardText, OptimiserSection, Recipe, Section, Times, require_once

__all__ = [
    "EncoderDataSection",
    "EncoderLossSection",
    "EncoderRecipe",
    "StudentSection",
    "TeacherSection",
    "TextPart",
]


class StudentSection(Section):
    """Attributes:
    checkpoint: folder, hub id, or the output of another run, such as what `narrows convert` made; or `config`.
    config: fields of a model with random weights, its `model_type` among them; it reads with the teacher's tokenizer,
        whose size and padding it gets where the fields do not say.
    pooling: of its states into the vector: `mean`, `max`, or `cls`, the first one; as its checkpoint says, or mean,
        unless named here.
    """

    checkpoint: str | None = None
    config: dict[str, Any] | None = None
    pooling: Literal["mean", "cls", "max"] | None = None


class TeacherSection(Section):
    """Attributes:
    checkpoint: folder or hub id of any encoder, or the output of another run.
    pooling: as its checkpoint says, or mean, unless named here.
    """

    checkpoint: str
    pooling: Literal["mean", "cls", "max"] | None = None


class EncoderLossSection(Section):
    """Weights of what the student is to have like its teacher, each a mean over the texts of a step.

    Attributes:
        embedding: the pooled vector.
        distance: of the vectors: `cosine`, or `mse`, which their lengths count in.
        similarity: which of the other texts of a forward pass are near by the vectors.
        similarity_temperature: of the cosines of `similarity`; the smaller, the more the nearest count.
        hidden: the states of layers; where the student has fewer, against the mean of the teacher's over the same
            windows.
        layers: pairs of layers, of the student and the teacher, from 1 (0: the embeddings); evenly spread where there
            are none.
        logits: of `head`.
        temperature: of the logits.
    """

    embedding: float = Field(1.0, ge=0)
    distance: Literal["cosine", "mse"] = "cosine"
    similarity: float = Field(0.0, ge=0)
    similarity_temperature: float = Field(0.05, gt=0)
    hidden: float = Field(0.0, ge=0)
    layers: list[tuple[int, int]] = Field(default_factory=list)
    logits: float = Field(0.0, ge=0)
    temperature: float = Field(2.0, gt=0)

    @property
    def vectors(self) -> bool:
        """Whether the pooled vectors are trained."""
        return bool(self.embedding or self.similarity)


class TextPart(Section):
    """One source of raw text.

    Attributes:
        format: `articles` (WikiText, MediaWiki dumps, contexts of SQuAD files; see `narrows.data.read_articles`),
            `text` (plain text, .gz or not), `jsonl` (JSON Lines: each of `fields` is a text), `pairs` (ReQA: each
            question and each answer is a text) or `squad` (each question and each context).
        file: path under the data folder.
        fields: of `jsonl`, the keys that hold text. What a line has as the line before it had is left out.
        split, part: of `squad`, a JSON file with lists of titles by part, and the part taken.
        times: how often the part is seen in an epoch; of training data only.
    """

    format: Literal["articles", "text", "jsonl", "pairs", "squad"]
    file: str
    fields: list[str] = []
    split: str | None = None
    part: str | None = None
    times: Times = 1


class EncoderDataSection(Section):
    """Attributes:
    train, tune: raw text; by the second the best checkpoint is chosen.
    lengths: the most tokens of a text, special ones included, in turn: whole sentences that follow one another, and at
        least one; so a small number gives single sentences. A sentence longer than the largest is cut.
    tune_limit: texts, evenly spread.
    """

    train: list[TextPart] = Field(min_length=1)
    tune: list[TextPart] = Field(default_factory=list)
    lengths: list[int] = Field(min_length=1)
    tune_limit: int = Field(500, ge=1)


class EncoderRecipe(Recipe):
    """A whole run of one student.

    Attributes:
        model: the student.
        teacher: that it learns from.
        head: of both of them, for `losses.logits`.
    """

    task: Literal["encoder-distillation"]  # type: ignore[assignment]
    model: StudentSection
    teacher: TeacherSection
    head: Literal["sequence-classification", "masked-lm"] | None = None
    losses: EncoderLossSection = EncoderLossSection()  # type: ignore[call-arg]
    data: EncoderDataSection
    optimiser: OptimiserSection = OptimiserSection()  # type: ignore[call-arg]

    def check(self, path: Path) -> None:
        """One student, losses and what they need, texts that fit into a batch.

        Raises:
            RecipeError: they do not go together.
        """
        model, losses = self.model, self.losses
        require_once(self.data.tune, "tune", path)
        for part in (*self.data.train, *self.data.tune):
            _check_part(part, path)
        if (model.checkpoint is None) == (model.config is None):
            both = "both" if model.config is not None else "neither"
            raise RecipeError(f"expected 'model.checkpoint' or 'model.config' in {path}, got {both}; keep one of them")
        if model.config is not None and not isinstance(model.config.get("model_type"), str):
            raise RecipeError(
                f"expected a 'model_type' in 'model.config' in {path}, got {model.config.get('model_type')}; add one "
                "such as bert"
            )
        if not (losses.vectors or losses.hidden or losses.logits):
            raise RecipeError(
                f"expected a loss above 0 in {path}, got 0 for embedding, similarity, hidden and logits; raise one of "
                "them"
            )
        if bool(losses.logits) != (self.head is not None):
            raise RecipeError(
                f"expected 'head' and 'losses.logits' in {path} together, got {self.head} and {losses.logits}; name "
                "the head, or leave out both"
            )
        if losses.layers and not losses.hidden:
            raise RecipeError(
                f"expected 'losses.layers' in {path} with 'losses.hidden' above 0, got {losses.layers} and 0; raise "
                "it or leave out the layers"
            )
        if self.optimiser.layer_decay != 1:
            raise RecipeError(
                f"expected no 'optimiser.layer_decay' in {path}, got {self.optimiser.layer_decay}: the layers of any "
                "encoder have no names that are known; remove it"
            )
        if min(self.data.lengths) < 3 or max(self.data.lengths) > self.optimiser.batch_tokens:
            raise RecipeError(
                f"expected 'data.lengths' in {path} from 3 to the {self.optimiser.batch_tokens} of "
                f"'optimiser.batch_tokens', got {self.data.lengths}; change one of them"
            )

    def checkpoints(self) -> tuple[str, ...]:
        """The teacher's, and the student's where it starts from one."""
        own = () if self.model.checkpoint is None else (self.model.checkpoint,)
        return (*own, self.teacher.checkpoint)

    def card_text(self) -> CardText:
        """What a distilled encoder is."""
        parts = [("train", part) for part in self.data.train] + [("tune", part) for part in self.data.tune]
        lines = [f"- {use}: `{part.file}` ({part.format})" for use, part in parts]
        pooling = "" if self.model.pooling is None else f", pooling `{self.model.pooling}`"
        about = (
            f"An encoder distilled from `{self.teacher.checkpoint}` on raw text{pooling}.\n"
            "Load it with transformers' `AutoModel` after `narrows.register_all()`."
        )
        return CardText(family="encoder", about=about, data="\n".join(lines))


def _check_part(part: TextPart, path: Path) -> None:
    if bool(part.fields) != (part.format == "jsonl"):
        raise RecipeError(
            f"expected `fields` for the format jsonl, and for no other, in {path}, got {part.fields or 'none'} for "
            f"{part.format} ({part.file}); mend it"
        )
    if (part.split is None) != (part.part is None) or (part.split is not None and part.format != "squad"):
        raise RecipeError(
            f"expected `split` and `part` together in {path}, and for the format squad alone, got {part.split} and "
            f"{part.part} for {part.format} ({part.file}); give both or none"
        )
