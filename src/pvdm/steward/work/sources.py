"""The source of a workload: pinned when it is opened, and found again, exactly as pinned, when it is verified."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.catalog.state import TableState
from pvdm.catalog.upstream.heads import find_unproved, is_known, require_proved
from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.format.json.node import Raw
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.newer_columns import newer_columns, read_columns, with_newer_columns
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.ledger.work import claims, workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.model.contract import BoundContract, DataProductContract, Source, columns_read
from pvdm.model.schema import Schema
from pvdm.model.statements.table import TableRef
from pvdm.verify.fit import require_contract_fit, require_extraction_fit, require_source_fit
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
        contract = bound.contract
        if contract.boundary.source.manifest is not None:
            return self._files(contract)
        ref, state = self._now(contract.boundary.source, table_uuid)
        current = state.metadata.current_snapshot_id
        with self._ledger.read() as unit:
            last = workloads.last_source_snapshot(unit, table_uuid, ref.uuid)
        if current is None:
            raise InputError(
                "source_empty",
                f"{ref.name} has no snapshot to pin",
                expected="a table with rows",
                got="none yet",
                hint=f"write to {ref.name} first",
            )
        require_descends(state.metadata, current, None if last is None else int(last))
        newer = newer_columns(state.metadata, current)
        metadata = self._with_newer(state.metadata, current, newer, contract, table_uuid)
        pinned = self._own(state, pin_table(ref, metadata, current, self._reader))
        return replace(pinned, newer_columns=newer)

    def judge(self, contract: DataProductContract, table_uuid: str | None) -> Callable[[Schema | None], None]:
        """Read what the contract's source shows now; gives what refuses a target that it can never fill.

        A source that cannot be used at all is refused here: not there, another table than the approved one, unreadable
        or of a format that is not read. A table without a snapshot is taken by its schema. Without a target, as for a
        namespace, only what the contract asks of the source is judged.
        """
        with _unfit(contract):
            if contract.boundary.source.manifest is not None:
                return _judging(contract, self._files(contract).scan.schema)
            ref, state = self._now(contract.boundary.source, table_uuid)
            metadata, current = state.metadata, state.metadata.current_snapshot_id
            if current is None:
                return _judging(contract, to_model(metadata.current_schema))
            self._own(state, pin_table(ref, metadata, current, self._reader))

        def require_fit(target: Schema | None) -> None:
            names = () if target is None else target.names
            newer = newer_columns(metadata, current)
            read = with_newer_columns(metadata, current, newer, lambda: columns_read(contract, names))
            _judging(contract, pinned_schema(ref, read, current))(target)

        return require_fit

    def again(self, workload: Workload, bound: BoundContract) -> PinnedSource:
        """The source as the workload has pinned it; what is gone or changed since is an error, not a verdict."""
        manifest = bound.contract.boundary.source.manifest
        if manifest is not None:
            data = self._manifest(manifest)
            # Before it is read: another one may be wrong in any way, and still be put right again.
            _require_same(workload, state_of(data))
            return self._readable(pin_files(manifest, data), bound.contract.product.domain)
        ref, state, snapshot_id = self._table(workload)
        metadata = self._as_pinned(state.metadata, workload, bound.contract)
        return self._own(state, pin_table(ref, metadata, snapshot_id, self._reader))

    def newest(self, workload: Workload, bound: BoundContract) -> str | None:
        """The source's newest snapshot, to compare with the pinned one; None where it cannot be told just now."""
        manifest = bound.contract.boundary.source.manifest
        try:
            if manifest is not None:
                return str(state_of(self._manifest(manifest)))
            with self._ledger.read() as unit:
                row = tables.find_by_uuid(unit, workload.opening.source)
            found = None if row is None else self._catalog().states.of(row).metadata.current_snapshot_id
        except PvdmError:
            return None
        return None if found is None else str(found)

    def schema(self, workload: Workload, bound: BoundContract) -> Schema:
        """The columns of the source as the workload has pinned it; of a table without planning what is read of it."""
        if bound.contract.boundary.source.manifest is not None:
            return self.again(workload, bound).scan.schema
        ref, state, snapshot_id = self._table(workload)
        metadata = self._as_pinned(state.metadata, workload, bound.contract)
        return pinned_schema(ref, metadata, snapshot_id)

    def _files(self, contract: DataProductContract) -> PinnedSource:
        manifest = str(contract.boundary.source.manifest)
        return self._readable(pin_files(manifest, self._manifest(manifest)), contract.product.domain)

    def _now(self, asked: Source, table_uuid: str | None) -> tuple[TableRef, TableState]:
        """The table that the contract names, if it is the one that this target may publish from."""
        *levels, name = parse_full_name(str(asked.table))
        catalog = self._catalog()
        state = catalog.states.get(tuple(levels), name)
        require_proved(self._ledger, state)  # a state that no consumer may see is no intent either
        if table_uuid is not None:
            with self._ledger.read() as unit:
                claims.require_same_source(unit, table_uuid, asked, state.row.table_uuid)
        return TableRef(catalog.name, state.row.table_uuid, full_name((*levels, name))), state

    def _as_pinned(self, metadata: TableMetadata, workload: Workload, contract: DataProductContract) -> TableMetadata:
        """The source with the newer columns that it had when the workload was opened, whatever it has by now."""
        newer = read_columns(workload.newer_columns)
        snapshot_id = int(str(workload.source_snapshot_id))
        return self._with_newer(metadata, snapshot_id, newer, contract, workload.opening.table_uuid)

    def _with_newer(
        self,
        metadata: TableMetadata,
        snapshot_id: int,
        newer: Sequence[Raw],
        contract: DataProductContract,
        table_uuid: str,
    ) -> TableMetadata:
        """The source with those of the newer columns that the contract reads."""

        def wanted() -> frozenset[str]:
            with self._ledger.read() as unit:
                row = tables.find_by_uuid(unit, table_uuid)
            target = None if row is None else to_model(self._catalog().states.of(row).metadata.current_schema)
            return columns_read(contract, () if target is None else target.names)

        return with_newer_columns(metadata, snapshot_id, newer, wanted)

    def _own(self, state: TableState, source: PinnedSource) -> PinnedSource:
        return self._readable(source, state.row.domain, *self._catalog().responses.places_of(state))

    def _readable(self, source: PinnedSource, domain: str, *own: Location) -> PinnedSource:
        """A source's writer chooses its files, and the Steward reads them with its own rights: check that it may."""
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
            row = tables.find_by_uuid(unit, workload.opening.source)
            if row is None and tables.was_of_upstream(unit, workload.opening.source):
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
                doubt = find_unproved(unit, row, state.metadata)
                if doubt is None and is_known(unit, row.table_uuid, state.metadata, found):
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


