"""Checkpoints into funnels: transformers' and the authors' two layouts, any BERT; and back to transformers' format."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig

from narrows._plural import count
from narrows.errors import ConversionError, NarrowsError, UsageError
from narrows.funnel.authors import config_of_authors, layout_of, net_config, read_arrays, table_for, task_of
from narrows.funnel.config import FunnelConfig
from narrows.funnel.from_bert import bert_rules, bert_task, config_of_bert, original_name, prepare_bert
from narrows.funnel.heads import (
    FunnelForConditionalQuestionAnswering,
    FunnelForElectraPreTraining,
    FunnelForEmbedding,
    FunnelForMaskedLM,
    FunnelForMultipleChoice,
    FunnelForQuestionAnswering,
    FunnelForReplacedTokenDetection,
    FunnelForSequenceClassification,
    FunnelForTokenClassification,
)
from narrows.funnel.model import FunnelBaseModel, FunnelModel, FunnelPreTrainedModel
from narrows.funnel.register import register
from narrows.funnel.rules import HEADS, head_pattern, new_parts
from narrows.hf.checkpoints import checkpoint_folder, require_finite
from narrows.hf.conversion import ConversionReport, Drop, New, Rename, apply_rules, load_tensors
from narrows.hf.sentence_layout import OWN_VECTOR, POOLINGS, read_layout

__all__ = ["TASKS", "convert_arrays", "convert_checkpoint"]

TASKS: dict[str, type[FunnelPreTrainedModel]] = {
    "encoder": FunnelBaseModel,
    "full": FunnelModel,
    "embedding": FunnelForEmbedding,
    "sequence-classification": FunnelForSequenceClassification,
    "multiple-choice": FunnelForMultipleChoice,
    "token-classification": FunnelForTokenClassification,
    "question-answering": FunnelForQuestionAnswering,
    "conditional-question-answering": FunnelForConditionalQuestionAnswering,
    "masked-lm": FunnelForMaskedLM,
    "replaced-token-detection": FunnelForReplacedTokenDetection,
    "electra": FunnelForElectraPreTraining,
}
"""Name of each head → its class. `encoder` is the funnel alone, `full` that with the decoder."""

_THEIR_TASKS = {
    "FunnelBaseModel": "encoder",
    "FunnelModel": "full",
    "FunnelForPreTraining": "replaced-token-detection",
    **{kind.__name__: task for task, kind in TASKS.items()},
}
# Of transformers' config, those that are ours under the same name.
_SHARED_FIELDS = (
    *("vocab_size", "block_sizes", "block_repeats", "num_decoder_layers", "d_model", "n_head", "d_head", "d_inner"),
    *("hidden_act", "hidden_dropout", "attention_dropout", "activation_dropout", "layer_norm_eps", "initializer_range"),
    *("pooling_type", "attention_type", "separate_cls", "truncate_seq", "pool_q_only", "pad_token_id"),
    *("tie_word_embeddings", "id2label", "label2id", "problem_type"),
)
_SOURCES = (
    "a Funnel of transformers, of its authors (PyTorch or TensorFlow, with their net_config) or of narrows, or a BERT"
)
_Rules = Sequence[Rename | Drop | New]


class _Source(NamedTuple):
    """A checkpoint, read and made ready for its rules."""

    tensors: dict[str, Tensor]
    config: FunnelConfig
    task: str
    rules: _Rules


def convert_checkpoint(
    checkpoint: str | Path,
    *,
    block_sizes: Sequence[int] | None = None,
    semantics: str | None = None,
    task: str | None = None,
    **overrides: Any,
) -> tuple[FunnelPreTrainedModel, ConversionReport]:
    """A funnel with a checkpoint's weights, and the report of every tensor.

    Args:
        checkpoint: a folder or a hub id: a Funnel of transformers, one of the authors' (with its `net_config.json` or
            `net_config.pytorch.json`), one of narrows, or a BERT.
        block_sizes: for a BERT: layers of each block, evenly spread over the BERT's; then required.
        semantics: of `FunnelConfig`; None: `exact`, or a narrows funnel's own. `hf` gives the numbers of transformers,
            padding and truncation included, and `official` those of the authors' code.
        task: one of `TASKS`; None: what the checkpoint was saved as. Its head is kept if it is of that task.
        overrides: other fields of `FunnelConfig`; for the task `embedding`, `embedding_pooling` is otherwise that which
            the checkpoint's sentence-transformers layout says, where it has one.

    Raises:
        ConversionError: the checkpoint is of another kind, its tensors do not fit, or its pooling has no place here.
        UsageError: an unknown task or field, a value out of its range, or block sizes for what is a funnel already.

    Example:
        `model, report = convert_checkpoint("funnel-transformer/small", task="sequence-classification", num_labels=2)`
    """
    changes = dict(overrides) if semantics is None else {**overrides, "semantics": semantics}
    _check(task, changes)
    folder = _folder(checkpoint)
    authors = net_config(folder)
    if authors is not None:
        _refuse_blocks(block_sizes)
        tensors = read_arrays(folder)
        require_finite(tensors, checkpoint)
        return convert_arrays(tensors, authors, task=task, **changes)
    config = _read_config(folder)
    if task == "embedding" and "embedding_pooling" not in changes:
        changes = {**_pooling_of(folder, config, checkpoint), **changes}
    tensors = load_tensors(folder)
    require_finite(tensors, checkpoint)
    if config.model_type == "bert":
        model, report = _fill(_from_bert(config, tensors, block_sizes, task, changes))
        report.used = {original_name(name, tensors): target for name, target in report.used.items()}
        report.dropped = {original_name(name, tensors): reason for name, reason in report.dropped.items()}
        return model, report
    _refuse_blocks(block_sizes)
    return _fill(_from_funnel(config, tensors, task, changes))


def convert_arrays(
    tensors: Mapping[str, Tensor], fields: Mapping[str, Any], *, task: str | None = None, **changes: Any
) -> tuple[FunnelPreTrainedModel, ConversionReport]:
    """A funnel with tensors that have the authors' names, PyTorch's or TensorFlow's, and the report.

    Args:
        tensors: by name, without optimiser states; arrays of numpy by `torch.from_numpy`.
        fields: of their net_config.
        task: one of `TASKS`; None: what the tensors were trained for.
        changes: fields of `FunnelConfig` in the place of theirs.

    Raises:
        ConversionError: the tensors are of another layout, or do not fit the config.
        UsageError: an unknown task or field, or a value out of its range.
    """
    _check(task, changes)
    layout = layout_of(tensors)
    if layout not in ("torch", "tensorflow"):
        found = "transformers' names" if layout == "transformers" else f"{min(tensors, default='no tensor')!r}"
        raise ConversionError(
            f"expected tensors with the names of Funnel-Transformer's authors beside their net_config, got {found}; "
            "pass the checkpoint that the net_config belongs to, or transformers' config.json with its own"
        )
    trained = task_of(tensors)
    task = trained if task is None else task
    defaults: dict[str, Any] = {}
    if layout == "torch" and "truncate_seq" not in fields and changes.get("semantics") != "hf":
        # Their PyTorch code truncates only where its caller asks for it, and its configs do not say so.
        defaults = {"truncate_seq": False}
    if layout == "tensorflow":
        defaults = {"layer_norm_eps": 1e-8, "lm_head_transform": True, "discriminator_positive": "original"}
        defaults["tie_word_embeddings"] = "model/lm_loss/weight" not in tensors
    defaults |= _labels(tensors)
    config = config_of_authors(fields, **{**defaults, **changes})
    kept = task if _shares_head(trained, task) else _BARE[_has_decoder(task)]
    table = [entry for entry in table_for(tensors, config, task=kept) if entry.theirs in tensors]
    inside = "" if task in ("encoder", "full") or kept not in ("encoder", "full") else "funnel."
    table = [entry._replace(ours=f"{inside}{entry.ours}") for entry in table]
    prepared = {**tensors, **{entry.theirs: entry.to_ours(tensors[entry.theirs]) for entry in table}}
    rules = [
        *(Rename(entry.theirs, entry.ours) for entry in table),
        Drop(r"(model|generator)/decoder/.*", "an encoder alone does not decode"),
        Drop(r"generator/.*", "generator of ELECTRA"),
        Drop(r"cls_head\..*|model/(?!input/|encoder/).*", "head of another task"),
        *new_parts(task),
    ]
    return _fill(_Source(prepared, config, task, rules))


_BARE = {False: "encoder", True: "full"}
_TWO_HEADS = {("electra", "replaced-token-detection")}


def _shares_head(trained: str, task: str) -> bool:
    """Whether a model of a task has all of its head from what was trained."""
    return trained == task or (trained, task) in _TWO_HEADS


def _has_decoder(task: str) -> bool:
    return task not in ("encoder", "embedding", "sequence-classification", "multiple-choice")


def _labels(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """How many classes a head of the authors' has."""
    counts = [tensor.shape[-1] for name, tensor in tensors.items() if name == "cls_head.3.bias"]
    counts += [tensor.shape[-1] for name, tensor in tensors.items() if name.endswith("/logit/bias")]
    return {"num_labels": counts[0]} if counts else {}


