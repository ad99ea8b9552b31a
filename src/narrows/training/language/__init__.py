"""The task `causal-lm`: any causal language model of transformers or of this library, over bytes or subwords."""
