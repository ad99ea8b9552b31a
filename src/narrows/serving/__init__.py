"""Models at work: a split reader (passages in, answers with their sources out), and summarisers.

| module | what it does |
|---|---|
| `engine` | the model: a passage's states, a question's states, logits of both |
| `passages` | a document into the passages that an engine reads |
| `embedding` | one vector a text, for the dense first stage |
| `candidates` | which passages of a store are worth reading for a question |
| `sources` | whose documents a store holds |
| `words` | where words begin and end |
| `answers` | from logits to scored, merged answers in whole words |
| `asking` | a question over a store, or over texts read on the spot |
| `reader` | `Reader`, the face of it all |
| `trial` | the questions of a data set, asked of a store of its texts, to fit what `answers` needs |
| `pipeline` | the `question-answering` task for `transformers.pipeline` |
| `summarizer` | `Summarizer`: long texts in, a short one out |
| `embedder`, `classifier` | `Embedder`, `Classifier`: texts in, vectors or labels out, by any encoder |
| `batching` | any number of texts through a model, batched by tokens |
| `result_files`, `result_formats` | results on disk, that go on where a run was stopped |
| `summary_memory` | how long an input may be for the memory that is free |
"""

from narrows.serving.answers import Answer, Result
from narrows.serving.engine import Engine
from narrows.serving.reader import Reader

__all__ = ["Answer", "Engine", "Reader", "Result"]
