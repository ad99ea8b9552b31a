"""Small encoders learn planted facts: every kind of attention trains, resumes and is tested alike."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import LongT5EncoderModel

from narrows.errors import RecipeError, UsageError
from narrows.mulla import MullaT5EncoderModel
from narrows.training.planted.build import AnswerObjective, Cell, build_run, count_right
from narrows.training.planted.data import PlantedRows, collate_texts, read_texts
from narrows.training.planted.model import build_reader
from narrows.training.planted.recipe import PlantedRecipe
from narrows.training.recipe import load_recipe
from narrows.training.run import train
from narrows.training.tasks import plan_run

_KINDS = ("local", "tglobal", "fixed", "dynamic")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text("It rained on the old mill. " * 300)
    (tmp_path / "test.txt").write_text("A child found the old mill! " * 300)
    return tmp_path


def _recipe(attention: str = "dynamic", **sections) -> PlantedRecipe:
    raw = {
        "name": "tiny",
        "task": "planted-facts",
        "model": {"attention": attention, "layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "local_radius": 4},
        "data": {
            "train_text": "train.txt",
            "test_text": "test.txt",
            "vocabulary": 20,
            "names": 4,
            "values": 3,
            "facts": 1,
            "questions": 2,
            "lengths": [32, 48],
            "texts": 24,
            "test_lengths": [32, 64],
            "tests": 10,
        },
        "optimiser": {"batch_tokens": 128, "learning_rate": 1e-2, "seed": 3},
        "evaluate_every": 4,
    }
    for name, value in sections.items():
        raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
    return PlantedRecipe.model_validate(raw)


@pytest.mark.parametrize("attention", _KINDS)
def test_every_kind_trains_and_is_tested_by_distance(attention, folder) -> None:
    model = train(_recipe(attention), data=folder, output=folder / "run", quiet=True)
    cells = [Cell(**cell) for cell in json.loads((model / "accuracy.json").read_text())]
    assert {cell.length for cell in cells} == {32, 64}
    for length, questions in ((32, 10), (64, 20)):
        assert sum(cell.questions for cell in cells if cell.length == length) == questions
    # A layer sees 4 tokens to each side: up to 4, 5 to 8, 9 to 16, …
    assert {(cell.low, cell.high) for cell in cells} <= {(0, 5), (5, 9), (9, 17), (17, 33), (33, 65)}
    assert all(0 <= cell.right <= cell.questions for cell in cells)
    assert "planted" in (model / "README.md").read_text()


@pytest.mark.slow
def test_a_fact_next_to_its_question_is_learnt(folder) -> None:
    recipe = _recipe(
        data={"lengths": [28], "texts": 4000, "test_lengths": [28], "vocabulary": 12, "values": 2},
        optimiser={"batch_tokens": 448, "learning_rate": 5e-3},
        model={"local_radius": 8, "width": 32},
        evaluate_every=1000,
    )
    model = train(recipe, data=folder, output=folder / "run", quiet=True)
    cells = [Cell(**cell) for cell in json.loads((model / "accuracy.json").read_text())]
    assert sum(cell.right for cell in cells) >= 9


def test_a_batch_reads_what_a_text_alone_reads(folder) -> None:
    recipe = _recipe()
    task = read_texts(recipe.data, folder).train
    reader = build_reader(recipe.model, vocabulary_size=task.vocabulary_size, values=3, dropout=0.0).eval()
    rows = PlantedRows(task, [32, 48, 40], seed=0)
    texts = [rows[index] for index in range(3)]

    def logits(chosen):
        batch = collate_texts(chosen)
        return reader(batch["input_ids"], batch["attention_mask"], batch["places"])

    with torch.inference_mode():
        torch.testing.assert_close(logits(texts), torch.cat([logits([text]) for text in texts]), atol=1e-5, rtol=0)


def test_a_gradient_step_does_not_depend_on_how_the_batch_is_split(folder) -> None:
    recipe = _recipe()
    task = read_texts(recipe.data, folder).train
    reader = build_reader(recipe.model, vocabulary_size=task.vocabulary_size, values=3, dropout=0.0).eval()
    rows = PlantedRows(task, [32, 48, 40, 56], seed=0)
    texts = [rows[index] for index in range(4)]
    objective = AnswerObjective()

    def gradients(parts) -> list[torch.Tensor]:
        batches = [collate_texts(part) for part in parts]
        counts = objective.counts(batches)
        reader.zero_grad()
        for batch in batches:
            objective(reader, batch, counts).backward()
        return [p.grad.clone() for p in reader.parameters() if p.grad is not None]

    whole, split = gradients([texts]), gradients([texts[:1], texts[1:]])
    for ours, theirs in zip(split, whole, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_a_reader_that_always_answers_rightly_has_all_cells_full(folder) -> None:
    recipe = _recipe()
    rows = PlantedRows(read_texts(recipe.data, folder).test, [32] * 9 + [64] * 7, seed=5)

    class Oracle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids, attention_mask, places):
            values = torch.arange(6, 9)
            return (input_ids[:, :, None] == values).any(1).float()[places[:, 0]]

    cells = count_right(Oracle(), rows, recipe, quiet=True)
    assert sum(cell.right for cell in cells) == sum(cell.questions for cell in cells) == 9 + 7 * 2


@pytest.mark.parametrize("attention", _KINDS)
def test_what_is_saved_is_a_checkpoint_of_an_encoder(attention, folder) -> None:
    model = train(_recipe(attention), data=folder, output=folder / "run", quiet=True)
    kind = LongT5EncoderModel if attention in ("local", "tglobal") else MullaT5EncoderModel
    loaded, info = kind.from_pretrained(model, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    tensors = load_file(model / "model.safetensors")
    torch.testing.assert_close(loaded.state_dict()["shared.weight"], tensors["shared.weight"])
    ids = torch.randint(2, 20, (1, 30))
    assert loaded(input_ids=ids).last_hidden_state.shape == (1, 30, 16)


def test_a_trained_reader_is_converted_and_goes_on(folder) -> None:
    train(_recipe("tglobal", name="first"), data=folder, output=folder / "first", quiet=True)
    for tables in ("local", "global"):
        recipe = _recipe("fixed", model={"start": "first/model", "new_tables": tables})
        run = build_run(recipe, data=folder, output=folder / tables, quiet=True, runs=folder)
        reader = run.trainer.model
        source = load_file(folder / "first" / "model" / "model.safetensors")
        torch.testing.assert_close(reader.encoder.embed_tokens.weight, source["shared.weight"])
        torch.testing.assert_close(reader.head.state_dict(), load_file(folder / "first" / "model" / "head.safetensors"))
        assert train(recipe, data=folder, output=folder / tables, quiet=True, runs=folder) is not None
    with pytest.raises(UsageError, match=r"expected a reader of the recipe's shape in .*, \{'layers': 1, .*, got \{"):
        build_run(
            _recipe("fixed", model={"start": "first/model", "layers": 1}),
            data=folder,
            output=folder / "a",
            runs=folder,
        )
    with pytest.raises(UsageError, match="expected a reader of planted facts with 5 values in .*, got "):
        build_run(
            _recipe("fixed", model={"start": "first/model"}, data={"values": 5}),
            data=folder,
            output=folder / "a",
            runs=folder,
        )


def test_plan_counts_without_reading(tmp_path) -> None:
    plan = plan_run(_recipe(), data=tmp_path)
    assert plan.rows == 24 and plan.tokens == 12 * 32 + 12 * 48 and plan.steps >= 9


def test_missing_text_is_named(folder) -> None:
    with pytest.raises(UsageError, match=r"expected running text in .*none.txt, got a file that cannot be read"):
        read_texts(_recipe(data={"train_text": "none.txt"}).data, folder)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": {"pooling_rate": 4}}, "expected no 'model.pooling_rate' in .* with attention 'local', got 4"),
        ({"model": {"num_levels": 2}}, "expected no 'model.num_levels' in .* with attention 'local', got 2"),
        ({"model": {"start": "a"}}, "expected no 'model.start' in .* with attention 'local', got 'a'; nothing"),
        ({"model": {"heads": 3}}, "expected 'model.width' in .* to be a multiple of the 3 heads, got 16"),
        (
            {"optimiser": {"batch_tokens": 47}},
            "expected 'optimiser.batch_tokens' in .* of at least the longest text, 48",
        ),
    ],
)
def test_keys_that_do_not_go_together(changes, text, tmp_path) -> None:
    import yaml

    recipe = _recipe("local", **changes)
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(recipe.model_dump()))
    with pytest.raises(RecipeError, match=text):
        load_recipe(tmp_path / "a.yaml")