def _from_funnel(
    theirs: PreTrainedConfig, tensors: dict[str, Tensor], task: str | None, changes: dict[str, Any]
) -> _Source:
    layout = layout_of(tensors)
    if layout in ("torch", "tensorflow"):
        named = {"torch": "PyTorch", "tensorflow": "TensorFlow"}[layout]
        raise ConversionError(
            f"expected tensors with transformers' names beside a config.json, got those of the authors' {named} code; "
            "put their net_config.json there in its place"
        )
    if isinstance(theirs, FunnelConfig):
        fields = {name: getattr(theirs, name) for name in FunnelConfig.__dataclass_fields__}
        # What `num_labels` is kept as.
        fields |= {name: getattr(theirs, name) for name in ("id2label", "label2id", "problem_type")}
    else:
        fields = {name: getattr(theirs, name) for name in _SHARED_FIELDS if hasattr(theirs, name)}
        fields["initializer_std"] = getattr(theirs, "initializer_std", None) or 0.02
    if "num_labels" in changes:
        fields = {name: value for name, value in fields.items() if name not in ("id2label", "label2id")}
    trained = _trained_as(theirs, tensors)
    task = trained if task is None else task
    words = next(name for name in tensors if name.endswith("embeddings.word_embeddings.weight"))
    output = tensors.get("lm_head.weight")
    fields["tie_word_embeddings"] = output is None or torch.equal(output, tensors[words])
    own = fields.get("position_type", "relative")
    if changes.get("position_type", own) != own:
        raise UsageError(
            f"expected the positions of the funnel itself, {own}, got {changes['position_type']}: its layers know no "
            "others; leave position_type out"
        )
    config = FunnelConfig(**{**fields, **changes})
    inside = "" if task in ("encoder", "full") else "funnel."
    keeps_head = _shares_head(trained, task)
    rules: list[Rename | Drop | New] = []
    if config.tie_word_embeddings:
        rules.append(Drop(r"lm_head\.weight", f"a copy of {words}"))
    if not _has_decoder(task):
        rules.append(Drop(r"(funnel\.)?decoder\..*", "an encoder alone does not decode"))
    for name in tensors:
        bare = name.removeprefix("funnel.")
        part = bare.split(".")[0]
        if part in ("embeddings", "encoder", "decoder"):
            rules.append(Rename(name, f"{inside}{bare}"))
        elif keeps_head and part in HEADS[task]:
            rules.append(Rename(name, name))
    rules += [Drop(head_pattern(), "head of another task"), *new_parts(task)]
    return _Source(tensors, config, task, rules)


