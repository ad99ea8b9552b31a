import subprocess
import sys

import pytest

from narrows.cli.bench import _models
from narrows.cli.main import main
from narrows.errors import UsageError


def test_an_unknown_family_is_one_sentence(capsys):
    assert main(["bench", "nothing"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "one of bottleneck, deformer, funnel, mulla, got 'nothing'" in error


def test_another_device_is_refused_by_name(capsys):
    assert main(["bench", "deformer", "--device", "cuda"]) == 2
    assert "expected --device cpu for deformer, got 'cuda'" in capsys.readouterr().err


def test_models_need_names():
    assert {name: str(folder) for name, folder in _models("k3=a/b, k5=c").items()} == {"k3": "a/b", "k5": "c"}
    with pytest.raises(UsageError, match="expected --models NAME=FOLDER,…, got 'a/b'"):
        _models("a/b")


def test_an_unknown_row_is_refused_before_anything_is_measured(capsys, tmp_path):
    assert main(["bench", "deformer", "--rows", "no-such", "--results", str(tmp_path), "-q"]) == 2
    assert "expected names of rows, got 'no-such'" in capsys.readouterr().err


def test_its_help_imports_no_heavy_library():
    code = (
        "import sys; from narrows.cli.main import main; main(['bench', '--help']);"
        "assert not {'torch', 'transformers', 'lance'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


def test_a_row_with_a_bar_is_measured_shown_as_json_and_kept(capsys, tmp_path):
    import json

    code = main(["bench", "deformer", "--rows", "help", "--rounds", "1", "--json", "-q", "--results", str(tmp_path)])
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["name"] == "help" and row["measured"] is True and row["bar"] == 0.5
    assert code == (0 if row["holds"] else 1)
    assert (tmp_path / "deformer.json").is_file()


def test_what_is_not_measured_now_is_told_below_a_table_that_a_pipe_does_not_fold(capsys, tmp_path):
    call = ["bench", "deformer", "--rows", "help,bert-large-k20", "--rounds", "1", "-q", "--results", str(tmp_path)]
    main([*call, "--quick"])
    shown = capsys.readouterr().out
    assert "│ bert-large-k20 " in shown and "│ never" in shown
    assert "\nnot measured now (full run only; never measured in a full run): bert-large-k20\n" in shown
