"""Which tensor is which: a funnel's own names beside transformers', the authors' PyTorch's and their TensorFlow's.

Each table is a list of entries that is read in both directions. transformers' names are our own.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

from narrows.errors import ConversionError
from narrows.funnel.config import FunnelConfig
from narrows.hf.conversion import Drop, New, Rename

__all__ = [
    "HEADS",
    "Entry",
    "encoder_layers",
    "head_pattern",
    "new_parts",
    "renames",
    "tensorflow_table",
    "torch_table",
]


class Entry(NamedTuple):
    """One tensor: its name elsewhere, its name here, and how it is laid out there."""

    theirs: str
    ours: str
    layout: str = "same"
    """`same`; `linear`: transposed; `into_heads`: [width, heads, dim] of a matrix; `from_heads`: [heads, dim, width];
    `heads`: [heads, dim] of a bias; `row`: a vector in place of a matrix of one row."""

    def to_ours(self, tensor: Tensor) -> Tensor:
        """Their tensor in our layout.

        Raises:
            ConversionError: it has another number of dimensions than their layout.
        """
        expected = {"linear": 2, "into_heads": 3, "from_heads": 3, "heads": 2, "row": 1}.get(self.layout, tensor.dim())
        if tensor.dim() != expected:
            raise ConversionError(
                f"expected {self.theirs} of {expected} dimensions, got a shape of {tuple(tensor.shape)}; "
                "it is not laid out as its name says"
            )
        return {
            "same": lambda: tensor,
            "linear": lambda: tensor.T,
            "into_heads": lambda: tensor.flatten(1).T,
            "from_heads": lambda: tensor.flatten(0, 1).T,
            "heads": lambda: tensor.flatten(),
            "row": lambda: tensor[None],
        }[self.layout]().contiguous()

    def to_theirs(self, tensor: Tensor, heads: int) -> Tensor:
        """Our tensor in their layout; `heads` is the number of heads."""
        return {
            "same": lambda: tensor,
            "linear": lambda: tensor.T,
            "into_heads": lambda: tensor.T.unflatten(1, (heads, -1)),
            "from_heads": lambda: tensor.T.unflatten(0, (heads, -1)),
            "heads": lambda: tensor.unflatten(0, (heads, -1)),
            "row": lambda: tensor[0],
        }[self.layout]().contiguous()


class _Part(NamedTuple):
    """A tensor of a layer: its name here, with the authors' PyTorch and TensorFlow, and its layout with them."""

    ours: str
    torch: str
    tensorflow: str
    layout: str = "same"


_LAYER = (
    _Part("attention.q_head.weight", "attn_layers.{}.q_head.weight", "rel_attn/q/kernel", "into_heads"),
    _Part("attention.k_head.weight", "attn_layers.{}.k_head.weight", "rel_attn/k/kernel", "into_heads"),
    _Part("attention.k_head.bias", "attn_layers.{}.k_head.bias", "rel_attn/k/bias", "heads"),
    _Part("attention.v_head.weight", "attn_layers.{}.v_head.weight", "rel_attn/v/kernel", "into_heads"),
    _Part("attention.v_head.bias", "attn_layers.{}.v_head.bias", "rel_attn/v/bias", "heads"),
    _Part("attention.post_proj.weight", "attn_layers.{}.post_proj.weight", "rel_attn/o/kernel", "from_heads"),
    _Part("attention.post_proj.bias", "attn_layers.{}.post_proj.bias", "rel_attn/o/bias"),
    _Part("attention.layer_norm.weight", "attn_layers.{}.layer_norm.weight", "rel_attn/layer_norm/gamma"),
    _Part("attention.layer_norm.bias", "attn_layers.{}.layer_norm.bias", "rel_attn/layer_norm/beta"),
    _Part("attention.r_w_bias", "attn_layers.{}.r_w_bias", "rel_attn/r_w_bias"),
    _Part("attention.r_r_bias", "attn_layers.{}.r_r_bias", "rel_attn/r_r_bias"),
    _Part("attention.r_kernel", "attn_layers.{}.r_kernel", "rel_attn/r/kernel"),
    _Part("attention.r_s_bias", "attn_layers.{}.r_s_bias", "rel_attn/r_s_bias"),
    _Part("attention.seg_embed", "attn_layers.{}.seg_embed", "rel_attn/seg_embed"),
    _Part("ffn.linear_1.weight", "pffn_layers.{}.pffn.0.weight", "ff/layer_1/kernel", "linear"),
    _Part("ffn.linear_1.bias", "pffn_layers.{}.pffn.0.bias", "ff/layer_1/bias"),
    _Part("ffn.linear_2.weight", "pffn_layers.{}.pffn.3.weight", "ff/layer_2/kernel", "linear"),
    _Part("ffn.linear_2.bias", "pffn_layers.{}.pffn.3.bias", "ff/layer_2/bias"),
    _Part("ffn.layer_norm.weight", "pffn_layers.{}.layer_norm.weight", "ff/layer_norm/gamma"),
    _Part("ffn.layer_norm.bias", "pffn_layers.{}.layer_norm.bias", "ff/layer_norm/beta"),
)
# With absolute positions a layer has none of these.
_RELATIVE = ("attention.r_r_bias", "attention.r_kernel", "attention.r_s_bias", "attention.seg_embed")

