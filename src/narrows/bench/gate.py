"""Checks that have to hold before a number counts: the fast forms give what the plain ones give.

Each is a function that returns None, or what is wrong in a few words. Small random models: it takes seconds.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from narrows.bench.workload import (
    SIZES,
    Workload,
    joint_model,
    split_engine,
    stand_in_tokenizer,
    stored_reading,
    write_store,
)
from narrows.data import bert_pairs
from narrows.deformer.convert import convert_checkpoint
from narrows.serving.engine import Engine, PassageLogits
from narrows.store import Store, get_codec
from narrows.store.codecs import Int8Codec

__all__ = ["DEFORMER"]

_TOLERANCE = 1e-5
_WORK = Workload(question=7, passage=19, passages=5)


def _engine(split_layer: int = 2) -> Engine:
    return split_engine(SIZES["tiny"], split_layer)


def _ragged(engine: Engine) -> list[list[int]]:
    """Passages of different lengths, closed."""
    rows = _WORK.passage_ids()
    return [engine.close_passage(row[: 3 + 4 * index]) for index, row in enumerate(rows)]


def _read(engine: Engine, states: Sequence[Tensor]) -> list[PassageLogits]:
    def fetch(batch: Sequence[int]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([states[index] for index in batch], batch_first=True)

    return engine.read(engine.encode_question(_WORK.question_text), [len(state) for state in states], fetch)


def _difference(found: Sequence[PassageLogits], expected: Sequence[PassageLogits]) -> str | None:
    differences = []
    for one, other in zip(found, expected, strict=True):
        differences += [one.start - other.start, one.end - other.end, torch.tensor(one.null - other.null)]
    return _worst(differences)


def _worst(differences: Sequence[Tensor]) -> str | None:
    # torch's largest of NaN and a number is NaN, Python's is whichever came first.
    worst = float(torch.stack([difference.abs().max() for difference in differences]).max())
    return None if worst <= _TOLERANCE else f"logits differ by {worst:.2g}, at most {_TOLERANCE} is allowed"


def _packed(engine: Engine, passages: Sequence[Sequence[int]]) -> list[PassageLogits]:
    """The reference: question and passage in one row through the model's own forward, a passage at a time."""
    tokenizer = engine.tokenizer
    question = engine.tokenize([_WORK.question_text])[0].ids
    layout = bert_pairs(cls=tokenizer.cls_token_id, sep=tokenizer.sep_token_id, pad=tokenizer.pad_token_id)
    logits = []
    for passage in passages:
        ids, segments = layout.join(question, passage[:-1])
        with torch.inference_mode():
            out = engine.model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
        start, end = out.start_logits[0], out.end_logits[0]
        first = layout.passage_start(question)
        last = first + len(passage) - 1
        logits.append(PassageLogits(start[first:last], end[first:last], float(start[0] + end[0])))
    return logits


def packed_equals_apart() -> str | None:
    """Both sides in one row give the logits that stored states give."""
    engine = _engine()
    passages = _ragged(engine)
    return _difference(_read(engine, engine.encode_passages(passages)), _packed(engine, passages))


def stored_equals_computed() -> str | None:
    """States through a store on disk, with the lossless codec, give the logits of computed ones."""
    engine = _engine()
    passages = [engine.close_passage(ids) for ids in _WORK.passage_ids()]
    computed = _read(engine, engine.encode_passages(passages))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        rows = write_store(engine, _WORK, place, codec="fp32")
        with Store.open(place, expect=engine.fingerprint("fp32")) as store:
            return _difference(stored_reading(engine, _WORK, store, rows)(), computed)


def padding_is_a_no_op() -> str | None:
    """A passage beside longer ones gives the logits that it gives alone."""
    engine = _engine()
    states = engine.encode_passages(_ragged(engine))
    alone = [_read(engine, [state])[0] for state in states]
    return _difference(_read(engine, states), alone)


def unsplit_equals_transformers() -> str | None:
    """Split 0 with positions running on is transformers' BertForQuestionAnswering, logit for logit."""
    joint = joint_model(SIZES["tiny"])
    tokenizer = stand_in_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        joint.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        ours, _ = convert_checkpoint(folder, split_layer=0, passage_positions="continue")
    ids = torch.tensor([[2, 9, 8, 7, 3, 21, 22, 23, 24, 3]])
    segments = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]])
    with torch.inference_mode():
        theirs = joint(input_ids=ids, token_type_ids=segments)
        own = ours(input_ids=ids, token_type_ids=segments)
    return _worst([theirs.start_logits - own.start_logits, theirs.end_logits - own.end_logits])


def int8_within_its_bound() -> str | None:
    """No value of an int8 state is further off than the codec says."""
    codec = get_codec("int8")
    states = torch.randn(64, 48, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 64)[:, None]
    decoded = codec.decode([codec.encode(states)], [64], 48)[0]
    errors = (states - decoded).abs().amax(1).numpy()
    bounds = np.array([Int8Codec.max_error(float(row.abs().max())) for row in states])
    over = int((errors > bounds).sum())
    return None if over == 0 else f"{over} of 64 tokens are over the bound"


DEFORMER: dict[str, Callable[[], str | None]] = {
    "packed equals apart": packed_equals_apart,
    "stored equals computed": stored_equals_computed,
    "padding is a no-op": padding_is_a_no_op,
    "unsplit equals transformers": unsplit_equals_transformers,
    "int8 within its bound": int8_within_its_bound,
}
