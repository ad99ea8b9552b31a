"""Runs of classifiers: a rule is learnt, a stop changes nothing, nor how a step is split; what is saved is whole."""

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from narrows.data import write_listops
from narrows.deformer.convert import convert_checkpoint
from narrows.errors import ConversionError, UsageError
from narrows.hf.listops_tokenizer import listops_tokenizer
from narrows.hf.trained_classes import trained_classes
from narrows.serving.classifier import Classifier
from narrows.training.classification.build import build_run, plan_run, score_on_test
from narrows.training.run import train


@pytest.fixture(params=["bert", "funnel"])
def checkpoint(request, tiny_bert, tiny_funnel):
    return str(tiny_bert if request.param == "bert" else tiny_funnel)


@pytest.mark.parametrize(
    ("problem", "file", "score", "least"),
    [
        ("classes", None, "accuracy", 95),
        pytest.param("classes", "pairs.jsonl", "accuracy", 95, marks=pytest.mark.slow),
        pytest.param("regression", None, "pearson", 90, marks=pytest.mark.slow),
        pytest.param("choices", None, "accuracy", 90, marks=pytest.mark.slow),
        pytest.param("tags", None, "f1", 70, marks=pytest.mark.slow),
    ],
)
def test_a_rule_is_learnt_in_some_30_steps(
    problem, file, score, least, checkpoint, make_recipe, rule_folder, tmp_path
) -> None:
    epochs = {"classes": 6, "regression": 8, "choices": 3, "tags": 8}[problem]
    steps = {"epochs": epochs, "batch_tokens": 800 if problem == "choices" else 400, "dropout": 0.0}
    recipe = make_recipe(problem, file, model={"checkpoint": checkpoint}, optimiser=steps)
    assert 25 <= plan_run(recipe, data=rule_folder).steps <= 40
    folder = train(recipe, data=rule_folder, output=tmp_path, quiet=True)
    assert folder is not None
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["tune"][f"eval_{score}"] >= least
    figures = score_on_test(recipe, data=rule_folder, model=folder)
    assert figures["scores"][score]["mean"] == pytest.approx(summary["tune"][f"eval_{score}"])
    assert figures["over_baseline"][score]["low"] > 0


@pytest.mark.parametrize(
    "problem",
    ["classes", pytest.param("choices", marks=pytest.mark.slow), pytest.param("tags", marks=pytest.mark.slow)],
)
def test_a_run_stopped_twice_equals_the_straight_one(
    problem, make_recipe, rule_folder, resumes_exactly, tiny_funnel
) -> None:
    epochs = 0.2 if problem == "choices" else 1
    options = {"epochs": epochs, "accumulation": 2, "dropout": 0.1, "layer_decay": 0.75}
    recipe = make_recipe(problem, model={"checkpoint": str(tiny_funnel)}, optimiser=options, evaluate_every=3)
    resumes_exactly(recipe, rule_folder, stops=(1, 2))


