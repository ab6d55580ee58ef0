"""A digest key cannot be shown, compared, copied or pickled by accident."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from pvdm.errors import InputError
from pvdm.model.secret import DigestKey
from tests.support.for_each import for_each

MATERIAL = bytes(range(32))


def key() -> DigestKey:
    return DigestKey(MATERIAL, epoch=3)


def test_the_repr_names_the_epoch_and_nothing_else() -> None:
    assert repr(key()) == "DigestKey(epoch=3)"


def test_the_text_names_the_epoch_and_nothing_else() -> None:
    assert str(key()) == "DigestKey(epoch=3)"


@for_each(
    "leak",
    [
        lambda: key() == key(),
        lambda: key() != key(),
        lambda: hash(key()),
        lambda: pickle.dumps(key()),
        lambda: copy.deepcopy(key()),
        lambda: f"{key()}",
        lambda: format(key(), ">10"),
    ],
    ids=["equal", "unequal", "hash", "pickle", "copy", "f-string", "format"],
)
def test_operations_that_could_leak_a_key_are_type_errors(leak: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="secret keys are not"):
        leak()


def test_reveal_returns_the_bytes() -> None:
    assert key().reveal() == MATERIAL


def test_a_key_keeps_its_own_copy_of_the_bytes() -> None:
    material = bytearray(MATERIAL)
    key_of_copy = DigestKey(bytes(material), epoch=0)
    material[0] = 255
    assert key_of_copy.reveal() == MATERIAL


@for_each("length", [0, 16, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InputError) as caught:
        DigestKey(bytes(length), epoch=0)
    assert caught.value.reason == "key_length"


@pytest.mark.parametrize("epoch", [-1, 2**63])
def test_an_epoch_out_of_range_is_refused(epoch: int) -> None:
    with pytest.raises(InputError) as caught:
        DigestKey(MATERIAL, epoch=epoch)
    assert caught.value.reason == "epoch_invalid"


def test_the_error_about_a_key_does_not_hold_its_bytes() -> None:
    with pytest.raises(InputError) as caught:
        DigestKey(b"topsecret", epoch=0)
    assert "topsecret" not in str(caught.value.to_json())
