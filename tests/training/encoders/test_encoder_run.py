"""A whole distillation: the loss falls, a resumed run equals the straight one, and the student is an encoder."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertForMaskedLM, BertForSequenceClassification

from narrows import Embedder
from narrows.errors import UsageError
from narrows.funnel import FunnelConfig
from narrows.funnel.heads import FunnelForEmbedding
from narrows.training.run import train
from narrows.training.tasks import plan_run

_ALL = {"embedding": 1.0, "similarity": 1.0, "hidden": 1.0}
_TEXTS = ["the king", "a boat on the long river", "the house"]


def _log(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture
def headed(tiny_bert, tmp_path):
    """The tiny BERT with a head, by its kind."""

    def make(kind):
        folder = tmp_path / f"teacher-{kind}"
        torch.manual_seed(1)
        if kind == "masked-lm":
            model = BertForMaskedLM.from_pretrained(tiny_bert)
        else:
            labels = {0: "no", 1: "yes", 2: "perhaps"}
            model = BertForSequenceClassification.from_pretrained(
                tiny_bert, id2label=labels, label2id={name: number for number, name in labels.items()}
            )
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
        return str(folder)

    return make


@pytest.mark.parametrize(
    ("losses", "width"), [({"embedding": 1.0}, 24), ({"embedding": 1.0, "distance": "mse"}, 16), (_ALL, 16)]
)
def test_thirty_steps_lower_every_loss(losses, width, make_recipe, text_folder, tmp_path) -> None:
    recipe = make_recipe(
        losses=losses,
        model={"config": {**make_recipe().model.config, "hidden_size": width}},
        optimiser={"epochs": 7.5},
        evaluate_every=1000,
    )
    assert plan_run(recipe, data=text_folder).steps == 30
    from narrows.training.encoders.build import build_run

    run = build_run(recipe, data=text_folder, output=tmp_path, quiet=True)
    before = run.trainer._evaluate_model(run.trainer.model)  # type: ignore[misc]
    run.trainer.model.train()  # type: ignore[union-attr]
    run.trainer.train()
    after = run.trainer.evaluate()
    assert set(after) == {f"eval_{name}" for name in before}
    for name in ("loss", *(name for name in losses if name in before)):
        assert after[f"eval_{name}"] < 0.9 * before[name]
    assert after["eval_cosine"] > before["cosine"] + 5


@pytest.mark.parametrize("head", [None, "masked-lm"])
def test_a_run_stopped_twice_equals_the_straight_one(head, make_recipe, text_folder, resumes_exactly, headed) -> None:
    changes = {} if head is None else {"head": head, "teacher": {"checkpoint": headed(head)}}
    losses = _ALL if head is None else {**_ALL, "logits": 1.0}
    recipe = make_recipe(losses=losses, optimiser={"accumulation": 2, "dropout": 0.1}, **changes)
    stopped = resumes_exactly(recipe, text_folder, stops=(2, 5))
    assert (stopped / "model" / "2_Dense" / "model.safetensors").is_file()
    assert not (stopped / "tokens").exists()


def test_the_student_is_an_encoder_that_others_load(make_recipe, text_folder, tmp_path) -> None:
    folder = train(make_recipe(licence="apache-2.0"), data=text_folder, output=tmp_path, quiet=True)
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(folder))
    vectors = Embedder.from_pretrained(folder).embed(_TEXTS)
    # As wide as its teacher's: the linear layer is kept.
    assert vectors.shape == (3, 24) and (folder / "2_Dense").is_dir()
    card = (folder / "README.md").read_text()
    assert "eval_cosine" in card and "train.txt" in card and "An encoder distilled from" in card
    assert any({"eval_loss", "eval_cosine", "eval_embedding"} <= entry.keys() for entry in _log(tmp_path))
    peer = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(peer.encode(_TEXTS), vectors, atol=1e-5)


def test_a_student_of_the_teachers_width_needs_no_layer_and_starts_from_a_checkpoint(
    make_recipe, text_folder, tmp_path, tiny_bert
) -> None:
    recipe = make_recipe(
        model={"config": None, "checkpoint": str(tiny_bert)}, losses=_ALL, optimiser={"learning_rate": 1e-7}
    )
    folder = train(recipe, data=text_folder, output=tmp_path, quiet=True)
    assert not (folder / "2_Dense").exists()
    # It was its teacher, and stays it.
    ours, theirs = (Embedder.from_pretrained(one, normalize=True).embed(_TEXTS) for one in (folder, tiny_bert))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    assert all(entry["eval_cosine"] > 99.99 for entry in _log(tmp_path) if "eval_cosine" in entry)


@pytest.mark.parametrize("kind", ["FunnelModel", "FunnelBaseModel"])
def test_a_student_that_gets_shorter_learns_the_states_over_its_windows(
    kind, make_recipe, text_folder, tmp_path
) -> None:
    config = {
        "model_type": "funnel",
        "block_sizes": [1, 1],
        "block_repeats": [1, 1],
        "d_model": 16,
        "n_head": 2,
        "d_head": 8,
        "d_inner": 20,
        "num_decoder_layers": 1,
        "truncate_seq": False,
        "separate_cls": True,
        "architectures": [kind],
    }
    # The layer after pooling by 2; with a decoder also its own, which has a state for every token.
    losses = {**_ALL, "layers": [[2, 3], [4, 5]] if kind == "FunnelModel" else [[2, 5]]}
    recipe = make_recipe(model={"config": config}, losses=losses, optimiser={"epochs": 7.5})
    train(recipe, data=text_folder, output=tmp_path, quiet=True)
    found = [entry["eval_hidden"] for entry in _log(tmp_path) if "eval_hidden" in entry]
    assert min(found) < 0.9 * found[0]


_FUNNEL = {
    "block_sizes": [1, 1, 1],
    "d_model": 16,
    "n_head": 2,
    "d_head": 8,
    "d_inner": 20,
    "num_decoder_layers": 1,
    "truncate_seq": False,
}


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("kind", ["narrows-funnel", "funnel", "checkpoint"])
def test_a_funnel_is_saved_so_that_it_pools_itself(kind, pooling, make_recipe, text_folder, tmp_path) -> None:
    """Its states are fewer than its tokens, of which sentence-transformers' own pooling knows nothing."""
    from narrows.training.encoders.build import build_run

    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = {"config": {**_FUNNEL, "model_type": kind, "architectures": ["FunnelBaseModel"]}, "pooling": pooling}
    if kind == "checkpoint":
        torch.manual_seed(0)
        config = FunnelConfig(**_FUNNEL, vocab_size=410, embedding_pooling=pooling)
        FunnelForEmbedding(config).save_pretrained(tmp_path / "start")
        AutoTokenizer.from_pretrained(make_recipe().teacher.checkpoint).save_pretrained(tmp_path / "start")
        model = {"config": None, "checkpoint": str(tmp_path / "start")}
    recipe = make_recipe(model=model)
    run = build_run(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    (tmp_path / "model").mkdir()
    run.save(tmp_path / "model")
    saved = AutoModel.from_pretrained(tmp_path / "model")
    assert type(saved) is FunnelForEmbedding and saved.config.embedding_pooling == pooling
    embedder = Embedder.from_pretrained(tmp_path / "model")
    found = embedder.embed(_TEXTS)
    # The teacher's width, by the linear layer.
    assert found.shape == (3, 24) and embedder.pooling == "pooler_output"
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(peer.encode(_TEXTS), found, atol=1e-5)
    # What was trained, text by text: transformers' own model changes with the padding.
    student, tokenizer = run.trainer.model.eval(), embedder.encoder.tokenizer  # type: ignore[union-attr]
    for text, vector in zip(_TEXTS, found, strict=True):
        rows = tokenizer(text, return_tensors="pt")
        if kind == "funnel" and rows["input_ids"].shape[1] < 7:
            # At which transformers' own code fails.
            continue
        with torch.no_grad():
            trained = student(rows["input_ids"], rows["attention_mask"], states=False).embedding
        np.testing.assert_allclose(torch.nn.functional.normalize(trained, dim=-1)[0], vector, atol=1e-5)


def test_a_student_that_gets_shorter_has_one_head(make_recipe, text_folder, tmp_path, headed) -> None:
    from narrows.training.encoders.build import build_run

    recipe = make_recipe(
        head="sequence-classification",
        model={"config": {**_FUNNEL, "model_type": "narrows-funnel", "block_sizes": [1, 1]}},
        teacher={"checkpoint": headed("sequence-classification")},
        losses={"embedding": 1.0, "logits": 1.0},
    )
    with pytest.raises(
        UsageError, match="expected vectors or logits of a student that gets shorter, .*FunnelForSequenceClassification"
    ):
        build_run(recipe, data=text_folder, output=tmp_path, quiet=True)


def test_a_teacher_that_gets_shorter_too_costs_its_own_copy_nothing(
    make_recipe, text_folder, tmp_path, tiny_bert
) -> None:
    from transformers import FunnelBaseModel, FunnelConfig

    from narrows.training.encoders.build import build_run

    torch.manual_seed(0)
    sizes = {"block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 20, "truncate_seq": False}
    config = FunnelConfig(**sizes, vocab_size=410, pad_token_id=0)
    FunnelBaseModel(config).save_pretrained(tmp_path / "funnel")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "funnel")
    same = str(tmp_path / "funnel")
    recipe = make_recipe(model={"config": None, "checkpoint": same}, teacher={"checkpoint": same}, losses=_ALL)
    run = build_run(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    batch = run.trainer._collate([run.trainer.train_dataset[number] for number in range(4)])  # type: ignore[index]
    sums = run.trainer._objective.sums(run.trainer.model.eval(), batch)  # type: ignore[union-attr]
    assert float(sums["hidden"]) < 1e-10 and float(sums["embedding"]) < 1e-5


@pytest.mark.parametrize("head", ["sequence-classification", "masked-lm"])
def test_logits_alone_are_learnt_and_the_best_is_by_the_loss(head, make_recipe, text_folder, tmp_path, headed) -> None:
    recipe = make_recipe(
        head=head,
        teacher={"checkpoint": headed(head)},
        losses={"embedding": 0, "logits": 1.0},
        optimiser={"epochs": 4},
    )
    folder = train(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    losses = [entry["eval_logits"] for entry in _log(tmp_path / "run") if "eval_logits" in entry]
    assert losses[-1] == min(losses) < losses[0]
    assert not (folder / "modules.json").exists()
    if head == "sequence-classification":
        found = BertForSequenceClassification.from_pretrained(folder)
        assert found.config.id2label == {0: "no", 1: "yes", 2: "perhaps"}
    else:
        _, info = BertForMaskedLM.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]


def test_a_gradient_step_does_not_depend_on_how_the_batch_is_split(make_recipe, text_folder, tmp_path) -> None:
    from narrows.training.encoders.build import build_run

    # Not that of similarities, which ranks the texts of one forward pass.
    losses = {**_ALL, "similarity": 0.0}
    run = build_run(make_recipe(losses=losses), data=text_folder, output=tmp_path, quiet=True)
    trainer, student = run.trainer, run.trainer.model
    student.eval()  # type: ignore[union-attr]
    rows = [trainer.train_dataset[number] for number in range(6)]  # type: ignore[index]

    def gradients(parts):
        batches = [trainer._collate(part) for part in parts]
        counts = trainer._objective.counts(batches)
        student.zero_grad()  # type: ignore[union-attr]
        for batch in batches:
            trainer._objective(student, batch, counts).backward()  # type: ignore[arg-type]
        return [p.grad.clone() for p in student.parameters() if p.grad is not None]  # type: ignore[union-attr]

    whole, split = gradients([rows]), gradients([rows[:1], rows[1:4], rows[4:]])
    for ours, theirs in zip(whole, split, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
