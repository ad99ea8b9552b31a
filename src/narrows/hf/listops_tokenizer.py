"""A vocabulary of the words of ListOps."""

from typing import Any

from narrows.data.listops import LISTOPS_TOKENS

__all__ = ["listops_tokenizer"]

_UNKNOWN = "<unk>"
_PAD, _BEGIN, _END, _MASK = "<pad>", "<s>", "</s>", "<mask>"


def listops_tokenizer() -> Any:
    """A fast tokenizer of transformers with a token for each digit, operator and closing bracket of ListOps.

    Ids: the 15 words of `narrows.data.LISTOPS_TOKENS` in their order, from 0, then `<unk>` 15, `<pad>` 16, `<s>` 17
    (bos and cls), `</s>` 18 (eos and sep) and `<mask>` 19. Round brackets are passed over, as in
    `narrows.data.listops_tokens`. A call puts `<s> … </s>` around an expression.

    Example:
        >>> tokenizer = listops_tokenizer()
        >>> tokenizer("[MAX 2 9 ]")["input_ids"]
        [17, 11, 2, 9, 14, 18]
    """
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = (*LISTOPS_TOKENS, _UNKNOWN)
    # The special tokens are added, and no words: one that stands in a text is unknown there.
    made = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token=_UNKNOWN))
    made.normalizer = normalizers.Replace(Regex("[()]"), " ")  # pyright: ignore[reportAttributeAccessIssue]
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    made.add_special_tokens([AddedToken(token, special=True) for token in (_PAD, _BEGIN, _END, _MASK)])
    made.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=f"{_BEGIN} $A {_END}",
        special_tokens=[(token, len(words) + place) for place, token in ((1, _BEGIN), (2, _END))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token=_UNKNOWN,
        pad_token=_PAD,
        bos_token=_BEGIN,
        cls_token=_BEGIN,
        eos_token=_END,
        sep_token=_END,
        mask_token=_MASK,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
