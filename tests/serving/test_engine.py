"""The model at work: padding and company change nothing, stored equals computed, and what is refused."""

import copy
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from narrows.deformer import DeformerForQuestionAnswering
from narrows.deformer.convert import convert_checkpoint
from narrows.errors import ConversionError, UsageError
from narrows.serving.engine import Engine
from narrows.serving.indexing import index_folder
from narrows.store import Store


def ids(engine: Engine, *texts: str) -> list[list[int]]:
    return [engine.close_passage(tokens.ids) for tokens in engine.tokenize(texts)]


def padded(states: list[torch.Tensor]):
    return lambda rows: torch.nn.utils.rnn.pad_sequence([states[row] for row in rows], batch_first=True)


def test_a_passage_reads_the_same_alone_and_among_others(reader) -> None:
    engine = reader.engine
    passages = ids(engine, "the boat", "the river was long and the night was cold", "a clock of stone")
    question = engine.encode_question("what was cold?")
    together = engine.encode_passages(passages)
    among = engine.read(question, [len(p) for p in passages], padded(together))
    for passage, states, logits in zip(passages, together, among, strict=True):
        [alone] = engine.encode_passages([passage])
        assert states.shape == (len(passage), engine.config.hidden_size)
        torch.testing.assert_close(alone, states, atol=1e-5, rtol=0)
        [single] = engine.read(question, [len(passage)], padded([alone]))
        assert len(single.start) == len(passage) - 1
        torch.testing.assert_close(single.start, logits.start, atol=1e-5, rtol=0)
        torch.testing.assert_close(single.end, logits.end, atol=1e-5, rtol=0)
        assert single.null == pytest.approx(logits.null, abs=1e-5)


def test_reading_in_two_steps_gives_the_logits_of_the_whole_model(reader) -> None:
    engine = reader.engine
    [passage] = ids(engine, "the boat went down the river")
    question = engine.tokenize(["what went down?"])[0].ids
    row = [engine.tokenizer.cls_token_id, *question, engine.tokenizer.sep_token_id, *passage]
    segments = [0] * (len(question) + 2) + [1] * len(passage)
    with torch.inference_mode():
        whole = engine.model(torch.tensor([row]), token_type_ids=torch.tensor([segments]))
    [logits] = engine.read(
        engine.encode_question("what went down?"), [len(passage)], padded(engine.encode_passages([passage]))
    )
    begin = len(question) + 2
    torch.testing.assert_close(logits.start, whole.start_logits[0, begin:-1], atol=1e-5, rtol=0)
    assert logits.null == pytest.approx(float(whole.start_logits[0, 0] + whole.end_logits[0, 0]), abs=1e-5)


def test_small_batches_give_the_same_logits(reader, tiny_reader_folder) -> None:
    texts = ["the boat", "the river was long and the night was cold", "a clock of stone", "birds"]
    narrow = Engine.from_pretrained(tiny_reader_folder, batch_tokens=8)
    results = []
    for engine in (reader.engine, narrow):
        passages = ids(engine, *texts)
        states = padded(engine.encode_passages(passages))
        results.append(engine.read(engine.encode_question("what?"), [len(p) for p in passages], states))
    for wide, one in zip(*results, strict=True):
        torch.testing.assert_close(wide.start, one.start, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("precision", "bound"), [("bfloat16", 0.3), ("int8", 1.0)])
def test_other_precisions_stay_near_and_encode_alike(reader, tiny_reader_folder, precision, bound) -> None:
    other = Engine.from_pretrained(tiny_reader_folder, precision=precision)
    passages = ids(other, "the river was long and the night was cold")
    states = reader.engine.encode_passages(passages)
    assert torch.equal(other.encode_passages(passages)[0], states[0])
    assert other.fingerprint("int8") == reader.engine.fingerprint("int8")
    question = "what was cold?"
    [exact] = reader.engine.read(reader.engine.encode_question(question), [len(passages[0])], padded(states))
    [rough] = other.read(other.encode_question(question), [len(passages[0])], padded(states))
    assert not torch.equal(exact.start, rough.start)
    assert float((exact.start - rough.start).abs().max()) < bound


def test_weights_of_zeros_are_quantised_like_others(tiny_reader_folder) -> None:
    model: Any = DeformerForQuestionAnswering.from_pretrained(tiny_reader_folder)
    with torch.no_grad():
        for name, parameter in model.deformer.backbone.layers[model.config.split_layer].named_parameters():
            if name.endswith(("query.weight", "up.weight")):
                parameter.zero_()
            elif name.endswith(("value.weight", "down.weight")):
                parameter[1].zero_()
    tokenizer = AutoTokenizer.from_pretrained(tiny_reader_folder)
    logits = []
    for precision in ("float32", "int8"):
        engine = Engine(copy.deepcopy(model), tokenizer, precision=precision)
        passages = ids(engine, "the river was long and the night was cold")
        states = padded(engine.encode_passages(passages))
        logits += engine.read(engine.encode_question("what was cold?"), [len(passages[0])], states)
    torch.testing.assert_close(logits[1].start, logits[0].start, atol=1.0, rtol=0)
    assert not torch.equal(logits[1].start, logits[0].start)


MARKED = "A [SEP] b[CLS], [MASK] or [PAD][UNK]? [sep]"


