"""Generator and discriminator, trained together.

Sources: Clark et al. 2020 (ELECTRA); Dai et al. 2020 (Funnel-Transformer) and its code.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads.common import FunnelTokenHead
from narrows.funnel.heads.outputs import ElectraOutput
from narrows.funnel.heads.pretraining import (
    FunnelDiscriminatorPredictions,
    FunnelForMaskedLM,
    FunnelForReplacedTokenDetection,
)
from narrows.losses import masked_lm_loss, replaced_token_loss, sample_replacements

__all__ = ["FunnelForElectraPreTraining", "generator_config"]

_EMBEDDINGS = "funnel.embeddings"
_SIZES = ("d_model", "d_embed", "d_inner", "n_head", "d_head", "block_sizes", "num_decoder_layers", "vocab_size")
_SHARED = ("word_embeddings.weight", "layer_norm.weight", "layer_norm.bias")


def generator_config(config: FunnelConfig) -> FunnelConfig:
    """The same layout with width, inner width and heads times `generator_ratio`, over the discriminator's embeddings.

    Raises:
        UsageError: a ratio that leaves no head, or no even width.
    """
    ratio = config.generator_ratio
    sizes = {name: int(getattr(config, name) * ratio) for name in ("d_model", "d_inner", "n_head")}
    if min(sizes.values()) < 1 or sizes["d_model"] % 2:
        raise UsageError(
            f"`generator_ratio` must leave at least one head and an even width, got {ratio} of {config.n_head} heads "
            f"and a width of {config.d_model}; choose another ratio or another width"
        )
    own = {"lm_head_transform": True, "hide_masked_keys": False, "d_embed": config.d_embed}
    return FunnelConfig.from_dict({**config.to_dict(), **sizes, **own})


class FunnelForElectraPreTraining(FunnelTokenHead):
    """Pretraining by replaced tokens: a narrow generator fills in hidden tokens, the model says which are not original.

    The two share word embeddings and their norm. `FunnelForReplacedTokenDetection.from_pretrained` and all other heads
    read the discriminator from a folder that this model was saved to.
    """

    _tied_weights_keys = {
        **{f"generator.{_EMBEDDINGS}.{name}": f"{_EMBEDDINGS}.{name}" for name in _SHARED},
        "generator.lm_head.weight": f"{_EMBEDDINGS}.word_embeddings.weight",
    }
    _keys_to_ignore_on_load_unexpected = []

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        if config.position_type == "absolute" or not config.tie_word_embeddings:
            got = "position_type='absolute'" if config.tie_word_embeddings else "tie_word_embeddings=False"
            raise UsageError(
                f"expected relative positions and tied embeddings, which generator and discriminator share, got {got}; "
                "change it or pretrain with a masked LM"
            )
        self.discriminator_predictions = FunnelDiscriminatorPredictions(config)
        self.generator = FunnelForMaskedLM(generator_config(config))
        self.post_init()

    @classmethod
    def from_parts(
        cls, discriminator: FunnelForReplacedTokenDetection, generator: FunnelForMaskedLM
    ) -> "FunnelForElectraPreTraining":
        """The two models that a run left, as one that goes on learning. Their weights are copied.

        Raises:
            UsageError: a generator of another size than the discriminator's config says, or with embeddings of its own.
        """
        wanted = generator_config(discriminator.config)
        unlike = next((name for name in _SIZES if getattr(generator.config, name) != getattr(wanted, name)), None)
        if unlike is not None:
            raise UsageError(
                f"expected a generator with {unlike} {getattr(wanted, unlike)}, as the discriminator's config says, "
                f"got {getattr(generator.config, unlike)}; name the generator that was saved with it"
            )
        ours, theirs = (model.funnel.embeddings.state_dict() for model in (discriminator, generator))
        if not all(torch.equal(ours[name], theirs[name]) for name in _SHARED):
            raise UsageError(
                "expected a generator with the discriminator's embeddings, got one with its own; name the generator "
                "that was saved with it"
            )
        model = cls(discriminator.config)
        model.generator.load_state_dict(generator.state_dict())
        model.funnel.load_state_dict(discriminator.funnel.state_dict())
        model.discriminator_predictions.load_state_dict(discriminator.discriminator_predictions.state_dict())
        return model

    def discriminator(self) -> FunnelForReplacedTokenDetection:
        """The discriminator as a model of its own, over the same weights: the encoder that is fine-tuned."""
        model = FunnelForReplacedTokenDetection(copy.deepcopy(self.config))
        model.funnel, model.discriminator_predictions = self.funnel, self.discriminator_predictions
        return model

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        num_tokens_in_batch: Tensor | int | None = None,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
        **kwargs: Any,
    ) -> ElectraOutput:
        """One step: the generator's cross entropy, and `discriminator_weight` times the discriminator's.

        Args:
            input_ids: `[batch, length]`, the text with hidden tokens.
            attention_mask: `[batch, length]`, nonzero for real tokens.
            token_type_ids: `[batch, length]` segments.
            labels: `[batch, length]` ids of the hidden tokens, −100 elsewhere. Required.
            num_items_in_batch: predicted tokens of the whole optimiser step; None: of this batch.
            num_tokens_in_batch: real tokens of the whole step. None: those of this batch; with `num_items_in_batch` the
                mean over them then counts by this batch's share of the predicted tokens.
            generator: draws the samples, on the device of the inputs; one for each row, and a step does not depend on
                how its batch was split. None: one seeded by torch's own.

        Raises:
            UsageError: no labels.
        """
        if labels is None:
            raise UsageError(
                "expected `labels` with the ids of the hidden tokens, got none; use FunnelForReplacedTokenDetection to "
                "judge a text"
            )
        drawn, generator_loss = self._generate(
            input_ids, attention_mask, token_type_ids, labels, num_items_in_batch, generator
        )
        outputs = self._states(drawn.input_ids, attention_mask, token_type_ids, None, None, None)
        logits = self.discriminator_predictions(outputs.last_hidden_state)
        discriminator_loss = replaced_token_loss(
            logits,
            drawn.replaced,
            positive=self.config.discriminator_positive,
            attention_mask=attention_mask,
            weight=float(self.config.discriminator_weight),
            num_items_in_batch=num_tokens_in_batch,
        )
        if num_items_in_batch is not None and num_tokens_in_batch is None:
            discriminator_loss = discriminator_loss * (labels != -100).sum() / num_items_in_batch
        return ElectraOutput(
            loss=generator_loss + discriminator_loss,
            generator_loss=generator_loss.detach(),
            discriminator_loss=discriminator_loss.detach(),
            logits=logits,
            replaced=drawn.replaced,
            input_ids=drawn.input_ids,
        )

    def _generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
        generator: torch.Generator | Sequence[torch.Generator] | None,
    ) -> tuple[Any, Tensor]:
        states = self.generator.funnel(
            input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, return_dict=True
        ).last_hidden_state
        kept: list[Tensor] = []

        def head(predicted: Tensor) -> Tensor:
            kept.append(self.generator.vocabulary_logits(predicted))
            return kept[0]

        loss = masked_lm_loss(states, labels, head, num_items_in_batch=num_items_in_batch)
        if generator is None:
            seed = int(torch.randint(2**62, ()))
            generator = torch.Generator(device=input_ids.device).manual_seed(seed)
        return sample_replacements(input_ids, labels, kept[0], generator=generator), loss
