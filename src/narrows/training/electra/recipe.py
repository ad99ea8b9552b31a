"""The recipe of a Funnel that is pretrained by telling replaced tokens from original ones."""

from pathlib import Path
from typing import Literal

from narrows._plural import count
from narrows.errors import RecipeError
from narrows.training.pretraining.recipe import PretrainingRecipe
from narrows.training.sections import CardText

__all__ = ["FAMILY", "ElectraRecipe"]

FAMILY = "narrows-funnel"


class ElectraRecipe(PretrainingRecipe):
    """A whole run of a generator and a discriminator, with the sections of `masked-lm`.

    `generator_ratio`, `discriminator_weight` and `discriminator_positive` are fields of `model.config`.
    """

    task: Literal["electra"]  # type: ignore[assignment]

    def check(self, path: Path) -> None:
        """Also whether it is a Funnel, whose generator sees all keys.

        Raises:
            RecipeError: it is not, or keys would be hidden.
        """
        super().check(path)
        if self.model.family not in (None, FAMILY):
            raise RecipeError(
                f"expected {FAMILY} as model.family of an electra in {path}, got {self.model.family!r}; change it, or "
                "choose task masked-lm"
            )
        if self.masking.hide_keys:
            raise RecipeError(
                f"expected no masking.hide_keys in {path} for electra, where [MASK] is seen as any other token, got "
                "true; leave it out"
            )

    def card_text(self) -> CardText:
        """What such an encoder is."""
        return (
            super()
            .card_text()
            .model_copy(
                update={
                    "family": FAMILY,
                    "pipeline": "feature-extraction",
                    "best": False,
                    "about": (
                        f"A Funnel-Transformer pretrained as ELECTRA's discriminator on raw text, rows of "
                        f"{count(self.data.length, 'token')} of which its generator fills in "
                        f"{self.masking.predicted(self.data.length)}, chosen by `{self.masking.strategy}`. Loads with "
                        "`AutoModel` or any head after `narrows.register_all()`; `FunnelForReplacedTokenDetection` "
                        "judges tokens, and `generator/` is the masked language model that was trained beside it."
                    ),
                }
            )
        )
