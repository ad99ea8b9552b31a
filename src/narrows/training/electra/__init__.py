"""The task `electra`: a Funnel and its generator, pretrained on raw text by replaced tokens."""
