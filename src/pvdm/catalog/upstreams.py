"""Tables of upstream catalogs: added to the ledger when first seen, and read from the upstream each time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.errors import Code, InputError, PvdmError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, Pointer, parse_location
from pvdm.lake.upstream import CommitRequest, TableIdentifier, Upstream, UpstreamState, moved_error
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import NewTable, TableRow
from pvdm.ledger.clock import LedgerClock

UPSTREAM_STALE_MAX_SECONDS: Final = 600  # how long a lower sequence number counts as a cache's stale answer
PlaceCheck = Callable[[Location, Levels | None], None]
"""Raises if the location overlaps a place of the Steward or, if levels are given, a namespace's folder outside them."""


@dataclass(frozen=True, slots=True)
class Mount:
    """The namespaces below `levels` in this catalog are those below `upstream_root` in the upstream catalog.

    The upstream's tables must lie below one of `places`. Without places they may lie wherever no other table and no
    file of the Steward does.
    """

    name: str
    levels: Levels
    upstream_root: Levels
    upstream: Upstream
    places: tuple[Location, ...] = ()


class Upstreams:
    """The upstream catalogs of this Steward. `check_place` is `CatalogAccess.require_upstream_place`.

    Without `clock` tables are only read: none is added to the ledger or dropped from it.
    """

    def __init__(
        self, ledger: Ledger, clock: LedgerClock | None, mounts: Sequence[Mount], check_place: PlaceCheck
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._check_place = check_place
        self._mounts: Mapping[str, Mount] = {mount.name: mount for mount in mounts}
        self._lock = threading.Lock()
        self._seen: dict[str, Pointer] = {}  # the last pointer of each table, by table id
        self._newest: dict[str, tuple[int, float]] = {}  # by table id: highest sequence number, and when it was seen

    def with_ledger(self, ledger: Ledger) -> Upstreams:
        """The same upstreams through new connections and another ledger, for reading, with nothing remembered."""
        mounts = [replace(each, upstream=each.upstream.reconnect()) for each in self._mounts.values()]
        return Upstreams(ledger, None, mounts, self._check_place)

    def close(self) -> None:
        """Close all connections."""
        for mount in self._mounts.values():
            mount.upstream.close()

    def mount_of(self, levels: Levels) -> Mount | None:
        """The mount of a namespace, or None."""
        return next((each for each in self._mounts.values() if levels[: len(each.levels)] == each.levels), None)

    def require_not_upstream(self, levels: Levels, *, operation: str) -> None:
        """Raise `upstream_owned` for a namespace of an upstream: its tables are created and dropped there."""
        mount = self.mount_of(levels)
        if mount is not None:
            message = f"cannot {operation}: the namespace belongs to the upstream catalog {mount.name}"
            hint = "nothing was changed; tables of an upstream are created, renamed and dropped there"
            raise Code.UPSTREAM_OWNED(message, got="a change through this catalog", hint=hint)

    def require_namespace(self, levels: Levels) -> None:
        """Raise if the namespace belongs to an upstream that lacks it."""
        mount = self.mount_of(levels)
        there = () if mount is None else _upstream_levels(mount, levels)  # (): the whole upstream, which exists
        if mount is not None and there and not mount.upstream.has_namespace(there):
            message = f"the upstream catalog {mount.name} has no such namespace"
            expected = namespaces.dotted_name(there)
            raise Code.UPSTREAM_REFUSED(message, reason="upstream_namespace_unknown", expected=expected, got="none")

    def list_table_names(self, levels: Levels) -> list[str] | None:
        """The names of the upstream's tables in a namespace. None if the namespace is not an upstream's."""
        mount = self.mount_of(levels)
        if mount is None:
            return None
        there = _upstream_levels(mount, levels)
        return mount.upstream.names(there) if there else []

    def add_from_upstream(self, namespace: Namespace, name: str) -> TableRow | None:
        """Add a table of the upstream to the ledger, and return its row. None if the upstream has no such table."""
        mount = self.mount_of(namespace.levels)
        if mount is None or not _upstream_levels(mount, namespace.levels):
            return None
        try:
            seen = mount.upstream.load(TableIdentifier(_upstream_levels(mount, namespace.levels), name))
        except InputError as error:
            if error.code != Code.TABLE_UNKNOWN:
                raise
            return None
        if namespace.protected_by is not None and seen.metadata.snapshots:
            message = f"{name} is not served: its namespace protects its tables, and it has rows already"
            raise Code.CHANGE_GATED(message, reason="main_gated")
        self._require_place(mount, seen)
        self._check_place(parse_location(seen.metadata.location), mount.levels)
        return self._add(mount, namespace, name, seen)

    def load(self, row: TableRow) -> tuple[TableRow, UpstreamState]:
        """The row with its pointer at the upstream, and the table's state there. Raises if UUID or place differ."""
        mount, identifier = self._find_mount(row)
        seen = mount.upstream.load(identifier)
        found = str(seen.metadata.table_uuid).lower()
        if found != row.table_uuid:
            raise self._replaced_error(row, found)
        if parse_location(seen.metadata.location) != parse_location(row.location):
            message, got = f"the upstream has moved the table {row.name} to another place", seen.metadata.location[:200]
            raise Code.UPSTREAM_WRONG(message, reason="upstream_location_changed", expected=row.location, got=got)
        self._require_place(mount, seen)
        pointer = _pointer_of(seen)
        self._require_same_content(row, pointer)
        self._note_newest(row, seen)
        return replace(row, pointer=pointer), seen

    def require_newest(self, row: TableRow, metadata: TableMetadata) -> None:
        """Raise `upstream_stale` if a newer state was seen before: an older one lacks what was staged later."""
        with self._lock:
            newest, _ = self._newest.get(row.table_id, (0, 0.0))
        if row.upstream is not None and metadata.last_sequence_number < newest:
            message = f"the upstream shows an older state of {row.name} than it did before"
            expected = f"sequence number {newest} or later"
            raise Code.UPSTREAM_STALE(message, expected=expected, got=str(metadata.last_sequence_number))

    def require_lossless(self, row: TableRow, seen: UpstreamState) -> None:
        """Raise if a commit to the table at the upstream would lose a part of its document."""
        mount, _ = self._find_mount(row)
        mount.upstream.require_lossless(seen)

    def commit(self, row: TableRow, seen: UpstreamState, requirements: Sequence[Json], updates: Sequence[Json]) -> None:
        """Commit at the upstream, if the table is still in the state `seen`. Raises `upstream_moved` if it is not."""
        mount, identifier = self._find_mount(row)
        try:
            mount.upstream.commit(identifier, CommitRequest(seen, requirements, updates))
        except InputError as error:
            # Iceberg's Java server answers "bad request" if another commit got the sequence number meanwhile.
            if error.code != Code.UPSTREAM_REJECTED:
                raise
            if mount.upstream.load(identifier).metadata_location == seen.metadata_location:
                raise
            raise moved_error(mount.name, identifier, error.got or Code.UPSTREAM_REJECTED) from None

    def _find_mount(self, row: TableRow) -> tuple[Mount, TableIdentifier]:
        """The mount of the table's upstream, and the table's name there."""
        mount = self._mounts.get(row.upstream or "")
        with self._ledger.read() as unit:
            namespace = namespaces.find_by_id(unit, row.namespace_id)
        if mount is None or namespace is None or self.mount_of(namespace.levels) is not mount:
            message = f"{row.name} is a table of an upstream catalog that is not configured"
            got = ", ".join(sorted(self._mounts)) or "none"
            raise Code.UPSTREAM_REFUSED(message, reason="upstream_not_configured", expected=row.upstream or "", got=got)
        return mount, TableIdentifier(_upstream_levels(mount, namespace.levels), row.name)

    def _add(self, mount: Mount, namespace: Namespace, name: str, seen: UpstreamState) -> TableRow:
        """Add the table's row, or return the row that another caller has added meanwhile."""
        pointer = _pointer_of(seen)

        def work(unit: Unit) -> TableRow:
            found = tables.find(unit, namespace.namespace_id, name)
            if found is not None:
                return found
            namespaces.require_unchanged(unit, namespace)
            new = NewTable(
                namespace_id=namespace.namespace_id,
                name=name,
                domain=namespace.domain,
                table_uuid=str(seen.metadata.table_uuid).lower(),
                location=seen.metadata.location,
                pointer=pointer,
                contract_hash=namespace.protected_by,
                # The upstream may replace the table by another one, and later show the first one again.
                may_reuse_uuid=True,
                upstream=mount.name,
            )
            unit.lock_name("places")
            if tables.find_overlapping(unit, parse_location(seen.metadata.location)) is not None:
                raise Code.LOCATION_TAKEN("another table lies there", got=name)
            return tables.create(unit, new)

        if self._clock is None:
            raise AssertionError("the read through new connections added a table")
        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _require_place(self, mount: Mount, seen: UpstreamState) -> None:
        """Raise unless the table's place is in the mount's `places`, no entire bucket, and not the Steward's."""
        place = parse_location(seen.metadata.location)
        is_outside = bool(mount.places) and not any(place != each and place.is_under(each) for each in mount.places)
        if not place.parts or is_outside:
            raise Code.LOCATION_OUTSIDE(
                f"the upstream catalog {mount.name} shows a table in a place where its tables may not lie",
                expected=f"a place below {' or '.join(map(str, mount.places)) or 'a bucket or folder'}",
                got=str(place)[:200],
                hint="`places` of its [[catalog.upstreams]] in steward.toml says where its tables may lie",
            )
        for each in (place, parse_location(seen.metadata_location)):
            self._check_place(each, None)

    def _replaced_error(self, row: TableRow, found: str) -> PvdmError:
        """The error for a table that the upstream has replaced. The row of an unprotected table is dropped."""
        if row.protected or self._clock is None:
            message = f"the upstream shows another table as {row.name}"
            return Code.UPSTREAM_WRONG(message, reason="upstream_table_other", expected=row.table_uuid, got=found)
        self._ledger.transact(lambda unit: _drop_unprotected(unit, row), at_micros=self._clock.now_micros())
        return Code.UPSTREAM_TABLE_REPLACED(f"{row.name} was replaced at the upstream; load it again")

    def _require_same_content(self, row: TableRow, pointer: Pointer) -> None:
        """Raise if the metadata file has other content than when it was last seen."""
        with self._lock:
            for earlier in (row.pointer, self._seen.get(row.table_id)):
                if earlier is not None and earlier.location == pointer.location and earlier.sha256 != pointer.sha256:
                    raise Code.UPSTREAM_WRONG(
                        f"a metadata file of {row.name} was changed in place at the upstream",
                        reason="upstream_metadata_changed",
                        expected=earlier.sha256,
                        got=pointer.sha256,
                    )
            # A refused pointer is not remembered, so that the next call refuses it, too.
            self._seen[row.table_id] = pointer

    def _note_newest(self, row: TableRow, seen: UpstreamState) -> None:
        """Remember the highest sequence number and its time. After `UPSTREAM_STALE_MAX_SECONDS` a lower one counts."""
        number, now = seen.metadata.last_sequence_number, time.monotonic()
        with self._lock:
            newest, at = self._newest.get(row.table_id, (number, now))
            if number >= newest or now - at >= UPSTREAM_STALE_MAX_SECONDS:
                self._newest[row.table_id] = number, now


def _pointer_of(seen: UpstreamState) -> Pointer:
    # The hash of the document as the upstream showed it: the bytes of its file are not read.
    return Pointer(seen.metadata_location, hashlib.sha256(seen.metadata.to_bytes()).hexdigest())


def _upstream_levels(mount: Mount, levels: Levels) -> Levels:
    """The namespace as the upstream names it."""
    return (*mount.upstream_root, *levels[len(mount.levels) :])


def _drop_unprotected(unit: Unit, row: TableRow) -> None:
    known = tables.find_by_uuid(unit, row.table_uuid)
    if known is not None and not known.protected:
        tables.drop(unit, known)
