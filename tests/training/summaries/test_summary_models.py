"""Where a summariser starts from: a checkpoint, one that is converted, or nothing with a tokenizer of any kind."""

import json
import math
import shutil

import pytest
import torch

from narrows.errors import ConversionError, UsageError
from narrows.hf.sentencepiece import read_sentencepiece, sentinel_ids
from narrows.hf.seq2seq import load_seq2seq
from narrows.training.run import train
from narrows.training.summaries.build import build_run
from narrows.training.summaries.model import build_model, build_tokenizer

SIZES = {"d_model": 16, "d_kv": 4, "d_ff": 20, "num_layers": 1, "num_heads": 2}


def _spiece(path, *, kind: int = 1) -> None:
    """A SentencePiece model of a few pieces, laid out as ALBERT's: other special pieces, in other places."""
    from transformers.utils.sentencepiece_model_pb2_new import ModelProto

    proto = ModelProto()
    proto.trainer_spec.model_type = kind
    pieces = [("<pad>", 0.0, 3), ("<unk>", 0.0, 2), ("[CLS]", 0.0, 3), ("(", 0.0, 4), ("▁", -3.0, 1)]
    pieces += [(f"▁{word}", -4.0, 1) for word in ("the", "old", "mill")]
    pieces += [(letter, -9.0, 1) for letter in "abcdefghijklmnopqrstuvwxyz."]
    for piece, score, of_kind in pieces:
        proto.pieces.add(piece=piece, score=score, type=of_kind)
    path.write_bytes(proto.SerializeToString())


def test_a_checkpoint_is_converted_at_the_start(summary_recipe, tiny_seq2seq) -> None:
    recipe = summary_recipe(
        model={
            "checkpoint": str(tiny_seq2seq("tglobal")),
            **{"family": "mulla", "variant": "fixed", "num_levels": 2, "pooling_rate": 3, "local_radius": 5},
            "new_tables": "global",
        },
        optimiser={"dropout": 0.25},
    )
    source, _ = load_seq2seq(tiny_seq2seq("tglobal"))
    model = build_model(recipe, build_tokenizer(recipe, data=None, runs=None))
    config = model.config
    assert (config.model_type, config.variant, config.num_levels) == ("narrows-mulla-t5", "fixed", 2)
    assert (config.pooling_rate, config.local_radius, config.dropout_rate) == (3, 5, 0.25)
    assert torch.equal(model.shared.weight, source.shared.weight)
    # Training writes into its own memory, not into the mapped file.
    with torch.no_grad():
        model.shared.weight.fill_(0.0)
    assert load_seq2seq(tiny_seq2seq("tglobal"))[0].shared.weight.any()


def test_a_recipe_gives_each_level_a_scale(summary_recipe, tiny_seq2seq) -> None:
    section = {"checkpoint": str(tiny_seq2seq("tglobal")), "family": "mulla", "level_scales": True}
    recipe = summary_recipe(model=section)
    model = build_model(recipe, build_tokenizer(recipe, data=None, runs=None))
    scales = model.encoder.level_scales
    assert scales.requires_grad and torch.equal(scales, torch.ones_like(scales))


def test_dropout_is_the_recipes(summary_recipe, tiny_seq2seq) -> None:
    for kind in ("mulla", "longt5", "t5"):
        recipe = summary_recipe(model={"checkpoint": str(tiny_seq2seq(kind))}, optimiser={"dropout": 0.3})
        model = build_model(recipe, build_tokenizer(recipe, data=None, runs=None))
        found = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
        assert found <= {0.3, 0.0} and 0.3 in found


def test_a_mulla_is_taken_as_it_is_and_not_changed(summary_recipe, tiny_seq2seq) -> None:
    recipe = summary_recipe(model={"family": "mulla"})
    assert build_model(recipe, build_tokenizer(recipe, data=None, runs=None)).config.local_radius == 4
    recipe = summary_recipe(model={"family": "mulla", "local_radius": 9})
    with pytest.raises(
        UsageError, match="expected no model.local_radius for .*, which is a Mulla already; leave it out"
    ):
        build_model(recipe, build_tokenizer(recipe, data=None, runs=None))


@pytest.mark.parametrize("family", ["mulla", "longt5-local", "longt5-tglobal", "t5"])
def test_every_family_starts_from_nothing(family, summary_recipe, summaries_folder, tmp_path) -> None:
    _spiece(tmp_path / "spiece.model")
    options = {} if family == "t5" else {"local_radius": 3}
    recipe = summary_recipe(
        model={
            "checkpoint": None,
            "family": family,
            **options,
            "scratch": {"tokenizer": str(tmp_path / "spiece.model"), "lowercase": True, **SIZES},
        },
        optimiser={"epochs": 0.5},
        data={"tune": []},
    )
    folder = train(recipe, data=summaries_folder, output=tmp_path / "run", quiet=True)
    model, tokenizer = load_seq2seq(folder)
    assert model.config.vocab_size == len(tokenizer) == 3 + 32 + 100
    assert tokenizer("The OLD mill").input_ids == [*tokenizer.convert_tokens_to_ids(["▁the", "▁old", "▁mill"]), 1]
    assert getattr(model.config, "local_radius", 3) == 3


