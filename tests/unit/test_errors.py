"""Errors: their text, the fields of their envelope, their exit codes, and that they can be pickled."""

from __future__ import annotations

import pickle

import pytest

from pvdm.errors import InputError, PvdmError, UnavailableError, VerificationError
from tests.support.for_each import for_each


def example() -> InputError:
    return InputError("cast_refused", "no cast", expected="long", got="double", hint="widen it", column="amount", row=3)


def test_the_text_says_what_was_expected_and_what_was_got() -> None:
    assert str(example()) == "no cast: expected long, got double"


def test_the_text_of_an_error_without_expectation_is_its_message() -> None:
    assert str(PvdmError("bug", "it broke")) == "it broke"


def test_the_envelope_has_every_field() -> None:
    assert example().to_json() == {
        "code": "columns_mismatch",
        "reason": "cast_refused",
        "message": "no cast: expected long, got double",
        "expected": "long",
        "got": "double",
        "hint": "widen it",
        "details": {"column": "amount", "row": 3},
    }


def test_the_envelope_of_a_bare_error_has_the_same_fields() -> None:
    assert PvdmError("bug", "it broke").to_json().keys() == example().to_json().keys()


def test_a_pickled_error_keeps_its_class() -> None:
    assert type(pickle.loads(pickle.dumps(example()))) is InputError


def test_a_pickled_error_keeps_its_envelope() -> None:
    assert pickle.loads(pickle.dumps(example())).to_json() == example().to_json()


@for_each(("kind", "exit_code"), [(PvdmError, 1), (InputError, 2), (VerificationError, 3), (UnavailableError, 7)])
def test_each_class_has_the_exit_code_of_its_outcome(kind: type[PvdmError], exit_code: int) -> None:
    assert kind.exit_code == exit_code


def test_an_error_of_any_class_is_caught_as_a_pvdm_error() -> None:
    with pytest.raises(PvdmError, match="no cast"):
        raise example()


def test_the_text_of_an_error_with_got_alone_has_no_expectation() -> None:
    assert str(PvdmError("log_read_only", "no entries here", got="1 to 2")) == "no entries here: got 1 to 2"


def test_the_text_of_an_error_with_expected_alone_says_got_nothing() -> None:
    assert str(PvdmError("tile_missing", "it is not there", expected="a tile")) == (
        "it is not there: expected a tile, got nothing"
    )


def test_an_error_of_the_gate_carries_the_number_of_its_check() -> None:
    error = VerificationError("proof_expired", "the proof has expired", check=6)
    assert error.check == 6
    assert pickle.loads(pickle.dumps(error)).check == 6
    assert error.to_json()["details"] == {"check": 6}


def test_an_error_without_a_check_has_no_number() -> None:
    assert VerificationError("proof_expired", "the proof has expired").check is None