HEADS: dict[str, tuple[str, ...]] = {
    "encoder": (),
    "full": (),
    "embedding": (),
    "sequence-classification": ("classifier",),
    "multiple-choice": ("classifier",),
    "token-classification": ("classifier",),
    "question-answering": ("qa_outputs",),
    "conditional-question-answering": ("start_logits", "end_logits", "answer_class"),
    "masked-lm": ("lm_transform", "lm_head"),
    "replaced-token-detection": ("discriminator_predictions",),
    "electra": ("discriminator_predictions", "generator"),
}
"""Tasks, and under which names their heads have weights."""


def head_pattern() -> str:
    """A regular expression of all tensors of heads."""
    names = sorted({name for head in HEADS.values() for name in head})
    return rf"({'|'.join(names)})\..*"


def new_parts(task: str) -> list[New]:
    """What a funnel may have that its source lacks."""
    rules = [New(rf"{name}\..*", "head, random: to be trained") for name in HEADS[task]]
    return [*rules, New(r"(funnel\.)?decoder\..*", "decoder, random: to be trained or distilled")]


def encoder_layers(config: FunnelConfig) -> list[str]:
    """Names of the encoder's layers, in their order.

    Example:
        >>> encoder_layers(FunnelConfig(block_sizes=[1, 2]))
        ['encoder.blocks.0.0', 'encoder.blocks.1.0', 'encoder.blocks.1.1']
    """
    return [f"encoder.blocks.{b}.{n}" for b, size in enumerate(config.block_sizes) for n in range(size)]


def torch_table(config: FunnelConfig, *, task: str) -> list[Entry]:
    """The authors' PyTorch: an encoder, and a head for classes of a text."""
    inside = "" if task in ("encoder", "full") else "funnel."
    entries = [
        Entry("input_layer.0.lookup_table", f"{inside}embeddings.word_embeddings.weight"),
        Entry("input_layer.1.weight", f"{inside}embeddings.layer_norm.weight"),
        Entry("input_layer.1.bias", f"{inside}embeddings.layer_norm.bias"),
    ]
    for number, layer in enumerate(encoder_layers(config)):
        for part in _parts(config):
            entries.append(Entry(part.torch.format(number), f"{inside}{layer}.{part.ours}", part.layout))
    if task == "sequence-classification":
        for theirs, ours in (("cls_head.0", "classifier.linear_hidden"), ("cls_head.3", "classifier.linear_out")):
            entries += _dense(theirs, ours, weight="weight", bias="bias", separator=".")
    return entries


def tensorflow_table(config: FunnelConfig, *, task: str, generator: FunnelConfig | None = None) -> list[Entry]:
    """The authors' TensorFlow: everything they train.

    Args:
        config: of the model.
        task: see `HEADS`.
        generator: its config, of the task `electra`.
    """
    inside = "" if task in ("encoder", "full") else "funnel."
    word = Entry("model/input/word_embedding/lookup_table", f"{inside}embeddings.word_embeddings.weight")
    entries = [word, *_tensorflow_norm("model/input", f"{inside}embeddings")]
    if config.position_type == "absolute":
        for theirs, ours in (("position", "position_embeddings"), ("segment", "token_type_embeddings")):
            name = f"model/input/{theirs}_embedding/lookup_table"
            entries.append(Entry(name, f"{inside}embeddings.{ours}.weight"))
    decodes = task not in ("encoder", "embedding", "sequence-classification", "multiple-choice")
    entries += _tensorflow_layers("model", inside, config, decoder=decodes)
    entries += _TENSORFLOW_HEADS.get(task, [])
    if generator is not None:
        entries += _tensorflow_layers("generator", "generator.funnel.", generator, decoder=True)
        entries += _tensorflow_lm("generator", "generator.")
    return entries


