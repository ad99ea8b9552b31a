"""Runs of classifiers: a rule is learnt, a stop changes nothing, nor how a step is split; what is saved is whole."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from narrows.deformer.convert import convert_checkpoint
from narrows.errors import ConversionError, UsageError
from narrows.hf.trained_classes import trained_classes
from narrows.serving.classifier import Classifier
from narrows.training.classification.build import build_run, plan_run, score_on_test
from narrows.training.run import train


def _last(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())["tune"]


@pytest.fixture(params=["bert", "funnel"])
def checkpoint(request, tiny_bert, tiny_funnel):
    return str(tiny_bert if request.param == "bert" else tiny_funnel)


@pytest.mark.parametrize(
    ("problem", "file", "score", "least"),
    [
        ("classes", None, "accuracy", 95),
        ("classes", "pairs.jsonl", "accuracy", 70),
        ("regression", None, "pearson", 90),
        ("choices", None, "accuracy", 60),
        ("tags", None, "f1", 80),
    ],
)
def test_a_rule_is_learnt(problem, file, score, least, checkpoint, make_recipe, rule_folder, tmp_path) -> None:
    rows = {"epochs": 4, "batch_tokens": 400} if problem != "choices" else {"epochs": 5, "batch_tokens": 800}
    recipe = make_recipe(problem, file, model={"checkpoint": checkpoint}, optimiser=rows)
    plan = plan_run(recipe, data=rule_folder)
    folder = train(recipe, data=rule_folder, output=tmp_path, quiet=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    print(problem, file, plan.steps, summary["tune"])
    assert summary["tune"][f"eval_{score}"] >= least
    figures = score_on_test(recipe, data=rule_folder, model=folder)
    assert figures["scores"][score]["mean"] == pytest.approx(summary["tune"][f"eval_{score}"])
    assert figures["over_baseline"][score]["low"] > 0
