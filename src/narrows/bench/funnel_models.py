"""Funnels, ours and transformers', and BERT, with random weights, and what each is given to do.

Random weights take the time and the memory that trained ones take.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from narrows.funnel import preset
from narrows.funnel.config import FunnelConfig

__all__ = ["FunnelSide", "bert_config", "build", "task", "their_config"]

_WARM_UP = 32
# Of the tokens of a text, in a step of pretraining.
_HIDDEN = 0.15


class FunnelSide(NamedTuple):
    """One side of a comparison: a model, and what it does with a batch of texts without padding.

    Attributes:
        model: `ours`; `hf`, transformers' Funnel, whose attention is eager, as it has no other; `bert`, transformers'
            with sdpa.
        layout: a name of the paper; of a BERT `L12H768`.
        length: tokens of a text.
        batch: texts.
        work: `forward`: states of the encoder, without gradients; `step`: these and all gradients, with dropout, as in
            fine-tuning; `pretrain`: a step of masked language modelling, a funnel's with its decoder.
        recompute: whether layers are checkpointed.
        vocabulary: tokens in it.
    """

    model: Literal["ours", "hf", "bert"]
    layout: str
    length: int
    batch: int = 4
    work: Literal["forward", "step", "pretrain"] = "forward"
    recompute: bool = False
    vocabulary: int = 30522

    @property
    def label(self) -> str:
        """All that tells one side from another, for the results.

        Example:
            >>> FunnelSide("ours", "B6-6-6H768", 512, work="step", recompute=True).label
            'ours/B6-6-6H768/step/512 tokens/batch 4/checkpointed'
        """
        parts = [self.model, self.layout, self.work, f"{self.length} tokens", f"batch {self.batch}"]
        return "/".join([*parts, "checkpointed"] if self.recompute else parts)

    @property
    def gigabytes(self) -> float:
        """About the memory it takes, weights among it, with a margin; estimated at base width.

        Example:
            >>> round(FunnelSide("hf", "B6-6-6H768", 4096, batch=1).gigabytes)
            8
        """
        width = preset(self.layout).d_model
        if width < 768:
            return 0.0
        scores = self.batch * (width // 64) * self.length**2 * 4e-9 if self.model == "hf" else 0.0
        states = self.batch * self.length * width * 4e-9
        if self.work == "forward":
            return 1.0 + 20 * states + 8 * scores
        return 2.0 + 12 * (2 if self.recompute else 18) * states + 50 * scores

    @property
    def needs(self) -> "FunnelSide":
        """What its model depends on."""
        return self._replace(length=0, batch=0, recompute=False)

    @property
    def warm_up(self) -> "FunnelSide":
        """So little that it leaves no buffers of the size to be measured."""
        return self._replace(length=min(_WARM_UP, self.length), batch=1)

    def build(self) -> Any:
        """See `build`."""
        return build(self)

    def task(self, model: Any) -> Callable[[], Tensor]:
        """See `task`."""
        return task(model, self)


def their_config(config: FunnelConfig) -> Any:
    """transformers' config of the same layout."""
    from transformers import FunnelConfig as TheirConfig

    names = ("vocab_size", "block_sizes", "block_repeats", "num_decoder_layers", "d_model", "n_head", "d_head")
    return TheirConfig(**{name: getattr(config, name) for name in names}, d_inner=config.d_inner)


def bert_config(config: FunnelConfig) -> Any:
    """A BERT of the width and layers of a plain funnel."""
    from transformers import BertConfig

    kind: Any = BertConfig
    return kind(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.n_head,
        intermediate_size=config.d_inner,
        attn_implementation="sdpa",
    )


def build(side: FunnelSide, *, seed: int = 0) -> Any:
    """The model of a side; one that takes steps has its gradients already, so that they count as weights do."""
    import transformers

    import narrows

    torch.manual_seed(seed)
    config, pretrains = preset(side.layout, vocab_size=side.vocabulary), side.work == "pretrain"
    if side.model == "bert":
        whole = transformers.BertForMaskedLM if pretrains else transformers.BertModel
        options = {} if pretrains else {"add_pooling_layer": False}
        model: Any = whole(bert_config(config), **options)
    elif side.model == "hf":
        kind = transformers.FunnelForMaskedLM if pretrains else transformers.FunnelBaseModel
        model = kind(their_config(config))
    else:
        model = (narrows.FunnelForMaskedLM if pretrains else narrows.FunnelBaseModel)(config)
    if side.work == "forward":
        return model.eval()
    for parameter in model.parameters():
        # Written, and not only reserved.
        parameter.grad = torch.empty_like(parameter).fill_(0.0)
    return model.train()


def task(model: nn.Module, side: FunnelSide, *, seed: int = 0) -> Callable[[], Tensor]:
    """A function that does the side's work on random texts, made beforehand, and returns states or the loss."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, side.vocabulary, (side.batch, side.length), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    hidden = torch.rand(ids.shape, generator=generator) < _HIDDEN
    hidden[:, 0] = True
    if side.work == "pretrain":
        inputs["labels"] = ids.masked_fill(~hidden, -100)

    def forward() -> Tensor:
        with torch.inference_mode():
            return model(**inputs).last_hidden_state

    def step() -> Tensor:
        if side.model == "ours":
            trained: Any = model
            trained.gradient_checkpointing_enable() if side.recompute else trained.gradient_checkpointing_disable()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        outputs = model(**inputs)
        loss = outputs.loss if side.work == "pretrain" else outputs.last_hidden_state.square().mean()
        loss.backward()
        return loss.detach()

    return forward if side.work == "forward" else step
