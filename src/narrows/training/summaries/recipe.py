"""The recipe of a summariser: Mulla or a peer of the T5 family, over long documents, or over plain text before that."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from narrows._plural import count
from narrows.data import Truncation, truncation
from narrows.data.span_corruption import corrupted_lengths
from narrows.errors import RecipeError, UsageError
from narrows.hf.sentencepiece import SENTINELS
from narrows.hf.trained_inputs import TrainedInputs, check_dtype, is_fp16
from narrows.training.sections import CardText, OptimiserSection, Recipe, Section, Times, require_once

__all__ = [
    "CorruptionSection",
    "DataPart",
    "DataSection",
    "EvaluateSection",
    "GenerationSection",
    "ModelSection",
    "ScratchSection",
    "SummaryOptimiser",
    "SummaryRecipe",
    "TruncationSection",
]

_MULLA_OPTIONS = ("variant", "pooling_rate", "num_levels", "local_radius", "level_scales", "new_tables")


class ScratchSection(Section):
    """Sizes of a model that starts from nothing, under T5's names.

    Attributes:
        tokenizer: a tokenizer's folder, its `tokenizer.json`, or a SentencePiece model, under the folder of the runs
            or of the data, or anywhere; `bytes` is `narrows.hf.byte_tokenizer`, and a folder of that name is `./bytes`.
        lowercase: of a SentencePiece model that knows small letters only.
    """

    tokenizer: str
    lowercase: bool = False
    d_model: int = Field(256, ge=1)
    d_kv: int = Field(64, ge=1)
    d_ff: int = Field(512, ge=1)
    num_layers: int = Field(4, ge=1)
    num_decoder_layers: int | None = Field(None, ge=1)
    num_heads: int = Field(4, ge=1)
    feed_forward_proj: str = "gated-gelu"
    relative_attention_num_buckets: int = Field(32, ge=4)
    relative_attention_max_distance: int = Field(128, ge=2)


class ModelSection(Section):
    """Attributes:
    checkpoint: folder, hub id, or the output of another run; or `scratch`.
    scratch: sizes of a model that starts from nothing; or `checkpoint`.
    family: of a checkpoint: `mulla` converts it at the start, none takes it as it is. Of a model from scratch: `mulla`,
        or a peer of the same sizes.
    variant, pooling_rate, num_levels, local_radius, new_tables: of a Mulla that is made, as `narrows convert` has them;
        `local_radius` also of a LongT5 from scratch.
    level_scales: of a Mulla that is made: a learnable factor on the position scores of each dynamic level.
    """

    checkpoint: str | None = None
    scratch: ScratchSection | None = None
    family: Literal["mulla", "longt5-local", "longt5-tglobal", "t5"] | None = None
    variant: Literal["dynamic", "fixed"] | None = None
    pooling_rate: int | None = Field(None, ge=2)
    num_levels: int | None = Field(None, ge=1)
    local_radius: int | None = Field(None, ge=1)
    level_scales: bool | None = None
    new_tables: Literal["local", "global"] | None = None

    def mulla_options(self) -> dict[str, Any]:
        """Those of a Mulla that were given."""
        given = {name: getattr(self, name) for name in _MULLA_OPTIONS}
        return {name: value for name, value in given.items() if value is not None}


class DataPart(Section):
    """One source of records.

    Attributes:
        format: a layout of `narrows.data.read_summaries`; for span corruption also `text` (plain text, .gz or not), and
        of the other layouts the documents are read.
        file: path under the data folder.
        split: JSON file with lists of ids by part, and the part taken.
        part: name of that part.
        references: train on the first summary of a record, or on each of them.
        times: how often the part is seen in an epoch; of training data only.
    """

    format: Literal[
        "jsonl", "squality", "qmsum", "multi-news", "arxiv", "pubmed", "wcep", "wcep-10", "govreport", "text"
    ]
    file: str
    split: str | None = None
    part: str | None = None
    references: Literal["first", "all"] = "first"
    times: Times = 1


class TruncationSection(Section):
    """How a document that is too long is cut: a name of `narrows.data.TRUNCATIONS`, and that one's options."""

    name: str = "head"
    head_share: float | None = None
    overlap: int | None = None
    part_tokens: int | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "TruncationSection":
        self.make()
        return self

    def options(self) -> dict[str, Any]:
        """The name and what was given beside it."""
        return {name: value for name, value in self.model_dump().items() if value is not None}

    def make(self) -> Truncation:
        """The truncation itself."""
        options = self.options()
        return truncation(options.pop("name"), **options)


