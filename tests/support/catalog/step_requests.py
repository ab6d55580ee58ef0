"""The parts of a random example's steps: commits as clients send them, with what must happen to each."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from pvdm.catalog.commit import Change
from pvdm.catalog.tables import Tables
from pvdm.errors import PvdmError
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.model.role import Role
from tests.support.catalog.compared import Commit, Expected, Stage, World
from tests.support.catalog.core import OPERATOR, PRODUCER, grant, set_ref
from tests.support.catalog.snapshot_files import COLUMNS, DAY, TOWN
from tests.support.ledger.rows import hex64
from tests.support.oracles.catalog_model import Doc, facts

GATED = "gated"
"""The table that is protected from the beginning, and so cannot be dropped."""

TABLE: st.SearchStrategy[str] = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.world.tables)))
NAME = st.sampled_from(["t1", "t2", "t3", GATED])
REF = st.sampled_from(["stage", "other", "main", "v1"])
PICKS = st.lists(st.integers(0, 3), min_size=1, max_size=2)
SKEW = st.sampled_from([0, -20_000, 20_000])
AT = st.integers(0, 9)
VERSION = st.sampled_from([2, 1, 3])
PARTITIONED: st.SearchStrategy[tuple[int, ...]] = st.sampled_from([(), (DAY,), (TOWN,), (DAY, TOWN)])
WRONG = st.sampled_from([None, None, "new_sha256", "base_sha256", "table_uuid"])
ACTOR = st.sampled_from(
    [PRODUCER, OPERATOR, grant(Role.STEWARD, "*"), grant(Role.PUBLISHER), grant(Role.CONSUMER), grant(domain="risk")]
)
PARTITION_NAMES = {DAY: "day", TOWN: "town"}
OTHER_UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"

NEVER: list[Doc] = [
    {"manifest-list": "file:///elsewhere/x.avro"},
    {"manifest-list": "x/../y"},
    {"manifest-list": 7},
    {"summary": {}},
    {"summary": None},
    {"snapshot-id": "7"},
    {"snapshot-id": 2**63},
    {"timestamp-ms": None},
]
"""Fields with which every table refuses a snapshot."""

NOT_SANE: list[Doc] = [
    {"sequence-number": 2**63 - 1},
    {"timestamp-ms": 0},
    {"timestamp-ms": 2**62},
    {"schema-id": 9},
    {"parent-snapshot-id": 4_242},
    {"summary": {"operation": "append", "note": "x" * 70_000}},
]
"""Fields with which a protected table refuses a snapshot."""

JUNK: list[Any] = [
    {"action": "no-such-update"},
    {"action": "set-snapshot-ref", "ref-name": "stage"},
    {"action": "set-snapshot-ref", "ref-name": "", "type": "branch", "snapshot-id": 1},
    {"action": "set-snapshot-ref", "ref-name": "stage", "type": "twig", "snapshot-id": 1},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "tag", "snapshot-id": 1},
    {"action": "set-snapshot-ref", "ref-name": "stage", "type": "branch", "snapshot-id": 4_242},
    {"action": "add-snapshot", "snapshot": {}},
    {"action": "set-current-schema", "schema-id": 77},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "set-default-spec", "spec-id": 77},
    {"action": "set-default-sort-order", "sort-order-id": 77},
    {"action": "add-schema", "schema": {"type": "struct", "fields": [COLUMNS[0], COLUMNS[0]]}},
    {"action": "add-spec", "spec": {"fields": [{"name": "x", "transform": "day", "source-id": 99}]}},
    {"action": "upgrade-format-version", "format-version": 4},
    {"action": "assign-uuid", "uuid": OTHER_UUID},
    {"action": "set-properties", "updates": {"n": 1}},
    {"action": "set-location", "location": "file:///elsewhere"},
    "not an object",
]
"""Updates that every table refuses."""


class Steps(RuleBasedStateMachine):
    """The tables of one example, and the parts from which its rules are built."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.world = World(stage)
        self.counter = 0

    @property
    def desk(self) -> Tables:
        return self.world.stage.catalog.tables

    def tick(self) -> int:
        """Move the clock by a second; returns a number that no step had before."""
        self.world.stage.time.pass_by(1_000_000)
        self.counter += 1
        return self.counter

    def make(self, name: str, levels: Levels, version: int, sources: tuple[int, ...]) -> None:
        """Create a table, partitioned by these columns, and check that it is as requested."""
        self.desk.create(PRODUCER, levels, request(name, version, sources))
        self.world.add_table(name, levels)
        document = self.world.latest(name)
        assert columns_of(document) == COLUMNS
        assert [each["source-id"] for each in document["partition-specs"][0]["fields"]] == list(sources)
        assert (document["format-version"], document["refs"], document["snapshots"]) == (version, {}, [])
        self.world.check()

    def write(
        self, table: str, ref: str, picks: list[int], *, replacing: bool = False, skew: int = 0, age: int = 0
    ) -> Commit:
        """The commit of a writer that loaded the table `age` changes ago and appends the files `picks` to a ref."""
        world, model, loaded = self.world, self.world.model(table), self.world.tables[table].loaded
        base, latest = loaded[max(0, len(loaded) - 1 - age)], loaded[-1]
        head = base["refs"].get(ref, {}).get("snapshot-id")
        prepared = world.stage.pool.append(
            base,
            picks,
            parent=next((each for each in base["snapshots"] if each["snapshot-id"] == head), None),
            held=() if head is None else model.rows[head],
            now_ms=world.now_ms + skew,
            replacing=replacing,
        )
        prepared.snapshot["x-note"] = {"by": "a test", "n": [1, 2.5]}
        world.prepared[prepared.snapshot_id] = prepared
        changes = [{"action": "add-snapshot", "snapshot": prepared.snapshot}, set_ref(ref, prepared.snapshot_id)]
        requirements = [
            {"type": "assert-table-uuid", "uuid": base["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": head},
        ]
        expected = Expected.DONE
        if model.protected and (ref == "main" or model.is_tag(ref)):
            expected = Expected.GATED if base is latest else Expected.REFUSED
        elif model.head(ref) != head:
            expected = Expected.REFUSED
        elif base.get("last-sequence-number") != latest.get("last-sequence-number"):
            # Iceberg lets a first snapshot share the last number; a protected table does not.
            expected = Expected.REFUSED if head is not None or model.protected else Expected.EITHER
        elif base is not latest:
            expected = Expected.EITHER
        return Commit(table, changes, expected, requirements)

    def point(self, table: str, ref: str, target: int, **more: object) -> Commit:
        """A commit that creates a branch, or moves it, to an existing snapshot."""
        model, changes = self.world.model(table), [set_ref(ref, target, **more)]
        return self.gated(table, changes, allowed=not (model.protected and (ref == "main" or model.is_tag(ref))))

    def gated(self, table: str, changes: list[Doc], *, allowed: bool, **more: Any) -> Commit:
        """A commit that the gate refuses, unless it is `allowed` or changes nothing."""
        allowed = allowed or not self.changes(table, changes)
        return Commit(table, changes, Expected.DONE if allowed else Expected.GATED, **more)

    def changes(self, table: str, updates: Sequence[Doc]) -> bool:
        """Whether the updates change the table. The gate does not refuse updates that change nothing."""
        after = copy.deepcopy(self.world.model(table))
        after.apply(updates)
        return facts(after.document) != facts(self.world.model(table).document)

    def permitted(self, commit: Commit, wrong: str | None = None) -> Commit:
        """The commit with the gate's permit for it; `wrong` names a field of the permit to be changed."""
        permit = self.world.permit(commit.table, commit.updates)
        if permit is None:
            return commit
        if wrong is None:
            return replace(commit, permit=permit, expected=Expected.DONE)
        wrong_permit = replace(permit, **{wrong: OTHER_UUID if wrong == "table_uuid" else hex64("another")})
        protected = self.world.model(commit.table).protected
        return replace(commit, permit=wrong_permit, expected=Expected.GATED if protected else Expected.DONE)

    def migrate(self, table: str, changes: list[Doc], *, valid: bool = True) -> None:
        """Commit a change of schema, spec, properties or format. Only an unprotected table accepts it, if `valid`."""
        self.tick()
        if not valid:
            self.world.commit(Commit(table, changes, Expected.REFUSED))
            return
        self.world.commit(self.gated(table, changes, allowed=not self.world.model(table).protected))

    def reshape(self, table: str, columns: list[Doc], *, without: int | None = None) -> None:
        """Commit another schema, as a client does. It is not valid to drop a column that spec or sort order use."""
        document = self.world.latest(table)
        same = [each["schema-id"] for each in document["schemas"] if each["fields"] == columns]
        changes: list[Doc] = [{"action": "set-current-schema", "schema-id": same[0] if same else -1}]
        if not same:
            changes.insert(0, {"action": "add-schema", "schema": {"type": "struct", "fields": columns}})
        self.migrate(table, changes, valid=without not in _used(document))


def request(name: str, version: int, sources: tuple[int, ...]) -> Doc:
    """The request that an engine sends for CREATE TABLE."""
    spec = [{"name": PARTITION_NAMES[source], "transform": "identity", "source-id": source} for source in sources]
    return {
        "name": name,
        "schema": {"type": "struct", "schema-id": 0, "fields": COLUMNS},
        "partition-spec": {"fields": spec},
        "properties": {"format-version": str(version), "owner": "sales"},
    }


def create_change(base: Doc, levels: Levels, name: str, *more: Doc) -> Change:
    """The commit that creates a table from a staged document, as an engine sends it for CREATE TABLE AS SELECT."""
    updates: list[Doc] = [
        {"action": "assign-uuid", "uuid": base["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": base["format-version"]},
        {"action": "add-schema", "schema": base["schemas"][0], "last-column-id": base["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": base["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": base["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": base["location"]},
        {"action": "set-properties", "updates": base["properties"]},
        *more,
    ]
    return Change(levels, name, [{"type": "assert-create"}], updates)


def columns_of(document: Doc) -> list[Doc]:
    """The columns of the current schema."""
    current = document["current-schema-id"]
    found: list[Doc] = next(each for each in document["schemas"] if each["schema-id"] == current)["fields"]
    return found


def _used(document: Doc) -> set[int]:
    """The ids of columns that the default spec and the default sort order use."""
    spec = next(each for each in document["partition-specs"] if each["spec-id"] == document["default-spec-id"])
    order = next(each for each in document["sort-orders"] if each["order-id"] == document["default-sort-order-id"])
    return {each["source-id"] for each in (*spec["fields"], *order["fields"]) if each["transform"] != "void"}


@contextlib.contextmanager
def refused(kind: type[PvdmError] = PvdmError) -> Iterator[None]:
    """The block must raise an error of this kind."""
    with pytest.raises(kind):
        yield
