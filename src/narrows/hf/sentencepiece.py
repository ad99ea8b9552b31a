"""SentencePiece files as fast tokenizers laid out like T5's, without the sentencepiece library."""

from pathlib import Path
from typing import Any

from narrows.errors import ConversionError

__all__ = ["SENTINELS", "read_sentencepiece", "sentinel_ids"]

SENTINELS = 100
# Types of pieces in a SentencePiece model: plain ones, and ones that its maker asked for. Control tokens are not text.
_NORMAL, _ASKED_FOR = 1, 4
_UNIGRAM = 1


def read_sentencepiece(path: str | Path, *, lowercase: bool = False) -> Any:
    """A tokenizer of a SentencePiece model, laid out as T5's.

    Ids: `<pad>` 0, `</s>` 1, `<unk>` 2, the model's own pieces in their order, and 100 sentinels `<extra_id_99>` …
    `<extra_id_0>`. T5's own `spiece.model` gives T5's ids.

    Args:
        path: a unigram model, such as `spiece.model`.
        lowercase: make letters small first, for a model that knows small ones only.

    Raises:
        ConversionError: no SentencePiece file, or not a unigram model.
    """
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import Unigram
    from transformers import PreTrainedTokenizerFast

    proto = _parse(Path(path))
    if proto.trainer_spec.model_type != _UNIGRAM:
        raise ConversionError(
            f"expected a unigram SentencePiece model in {path}, got another kind; pass one such as T5's spiece.model"
        )
    pieces = [(piece.piece, piece.score) for piece in proto.pieces if piece.type in (_NORMAL, _ASKED_FOR)]
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(SENTINELS))]
    special = ["<pad>", "</s>", "<unk>"]
    known = {*special, *sentinels}
    pieces = [piece for piece in pieces if piece[0] not in known]
    vocabulary = [*((name, 0.0) for name in special), *pieces, *((name, 0.0) for name in sentinels)]
    made = Tokenizer(Unigram(vocabulary, unk_id=2, byte_fallback=False))
    steps: list[Any] = [normalizers.Lowercase()] if lowercase else []
    if proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    made.normalizer = normalizers.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    metaspace = {"replacement": "▁", "prepend_scheme": "always", "split": True}
    made.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**metaspace)]
    )
    made.decoder = decoders.Metaspace(**metaspace)  # pyright: ignore[reportAttributeAccessIssue]
    made.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=["$A", "</s>"], pair=["$A", "</s>", "$B", "</s>"], special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=sentinels[::-1],
        model_input_names=["input_ids", "attention_mask"],
    )


def sentinel_ids(tokenizer: Any) -> list[int]:
    """The ids of `<extra_id_0>`, `<extra_id_1>`, …, as many as a tokenizer has; none where it has none."""
    vocabulary = tokenizer.get_vocab()
    found: list[int] = []
    while (name := f"<extra_id_{len(found)}>") in vocabulary:
        found.append(vocabulary[name])
    return found


def _parse(path: Path) -> Any:
    # transformers carries the message's description; protobuf comes with tensorboard.
    from google.protobuf.message import DecodeError
    from transformers.utils.sentencepiece_model_pb2_new import ModelProto  # pyright: ignore[reportAttributeAccessIssue]

    proto = ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
        found = bool(proto.pieces)
    except (OSError, DecodeError):
        found = False
    if not found:
        raise ConversionError(f"expected a SentencePiece model in {path}, got none that can be read; check the path")
    return proto