class DataSection(Section):
    """Attributes:
    max_input_tokens: longest input, the query among it.
    max_output_tokens: longest summary.
    prefix: what every input begins with, such as plain T5's `summarize: `; the model keeps it for its use.
    lengths: `max_input_tokens` of the stages of a run, growing up to it; none: one stage.
    shares: of the steps, that each stage takes, as far as whole records allow; none: equal ones.
    """

    train: list[DataPart] = Field(min_length=1)
    tune: list[DataPart] = Field(default_factory=list)
    truncation: TruncationSection = TruncationSection()  # type: ignore[call-arg]
    max_input_tokens: int = Field(8192, ge=8)
    max_output_tokens: int = Field(512, ge=2)
    prefix: str = ""
    lengths: list[int] = Field(default_factory=list)
    shares: list[float] = Field(default_factory=list)

    def stages(self) -> list[tuple[int, float]]:
        """Longest input and share of the steps of each stage."""
        lengths = self.lengths or [self.max_input_tokens]
        return list(zip(lengths, self.shares or [1 / len(lengths)] * len(lengths), strict=True))


class CorruptionSection(Section):
    """Of `objective: span-corruption`; see `narrows.data.span_corruption`."""

    noise_density: float = Field(0.15, gt=0, lt=1)
    mean_span: float = Field(3.0, ge=1)