@pytest.mark.parametrize("family", ["mulla", "longt5-local", "longt5-tglobal", "t5"])
def test_a_model_from_nothing_starts_near_an_even_guess(family, summary_recipe, tiny_seq2seq) -> None:
    scratch = {**SIZES, "tokenizer": str(tiny_seq2seq("t5")), "d_model": 64, "d_kv": 16}
    recipe = summary_recipe(model={"checkpoint": None, "family": family, "scratch": scratch})
    torch.manual_seed(0)
    tokenizer = build_tokenizer(recipe, data=tiny_seq2seq("t5"), runs=None)
    model = build_model(recipe, tokenizer).eval()
    assert model.lm_head.weight is model.shared.weight
    ids = torch.randint(3, len(tokenizer), (2, 20))
    loss = float(model(input_ids=ids, labels=ids).loss.detach())
    assert loss == pytest.approx(math.log(len(tokenizer)), abs=2.0)


def test_tokenizers_are_looked_for_in_runs_and_data(summary_recipe, tiny_seq2seq, tmp_path) -> None:
    def tokenizer(name, *, runs=None, data=tmp_path, **scratch):
        model = {"checkpoint": None, "family": "t5", "scratch": {"tokenizer": name, **scratch}}
        return build_tokenizer(summary_recipe(model=model), data=data, runs=runs)

    shutil.copytree(tiny_seq2seq("t5"), tmp_path / "runs" / "first")
    expected = len(load_seq2seq(tiny_seq2seq("t5"))[1])
    assert len(tokenizer("first", runs=tmp_path / "runs")) == expected
    assert len(tokenizer("runs/first/tokenizer.json")) == expected
    (tmp_path / "pieces").mkdir()
    _spiece(tmp_path / "pieces" / "spiece.model")
    assert len(tokenizer("pieces")) == 135
    shutil.copytree(tmp_path / "pieces", tmp_path / "bytes")
    assert (len(tokenizer("bytes")), len(tokenizer("./bytes"))) == (260, 135)
    with pytest.raises(UsageError, match="expected lowercase with a SentencePiece model only, got bytes; leave"):
        tokenizer("bytes", lowercase=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="expected a tokenizer at none in the folder of the runs or of the data, got"):
        tokenizer("none")
    with pytest.raises(
        UsageError, match="expected tokenizer.json or spiece.model in .*empty, got neither; name another"
    ):
        tokenizer("empty")
    with pytest.raises(UsageError, match="expected lowercase with a SentencePiece model only, got .*first; leave"):
        tokenizer("runs/first", lowercase=True)
    path = tmp_path / "runs" / "first" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"]
    path.write_text(json.dumps(settings))
    with pytest.raises(
        UsageError, match="expected a tokenizer with pad_token and eos_token in .*first, got none; name"
    ):
        tokenizer("runs/first")


def test_a_sentencepiece_model_is_laid_out_as_t5s(tmp_path) -> None:
    _spiece(tmp_path / "a.model")
    tokenizer = read_sentencepiece(tmp_path / "a.model")
    assert tokenizer.convert_tokens_to_ids(["<pad>", "</s>", "<unk>", "(", "▁", "▁the"]) == [0, 1, 2, 3, 4, 5]
    assert sentinel_ids(tokenizer) == list(range(134, 34, -1))
    ids = tokenizer("the old boat").input_ids
    assert ids[:2] == tokenizer.convert_tokens_to_ids(["▁the", "▁old"]) and ids[-1] == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the old boat"
    tokenizer.save_pretrained(tmp_path / "saved")
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(tmp_path / "saved")("the old boat").input_ids == ids


def test_other_files_are_no_sentencepiece_models(tmp_path) -> None:
    (tmp_path / "b.model").write_bytes(b"\xff\xfe no such thing")
    for name in ("b.model", "none.model"):
        with pytest.raises(ConversionError, match=f"expected a SentencePiece model in .*{name}, got none that can be"):
            read_sentencepiece(tmp_path / name)
    _spiece(tmp_path / "c.model", kind=2)
    with pytest.raises(ConversionError, match="expected a unigram SentencePiece model in .*, got another kind; pass"):
        read_sentencepiece(tmp_path / "c.model")


def test_the_real_sentencepiece_model_reads_english(shared_data) -> None:
    path = shared_data / "tokenizers" / "albert" / "spiece.model"
    if not path.is_file():
        pytest.skip("needs tokenizers/albert among the data sets")
    tokenizer = read_sentencepiece(path, lowercase=True)
    ids = tokenizer("The river ran past the old mill in 1912.").input_ids
    assert 2 not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the river ran past the old mill in 1912."


def test_span_corruption_needs_sentinels(
    corruption_recipe, tiny_bert, tiny_seq2seq, summaries_folder, tmp_path
) -> None:
    shutil.copytree(tiny_seq2seq("t5"), tmp_path / "other")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_bert / name, tmp_path / "other" / name)
    path = tmp_path / "other" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": "[SEP]"}))
    recipe = corruption_recipe(model={"checkpoint": str(tmp_path / "other")})
    with pytest.raises(UsageError, match="expected a tokenizer with sentinels .* for span corruption, got one without"):
        build_run(recipe, data=summaries_folder, output=tmp_path / "run", quiet=True)
