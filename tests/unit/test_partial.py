"""Partial digests: their bytes, which of them can be combined and compared, and that nothing shows the sum."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from pvdm.digest import Construction, Mode, Partial, combine
from pvdm.digest.partial import ROW_COUNT_MAX
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName
from tests.support.for_each import for_each

MODULUS = 1 << 256
SUM = 0x810F8D098ACA4572663B46032475A000FF46E258AA83655EBAC169BB5E3F4119


def partial(**changes: Any) -> Partial:
    plain = Partial(
        epoch=1,
        construction=Construction.HMAC_SHA256,
        mode=Mode.STORED,
        projection=ProjectionName.CONTENT,
        fingerprint=bytes(32),
        key_check=bytes(16),
        rows=2,
        total=SUM,
    )
    return dataclasses.replace(plain, **changes)


DIFFERENCES = [
    ("partial_epoch_mismatch", {"epoch": 2}),
    ("partial_construction_mismatch", {"construction": Construction.BLAKE3}),
    ("partial_mode_mismatch", {"mode": Mode.PORTABLE}),
    ("partial_projection_mismatch", {"projection": ProjectionName.IDENTITY}),
    ("partial_schema_mismatch", {"fingerprint": b"\x01" + bytes(31)}),
    ("partial_key_mismatch", {"key_check": b"\x01" + bytes(15)}),
]


def test_the_bytes_are_those_of_the_specification() -> None:
    assert partial().to_bytes() == (
        b"pvdm\x01"
        + bytes.fromhex("0000000000000001")
        + b"\x0bhmac-sha256\x06stored\x07content"
        + bytes(32)
        + bytes(16)
        + bytes.fromhex("0000000000000002")
        + SUM.to_bytes(32, "big")
    )


def test_a_partial_is_read_back_from_its_bytes() -> None:
    assert partial().matches(Partial.from_bytes(partial().to_bytes()))


def test_a_partial_that_is_cut_anywhere_is_refused() -> None:
    whole = partial().to_bytes()
    for size in range(len(whole)):
        with pytest.raises(InputError) as caught:
            Partial.from_bytes(whole[:size])
        assert caught.value.reason == "partial_malformed", size


@for_each(
    "damage",
    [
        lambda whole: whole + b"\x00",
        lambda whole: b"pvdm\x02" + whole[5:],
        lambda whole: whole.replace(b"stored", b"stolen"),
        lambda whole: whole.replace(b"hmac-sha256", b"hmac-sha\xff56"),
        lambda whole: whole[:13] + b"\xff" + whole[14:],
    ],
    ids=["longer", "other version", "unknown mode", "not ASCII", "long name"],
)
def test_damaged_bytes_are_refused(damage: Any) -> None:
    with pytest.raises(InputError) as caught:
        Partial.from_bytes(damage(partial().to_bytes()))
    assert caught.value.reason == "partial_malformed"


def test_a_row_count_beyond_the_limit_in_bytes_is_refused() -> None:
    whole = bytearray(partial().to_bytes())
    whole[-40:-32] = b"\xff" * 8
    with pytest.raises(InputError) as caught:
        Partial.from_bytes(bytes(whole))
    assert caught.value.reason == "row_count_overflow"


def test_combining_adds_rows() -> None:
    assert combine([partial(rows=2), partial(rows=3)]).rows == 5


def test_combining_adds_sums_modulo_two_to_the_256() -> None:
    assert combine([partial(total=MODULUS - 1), partial(total=3)]).total == 2


def test_combining_nothing_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        combine([])
    assert caught.value.reason == "partial_missing"


def test_combining_beyond_the_row_limit_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        combine([partial(rows=ROW_COUNT_MAX), partial(rows=1)])
    assert caught.value.reason == "row_count_overflow"


@for_each(("reason", "change"), DIFFERENCES, ids=[reason for reason, _ in DIFFERENCES])
def test_combining_partials_that_do_not_belong_together_is_refused(reason: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        combine([partial(), partial(**change)])
    assert caught.value.reason == reason


@for_each(("reason", "change"), DIFFERENCES, ids=[reason for reason, _ in DIFFERENCES])
def test_comparing_partials_that_do_not_belong_together_is_refused(reason: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        partial().matches(partial(**change))
    assert caught.value.reason == reason


def test_another_sum_does_not_match() -> None:
    assert not partial().matches(partial(total=SUM + 1))


def test_the_same_sum_of_another_row_count_does_not_match() -> None:
    assert not partial().matches(partial(rows=3))


def test_the_repr_does_not_show_the_sum() -> None:
    text = repr(partial())
    assert str(SUM) not in text
    assert f"{SUM:x}" not in text


def test_comparing_partials_with_equals_is_a_type_error() -> None:
    # If `==` were False here, a test with `assert dropped != expected` would always pass.
    with pytest.raises(TypeError, match="matches"):
        bool(partial() == partial())


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, hash], ids=["pickle", "copy", "hash"])
def test_pickling_copying_or_hashing_a_partial_is_a_type_error(leak: Callable[[Partial], object]) -> None:
    with pytest.raises(TypeError, match="secret"):
        leak(partial())


def test_a_sum_of_no_rows_that_is_not_zero_is_refused() -> None:
    with pytest.raises(InputError) as refusal:
        Partial.from_bytes(partial(rows=0).to_bytes())
    assert refusal.value.reason == "partial_malformed"


def test_combining_another_object_is_refused() -> None:
    with pytest.raises(InputError) as refusal:
        combine([partial(), 3])  # type: ignore[list-item]
    assert refusal.value.reason == "partial_missing"


@for_each(("reason", "change"), DIFFERENCES, ids=[reason for reason, _ in DIFFERENCES])
def test_the_error_of_a_refused_combination_does_not_show_the_sum(reason: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        combine([partial(), partial(**change)])
    assert f"{SUM:x}" not in str(caught.value.to_json())
