"""`Summarizer`: what it reads, what it refuses, and that it writes what `generate` writes, for every kind of model."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, T5Config

from narrows import Summarizer
from narrows.data.truncation import Windows
from narrows.errors import ConversionError, UsageError
from narrows.hf.register import register_all
from narrows.hf.seq2seq import load_seq2seq, require_known_tokens
from narrows.hf.trained_inputs import TrainedInputs, note_inputs, trained_inputs
from narrows.serving import summarizer as summarizer_module
from narrows.serving.summary_memory import available_bytes, largest_input, needed_bytes

TEXT = "the old mill near the river was built by the king . " * 8
KINDS = ["mulla", "longt5", "tglobal", "t5"]


@pytest.fixture
def trained(tiny_seq2seq, tmp_path):
    """A Mulla that says it was trained on 20 tokens."""
    folder = tmp_path / "trained"
    shutil.copytree(tiny_seq2seq("mulla"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "narrows_inputs": {"max_input_tokens": 20, "truncation": {"name": "head"}}})
    )
    return Summarizer.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_it_writes_what_generate_writes(kind, beams, tiny_seq2seq) -> None:
    register_all()
    found = Summarizer.from_pretrained(tiny_seq2seq(kind), device="cpu").summarize(
        [TEXT, "a boat"], query="what was built ?", num_beams=beams, max_new_tokens=7
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_seq2seq(kind))
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_seq2seq(kind)).eval()
    pieces = [tokenizer(text, add_special_tokens=False).input_ids for text in ("what was built ?", TEXT, "a boat")]
    ids = torch.tensor([[*pieces[0], 1, *pieces[1], 1, *pieces[2], 1]])
    written = model.generate(input_ids=ids, num_beams=beams, max_new_tokens=7, do_sample=False)
    assert found.summary == tokenizer.decode(written[0], skip_special_tokens=True).strip()
    assert found.tokens_read == len(pieces[1]) + 1 + len(pieces[2]) == found.truncation.kept
    assert (found.tokens_not_read, found.truncation.parts, found.beyond_trained) == (0, 1, 0)
    assert found.seconds > 0


def test_longer_texts_are_cut_only_when_asked(trained) -> None:
    tokens = len(trained.tokenizer(TEXT, add_special_tokens=False).input_ids)
    whole = trained.summarize(TEXT, max_new_tokens=3)
    assert (whole.tokens_read, whole.tokens_not_read, whole.beyond_trained) == (tokens, 0, tokens + 1 - 20)
    cut = trained.summarize(TEXT, truncation="head", max_new_tokens=3)
    assert (cut.tokens_read, cut.tokens_not_read, cut.beyond_trained) == (19, tokens - 19, 0)
    fewer = trained.summarize(TEXT, max_input_tokens=12, max_new_tokens=3)
    assert (fewer.tokens_read, fewer.tokens_not_read) == (11, tokens - 11)
    with pytest.raises(UsageError, match="expected a truncation .*, got 'hed'; did you mean 'head'"):
        trained.summarize(TEXT, truncation="hed")


def test_windows_are_summarised_one_by_one(tiny_seq2seq) -> None:
    from narrows.data import truncation

    summarizer = Summarizer.from_pretrained(tiny_seq2seq("mulla"), device="cpu")
    found = summarizer.summarize(
        TEXT, truncation=truncation("windows", overlap=4), max_input_tokens=40, max_new_tokens=5
    )
    assert found.truncation.parts > 1 and found.tokens_not_read == 0
    parts = found.summary.split("\n")
    assert len(parts) == found.truncation.parts
    tokens = summarizer.tokenizer(TEXT, add_special_tokens=False).input_ids
    first = summarizer.model.generate(input_ids=torch.tensor([[*tokens[:39], 1]]), max_new_tokens=5, do_sample=False)
    assert parts[0] == summarizer.tokenizer.decode(first[0], skip_special_tokens=True).strip()


def test_each_step_of_writing_is_told(tiny_seq2seq) -> None:
    told = []
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("t5"), device="cpu")
    summarizer.summarize(TEXT, max_new_tokens=4, on_token=told.append)
    assert 1 <= sum(told) <= 4


@pytest.mark.parametrize(
    ("documents", "options", "text"),
    [
        ("", {}, "expected words in the text to summarise, got nothing; leave it out"),
        (["a", "caf\udce9"], {}, "expected text 2 in Unicode, but its character 3 is a byte that is not UTF-8 or half"),
        ("a", {"query": "\udce9"}, "expected a query in Unicode, but its character 0 is a byte that is not UTF-8"),
        ("a", {"prefix": "\udce9"}, "expected a prefix in Unicode, but its character 0 is a byte that is not UTF-8"),
        (" \n\t", {}, "expected words in the text to summarise, got only spaces; leave it out"),
        (["a boat", ""], {}, "expected words in text 2 to summarise, got nothing"),
        ([], {}, "expected at least one text to summarise, got none; pass a text"),
        ("\u0001 \u0002", {}, "expected text with words in it, got none that the tokenizer knows; pass another text"),
        ("会議では橋の建設が決定された。", {}, "expected text with words in it, got none that the tokenizer knows"),
        ("a boat", {"query": "会議"}, "expected a query with words in it, got none that the tokenizer knows; ask in"),
        ("a boat", {"max_input_tokens": 1}, "expected an input of at least 2 tokens, for one of the text and what"),
        ("a boat", {"num_beams": 0}, "expected num_beams of at least 1, got 0"),
        ("a boat", {"max_new_tokens": 0}, "expected max_new_tokens of at least 1, got 0"),
        ("a boat", {"max_input_tokens": 0}, "expected max_tokens of at least 1, got 0"),
        ("a boat", {"max_input_tokens": 3, "query": "what was it ?"}, "expected a query that leaves room within 3"),
        ("a boat", {"truncation": "head"}, "expected max_input_tokens beside a truncation, since the model does not"),
    ],
)
def test_bad_input_is_one_sentence(documents, options, text, tiny_seq2seq) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("mulla"), device="cpu")
    with pytest.raises(UsageError, match=text):
        summarizer.summarize(documents, **options)


def test_a_truncation_named_as_the_models_own_is_that_one(trained, monkeypatch) -> None:
    tokens = len(trained.tokenizer(TEXT, add_special_tokens=False).input_ids)
    monkeypatch.setattr(
        trained.model.config,
        "narrows_inputs",
        {"max_input_tokens": 20, "truncation": {"name": "windows", "overlap": 3}},
    )
    # With the default, an overlap of 128, nothing could be read at all.
    found = trained.summarize(TEXT, truncation="windows", max_new_tokens=3)
    assert (found.tokens_read, found.truncation.parts) == (tokens, -(-(tokens - 3) // 16))
    assert trained.summarize(TEXT, truncation="head+tail", max_new_tokens=3).tokens_read == 19
    whole = Windows(overlap=3)
    assert trained.summarize(TEXT, truncation=whole, max_new_tokens=3).summary == found.summary


def test_unknown_words_among_known_ones_are_read(tiny_seq2seq) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("mulla"), device="cpu")
    known = summarizer.summarize("a boat", max_new_tokens=2).tokens_read
    assert summarizer.summarize("a 会議 boat", max_new_tokens=2).tokens_read > known


def test_beams_that_do_not_fit_are_refused(tiny_seq2seq) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("t5"), device="cpu")
    with pytest.raises(UsageError, match=r"none fits beside 1,000,000,000 beams: pass fewer \(--beams\)"):
        summarizer.summarize("a boat", num_beams=10**9)


def test_a_text_that_leaves_no_token_is_refused(tiny_seq2seq, monkeypatch) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("mulla"), device="cpu")
    monkeypatch.setattr(summarizer, "_tokenize", lambda text: [])
    with pytest.raises(UsageError, match="expected text with words in it, got none that the tokenizer knows"):
        summarizer.summarize("a boat")


@pytest.mark.parametrize("dtype", ["float16", "fp16", "half", "torch.float16", "FP16"])
def test_fp16_is_refused_with_the_reason(dtype, tiny_seq2seq) -> None:
    with pytest.raises(UsageError, match=f"got {dtype}, in which T5's unscaled .* scores overflow; use bfloat16"):
        Summarizer.from_pretrained(tiny_seq2seq("t5"), dtype=dtype)
    with pytest.raises(UsageError, match="expected a dtype of float32 or bfloat16, got 'int8'; choose one of them"):
        Summarizer.from_pretrained(tiny_seq2seq("t5"), dtype="int8")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU; this one has one")
def test_a_gpu_that_is_not_there_is_refused(tiny_seq2seq) -> None:
    with pytest.raises(UsageError, match="expected a GPU for the device cuda, got none that torch can see; use cpu"):
        Summarizer.from_pretrained(tiny_seq2seq("t5"), device="cuda")


def test_checkpoints_of_another_kind_are_refused(tiny_bert, tiny_seq2seq, tmp_path) -> None:
    with pytest.raises(ConversionError, match="expected a model that writes text .*, got .* of type 'bert'; pass"):
        Summarizer.from_pretrained(tiny_bert)
    from narrows.mulla import MullaT5EncoderModel

    shutil.copytree(tiny_seq2seq("mulla"), tmp_path / "encoder")
    MullaT5EncoderModel.from_pretrained(tiny_seq2seq("mulla")).save_pretrained(tmp_path / "encoder")
    with pytest.raises(ConversionError, match="expected a checkpoint with a decoder that writes text, got .* without"):
        Summarizer.from_pretrained(tmp_path / "encoder")
    shutil.copytree(tiny_seq2seq("mulla"), tmp_path / "holes")
    tensors = load_file(tmp_path / "holes" / "model.safetensors")
    lost = next(name for name in sorted(tensors) if name.startswith("decoder.block."))
    save_file(
        {name: tensor for name, tensor in tensors.items() if name != lost},
        tmp_path / "holes" / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(
        ConversionError, match=f"expected all weights of .*holes, got none for {lost}; the checkpoint is"
    ):
        Summarizer.from_pretrained(tmp_path / "holes")
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "config.json").write_text('{"model_type": "nothing-known"}')
    (tmp_path / "unknown" / "model.bin").write_bytes(b"")
    with pytest.raises(ConversionError, match="expected a config.json of a known model in .*unknown, got none"):
        Summarizer.from_pretrained(tmp_path / "unknown")


@pytest.mark.parametrize("kind", ["mulla", "t5"])
def test_weights_that_cannot_write_are_refused(kind, tiny_seq2seq, tmp_path) -> None:
    def changed(**fields) -> Path:
        folder = tmp_path / "-".join(fields)
        shutil.copytree(tiny_seq2seq(kind), folder)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
        return folder

    broken = tmp_path / "nan"
    shutil.copytree(tiny_seq2seq(kind), broken)
    tensors = load_file(broken / "model.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("SelfAttention.q.weight"))
    tensors[name][0, 0] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    for folder, text in (
        (broken, f"expected finite weights in {broken}, got NaN or infinity in {name}; train it again"),
        (changed(num_heads=7), r"in the shape \[.*\] that its config.json asks for, got \[.*\]; copy the checkpoint"),
        (
            changed(decoder_start_token_id=None, x=1),
            "expected a decoder_start_token_id in config.json of .*, got none",
        ),
    ):
        with pytest.raises(ConversionError, match=text):
            Summarizer.from_pretrained(folder)


def test_a_tokenizer_of_another_model_is_refused(tiny_seq2seq) -> None:
    _, tokenizer = load_seq2seq(tiny_seq2seq("t5"))
    with pytest.raises(ConversionError, match="expected at least .* embeddings in small, one for each of .*, got 3"):
        require_known_tokens(T5Config(vocab_size=3), tokenizer, "small")


def test_a_checkpoint_without_a_tokenizer_is_refused(tiny_seq2seq, tmp_path) -> None:
    shutil.copytree(tiny_seq2seq("mulla"), tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer.json").unlink()
    with pytest.raises(ConversionError, match="expected tokenizer.json, vocab.txt or spiece.model in the checkpoint"):
        Summarizer.from_pretrained(tmp_path / "bare")
    shutil.copytree(tiny_seq2seq("mulla"), tmp_path / "endless")
    path = tmp_path / "endless" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["eos_token"]
    path.write_text(json.dumps(settings))
    with pytest.raises(ConversionError, match="expected a tokenizer with eos_token in .*endless, got none; add it"):
        Summarizer.from_pretrained(tmp_path / "endless")


def test_a_note_of_inputs_that_is_none_is_refused() -> None:
    config = AutoConfig.for_model("t5")
    assert trained_inputs(config) is None
    note_inputs(config, TrainedInputs(64, {"name": "head"}, "summarize: "))
    assert trained_inputs(config) == (64, {"name": "head"}, "summarize: ")
    note_inputs(config, TrainedInputs(64, {"name": "windows", "overlap": 8}))
    found = trained_inputs(config)
    assert found is not None and found.make_truncation()([5] * 60, budget=40).report.parts == 2
    config.narrows_inputs = {"max_input_tokens": 64, "truncation": {"name": "nothing"}}
    message = (
        "expected `max_input_tokens`, `truncation` and perhaps a `prefix` under 'narrows_inputs' of config.json, got"
    )
    with pytest.raises(ConversionError, match=message):
        trained_inputs(config)
    config.narrows_inputs = {"max_input_tokens": 64, "truncation": {"name": "head"}, "prefix": 3}
    with pytest.raises(ConversionError, match=message):
        trained_inputs(config)


def test_a_prefix_is_the_models_own_or_the_calls(tiny_seq2seq, tmp_path) -> None:
    shutil.copytree(tiny_seq2seq("t5"), tmp_path / "t5")
    config = json.loads((tmp_path / "t5" / "config.json").read_text())
    noted = {"max_input_tokens": 40, "truncation": {"name": "head"}, "prefix": "the king: "}
    (tmp_path / "t5" / "config.json").write_text(json.dumps({**config, "narrows_inputs": noted}))
    plain = Summarizer.from_pretrained(tiny_seq2seq("t5"), device="cpu")
    own = Summarizer.from_pretrained(tmp_path / "t5", device="cpu")

    def written(summarizer, text="a boat .", **options):
        return summarizer.summarize(text, max_new_tokens=9, **options)[:3]

    # As if it stood in the text, whose tokens alone are counted.
    expected = written(plain, text="the king: a boat .")
    for found in (written(plain, prefix="the king: "), written(plain, prefix=" the king:"), written(own)):
        assert found[0] == expected[0] and found[1:] == written(plain)[1:]
    assert written(own, prefix="") == written(plain)
    assert written(plain)[0] != expected[0]
    # Its room is taken from the documents.
    read = [written(own, TEXT, truncation="head", **options)[1] for options in ({}, {"prefix": ""})]
    assert read[0] < read[1] == 39


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused_with_what_would(kind, tiny_seq2seq, monkeypatch) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq(kind), device="cpu")
    room = needed_bytes(summarizer.model.config, 60, dtype=torch.float32)
    monkeypatch.setattr(summarizer_module, "available_bytes", lambda device: room)
    with pytest.raises(UsageError, match="got 105 tokens, which need about .* GB .* free; about [0-9]+ fit: pass"):
        summarizer.summarize(TEXT)
    assert summarizer.summarize(TEXT, max_input_tokens=60, max_new_tokens=2).tokens_read == 59


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
    ids=["python", "cuda", "cpu"],
)
def test_running_out_of_memory_is_one_sentence(error, tiny_seq2seq, monkeypatch) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("t5"), device="cpu")

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(summarizer_module, "write_texts", fail)
    with pytest.raises(UsageError, match="expected an input that fits into memory, got 105 tokens.*; about 52 fit"):
        summarizer.summarize(TEXT)


def test_other_failures_are_not_taken_for_it(tiny_seq2seq, monkeypatch) -> None:
    summarizer = Summarizer.from_pretrained(tiny_seq2seq("t5"), device="cpu")

    def fail(*args, **kwargs):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(summarizer_module, "write_texts", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        summarizer.summarize(TEXT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_input_is_the_last_that_fits(kind, tiny_seq2seq) -> None:
    register_all()
    config = AutoConfig.from_pretrained(tiny_seq2seq(kind))
    room = 10**8
    tokens = largest_input(config, room, dtype=torch.bfloat16, num_beams=2)
    assert needed_bytes(config, tokens, dtype=torch.bfloat16, num_beams=2) <= room
    assert needed_bytes(config, tokens + 1, dtype=torch.bfloat16, num_beams=2) > room
    assert largest_input(config, 0, dtype=torch.bfloat16) == 0
    assert available_bytes(torch.device("cpu")) > 0
