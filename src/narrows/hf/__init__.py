"""The shell that makes a family a transformers model: base class, registration, strict conversion; and any encoder.

| module | what it does |
|---|---|
| `encoders` | an encoder of any family from its checkpoint |
| `sentence_layout` | what a sentence-transformers folder says of its vectors, read and written |
| `sentence_encoder` | an encoder with that: its vectors, for `narrows.Embedder`, evaluation and distillation alike |
"""
