"""The fixtures of conftest.py are what their users take them for."""

from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer


def test_tiny_bert_loads_offline_and_reads_any_english_text(tiny_bert: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    model = AutoModel.from_pretrained(tiny_bert)
    batch = tokenizer("Where is the Mill?", "The old mill, no. 7, stands by the river.", return_tensors="pt")
    assert tokenizer.unk_token_id not in batch["input_ids"]
    assert batch["token_type_ids"].unique().tolist() == [0, 1]
    assert tokenizer.is_fast
    assert model.config.num_hidden_layers == 5
    with torch.no_grad():
        assert model(**batch).last_hidden_state.shape == (1, batch["input_ids"].shape[1], 24)


def test_tokenizer_keeps_offsets(tiny_bert: Path) -> None:
    text = "The bridge was built by 12 Vellanians."
    encoded = AutoTokenizer.from_pretrained(tiny_bert)(text, return_offsets_mapping=True)
    pieces = [text[start:end] for start, end in encoded["offset_mapping"] if end > start]
    assert "".join(pieces) == text.replace(" ", "")


def test_tests_run_on_one_thread() -> None:
    assert torch.get_num_threads() == 1
