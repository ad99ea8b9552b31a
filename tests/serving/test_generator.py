"""A text goes on: what is told equals what is written, drawn texts can be drawn again, and what is refused."""

import io
import json
import sys

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, T5Config, T5Model

from narrows import BottleneckConfig, BottleneckForCausalLM, ConversionError, Generator, UsageError
from narrows.cli.main import main
from narrows.serving.generator import Sampling


def _byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token, so that a character may take several."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny bottleneck model that was taught a sentence."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), _byte_tokenizer()
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": None}
    config = BottleneckConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, **ends)
    torch.manual_seed(0)
    model = BottleneckForCausalLM(config)
    ids = [tokenizer.bos_token_id, *tokenizer("Der Fluß fließt schön.")["input_ids"], tokenizer.eos_token_id]
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(80):
        model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_what_is_told_is_what_is_written_with_whole_characters(checkpoint) -> None:
    generator, pieces = Generator.from_pretrained(checkpoint), []
    found = generator.generate("Der Fl", on_text=pieces.append)
    assert found.text == "uß fließt schön." == "".join(pieces)
    assert all("\ufffd" not in piece for piece in pieces) and len(pieces) == len("uß fließt schön.")
    assert found.ended and found.tokens == len("uß fließt schön.".encode()) + 1 and found.prompt_tokens == 6
    assert found.cache_bytes == generator.model(torch.ones(1, 25, dtype=torch.long), use_cache=True).cache.num_bytes
    assert generator.generate("").text == "Der Fluß fließt schön."


def test_a_text_that_stops_amid_a_character_tells_what_there_is(checkpoint) -> None:
    found = Generator.from_pretrained(checkpoint).generate("Der Flu", max_new_tokens=1)
    assert (found.text, found.tokens, found.ended) == ("\ufffd", 1, False)


def test_the_same_seed_draws_the_same_text(checkpoint) -> None:
    generator = Generator.from_pretrained(checkpoint)

    def draw(seed):
        return generator.generate("D", max_new_tokens=20, sampling=Sampling(temperature=5.0, seed=seed)).text

    assert draw(1) == draw(1) != draw(2)
    assert generator.generate("D", sampling=Sampling(top_k=1)).text == generator.generate("D").text


def test_words_keep_the_spaces_between_them(tmp_path) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]")), unk_token="[UNK]"
    )
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=3, n_embd=8, n_layer=1, n_head=1, n_positions=8, eos_token_id=None))
    pieces = []
    found = Generator(model.eval(), tokenizer).generate("a b", max_new_tokens=5, on_text=pieces.append)
    assert "".join(pieces) == found.text == tokenizer.decode(tokenizer(found.text)["input_ids"])
    with pytest.raises(
        UsageError, match="expected a prompt and new tokens of 8 together at most, .* got 2 and 7; short"
    ):
        Generator(model, tokenizer).generate("a b", max_new_tokens=7)
    model.config.bos_token_id = None
    with pytest.raises(UsageError, match=r"expected a prompt for this model, whose config.json names no token that a"):
        Generator(model, tokenizer).generate("")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"max_new_tokens": 0}, "expected max_new_tokens of at least 1, got 0; pass a larger one"),
        ({"sampling": Sampling(temperature=0.0)}, "expected a temperature above 0, .* got temperature 0.0; change it"),
        ({"sampling": Sampling(top_k=0)}, "a top_k of at least 1 .* got top_k 0; change it"),
        ({"sampling": Sampling(top_p=1.5)}, "a top_p above 0 and up to 1, got top_p 1.5; change it"),
        ({"prompt": "\ud800"}, "Unicode"),
    ],
)
def test_what_is_refused(checkpoint, asked, message) -> None:
    with pytest.raises(UsageError, match=message):
        Generator.from_pretrained(checkpoint).generate(**{"prompt": "a", **asked})


def test_checkpoints_that_do_not_go_on_with_a_text(checkpoint, tmp_path) -> None:
    tokenizer = _byte_tokenizer()

    def saved(name, model):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    fields = {"num_hidden_layers": 1, "hidden_size": 64}
    bert = BertConfig(vocab_size=300, num_attention_heads=1, intermediate_size=8, is_decoder=True, **fields)
    with pytest.raises(
        ConversionError, match="expected all weights of a causal language model in .*, got none for cls."
    ):
        Generator.from_pretrained(saved("bert", BertModel(bert, add_pooling_layer=False)))
    with pytest.raises(
        ConversionError, match="expected at least 258 embeddings in .*, one for each of its tokenizer's"
    ):
        Generator.from_pretrained(saved("few", BottleneckForCausalLM(BottleneckConfig(vocab_size=9, **fields))))
    t5 = T5Config(vocab_size=300, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    with pytest.raises(
        ConversionError, match="expected a causal language model, such as a narrows-bottleneck, got .* t5;"
    ):
        Generator.from_pretrained(saved("t5", T5Model(t5)))
    (tmp_path / "few" / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(
        ConversionError, match="expected a config.json of a model that transformers or narrows knows in"
    ):
        Generator.from_pretrained(tmp_path / "few")
    (tmp_path / "few" / "config.json").write_text('{"model_type": "narrows-bottleneck", "layer_pattern": "x"}')
    with pytest.raises(UsageError, match="^`layer_pattern` must be kinds of layers"):
        Generator.from_pretrained(tmp_path / "few")
    with pytest.raises(UsageError, match="expected a dtype of float32 or bfloat16, got 'float16'; choose one of them"):
        Generator.from_pretrained(checkpoint, dtype="float16")


def test_the_verb_streams_and_says_what_it_took(checkpoint, capsys, monkeypatch) -> None:
    assert main(["generate", "Der", "-m", str(checkpoint)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Der Fluß fließt schön.\n" and "3 tokens read, " in shown.err and "MB remembered" in shown.err
    assert main(["generate", "Der", "-m", str(checkpoint), "--json", "-q", "--sample", "--top-k", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["prompt"], found["text"], found["ended"]) == ("Der", " Fluß fließt schön.", True)
    assert main(["generate", "Der", "-m", str(checkpoint), "--top-k", "3"]) == 2
    assert "expected --sample beside --top-k, got --top-k alone; add it or leave this out" in capsys.readouterr().err
    for content, code, said in (
        (b"Der Fl", 0, "uß fließt schön."),
        (b"Flu\xdf", 2, "expected UTF-8 on stdin, got another encoding (byte 3); convert it first"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["generate", "-", "-m", str(checkpoint)]) == code
        shown = capsys.readouterr()
        assert said in shown.out + shown.err
