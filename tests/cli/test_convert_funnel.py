"""`narrows convert --to funnel` and back: from a BERT, from transformers and from the authors' layout."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, FunnelModel, FunnelTokenizer
from transformers import FunnelConfig as TransformersConfig

from narrows import Embedder, register_all
from narrows.cli.main import main
from narrows.funnel.authors import export_tensors, net_config_of
from narrows.funnel.config import FunnelConfig
from narrows.funnel.convert import TASKS
from narrows.funnel.heads import FunnelForEmbedding
from narrows.hf.sentence_layout import SentenceLayout, save_layout

SIZES = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "block_sizes": [1, 1], "num_decoder_layers": 1}


def refused(capsys, *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_a_bert_becomes_a_sentence_encoder(tiny_bert, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    arguments = ["convert", str(tiny_bert), str(out), "--to", "funnel", "--block-sizes", "2,1,1", "--task", "embedding"]
    assert main([*arguments, "--json"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["block_sizes"] == [2, 1, 1] and report["semantics"] == "exact"
    assert "relative positions, random: to be distilled" in output.err
    assert "new funnel.encoder.blocks.*.*.attention.r_kernel (4)" in output.err
    register_all()
    model = AutoModel.from_pretrained(out)
    assert type(model) is FunnelForEmbedding and model.config.d_model == 24
    rows = AutoTokenizer.from_pretrained(out)(["the river", "a house by the lake"], padding=True, return_tensors="pt")
    assert model(**rows).pooler_output.shape == (2, 24)
    settings = json.loads((out / "sentence_bert_config.json").read_text())
    assert settings["max_seq_length"] == 128
    assert main(["convert", str(out), str(tmp_path / "again"), "--to", "transformers", "--quiet"]) == 0
    assert AutoConfig.from_pretrained(tmp_path / "again").model_type == "funnel"
    assert not (tmp_path / "again" / "modules.json").exists()


def test_a_bert_keeps_its_own_positions_where_asked(tiny_bert, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    arguments = [
        "convert",
        str(tiny_bert),
        str(out),
        "--to",
        "funnel",
        "--position-type",
        "absolute",
        "--task",
        "encoder",
    ]
    layers = AutoConfig.from_pretrained(tiny_bert).num_hidden_layers
    assert main([*arguments, "--block-sizes", str(layers), "--json", "-q"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["position_type"] == "absolute" and report["new"] == {}
    register_all()
    rows = AutoTokenizer.from_pretrained(out)(["the river", "a house by the lake"], padding=True, return_tensors="pt")
    rows.pop("token_type_ids")
    bert, funnel = AutoModel.from_pretrained(tiny_bert), AutoModel.from_pretrained(out)
    with torch.no_grad():
        theirs, ours = bert(**rows).last_hidden_state, funnel(**rows).last_hidden_state
    real = rows["attention_mask"].bool()
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)
    err = refused(capsys, "convert", str(out), str(tmp_path / "again"), "--to", "funnel", "--position-type", "relative")
    assert (
        "expected the positions of the funnel itself, absolute, got relative" in err
        and "leave position_type out" in err
    )


def test_a_sentence_encoder_is_taken_over_with_all_that_its_folder_says(tiny_bert, tmp_path, capsys) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tiny_bert, source)
    torch.manual_seed(0)
    layout = SentenceLayout(source, pooling="max", max_tokens=20, prompts={"query": "the king "}, lowercase=True)
    save_layout(layout, width=24, dense=torch.nn.Linear(24, 5))
    arguments = [
        "convert",
        str(source),
        str(out),
        "--to",
        "funnel",
        "--block-sizes",
        "2,1",
        "--task",
        "embedding",
        "-q",
    ]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["embedding_pooling"] == "max"
    embedder = Embedder.from_pretrained(out)
    assert (embedder.width, embedder.max_tokens, embedder.normalize) == (5, 20, False)
    assert embedder.prompts == {"query": "the king "} and (out / "1_Dense" / "model.safetensors").is_file()
    texts = ["the RIVER", "a house by the lake and the old mill"]
    np.testing.assert_allclose(embedder.embed(texts), embedder.embed([text.lower() for text in texts]), atol=1e-6)
    peer = pytest.importorskip("sentence_transformers").SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(peer.encode(texts), embedder.embed(texts), atol=1e-5)
    # Over it once more, with another pooling.
    assert main([*arguments, "--embedding-pooling", "cls", "--force", "--quiet"]) == 0
    assert AutoModel.from_pretrained(out).config.embedding_pooling == "cls"


def test_a_split_encoder_keeps_the_pooling(tiny_bert, tmp_path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tiny_bert, source)
    save_layout(SentenceLayout(source, pooling="cls", normalize=True, max_tokens=50), width=24)
    shape = ["--task", "encoder", "-k", "0", "--passage-positions", "continue", "--quiet"]
    assert main(["convert", str(source), str(out), *shape]) == 0
    ours, theirs = (Embedder.from_pretrained(folder) for folder in (out, source))
    assert (ours.pooling, ours.normalize, ours.max_tokens) == ("cls", True, 50)
    texts = ["the river", "a house by the lake"]
    np.testing.assert_allclose(ours.embed(texts), theirs.embed(texts), atol=1e-5)


def test_options_of_a_funnel(tiny_bert, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    shape = ["--block-sizes", "2, 1", "--block-repeats", "1,2", "--num-decoder-layers", "1", "--semantics", "hf"]
    head = ["--task", "masked-lm", "--json", "--quiet"]
    assert main(["convert", str(tiny_bert), str(out), "--to", "funnel", *shape, *head]) == 0
    report = json.loads(capsys.readouterr().out)
    fields = ("block_repeats", "num_decoder_layers", "semantics")
    assert [report[name] for name in fields] == [[1, 2], 1, "hf"]
    assert any(name.startswith("funnel.decoder.layers.0") for name in report["new"])
    assert type(TASKS["masked-lm"].from_pretrained(out)).__name__ == "FunnelForMaskedLM"


def test_a_checkpoint_of_the_authors_brings_its_vocabulary(tmp_path, capsys) -> None:
    words = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>", "the", "river", "##s"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TASKS["replaced-token-detection"](FunnelConfig(**SIZES, vocab_size=len(words)))
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    save_file(export_tensors(model, layout="tensorflow", task="replaced-token-detection"), source / "model.safetensors")
    (source / "net_config.json").write_text(json.dumps(net_config_of(model.config)))
    arguments = ["convert", str(source), str(out), "--to", "funnel", "--quiet"]
    assert main(arguments) == 1
    assert "expected vocab.uncased.txt in the authors' checkpoint" in capsys.readouterr().err
    (source / "vocab.uncased.txt").write_text("\n".join(words) + "\n")
    assert main(arguments) == 0
    rows = AutoTokenizer.from_pretrained(out)("The rivers", return_tensors="pt")
    assert rows["input_ids"].tolist() == [[2, 7, 8, 9, 3]] and rows["token_type_ids"].tolist() == [[2, 0, 0, 0, 0]]
    again = TASKS["replaced-token-detection"].from_pretrained(out)
    assert torch.equal(again.funnel.embeddings.word_embeddings.weight, model.funnel.embeddings.word_embeddings.weight)


def test_the_tokenizer_of_transformers_gives_segments_again(tmp_path, capsys) -> None:
    words = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>", "the", "river"]
    source, out = tmp_path / "source", tmp_path / "out"
    FunnelModel(TransformersConfig(**SIZES, vocab_size=len(words))).save_pretrained(source)
    FunnelTokenizer(vocab={word: number for number, word in enumerate(words)}).save_pretrained(source)
    assert main(["convert", str(source), str(out), "--to", "funnel", "--quiet"]) == 0
    rows = AutoTokenizer.from_pretrained(out)("the", "river")
    assert rows["token_type_ids"] == [2, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "funnel"], "expected block sizes for a BERT of 5 layers, got none; pass the layers of each block"),
        (["--to", "funnel", "--block-sizes", "2-2"], "--block-sizes must be numbers with commas between them, such as"),
        (["--to", "funnel", "--block-sizes", "2,"], "got '2,'; change it"),
        (["--to", "funnel", "-k", "2"], "expected options of funnel, got --split-layer, which it does not have"),
        (["-k", "1", "--semantics", "hf"], "expected options of deformer, got --semantics, which it does not have"),
        (["--to", "mulla", "--num-decoder-layers", "1"], "expected options of mulla, got --num-decoder-layers, which"),
        (["--to", "funnel", "--task", "generation"], "--task must be one of encoder, full, embedding"),
        (["--to", "transformers", "--task", "encoder"], "expected no --task for transformers, got encoder; the"),
        (["--to", "transformers", "--block-sizes", "2"], "expected options of transformers, got --block-sizes"),
    ],
)
def test_used_wrongly(arguments, text, tiny_bert, tmp_path, capsys) -> None:
    assert text in refused(capsys, "convert", str(tiny_bert), str(tmp_path / "out"), *arguments)
    assert not (tmp_path / "out").exists()


def test_only_a_funnel_goes_back(tiny_bert, tmp_path, capsys) -> None:
    assert main(["convert", str(tiny_bert), str(tmp_path / "out"), "--to", "transformers", "--quiet"]) == 1
    assert "expected a Funnel of narrows in" in capsys.readouterr().err


def test_converting_a_funnel_of_ours_says_nothing_but_its_report(tiny_bert, tmp_path) -> None:
    """In a process of its own: once a family is registered, transformers knows its type."""
    first = ["convert", str(tiny_bert), str(tmp_path / "ours"), "--to", "funnel", "--block-sizes", "2,2"]
    assert main([*first, "--quiet"]) == 0
    for target, options in {
        "back": ["--to", "transformers"],
        "again": ["--to", "funnel", "--task", "embedding"],
    }.items():
        command = ["convert", str(tmp_path / "ours"), str(tmp_path / target), *options, "--quiet"]
        run = subprocess.run([sys.executable, "-m", "narrows.cli.main", *command], capture_output=True, text=True)
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
