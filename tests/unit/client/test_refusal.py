"""The client raises the Steward's errors with their class and fields, and reports other bodies as invalid answers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pvdm.api.errors import ERROR_DETAILS_MAX, ErrorView
from pvdm.client.responses import ERROR_TEXT_MAX_CHARACTERS, read_response, to_error
from pvdm.errors import (
    ConflictError,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    SegmentEndedError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
)
from tests.support.for_each import for_each
from tests.unit.client.examples import client
from tests.unit.client.peer import Behaviour, Peer, answer, error

CLASSES = {
    "input": InputError,
    "verification": VerificationError,
    "rolled_back": RolledBackError,
    "segment_ended": SegmentEndedError,
    "conflict": ConflictError,
    "not_allowed": NotAllowedError,
    "state_unknown": StateUnknownError,
    "unavailable": UnavailableError,
    "bug": PvdmError,
}


def envelope(**more: object) -> dict[str, object]:
    sent = ConflictError("nonce_taken", "the nonce is taken", expected="a new one", got="an old one", hint="draw", n=3)
    return {**sent.to_json(), "kind": "conflict", "request_id": "r-1", **more}


def read_as_error(value: object, *, request_id: str) -> PvdmError:
    return to_error(read_response(ErrorView, value), request_id=request_id)


def error_from(behaviour: Behaviour) -> PvdmError:
    with Peer(behaviour) as peer, client(peer.url) as steward, pytest.raises(PvdmError) as caught:
        steward.info()
    return caught.value


@for_each("kind", CLASSES)
def test_each_kind_of_error_has_its_own_class(kind: str) -> None:
    assert type(error_from(error(409, kind))) is CLASSES[kind]


def test_every_field_comes_back_as_it_was_sent() -> None:
    found = read_as_error(envelope(), request_id="other")
    assert (found.reason, found.message, found.expected, found.got, found.hint) == (
        "nonce_taken",
        "the nonce is taken",
        "a new one",
        "an old one",
        "draw",
    )
    assert str(found) == "the nonce is taken: expected a new one, got an old one"
    assert found.details == {"n": 3, "request_id": "r-1"}


def test_an_error_with_reserved_names_in_its_details_can_be_pickled() -> None:
    found = read_as_error(envelope(details={"self": "x", "code": "y", "cls": "z", "message": "m"}), request_id="")
    again = pickle.loads(pickle.dumps(found))
    assert (type(again), again.details) == (ConflictError, {"cls": "z", "request_id": "r-1"})


def test_an_error_without_a_request_id_has_the_id_of_its_request() -> None:
    assert read_as_error(envelope(request_id=None), request_id="mine").details["request_id"] == "mine"


def test_control_characters_in_an_error_are_replaced() -> None:
    found = read_as_error(envelope(message="\x1b[2J gone \u202e", hint="a\nb", details={"a": "\x07"}), request_id="")
    assert (found.message, found.hint, found.details["a"]) == ("�[2J gone �", "a�b", "�")


def test_a_long_message_is_cut() -> None:
    assert len(read_as_error(envelope(message="x" * 100_000), request_id="").message) == ERROR_TEXT_MAX_CHARACTERS


def test_the_number_of_details_is_limited() -> None:
    many = {f"detail_{number}": number for number in range(1_000)}
    assert len(read_as_error(envelope(details=many), request_id="").details) == ERROR_DETAILS_MAX + 1


def test_fields_and_details_of_an_unknown_kind_are_ignored() -> None:
    found = read_as_error(envelope(new="x", details={"ratio": 1.5, "list": [], "flag": True, "n": 1}), request_id="")
    assert found.details == {"n": 1, "request_id": "r-1"}


@for_each(
    "value",
    [
        None,
        [],
        "x",
        envelope(kind="new_kind"),
        envelope(kind=None),
        envelope(code="Not A Code"),
        envelope(code=None),
        envelope(message=7),
        envelope(expected=7),
        envelope(hint=["x"]),
        envelope(request_id=7),
    ],
)
def test_an_invalid_error_envelope_is_an_invalid_answer(value: Any) -> None:
    found = error_from(answer({"error": value}, status=409))
    assert (type(found), found.reason) == (UnavailableError, "steward_answer_invalid")


@for_each(
    "body",
    [b"", b"null", b"{}", b"[]", b'{"error":{}}', b"\xff", b'{"error":1,"error":2}', b"[" * 100_000, b"9" * 10_000],
)
def test_an_error_status_with_another_body_is_an_invalid_answer(body: bytes) -> None:
    assert error_from(answer(status=500, body=body)).reason == "steward_answer_invalid"


def test_an_error_with_got_alone_has_its_message_once() -> None:
    sent = InputError("thing_invalid", "no thing", got="other")
    found = read_as_error({**sent.to_json(), "kind": "input", "request_id": "r"}, request_id="r")
    assert str(found) == "no thing: got other"
