"""What is run to find its memory: a LongT5-Mulla learns or writes, over fake tensors or real ones."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from narrows.mulla import MullaT5Config, MullaT5ForConditionalGeneration
from narrows.training.optimiser import parameter_groups
from narrows.training.summaries.objective import SummaryObjective
from narrows.training.summaries.trainer import adafactor

__all__ = ["Run", "build", "make_optimizer", "train_on", "write_after"]

_RATE = 1e-3


class Run(NamedTuple):
    """All that memory depends on but the batch and the length. It goes through JSON.

    Attributes:
        config: fields of `MullaT5Config`.
        training: a step of `narrows train`; else reading without gradients and greedy writing.
        dtype: `bfloat16`: of the weights, and in training, which keeps them in fp32, that of autocast.
        optimizer: `adafactor` or `adamw`.
        checkpointing: whether the layers of both stacks run once more in the backward pass.
        target_length: tokens that are written.
    """

    config: dict[str, Any]
    training: bool = True
    dtype: Literal["float32", "bfloat16"] = "float32"
    optimizer: Literal["adafactor", "adamw"] = "adafactor"
    checkpointing: bool = False
    target_length: int = 512

    @property
    def layers(self) -> tuple[int, int]:
        """Of the encoder and of the decoder."""
        return self.config["num_layers"], self.config["num_decoder_layers"]

    def with_layers(self, encoder: int, decoder: int) -> "Run":
        """The same with other numbers of layers."""
        return self._replace(config={**self.config, "num_layers": encoder, "num_decoder_layers": decoder})


def build(run: Run) -> Any:
    """The model with random weights, as `narrows train` or `narrows summarize` would have it in memory."""
    dtype = torch.bfloat16 if run.dtype == "bfloat16" and not run.training else torch.float32
    model: Any = MullaT5ForConditionalGeneration._from_config(MullaT5Config(**run.config), dtype=dtype)
    if run.training and run.checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    return model.train(run.training)


def make_optimizer(model: Any, run: Run) -> torch.optim.Optimizer:
    """The optimiser as the recipes of summarisers use it."""
    if run.optimizer == "adafactor":
        return adafactor(model, learning_rate=_RATE, weight_decay=0.0)
    groups = parameter_groups(model, learning_rate=_RATE, weight_decay=0.0, layer_decay=1.0)
    return torch.optim.AdamW(groups, lr=_RATE, eps=1e-6, fused=True)


def train_on(
    model: Any, run: Run, *, batch: int, length: int, enter: Callable[[str], None] = lambda phase: None
) -> None:
    """Forward and backward of a micro-batch of equally long texts, whose gradients are added to those there are.

    Args:
        model: of `build`.
        run: of training.
        batch: texts.
        length: tokens of each.
        enter: called with the name of each phase as it begins. In a phase the bytes held at most are near-linear in
            texts, tokens and layers.
    """
    ids = _random_ids(model, batch, length)
    labels = _random_ids(model, batch, run.target_length)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": labels, "labels": labels}

    def after_encoder(module: Any, arguments: Any, output: Any) -> None:
        enter("decoder")
        output.last_hidden_state.register_hook(lambda gradient: enter("encoder backward"))

    def after_decoder(module: Any, arguments: Any, output: Any) -> None:
        enter("loss")
        output.last_hidden_state.register_hook(lambda gradient: enter("decoder backward"))

    hooks = [
        model.encoder.register_forward_hook(after_encoder),
        model.decoder.register_forward_hook(after_decoder),
    ]
    objective = SummaryObjective()
    enter("encoder")
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=run.dtype == "bfloat16"):
        loss = objective(model, inputs, objective.counts([inputs]))
    loss.backward()
    for hook in hooks:
        hook.remove()


@torch.no_grad()
def write_after(
    model: Any, run: Run, *, batch: int, length: int, enter: Callable[[str], None] = lambda phase: None
) -> None:
    """Read texts and write the first and the last token of their targets; the cache between is filled at once.

    Writing all of them holds the same: `generate` does, step by step.
    """
    ids = _random_ids(model, batch, length)
    mask, written = torch.ones_like(ids), ids[:, :1].clone()
    enter("encoder")
    encoded = model.encoder(ids, mask, return_dict=True)
    enter("decoder")
    shared = {"encoder_outputs": encoded, "attention_mask": mask, "use_cache": True}
    cache = model(**shared, decoder_input_ids=written).cache
    for layer in cache.self_attention_cache.layers:
        shape = (*layer.keys.shape[:2], max(0, run.target_length - 2), layer.keys.shape[3])
        layer.update(layer.keys.new_zeros(shape), layer.values.new_zeros(shape))
    enter("writing")
    model(**shared, decoder_input_ids=written, cache=cache)


def _random_ids(model: Any, batch: int, length: int) -> Tensor:
    # Neither padding nor the end of a text.
    return torch.randint(min(2, model.config.vocab_size - 1), model.config.vocab_size, (batch, length))
