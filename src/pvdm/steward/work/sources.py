"""Pins the source snapshot of a workload at its opening, and finds it again when attempts are verified."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.catalog.state import TableState
from pvdm.catalog.upstream_commit import find_unproved, is_known, require_proved
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.lake.format.json_document import JsonObject
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.scan import newer_columns, read_columns, with_newer_columns
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.ledger.work import claims, workloads
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.workloads import Workload
from pvdm.model.contract import BoundContract, DataProductContract, Source, columns_read
from pvdm.model.schema import Schema
from pvdm.model.statements.table import TableRef
from pvdm.verify.fit import require_contract_fit, require_extraction_fit, require_source_fit
from pvdm.verify.source import (
    SOURCE_MANIFEST_MAX_BYTES,
    PinnedSource,
    manifest_snapshot_id,
    pin_files,
    pin_table,
    pinned_schema,
    require_descends,
)

_GONE_HINT: Final = "the workload cannot be verified any more; an operator may abandon it; then open another one"
_MOVED_HINT: Final = "put back the manifest that was there; or an operator abandons the workload; then open another one"


class Sources:
    """Pins the sources of workloads; the ledger stores a source by its UUID, since its name may change."""

    def __init__(self, ledger: Ledger, catalog: Catalog, reader: FileReader) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._reader = reader

    def pin(self, bound: BoundContract, table_uuid: str) -> PinnedSource:
        """Pin the source as it is now. Raises if it is not the table that `claims.require_same_source` requires.

        Raises also if the source's snapshot does not descend from the snapshot that was last published to the target.
        """
        contract = bound.contract
        if contract.boundary.source.manifest is not None:
            return self._pin_files(contract)
        ref, state = self._load_source(contract.boundary.source, table_uuid)
        current = state.metadata.current_snapshot_id
        with self._ledger.read() as unit:
            last = workloads.find_last_source_snapshot(unit, table_uuid, ref.uuid)
        if current is None:
            message, hint = f"{ref.name} has no snapshot to pin", f"write to {ref.name} first"
            raise Code.SOURCE_REFUSED(message, reason="source_empty", got="none yet", hint=hint)
        require_descends(state.metadata, current, None if last is None else int(last))
        newer = newer_columns(state.metadata, current)  # columns that were added since the snapshot was written
        metadata = self._with_newer_columns(state.metadata, current, newer, contract, table_uuid)
        pinned = self._require_table_readable(state, pin_table(ref, metadata, current, self._reader))
        return replace(pinned, newer_columns=newer)

    def start_source_check(
        self, contract: DataProductContract, table_uuid: str | None
    ) -> Callable[[Schema | None], None]:
        """Check the contract's source now; returns a function that refuses a target schema that the source cannot fill.

        Raises for a source that is missing, unreadable, of an unsupported format, or not the table that `pin` accepts.
        Of a source table without a snapshot, only the schema is checked. If the target is None (the contract of a
        namespace), the returned function checks only the source.
        """
        with _refuse_contract(contract):
            if contract.boundary.source.manifest is not None:
                return partial(_require_fit, contract, self._pin_files(contract).scan.schema)
            ref, state = self._load_source(contract.boundary.source, table_uuid)
            metadata, current = state.metadata, state.metadata.current_snapshot_id
            if current is None:
                return partial(_require_fit, contract, to_model(metadata.current_schema))
            self._require_table_readable(state, pin_table(ref, metadata, current, self._reader))

        def require_fit(target: Schema | None) -> None:
            names = () if target is None else target.names
            newer = newer_columns(metadata, current)
            read = with_newer_columns(metadata, current, newer, lambda: columns_read(contract, names))
            _require_fit(contract, pinned_schema(ref, read, current), target)

        return require_fit

    def pin_again(self, workload: Workload | Planning, bound: BoundContract) -> PinnedSource:
        """The source as the workload pinned it. Raises if it is gone or has changed; then there is no verdict."""
        manifest = bound.contract.boundary.source.manifest
        if manifest is not None:
            data = self._read_manifest(manifest)
            # The id is compared before the manifest is parsed, since another manifest may be invalid. The job is tried
            # again after this error: the pinned manifest may be put back.
            if workload.source_snapshot_id != str(manifest_snapshot_id(data)):
                raise Code.SOURCE_UNREADABLE(
                    "the manifest of the source is not the one that the workload has pinned",
                    reason="source_changed",
                    expected=str(workload.source_snapshot_id),
                    got=str(manifest_snapshot_id(data)),
                    hint=_MOVED_HINT,
                )
            return self._require_readable(pin_files(manifest, data), bound.contract.product.domain)
        state, ref, metadata, snapshot_id = self._load_pinned(workload, bound.contract)
        return self._require_table_readable(state, pin_table(ref, metadata, snapshot_id, self._reader))

    def find_newest(self, workload: Workload, bound: BoundContract) -> int | None:
        """The id of the source's newest snapshot, to compare with the pinned one; None if it is unknown now."""
        manifest = bound.contract.boundary.source.manifest
        try:
            if manifest is not None:
                return manifest_snapshot_id(self._read_manifest(manifest))
            with self._ledger.read() as unit:
                row = tables.find_by_uuid(unit, workload.opening.source)
            return None if row is None else self._catalog.states.load(row).metadata.current_snapshot_id
        except PvdmError:
            return None

    def load_schema(self, workload: Workload, bound: BoundContract) -> Schema:
        """The columns of the pinned source. For a source table, no scan is planned."""
        if bound.contract.boundary.source.manifest is not None:
            return self.pin_again(workload, bound).scan.schema
        _, ref, metadata, snapshot_id = self._load_pinned(workload, bound.contract)
        return pinned_schema(ref, metadata, snapshot_id)

    def _pin_files(self, contract: DataProductContract) -> PinnedSource:
        manifest = str(contract.boundary.source.manifest)
        return self._require_readable(pin_files(manifest, self._read_manifest(manifest)), contract.product.domain)

    def _load_source(self, source: Source, table_uuid: str | None) -> tuple[TableRef, TableState]:
        """The table that the contract names; raises if the target may not publish from it."""
        *levels, name = parse_full_name(str(source.table))
        catalog = self._catalog
        state = catalog.states.get(tuple(levels), name)
        require_proved(self._ledger, state)  # a protected source must itself show proved rows only
        if table_uuid is not None:
            with self._ledger.read() as unit:
                claims.require_same_source(unit, table_uuid, source, state.row.table_uuid)
        return TableRef(catalog.name, state.row.table_uuid, full_name((*levels, name))), state

    def _with_newer_columns(
        self,
        metadata: TableMetadata,
        snapshot_id: int,
        newer: Sequence[JsonObject],
        contract: DataProductContract,
        table_uuid: str,
    ) -> TableMetadata:
        """The source's metadata, with those `newer` columns that the contract reads added to the snapshot's schema."""

        def list_wanted() -> frozenset[str]:
            with self._ledger.read() as unit:
                row = tables.find_by_uuid(unit, table_uuid)
            target = None if row is None else to_model(self._catalog.states.load(row).metadata.current_schema)
            return columns_read(contract, () if target is None else target.names)

        return with_newer_columns(metadata, snapshot_id, newer, list_wanted)

    def _require_table_readable(self, state: TableState, source: PinnedSource) -> PinnedSource:
        return self._require_readable(source, state.row.domain, *self._catalog.responses.places_of(state))

    def _require_readable(self, source: PinnedSource, domain: str, *own: Location) -> PinnedSource:
        """Return the source. Raises if a file is the Steward's or another domain's. `own`: the table's own folders."""
        if domain == EVERY_DOMAIN:
            return source
        own_folders = (*own, *(each.without_links for each in own))
        folders = {parse_location(each).parent for each in source.scan.locations()}
        folders |= {each.without_links for each in folders}  # a link may lead from the table's folder to another's
        foreign = sorted((each for each in folders if not any(map(each.is_under, own_folders))), key=str)
        if foreign:
            with self._ledger.read() as unit:
                self._catalog.access.require_readable(unit, foreign, domain)
        return source

    def _load_pinned(
        self, workload: Workload | Planning, contract: DataProductContract
    ) -> tuple[TableState, TableRef, TableMetadata, int]:
        """The source's present state, its name in statements, metadata as of `_with_newer_columns`, and snapshot id."""
        catalog = self._catalog
        with self._ledger.read() as unit:
            row = tables.find_by_uuid(unit, workload.opening.source)
            if row is None and tables.belonged_to_upstream(unit, workload.opening.source):
                message = "the upstream shows another table under the name of the workload's source"
                expected, got = f"the table {workload.opening.source}", "another one, when it was last loaded"
                hint = "bring it back there and load it by its name; or an operator abandons the workload"
                raise Code.SOURCE_UNREADABLE(message, reason="source_changed", expected=expected, got=got, hint=hint)
            if row is None:
                raise Code.SOURCE_GONE(got="no such table", hint=_GONE_HINT)
            ref = table_ref(unit, catalog.name, row)
        state, snapshot_id = catalog.states.load(row), int(str(workload.source_snapshot_id))
        self._require_as_pinned(state, snapshot_id)
        newer = read_columns(workload.newer_columns)
        metadata = self._with_newer_columns(state.metadata, snapshot_id, newer, contract, workload.opening.table_uuid)
        return state, ref, metadata, snapshot_id

    def _require_as_pinned(self, state: TableState, snapshot_id: int) -> None:
        """Raise `source_changed` if an upstream no longer shows the pinned snapshot, or a protected source is unproved.

        The caller's job is retried: a cache may show an older state for a while.
        """
        row, found = state.row, state.metadata.snapshot(snapshot_id)
        if row.upstream is None or (found is not None and not row.protected):
            return
        difference: str | None = "none of that id"
        if found is not None:
            with self._ledger.read() as unit:
                difference = find_unproved(unit, row, state.metadata)
                if difference is None and is_known(unit, row.table_uuid, state.metadata, found):
                    return
        message = f"{row.name} is not shown by its upstream as it was when the workload pinned it"
        expected, got = f"snapshot {snapshot_id} as it was", difference or "another one of that id"
        hint = "take the change back there; or an operator abandons the workload, and another one is opened"
        raise Code.SOURCE_UNREADABLE(message, reason="source_changed", expected=expected, got=got, hint=hint)

    def _read_manifest(self, manifest: str) -> bytes:
        try:
            return self._reader.read(manifest, max_bytes=SOURCE_MANIFEST_MAX_BYTES)
        except VerificationError as error:
            if error.reason == "file_too_large":
                message = f"{manifest}: the manifest of source files is too large"
                hint, limit = "write several smaller manifests, each for a contract of its own", error.expected
                raise Code.SOURCE_UNSUPPORTED(
                    message, reason="source_manifest_invalid", expected=limit, got="more", hint=hint, manifest=manifest
                ) from None
            # An unreadable manifest gives no verdict about rows, since it may be corrected.
            raise Code.SOURCE_UNREADABLE(
                f"{manifest}: the manifest of source files cannot be read: {error.message}",
                reason="source_manifest_unreadable",
                expected=error.expected,
                got=error.got,
                hint="`pvdm source-files` writes one, where the contract's boundary.source.files.manifest says",
                manifest=manifest,
                cause=error.reason,
            ) from None