class SummaryOptimiser(OptimiserSection):
    """The common section with T5's settings as defaults: Adafactor, a constant rate without a warm-up, bf16.

    Attributes:
        optimizer: `adafactor` without relative steps or scaling by the parameters, or `adamw`.
        schedule: of the learning rate after the warm-up.
        gradient_checkpointing: compute layers again in the backward pass, for memory.
        max_grad_norm: 0: gradients are not clipped, as Adafactor clips its updates.
        layer_decay: 1; other factors are of span readers.
    """

    optimizer: Literal["adafactor", "adamw"] = "adafactor"
    schedule: Literal["constant", "linear"] = "constant"
    gradient_checkpointing: bool = False
    learning_rate: float = Field(1e-3, gt=0)
    warmup: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    layer_decay: float = Field(1.0, ge=1, le=1)
    max_grad_norm: float = Field(0.0, ge=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    batch_tokens: int = Field(16384, ge=16)
    dtype: Literal["float32", "bfloat16"] = "bfloat16"

    @field_validator("dtype", mode="before")
    @classmethod
    def _does_not_overflow(cls, dtype: Any) -> Any:
        if isinstance(dtype, str) and is_fp16(dtype):
            # Says why.
            check_dtype(dtype)
        return dtype


class GenerationSection(Section):
    """How the model writes, at evaluation and, through its generation config, in use."""

    num_beams: int = Field(1, ge=1)
    max_new_tokens: int = Field(512, ge=1)
    min_new_tokens: int = Field(0, ge=0)
    no_repeat_ngram_size: int = Field(0, ge=0)
    length_penalty: float = 1.0

    @model_validator(mode="after")
    def _go_together(self) -> "GenerationSection":
        if self.length_penalty != 1 and self.num_beams == 1:
            raise UsageError("expected a length_penalty with num_beams above 1 only; leave it out")
        if self.min_new_tokens > self.max_new_tokens:
            raise UsageError("expected min_new_tokens of at most max_new_tokens; lower it")
        return self

    def options(self) -> dict[str, Any]:
        """For `generate` and the generation config; what is off is left out."""
        options = {"num_beams": self.num_beams, "max_new_tokens": self.max_new_tokens, "do_sample": False}
        if self.min_new_tokens:
            options["min_new_tokens"] = self.min_new_tokens
        if self.no_repeat_ngram_size:
            options["no_repeat_ngram_size"] = self.no_repeat_ngram_size
        if self.num_beams > 1:
            options["length_penalty"] = self.length_penalty
        return options


class EvaluateSection(Section):
    """Attributes:
    limit: tune records, evenly spread, that an evaluation reads; none: all.
    words: how ROUGE finds words, of `narrows.evaluation.rouge.ROUGE_WORDS`.
    scores: that are logged; the best checkpoint is that of the highest average of the four.
    batch_tokens: padded tokens of the inputs that are read at once.
    """

    limit: int | None = Field(None, ge=1)
    words: Literal["english-stemmed", "english", "unicode"] = "english-stemmed"
    scores: list[Literal["rouge1", "rouge2", "rougeL", "rougeLsum"]] = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    batch_tokens: int = Field(16384, ge=1)


class SummaryRecipe(Recipe):
    """A whole run of a summariser.

    Attributes:
        objective: `summaries`, or `span-corruption` of plain text, to go on with pretraining after a conversion.
    """

    task: Literal["summarization"] = "summarization"  # type: ignore[assignment]
    objective: Literal["summaries", "span-corruption"] = "summaries"
    model: ModelSection
    data: DataSection
    corruption: CorruptionSection = CorruptionSection()  # type: ignore[call-arg]
    optimiser: SummaryOptimiser = SummaryOptimiser()  # type: ignore[call-arg]
    generation: GenerationSection = GenerationSection()  # type: ignore[call-arg]
    evaluate: EvaluateSection = EvaluateSection()  # type: ignore[call-arg]

    @property
    def corrupts(self) -> bool:
        """Whether the objective is span corruption."""
        return self.objective == "span-corruption"

    def trained_inputs(self) -> TrainedInputs:
        """What the model is going to have been trained to read."""
        return TrainedInputs(self.data.max_input_tokens, self.data.truncation.options(), self.data.prefix)

    def check(self, path: Path) -> None:
        """Where the model comes from, what its objective reads, and how its inputs grow.

        Raises:
            RecipeError: they do not go together.
        """
        self._check_model(path)
        self._check_data(path)
        self._check_stages(path)

    def _check_model(self, path: Path) -> None:
        model = self.model
        if (model.checkpoint is None) == (model.scratch is None):
            got = "neither" if model.checkpoint is None else "both"
            raise RecipeError(f"expected model.checkpoint or model.scratch in {path}, got {got}; name one of them")
        if model.scratch is not None and model.family is None:
            raise RecipeError(f"expected model.family in {path} beside model.scratch, got none; name one such as mulla")
        if model.checkpoint is not None and model.family not in (None, "mulla"):
            raise RecipeError(
                f"expected model.family to be mulla or none in {path} beside a checkpoint, got {model.family!r}; "
                "nothing is converted to it: leave it out"
            )
        allowed: tuple[str, ...] = ()
        if model.family == "mulla":
            allowed = _MULLA_OPTIONS if model.scratch is None else _MULLA_OPTIONS[:-1]
        elif model.family in ("longt5-local", "longt5-tglobal"):
            allowed = ("local_radius",)
        for name in model.mulla_options():
            if name not in allowed:
                raise RecipeError(
                    f"expected no model.{name} in {path} where no model that has it is made, got "
                    f"{getattr(model, name)!r}; leave it out, or change model.family"
                )

    def _check_data(self, path: Path) -> None:
        require_once(self.data.tune, "tune", path)
        for part in (*self.data.train, *self.data.tune):
            if part.format == "text" and not self.corrupts:
                raise RecipeError(
                    f"expected `format` to be a layout of summaries in {path} for the objective {self.objective}, "
                    "got 'text'; change one of them"
                )
            if (part.split is None) != (part.part is None):
                raise RecipeError(f"expected `split` and `part` together in {path}, got one of them; give both or none")
            if part.format == "text" and part.split is not None:
                raise RecipeError(f"expected no `split` of plain text in {path}, got {part.split!r}; leave it out")
        if self.corrupts and self.data.prefix:
            raise RecipeError(
                f"expected no data.prefix in {path} for span corruption, got {self.data.prefix!r}; leave it out"
            )
        if self.corrupts and self.data.truncation != TruncationSection():
            raise RecipeError(
                f"expected no data.truncation in {path} for span corruption, which reads all; leave it out"
            )

    def _check_stages(self, path: Path) -> None:
        data = self.data
        lengths = data.lengths
        if lengths and (lengths[0] < 8 or lengths[-1] != data.max_input_tokens or sorted(set(lengths)) != lengths):
            raise RecipeError(
                f"expected data.lengths in {path} to grow from 8 or more to max_input_tokens, "
                f"{data.max_input_tokens}, got {lengths}; mend them"
            )
        if data.shares and (
            len(data.shares) != len(lengths) or min(data.shares) <= 0 or not math.isclose(sum(data.shares), 1)
        ):
            raise RecipeError(
                f"expected data.shares in {path} above 0, one for each of the {len(lengths)} lengths, with a sum of 1, "
                f"got {data.shares}; mend them"
            )
        if self.corrupts:
            needed = (
                corrupted_lengths(data.max_input_tokens, sentinels=SENTINELS, **self.corruption.model_dump())[1] + 1
            )
            if needed > data.max_output_tokens:
                raise RecipeError(
                    f"expected data.max_output_tokens of at least {needed} in {path}, which is what is taken out of "
                    f"{count(data.max_input_tokens, 'token')}, got {data.max_output_tokens}; raise it"
                )

    def checkpoints(self) -> tuple[str, ...]:
        """The model's, where it starts from one."""
        return () if self.model.checkpoint is None else (self.model.checkpoint,)

    def card_text(self) -> CardText:
        """What a summariser is."""
        kind = "a LongT5-Mulla" if self.model.family == "mulla" else self.model.family or "of its checkpoint's family"
        trained = "on span corruption" if self.corrupts else "to summarise"
        about = (
            f"A model that reads a long text and writes a short one, trained {trained} with narrows: {kind}, with "
            f"inputs of up to {count(self.data.max_input_tokens, 'token')}.\n"
            "Use it with `narrows summarize FILE --model DIR` or `narrows.Summarizer.from_pretrained`."
        )
        lines = [*_data_lines(self.data.train, "train"), *_data_lines(self.data.tune, "tune")]
        return CardText(family=self.model.family or "seq2seq", about=about, data="\n".join(lines))


def _data_lines(parts: Sequence[DataPart], use: str) -> list[str]:
    lines = []
    for part in parts:
        which = f", part `{part.part}` of `{part.split}`" if part.split else ""
        lines.append(f"- {use}: `{part.file}` ({part.format}{which})")
    return lines
