"""Many writers at served Stewards, each with its own client: the outcome of each commit, and what tables must hold."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from pvdm.model.role import Role
from tests.support.catalog.http import V1, set_ref, snapshot
from tests.support.catalog.killed_stewards import FIRST, Yard, path_of
from tests.support.steward.http import bearer

WRITERS = 16
PATIENCE_SECONDS = 300


@dataclass(slots=True)
class Outcomes:
    """One writer's snapshot ids: committed ones in order, and refused ones. `unknown` counts unclear responses."""

    table: str
    branch: str
    committed: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    unknown: int = 0


@dataclass(slots=True)
class Writer:
    """A client like Spark: it loads the table, writes on the head of its branch, and loads again after a conflict."""

    urls: Callable[[], Sequence[str]]
    headers: dict[str, str]
    outcomes: Outcomes
    commits: int
    number: int

    def run(self) -> None:
        ids = itertools.count(1_000_000 * (self.number + 1))
        ends = time.monotonic() + PATIENCE_SECONDS
        with httpx.Client(timeout=60, trust_env=False) as http:
            while len(self.outcomes.committed) < self.commits:
                assert time.monotonic() < ends, f"writer {self.number} made too few commits in time: {self.outcomes}"
                self._try(http, next(ids))

    def _try(self, http: httpx.Client, snapshot_id: int) -> None:
        loaded = self._ask(http, "GET", None)
        if loaded is None or loaded.status_code != 200:
            return time.sleep(0.05)
        body = self._body(loaded.json(), snapshot_id)
        answer = self._ask(http, "POST", body)
        if answer is None or answer.status_code >= 500:
            return self._settle(http, snapshot_id, answer)
        if answer.status_code == 200:
            self.outcomes.committed.append(snapshot_id)
        else:
            assert answer.status_code == 409, answer.text
            self.outcomes.refused.append(snapshot_id)
        return None

    def _settle(self, http: httpx.Client, snapshot_id: int, answer: httpx.Response | None) -> None:
        """Look into the table whether the commit happened, as the response does not say. After a 503 it did not."""
        self.outcomes.unknown += 1
        while (found := self._ask(http, "GET", None)) is None or found.status_code != 200:
            time.sleep(0.05)
        is_committed = snapshot_id in [each["snapshot-id"] for each in found.json()["metadata"].get("snapshots", [])]
        if answer is not None and answer.status_code == 503:
            assert not is_committed, "a 503 means that nothing happened"
        (self.outcomes.committed if is_committed else self.outcomes.refused).append(snapshot_id)

    def _body(self, table: dict[str, Any], snapshot_id: int) -> dict[str, Any]:
        head = table["metadata"].get("refs", {}).get(self.outcomes.branch, {}).get("snapshot-id")
        return {
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": self.outcomes.branch, "snapshot-id": head}],
            "updates": [snapshot(table, snapshot_id, parent=head), set_ref(self.outcomes.branch, snapshot_id)],
        }

    def _ask(self, http: httpx.Client, method: str, body: object) -> httpx.Response | None:
        """The response of one of the Stewards; None if there was none."""
        url = random.choice(self.urls())
        path = f"{url}{V1}/namespaces/sales/tables/{self.outcomes.table}"
        try:
            return http.request(method, path, headers=self.headers, json=body)
        except httpx.TransportError:
            return None


class Attacker(threading.Thread):
    """A thread that tries to move `main` without a permit, again and again."""

    def __init__(self, urls: Callable[[], Sequence[str]], headers: dict[str, str], table: str) -> None:
        super().__init__(daemon=True)
        self.urls, self.headers, self.table = urls, headers, table
        self.answers: list[tuple[int, str]] = []
        self.stop = threading.Event()

    def run(self) -> None:
        ids = itertools.count(900_000_000)
        with httpx.Client(timeout=60, trust_env=False) as http:
            last = False
            while not last:
                # Once more after the writers have ended: then there is no conflict, and the gate gives the response.
                last = self.stop.is_set()
                path = f"{random.choice(self.urls())}{V1}/namespaces/sales/tables/{self.table}"
                try:
                    table = http.get(path, headers=self.headers).json()
                    updates = [snapshot(table, next(ids), parent=FIRST), set_ref("main", next(ids) - 1)]
                    answer = http.post(path, headers=self.headers, json={"requirements": [], "updates": updates})
                    self.answers.append((answer.status_code, answer.json()["error"]["type"]))
                except (httpx.TransportError, KeyError):
                    pass
                self.stop.wait(0.05)


