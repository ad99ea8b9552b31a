"""The `question-answering` task, which transformers 5 no longer has, for `transformers.pipeline`.

Arguments and output are those of transformers 4, with what was left open there settled:

- A list of questions gives a list with one entry a question, however long it is. An entry is a dict with
  `top_k=1` and a list of dicts otherwise, as for a single question.
- `context[start:end] == answer`, always; the answer "" stands at 0, 0.
- The same place found in several windows is one answer with its best score. The same text at another place is
  another answer (the last releases of transformers 4 added their scores up, also beyond 1).
- A context without a token gives "", with score 1 under `handle_impossible_answer` and 0 without.
- `batch_size` counts windows, and does not change the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, Pipeline, pipelines
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import logging

from narrows._plural import count
from narrows.data import AS_PLAIN_TEXT
from narrows.deformer import DeformerConfig
from narrows.deformer.spans import top_spans
from narrows.errors import UsageError
from narrows.hf.encoders import Encoder
from narrows.serving.words import require_unicode, require_word

__all__ = ["QuestionAnsweringPipeline", "register_pipeline"]

_TASK = "question-answering"
_WORDS = ("question", "context")
_READING = ("doc_stride", "max_seq_len", "max_question_len")
_CHOOSING = ("top_k", "max_answer_len", "handle_impossible_answer", "align_to_words")
_SETTINGS = (*_READING, *_CHOOSING)
# Wider than any margin of two real logits.
_LOWEST = -1e4

logger = logging.get_logger(__name__)


def register_pipeline() -> None:
    """Make `transformers.pipeline("question-answering", ...)` work again. May be called again.

    Example:
        >>> import narrows, transformers
        >>> narrows.register_all(); narrows.register_pipeline()
        >>> qa = transformers.pipeline("question-answering", model="my-reader")  # doctest: +SKIP
        >>> qa(question="Who built it?", context="Maria Keller built the clock.")  # doctest: +SKIP
        {'score': 0.93, 'start': 0, 'end': 12, 'answer': 'Maria Keller'}
    """
    # transformers refuses the names of tasks that it removed before it looks into its registry.
    getattr(pipelines, "REMOVED_TASKS", {}).pop(_TASK, None)
    if PIPELINE_REGISTRY.supported_tasks.get(_TASK, {}).get("impl") is not QuestionAnsweringPipeline:
        PIPELINE_REGISTRY.register_pipeline(
            _TASK, QuestionAnsweringPipeline, pt_model=AutoModelForQuestionAnswering, type="text"
        )


class _Window(NamedTuple):
    """A row for the model, and its tokens' places.

    Attributes:
        inputs: the row, by the names that the model takes.
        offsets: each token's characters of the context; None where no answer may be.
        words: the characters of the word that each token is of; None where it has none.
        cls: index of [CLS]; None when there is none.
    """

    inputs: dict[str, list[int]]
    offsets: list[tuple[int, int] | None]
    words: list[tuple[int, int] | None]
    cls: int | None


class QuestionAnsweringPipeline(Pipeline):
    """Span answers from any model of AutoModelForQuestionAnswering; made by `transformers.pipeline`.

    Args (of the pipeline or of a call, as in transformers 4):
        top_k: answers a question (`topk` is its old name).
        doc_stride: tokens that neighbouring windows share; None: 128, less where a window is short.
        max_answer_len: longest answer, in tokens.
        max_seq_len: longest row of question and context, in tokens; None: 384, or the tokenizer's limit if
            less.
        max_question_len: question tokens beyond are cut off, with a warning.
        handle_impossible_answer: let "" compete, with the lowest no-answer probability of all windows.
        align_to_words: widen answers to whole words.
        batch_size: windows in a forward pass.
    """

    # The base class allows for none; `pipeline()` loads one because of the next line.
    tokenizer: Any
    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False

    def _sanitize_parameters(self, topk: int | None = None, **given: Any):
        # As in transformers 4, None stands for the default.
        given = {name: value for name, value in given.items() if value is not None or name not in _SETTINGS}
        if topk is not None:
            given.setdefault("top_k", topk)
        for name in given:
            if name not in _SETTINGS:
                raise UsageError(f"`{_TASK}` takes {', '.join((*_SETTINGS, 'batch_size'))}, got {name!r}; leave it out")
        for name in ("top_k", "max_answer_len", "max_seq_len", "max_question_len"):
            value = given.get(name)
            if value is not None and value < 1:
                raise UsageError(f"`{name}` must be at least 1, got {value}; pass a larger number")
        reading = {name: given[name] for name in _READING if name in given}
        return reading, {}, {name: given[name] for name in _CHOOSING if name in given}

    def __call__(self, *inputs: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Answer `question=..., context=...` (texts, or lists of them), or a dict or dicts with these keys.

        Returns:
            `{"score", "start", "end", "answer"}` for a question with `top_k=1`, a list of them with more; for
            a list of questions a list of such results.

        Raises:
            UsageError: an empty question, something else than texts, or an argument out of range.
        """
        words = {name: kwargs.pop(name) for name in _WORDS if name in kwargs}
        for old in ("data", "X"):
            if old in kwargs:
                inputs = (*inputs, kwargs.pop(old))
        pairs, single = _pairs(inputs, words)
        reading, _, choosing = self._sanitize_parameters(**kwargs)
        reading, choosing = self._preprocess_params | reading, self._postprocess_params | choosing
        windows = [self.preprocess(pair, **reading) for pair in pairs]
        logits = iter(self._run([w for of_pair in windows for w in of_pair], batch_size or self._batch_size or 1))
        results = [
            self.postprocess((pair, of_pair, [next(logits) for _ in of_pair]), **choosing)
            for pair, of_pair in zip(pairs, windows, strict=True)
        ]
        return results[0] if single else results

    def preprocess(
        self,
        input_: tuple[str, str],
        doc_stride: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int = 64,
        **_: Any,
    ) -> list[_Window]:
        """The windows of a question and its context."""
        question, context = input_
        tokenizer = self.tokenizer
        # Of RoBERTa fewer than its config says: it counts from behind the padding's index.
        positions = Encoder("", self.model, tokenizer).positions or tokenizer.model_max_length
        longest = min(tokenizer.model_max_length, positions, 384) if max_seq_len is None else max_seq_len
        if longest > positions:
            raise UsageError(
                f"`max_seq_len` must be at most the model's {count(positions, 'position')}, got {longest}; "
                "pass a smaller one"
            )
        question, length = self._cut(question, max_question_len)
        alone = length + tokenizer.num_special_tokens_to_add(pair=True)
        room = longest - alone
        if room < 1:
            raise UsageError(
                f"`max_seq_len` must leave room for the context beside a question of {count(alone, 'token')}, "
                f"got {longest}; raise it, or lower `max_question_len`"
            )
        shared = min(longest // 2, 128, room // 2) if doc_stride is None else doc_stride
        if not 0 <= shared < room:
            raise UsageError(
                f"`doc_stride` (tokens that windows share) must be from 0 to {room - 1} here, "
                f"got {shared}; lower it, or raise `max_seq_len`"
            )
        return self._windows(question, context, longest, shared) if context.strip() else []

    def _cut(self, question: str, room: int) -> tuple[str, int]:
        """The question within its room, and its number of tokens."""
        offsets = self.tokenizer(question, **AS_PLAIN_TEXT)["offset_mapping"]
        if not offsets:
            raise UsageError("expected a question, got an empty one; ask in at least one word")
        if len(offsets) <= room:
            return question, len(offsets)
        logger.warning(f"a question of {count(len(offsets), 'token')} was cut to max_question_len={room}")
        return question[: offsets[room - 1][1]], room

    def _windows(self, question: str, context: str, max_seq_len: int, doc_stride: int) -> list[_Window]:
        first = self.tokenizer.padding_side == "right"
        encoded = self.tokenizer(
            question if first else context,
            context if first else question,
            truncation="only_second" if first else "only_first",
            max_length=max_seq_len,
            stride=doc_stride,
            # As in AS_PLAIN_TEXT.
            split_special_tokens=True,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            return_attention_mask=True,
        )
        side = 1 if first else 0
        windows = []
        for row, ids in enumerate(encoded["input_ids"]):
            sides, numbers, offsets = (
                encoded.sequence_ids(row),
                encoded.word_ids(row),
                encoded["offset_mapping"][row],
            )
            places = [tuple(o) if s == side else None for s, o in zip(sides, offsets, strict=True)]
            if not any(places):
                continue
            words = [
                None if place is None or number is None else encoded.word_to_chars(row, number, side)
                for place, number in zip(places, numbers, strict=True)
            ]
            cls = ids.index(self.tokenizer.cls_token_id) if self.tokenizer.cls_token_id in ids else None
            inputs = {name: encoded[name][row] for name in self._input_names}
            windows.append(_Window(inputs, places, [None if w is None else (w.start, w.end) for w in words], cls))
        return windows

    @property
    def _input_names(self) -> list[str]:
        names = [name for name in self.tokenizer.model_input_names if name != "position_ids"]
        if isinstance(self.model.config, DeformerConfig) and "token_type_ids" not in names:
            # A DeFormer tells the two sides apart by nothing else.
            names.append("token_type_ids")
        return names

    def _run(self, windows: Sequence[_Window], batch_size: int) -> list[tuple[Tensor, Tensor]]:
        """Start and end logits of each window, padding removed."""
        if batch_size < 1:
            raise UsageError(f"`batch_size` must be at least 1, got {batch_size}; pass a larger number")
        if batch_size > 1 and self.tokenizer.pad_token_id is None:
            raise UsageError("`batch_size` above 1 needs a tokenizer with a padding token, got one without; pass 1")
        order = sorted(range(len(windows)), key=lambda index: -len(windows[index].offsets))
        logits: dict[int, tuple[Tensor, Tensor]] = {}
        for begin in range(0, len(order), batch_size):
            batch = order[begin : begin + batch_size]
            outputs: Any = self.forward(self._pad([windows[index].inputs for index in batch]))
            for row, index in enumerate(batch):
                length = len(windows[index].offsets)
                kept = slice(0, length) if self.tokenizer.padding_side == "right" else slice(-length, None)
                logits[index] = outputs["start"][row, kept].float(), outputs["end"][row, kept].float()
        return [logits[index] for index in range(len(windows))]

    def _pad(self, rows: Sequence[Mapping[str, list[int]]]) -> dict[str, Tensor]:
        if len(rows) == 1:
            return {name: torch.tensor([values]) for name, values in rows[0].items()}
        padded = self.tokenizer.pad({name: [row[name] for row in rows] for name in rows[0]}, return_tensors="pt")
        return dict(padded)

    def _forward(self, model_inputs: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        outputs = self.model(**model_inputs)
        return {"start": outputs.start_logits, "end": outputs.end_logits}

    def postprocess(
        self,
        model_outputs: tuple[tuple[str, str], list[_Window], list[tuple[Tensor, Tensor]]],
        top_k: int = 1,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
        **_: Any,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """The answers of a question from the logits of its windows."""
        (_question, context), windows, logits = model_outputs
        wanted = top_k * 2 + 10 if align_to_words else top_k
        best: dict[tuple[int, int], float] = {}
        null = 1.0
        for window, (start, end) in zip(windows, logits, strict=True):
            found, impossible = _spans(window, start, end, max_answer_len, wanted, align_to_words)
            null = min(null, impossible)
            for place, score in found.items():
                best[place] = max(best.get(place, 0.0), score)
        answers = [
            {"score": score, "start": start, "end": end, "answer": context[start:end]}
            for (start, end), score in best.items()
            if context[start:end].strip()
        ]
        if handle_impossible_answer or not answers:
            score = null if handle_impossible_answer else 0.0
            answers.append({"score": score, "start": 0, "end": 0, "answer": ""})
        answers = sorted(answers, key=lambda answer: -answer["score"])[:top_k]
        return answers[0] if top_k == 1 else answers


def _spans(
    window: _Window, start: Tensor, end: Tensor, max_tokens: int, count: int, align: bool
) -> tuple[dict[tuple[int, int], float], float]:
    """Places of a window with their probabilities, and the probability that it has no answer.

    Probabilities are softmax products over the context's tokens and [CLS]. Spans that widen to the same words
    are the same answer, so their probabilities add up.
    """
    offsets, words, cls = window.offsets, window.words, window.cls
    context = torch.tensor([place is not None for place in offsets])
    read = context.clone()
    if cls is not None:
        read[cls] = True
    start = start.masked_fill(~read, _LOWEST).log_softmax(-1)
    end = end.masked_fill(~read, _LOWEST).log_softmax(-1)
    null = 0.0 if cls is None else float((start[cls] + end[cls]).exp())
    spans = top_spans(
        start.masked_fill(~context, float("-inf"))[None],
        end.masked_fill(~context, float("-inf"))[None],
        max_tokens=max_tokens,
        count=count,
    )
    found: dict[tuple[int, int], float] = {}
    for score, first, last in zip(spans.scores[0].exp(), spans.first[0], spans.last[0], strict=True):
        begin, stop = offsets[int(first)], offsets[int(last)] if int(last) < len(offsets) else None
        if begin is None or stop is None or not float(score):
            continue
        if align:
            begin, stop = words[int(first)] or begin, words[int(last)] or stop
        place = (begin[0], stop[1])
        found[place] = found.get(place, 0.0) + float(score)
    return found, null


def _pairs(inputs: tuple[Any, ...], words: dict[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    """Every question with its context, and whether one question was asked rather than a list."""
    if words:
        if inputs or set(words) != set(_WORDS):
            raise UsageError(
                "expected both `question` and `context`, or a dict or dicts with these keys, "
                f"got {', '.join(words)}{' beside other inputs' if inputs else ''}; pass one of the two forms"
            )
        question, context = words["question"], words["context"]
        if isinstance(question, str) and isinstance(context, str):
            return [_pair(question, context)], True
        for name, value in words.items():
            if not isinstance(value, Iterable):
                raise UsageError(_no_text(name, value))
        questions = [question] if isinstance(question, str) else list(question)
        contexts = [context] * len(questions) if isinstance(context, str) else list(context)
        if isinstance(question, str):
            questions = questions * len(contexts)
        if len(questions) != len(contexts):
            raise UsageError(
                f"expected as many contexts as questions, got {len(contexts)} and {len(questions)}; pass one a question"
            )
        return [_pair(*pair) for pair in zip(questions, contexts, strict=True)], False
    if len(inputs) == 1 and not isinstance(inputs[0], Mapping | str) and isinstance(inputs[0], Iterable):
        return [_of_mapping(item) for item in inputs[0]], False
    if not inputs:
        raise UsageError("expected `question` and `context`, got nothing; pass them by name or as a dict")
    return [_of_mapping(item) for item in inputs], len(inputs) == 1


def _of_mapping(item: Any) -> tuple[str, str]:
    if not isinstance(item, Mapping) or not set(_WORDS) <= set(item):
        found = f"the keys {', '.join(map(str, item))}" if isinstance(item, Mapping) else f"a {type(item).__name__}"
        raise UsageError(f"expected a dict with `question` and `context`, got {found}; pass both as texts")
    return _pair(item["question"], item["context"])


def _pair(question: Any, context: Any) -> tuple[str, str]:
    for name, value in (("question", question), ("context", context)):
        if not isinstance(value, str):
            raise UsageError(_no_text(name, value))
        require_unicode(value, f"`{name}`")
    if not question.strip():
        raise UsageError("expected a question, got an empty one; ask in at least one word")
    require_word(question)
    return question, context


def _no_text(name: str, value: Any) -> str:
    return f"expected `{name}` to be a text, got a {type(value).__name__}; pass a string"
