"""The model that a recipe of a summariser starts from: a checkpoint as it is, one that is converted, or nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    LongT5Config,
    LongT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from narrows.errors import UsageError
from narrows.hf.byte_tokenizer import BYTES, byte_tokenizer
from narrows.hf.checkpoints import checkpoint_folder
from narrows.hf.register import register_all
from narrows.hf.sentencepiece import read_sentencepiece, sentinel_ids
from narrows.hf.seq2seq import load_seq2seq, load_seq2seq_tokenizer, require_known_tokens
from narrows.hf.trained_inputs import note_inputs
from narrows.mulla import MullaT5Config, MullaT5ForConditionalGeneration, convert_checkpoint
from narrows.training.summaries.recipe import ModelSection, ScratchSection, SummaryRecipe
from narrows.training.tasks import find_checkpoint

__all__ = ["build_model", "build_tokenizer", "require_sentinels"]

_LONGT5 = {"longt5-local": "local", "longt5-tglobal": "transient-global"}
_OF_THE_TOKENIZER = ("tokenizer", "lowercase")


def build_tokenizer(recipe: SummaryRecipe, *, data: Path, runs: Path | None) -> Any:
    """The tokenizer that a recipe's model reads with.

    Raises:
        ConversionError: there is none at the place that the recipe names.
        UsageError: span corruption and a tokenizer without sentinels.
    """
    model = recipe.model
    if model.scratch is not None:
        tokenizer = _scratch_tokenizer(model.scratch, [folder for folder in (runs, data) if folder is not None])
    else:
        tokenizer = load_seq2seq_tokenizer(find_checkpoint(str(model.checkpoint), runs))
    if recipe.corrupts:
        require_sentinels(tokenizer)
    return tokenizer


def build_model(recipe: SummaryRecipe, tokenizer: Any, *, runs: Path | None = None) -> Any:
    """The model in fp32, its dropout, and in its configs what it reads and how it writes.

    Raises:
        ConversionError: a checkpoint of another kind.
        UsageError: options of a Mulla that is to be made, where the checkpoint is one.
    """
    section, dropout = recipe.model, recipe.optimiser.dropout
    if section.scratch is not None:
        model = _from_scratch(section, section.scratch, tokenizer, dropout)
    else:
        model = _from_checkpoint(section, find_checkpoint(str(section.checkpoint), runs), tokenizer, dropout)
    for parameter in model.parameters():
        # A converted model's weights are those of its source's file, mapped; training writes into them.
        parameter.data = parameter.data.to(torch.float32, copy=True)
    model.config.dtype = torch.float32
    note_inputs(model.config, recipe.trained_inputs())
    model.generation_config.update(**recipe.generation.options())
    # An older limit beside ours would make `generate` warn of two.
    model.generation_config.max_length = None
    # It is the recipe's now, not to be made anew from the config.
    model.generation_config._from_model_config = False
    return model.train()


def require_sentinels(tokenizer: Any) -> list[int]:
    """The ids of a tokenizer's sentinels.

    Raises:
        UsageError: it has none.
    """
    found = sentinel_ids(tokenizer)
    if not found:
        raise UsageError(
            "expected a tokenizer with sentinels (<extra_id_0>, ...) for span corruption, got one without; "
            "choose a checkpoint of the T5 family"
        )
    return found


def _from_checkpoint(section: ModelSection, checkpoint: str, tokenizer: Any, dropout: float) -> Any:
    register_all()
    if section.family == "mulla" and _is_mulla(checkpoint):
        if section.mulla_options():
            raise UsageError(
                f"expected no model.{next(iter(section.mulla_options()))} for {checkpoint}, which is a Mulla already; "
                "leave it out, or start from its source"
            )
    elif section.family == "mulla":
        options = section.mulla_options()
        model = convert_checkpoint(checkpoint, task="generation", dropout_rate=dropout, **options)[0]
        require_known_tokens(model.config, tokenizer, checkpoint)
        return model
    return load_seq2seq(checkpoint, dropout_rate=dropout)[0]


def _is_mulla(checkpoint: str) -> bool:
    return AutoConfig.from_pretrained(checkpoint_folder(checkpoint)).model_type == MullaT5Config.model_type


def _from_scratch(section: ModelSection, scratch: ScratchSection, tokenizer: Any, dropout: float) -> Any:
    sizes = {name: value for name, value in scratch.model_dump().items() if name not in _OF_THE_TOKENIZER}
    fields = {
        **sizes,
        "vocab_size": len(tokenizer),
        "dropout_rate": dropout,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        **section.mulla_options(),
    }
    if section.family == "mulla":
        # As its peers do by themselves: with tied embeddings the logits would start far too large.
        return MullaT5ForConditionalGeneration(MullaT5Config(**fields, scale_decoder_outputs=True))
    if section.family == "t5":
        return T5ForConditionalGeneration(T5Config(**fields))
    kind = _LONGT5[str(section.family)]
    return LongT5ForConditionalGeneration(LongT5Config(**fields, encoder_attention_type=kind))


def _scratch_tokenizer(scratch: ScratchSection, folders: Sequence[Path]) -> Any:
    if scratch.tokenizer == BYTES:
        _require_as_is(scratch, BYTES)
        return byte_tokenizer()
    places = [folder / scratch.tokenizer for folder in folders] + [Path(scratch.tokenizer)]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise UsageError(
            f"expected a tokenizer at {scratch.tokenizer} in the folder of the runs or of the data, got nothing there; "
            "name a folder, a tokenizer.json or a SentencePiece model"
        )
    if path.is_dir() and not (path / "tokenizer.json").is_file() and (path / "spiece.model").is_file():
        path = path / "spiece.model"
    if path.is_file() and path.suffix != ".json":
        return read_sentencepiece(path, lowercase=scratch.lowercase)
    _require_as_is(scratch, path)
    folder = path if path.is_dir() else path.parent
    if not (folder / "tokenizer.json").is_file():
        raise UsageError(f"expected tokenizer.json or spiece.model in {folder}, got neither; name another tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token_id is None or tokenizer.eos_token_id is None:
        raise UsageError(f"expected a tokenizer with pad_token and eos_token in {folder}, got none; name another one")
    return tokenizer


def _require_as_is(scratch: ScratchSection, found: Path | str) -> None:
    if scratch.lowercase:
        raise UsageError(
            f"expected lowercase with a SentencePiece model only, got {found}; leave model.scratch.lowercase out"
        )
