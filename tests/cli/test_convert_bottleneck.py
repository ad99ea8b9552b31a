"""`narrows convert --to bottleneck`: a BERT whose layers are narrow, its report, its vectors, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from narrows import Embedder, register_all
from narrows.bottleneck.bert import BottleneckBertModel
from narrows.cli.main import main
from narrows.hf.sentence_layout import SentenceLayout, save_layout

TEXTS = "the river runs by the old mill\n\na house by the lake and a king\nbirds are small\n"


def refused(capsys, *arguments: str, code: int = 2) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_a_sentence_encoder_gets_narrow_layers(tiny_bert, tmp_path, capsys) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tiny_bert, source)
    torch.manual_seed(0)
    layout = SentenceLayout(source, pooling="max", max_tokens=20, normalize=True, lowercase=True)
    save_layout(layout, width=24, dense=torch.nn.Linear(24, 5))
    (tmp_path / "texts.txt").write_text(TEXTS)
    arguments = ["convert", str(source), str(out), "--to", "bottleneck", "--layers", "3,2", "--bottleneck-ratio", "2"]
    assert main([*arguments, "--calibrate", str(tmp_path / "texts.txt"), "--json"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["bottleneck_ratio"] == 2 and report["calibration_texts"] == 3 and list(report["fits"]) == ["2", "3"]
    assert "fitted by 3 texts" in output.err and "  layer 3: scores 0." in output.err
    assert json.loads((out / "conversion.json").read_text())["fits"] == report["fits"]
    register_all()
    model = AutoModel.from_pretrained(out)
    assert type(model) is BottleneckBertModel and model.config.bottleneck_layers == [2, 3]
    embedder = Embedder.from_pretrained(out)
    assert (embedder.width, embedder.max_tokens, embedder.normalize) == (5, 20, True)
    texts = ["the RIVER", "a house by the lake and the old mill"]
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(embedder.embed(texts), alone, atol=1e-5)
    peer = pytest.importorskip("sentence_transformers").SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(peer.encode(texts), embedder.embed(texts), atol=1e-5)


def test_at_ratio_1_vectors_stay(tiny_bert, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert (
        main(["convert", str(tiny_bert), str(out), "--to", "bottleneck", "--layers", "1", "--bottleneck-ratio", "1"])
        == 0
    )
    assert "fitted without texts, 3 heads" in capsys.readouterr().err
    assert AutoConfig.from_pretrained(out).bottleneck_ratio == 1
    texts = ["the king", "a house by the lake"]
    ours, theirs = (Embedder.from_pretrained(folder, pooling="mean").embed(texts) for folder in (out, tiny_bert))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_refused_in_one_sentence(tiny_bert, tiny_encoder, tmp_path, capsys) -> None:
    empty, out = tmp_path / "empty.txt", str(tmp_path / "out")
    empty.write_text("\n")
    common = ["convert", str(tiny_bert), out, "--to", "bottleneck"]
    assert "expected --layers for bottleneck, got none; name the layers to replace" in refused(capsys, *common)
    assert "--layers must be numbers with commas between them, such as 4,5,6, got 'last'" in refused(
        capsys, *common, "--layers", "last"
    )
    assert "`bottleneck_layers` must be numbers from 1 to 5" in refused(capsys, *common, "--layers", "5,6")
    assert "`bottleneck_ratio` must be from 1 to hidden_size, 24" in refused(
        capsys, *common, "--layers", "5", "--bottleneck-ratio", "0.5"
    )
    assert "`bottleneck_heads` must be one of 3, 2" in refused(
        capsys, *common, "--layers", "5", "--bottleneck-heads", "5"
    )
    assert "expected texts in" in refused(capsys, *common, "--layers", "5", "--calibrate", str(empty))
    assert "expected a file, got nothing at this path" in refused(
        capsys, *common, "--layers", "5", "--calibrate", "no.txt"
    )
    assert "got --layers, which it does not have" in refused(
        capsys, "convert", str(tiny_bert), out, "--to", "deformer", "-k", "1", "--layers", "5"
    )
    assert "--task must be one of encoder, sequence-classification" in refused(
        capsys, *common, "--layers", "5", "--task", "full"
    )
    err = refused(capsys, "convert", str(tiny_encoder("roberta")), out, "--to", "bottleneck", "--layers", "1", code=1)
    assert "expected a BERT of transformers, got model type 'roberta'" in err
