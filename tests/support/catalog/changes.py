"""Requests that change the catalog: the fault points at which its Steward is killed, and how a test sees the change."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.catalog.http import SCHEMA, Caller, set_ref, snapshot
from tests.support.catalog.killed_stewards import FIRST, Yard

STAGED = 200
# For each fault point, whether the change has happened when the process stops there.
FILE_POINTS = {
    "catalog.files.before_sync": False,
    "catalog.files.after_temp": False,
    "catalog.files.after_rename": False,
    "catalog.after_metadata_file": False,
}
LEDGER_POINTS = {"ledger.before_commit": False, "ledger.after_commit": True}
ANSWER_POINTS = {"catalog.before_answer": True}
COMMIT_POINTS = {**FILE_POINTS, **LEDGER_POINTS, "catalog.after_swap": True, **ANSWER_POINTS}


@dataclass(frozen=True)
class CatalogChange:
    """One kind of request: what it needs first, how it is sent, and whether the ledger and the files show it.

    `points` are its fault points, and `files` the number of metadata files that it writes.
    """

    prepare: Callable[[Yard, str], None]
    send: Callable[[Caller, str, dict[str, str]], httpx.Response]
    happened: Callable[[Yard, str], bool]
    points: dict[str, bool]
    files: int = 1


def _is_created(yard: Yard, name: str) -> bool:
    row = yard.find(name)
    assert row is None or row.revision == 0
    return row is not None


def _is_staged(yard: Yard, name: str) -> bool:
    """Whether the branch `stage` shows the staged snapshot, once; `main` must be unchanged in any case."""
    row = yard.row(name)
    document = yard.document(row)
    ids = [each["snapshot-id"] for each in document["snapshots"]]
    done = ids == [FIRST, STAGED]
    assert done or ids == [FIRST]
    assert ("stage" in document["refs"]) == done
    assert document["refs"]["main"]["snapshot-id"] == FIRST
    assert document["last-sequence-number"] == 1 + done
    assert row.revision == 2 + done
    return done


def _are_both_staged(yard: Yard, name: str) -> bool:
    found = {_is_staged(yard, f"{name}-{side}") for side in ("one", "two")}
    assert len(found) == 1, "all or none"
    return found.pop()


def _is_dropped(yard: Yard, name: str) -> bool:
    return yard.find(name) is None


def _is_renamed(yard: Yard, name: str) -> bool:
    old, new = yard.find(name), yard.find(f"{name}-new")
    assert (old is None) != (new is None)
    return new is not None


def _staging(caller: Caller, name: str) -> dict[str, Any]:
    """The commit that Spark sends for a write to a branch. A second call gives the same commit."""
    table = caller.done("GET", f"/namespaces/sales/tables/{name}")
    table["metadata"] = {**table["metadata"], "last-sequence-number": 1}
    added = snapshot(table, STAGED, parent=FIRST)
    added["snapshot"]["timestamp-ms"] = table["metadata"]["snapshots"][0]["timestamp-ms"] + 1
    return {
        "identifier": {"namespace": ["sales"], "name": name},
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "stage", "snapshot-id": None}],
        "updates": [added, set_ref("stage", STAGED)],
    }


def _create(caller: Caller, name: str, headers: dict[str, str]) -> httpx.Response:
    body = {"name": name, "schema": SCHEMA}
    return caller.ask("POST", "/namespaces/sales/tables", json=body, headers=headers)


def _commit(caller: Caller, name: str, headers: dict[str, str]) -> httpx.Response:
    body = _staging(caller, name)
    return caller.ask("POST", f"/namespaces/sales/tables/{name}", json=body, headers=headers)


def _transact(caller: Caller, name: str, headers: dict[str, str]) -> httpx.Response:
    body = {"table-changes": [_staging(caller, f"{name}-{side}") for side in ("one", "two")]}
    return caller.ask("POST", "/transactions/commit", json=body, headers=headers)


def _drop(caller: Caller, name: str, headers: dict[str, str]) -> httpx.Response:
    return caller.ask("DELETE", f"/namespaces/sales/tables/{name}", headers=headers)


def _rename(caller: Caller, name: str, headers: dict[str, str]) -> httpx.Response:
    source, target = ({"namespace": ["sales"], "name": each} for each in (name, f"{name}-new"))
    return caller.ask("POST", "/tables/rename", json={"source": source, "destination": target}, headers=headers)


def _prepare_nothing(_: Yard, __: str) -> None:
    """For a request that needs no table."""


def _prepare_unprotected(yard: Yard, name: str) -> None:
    yard.table(name, protected=False)


def _prepare_protected(yard: Yard, name: str) -> None:
    yard.table(name)


def _prepare_two_protected(yard: Yard, name: str) -> None:
    yard.table(f"{name}-one")
    yard.table(f"{name}-two")


CHANGES = {
    "create": CatalogChange(_prepare_nothing, _create, _is_created, COMMIT_POINTS),
    "commit": CatalogChange(_prepare_protected, _commit, _is_staged, COMMIT_POINTS),
    "transaction": CatalogChange(_prepare_two_protected, _transact, _are_both_staged, COMMIT_POINTS, files=2),
    "drop": CatalogChange(_prepare_unprotected, _drop, _is_dropped, {**LEDGER_POINTS, **ANSWER_POINTS}, files=0),
    "rename": CatalogChange(_prepare_unprotected, _rename, _is_renamed, {**LEDGER_POINTS, **ANSWER_POINTS}, files=0),
}


def require_settled(yard: Yard, name: str, kind: str, point: str, passes: int) -> None:
    """Kill the Steward at the point. The change is made completely or not at all, and retries make it once."""
    change, key, before = CHANGES[kind], {"idempotency-key": str(uuid.uuid4())}, yard.left_over()
    change.prepare(yard, name)
    with yard.serving() as serving, yard.caller(serving) as caller:
        serving.arm(point, passes)
        with pytest.raises(httpx.TransportError):  # the client gets no response
            change.send(caller, name, key)
        serving.wait_for_end()
    happened = change.points[point]
    assert change.happened(yard, name) is happened
    yard.require_whole()
    with yard.serving() as serving, yard.caller(serving) as caller:
        assert change.happened(yard, name) is happened, "the restart changes nothing"
        answers = [change.send(caller, name, key) for _ in range(2)]
    assert [answer.status_code // 100 for answer in answers] == [2, 2], answers[0].text
    assert answers[0].content == answers[1].content
    assert change.happened(yard, name)
    yard.require_whole()
    left = yard.left_over() - before
    assert len(left) <= (0 if happened else change.files), (
        "no pointer names these files, and there are too many of them"
    )


def kill_cases() -> list[tuple[str, str, int]]:
    """Every kind of change at each of its points, for each of its files: kind, point, and passes without effect."""
    return [
        (kind, point, passes)
        for kind, change in CHANGES.items()
        for point in change.points
        for passes in range(change.files if point in FILE_POINTS else 1)
    ]
