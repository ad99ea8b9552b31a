import dataclasses

import pytest

from narrows.errors import StoreMismatchError
from narrows.store import Fingerprint


def test_dictionary_and_back(fingerprint: Fingerprint) -> None:
    assert Fingerprint.from_dict(fingerprint.as_dict()) == fingerprint


def test_every_field_changes_the_digest(fingerprint: Fingerprint) -> None:
    digests = {fingerprint.digest}
    for field in dataclasses.fields(Fingerprint):
        value = getattr(fingerprint, field.name)
        other = value + 1 if isinstance(value, int) else value + "x"
        digests.add(dataclasses.replace(fingerprint, **{field.name: other}).digest)
    assert len(digests) == 1 + len(dataclasses.fields(Fingerprint))


def test_differences_in_words(fingerprint: Fingerprint) -> None:
    assert fingerprint.differences(fingerprint) == []
    model = dataclasses.replace(fingerprint, split_layer=3, weights="c" * 64)
    assert fingerprint.differences(model) == [
        "weights aaaaaaaaaaaa in the store, cccccccccccc in the model",
        "split layer 4 in the store, 3 in the model",
    ]


def test_a_dictionary_that_is_no_fingerprint(fingerprint: Fingerprint) -> None:
    fields = fingerprint.as_dict()
    with pytest.raises(StoreMismatchError, match="a fingerprint has the fields weights, .* but this one has none"):
        Fingerprint.from_dict({})
    with pytest.raises(StoreMismatchError, match="field split_layer has to be of type int, but it is '4'"):
        Fingerprint.from_dict({**fields, "split_layer": "4"})
