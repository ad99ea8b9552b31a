"""Shipping: what is refused before anything is written."""

import shutil

import pytest

from narrows.errors import ConversionError, UsageError
from narrows.training.ship import ship


def test_only_a_trained_deformer_under_a_plain_name_is_shipped(tiny_bert, tmp_path) -> None:
    weights = tmp_path / "weights"
    for name in ("../evil", "", "Reader", "a/b"):
        with pytest.raises(UsageError, match="expected a name of small letters, digits, - and _, got"):
            ship(tiny_bert, name, weights=weights)
    with pytest.raises(UsageError, match="expected a model's folder, got .*none' without config.json"):
        ship(tmp_path / "none", "mine", weights=weights)
    with pytest.raises(ConversionError, match="expected a DeFormer to ship, got .* of type 'bert'"):
        ship(tiny_bert, "mine", weights=weights)
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_bert, damaged)
    (damaged / "config.json").write_text("{")
    with pytest.raises(ConversionError, match="expected a JSON object in .*config.json"):
        ship(damaged, "mine", weights=weights)
    assert not weights.exists()
