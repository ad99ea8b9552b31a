"""The passage store: text, token ids and encoded states of passages, on Lance. Knows bytes, not models.

| module | what it does |
|---|---|
| `fingerprint` | the identity of what made the states |
| `codecs` | states to bytes and back |
| `records` | the plain records that go in and come out |
| `rows` | records to Arrow rows, with a checksum each |
| `layout` | the folder: manifest, locks, Lance's errors in our words |
| `reader` | `Store`: open, search, load |
| `writer` | `Writer`: put, remove, repair, finish |
| `checksums` | of the files that Lance keeps, which have none |
| `tails` | the last kB of a file, which Lance believes |
| `fragments`, `attempt` | reading damaged files, in another process first |
| `guard` | what an open store keeps from Lance |
| `verification` | `verify`: everything compared with what was written |
| `maintenance` | delete, estimate |
"""

from narrows.store.codecs import CODEC_NAMES, Codec, get_codec
from narrows.store.fingerprint import FORMAT_VERSION, Fingerprint
from narrows.store.maintenance import delete, estimate_bytes
from narrows.store.reader import Store
from narrows.store.records import (
    Damage,
    Hit,
    LoadedPassages,
    StoredDocument,
    StoredPassage,
    StoreInfo,
    VerifyReport,
)
from narrows.store.salvage import LeftOut, Salvage, load_whole
from narrows.store.verification import verify
from narrows.store.writer import Writer

__all__ = [
    "CODEC_NAMES",
    "FORMAT_VERSION",
    "Codec",
    "Damage",
    "Fingerprint",
    "Hit",
    "LeftOut",
    "LoadedPassages",
    "Salvage",
    "Store",
    "StoreInfo",
    "StoredDocument",
    "StoredPassage",
    "VerifyReport",
    "Writer",
    "delete",
    "estimate_bytes",
    "get_codec",
    "load_whole",
    "verify",
]