def _require_fit(contract: DataProductContract, source: Schema, target: Schema | None) -> None:
    if target is None:
        require_source_fit(contract, source)
        return
    require_contract_fit(contract, source, target)
    require_extraction_fit(contract, source, target)


@contextlib.contextmanager
def _refuse_contract(contract: DataProductContract) -> Iterator[None]:
    """Turn errors about the source into refusals of the contract, with the same code."""
    source = contract.boundary.source
    try:
        yield
    except (InputError, NotAllowedError, VerificationError) as error:
        hint = f"nothing was changed; boundary.source of the contract names {source.table or source.manifest}"
        hint = f"{hint}: {error.hint}" if error.hint else hint
        raise error.as_not_allowed(f"the contract's source cannot be used: {error.message}", hint) from None


def table_ref(unit: Unit, catalog: str, row: TableRow) -> TableRef:
    """The table as signed documents name it."""
    return TableRef(catalog, row.table_uuid, name_of_row(unit, row))


def table_name(unit: Unit, table_uuid: str) -> str | None:
    """The full name of a table; None if it was dropped."""
    row = tables.find_by_uuid(unit, table_uuid)
    return None if row is None else name_of_row(unit, row)


def load_row(catalog: Catalog, grant: Grant, table: str) -> TableRow:
    """The row of a table by its full name, if the caller may read the table."""
    *levels, name = parse_full_name(table)
    return catalog.tables.load(grant, tuple(levels), name).row


def name_of_row(unit: Unit, row: TableRow) -> str:
    """The full name of the table."""
    return full_name((*levels_of(unit, row), row.name))


def levels_of(unit: Unit, row: TableRow) -> Levels:
    """The levels of a table's namespace."""
    found = namespaces.find_by_id(unit, row.namespace_id)
    if found is None:
        raise AssertionError("the table exists, but its namespace does not")
    return found.levels
