"""Distillation of any encoder into another: its vectors, its states across different lengths, its logits."""