def _parts(config: FunnelConfig) -> Iterator[_Part]:
    return (part for part in _LAYER if config.position_type == "relative" or part.ours not in _RELATIVE)


def _tensorflow_layers(scope: str, inside: str, config: FunnelConfig, *, decoder: bool) -> list[Entry]:
    entries = []
    if config.d_embed != config.d_model:
        entries += _dense(f"{scope}/encoder/input_projection", f"{inside}embeddings.projection")
    layers = encoder_layers(config)
    names = [(f"{scope}/encoder/layer_{number}", layer) for number, layer in enumerate(layers)]
    if decoder:
        # Their count goes on.
        first = len(layers)
        names += [
            (f"{scope}/decoder/layer_{first + n}", f"decoder.layers.{n}") for n in range(config.num_decoder_layers)
        ]
    for theirs, ours in names:
        for part in _parts(config):
            entries.append(Entry(f"{theirs}/{part.tensorflow}", f"{inside}{ours}.{part.ours}", part.layout))
    return entries


def _dense(theirs: str, ours: str, *, weight: str = "kernel", bias: str = "bias", separator: str = "/") -> list[Entry]:
    return [
        Entry(f"{theirs}{separator}{weight}", f"{ours}.weight", "linear"),
        Entry(f"{theirs}{separator}{bias}", f"{ours}.bias"),
    ]


def _tensorflow_norm(scope: str, ours: str) -> list[Entry]:
    return [
        Entry(f"{scope}/layer_norm/gamma", f"{ours}.layer_norm.weight"),
        Entry(f"{scope}/layer_norm/beta", f"{ours}.layer_norm.bias"),
    ]


def _tensorflow_lm(scope: str, inside: str) -> list[Entry]:
    return [
        *_dense(f"{scope}/lm_proj/dense", f"{inside}lm_transform.dense"),
        *_tensorflow_norm(f"{scope}/lm_proj", f"{inside}lm_transform"),
        Entry(f"{scope}/lm_loss/bias", f"{inside}lm_head.bias"),
        Entry(f"{scope}/lm_loss/weight", f"{inside}lm_head.weight"),
    ]


_DISCRIMINATOR = [
    *_dense("model/binary_proj/dense", "discriminator_predictions.dense"),
    Entry("model/binary_loss/weight", "discriminator_predictions.dense_prediction.weight", "row"),
    Entry("model/binary_loss/bias", "discriminator_predictions.dense_prediction.bias"),
]
# Their own spelling. The scope of the classes is named after the data set.
_SUMMARY = _dense("model/sequnece_summary/summary", "classifier.linear_hidden")
_TENSORFLOW_HEADS: dict[str, list[Entry]] = {
    "sequence-classification": [*_SUMMARY, *_dense("model/classes/logit", "classifier.linear_out")],
    "multiple-choice": [*_SUMMARY, *_dense("model/race/logits", "classifier.linear_out")],
    "masked-lm": _tensorflow_lm("model", ""),
    "replaced-token-detection": _DISCRIMINATOR,
    "electra": _DISCRIMINATOR,
    "conditional-question-answering": [
        *_dense("model/start_logits/dense", "start_logits.dense"),
        *_dense("model/end_logits/dense_0", "end_logits.dense_0"),
        *_tensorflow_norm("model/end_logits", "end_logits"),
        *_dense("model/end_logits/dense_1", "end_logits.dense_1"),
        *_dense("model/answer_class/dense_0", "answer_class.dense_0"),
        Entry("model/answer_class/dense_1/kernel", "answer_class.dense_1.weight", "linear"),
    ],
}


def renames(entries: list[Entry], names: Mapping[str, Tensor]) -> list[Rename | Drop | New]:
    """The entries whose tensor is there, as rules."""
    return [Rename(entry.theirs, entry.ours) for entry in entries if entry.theirs in names]
