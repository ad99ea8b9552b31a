"""A vocabulary of bytes, which reads any text and has nothing to learn."""

from typing import Any

__all__ = ["BYTES", "byte_tokenizer"]

BYTES = "bytes"
"""Names this tokenizer where a recipe names one."""

_PAD, _BEGIN, _END, _MASK = "<pad>", "<s>", "</s>", "<mask>"
_NUM_BYTES = 256


def byte_tokenizer() -> Any:
    """A fast tokenizer of transformers whose ids are the bytes of a text's UTF-8.

    Ids: a byte's own value, 0 to 255, then `<pad>` 256, `<s>` 257 (bos and cls), `</s>` 258 (eos and sep) and `<mask>`
    259. A call puts `<s> … </s>` around a text, or `<s> … </s> … </s>` around a pair, unless it says
    `add_special_tokens=False`. A text that spells a special token is read as its bytes; `split_special_tokens=False`
    in a call reads the token instead. All of this is kept by `save_pretrained`.

    Decoding gives every text back; bytes that are no UTF-8 are shown as U+FFFD.

    Example:
        >>> tokenizer = byte_tokenizer()
        >>> tokenizer("é <s>", add_special_tokens=False)["input_ids"]
        [195, 169, 32, 60, 115, 62]
        >>> tokenizer("a", "b")["input_ids"]
        [257, 97, 258, 98, 258]
    """
    from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    special = {token: _NUM_BYTES + place for place, token in enumerate((_PAD, _BEGIN, _END, _MASK))}
    # Without merges a text is cut into characters, each of which stands for a byte: no text is cut into `<pad>`.
    made = Tokenizer(BPE(vocab={**_byte_characters(), **special}, merges=[]))
    # A regular expression would only take time.
    made.pre_tokenizer = pre_tokenizers.ByteLevel(  # pyright: ignore[reportAttributeAccessIssue]
        add_prefix_space=False, use_regex=False
    )
    made.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    made.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=f"{_BEGIN} $A {_END}",
        pair=f"{_BEGIN} $A {_END} $B:1 {_END}:1",
        special_tokens=[(token, special[token]) for token in (_BEGIN, _END)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=_PAD,
        bos_token=_BEGIN,
        cls_token=_BEGIN,
        eos_token=_END,
        sep_token=_END,
        mask_token=_MASK,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary.

    Source: `bytes_to_unicode` of GPT-2: a byte that prints in Latin-1 stands for itself, and the others, in their
    order, are the characters from U+0100 on.
    """
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(_NUM_BYTES) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(_NUM_BYTES + place): byte for place, byte in enumerate(hidden)}