def write(
    yard: Yard,
    urls: Callable[[], Sequence[str]],
    places: Sequence[tuple[str, str]],
    commits: int,
    *,
    attacked: str | None = None,
) -> tuple[list[Outcomes], list[tuple[int, str]]]:
    """Run one writer for each table and branch, all at once; returns their outcomes, and the attacker's responses."""
    headers = bearer(yard.stand.token(Role.PRODUCER, "sales", "writer")[0])
    outcomes = [Outcomes(table, branch) for table, branch in places]
    writers = [Writer(urls, headers, each, commits, number) for number, each in enumerate(outcomes)]
    failed: list[BaseException] = []
    barrier = threading.Barrier(len(writers))

    def run(writer: Writer) -> None:
        try:
            barrier.wait()
            writer.run()
        except BaseException as error:
            failed.append(error)

    attacker = None if attacked is None else Attacker(urls, headers, attacked)
    threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
    for thread in [*threads, *([] if attacker is None else [attacker])]:
        thread.start()
    for thread in threads:
        thread.join()
    if attacker is not None:
        attacker.stop.set()
        attacker.join()
    if failed:
        raise failed[0]
    return outcomes, [] if attacker is None else attacker.answers


def require_exact(yard: Yard, outcomes: Sequence[Outcomes]) -> None:
    """Each table has each acknowledged commit once and no other, and each of its documents logs the one before."""
    for table in {each.table for each in outcomes}:
        of_table = [each for each in outcomes if each.table == table]
        row = yard.row(table)
        document = yard.document(row)
        snapshots = {each["snapshot-id"]: each for each in document["snapshots"]}
        assert len(snapshots) == len(document["snapshots"]), "no snapshot is there twice"
        first = [FIRST] if FIRST in snapshots else []
        acknowledged = [each for writer in of_table for each in writer.committed]
        assert sorted(snapshots) == sorted([*first, *acknowledged]), "none lost, none doubled, none that was refused"
        numbers = sorted(each["sequence-number"] for each in snapshots.values())
        assert numbers == list(range(1, len(snapshots) + 1)), "sequence numbers are dense"
        assert document["last-sequence-number"] == len(snapshots)
        for writer in of_table:
            history = list(_ancestry(snapshots, document["refs"][writer.branch]["snapshot-id"]))
            assert history == writer.committed[::-1], "each branch holds its writer's commits in order"
        assert ("main" in document["refs"]) == bool(first)
        assert document.get("current-snapshot-id") in (FIRST if first else -1, None)
        _require_history(yard, table, len(acknowledged))


def _ancestry(snapshots: dict[int, dict[str, Any]], head: int) -> Iterator[int]:
    at: int | None = head
    while at is not None:
        yield at
        at = snapshots[at].get("parent-snapshot-id")


def _require_history(yard: Yard, table: str, commits: int) -> None:
    """Each document that the ledger's pointer named logs the one before, and there is one for each commit.

    The oldest documents may be gone; those that the newest one logs are there.
    """
    row = yard.row(table)
    locations = [each.location for each in yard.list_pointers(row)]
    kept = [each for each in locations if path_of(each).exists()]
    assert kept == locations[-len(kept) :], "only the oldest documents are removed"
    documents = [json.loads(path_of(location).read_bytes()) for location in kept]
    for before, document in zip(kept, documents[1:], strict=False):
        assert document["metadata-log"][-1]["metadata-file"] == before
    logged = [each["metadata-file"] for each in documents[-1].get("metadata-log", [])]
    assert logged == locations[:-1][-len(logged) :]
    assert set(logged) <= set(kept)
    assert (locations[-1], len(locations)) == (row.pointer.location, len(documents[-1]["snapshots"]) + 1)
    assert len(documents[-1]["snapshots"]) >= commits
