"""Requests that change the catalog: the points at which its Steward may die, and what tells that it happened."""

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
# Whether the change has happened when the process stops there.
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
class Act:
    """One request: what it needs, how it is sent, and whether a look from outside finds it done, `once` over."""

    prepare: Callable[[Yard, str], None]
    send: Callable[[Caller, str, dict[str, str]], httpx.Response]
    happened: Callable[[Yard, str], bool]
    points: dict[str, bool]
    files: int = 1


def _made(yard: Yard, name: str) -> bool:
    row = yard.find(name)
    assert row is None or row.revision == 0
    return row is not None


def _staged(yard: Yard, name: str) -> bool:
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


def _both(yard: Yard, name: str) -> bool:
    found = {_staged(yard, f"{name}-{side}") for side in ("one", "two")}
    assert len(found) == 1, "all or none"
    return found.pop()


def _dropped(yard: Yard, name: str) -> bool:
    return yard.find(name) is None


def _renamed(yard: Yard, name: str) -> bool:
    old, new = yard.find(name), yard.find(f"{name}-new")
    assert (old is None) != (new is None)
    return new is not None


def _staging(caller: Caller, name: str) -> dict[str, Any]:
    """What Spark sends for a write to a branch, from what it knows: the table before the write."""
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


def _nothing(_: Yard, __: str) -> None:
    """What it needs is there."""


def _open(yard: Yard, name: str) -> None:
    yard.table(name, protected=False)


def _gated(yard: Yard, name: str) -> None:
    yard.table(name)


def _two(yard: Yard, name: str) -> None:
    yard.table(f"{name}-one")
    yard.table(f"{name}-two")


ACTS = {
    "create": Act(_nothing, _create, _made, COMMIT_POINTS),
    "commit": Act(_gated, _commit, _staged, COMMIT_POINTS),
    "transaction": Act(_two, _transact, _both, COMMIT_POINTS, files=2),
    "drop": Act(_open, _drop, _dropped, {**LEDGER_POINTS, **ANSWER_POINTS}, files=0),
    "rename": Act(_open, _rename, _renamed, {**LEDGER_POINTS, **ANSWER_POINTS}, files=0),
}


def require_settled(yard: Yard, name: str, act: str, point: str, passes: int) -> None:
    """Kill the Steward there; what it leaves is all or nothing, and after a restart the same key does it once."""
    chosen, key, before = ACTS[act], {"idempotency-key": str(uuid.uuid4())}, yard.left_over()
    chosen.prepare(yard, name)
    with yard.serving() as serving, yard.caller(serving) as caller:
        serving.arm(point, passes)
        with pytest.raises(httpx.TransportError):  # the client hears nothing, and so knows nothing
            chosen.send(caller, name, key)
        serving.gone()
    happened = chosen.points[point]
    assert chosen.happened(yard, name) is happened
    yard.require_whole()
    with yard.serving() as serving, yard.caller(serving) as caller:
        assert chosen.happened(yard, name) is happened, "the restart changes nothing"
        answers = [chosen.send(caller, name, key) for _ in range(2)]
    assert [answer.status_code // 100 for answer in answers] == [2, 2], answers[0].text
    assert answers[0].content == answers[1].content
    assert chosen.happened(yard, name)
    yard.require_whole()
    left = yard.left_over() - before
    assert len(left) <= (0 if happened else chosen.files), "nobody points to these, and nothing else is left"


def deaths() -> list[tuple[str, str, int]]:
    """Every act at every point, at each of its files: act, point, how often the point is passed before."""
    return [
        (name, point, passes)
        for name, act in ACTS.items()
        for point in act.points
        for passes in range(act.files if point in FILE_POINTS else 1)
    ]
