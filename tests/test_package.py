"""The face of the package: instant to import, lazy names, a version, extras that are named when missing."""

import importlib.metadata
import subprocess
import sys

import pytest

import narrows
from narrows import _optional, errors


def _in_a_fresh_interpreter(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_narrows_imports_nothing_heavy() -> None:
    loaded = _in_a_fresh_interpreter(
        "import sys, narrows; print(sorted({m.partition('.')[0] for m in sys.modules}"
        " & {'torch', 'transformers', 'lance', 'numpy', 'typer', 'rich', 'pydantic'}))"
    )
    assert loaded == "[]"


def test_version_is_the_version_of_the_distribution() -> None:
    assert narrows.__version__ == importlib.metadata.version("narrows")


@pytest.mark.parametrize("name", narrows.__all__)
def test_every_public_name_resolves_and_is_listed(name: str) -> None:
    assert getattr(narrows, name) is not None
    assert name in dir(narrows)


def test_every_error_is_public() -> None:
    for name in errors.__all__:
        assert getattr(narrows, name) is getattr(errors, name)
        assert name in narrows.__all__


def test_lazy_names_are_kept_after_the_first_use() -> None:
    first = narrows.DeformerConfig
    assert vars(narrows)["DeformerConfig"] is first


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'narrows' has no attribute 'Deformed'"):
        _ = narrows.Deformed  # type: ignore[attr-defined]


def test_require_returns_the_module() -> None:
    import json.decoder

    assert _optional.require("json.decoder", extra="report", purpose="read") is json.decoder


def test_require_names_the_extra_that_is_missing() -> None:
    message = (
        r"`no_such_package` is needed to draw the report, but it is not installed; "
        r"install it with: pip install 'narrows\[report\]'"
    )
    with pytest.raises(errors.MissingExtraError, match=message) as caught:
        _optional.require("no_such_package.plots", extra="report", purpose="draw the report")
    assert isinstance(caught.value, ImportError)


def test_require_lets_a_broken_package_speak_for_itself(tmp_path, monkeypatch) -> None:
    (tmp_path / "half_installed.py").write_text("import its_missing_half\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_missing_half") as caught:
        _optional.require("half_installed", extra="report", purpose="draw the report")
    assert not isinstance(caught.value, errors.MissingExtraError)
