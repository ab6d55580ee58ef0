"""Random commits, valid, invalid and at once, against a model: without a permit main of a protected table rests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from pvdm import fault
from pvdm.catalog.sight import published
from pvdm.errors import PvdmError
from pvdm.lake.format.main_state import MainState
from pvdm.lake.format.metadata import TableMetadata
from pvdm.model.role import Role
from tests.catalog_examples import (
    FIRST,
    OPERATOR,
    PRODUCER,
    Core,
    Doc,
    core_in,
    grant,
    ref_is,
    set_ref,
    to_ref,
)
from tests.databases import memory_folder
from tests.lake_metadata_examples import column, partition_statistics, statistics
from tests.ledger_examples import hex64

pytestmark = pytest.mark.property

Draw = Callable[[st.SearchStrategy[Any]], Any]
REFS = st.sampled_from(["main", "main", "stage", "other", "v1"])
ACTORS = [PRODUCER, PRODUCER, PRODUCER, OPERATOR, grant(Role.PUBLISHER), grant(Role.CONSUMER), grant(domain="risk")]
ODD: list[Doc] = [
    {"sequence-number": 2**63 - 1},
    {"timestamp-ms": 0},
    {"schema-id": 9},
    {"manifest-list": "file:///elsewhere/x.avro"},
    {"manifest-list": "x/../y"},
    {"parent-snapshot-id": 4_242},
    {"first-row-id": 77, "added-rows": 1},
    {"snapshot-id": FIRST},
]


@dataclass
class Model:
    """What a table should hold: refs, snapshots and properties, changed by the plain words of the updates."""

    refs: dict[str, int]
    snapshots: set[int]
    properties: dict[str, str]

    @classmethod
    def of(cls, metadata: TableMetadata) -> Model:
        return cls(
            {name: ref.snapshot_id for name, ref in metadata.refs.items()},
            {each.snapshot_id for each in metadata.snapshots},
            dict(metadata.properties),
        )

    def apply(self, updates: list[Doc]) -> None:
        for update in updates:
            match update["action"]:
                case "add-snapshot":
                    self.snapshots.add(update["snapshot"]["snapshot-id"])
                case "set-snapshot-ref":
                    self.refs[update["ref-name"]] = update["snapshot-id"]
                case "remove-snapshot-ref":
                    self.refs.pop(update["ref-name"], None)
                case "remove-snapshots":
                    gone = set(update["snapshot-ids"]) & self.snapshots
                    self.snapshots -= gone
                    self.refs = {name: head for name, head in self.refs.items() if head not in gone}
                case "set-properties":
                    self.properties |= update["updates"]
                case "remove-properties":
                    self.properties = {k: v for k, v in self.properties.items() if k not in update["removals"]}


@dataclass
class World:
    """Two tables, one protected, with what was loaded of them so far."""

    core: Core
    draw: Draw
    models: dict[str, Model] = field(default_factory=dict)
    mains: dict[str, MainState] = field(default_factory=dict)
    loaded: dict[str, list[TableMetadata]] = field(default_factory=dict)
    happened: int = 0

    def start(self, version: int) -> None:
        for name in ("gated", "free"):
            state = self.core.table(name, version=version, protected=name == "gated", shown=self.draw(st.booleans()))
            self.models[name] = Model.of(state.metadata)
            self.mains[name] = MainState.of(state.metadata)
            self.loaded[name] = [state.metadata]

    def step(self) -> None:
        name = self.draw(st.sampled_from(["gated", "gated", "free"]))
        base = self.draw(st.sampled_from(self.loaded[name][-3:]))
        if self.draw(st.booleans()):
            base = self.loaded[name][-1]
        updates = self.updates(base)
        requirements = [ref_is(base, self.draw(REFS))] if self.draw(st.booleans()) else []
        permit = None
        if self.draw(st.integers(0, 4)) == 0:
            permit = self.permit(name, updates)
        act = self.meanwhile(name) if self.draw(st.integers(0, 3)) == 0 else fault.Call(lambda: None)
        row = self.core.get(name).row
        try:
            with fault.armed("catalog.after_metadata_file", act):
                self.core.commit(
                    name, updates, requirements=requirements, by=self.draw(st.sampled_from(ACTORS)), permit=permit
                )
        except PvdmError:
            permit = None
            if act.function.__name__ != "once":
                assert self.core.get(name).row == row
        else:
            self.models[name].apply(updates)
            self.happened += 1
        self.check(name, permitted=permit is not None)

    def meanwhile(self, name: str) -> fault.Call:
        """Somebody else's commit between file and swap, and into the model if it happened."""
        updates = self.updates(self.loaded[name][-1])
        left = [1]

        def once() -> None:
            if left[0]:
                left[0] = 0
                try:
                    self.core.commit(name, updates)
                except PvdmError:
                    return
                self.models[name].apply(updates)
                self.happened += 1

        return fault.Call(once)

    def permit(self, name: str, updates: list[Doc]) -> Any:
        try:
            made = self.core.permit_for(name, updates)
        except PvdmError:
            return None
        return made if self.draw(st.booleans()) else replace(made, new_sha256=hex64("other"))

    def updates(self, base: TableMetadata) -> list[Doc]:
        found: list[Doc] = []
        for _ in range(self.draw(st.integers(1, 2))):
            found += self.update(base)
        return found

    def update(self, base: TableMetadata) -> list[Doc]:
        draw, known = self.draw, [each.snapshot_id for each in base.snapshots] or [FIRST]
        kind = draw(st.integers(0, 11))
        if kind <= 4:
            ref = draw(REFS)
            head = base.refs.get(ref)
            parent: Doc = {} if head is None else {"parent-snapshot-id": head.snapshot_id}
            odd = draw(st.sampled_from(ODD)) if draw(st.integers(0, 3)) == 0 else {}
            snapshot = self.core.snapshot(base, **parent)
            return to_ref(ref, snapshot | odd)[: 1 if draw(st.integers(0, 5)) == 0 else 2]
        if kind <= 7:
            return [
                set_ref(draw(REFS), draw(st.sampled_from([*known, 4_242])), draw(st.sampled_from(["branch", "tag"])))
            ]
        return [draw(st.sampled_from(_other(base, draw(REFS), draw(st.sampled_from(known)))))]

    def check(self, name: str, *, permitted: bool) -> None:
        state = self.core.fresh().get(name)
        metadata = TableMetadata.parse(state.metadata.to_bytes())
        assert Model.of(metadata) == self.models[name]
        main = MainState.of(metadata)
        if name == "gated" and not permitted:
            assert main.differences(self.mains[name]) == ()
        self.mains[name] = main
        self.loaded[name].append(metadata)
        seen = published(metadata)
        ancestry = set()
        if metadata.current_snapshot_id is not None:
            ancestry = {each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id)}
        assert {each.snapshot_id for each in seen.snapshots} == ancestry
        if metadata.format_version < 3:
            for each in (metadata, seen):
                read = TableMetadataUtil.parse_raw(each.to_bytes().decode())
                assert read.current_snapshot_id == metadata.current_snapshot_id


