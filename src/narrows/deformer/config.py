"""Configuration of a DeFormer."""

import math

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from narrows._plural import count
from narrows.errors import UsageError
from narrows.hf.fields import in_our_words

__all__ = ["FITTED_FIELDS", "DeformerConfig"]

FITTED_FIELDS = (
    "no_answer_scale",
    "no_answer_bias",
    "no_answer_threshold",
    "retrieval_weight",
    "store_no_answer_scale",
    "store_no_answer_bias",
    "store_no_answer_threshold",
)
"""Fields fitted to the answers of one set of weights at one split; they hold for no other."""


@in_our_words
@strict
class DeformerConfig(PreTrainedConfig):
    """What a DeFormer is made of: an encoder's sizes (fields named as BERT's), and where it is split.

    Args:
        backbone: kind of encoder; `bert` is the one there is.
        split_layer: k, from 0 to `num_hidden_layers` − 1. Layers 0..k−1 read question and passage apart, layers k..n−1
            together. 0 is the joint model.
        passage_positions: `restart`: the passage counts from 0, whatever the question's length, so that its states can
            be stored (DeFormer; needed for k > 0). `continue`: it counts on after the question (BERT's joint input).
        max_question_tokens: room of the question, without special tokens.
        max_passage_tokens: room of the passage, without its [SEP].
        max_answer_tokens: longest answer span.
        no_answer_scale: a, with `no_answer_bias` b: P(the passage answers) = sigmoid(a·margin + b), where the margin is
            the best span's logits minus those of [CLS]. Fitted on held-out data by `narrows.evaluation.calibration`.
        no_answer_bias: b.
        no_answer_threshold: an answer whose probability is below is refused.
        retrieval_weight: when a store is asked, logits added to the margins of a passage's spans for each standard
            deviation that its BM25 score lies above the mean of the question's best. 0 leaves the choice among
            passages to the reader alone. Fitted with the three below.
        store_no_answer_scale: as `no_answer_scale`, for the best answer out of many passages of a store, of margin and
            retrieval together; None for all three: as for a single passage.
        store_no_answer_bias: as `no_answer_bias`.
        store_no_answer_threshold: as `no_answer_threshold`.
    """

    model_type = "narrows-deformer"

    backbone: str = "bert"
    split_layer: int = 0
    passage_positions: str = "restart"
    max_question_tokens: int = 64
    max_passage_tokens: int = 320
    max_answer_tokens: int = 30
    no_answer_scale: float | int = 1.0
    no_answer_bias: float | int = 0.0
    no_answer_threshold: float | int = 0.5
    retrieval_weight: float | int = 0.0
    store_no_answer_scale: float | int | None = None
    store_no_answer_bias: float | int | None = None
    store_no_answer_threshold: float | int | None = None

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: object) -> None:
        if not isinstance(self.id2label, dict | None):
            raise UsageError(f"`id2label` must be of type dict, got {self.id2label!r}; name every class by its number")
        super().__post_init__(**kwargs)
        self.check_architecture()

    def check_architecture(self) -> None:
        """Refuse sizes that no model can have, each in one sentence.

        Not one of the `validate_` methods of `strict`, whose errors arrive wrapped in another's words.

        Raises:
            UsageError: `split_layer` out of range, sizes below 1 or that do not fit, unknown `passage_positions`, a
                negative `retrieval_weight`, a rule for refusing with a number that is not finite, or a rule for stores
                of which a part is missing.
        """
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be at least 1, got {getattr(self, name)}; give the encoder a size")
        for name in ("max_position_embeddings", "max_question_tokens", "max_passage_tokens", "max_answer_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be at least 1, got {getattr(self, name)}; give it room for a token")
        n, k = self.num_hidden_layers, self.split_layer
        if not 0 <= k < n:
            raise UsageError(
                f"`split_layer` must be from 0 to {n - 1} for {count(n, 'layer')}, got {k}; "
                "keep at least one layer joint"
            )
        if self.passage_positions not in ("restart", "continue"):
            raise UsageError(
                f"`passage_positions` must be 'restart' or 'continue', got {self.passage_positions!r}; "
                "choose one of them"
            )
        if k > 0 and self.passage_positions != "restart":
            raise UsageError(
                f"`passage_positions` must be 'restart' when split_layer is above 0, got {self.passage_positions!r} "
                f"with split_layer {k}; a stored passage cannot depend on the question's length"
            )
        if self.hidden_size % self.num_attention_heads:
            raise UsageError(
                f"`hidden_size` must be a multiple of `num_attention_heads`, got {self.hidden_size} and "
                f"{self.num_attention_heads}; change one of them"
            )
        if self.type_vocab_size < 2:
            raise UsageError(
                f"`type_vocab_size` must be at least 2 (question, passage), got {self.type_vocab_size}; "
                "convert a checkpoint with two segments"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise UsageError(
                f"`pad_token_id` must be from 0 to {self.vocab_size - 1} for a `vocab_size` of {self.vocab_size}, got "
                f"{self.pad_token_id}; name the tokenizer's [PAD]"
            )
        if self.hidden_act not in ACT2FN:
            raise UsageError(
                f"`hidden_act` must be a name that transformers knows, got {self.hidden_act!r}; see ACT2FN"
            )
        self._check_rules()

    def _check_rules(self) -> None:
        for name in FITTED_FIELDS:
            value = getattr(self, name)
            # Of NaN come scores that are none.
            if name != "retrieval_weight" and value is not None and not math.isfinite(value):
                raise UsageError(
                    f"`{name}` must be a finite number, got {value}; fit it with `narrows evaluate --calibrate`"
                )
        if not 0 <= self.retrieval_weight < math.inf:
            raise UsageError(
                f"`retrieval_weight` must be a number of at least 0, got {self.retrieval_weight}; "
                "fit it with `narrows evaluate --candidates 32 --calibrate`"
            )
        names = ("store_no_answer_scale", "store_no_answer_bias", "store_no_answer_threshold")
        missing = [name for name in names if getattr(self, name) is None]
        if len(missing) not in (0, len(names)):
            raise UsageError(
                f"expected {', '.join(names)} together, got no {' and no '.join(missing)}; give all of them or none"
            )