def _trained_as(theirs: PreTrainedConfig, tensors: Mapping[str, Tensor]) -> str:
    named = _THEIR_TASKS.get((theirs.architectures or [""])[0])
    if named is not None:
        return named
    decodes = any(name.removeprefix("funnel.").startswith("decoder.") for name in tensors)
    return _BARE[decodes]


def _from_bert(
    theirs: PreTrainedConfig,
    tensors: dict[str, Tensor],
    block_sizes: Sequence[int] | None,
    task: str | None,
    changes: dict[str, Any],
) -> _Source:
    if block_sizes is None:
        raise UsageError(
            f"expected block sizes for a BERT of {count(theirs.num_hidden_layers, 'layer')}, got none; "
            "pass the layers of each block, such as 2,2,2"
        )
    trained = bert_task((theirs.architectures or [""])[0])
    task = trained if task is None else task
    if task == "masked-lm":
        changes = {"lm_head_transform": True, **changes}
    if not _has_decoder(task):
        changes = {"num_decoder_layers": 0, **changes}
    config = config_of_bert(theirs, block_sizes=block_sizes, **changes)
    layers = theirs.num_hidden_layers
    rules = bert_rules(config, layers=layers, task=task, source_task=trained)
    return _Source(prepare_bert(tensors, config, layers=layers), config, task, rules)


