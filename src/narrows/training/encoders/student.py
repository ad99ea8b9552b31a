"""Teacher and student: any encoder from a checkpoint, or one from a config's fields with random weights."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from narrows._plural import count
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.hf.sentence_encoder import Reading, SentenceEncoder, load_sentence_encoder
from narrows.hf.sentence_layout import load_dense, pooling_of, read_layout
from narrows.training.dropout import set_dropout
from narrows.training.encoders.recipe import EncoderRecipe
from narrows.training.heads import UNFIT
from narrows.training.tasks import find_checkpoint

__all__ = ["Sizes", "Student", "build_student", "load_teacher", "load_tokenizer", "sizes_of", "student_folder"]

_HEADED: Mapping[str, Any] = {
    "sequence-classification": AutoModelForSequenceClassification,
    "masked-lm": AutoModelForMaskedLM,
}


class Sizes(NamedTuple):
    """What a model gives.

    Attributes:
        vector: width of the vector.
        slots: states after the embeddings and after each layer.
        width: of the states.
        classes: of the head; None without one.
    """

    vector: int
    slots: tuple[int, ...]
    width: int
    classes: int | None


class Student(nn.Module):
    """An encoder that learns, with what makes its outputs as wide as its teacher's.

    Args:
        encoder: its linear layer, where there is one, is trained and kept.
        state_projection: of the states, which serves training only.
    """

    def __init__(self, encoder: SentenceEncoder, *, state_projection: nn.Linear | None):
        super().__init__()
        self.encoder, self.state_projection = encoder, state_projection
        self.tied = frozenset(f"encoder.model.{name}" for name in getattr(encoder.model, "all_tied_weights_keys", {}))
        self.register_state_dict_post_hook(_drop_tied)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *, states: bool) -> Reading:
        """As `SentenceEncoder.read`, with the states as wide as the teacher's."""
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        reading = self.encoder.read(batch, states=states)
        if self.state_projection is None:
            return reading
        return reading._replace(states=tuple(self.state_projection(state) for state in reading.states))


