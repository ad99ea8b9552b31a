"""Measure a family beside its peers, behind a correctness gate, and keep what was measured.

| module | what it does |
|---|---|
| `registry` | the families by name |
| `rows` | what a row is, and the rows that one measurement gives together |
| `runner` | gate, measure, keep: the whole of `narrows bench` |
| `results` | the file of measured rows: machine, versions, commit, digest of the code of each |
| `probes` | interleaved times, peak memory of a process of its own |
| `cost` | closed-form arithmetic of an encoder, joint and split |
| `gate` | checks that have to hold before a number counts |
| `deformer` | the rows of DeFormer; their measurements are in `speed`, `memory` and `quality` |
| `report` | results to Markdown tables |
"""