def _judging(contract: DataProductContract, source: Schema) -> Callable[[Schema | None], None]:
    def require_fit(target: Schema | None) -> None:
        if target is None:
            require_source_fit(contract, source)
            return
        require_contract_fit(contract, source, target)
        require_extraction_fit(contract, source, target)

    return require_fit


@contextlib.contextmanager
def _unfit(contract: DataProductContract) -> Iterator[None]:
    """A source that is not usable keeps its contract from coming into force; the reason stays as it is."""
    source = contract.boundary.source
    try:
        yield
    except (InputError, NotAllowedError, VerificationError) as error:
        hint = f"nothing was changed; boundary.source of the contract names {source.table or source.manifest}"
        raise NotAllowedError(
            error.code,
            f"the contract's source cannot be used: {error.message}",
            expected=error.expected,
            got=error.got,
            hint=f"{hint}: {error.hint}" if error.hint else hint,
            **error.details,
        ) from None


def named(unit: Unit, catalog: str, row: TableRow) -> TableRef:
    """A table of the catalog as signed documents name it."""
    return TableRef(catalog, row.table_uuid, full_name((*levels_of(unit, row), row.name)))


def table_name(unit: Unit, table_uuid: str) -> str | None:
    """The full name of a table; None where it is gone."""
    row = tables.find_by_uuid(unit, table_uuid)
    return None if row is None else full_name((*levels_of(unit, row), row.name))


def levels_of(unit: Unit, row: TableRow) -> Levels:
    """The namespace that a table is in."""
    found = namespaces.find_by_id(unit, row.namespace_id)
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
