"""Funnel-Transformer: an encoder whose sequence gets shorter from block to block, and longer again for tokens."""
