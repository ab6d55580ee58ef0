"""The source of a workload: pinned when it is opened, and found again, exactly as pinned, when it is verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pvdm.catalog.desks import Catalog
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.catalog.state import TableState
from pvdm.catalog.upstream_heads import is_vouched, require_proved, unproved
from pvdm.errors import InputError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.entries import FileReader
from pvdm.lake.paths import Location, parse_location
from pvdm.model.contract import BoundContract
from pvdm.model.schema import Schema
from pvdm.model.table import TableRef
from pvdm.store import Ledger, Unit, namespaces, tables, target_sources, workloads
from pvdm.store.namespaces import Levels
from pvdm.store.tables import TableRow
from pvdm.store.tokens import EVERY_DOMAIN
from pvdm.store.workloads import Workload
from pvdm.verify.source import (
    SOURCE_MANIFEST_MAX_BYTES,
    PinnedSource,
    pin_files,
    pin_table,
    pinned_schema,
    require_descends,
    state_of,
)

_GONE: Final = "the workload cannot be verified any more; an operator may abandon it, and another one be opened"
_MOVED: Final = "put the manifest back that was there; or an operator abandons the workload, and another one is opened"


class Sources:
    """Pins sources; in the ledger a source is named by its UUID alone, since its name may change."""

    def __init__(self, ledger: Ledger, catalog: Callable[[], Catalog], reader: FileReader) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._reader = reader

    def pin(self, bound: BoundContract, table_uuid: str) -> PinnedSource:
        """The source as it is now; a table that was replaced is refused until an operator has approved it.

        Its snapshot must descend from what was last published of it in the target.
        """
        asked = bound.contract.boundary.source
        if asked.manifest is not None:
            return self._readable(
                pin_files(asked.manifest, self._manifest(asked.manifest)), bound.contract.product.domain
            )
        *levels, name = parse_full_name(str(asked.table))
        catalog = self._catalog()
        state = catalog.states.get(tuple(levels), name)
        require_proved(self._ledger, state)  # what no consumer is shown is nobody's intent either
        current, uuid = state.metadata.current_snapshot_id, state.row.table_uuid
        with self._ledger.read() as unit:
            target_sources.require_same(unit, table_uuid, asked, uuid)
            last = workloads.last_source_snapshot(unit, table_uuid, uuid)
        if current is None:
            raise InputError(
                "source_empty", f"{asked.table} has no snapshot to pin", expected="a table with rows", got="none yet"
            )
        require_descends(state.metadata, current, None if last is None else int(last))
        ref = TableRef(catalog.name, uuid, full_name((*levels, name)))
        return self._own(state, pin_table(ref, state.metadata, current, self._reader))

    def again(self, workload: Workload, bound: BoundContract) -> PinnedSource:
        """The source as the workload has pinned it; what is gone or changed since is an error, not a verdict."""
        manifest = bound.contract.boundary.source.manifest
        if manifest is not None:
            data = self._manifest(manifest)
            # Before it is read: another one may be wrong in any way, and still be put right again.
            _require_same(workload, state_of(data))
            return self._readable(pin_files(manifest, data), bound.contract.product.domain)
        ref, state, snapshot_id = self._table(workload)
        return self._own(state, pin_table(ref, state.metadata, snapshot_id, self._reader))

    def newest(self, workload: Workload, bound: BoundContract) -> str | None:
        """The source's newest snapshot, to compare with the pinned one; None where it cannot be told just now."""
        manifest = bound.contract.boundary.source.manifest
        try:
            if manifest is not None:
                return str(state_of(self._manifest(manifest)))
            with self._ledger.read() as unit:
                row = tables.find_uuid(unit, workload.opening.source)
            found = None if row is None else self._catalog().states.of(row).metadata.current_snapshot_id
        except PvdmError:
            return None
        return None if found is None else str(found)

    def schema(self, workload: Workload, bound: BoundContract) -> Schema:
        """The columns of the source as the workload has pinned it; of a table without planning what is read of it."""
        if bound.contract.boundary.source.manifest is not None:
            return self.again(workload, bound).scan.schema
        ref, state, snapshot_id = self._table(workload)
        return pinned_schema(ref, state.metadata, snapshot_id)

    def _own(self, state: TableState, source: PinnedSource) -> PinnedSource:
        return self._readable(source, state.row.domain, *self._catalog().shown.places_of(state))

    def _readable(self, source: PinnedSource, domain: str, *own: Location) -> PinnedSource:
        """Whoever writes to a source says which files it has, and the Steward reads them by rights of its own."""
        if domain == EVERY_DOMAIN:
            return source
        homes = tuple(f"{each}/" for each in own)
        folders = {str(parse_location(each)).rpartition("/")[0] + "/" for each in source.scan.locations()}
        foreign = [parse_location(each) for each in sorted(folders) if not each.startswith(homes)]
        if foreign:
            with self._ledger.read() as unit:
                self._catalog().access.require_readable(unit, foreign, domain)
        return source

    def _table(self, workload: Workload) -> tuple[TableRef, TableState, int]:
        catalog = self._catalog()
        with self._ledger.read() as unit:
            row = tables.find_uuid(unit, workload.opening.source)
            if row is None and tables.was_upstreams(unit, workload.opening.source):
                raise UnavailableError(
                    "source_changed",
                    "the upstream shows another table under the name of the workload's source",
                    expected=f"the table {workload.opening.source}",
                    got="another one, when it was last asked for",
                    hint="bring it back there and load it by its name; or an operator abandons the workload",
                )
            if row is None:
                raise InputError("source_gone", "the workload's source is gone", got="no such table", hint=_GONE)
            ref = named(unit, catalog.name, row)
        state: TableState = catalog.states.of(row)
        self._require_as_pinned(state, int(str(workload.source_snapshot_id)))
        return ref, state, int(str(workload.source_snapshot_id))

    def _require_as_pinned(self, state: TableState, snapshot_id: int) -> None:
        """At an upstream somebody may change what was proved, or the snapshot behind an id, after it was pinned.

        One that it does not show may be there again: a cache in front of it shows what was.
        """
        row, found = state.row, state.metadata.snapshot(snapshot_id)
        if row.upstream is None or (found is not None and not row.protected):
            return
        doubt: str | None = "none of that id"
        if found is not None:
            with self._ledger.read() as unit:
                doubt = unproved(unit, row, state.metadata)
                if doubt is None and is_vouched(unit, row.table_uuid, state.metadata, found):
                    return
        raise UnavailableError(
            "source_changed",
            f"{row.name} is not shown by its upstream as it was when the workload pinned it",
            expected=f"snapshot {snapshot_id} as it was",
            got=doubt or "another one of that id",
            hint="take the change back there; or an operator abandons the workload, and another one is opened",
        )

    def _manifest(self, manifest: str) -> bytes:
        try:
            return self._reader.read(manifest, most=SOURCE_MANIFEST_MAX_BYTES)
        except VerificationError as error:
            # What is wrong with the manifest says nothing about any rows: it may be written, or put back.
            raise UnavailableError(
                "source_manifest_unreadable",
                f"{manifest}: the manifest of source files cannot be read: {error.message}",
                expected=error.expected,
                got=error.got,
                hint="`pvdm source-files` writes one, where the contract's boundary.source.files.manifest says",
                manifest=manifest,
                cause=error.code,
            ) from None


def named(unit: Unit, catalog: str, row: TableRow) -> TableRef:
    """A table of the catalog as signed documents name it."""
    return TableRef(catalog, row.table_uuid, full_name((*levels_of(unit, row), row.name)))


def levels_of(unit: Unit, row: TableRow) -> Levels:
    """The namespace that a table is in."""
    found = namespaces.find_id(unit, row.namespace_id)
    if found is None:
        raise AssertionError("a table that is there is in a namespace that is there")
    return found.levels


def _require_same(workload: Workload, snapshot_id: int) -> None:
    if workload.source_snapshot_id != str(snapshot_id):
        # The old manifest may be put back, so that this is no end.
        raise UnavailableError(
            "source_changed",
            "the manifest of the source is not the one that the workload has pinned",
            expected=str(workload.source_snapshot_id),
            got=str(snapshot_id),
            hint=_MOVED,
        )
