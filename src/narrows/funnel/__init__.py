"""Funnel: an encoder that halves the sequence from block to block."""
