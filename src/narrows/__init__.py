"""Makes a Transformer cheaper on long text by narrowing what attention looks at.

The public names below are loaded on first use, so that `import narrows` stays instant and pulls in neither
torch nor transformers nor the store:

    >>> import narrows
    >>> narrows.__version__
    '0.1.0'
    >>> from narrows import DeformerForQuestionAnswering   # imports torch and transformers now

Call `narrows.register_all()` once to make the models known to the `Auto*` classes of transformers, and
`narrows.register_pipeline()` to have its `question-answering` pipeline back.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from narrows.errors import (
    ConversionError,
    DocumentError,
    MissingExtraError,
    NarrowsError,
    OutputError,
    RecipeError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreMismatchError,
    UsageError,
)

if TYPE_CHECKING:
    from narrows.bottleneck import (
        BottleneckConfig,
        BottleneckForCausalLM,
        BottleneckForMaskedLM,
        BottleneckForSequenceClassification,
        BottleneckForTokenClassification,
        BottleneckModel,
    )
    from narrows.deformer import (
        DeformerConfig,
        DeformerForQuestionAnswering,
        DeformerForSequenceClassification,
        DeformerModel,
    )
    from narrows.funnel import (
        FunnelBaseModel,
        FunnelConfig,
        FunnelForConditionalQuestionAnswering,
        FunnelForElectraPreTraining,
        FunnelForEmbedding,
        FunnelForMaskedLM,
        FunnelForMultipleChoice,
        FunnelForQuestionAnswering,
        FunnelForReplacedTokenDetection,
        FunnelForSequenceClassification,
        FunnelForTokenClassification,
        FunnelModel,
    )
    from narrows.hf.register import register_all
    from narrows.mulla import (
        MullaT5Config,
        MullaT5EncoderModel,
        MullaT5ForConditionalGeneration,
        MullaT5ForEmbedding,
        MullaT5ForQuestionAnswering,
        MullaT5ForSequenceClassification,
    )
    from narrows.serving import Reader
    from narrows.serving.classifier import Classifier
    from narrows.serving.embedder import Embedder
    from narrows.serving.generator import Generator
    from narrows.serving.pipeline import register_pipeline
    from narrows.serving.summarizer import Summarizer
    from narrows.store import Store

__version__ = "0.1.0"

# The table of lazy public names: where each one lives.
_LAZY = {
    "BottleneckConfig": "narrows.bottleneck",
    "BottleneckForCausalLM": "narrows.bottleneck",
    "BottleneckForMaskedLM": "narrows.bottleneck",
    "BottleneckForSequenceClassification": "narrows.bottleneck",
    "BottleneckForTokenClassification": "narrows.bottleneck",
    "BottleneckModel": "narrows.bottleneck",
    "Classifier": "narrows.serving.classifier",
    "DeformerConfig": "narrows.deformer",
    "DeformerForQuestionAnswering": "narrows.deformer",
    "DeformerForSequenceClassification": "narrows.deformer",
    "DeformerModel": "narrows.deformer",
    "Embedder": "narrows.serving.embedder",
    "FunnelBaseModel": "narrows.funnel",
    "FunnelConfig": "narrows.funnel",
    "FunnelForConditionalQuestionAnswering": "narrows.funnel",
    "FunnelForElectraPreTraining": "narrows.funnel",
    "FunnelForEmbedding": "narrows.funnel",
    "FunnelForMaskedLM": "narrows.funnel",
    "FunnelForMultipleChoice": "narrows.funnel",
    "FunnelForQuestionAnswering": "narrows.funnel",
    "FunnelForReplacedTokenDetection": "narrows.funnel",
    "FunnelForSequenceClassification": "narrows.funnel",
    "FunnelForTokenClassification": "narrows.funnel",
    "FunnelModel": "narrows.funnel",
    "Generator": "narrows.serving.generator",
    "MullaT5Config": "narrows.mulla",
    "MullaT5EncoderModel": "narrows.mulla",
    "MullaT5ForConditionalGeneration": "narrows.mulla",
    "MullaT5ForEmbedding": "narrows.mulla",
    "MullaT5ForQuestionAnswering": "narrows.mulla",
    "MullaT5ForSequenceClassification": "narrows.mulla",
    "Reader": "narrows.serving",
    "Store": "narrows.store",
    "Summarizer": "narrows.serving.summarizer",
    "register_all": "narrows.hf.register",
    "register_pipeline": "narrows.serving.pipeline",
}

__all__ = [
    "BottleneckConfig",
    "BottleneckForCausalLM",
    "BottleneckForMaskedLM",
    "BottleneckForSequenceClassification",
    "BottleneckForTokenClassification",
    "BottleneckModel",
    "Classifier",
    "ConversionError",
    "DeformerConfig",
    "DeformerForQuestionAnswering",
    "DeformerForSequenceClassification",
    "DeformerModel",
    "DocumentError",
    "Embedder",
    "FunnelBaseModel",
    "FunnelConfig",
    "FunnelForConditionalQuestionAnswering",
    "FunnelForElectraPreTraining",
    "FunnelForEmbedding",
    "FunnelForMaskedLM",
    "FunnelForMultipleChoice",
    "FunnelForQuestionAnswering",
    "FunnelForReplacedTokenDetection",
    "FunnelForSequenceClassification",
    "FunnelForTokenClassification",
    "FunnelModel",
    "Generator",
    "MissingExtraError",
    "MullaT5Config",
    "MullaT5EncoderModel",
    "MullaT5ForConditionalGeneration",
    "MullaT5ForEmbedding",
    "MullaT5ForQuestionAnswering",
    "MullaT5ForSequenceClassification",
    "NarrowsError",
    "OutputError",
    "Reader",
    "RecipeError",
    "Store",
    "StoreBusyError",
    "StoreDamagedError",
    "StoreError",
    "StoreMismatchError",
    "Summarizer",
    "UsageError",
    "__version__",
    "register_all",
    "register_pipeline",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562) and keep it, so that the second use is a plain look-up."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