def _other(base: TableMetadata, ref: str, snapshot_id: int) -> list[Doc]:
    wide = {**base.to_json()["schemas"][0]}  # type: ignore[index,dict-item]
    wide["fields"] = [*wide["fields"], column(base.last_column_id + 1, f"c{base.last_column_id}")]
    return [
        {"action": "remove-snapshot-ref", "ref-name": ref},
        {"action": "remove-snapshots", "snapshot-ids": [snapshot_id]},
        {"action": "set-properties", "updates": {"word": ref}},
        {"action": "remove-properties", "removals": ["word"]},
        {"action": "add-schema", "schema": wide},
        {"action": "set-location", "location": f"{base.location}-moved"},
        {"action": "set-statistics", "statistics": statistics(snapshot_id)},
        {"action": "set-partition-statistics", "partition-statistics": partition_statistics(snapshot_id)},
        {"action": "no-such-update"},
    ]


@given(data=st.data(), version=st.sampled_from([1, 2, 2, 3]))
@settings(max_examples=max(20, settings().max_examples // 10))
def test_whatever_is_sent_main_of_a_protected_table_changes_by_permit_only(
    migrated_file: Path, data: st.DataObject, version: int
) -> None:
    with memory_folder() as folder, core_in(folder, migrated_file) as core:
        world = World(core, data.draw)
        world.start(version)
        files = len(core.on_disk())
        for _ in range(data.draw(st.integers(1, 15), label="steps")):
            world.step()
        assert len(core.on_disk()) <= files + world.happened, "a try that was lost leaves no file"