def _drop_tied(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    # A file of safetensors holds no weight twice; loading one of its names loads them all.
    for name in module.tied:  # type: ignore[union-attr]
        state.pop(prefix + name, None)


def student_folder(recipe: EncoderRecipe, runs: Path | None) -> str | None:
    """The checkpoint that the student starts from; None: it starts from a config."""
    return None if recipe.model.checkpoint is None else find_checkpoint(recipe.model.checkpoint, runs)


def load_tokenizer(checkpoint: str) -> Any:
    """The tokenizer of a checkpoint.

    Raises:
        ConversionError: there is none.
    """
    register_all()
    folder = read_layout(checkpoint_folder(checkpoint)).folder
    require_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


def load_teacher(recipe: EncoderRecipe, *, runs: Path | None) -> SentenceEncoder:
    """The teacher in fp32, frozen.

    Raises:
        ConversionError: no checkpoint, or one whose head is not trained.
    """
    checkpoint = find_checkpoint(recipe.teacher.checkpoint, runs)
    teacher, missing = _load(checkpoint, recipe.head, recipe.teacher.pooling)
    if missing:
        raise ConversionError(
            f"expected a teacher with a trained head for {recipe.head}, got {checkpoint} without {missing[0]}; "
            "train it first, or leave out 'head' and 'losses.logits'"
        )
    return teacher.eval().requires_grad_(False)


def build_student(recipe: EncoderRecipe, teacher: SentenceEncoder, tokenizer: Any, *, runs: Path | None) -> Student:
    """The student in fp32, with random weights (for which the seed is torch's) where it has none.

    Args:
        recipe: says where it starts and what it is to have like its teacher.
        teacher: that it is made as wide as.
        tokenizer: of the student.

    Raises:
        UsageError: fields that no config has, texts that are too long for one of the two, layers that are not there,
            another head than the teacher's, two heads where a checkpoint has room for one, or a linear layer of
            another width.
    """
    checkpoint = student_folder(recipe, runs)
    if checkpoint is None:
        encoder = SentenceEncoder(_from_config(recipe, teacher, tokenizer), pooling=recipe.model.pooling or "mean")
    else:
        encoder, _ = _load(checkpoint, recipe.head, recipe.model.pooling, dropout=recipe.optimiser.dropout)
    longest = max(recipe.data.lengths)
    theirs, ours = sizes_of(teacher, longest, "teacher"), sizes_of(encoder, longest, "student")
    if ours.classes != theirs.classes:
        raise UsageError(
            f"expected a student with the teacher's {theirs.classes} classes or tokens, got {ours.classes}; choose "
            "models of one vocabulary and the same labels"
        )
    if recipe.head is not None and recipe.losses.vectors and ours.slots[-1] < longest:
        raise UsageError(
            f"expected vectors or logits of a student that gets shorter, whose checkpoint has one head only, got both "
            f"and a {type(encoder.model).__name__}; set 'losses.embedding' and 'losses.similarity' to 0, or "
            "leave out 'head' and 'losses.logits'"
        )
    if recipe.losses.embedding and ours.vector != theirs.vector:
        if encoder.dense is not None:
            raise UsageError(
                f"expected a student whose linear layer gives the teacher's {theirs.vector} numbers, got "
                f"{ours.vector}; choose one without such a layer"
            )
        encoder.dense = nn.Linear(ours.vector, theirs.vector, bias=False)
    project = recipe.losses.hidden and ours.width != theirs.width
    state_projection = nn.Linear(ours.width, theirs.width, bias=False) if project else None
    return Student(encoder, state_projection=state_projection).train()


def sizes_of(encoder: SentenceEncoder, length: int, who: str) -> Sizes:
    """What an encoder gives, found by reading one text of a length.

    Args:
        encoder: in any mode, which stays.
        length: tokens of the text.
        who: `teacher` or `student`, for the error.

    Raises:
        UsageError: it cannot read so long a text.
    """
    training = encoder.training
    ids = torch.ones(1, length, dtype=torch.long, device=next(encoder.parameters()).device)
    mask = torch.ones_like(ids)
    # With padding, so that states of which nothing tells what they stand for are refused before the first step.
    mask[:, -1] = 0
    try:
        with torch.no_grad():
            reading = encoder.eval().read({"input_ids": ids, "attention_mask": mask}, states=True)
    # A decoder asks for inputs of its own, a model of pictures for pictures.
    except (AttributeError, *UNFIT) as error:
        raise UsageError(
            f"expected a {who} that reads the {count(length, 'token')} of 'data.lengths', "
            f"got {' '.join(str(error).split())}; lower the lengths or choose another model"
        ) from error
    finally:
        encoder.train(training)
    classes = None if reading.logits is None else reading.logits.shape[-1]
    slots = tuple(state.shape[1] for state in reading.states)
    return Sizes(reading.embedding.shape[-1], slots, reading.states[-1].shape[-1], classes)


def _load(
    checkpoint: str, head: str | None, pooling: str | None, *, dropout: float | None = None
) -> tuple[SentenceEncoder, list[str]]:
    """A checkpoint's encoder in fp32, and the weights of its head that are not there.

    Args:
        checkpoint: folder or hub id.
        head: one of `_HEADED`, or None.
        pooling: None: as the checkpoint says.
        dropout: in the place of the checkpoint's own; None: that.
    """
    register_all()
    folder = checkpoint_folder(checkpoint)
    layout = read_layout(folder)
    config = None if dropout is None else set_dropout(AutoConfig.from_pretrained(layout.folder), dropout)
    if head is None:
        return load_sentence_encoder(layout, checkpoint, pooling=pooling, config=config)[1], []
    model, info = _HEADED[head].from_pretrained(
        layout.folder, config=config, dtype=torch.float32, output_loading_info=True
    )
    said = pooling or pooling_of(layout, checkpoint) or "mean"
    return SentenceEncoder(model, pooling=said, dense=load_dense(layout), name=checkpoint), sorted(info["missing_keys"])


def _from_config(recipe: EncoderRecipe, teacher: SentenceEncoder, tokenizer: Any) -> Any:
    fields = dict(recipe.model.config or {})
    kind = fields.pop("model_type")
    theirs: Any = teacher.model.config
    try:
        known = AutoConfig.for_model(kind).to_dict()
    except ValueError as error:
        raise UsageError(
            f"expected a 'model_type' that transformers or narrows knows in 'model.config', got {kind!r}; choose one "
            "such as bert"
        ) from error
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "leave it out"
            raise UsageError(f"expected fields of a {kind} in 'model.config', got {name!r}; {advice}")
    fields = {"vocab_size": theirs.vocab_size, "pad_token_id": tokenizer.pad_token_id, **fields}
    if isinstance(fields["vocab_size"], int) and fields["vocab_size"] < len(tokenizer):
        raise UsageError(
            f"expected a vocab_size of at least the {count(len(tokenizer), 'token')} of the tokenizer in "
            f"'model.config', got {fields['vocab_size']}; leave it out"
        )
    if recipe.head == "sequence-classification":
        fields |= {"id2label": theirs.id2label, "label2id": theirs.label2id}
    try:
        config = set_dropout(AutoConfig.for_model(kind, **fields), recipe.optimiser.dropout)
        # Where a config has several models (Funnel), transformers 5.24 goes through these without asking for None.
        config.architectures = config.architectures or []
        auto: Any = AutoModel if recipe.head is None else _HEADED[recipe.head]
        return auto.from_config(config, dtype=torch.float32)
    except UNFIT as error:
        raise UsageError(
            f"expected fields of a {kind} that go together in 'model.config', got {fields} "
            f"({' '.join(str(error).split())}); change them"
        ) from error
