"""BERTs into BERTs with bottlenecks: equal at ratio 1, nearer the wider, and every tensor accounted for."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from narrows.bottleneck.from_encoder import CALIBRATION_TEXTS, TASKS, convert_checkpoint
from narrows.data import read_articles
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder

SOURCES = {
    "encoder": BertModel,
    "sequence-classification": BertForSequenceClassification,
    "token-classification": BertForTokenClassification,
    "question-answering": BertForQuestionAnswering,
    "masked-lm": BertForMaskedLM,
}
TEXTS = [
    "the river runs by the old mill",
    "a house by the lake and a king",
    "birds are small",
    "when the night came the ship was far out at sea and the wind rose",
    "one day they read a story of a mountain horse that could talk",
    "two men had work in the city",
]


def save_source(folder, tiny_bert, task="encoder", **changes):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(folder)
    fields = BertConfig.from_pretrained(tiny_bert).to_dict()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = SOURCES[task](BertConfig(**{**fields, **changes})).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    model.save_pretrained(folder)
    return model


def rows():
    return torch.randint(5, 60, (2, 11), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("texts", [[], TEXTS], ids=["plain", "calibrated"])
@pytest.mark.parametrize("task", SOURCES)
def test_at_ratio_1_the_model_is_the_source(task, texts, tiny_bert, tmp_path) -> None:
    source = save_source(tmp_path, tiny_bert, task)
    model, report = convert_checkpoint(tmp_path, layers=[5, 2], bottleneck_ratio=1, texts=texts)
    assert type(model) is TASKS[task] and model.config.bottleneck_layers == [2, 5] and report.heads == 3
    mask = torch.ones_like(rows())
    mask[0, 7:] = 0
    ours, theirs = model(rows(), attention_mask=mask)[0], source(rows(), attention_mask=mask)[0]
    real = mask.bool() if task != "sequence-classification" else ...
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-4, rtol=1e-4)
    model.save_pretrained(tmp_path / "out")
    again = TASKS[task].from_pretrained(tmp_path / "out")
    assert torch.equal(again(rows(), attention_mask=mask)[0], ours)


@torch.no_grad()
def test_every_tensor_is_told(tiny_bert, tmp_path) -> None:
    source = save_source(tmp_path, tiny_bert)
    model, report = convert_checkpoint(tmp_path, layers=[2], texts=TEXTS)
    names = set(source.state_dict())
    assert set(report.used) | set(report.dropped) == names and not set(report.used) & set(report.dropped)
    targets = {target.removesuffix(" (fitted)") for target in report.used.values()}
    assert targets | set(report.new) == set(model.state_dict())
    attention = "encoder.layer.1.attention"
    assert report.dropped == {
        f"{attention}.self.key.bias": "adds the same to all scores of a query, which softmax takes away"
    }
    assert set(report.new) == {f"{attention}.self.{name}" for name in ("key.bias", "down.weight", "down.bias")}
    copied = [name for name, target in report.used.items() if not target.endswith(" (fitted)")]
    assert len(names) - len(copied) == 8
    assert all(torch.equal(model.state_dict()[name], source.state_dict()[name]) for name in copied)
    kept = json.loads(report.save(tmp_path).read_text())
    assert kept["calibration_texts"] == 6 and kept["fits"]["2"]["output"] == report.fits[2].output > 0
    assert re.search(
        r"fitted by 6 texts, \d heads?; .*\n  layer 2: scores 0\.\d+, values 0\.\d+, output", report.summary()
    )


def test_the_number_of_heads_is_that_with_the_least_error(tiny_bert, tmp_path) -> None:
    save_source(tmp_path, tiny_bert)
    errors = {}
    for heads in (3, 2):
        _, report = convert_checkpoint(tmp_path, layers=[1, 4], bottleneck_heads=heads, texts=TEXTS)
        errors[heads] = sum((fit.output or 0) ** 2 for fit in report.fits.values())
    model, report = convert_checkpoint(tmp_path, layers=[1, 4], texts=TEXTS)
    assert report.heads == model.config.bottleneck_heads == min(errors, key=errors.__getitem__)
    assert convert_checkpoint(tmp_path, layers=[1, 4])[1].heads == 3


def test_many_texts_are_spread(tiny_bert, tmp_path) -> None:
    save_source(tmp_path, tiny_bert)
    _, report = convert_checkpoint(
        tmp_path, layers=[1], texts=["the king"] * (CALIBRATION_TEXTS + 40), bottleneck_heads=3
    )
    assert report.texts == CALIBRATION_TEXTS


@pytest.mark.parametrize("task", ["sequence-classification", "masked-lm", "encoder"])
def test_another_head_is_dropped_or_new(task, tiny_bert, tmp_path) -> None:
    source_task = "token-classification" if task == "encoder" else "encoder"
    save_source(tmp_path, tiny_bert, source_task)
    model, report = convert_checkpoint(tmp_path, layers=[1], task=task)
    assert type(model) is TASKS[task]
    if task == "encoder":
        assert report.dropped["classifier.weight"] == "head of another task"
        assert report.new["pooler.dense.weight"] == "pooler, random: to be trained"
    elif task == "masked-lm":
        assert report.new["cls.predictions.bias"] == "head, random: to be trained"
        assert report.dropped["pooler.dense.weight"] == "this head does not pool"
    else:
        assert report.new["classifier.weight"] == "head, random: to be trained"


@torch.no_grad()
def test_old_names_and_narrow_numbers(tiny_bert, tmp_path) -> None:
    save_source(tmp_path, tiny_bert)
    tensors = load_file(tmp_path / "model.safetensors")
    expected, _ = convert_checkpoint(tmp_path, layers=[3])
    old = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(128)[None]
    old["cls.seq_relationship.weight"] = torch.zeros(2, 24)
    save_file(old, tmp_path / "model.safetensors")
    model, report = convert_checkpoint(tmp_path, layers=[3])
    assert torch.equal(model(rows())[0], expected(rows())[0])
    assert report.dropped["bert.embeddings.position_ids"] == "a table of 0, 1, 2, …"
    assert report.dropped["cls.seq_relationship.weight"] == "head of pretraining"
    save_file({name: tensor.half() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    half, _ = convert_checkpoint(tmp_path, layers=[3])
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float16}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": []}, "expected at least one layer to replace, got none; number them from 1, such as 4,5,6"),
        ({"layers": [6]}, "`bottleneck_layers` must be numbers from 1 to 5, each once, for 5 layers, got 6"),
        ({"bottleneck_ratio": 7}, "`bottleneck_ratio` must be from 1 to hidden_size, 24, and divide it, got 7"),
        (
            {"bottleneck_heads": 6},
            "`bottleneck_heads` must be one of 3, 2 for an inner width of 12, so that heads are neither more nor wider "
            "than the checkpoint's 3 of 8, got 6; change it",
        ),
        ({"task": "poetry"}, "`task` must be one of encoder, .* got 'poetry'; choose one of them"),
    ],
)
def test_used_wrongly(changes, message, tiny_bert) -> None:
    with pytest.raises(UsageError, match=message):
        convert_checkpoint(tiny_bert, **{"layers": [1], **changes})


def test_sources_of_another_kind(tiny_encoder, tiny_bert, tmp_path) -> None:
    with pytest.raises(
        ConversionError, match="expected a BERT of transformers, got model type 'roberta'; choose another"
    ):
        convert_checkpoint(tiny_encoder("roberta"), layers=[1])
    save_source(tmp_path, tiny_bert)
    (tmp_path / "config.json").write_text('{"model_type": "sonnet"}')
    with pytest.raises(
        ConversionError, match=r"expected a config.json of a known model in .* pass a checkpoint's folder"
    ):
        convert_checkpoint(tmp_path, layers=[1])


def test_texts_without_a_token(tiny_bert, tmp_path) -> None:
    save_source(tmp_path, tiny_bert)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["post_processor"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UsageError, match="expected calibration texts with at least one token, got ' ', which has none"):
        convert_checkpoint(tmp_path, layers=[1], texts=["the king", " "])


@pytest.mark.slow
@torch.no_grad()
def test_a_real_encoder_is_equal_at_ratio_1_and_nearer_the_wider(shared_data) -> None:
    articles = read_articles(shared_data / "lm_text" / "wikitext-2" / "test.txt.gz")
    texts = [paragraph for article in articles for paragraph in article.paragraphs][::60]
    folder = checkpoint_folder(DEFAULT_CHECKPOINT)
    source, tokenizer = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts[1::9], padding=True, truncation=True, max_length=48, return_tensors="pt")
    real, errors, apart = batch["attention_mask"].bool(), [], []
    for ratio in (1, 2, 4, 8):
        model, report = convert_checkpoint(
            folder, layers=[3, 5], bottleneck_ratio=ratio, bottleneck_heads=12, texts=texts[::3]
        )
        errors.append([list(fit) for fit in report.fits.values()])
        difference = (model(**batch).last_hidden_state - source(**batch).last_hidden_state)[real]
        apart.append(float(difference.norm()))
    assert apart[0] < 1e-2 and apart == sorted(apart)
    every = torch.tensor(errors)
    assert every[0].max() < 1e-4 and (every.diff(dim=0) > 0).all()
