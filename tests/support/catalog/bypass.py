"""The scene of the tests that try to bypass the gate: a protected table with staged data, callers, and attacks."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pvdm.lake.format.table.main_state import MainState
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.model.role import Role
from tests.support.catalog.http import Caller, Lake, lake_at, set_ref, snapshot
from tests.support.lake.metadata import partition_statistics, statistics
from tests.support.steward.http import bearer

Doc = dict[str, Any]

T = "/namespaces/sales/tables/t"
# Ids of snapshots: of `main`, and of branches that only some roles see.
FIRST, HEAD = 11, 12
HIDDEN, HIDDEN_HEAD, IN_EMPTY = 8_800_000_000_000_001, 8_800_000_000_000_002, 8_800_000_000_000_003
SECRET_WORDS = (
    *(str(each) for each in (HIDDEN, HIDDEN_HEAD, IN_EMPTY)),
    *("secretwork", "secretpin", "secretstage", "secretfile", "secrettable"),
)
"""A response has leaked if it contains one of these, and its caller may not see staged data or the other domain."""
SEEING_ALL = {"producer", "operator", "steward", "auditor"}
ROLES = {
    "producer": Role.PRODUCER,
    "operator": Role.OPERATOR,
    "publisher": Role.PUBLISHER,
    "steward": Role.STEWARD,
    "auditor": Role.AUDITOR,
    "consumer": Role.CONSUMER,
}


@dataclass(slots=True)
class Scene:
    """A served catalog: `sales.t` and `sales.empty` are protected, `sales.open` and `risk.secrettable` are not.

    `known` is the result of the last `protected_facts()`.
    """

    lake: Lake
    callers: dict[str, Caller] = field(default_factory=dict)
    known: dict[str, object] | None = None

    def row(self, name: str = "t", levels: tuple[str, ...] = ("sales",)) -> TableRow:
        with self.lake.steward.stand.notary.ledger.read() as unit:
            row = tables.find(unit, namespaces.get(unit, levels).namespace_id, name)
        assert row is not None, "the table is gone"
        return row

    def table(self, name: str = "t", namespace: str = "sales") -> Doc:
        """The table as an operator sees it."""
        found: Doc = self.callers["operator"].done("GET", f"/namespaces/{namespace}/tables/{name}")
        return found

    @property
    def location(self) -> str:
        return self.row().location

    def next(self, snapshot_id: int, *, parent: int | None = HEAD, name: str = "t", **more: Any) -> Doc:
        """An add-snapshot update that every check accepts, apart from the fields in `more`."""
        added = snapshot(self.table(name), snapshot_id, parent=parent)
        # The clock stands still, but the table's last update may be later than it.
        added["snapshot"]["timestamp-ms"] = self.lake.steward.stand.time.wall // 1_000
        added["snapshot"] |= more
        return added

    def main(self) -> dict[str, object]:
        """Everything that `main` shows, as bytes where there are bytes. Staging changes none of it."""
        row = self.row()
        metadata = self.lake.steward.stand.notary.catalog.states.load(row).metadata
        state = json.dumps(sorted(MainState.of(metadata).facts.items())).encode()
        consumer = self.callers["consumer"].ask("GET", T)
        file = Path(consumer.json()["metadata-location"].removeprefix("file://")).read_bytes()
        return {
            "row": (row.table_id, row.namespace_id, row.name, row.domain, row.table_uuid, row.location),
            "protected": row.contract_hash,
            "main state": state,
            "consumer's answer": (consumer.status_code, consumer.content, consumer.headers["etag"]),
            "consumer's file": file,
            "files": self.files(),
        }

    def protected_facts(self) -> dict[str, object]:
        """Everything that a refused request must not change: `main`, staged data, the row, and the other tables."""
        others = [("open", ("sales",)), ("empty", ("sales",)), ("secrettable", ("risk",))]
        return self.main() | {"row itself": self.row(), "others": [self.row(*other) for other in others]}

    def files(self) -> dict[str, str]:
        """The files in the table's folder, with their hashes."""
        home = Path(self.location.removeprefix("file://"))
        found = sorted(path for path in home.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


Ask = Callable[[Scene, Caller], httpx.Response]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: the caller, the request, and the expected status and error code (empty if no code is sent)."""

    name: str
    by: str
    ask: Ask
    status: int
    code: str = ""

    @property
    def named(self) -> str:
        """The attack's name in test reports."""
        return f"{self.name} by {self.by}"


def commit(*updates: Any, requirements: list[Any] | None = None, table: str = "t") -> Ask:
    """A commit of these updates. A callable among them is called with the scene when the commit is sent."""

    def ask(scene: Scene, caller: Caller) -> httpx.Response:
        return caller.commit(table, resolve_updates(scene, *updates), requirements)

    return ask


def resolve_updates(scene: Scene, *updates: Any) -> list[Any]:
    """The updates, with callables replaced by what they return for the scene."""
    found: list[Any] = []
    for update in updates:
        one_or_more = update(scene) if callable(update) else update
        found.extend(one_or_more if isinstance(one_or_more, list) else [one_or_more])
    return found


def run(scene: Scene, attack: Attack) -> httpx.Response:
    """The attack is refused as expected, its response leaks nothing, and nothing has changed."""
    before = scene.known or scene.protected_facts()
    response = attack.ask(scene, scene.callers[attack.by])
    require_no_trace(attack.by, response)
    code = response.json()["error"]["pvdm-code"] if attack.code else ""
    assert (response.status_code, code) == (attack.status, attack.code), response.text
    scene.known = scene.protected_facts()
    require_same(before, scene.known)
    return response


def require_same(before: dict[str, object], after: dict[str, object]) -> None:
    for name, value in before.items():
        assert after[name] == value, f"{name} has changed"


def require_no_trace(by: str, response: httpx.Response) -> None:
    """The response, with its headers, has nothing that this caller may not see, apart from words of its own request."""
    if by in SEEING_ALL or by.startswith("attempt"):
        return
    sent = str(response.request.url) + response.request.content.decode(errors="replace")
    received = response.text + str(response.headers)
    found = [trace for trace in SECRET_WORDS if trace in received and trace not in sent]
    assert not found, f"the response to {by} has {found}"


def _prepare(lake: Lake) -> None:
    """Create `t`: `main` has a history, a tag, statistics and a key; a schema, a spec and a sort order are unused."""
    operator = lake.caller()
    table = operator.make("t", properties={"owner": "sales", "write.parquet.compression-codec": "zstd"})
    field = {"id": 3, "name": "town", "required": False, "type": "string"}
    schema = table["metadata"]["schemas"][0]
    wide = schema | {"schema-id": 1, "fields": [*schema["fields"], field]}
    order = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    steps: list[list[Doc]] = [
        [snapshot(table, FIRST), set_ref("main", FIRST)],
        [{"action": "add-schema", "schema": wide}, {"action": "set-current-schema", "schema-id": -1}],
        [{"action": "add-schema", "schema": wide | {"schema-id": 2, "fields": [*schema["fields"][:1], field]}}],
        [{"action": "add-spec", "spec": {"fields": [{"name": "n", "transform": "identity", "source-id": 2}]}}],
        [{"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [order]}}],
        [{"action": "set-statistics", "statistics": statistics(FIRST)}],
        [{"action": "set-partition-statistics", "partition-statistics": partition_statistics(FIRST)}],
        [{"action": "add-encryption-key", "encryption-key": {"key-id": "k0", "encrypted-key-metadata": "AAEC"}}],
    ]
    for updates in steps:
        _done(operator.commit("t", updates))
    second = snapshot(operator.done("GET", T), HEAD, parent=FIRST)
    second["snapshot"]["timestamp-ms"] = table["metadata"]["last-updated-ms"] + 2
    _done(operator.commit("t", [second, set_ref("main", HEAD), set_ref("v1", FIRST, "tag")]))
    home = Path(table["metadata"]["location"].removeprefix("file://"))
    (home / "metadata").mkdir(parents=True)
    (home / "metadata" / f"snap-{HEAD}.avro").write_bytes(b"a manifest list of main")
    lake.protect("t")


def _stage(scene: Scene) -> None:
    """Stage snapshots that only producers, operators, auditors and the Steward may see."""
    producer = scene.callers["producer"]
    file: Doc = {"manifest-list": f"{scene.location}/metadata/secretfile.avro"}
    _done(producer.commit("t", [scene.next(HIDDEN, **file), set_ref("secretwork", HIDDEN)]))
    _done(producer.commit("t", [scene.next(HIDDEN_HEAD, parent=HIDDEN), set_ref("secretwork", HIDDEN_HEAD)]))
    _done(producer.commit("t", [{"action": "set-statistics", "statistics": statistics(HIDDEN)}]))
    _done(producer.commit("t", [set_ref("secretpin", HEAD)]))
    first = scene.next(IN_EMPTY, parent=None, name="empty", **rows(0))
    _done(producer.commit("empty", [first, set_ref("secretstage", IN_EMPTY)]))


def rows(first: int, count: int = 3) -> Doc:
    """The fields of a snapshot of format 3 about its rows."""
    return {"first-row-id": first, "added-rows": count}


def _done(response: httpx.Response) -> None:
    assert response.status_code == 200, response.text


@contextlib.contextmanager
def scene_at(folder: Path) -> Iterator[Scene]:
    """The scene in this folder."""
    with lake_at(folder) as lake:
        operator = lake.caller()
        operator.done("POST", "/namespaces", json={"namespace": ["risk"], "properties": {"pvdm.domain": "risk"}})
        operator.done("POST", "/namespaces", json={"namespace": ["sales", "gated"]})
        lake.protect_namespace("sales", "gated")
        _prepare(lake)
        opened = operator.make("open")
        _done(operator.commit("open", [snapshot(opened, FIRST), set_ref("main", FIRST)]))
        operator.make("empty", properties={"format-version": "3"})
        lake.protect("empty")
        operator.make("secrettable", namespace="risk")
        scene = Scene(lake)
        for name, role in ROLES.items():
            scene.callers[name] = lake.caller(role, "*" if role is Role.OPERATOR else "sales", f"a-{name}")
        scene.callers["risk producer"] = lake.caller(Role.PRODUCER, "risk", "a-risk-producer")
        scene.callers["risk consumer"] = lake.caller(Role.CONSUMER, "risk", "a-risk-consumer")
        scene.callers["nobody"] = Caller(lake.steward.http, {})
        uuid = scene.row().table_uuid
        for name in ("one", "two"):
            prefix = f"{scene.location}/attempts/{name}"
            scene.callers[f"attempt {name}"] = lake.attempt(uuid, prefix, f"pvdm-{name}")
        elsewhere = scene.row("empty")
        prefix = f"{elsewhere.location}/attempts/three"
        scene.callers["attempt elsewhere"] = lake.attempt(elsewhere.table_uuid, prefix, "pvdm-three")
        scene.callers["revoked"] = _revoked(lake)
        _stage(scene)
        yield scene


def _revoked(lake: Lake) -> Caller:
    """A caller whose token was revoked."""
    token, grant = lake.steward.stand.token(Role.PRODUCER, "sales", "a-revoked")
    lake.steward.stand.notary.access.revoke(grant.token_id)
    return Caller(lake.steward.http, bearer(token))
