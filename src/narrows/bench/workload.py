"""One question over stored passages: sizes, models with random weights, the store, and both ways to read.

Random weights take the time that trained ones take, so the speed rows need no checkpoint.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from narrows.bench.cost import EncoderSize
from narrows.deformer import DeformerConfig, DeformerForQuestionAnswering
from narrows.serving.engine import Engine, PassageLogits
from narrows.store import Store, StoredDocument, StoredPassage

__all__ = [
    "SIZES",
    "Workload",
    "joint_contenders",
    "joint_model",
    "split_engine",
    "stored_reading",
    "write_store",
]

SIZES = {
    size.name: size
    for size in (
        EncoderSize("minilm", 6, 384, 12),
        EncoderSize("bert-base", 12, 768, 12),
        EncoderSize("bert-large", 24, 1024, 16),
        EncoderSize("tiny", 3, 32, 2),
    )
}
_VOCABULARY = 30522
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Workload(NamedTuple):
    """A question and passages; lengths in tokens with [CLS] and [SEP]."""

    question: int = 27
    passage: int = 293
    passages: int = 32

    @property
    def question_text(self) -> str:
        """Words of one token each under `stand_in_tokenizer`."""
        return " ".join(f"w{index}" for index in range(self.question - 2))

    def passage_ids(self, seed: int = 0) -> list[list[int]]:
        """Random token ids of the passages, without their closing [SEP]."""
        generator = np.random.default_rng(seed)
        rows = generator.integers(len(_SPECIAL), _VOCABULARY, size=(self.passages, self.passage - 1))
        return rows.tolist()


def stand_in_tokenizer() -> Any:
    """A fast tokenizer whose words are `w0`, `w1`, …, with BERT's special tokens and vocabulary size."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = [*_SPECIAL, *(f"w{index}" for index in range(_VOCABULARY - len(_SPECIAL)))]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _sizes(size: EncoderSize) -> dict[str, Any]:
    return {
        "vocab_size": _VOCABULARY,
        "hidden_size": size.width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": 4 * size.width,
        # Keeps states of unit size at any width; with smaller weights layers would hardly change their input,
        # and a wrong one would go unseen by the gate.
        "initializer_range": size.width**-0.5,
    }


def joint_model(size: EncoderSize, precision: str = "float32", *, seed: int = 0) -> Any:
    """transformers' BertForQuestionAnswering with sdpa: the peer."""
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(seed)
    model = BertForQuestionAnswering._from_config(BertConfig(**_sizes(size)), attn_implementation="sdpa").eval()
    if precision == "bfloat16":
        return model.bfloat16()
    if precision == "int8":
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    return model


def split_engine(
    size: EncoderSize, split_layer: int, precision: str = "float32", *, batch_tokens: int = 8192, seed: int = 0
) -> Engine:
    """Our engine over a model of the same sizes."""
    torch.manual_seed(seed)
    model = DeformerForQuestionAnswering(DeformerConfig(split_layer=split_layer, **_sizes(size)))
    return Engine(model, stand_in_tokenizer(), precision=precision, batch_tokens=batch_tokens)


def joint_contenders(
    model: nn.Module, work: Workload, batches: Sequence[int], *, seed: int = 0
) -> dict[int, Callable[[], list[Tensor]]]:
    """For each batch size, a function that reads all passages; token ids are made beforehand."""
    cls, sep = _SPECIAL.index("[CLS]"), _SPECIAL.index("[SEP]")
    question = [cls, *range(len(_SPECIAL), len(_SPECIAL) + work.question - 2), sep]
    ids = torch.tensor([[*question, *passage, sep] for passage in work.passage_ids(seed)])
    segments = (torch.arange(ids.shape[1]) >= work.question).long().expand_as(ids).contiguous()
    mask = torch.ones_like(ids)

    def read(batch: int) -> list[Tensor]:
        logits = []
        with torch.inference_mode():
            for first in range(0, len(ids), batch):
                part = slice(first, first + batch)
                outputs = model(input_ids=ids[part], token_type_ids=segments[part], attention_mask=mask[part])
                logits.append(torch.stack([outputs.start_logits, outputs.end_logits], -1))
        return logits

    return {batch: lambda batch=batch: read(batch) for batch in batches}


def write_store(engine: Engine, work: Workload, folder: Path, *, codec: str = "int8", seed: int = 0) -> list[int]:
    """Encode the passages, put them into a new store, and return their row ids."""
    passages = [engine.close_passage(ids) for ids in work.passage_ids(seed)]
    with Store.create(folder, engine.fingerprint(codec)) as store:
        stored = [
            StoredPassage(
                passage_id=f"bench:{index}",
                document_id="bench",
                title="",
                start=0,
                end=len(ids),
                text=f"passage {index}",
                token_ids=np.asarray(ids, dtype=np.int32),
                states=store.codec.encode(states),
            )
            for index, (ids, states) in enumerate(zip(passages, engine.encode_passages(passages), strict=True))
        ]
        with store.writer() as writer:
            writer.put([StoredDocument(document_id="bench", sha256="0" * 64, title="", passages=stored)])
            writer.finish()
        return sorted(hit.row_id for hit in store.search("passage", work.passages))


def stored_reading(
    engine: Engine, work: Workload, store: Store, rows: Sequence[int]
) -> Callable[[], list[PassageLogits]]:
    """A function that reads as `narrows ask` does once passages are chosen.

    The question's states, the passages' states from disk (checksums compared, decoded), the upper layers.
    """
    width = engine.config.hidden_size

    def read() -> list[PassageLogits]:
        question = engine.encode_question(work.question_text)
        loaded = store.load(rows)

        def fetch(batch: Sequence[int]) -> Tensor:
            return store.codec.decode_padded(
                [loaded.states[index] for index in batch], [loaded.lengths[index] for index in batch], width
            )

        return engine.read(question, loaded.lengths, fetch)

    return read


def bare_reading(engine: Engine, work: Workload, *, seed: int = 0) -> Callable[[], list[PassageLogits]]:
    """The same with the passages' fp32 states in memory already, and no store."""
    passages = [engine.close_passage(ids) for ids in work.passage_ids(seed)]
    states = torch.stack(engine.encode_passages(passages))
    lengths = [work.passage] * work.passages

    def read() -> list[PassageLogits]:
        return engine.read(engine.encode_question(work.question_text), lengths, lambda batch: states[list(batch)])

    return read
