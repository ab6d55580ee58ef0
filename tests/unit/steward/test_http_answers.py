"""Error responses: each class of error has its status, kind and headers, and the message of a bug is not sent."""

from __future__ import annotations

import json

import pytest

from pvdm.api.errors import kind_of
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
from pvdm.steward.http.errors import TOKEN_CODES, refusal, status_of
from tests.support.for_each import for_each

CASES = [
    (InputError("x", "m"), 400, "input"),
    (InputError("workload_unknown", "m"), 404, "input"),
    (InputError("body_too_large", "m"), 413, "input"),
    (InputError("method_not_allowed", "m"), 405, "input"),
    (InputError("content_type_wrong", "m"), 415, "input"),
    (VerificationError("x", "m"), 422, "verification"),
    (VerificationError("key_unknown", "m"), 422, "verification"),
    (VerificationError("json_too_large", "m"), 422, "verification"),
    (RolledBackError("x", "m"), 409, "rolled_back"),
    (SegmentEndedError("x", "m"), 409, "segment_ended"),
    (ConflictError("x", "m"), 409, "conflict"),
    (NotAllowedError("x", "m"), 403, "not_allowed"),
    *((NotAllowedError(code, "m"), 401, "not_allowed") for code in sorted(TOKEN_CODES)),
    (InputError("token_unknown", "m"), 404, "input"),
    (StateUnknownError("x", "m"), 500, "state_unknown"),
    (UnavailableError("x", "m"), 503, "unavailable"),
    (UnavailableError("rate_limited", "m"), 429, "unavailable"),
    (UnavailableError("too_many_requests_at_once", "m"), 429, "unavailable"),
    (UnavailableError("body_too_slow", "m"), 408, "unavailable"),
    (PvdmError("rate_limited", "m"), 500, "bug"),
    (ValueError("m"), 500, "bug"),
]


@for_each(("error", "status", "kind"), CASES, ids=[f"{type(e).__name__} {s}" for e, s, _ in CASES])
def test_an_error_has_the_status_and_kind_of_its_class(error: Exception, status: int, kind: str) -> None:
    assert (status_of(error), kind_of(error)) == (status, kind)


def test_every_class_of_error_is_tested() -> None:
    assert {type(error) for error, _, _ in CASES} >= {PvdmError, ConflictError, *PvdmError.__subclasses__()}


@pytest.mark.parametrize("error", [ValueError("planted"), PvdmError("planted_code", "planted", got="planted")])
def test_the_message_of_a_bug_is_not_sent(error: Exception) -> None:
    assert b"planted" not in refusal(error, "id").body


def test_the_envelope_has_the_fields_of_the_error() -> None:
    error = ConflictError("nonce_taken", "used", expected="a new nonce", got="an old one", hint="draw", nonce="n", at=3)
    assert json.loads(refusal(error, "id").body) == {
        "error": {
            "code": "nonce_taken",
            "reason": "nonce_taken",
            "message": "used: expected a new nonce, got an old one",
            "expected": "a new nonce",
            "got": "an old one",
            "hint": "draw",
            "details": {"nonce": "n", "at": 3},
            "kind": "conflict",
            "request_id": "id",
        }
    }


def test_an_envelope_is_always_ascii() -> None:
    assert refusal(InputError("x", "\u2028 \ud800 é"), "id").body.isascii()


@for_each(
    ("error", "header"),
    [
        (NotAllowedError("token_missing", "m"), ("www-authenticate", "Bearer")),
        (UnavailableError("x", "m"), ("retry-after", "5")),
        (UnavailableError("rate_limited", "m", retry_after_seconds=7), ("retry-after", "7")),
        (InputError("method_not_allowed", "m", allow="GET, POST"), ("allow", "GET, POST")),
    ],
)
def test_a_status_that_needs_a_header_has_it(error: PvdmError, header: tuple[str, str]) -> None:
    assert refusal(error, "id").headers == (header,)