def _fill(source: _Source) -> tuple[FunnelPreTrainedModel, ConversionReport]:
    """Put the weights into a model without any; what is new gets memory and its first values."""
    config = source.config
    floating = [tensor.dtype for tensor in source.tensors.values() if tensor.is_floating_point()]
    config.dtype = max(floating, key=floating.count)
    with torch.device("meta"):
        model = TASKS[source.task](config)
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}
    filled, report = apply_rules(source.tensors, wanted, source.rules)
    for name in report.new:
        filled[name] = torch.empty_like(wanted[name], device="cpu", dtype=config.dtype)
    model.load_state_dict({name: tensor.to(config.dtype) for name, tensor in filled.items()}, assign=True, strict=False)
    model.tie_weights()
    for name, parameter in model.named_parameters():
        # Only what is new is drawn.
        parameter._is_hf_initialized = name not in report.new  # type: ignore[attr-defined]
    for module in model.modules():
        model._init_weights(module)
    return model.eval(), report


def _pooling_of(folder: Path, config: PreTrainedConfig, checkpoint: str | Path) -> dict[str, Any]:
    """How the source makes its vectors, as far as its folder says so."""
    pooling = read_layout(folder).pooling
    if pooling is None or (pooling == OWN_VECTOR and isinstance(config, FunnelConfig)):
        # A funnel of ours that pools itself says how in its config.
        return {}
    if pooling not in POOLINGS:
        raise ConversionError(
            f"expected a checkpoint with a pooling of {', '.join(POOLINGS)}, got {checkpoint} with {pooling}; choose "
            "one of these with embedding_pooling (--embedding-pooling)"
        )
    return {"embedding_pooling": pooling}


def _check(task: str | None, changes: Mapping[str, Any]) -> None:
    if task is not None and task not in TASKS:
        raise UsageError(f"`task` must be one of {', '.join(TASKS)}, got {task!r}; choose one of them")
    known = {*FunnelConfig.__dataclass_fields__, "num_labels", "id2label", "label2id", "problem_type"}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise UsageError(
            f"expected fields of FunnelConfig, got {', '.join(unknown)}; see its documentation for their names"
        )


def _refuse_blocks(block_sizes: Sequence[int] | None) -> None:
    if block_sizes is not None:
        raise UsageError(
            f"expected block sizes for a BERT only, got {list(block_sizes)} for a funnel, which has its own; "
            "leave them out"
        )


def _folder(checkpoint: str | Path) -> Path:
    path = Path(checkpoint)
    # The authors' have no config.json, of which more is asked.
    return path if path.is_dir() and net_config(path) is not None else checkpoint_folder(checkpoint)


def _read_config(folder: Path) -> PreTrainedConfig:
    register()
    try:
        config = AutoConfig.from_pretrained(folder)
    except NarrowsError:
        raise
    except (OSError, ValueError, StrictDataclassError) as error:
        # The sentence is in the last line of what strict fields say, in the first of the others.
        line = -1 if isinstance(error, StrictDataclassError) else 0
        raise ConversionError(
            f"expected a config.json of a known model in {folder}, got none that can be read "
            f"({str(error).strip().splitlines()[line].strip()}); pass a checkpoint's folder"
        ) from error
    if config.model_type not in ("funnel", "bert", FunnelConfig.model_type):
        raise ConversionError(f"expected {_SOURCES}, got model type {config.model_type!r}; choose another checkpoint")
    return config