@pytest.mark.parametrize("problem", ["classes", "regression", "choices", "tags"])
def test_a_gradient_step_does_not_depend_on_how_the_batch_is_split(
    problem, make_recipe, rule_folder, tmp_path, tiny_funnel
) -> None:
    recipe = make_recipe(problem, model={"checkpoint": str(tiny_funnel)})
    trainer = build_run(recipe, data=rule_folder, output=tmp_path, quiet=True).trainer
    model = trainer.model.eval()  # type: ignore[union-attr]
    rows = [trainer.train_dataset[number] for number in range(6)]  # type: ignore[index]

    def gradients(parts):
        batches = [trainer._collate(part) for part in parts]
        counts = trainer._objective.counts(batches)
        model.zero_grad()
        for batch in batches:
            trainer._objective(model, batch, counts).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    whole, split = gradients([rows]), gradients([rows[:1], rows[1:4], rows[4:]])
    for ours, theirs in zip(whole, split, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_what_is_saved_keeps_its_labels_and_says_how_it_reads(make_recipe, rule_folder, tmp_path, tiny_bert) -> None:
    recipe = make_recipe(
        labels=["good", "bad"], data={"max_tokens": 8, "truncate": True}, optimiser={"epochs": 0.5, "dropout": 0.0}
    )
    plan = plan_run(recipe, data=rule_folder)
    assert plan.truncated["texts"] > 0
    folder = train(recipe, data=rule_folder, output=tmp_path, quiet=True)
    assert folder is not None
    model, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and model.config.id2label == {0: "good", 1: "bad"}
    noted = trained_classes(model.config)
    assert noted is not None and (noted.layout, noted.max_tokens, noted.truncate) == ("jsonl", 8, True)
    assert noted.majority == 1  # bad
    assert json.loads((tmp_path / "summary.json").read_text())["truncated"] == plan.truncated
    classifier = Classifier.from_pretrained(folder)
    assert classifier.labels == ["good", "bad"] and classifier.max_tokens == 8
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "train-texts.jsonl" in card and "eval_accuracy" in card
    # A head that was trained goes on, with its own order of labels.
    again = make_recipe(model={"checkpoint": str(folder)})
    model = build_run(again, data=rule_folder, output=tmp_path / "again", quiet=True).trainer.model
    assert model.config.id2label == {0: "good", 1: "bad"}  # type: ignore[union-attr]


def test_other_families_are_trained_too(make_recipe, rule_folder, tmp_path, tiny_encoder) -> None:
    for kind in ("funnel-base", "roberta", "distilbert"):
        checkpoint = {"checkpoint": str(tiny_encoder(kind))}
        recipe = make_recipe(model=checkpoint, optimiser={"epochs": 0.1}, data={"tune": []})
        folder = train(recipe, data=rule_folder, output=tmp_path / kind, quiet=True)
        found = AutoModelForSequenceClassification.from_pretrained(folder)
        assert found.config.id2label == {0: "bad", 1: "good"} and found.config.model_type == kind.removesuffix("-base")


def test_a_deformer_learns_pairs(make_recipe, rule_folder, tmp_path, tiny_bert) -> None:
    model, _ = convert_checkpoint(tiny_bert, split_layer=2, task="sequence-classification")
    model.save_pretrained(tmp_path / "start")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "start")
    checkpoint = {"checkpoint": str(tmp_path / "start")}
    options = {"epochs": 0.3, "layer_decay": 0.9, "gradient_checkpointing": True, "dtype": "bfloat16"}
    recipe = make_recipe(file="pairs.jsonl", model=checkpoint, optimiser=options)
    folder = train(recipe, data=rule_folder, output=tmp_path / "run", quiet=True)
    found = AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(found).__name__ == "DeformerForSequenceClassification" and found.config.split_layer == 2


def test_rows_of_a_batch_have_a_limit_of_their_own(make_recipe, rule_folder, tmp_path) -> None:
    recipe = make_recipe(optimiser={"batch_rows": 4, "batch_tokens": 4000})
    assert plan_run(recipe, data=rule_folder).steps == 80
    assert plan_run(make_recipe(optimiser={"batch_tokens": 100_000}), data=rule_folder).steps == 2


