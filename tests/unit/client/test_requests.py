"""Request bodies: the client sends the models of `pvdm.api`, and refuses what the Steward would refuse."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pvdm.client import StewardClient
from pvdm.errors import InputError, PvdmError
from pvdm.model.projection import ProjectionName
from tests.support.for_each import for_each
from tests.unit.client.examples import HASH, ID, client
from tests.unit.client.peer import Peer, error

UUID = "0188c1f0-1111-7222-8333-944445555666"
SIGNED = {"payload": "eA==", "payloadType": "t", "signatures": [{"keyid": HASH, "sig": "AAAA"}]}
ENVELOPE = json.dumps(SIGNED).encode()
WORKLOAD: dict[str, object] = {"workload_id": "w", "table": "sales.orders", "parameters": {"day": "2026-11-14"}}

CALLS: dict[str, tuple[Callable[[StewardClient], object], dict[str, object]]] = {
    "a reason": (lambda steward: steward.confirm_clock("r"), {"reason": "r"}),
    "a workload": (
        lambda steward: steward.open_workload("w", "sales.orders", {"day": "2026-11-14"}),
        {**WORKLOAD, "waits": False},
    ),
    "a branch": (
        lambda steward: steward.publish_branch("w", "sales.orders", "b", {"day": "2026-11-14"}),
        {**WORKLOAD, "branch": "b"},
    ),
    "a branch with a reason": (
        lambda steward: steward.publish_branch("w", "sales.orders", "b", {"day": "2026-11-14"}, "repaired"),
        {**WORKLOAD, "branch": "b", "reason": "repaired"},
    ),
    "no fields": (lambda steward: steward.staged(ID), {}),
    "orphans": (lambda steward: steward.remove_orphans("sales.orders"), {"table": "sales.orders"}),
    "quarantine": (lambda steward: steward.remove_quarantined([ID], "r"), {"attempt_ids": [ID], "reason": "r"}),
    "an envelope": (lambda steward: steward.submit_override(ENVELOPE), {"envelope": SIGNED}),
    "a trust root": (lambda steward: steward.submit_trust_root(ENVELOPE), {"envelope": SIGNED}),
    "a pinned trust root": (
        lambda steward: steward.submit_trust_root(ENVELOPE, sha256=HASH),
        {"envelope": SIGNED, "sha256": HASH},
    ),
    "a challenge": (
        lambda steward: steward.challenge(
            nonce=ID,
            catalog="payments",
            table_uuid=UUID,
            snapshot_id=7,
            mode="stored",
            fingerprints={ProjectionName.CONTENT: HASH},
        ),
        {
            "nonce": ID,
            "catalog": "payments",
            "table_uuid": UUID,
            "snapshot_id": "7",
            "mode": "stored",
            "fingerprints": {"content": HASH},
        },
    ),
}


@for_each("name", CALLS)
def test_a_request_has_exactly_these_fields(name: str) -> None:
    call, fields = CALLS[name]
    with Peer(error(404, "input")) as peer, client(peer.url) as steward, pytest.raises(PvdmError):
        call(steward)
    assert json.loads(peer.requests[0].body) == fields


INVALID_CALLS: dict[str, tuple[Callable[[StewardClient], object], str]] = {
    "an empty reason": (lambda steward: steward.confirm_clock(""), "reason"),
    "a long reason": (lambda steward: steward.abandon_workload("w", "r" * 257), "reason"),
    "a table's name with a newline": (lambda steward: steward.open_workload("w", "a\nb", {}), "table"),
    "another mode": (
        lambda steward: steward.challenge(
            nonce=ID, catalog="c", table_uuid=UUID, snapshot_id=7, mode="other", fingerprints={}
        ),
        "mode",
    ),
    "an envelope without signatures": (lambda steward: steward.submit_override(b"{}"), "envelope.payload"),
}


@for_each("name", INVALID_CALLS)
def test_an_invalid_request_is_not_sent(name: str) -> None:
    call, place = INVALID_CALLS[name]
    with Peer(error(404, "input")) as peer, client(peer.url) as steward:
        with pytest.raises(InputError) as caught:
            call(steward)
        assert (caught.value.reason, caught.value.message) == ("request_invalid", f"{place} cannot be accepted")
        assert peer.requests == []


def test_the_error_of_an_invalid_request_does_not_show_the_value() -> None:
    with client("http://127.0.0.1:1") as steward, pytest.raises(InputError) as caught:
        steward.confirm_clock("secret\nword")
    assert "secret" not in str(caught.value)
