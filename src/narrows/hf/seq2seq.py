"""Models that read a long text and write a short one: LongT5-Mulla and its peers of the T5 family, run alike."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

from narrows.data import InputEncoder, Truncation, plain_tokens
from narrows.errors import ConversionError
from narrows.hf.checkpoints import checkpoint_folder, require_finite, require_tokenizer
from narrows.hf.register import register_all
from narrows.hf.trained_inputs import SEQ2SEQ_TYPES, check_dtype

__all__ = [
    "input_encoder",
    "load_seq2seq",
    "load_seq2seq_tokenizer",
    "require_known_tokens",
    "write_texts",
]


# Where a checkpoint does not say how much to write; transformers' own would be 20 tokens.
_NEW_TOKENS = 512
_TRANSFORMERS_DEFAULT = 20


def load_seq2seq(checkpoint: str | Path, *, dtype: str = "float32", **fields: Any) -> tuple[Any, Any]:
    """A model that writes text, in evaluation mode, and its tokenizer.

    Its generation config says in `max_new_tokens` how much it writes: as much as the checkpoint's own, or 512.

    Args:
        checkpoint: a folder or a hub id of a LongT5-Mulla, LongT5, T5 or mT5 with its decoder.
        dtype: `float32` or `bfloat16`, of its weights.
        fields: of the config, that replace its own.

    Raises:
        ConversionError: a checkpoint of another kind, without its decoder or without a tokenizer.
        UsageError: another dtype.
    """
    check_dtype(dtype)
    folder, config = _config_of(checkpoint)
    tokenizer = _tokenizer_of(folder)
    for name, value in fields.items():
        setattr(config, name, value)
    model, report = AutoModelForSeq2SeqLM.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, dtype),
        output_loading_info=True,
        # Told below, in one sentence.
        ignore_mismatched_sizes=True,
    )
    if report["mismatched_keys"]:
        name, stored, wanted = min(report["mismatched_keys"])
        raise ConversionError(
            f"expected {name} of {checkpoint} in the shape {list(wanted)} that its config.json asks for, got "
            f"{list(stored)}; copy the checkpoint again"
        )
    missing = sorted(report["missing_keys"])
    parts = {name for name in model.state_dict() if name.startswith("decoder.block.")}
    if missing and not parts <= set(missing):
        raise ConversionError(
            f"expected all weights of {checkpoint}, got none for {missing[0]}; the checkpoint is incomplete, copy it "
            "again"
        )
    if missing:
        raise ConversionError(
            f"expected a checkpoint with a decoder that writes text, got {checkpoint} without {missing[0]}; "
            "convert one that has it (`narrows convert --to mulla`), or train it"
        )
    require_finite(model.state_dict(), checkpoint)
    require_known_tokens(model.config, tokenizer, checkpoint)
    _limit_once(model.generation_config)
    return model.eval(), tokenizer


def require_known_tokens(config: Any, tokenizer: Any, checkpoint: str | Path) -> None:
    """Refuse a model that cannot read all that its tokenizer says, or does not know what writing starts with.

    Raises:
        ConversionError: fewer embeddings than tokens, or no decoder_start_token_id.
    """
    if len(tokenizer) > config.vocab_size:
        raise ConversionError(
            f"expected at least {len(tokenizer):,} embeddings in {checkpoint}, one for each of its tokenizer's tokens, "
            f"got {config.vocab_size:,}; copy the tokenizer that belongs to the model"
        )
    if config.decoder_start_token_id is None:
        raise ConversionError(
            f"expected a decoder_start_token_id in config.json of {checkpoint}, got none; "
            f"write T5's into it, {tokenizer.pad_token_id}, that of padding"
        )


def load_seq2seq_tokenizer(checkpoint: str | Path) -> Any:
    """The tokenizer of a checkpoint that `load_seq2seq` would load.

    Raises:
        ConversionError: as `load_seq2seq`, as far as the config and the tokenizer tell.
    """
    return _tokenizer_of(_config_of(checkpoint)[0])


def input_encoder(tokenizer: Any, *, truncation: Truncation, max_tokens: int, prefix: str = "") -> InputEncoder:
    """Documents and a query into inputs, the same in training, evaluation and use.

    T5's end of text stands at the end, between two documents, and between the query and the documents.

    Args:
        prefix: what every input begins with, such as the `summarize: ` of plain T5. Space around it does not count: the
            first word after it brings its own.
    """
    end, tokenize = [tokenizer.eos_token_id], plain_tokens(tokenizer)
    return InputEncoder(
        tokenize,
        truncation=truncation,
        max_tokens=max_tokens,
        separator_ids=end,
        ending_ids=end,
        prefix_ids=tokenize(prefix.strip()),
    )


def write_texts(
    model: Any, tokenizer: Any, inputs: Sequence[Sequence[int]], *, options: Mapping[str, Any], autocast: bool = False
) -> list[str]:
    """What a model writes of each input, padded into one batch.

    Args:
        model: as `load_seq2seq` gives it.
        tokenizer: its own.
        inputs: token ids, none of them empty.
        options: of `generate`, beside those of the model's generation config.
        autocast: compute in bf16, whatever the weights are.
    """
    longest = max(map(len, inputs))
    pad = model.config.pad_token_id
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in inputs], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in inputs], device=model.device)
    precision = torch.autocast(model.device.type, torch.bfloat16) if autocast else nullcontext()
    with torch.inference_mode(), precision:
        written = model.generate(input_ids=ids, attention_mask=mask, **options)
    return [text.strip() for text in tokenizer.batch_decode(written, skip_special_tokens=True)]


def _limit_once(generation: Any) -> None:
    """One limit of what is written, in `max_new_tokens`: two beside each other make transformers warn."""
    if generation.max_new_tokens is None:
        said = generation.max_length
        generation.max_new_tokens = _NEW_TOKENS if said in (None, _TRANSFORMERS_DEFAULT) else said
    generation.max_length = None


def _config_of(checkpoint: str | Path) -> tuple[Path, Any]:
    register_all()
    folder = checkpoint_folder(checkpoint)
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"expected a config.json of a known model in {folder}, got none that can be read "
            f"({str(error).strip().splitlines()[0]}); pass a checkpoint's folder"
        ) from error
    if config.model_type not in SEQ2SEQ_TYPES:
        raise ConversionError(
            f"expected a model that writes text (LongT5-Mulla, LongT5, T5 or mT5), got {checkpoint} of type "
            f"{config.model_type!r}; pass another checkpoint"
        )
    return folder, config


def _tokenizer_of(folder: Path) -> Any:
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for name in ("eos_token_id", "pad_token_id"):
        if getattr(tokenizer, name) is None:
            raise ConversionError(
                f"expected a tokenizer with {name.removesuffix('_id')} in {folder}, got none; "
                "add it to tokenizer_config.json"
            )
    return tokenizer