def test_checkpoints_that_cannot_be_trained(make_recipe, rule_folder, tmp_path, tiny_bert, tiny_funnel) -> None:
    def build(**sections):
        return build_run(make_recipe(**sections), data=rule_folder, output=tmp_path / "run", quiet=True)

    with pytest.raises(UsageError, match=r"data.max_tokens of at most the 128 positions of .*, got 200; lower it"):
        build(data={"max_tokens": 200})
    with pytest.raises(UsageError, match=r"expected at least 2 labels, each once, got \['good'\]; check the training"):
        build(labels=["good"])
    with pytest.raises(UsageError, match="expected one of the labels good, other, got 'bad' in example '.*'; correct"):
        build(labels=["good", "other"])
    deformer, _ = convert_checkpoint(tiny_bert, split_layer=2, task="sequence-classification")
    deformer.save_pretrained(tmp_path / "deformer")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(tmp_path / "deformer")
    with pytest.raises(ConversionError, match="expected a family with a head for tags, got .* of type '.*deformer'"):
        build(problem="tags", model={"checkpoint": str(tmp_path / "deformer")})
    from transformers import BertModel

    model = BertModel.from_pretrained(tiny_bert)
    state = {name: tensor for name, tensor in model.state_dict().items() if "encoder.layer.3." not in name}
    model.save_pretrained(tmp_path / "part", state_dict=state)
    tokenizer.save_pretrained(tmp_path / "part")
    with pytest.raises(ConversionError, match="expected all weights of the encoder in .*, got none that fits bert.enc"):
        build(model={"checkpoint": str(tmp_path / "part")})
    tokenizer.pad_token = None
    model.save_pretrained(tmp_path / "unpadded")
    tokenizer.save_pretrained(tmp_path / "unpadded")
    with pytest.raises(ConversionError, match="expected a tokenizer with pad_token in .*unpadded, got none; add it"):
        build(model={"checkpoint": str(tmp_path / "unpadded")})


def test_a_recipe_without_test_data_has_no_test_scores(make_recipe, rule_folder, tiny_bert) -> None:
    with pytest.raises(UsageError, match="expected 'data.test' in the recipe tiny to score it on, got none; name"):
        score_on_test(make_recipe(data={"test": []}), data=rule_folder, model=tiny_bert)


def test_tags_that_mark_no_spans_are_refused_before_the_first_step(make_recipe, rule_folder, tmp_path) -> None:
    for name in ("train-words.txt", "tune-words.txt"):
        text = (rule_folder / name).read_text()
        (tmp_path / name).write_text(text.replace("B-PER", "NOUN").replace("B-LOC", "VERB"))
    with pytest.raises(
        UsageError, match="expected tags that mark spans .* for the metric f1, got NOUN, O, VERB; set 'metric: accurac"
    ):
        build_run(make_recipe("tags"), data=tmp_path, output=tmp_path / "out", quiet=True)
    by_words = make_recipe("tags", metric="accuracy", optimiser={"epochs": 0.2}, evaluate_every=2)
    assert train(by_words, data=tmp_path, output=tmp_path / "out", quiet=True) is not None


def test_folds_of_a_regression_are_of_one_size(make_recipe, rule_folder, tmp_path) -> None:
    records = [json.dumps({"text": "the king", "label": number / 10}) for number in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(records))
    part = {"format": "jsonl", "file": "a.jsonl", "folds": 4}
    recipe = make_recipe("regression", data={"train": [{**part, "take": [0, 1, 2]}], "tune": [{**part, "take": [3]}]})
    run = build_run(recipe, data=tmp_path, output=tmp_path / "out", quiet=True)
    assert run.plan.rows == 30 and len(run.trainer.eval_dataset) == 10


def test_expressions_of_listops_are_read_by_their_own_tokenizer(make_recipe, tmp_path) -> None:
    write_listops(tmp_path / "listops", rows=64, held_out=16, least=4, most=30, seed=1)
    tokenizer = listops_tokenizer()
    tokenizer.save_pretrained(tmp_path / "start")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    BertModel(
        BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, max_position_embeddings=64, **sizes)
    ).save_pretrained(tmp_path / "start")
    parts = {part: [{"format": "listops", "file": f"listops/{part}.tsv.gz"}] for part in ("train", "tune", "test")}
    recipe = make_recipe(model={"checkpoint": str(tmp_path / "start")}, data=parts, labels=[*"0123456789"])
    folder = train(recipe, data=tmp_path, output=tmp_path / "run", quiet=True)
    assert folder is not None
    assert AutoTokenizer.from_pretrained(folder)("[MAX 2 9 ]")["input_ids"] == [17, 11, 2, 9, 14, 18]
    assert 0 <= score_on_test(recipe, data=tmp_path, model=folder)["scores"]["accuracy"]["mean"] <= 100
