"""The task `masked-lm`: any encoder of transformers or of this library, pretrained on raw text."""
