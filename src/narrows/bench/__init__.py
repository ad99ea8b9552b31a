"""Measure a family beside its peers, behind a correctness gate, and keep what was measured.

| module | what it does |
|---|---|
| `registry` | the families by name |
| `rows` | what a row is, and the rows that one measurement gives together |
| `runner` | gate, measure, keep: the whole of `narrows bench` |
| `results` | the file of measured rows: machine, versions, commit, digest of the code of each |
| `probes` | interleaved times, peak memory of a process of its own |
| `cost` | closed-form arithmetic of an encoder, joint and split |
| `deformer` | the rows of DeFormer; their measurements are in `speed`, `memory` and `quality`, its checks in `gate` |
| `mulla` | the rows of Mulla; measured in `pairs`, `conversion` and `summaries`, its checks in `mulla_gate` |
| `bottleneck` | the rows of bottleneck attention; measured in `pairs` and `bottleneck_numbers`, see `bottleneck_gate` |
| `planted` | sweeps of planted facts as figures, drawn by `planted_plot` |
| `encoders` | models of long texts, ours and LongT5, and what each is given to do |
| `report` | results to Markdown tables |
"""
