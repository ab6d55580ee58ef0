"""Random steps for a catalog and its model: staging, publishing, migrations, races, and requests that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from pvdm.errors import NotAllowedError
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from tests.support.catalog.compared import Commit, Expected
from tests.support.catalog.core import OPERATOR, PRODUCER, set_ref
from tests.support.catalog.snapshot_files import ID, TOWN
from tests.support.catalog.step_requests import (
    ACTOR,
    AT,
    GATED,
    JUNK,
    NAME,
    NEVER,
    NOT_SANE,
    OTHER_UUID,
    PARTITION_NAMES,
    PARTITIONED,
    PICKS,
    REF,
    SKEW,
    TABLE,
    VERSION,
    WRONG,
    Steps,
    columns_of,
    create_change,
    refused,
    request,
)
from tests.support.lake.metadata import document_of
from tests.support.oracles.catalog_model import Doc, history_needs_none_of


class Staging(Steps):
    """Branches, tags, publication, expiry."""

    @rule(table=TABLE, ref=REF, picks=PICKS, replacing=st.booleans(), skew=SKEW, age=st.sampled_from([0, 0, 1, 2]))
    def append(self, table: str, ref: str, picks: list[int], replacing: bool, skew: int, age: int) -> None:
        self.tick()
        self.world.commit(self.write(table, ref, picks, replacing=replacing, skew=skew, age=age))

    @rule(table=TABLE, ref=REF, picks=PICKS, wrong=WRONG)
    def publish_rows(self, table: str, ref: str, picks: list[int], wrong: str | None) -> None:
        self.tick()
        self.world.commit(self.permitted(self.write(table, ref, picks), wrong))

    @rule(table=TABLE, branch=REF, wrong=WRONG)
    def publish_branch(self, table: str, branch: str, wrong: str | None) -> None:
        self.tick()
        head = self.world.model(table).head(branch)
        if head is not None:
            self.world.commit(self.permitted(self.point(table, "main", head), wrong))

    @rule(table=TABLE, ref=REF, at=AT, more=st.sampled_from([{}, {"x-why": 1.5}]))
    def branch(self, table: str, ref: str, at: int, more: Doc) -> None:
        self.tick()
        known = sorted(self.world.model(table).snapshots)
        if known:
            self.world.commit(self.point(table, ref, known[at % len(known)], **more))

    @rule(table=TABLE, ref=REF)
    def keep_less_of_a_branch(self, table: str, ref: str) -> None:
        self.tick()
        head = self.world.model(table).head(ref)
        if head is not None and not self.world.model(table).is_tag(ref):
            self.world.commit(self.point(table, ref, head, **{"min-snapshots-to-keep": 1, "max-snapshot-age-ms": 1}))

    @rule(table=TABLE, ref=st.sampled_from(["v1", "stage"]), at=AT, by=st.sampled_from([OPERATOR, PRODUCER]))
    def tag(self, table: str, ref: str, at: int, by: Grant) -> None:
        self.tick()
        model = self.world.model(table)
        known = sorted(model.snapshots)
        if known:
            target = known[at % len(known)]
            allowed = not model.protected or (by is OPERATOR and target in model.ancestry())
            self.world.commit(self.gated(table, [set_ref(ref, target, "tag")], allowed=allowed, by=by))

    @rule(table=TABLE, ref=REF)
    def remove_ref(self, table: str, ref: str) -> None:
        self.tick()
        model = self.world.model(table)
        allowed = not (model.protected and (ref == "main" or model.is_tag(ref)))
        self.world.commit(self.gated(table, [{"action": "remove-snapshot-ref", "ref-name": ref}], allowed=allowed))

    @rule(table=TABLE, at=AT, many=st.booleans())
    def expire(self, table: str, at: int, many: bool) -> None:
        self.tick()
        model = self.world.model(table)
        known = sorted(model.snapshots)
        if known:
            gone = known[: at % len(known) + 1] if many else [known[at % len(known)]]
            tagged = [model.head(ref) for ref in model.refs if model.is_tag(ref)]
            unneeded = history_needs_none_of(self.world.latest(table), set(gone))
            harmless = unneeded and not set(gone) & {*model.ancestry(), *tagged}
            changes: list[Doc] = [{"action": "remove-snapshots", "snapshot-ids": gone}]
            self.world.commit(self.gated(table, changes, allowed=harmless or not model.protected))

    @rule(table=TABLE, at=AT, kind=st.sampled_from(["statistics", "partition-statistics"]))
    def note_statistics(self, table: str, at: int, kind: str) -> None:
        self.tick()
        model = self.world.model(table)
        known = [*sorted(model.snapshots), 4_242]
        target = known[at % len(known)]
        allowed = not model.protected or (target in model.snapshots and target not in model.ancestry())
        file: Doc = {"snapshot-id": target, "statistics-path": "file:///s.puffin", "file-size-in-bytes": 9}
        if kind == "statistics":
            file |= {"file-footer-size-in-bytes": 4, "blob-metadata": []}
        commit = self.gated(table, [{"action": f"set-{kind}", kind: file}], allowed=allowed)
        if not allowed and commit.expected is Expected.DONE:
            # If the file is the same, it only moves to the end of its list. Consumers see that if there are others.
            commit = replace(commit, expected=Expected.EITHER)
        self.world.commit(commit)


class Refusals(Steps):
    """Requests that must be refused."""

    @rule(table=TABLE, ref=REF, odd=st.sampled_from(NEVER + NOT_SANE))
    def append_odd(self, table: str, ref: str, odd: Doc) -> None:
        self.tick()
        model = self.world.model(table)
        if odd in NOT_SANE and (not model.protected or (model.version == 1 and "sequence-number" in odd)):
            return
        commit = self.write(table, ref, [0])
        changes = [{"action": "add-snapshot", "snapshot": commit.updates[0]["snapshot"] | odd}, *commit.updates[1:]]
        self.world.commit(replace(commit, updates=changes, expected=Expected.REFUSED))

    @rule(table=TABLE, at=AT)
    def set_a_property_again(self, table: str, at: int) -> None:
        self.tick()
        properties = self.world.latest(table)["properties"]
        name = list(properties)[at % len(properties)]
        changes: list[Doc] = [
            {"action": "remove-properties", "removals": [name]},
            {"action": "set-properties", "updates": {name: properties[name]}},
        ]
        # The property moves to the end of the list, which is a change unless it was there.
        same = name == list(properties)[-1] or not self.world.model(table).protected
        self.world.commit(Commit(table, changes, Expected.DONE if same else Expected.GATED))

    @rule(table=TABLE, junk=st.sampled_from(JUNK), first=st.booleans())
    def send_junk(self, table: str, junk: Any, first: bool) -> None:
        self.tick()
        valid = self.write(table, "stage", [1]).updates
        self.world.commit(Commit(table, [junk, *valid] if first else [*valid, junk], Expected.REFUSED))

    @rule(table=TABLE, ref=REF, by=ACTOR)
    def append_as_somebody(self, table: str, ref: str, by: Grant) -> None:
        self.tick()
        commit, protected = self.write(table, ref, [2]), self.world.model(table).protected
        # A publisher does not see staged snapshots, so its table has no number for the next one.
        never = by.role in (Role.CONSUMER, Role.PUBLISHER) or by.domain == "risk"
        if never or (by.role is Role.STEWARD and not protected):
            commit = replace(commit, expected=Expected.REFUSED)
        elif by.role is not Role.PRODUCER:
            commit = replace(commit, expected=Expected.GATED if ref == "main" and protected else Expected.EITHER)
        self.world.commit(replace(commit, by=by))

    @rule(
        table=TABLE,
        wrong=st.sampled_from(
            [
                {"type": "assert-ref-snapshot-id", "ref": "stage", "snapshot-id": 4_242},
                {"type": "assert-table-uuid", "uuid": OTHER_UUID},
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 99},
                {"type": "assert-create"},
                {"type": "assert-what"},
            ]
        ),
    )
    def require_too_much(self, table: str, wrong: Doc) -> None:
        self.tick()
        commit = self.write(table, "stage", [0])
        self.world.commit(replace(commit, requirements=[wrong], expected=Expected.REFUSED))


class Migrations(Steps):
    """Changes of schema, spec, order, properties and format. A protected table does not accept them by a commit."""

    @rule(table=TABLE, name=st.sampled_from(["a", "b"]), value=st.sampled_from([None, "1"]))
    def change_property(self, table: str, name: str, value: str | None) -> None:
        if value is None:
            self.migrate(table, [{"action": "remove-properties", "removals": [name]}])
        else:
            self.migrate(table, [{"action": "set-properties", "updates": {name: value}}])

    @rule(table=TABLE, default=st.booleans())
    def add_column(self, table: str, default: bool) -> None:
        document = self.world.latest(table)
        number = document["last-column-id"] + 1
        column: Doc = {"id": number, "name": f"c{number}", "required": False, "type": "int"}
        if default and document["format-version"] > 2:
            column |= {"initial-default": 7, "write-default": 8}
        self.reshape(table, [*columns_of(document), column])

    @rule(table=TABLE, at=AT)
    def drop_column(self, table: str, at: int) -> None:
        columns = columns_of(self.world.latest(table))
        gone = columns[at % len(columns)]
        if len(columns) > 1:
            self.reshape(table, [each for each in columns if each is not gone], without=gone["id"])

    @rule(table=TABLE, at=AT)
    def rename_column(self, table: str, at: int) -> None:
        columns = columns_of(self.world.latest(table))
        old = columns[at % len(columns)]
        self.reshape(table, [each | {"name": f"{each['name']}_"} if each is old else each for each in columns])

    @rule(table=TABLE, sources=PARTITIONED)
    def partition_by(self, table: str, sources: tuple[int, ...]) -> None:
        document = self.world.latest(table)
        specs = document["partition-specs"]
        known = {each["source-id"]: each["field-id"] for spec in specs for each in spec["fields"]}
        if document["format-version"] == 1 and known:
            return  # format 1 keeps every partition field for ever, as a void one
        fields: list[Doc] = []
        for source in sources:
            known.setdefault(source, max(999, document["last-partition-id"], *known.values()) + 1)
            named = {"name": PARTITION_NAMES[source], "source-id": source, "field-id": known[source]}
            fields.append({"transform": "identity", **named})
        same = [each["spec-id"] for each in specs if each["fields"] == fields]
        changes: list[Doc] = [{"action": "set-default-spec", "spec-id": same[0] if same else -1}]
        if not same:
            changes.insert(0, {"action": "add-spec", "spec": {"fields": fields}})
        self.migrate(table, changes, valid=set(sources) <= {each["id"] for each in columns_of(document)})

    @rule(table=TABLE, source=st.sampled_from([ID, TOWN, None]))
    def sort_by(self, table: str, source: int | None) -> None:
        document = self.world.latest(table)
        fields: list[Doc] = []
        if source is not None:
            order = {"direction": "asc", "null-order": "nulls-first"}
            fields = [{"transform": "identity", "source-id": source, **order}]
        same = [each["order-id"] for each in document["sort-orders"] if each["fields"] == fields]
        changes: list[Doc] = [{"action": "set-default-sort-order", "sort-order-id": same[0] if same else -1}]
        if not same:
            changes.insert(0, {"action": "add-sort-order", "sort-order": {"order-id": 7, "fields": fields}})
        self.migrate(table, changes, valid=source in {None, *(each["id"] for each in columns_of(document))})

    @rule(table=TABLE, version=VERSION)
    def upgrade(self, table: str, version: int) -> None:
        valid = version >= self.world.model(table).version
        self.migrate(table, [{"action": "upgrade-format-version", "format-version": version}], valid=valid)

    @rule(table=TABLE)
    def move(self, table: str) -> None:
        place = self.world.latest(table)["location"].partition("-moved")[0]
        self.migrate(table, [{"action": "set-location", "location": f"{place}-moved{self.tick()}"}])

    @rule(table=TABLE)
    def add_key(self, table: str) -> None:
        key = {"key-id": f"k{self.tick()}", "encrypted-key-metadata": "AAEC"}
        self.migrate(table, [{"action": "add-encryption-key", "encryption-key": key}])


class Races(Steps):
    """Several requests at once."""

    @rule(table=TABLE, refs=st.tuples(REF, REF), permitted=st.booleans())
    def race(self, table: str, refs: tuple[str, str], permitted: bool) -> None:
        self.tick()
        first, second = (self.write(table, ref, [at]) for at, ref in enumerate(refs))
        self.world.race(self.permitted(first) if permitted else first, second)

    @rule(table=TABLE, ref=REF)
    def race_with_a_migration(self, table: str, ref: str) -> None:
        changes: list[Doc] = [{"action": "set-properties", "updates": {"raced": str(self.tick())}}]
        first = self.gated(table, changes, allowed=not self.world.model(table).protected)
        self.world.race(first, self.write(table, ref, [3]))

    @rule(table=TABLE, refs=st.tuples(REF, REF))
    def two_threads(self, table: str, refs: tuple[str, str]) -> None:
        self.tick()
        first, second = (self.write(table, ref, [at]) for at, ref in enumerate(refs))
        self.world.threads(first, second)

    @rule(refs=st.lists(REF, min_size=2, max_size=3), start=AT)
    def transaction(self, refs: list[str], start: int) -> None:
        self.tick()
        names = sorted(self.world.tables)
        rotated = [*names[start % len(names) :], *names[: start % len(names)]]
        commits = [self.write(name, ref, [at]) for at, (name, ref) in enumerate(zip(rotated, refs, strict=False))]
        if any(each.expected is not Expected.DONE for each in commits):
            commits = [replace(each, expected=Expected.REFUSED) for each in commits]
        self.world.transact(commits)


class CatalogMachine(Staging, Refusals, Migrations, Races):
    """One example: a protected table, an unprotected one, and others that are created, renamed and dropped."""

    @initialize(version=VERSION, sources=PARTITIONED, free=VERSION, shown=st.booleans(), registered=st.booleans())
    def begin(self, version: int, sources: tuple[int, ...], free: int, shown: bool, registered: bool) -> None:
        self.make(GATED, self.world.free, version, sources)
        self.make("t1", self.world.free, free, ())
        if shown:
            self.world.commit(self.write(GATED, "main", [0]))
        if registered:
            for table in (GATED, "t1"):
                self.register(table, table, unknown=True)
        self.world.protect(GATED)

    @rule(name=NAME, version=VERSION, sources=PARTITIONED, kept=st.booleans())
    def create(self, name: str, version: int, sources: tuple[int, ...], kept: bool) -> None:
        self.tick()
        if name not in self.world.tables:
            self.make(name, self.world.kept if kept else self.world.free, version, sources)
            return
        with refused():
            self.desk.create(PRODUCER, self.world.tables[name].levels, request(name, version, sources))
        self.world.check()

    @rule(name=NAME, version=VERSION, kept=st.booleans(), picks=PICKS)
    def create_as_select(self, name: str, version: int, kept: bool, picks: list[int]) -> None:
        self.tick()
        if name in self.world.tables:
            return
        levels = self.world.kept if kept else self.world.free
        base = document_of(self.desk.stage_create(PRODUCER, levels, request(name, version, ())))
        prepared = self.world.stage.pool.append(base, picks, parent=None, held=(), now_ms=self.world.now_ms)
        added = {"action": "add-snapshot", "snapshot": prepared.snapshot}
        change = create_change(base, levels, name, added, set_ref("main", prepared.snapshot_id))
        if kept:
            with refused(NotAllowedError):
                self.desk.commit(PRODUCER, [change])
        else:
            self.desk.commit(PRODUCER, [change])
            self.world.add_table(name, levels, snapshot=prepared)
        self.world.check()

    @rule(table=TABLE, purge=st.booleans())
    def drop(self, table: str, purge: bool) -> None:
        self.tick()
        levels = self.world.tables[table].levels
        if self.world.model(table).protected:
            with refused(NotAllowedError):
                self.desk.drop(PRODUCER, levels, table, purge=purge)
        else:
            try:
                self.desk.drop(PRODUCER, levels, table, purge=purge)
            except NotAllowedError as error:
                if not purge or error.reason != "purge_refused":
                    raise
                self.desk.drop(PRODUCER, levels, table)
            del self.world.tables[table]
        self.world.check()

    @rule(table=TABLE, name=NAME)
    def rename(self, table: str, name: str) -> None:
        self.tick()
        levels, other = self.world.tables[table].levels, self.world.tables.get(name)
        if self.world.model(table).protected or (other is not None and other.levels == levels):
            with refused():
                self.desk.rename(PRODUCER, (levels, table), (levels, name))
        elif other is None:
            self.desk.rename(PRODUCER, (levels, table), (levels, name))
            self.world.tables[name] = self.world.tables.pop(table)
        self.world.check()

    @rule(table=TABLE, name=NAME, unknown=st.booleans())
    def register(self, table: str, name: str, unknown: bool) -> None:
        """Register a table's file again: refused if the name is taken; after a drop the table is the same as before."""
        self.tick()
        old = self.world.tables[table]
        location = old.pointer.location
        if old.model.protected or name in self.world.tables.keys() - {table}:
            with refused():
                self.desk.register(OPERATOR, old.levels, table, location, overwrite=old.model.protected)
            self.world.check()
            return
        self.desk.drop(PRODUCER, old.levels, table)
        del self.world.tables[table]
        if unknown:
            old.model.document["x-elsewhere"] = {"list": [1, 2.5, None]}
            path = self.world.stage.pool.folder / f"{old.levels[0]}-{self.counter}.metadata.json"
            path.write_text(json.dumps(old.loaded[-1] | {"x-elsewhere": {"list": [1, 2.5, None]}}))
            location = f"file://{path}"
        self.desk.register(OPERATOR, old.levels, name, location)
        self.world.add_table(name, old.levels, like=old.model)
        self.world.check()

    @rule(table=TABLE)
    def protect(self, table: str) -> None:
        self.tick()
        self.world.protect(table)
        self.world.check()


def play(machine: Callable[[], CatalogMachine], *, examples: int, steps: int) -> None:
    """Run this many examples of up to so many steps. Hypothesis shortens the first one that fails."""
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # a function that creates a machine is accepted too
        settings=settings(max_examples=examples, stateful_step_count=steps),
    )
