"""Checkpoints into DeFormers: a table of names, for every kind of head."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, overload

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

from narrows._plural import count
from narrows.deformer.config import FITTED_FIELDS, DeformerConfig
from narrows.deformer.model import (
    DeformerForQuestionAnswering,
    DeformerForSequenceClassification,
    DeformerModel,
    DeformerPreTrainedModel,
)
from narrows.deformer.register import register
from narrows.errors import ConversionError, NarrowsError, UsageError
from narrows.hf.checkpoints import checkpoint_folder
from narrows.hf.conversion import ConversionReport, Drop, New, Rename, apply_rules, load_tensors

__all__ = ["TASKS", "convert_checkpoint", "from_pretrained_encoder"]

_Model = TypeVar("_Model", bound=DeformerPreTrainedModel)

TASKS: dict[str, type[DeformerPreTrainedModel]] = {
    "question-answering": DeformerForQuestionAnswering,
    "sequence-classification": DeformerForSequenceClassification,
    "encoder": DeformerModel,
}

# Fields that a DeFormer has under the same name as its source.
_SHARED_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "classifier_dropout",
    "id2label",
    "label2id",
    "problem_type",
    "dtype",
)

_LAYER = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "feed_forward_norm",
}
_EMBEDDINGS = {
    "word_embeddings.weight": "word.weight",
    "position_embeddings.weight": "position.weight",
    "token_type_embeddings.weight": "segment.weight",
}


@dataclass(frozen=True)
class _Task:
    head: list[Rename]
    new: list[New]
    drops: list[Drop]


_PRETRAINING = Drop(r"cls\..*", "head of pretraining")
_TASK_RULES = {
    "question-answering": _Task(
        [Rename("qa_outputs.weight", "qa_outputs.weight"), Rename("qa_outputs.bias", "qa_outputs.bias")],
        [New(r"qa_outputs\..*", "span head, random: to be trained")],
        [
            _PRETRAINING,
            Drop(r"(bert\.)?pooler\..*", "a span reader does not pool"),
            Drop(r"classifier\..*", "head of another task"),
        ],
    ),
    "sequence-classification": _Task(
        [Rename("classifier.weight", "classifier.weight"), Rename("classifier.bias", "classifier.bias")],
        [
            New(r"pooler\..*", "pooler, random: to be trained"),
            New(r"classifier\..*", "classes, random: to be trained"),
        ],
        [_PRETRAINING, Drop(r"qa_outputs\..*", "head of another task")],
    ),
    "encoder": _Task(
        [],
        [],
        [
            _PRETRAINING,
            Drop(r"(bert\.)?pooler\..*", "an encoder alone does not pool"),
            Drop(r"(qa_outputs|classifier)\..*", "head"),
        ],
    ),
}


def bert_rules(task: str) -> list[Rename | Drop | New]:
    """The table for a BertModel, or a BertFor… of the same task: names with and without `bert.`, old and new norms."""
    spec = _TASK_RULES[task]
    inside = "" if task == "encoder" else "deformer."
    rules: list[Rename | Drop | New] = []
    for prefix in ("bert.", ""):
        for theirs, ours in _EMBEDDINGS.items():
            rules.append(Rename(f"{prefix}embeddings.{theirs}", f"{inside}backbone.embeddings.{ours}"))
        rules += _norm_rules(f"{prefix}embeddings.LayerNorm", f"{inside}backbone.embeddings.norm")
        for theirs, ours in _LAYER.items():
            source, target = f"{prefix}encoder.layer.{{n}}.{theirs}", f"{inside}backbone.layers.{{n}}.{ours}"
            rules += _norm_rules(source, target) if theirs.endswith("LayerNorm") else _linear_rules(source, target)
        if task == "sequence-classification":
            rules += _linear_rules(f"{prefix}pooler.dense", "pooler")
    position_ids = Drop(r"(bert\.)?embeddings\.position_ids", "a table of 0, 1, 2, …")
    return [*rules, *spec.head, position_ids, *spec.drops, *spec.new]


def deformer_rules(task: str) -> list[Rename | Drop | New]:
    """The table for a DeFormer, of the same task or another."""
    spec = _TASK_RULES[task]
    inside = "" if task == "encoder" else "deformer."
    rules: list[Rename | Drop | New] = []
    for prefix in ("deformer.", ""):
        for ours in _EMBEDDINGS.values():
            rules.append(Rename(f"{prefix}backbone.embeddings.{ours}", f"{inside}backbone.embeddings.{ours}"))
        parts = ["embeddings.norm", *(f"layers.{{n}}.{ours}" for ours in _LAYER.values())]
        for part in parts:
            rules += _linear_rules(f"{prefix}backbone.{part}", f"{inside}backbone.{part}")
    if task == "sequence-classification":
        rules += _linear_rules("pooler", "pooler")
    return [*rules, *spec.head, *spec.drops, *spec.new]


@overload
def convert_checkpoint(
    checkpoint: str | Path,
    *,
    split_layer: int,
    task: Literal["question-answering"],
    passage_positions: str = ...,
    **overrides: object,
) -> tuple[DeformerForQuestionAnswering, ConversionReport]: ...
@overload
def convert_checkpoint(
    checkpoint: str | Path,
    *,
    split_layer: int,
    task: str | None = ...,
    passage_positions: str = ...,
    **overrides: object,
) -> tuple[DeformerPreTrainedModel, ConversionReport]: ...
def convert_checkpoint(
    checkpoint: str | Path,
    *,
    split_layer: int,
    task: str | None = None,
    passage_positions: str = "restart",
    **overrides: object,
) -> tuple[DeformerPreTrainedModel, ConversionReport]:
    """A DeFormer with a checkpoint's weights, and the report of every tensor.

    Args:
        checkpoint: a folder, or a hub id; its encoder is a BertModel, or it is a DeFormer, to be split elsewhere: its
            weights and fields are kept but those fitted to its answers (`no_answer_…`, `store_no_answer_…`,
            `retrieval_weight`), which go back to their defaults.
        split_layer: k, from 0 to the number of layers − 1.
        task: `question-answering`, `sequence-classification` or `encoder`; None: as the checkpoint's own class says,
            and question answering for a bare BERT encoder.
        passage_positions: see `DeformerConfig`; `continue` with `split_layer=0` gives the source's own logits.
        overrides: other fields of `DeformerConfig`.

    Raises:
        ConversionError: the checkpoint's encoder is of another kind, or its tensors do not fit.
        UsageError: k out of range, an unknown task, or an unknown field.

    Example:
        `model, report = convert_checkpoint("deepset/minilm-uncased-squad2", split_layer=4)`
    """
    folder = checkpoint_folder(checkpoint)
    source = _source_config(folder)
    if source.model_type not in ("bert", DeformerConfig.model_type):
        raise ConversionError(
            f"expected a checkpoint whose encoder is a BertModel, got model type {source.model_type!r}; "
            "convert a BERT or MiniLM checkpoint, or a DeFormer"
        )
    task = _task_of(source) if task is None else task
    if task not in TASKS:
        raise UsageError(f"`task` must be one of {', '.join(TASKS)}, got {task!r}; choose one of them")
    if not 0 <= split_layer < source.num_hidden_layers:
        raise UsageError(
            f"`split_layer` must be from 0 to {source.num_hidden_layers - 1} for "
            f"{count(source.num_hidden_layers, 'layer')}, got {split_layer}; keep at least one layer joint"
        )
    unknown = sorted(set(overrides) - set(DeformerConfig.__dataclass_fields__))
    if unknown:
        raise UsageError(
            f"expected fields of DeformerConfig, got {', '.join(unknown)}; see its documentation for their names"
        )
    split = {"split_layer": split_layer, "passage_positions": passage_positions, **overrides}
    if isinstance(source, DeformerConfig):
        fields = {name: value for name, value in source.to_dict().items() if name not in FITTED_FIELDS}
        config, rules = DeformerConfig.from_dict({**fields, **split}), deformer_rules(task)
    else:
        fields = {name: getattr(source, name) for name in _SHARED_FIELDS if getattr(source, name, None) is not None}
        config, rules = DeformerConfig(**fields, **split), bert_rules(task)
    model = TASKS[task](config)
    tensors, report = apply_rules(load_tensors(folder), model.state_dict(), rules)
    model.load_state_dict(tensors)
    return model.eval(), report


def from_pretrained_encoder(model: _Model, *, split_layer: int) -> _Model:
    """The same weights and head with another split: a student that starts from its teacher.

    What was fitted to the teacher's answers (`no_answer_…`, `store_no_answer_…`, `retrieval_weight`) starts afresh.

    Raises:
        UsageError: k out of range.
    """
    layers = model.config.num_hidden_layers
    if not 0 <= split_layer < layers:
        raise UsageError(
            f"`split_layer` must be from 0 to {layers - 1} for {count(layers, 'layer')}, got {split_layer}; "
            "keep at least one layer joint"
        )
    fields = {name: value for name, value in model.config.to_dict().items() if name not in FITTED_FIELDS}
    config = DeformerConfig.from_dict({**fields, "split_layer": split_layer, "passage_positions": "restart"})
    student = type(model)(config)
    student.load_state_dict(model.state_dict())
    return student.eval()


def _source_config(folder: Path) -> PreTrainedConfig:
    register()
    try:
        return AutoConfig.from_pretrained(folder)
    except NarrowsError:
        raise
    except (OSError, ValueError, StrictDataclassError) as error:
        # The sentence is in the last line of what strict fields say, in the first of the others.
        line = -1 if isinstance(error, StrictDataclassError) else 0
        raise ConversionError(
            f"expected a config.json of a known model in {folder}, got none that can be read "
            f"({str(error).strip().splitlines()[line].strip()}); pass a checkpoint's folder"
        ) from error


def _task_of(source: PreTrainedConfig) -> str:
    architecture = (source.architectures or [""])[0]
    if architecture == DeformerModel.__name__:
        return "encoder"
    return "sequence-classification" if architecture.endswith("ForSequenceClassification") else "question-answering"


def _linear_rules(source: str, target: str) -> list[Rename | Drop | New]:
    return [Rename(f"{source}.{part}", f"{target}.{part}") for part in ("weight", "bias")]


def _norm_rules(source: str, target: str) -> list[Rename | Drop | New]:
    # Checkpoints from TensorFlow days call them gamma and beta.
    old = [Rename(f"{source}.gamma", f"{target}.weight"), Rename(f"{source}.beta", f"{target}.bias")]
    return _linear_rules(source, target) + old
