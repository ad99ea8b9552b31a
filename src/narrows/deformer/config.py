"""Configuration of a DeFormer."""

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from narrows.errors import UsageError

__all__ = ["DeformerConfig"]


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
    """

    model_type = "narrows-deformer"

    backbone: str = "bert"
    split_layer: int = 0
    passage_positions: str = "restart"
    max_question_tokens: int = 64
    max_passage_tokens: int = 320
    max_answer_tokens: int = 30
    no_answer_scale: float = 1.0
    no_answer_bias: float = 0.0
    no_answer_threshold: float = 0.5

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
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: object) -> None:
        super().__post_init__(**kwargs)
        self.check_architecture()

    def check_architecture(self) -> None:
        """Refuse sizes that no model can have, each in one sentence.

        Not one of the `validate_` methods of `strict`, whose errors arrive wrapped in another's words.

        Raises:
            UsageError: `split_layer` out of range, sizes below 1 or that do not fit, or unknown `passage_positions`.
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
        n, k = self.num_hidden_layers, self.split_layer
        if not 0 <= k < n:
            raise UsageError(
                f"`split_layer` must be from 0 to {n - 1} for {n} layers, got {k}; keep at least one layer joint"
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
