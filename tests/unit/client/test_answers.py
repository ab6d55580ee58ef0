"""The client checks every field of an answer: missing fields and other types are refused, new fields are ignored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from pvdm.api.proofs import AttestationView, Challenge, ConsistencyView, OpenedProof, OverrideView, ProofView
from pvdm.api.service import (
    ClockConfirmation,
    EpochChange,
    EpochView,
    Event,
    Identity,
    IssuedToken,
    ReadinessView,
    StewardInfo,
    TrustRootChain,
    TrustRootVersion,
)
from pvdm.api.work import AttemptView, ChunkView, OrphanView, WorkloadDetail, WorkloadView
from pvdm.client.responses import read_response
from pvdm.client.token import read_exchanged
from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.verdict import FailureClass
from tests.support.for_each import for_each
from tests.unit.client.examples import ATTEMPT, CHANGE, HASH, ID, IDENTITY, INFO, TIME, Json

WORKLOAD: Json = {
    "workload_id": "orders-1",
    "domain": "sales",
    "state": "OPEN",
    "contract_hash": HASH,
    "table_uuid": "t",
    "table": "sales.orders",
    "source": "raw.orders",
    "source_snapshot_id": "9223372036854775807",
    "source_newest_snapshot_id": None,
    "source_newer_columns": "[]",
    "plan_hash": HASH,
    "chunk_count": 1,
    "chunk_states": [{"state": "VERIFICATION_FAILED", "chunks": 1}],
    "handed_in": 1,
    "problem": None,
    "override_ids": [HASH],
    "claim": "day = 2026-11-14",
    "parameters": {"date": "2026-11-14"},
    "atomicity": "chunk",
    "epoch": "1",
    "reason": "opened",
    "changed_at": TIME,
    "lease": {
        "lease_number": 1,
        "holder": "job",
        "runner": "process 7",
        "live": True,
        "expires_at": TIME,
        "seconds": 60,
    },
    "deadline": TIME,
    "timed_out": False,
}
PROOF: Json = {
    "proof_id": HASH,
    "workload_id": "orders-1",
    "chunk_id": "c",
    "attempt_id": ID,
    "nonce": ID,
    "verdict": "FAIL",
    "classes": ["missing"],
    "rows_intent": "6",
    "rows_staged": None,
    "profile": "A",
    "notary": "n",
    "epoch": "1",
    "issued_at": TIME,
    "expires_at": TIME,
    "log_index": "3",
    "overridden": False,
    "override_id": None,
}
CONTEXT: Json = {
    "epoch": "1",
    "workload_id": "w",
    "chunk_id": "c",
    "attempt_id": ID,
    "nonce": ID,
    "mode": "stored",
    "fingerprints": {"content": HASH},
    "intent_root": HASH,
    "staged_root": HASH,
}
KEY_PAIR: Json = {"row_hash": HASH, "commitment": "ef" * 32}
OVERRIDE: Json = {
    "override_id": HASH,
    "operator": "ruth",
    "reason": "r",
    "table": "t",
    "table_uuid": "u",
    "fail_proof_id": HASH,
    "nonce": ID,
    "state": "RESERVED",
    "issued_at": TIME,
    "expires_at": TIME,
    "log_index": "9",
}
ATTESTATION: Json = {
    "statement_id": HASH,
    "attestor": "s",
    "catalog": "c",
    "table_uuid": "u",
    "snapshot_id": "77",
    "row_count": "5",
    "projection": "content",
    "issued_at": TIME,
    "log_index": "1",
}
ERROR: Json = {
    "code": "clock_jumped",
    "reason": "clock_jumped",
    "message": "m",
    "expected": None,
    "got": None,
    "hint": None,
    "details": {},
    "kind": "unavailable",
    "request_id": "r",
}
EXCHANGED: Json = {"access_token": "pvdm_x", "token_type": "bearer", "issued_token_type": "t", "expires_in": 3600}
PUBLISHED: Json = {"chunk_id": "c", "attempt_id": ID, "snapshot_id": "9"}
EVENT: Json = {"event_id": "1", "at": TIME, "kind": "insert", "subject": "nonces", "row_key": "k"}
EVENT |= {"old": None, "new": {"a": 1}}


def read_as(model: type[BaseModel]) -> Callable[[object], object]:
    """A function that reads an answer as this model."""
    return lambda value: read_response(model, value)


ANSWERS: dict[str, tuple[Callable[[object], object], Json]] = {
    "readiness": (read_as(ReadinessView), {"ready": False, "reasons": [ERROR]}),
    "identity": (read_as(Identity), IDENTITY),
    "info": (read_as(StewardInfo), INFO),
    "trust root": (read_as(TrustRootChain), {"version": 2, "sha256": HASH, "chain": [{"payload": "x"}]}),
    "version": (read_as(TrustRootVersion), {"version": 2, "sha256": HASH}),
    "epoch": (read_as(EpochView), {"number": "1", "state": "ACTIVE", "key_ids": {"log": HASH}}),
    "change": (read_as(EpochChange), CHANGE | {"before": "CREATED"}),
    "workload": (read_as(WorkloadView), WORKLOAD),
    "detail": (
        read_as(WorkloadDetail),
        WORKLOAD | {"chunk_count": 1, "chunk_ids": ["a"], "attempts": [ATTEMPT], "published": [PUBLISHED]},
    ),
    "attempt": (read_as(AttemptView), ATTEMPT),
    "chunk": (read_as(ChunkView), {"chunk_id": "c", "where": "true", "files": None, "attempt": ATTEMPT}),
    "orphan": (read_as(OrphanView), {"location": "file:///x", "size": "7", "attempt_id": ID}),
    "attempt token": (read_as(IssuedToken), {"identity": IDENTITY}),
    "exchange": (read_exchanged, EXCHANGED),
    "proof": (read_as(ProofView), PROOF),
    "opened": (read_as(OpenedProof), {"context": CONTEXT, "keys": {"content": KEY_PAIR}}),
    "override": (read_as(OverrideView), OVERRIDE),
    "challenge": (
        read_as(Challenge),
        {"nonce": ID, "epoch": "1", "expires_at": TIME, "keys": {"identity": KEY_PAIR, "content": KEY_PAIR}},
    ),
    "attestation": (read_as(AttestationView), ATTESTATION),
    "event": (read_as(Event), EVENT),
    "clock": (read_as(ClockConfirmation), {"at": TIME, "confirmed": True}),
    "hashes": (read_as(ConsistencyView), {"hashes": [HASH]}),
}
# Fields that may be null or missing, or whose values the client does not check.
LOOSE = {
    "workload": {"parameters.date"},
    "detail": {"parameters.date"},
    "readiness": {"reasons.0.expected", "reasons.0.got", "reasons.0.hint", "reasons.0.details", "reasons.0.request_id"},
    "change": {"before", "key_ids.log"},
    "event": {"old", "new", "new.a"},
    "trust root": {"chain.0.payload"},
    "opened": {"context.fingerprints.content", "keys.content"},
    "challenge": {"keys.identity", "keys.content"},
    "epoch": {"key_ids.log"},
}


def paths_in(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value in the document: the keys and positions that lead to it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*at, key)
        yield from paths_in(inner, (*at, key))


def replace_at(value: Json, at: tuple[str | int, ...], new: object) -> Json:
    """A copy of the document with another value at this path."""
    changed: Any = copy.deepcopy(value)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = new
    return dict(changed)


def remove_at(value: Json, at: tuple[str | int, ...]) -> Json:
    """A copy of the document without the key at this path."""
    changed: Any = copy.deepcopy(value)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    del inner[at[-1]]
    return dict(changed)


def is_loose(name: str, at: tuple[str | int, ...]) -> bool:
    return ".".join(map(str, at)) in LOOSE.get(name, set())


def is_refused(read: Callable[[object], object], value: object) -> bool:
    try:
        read(value)
    except UnavailableError as error:
        return error.reason == "steward_answer_invalid"
    return False


@for_each("name", ANSWERS)
def test_a_whole_answer_is_read(name: str) -> None:
    read, good = ANSWERS[name]
    read(good)


@for_each("name", ANSWERS)
def test_a_field_that_a_newer_steward_adds_is_ignored(name: str) -> None:
    read, good = ANSWERS[name]
    more: Any = {**good, "new_field": {"deep": [1.5, None]}}
    for at in list(paths_in(good)):
        inner: Any = good
        for key in at:
            inner = inner[key]
        if isinstance(inner, dict) and at[-1] not in {"key_ids", "fingerprints", "new", "details", "parameters"}:
            more = replace_at(more, (*at, "new_field"), None)
    read(more)


@for_each("name", ANSWERS)
def test_an_answer_without_one_of_its_fields_is_refused(name: str) -> None:
    read, good = ANSWERS[name]
    passed = [
        at
        for at in paths_in(good)
        if not isinstance(at[-1], int) and not is_loose(name, at) and not is_refused(read, remove_at(good, at))
    ]
    assert passed == []


@for_each("wrong", [1.5, -1, True, "¡", [[]], {"x": [1.5]}], ids=repr)
@for_each("name", ANSWERS)
def test_a_field_of_another_type_is_refused(name: str, wrong: object) -> None:
    read, good = ANSWERS[name]
    passed = []
    for at in paths_in(good):
        inner: Any = good
        for key in at:
            inner = inner[key]
        same = type(inner) is type(wrong) and type(inner) not in {int, list}
        if not same and not any(is_loose(name, at[:end]) for end in range(1, len(at) + 1)):
            passed += [] if is_refused(read, replace_at(good, at, wrong)) else [at]
    assert passed == []


@for_each("top", [None, [], "x", 7, 1.5, True], ids=repr)
@for_each("name", ANSWERS)
def test_an_answer_that_is_no_object_is_refused(name: str, top: object) -> None:
    assert is_refused(ANSWERS[name][0], top)


@for_each("text", ["", "01", "-1", "1.0", " 1", "9223372036854775808", "1" * 30, "²", "1\n"])
def test_a_64_bit_number_in_another_form_than_plain_digits_is_refused(text: str) -> None:
    assert is_refused(read_as(StewardInfo), INFO | {"log_size": text})


@for_each("text", ["", "AB" * 32, "ab" * 31, "zz" * 32, "ab" * 33, " " + "ab" * 31 + "a"])
def test_a_hash_in_another_form_than_64_lower_case_digits_is_refused(text: str) -> None:
    assert is_refused(read_as(ProofView), PROOF | {"proof_id": text})


@for_each(
    ("name", "field"),
    [("proof", "verdict"), ("workload", "state"), ("attempt", "state"), ("override", "state"), ("identity", "role")],
)
def test_an_unknown_value_of_a_verdict_state_or_role_is_refused(name: str, field: str) -> None:
    read, good = ANSWERS[name]
    assert is_refused(read, good | {field: "NEW"})


def test_numbers_and_classes_are_read_as_typed_values() -> None:
    proof = read_response(ProofView, PROOF)
    assert (proof.rows_intent, proof.rows_staged, proof.classes) == (6, None, (FailureClass.MISSING,))
    assert read_response(WorkloadView, WORKLOAD).source_snapshot_id == 2**63 - 1


def test_keys_are_read_as_secrets_of_their_epoch() -> None:
    opened = read_response(OpenedProof, {"context": CONTEXT, "keys": {"content": KEY_PAIR}})
    pair = opened.keys[ProjectionName.CONTENT]
    assert (pair.row_hash.reveal().hex(), pair.commitment.reveal().hex()) == (HASH, "ef" * 32)
    assert HASH not in repr(opened.keys)
    assert pair.row_hash.epoch == 1


def test_an_envelope_is_returned_as_canonical_json() -> None:
    envelope = {"signatures": [{"sig": "s", "keyid": "k"}], "payloadType": "t", "payload": "p"}
    chain = read_response(TrustRootChain, {"version": 1, "sha256": HASH, "chain": [envelope]}).chain
    assert chain == (b'{"payload":"p","payloadType":"t","signatures":[{"keyid":"k","sig":"s"}]}',)


@for_each(
    ("value", "kind", "reason"),
    [
        ({"error": "invalid_client", "error_description": "x"}, NotAllowedError, "token_exchange_refused"),
        ({"error": "invalid_request"}, NotAllowedError, "token_exchange_refused"),
        ({"error": "\x1b[2J"}, NotAllowedError, "token_exchange_refused"),
        ({"error": "temporarily_unavailable"}, UnavailableError, "token_exchange_unavailable"),
        (
            {"error": ERROR | {"kind": "input", "code": "request_invalid", "reason": "body_too_large"}},
            InputError,
            "body_too_large",
        ),
    ],
)
def test_a_refused_token_exchange_is_read_as_its_error(value: Json, kind: type[PvdmError], reason: str) -> None:
    found = read_exchanged(value)
    assert isinstance(found, kind)
    assert (found.reason, "\x1b" in str(found)) == (reason, False)