def test_special_tokens_in_a_text_are_text(reader) -> None:
    engine = reader.engine
    before = engine.fingerprint("fp32"), engine.tokenizer.backend_tokenizer.to_str()
    plain, lower = engine.tokenize([MARKED, MARKED.lower()])
    assert not set(plain.ids) & set(engine.tokenizer.all_special_ids)
    assert plain == lower
    assert "".join(MARKED[start:end] for start, end in plain.offsets) == MARKED.replace(" ", "")
    assert engine.encode_question(MARKED).shape[1] == len(plain.ids) + 2
    assert (engine.fingerprint("fp32"), engine.tokenizer.backend_tokenizer.to_str()) == before
    assert Engine(engine.model, engine.tokenizer).fingerprint("fp32") == before[0]


def test_passages_with_special_tokens_are_stored_as_they_are_read(reader, tmp_path) -> None:
    engine = reader.engine
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text(f"{MARKED} The boat went to the [SEP] mill.\n" * 9)
    index_folder(tmp_path / "notes", tmp_path / "store", engine, codec="fp32")
    special = set(engine.tokenizer.all_special_ids)
    with Store.open(tmp_path / "store", expect=engine.fingerprint("fp32")) as store:
        passages = store.take(store.first(99))
    assert len(passages) > 1
    for passage in passages:
        tokens = passage.token_ids.tolist()
        assert tokens == engine.close_passage(engine.tokenize([passage.text])[0].ids)
        assert not special & set(tokens[:-1])


def test_the_fingerprint_follows_the_lower_layers_only(reader, tiny_reader_folder) -> None:
    before = reader.engine.fingerprint("int8")
    tokenizer = AutoTokenizer.from_pretrained(tiny_reader_folder)

    def changed(name: str) -> Engine:
        model = DeformerForQuestionAnswering.from_pretrained(tiny_reader_folder)
        with torch.no_grad():
            dict(model.named_parameters())[name].add_(1.0)
        return Engine(model, tokenizer)

    names = dict(reader.engine.model.named_parameters())
    lower = next(name for name in names if "layers.2." in name)
    upper = next(name for name in names if "layers.3." in name)
    assert changed(upper).fingerprint("int8") == before
    assert changed("qa_outputs.weight").fingerprint("int8") == before
    assert changed(lower).fingerprint("int8").weights != before.weights
    assert reader.engine.fingerprint("fp32").codec == "fp32"


@pytest.mark.parametrize(
    ("field", "value"), [("num_attention_heads", 1), ("hidden_act", "relu"), ("layer_norm_eps", 1e-3)]
)
def test_the_fingerprint_follows_what_the_same_weights_are_read_with(field, value, reader, tmp_path) -> None:
    config = copy.deepcopy(reader.engine.config)
    assert getattr(config, field) != value
    setattr(config, field, value)
    model = DeformerForQuestionAnswering(config)
    model.load_state_dict(reader.engine.model.state_dict())
    other = Engine(model, reader.engine.tokenizer)
    [passage] = ids(other, "the river was long and the night was cold")
    assert not torch.allclose(other.encode_passages([passage])[0], reader.engine.encode_passages([passage])[0])
    [difference] = other.fingerprint("int8").differences(reader.engine.fingerprint("int8"))
    assert difference.startswith("layout bert (")


def test_a_joint_reader_of_transformers_is_refused(tiny_bert) -> None:
    with pytest.raises(ConversionError, match="expected a DeFormer, got .* model type 'bert' .*; convert it with"):
        Engine.from_pretrained(tiny_bert)


def test_a_deformer_without_a_head_is_refused(tiny_bert, tmp_path) -> None:
    encoder, _ = convert_checkpoint(tiny_bert, split_layer=2, task="encoder")
    encoder.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    with pytest.raises(ConversionError, match="expected a checkpoint with a trained span head, got .* without one"):
        Engine.from_pretrained(tmp_path)


def test_what_an_engine_cannot_be_is_refused(tiny_bert, tiny_reader_folder) -> None:
    with pytest.raises(UsageError, match="`precision` must be one of float32, bfloat16, int8, got 'float64'"):
        Engine.from_pretrained(tiny_reader_folder, precision="float64")
    with pytest.raises(UsageError, match="precision int8 runs on the CPU only, got device 'cuda'"):
        Engine.from_pretrained(tiny_reader_folder, precision="int8", device="cuda")
    model, _ = convert_checkpoint(tiny_bert, split_layer=0, task="question-answering", passage_positions="continue")
    with pytest.raises(UsageError, match="passages restart at position 0, got passage_positions 'continue'"):
        Engine(model, AutoTokenizer.from_pretrained(tiny_bert))


@pytest.mark.parametrize("question", ["", "  \n", "\u200b"])
def test_an_empty_question_is_refused(reader, question) -> None:
    with pytest.raises(UsageError, match="expected a question, got an empty one; ask in at least one word"):
        reader.engine.encode_question(question)


def test_a_question_longer_than_its_room_is_refused(reader) -> None:
    assert reader.engine.encode_question("why " * 64).shape[1] == 66
    with pytest.raises(UsageError, match="a question must have at most 64 tokens, got 65; ask it in fewer words"):
        reader.engine.encode_question("why " * 65)
