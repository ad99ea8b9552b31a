"""Planted facts: whether an encoder's attention brings a fact over a long text, measured by training small ones."""
