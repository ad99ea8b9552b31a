"""What of a model is trained: everything, all layers, those from the split up, or LoRA adapters on these."""

from collections.abc import Callable
from typing import cast

from narrows.deformer import DeformerForQuestionAnswering
from narrows.training.spans.recipe import TuneSection

__all__ = ["choose_trainable"]

_LORA_TARGETS = "query|key|value|output|up|down"


def choose_trainable(
    model: DeformerForQuestionAnswering, tune: TuneSection
) -> Callable[[], DeformerForQuestionAnswering]:
    """Freeze what is not to be trained, in place, and put adapters in where they are asked for.

    Returns:
        A function to call after training: it merges adapters into their matrices and gives the plain model.
    """
    if tune.what == "all":
        return lambda: model
    if tune.what == "lora":
        return _add_lora(model, rank=tune.lora_rank)
    model.deformer.backbone.embeddings.requires_grad_(False)
    if tune.what == "layers":
        return lambda: model
    for layer in model.deformer.backbone.layers[: model.config.split_layer]:
        layer.requires_grad_(False)
    return lambda: model


def _add_lora(model: DeformerForQuestionAnswering, *, rank: int) -> Callable[[], DeformerForQuestionAnswering]:
    from peft import LoraConfig
    from peft.tuners.lora import LoraModel

    upper = range(model.config.split_layer, model.config.num_hidden_layers)
    layers = "|".join(str(number) for number in upper)
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=rf"deformer\.backbone\.layers\.({layers})\.({_LORA_TARGETS})",
    )
    tuner = LoraModel(model, config, "default")
    # peft freezes everything else; the head is small and starts at random.
    model.qa_outputs.requires_grad_(True)
    return lambda: cast(DeformerForQuestionAnswering, tuner.merge_and_unload())
