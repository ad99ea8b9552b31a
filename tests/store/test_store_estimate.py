import dataclasses

import pytest

from narrows.store import Store, estimate_bytes


@pytest.mark.parametrize(
    ("codec", "width", "vector_width", "count", "tokens"),
    [
        ("int8", 384, 0, 150, 60),
        ("fp16", 128, 0, 120, 40),
        ("int8", 384, 384, 100, 90),
        ("fp32", 64, 32, 200, 30),
    ],
)
def test_estimates_are_within_five_percent(
    tmp_path, shared_data, fingerprint, document, codec, width, vector_width, count, tokens
) -> None:
    text = _english(shared_data)
    fingerprint = dataclasses.replace(fingerprint, codec=codec, width=width)
    with Store.create(tmp_path / "s", fingerprint, vector_width=vector_width) as store:
        size = 4 * tokens
        with store.writer() as writer:
            for start in range(0, count, 50):
                texts = [text[n * size : (n + 1) * size] for n in range(start, min(start + 50, count))]
                one = document(f"d{start}", texts, codec=codec, width=width, vector_width=vector_width, tokens=tokens)
                writer.put([one])
            writer.finish()
        info = store.info()
    assert info.passages == count
    estimate = estimate_bytes(info.passages, info.tokens, info.bytes_text, codec, width, vector_width)
    assert estimate == pytest.approx(info.bytes_on_disk, rel=0.05)


def _english(shared_data) -> str:
    import gzip

    with gzip.open(shared_data / "lm_text" / "wikitext-2" / "test.txt.gz", "rt", encoding="utf-8") as file:
        return file.read()
