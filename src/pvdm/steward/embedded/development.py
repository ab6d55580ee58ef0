"""A Steward for development: it creates its own operator, and has helpers for small tables without Spark."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

from pvdm.catalog.namespaces import DOMAIN_PROPERTY
from pvdm.client import StewardClient
from pvdm.client.table import TableClient, create_namespace, create_table, split_name
from pvdm.digest import kernel_engine, schema_from_arrow
from pvdm.digest.parquet import read_batches
from pvdm.errors import Code, ConflictError, DevelopmentWarning
from pvdm.lake.format.schema.logical import to_iceberg
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.resolve import arrow_type
from pvdm.lake.read.scan import plan_scan, scan_batches
from pvdm.metadata.gate.state import state_of, table_metadata, table_ref, target_of
from pvdm.model.contract import parse_contract, read_contract
from pvdm.model.role import Role
from pvdm.model.schema import Kind, ListType, MapType, PrimitiveType, Schema, StructType
from pvdm.model.statements.core import Operation
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, contract_sha256
from pvdm.physical.small import SmallStager, StoredFiles
from pvdm.physical.stager import Destination
from pvdm.steward.embedded.embedded import EmbeddedSteward, Person, start_as
from pvdm.steward.work.contracts import contract_text
from pvdm.trust.approval import SignerFields, signer_fields
from pvdm.trust.keys.pem import create_key_pair, open_key_pair
from pvdm.trust.root import RootRole
from pvdm.trust.verify import sign_statement

OPERATOR: Final = "developer"
_KEY_FILE: Final = "operator.pem"
_CONFIG_FILE: Final = "steward.toml"
_APPROVAL_MICROS: Final = 3_600_000_000  # one hour
_NANOSECONDS: Final = (Kind.TIME_NS, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS)
_FORMAT_3_TYPES: Final = [PrimitiveType(each) for each in (*_NANOSECONDS, Kind.UNKNOWN, Kind.VARIANT)]
_NOTICE: Final = (
    "created a development Steward in {folder}: an operator key ({key}), a root key, signing keys and tokens. "
    "Anyone who can read this folder can approve and publish; proofs say `isolation: embedded`. Not for production"
)


class DevelopmentSteward(EmbeddedSteward):
    """An embedded Steward that signs approvals itself, with an operator key in its folder; `close` stops it."""

    development: ClassVar[bool] = True

    @classmethod
    def open_own_people(cls, folder: Path) -> tuple[Person, ...]:
        """The development operator, whose key the first start creates with mode 0600."""
        path = folder / _KEY_FILE
        if not path.exists():
            create_key_pair(path)
        return (Person(OPERATOR, RootRole.OPERATOR, open_key_pair(path).public),)

    def create_table(
        self, name: str, schema: pa.Schema, *, partition_by: str | Sequence[str] = (), exist_ok: bool = False
    ) -> None:
        """Create an Iceberg table for these Arrow columns, and its namespace if it is missing.

        A new namespace belongs to the domain that its first level names. Raises `ConflictError` if the table exists,
        unless `exist_ok`.
        """
        levels, last = split_name(name)
        columns = schema_from_arrow(schema).fields
        for field in columns:
            if isinstance(field.type, StructType | ListType | MapType) or field.type in _FORMAT_3_TYPES:
                message = f"column {field.name[:80]!a} has a type that this helper does not know"
                expected = "a type of format 2 that is not nested"
                raise Code.COLUMN_TYPE_UNSUPPORTED(message, expected=expected, got=str(field.type))
        numbered = Schema(tuple(replace(field, field_id=number) for number, field in enumerate(columns, 1)))
        ids = {field.name: field.field_id for field in numbered.fields}
        partition_by = [partition_by] if isinstance(partition_by, str) else partition_by
        for column in partition_by:
            if column not in ids:
                raise Code.MIGRATION_INVALID(reason="column_unknown", expected=", ".join(ids), got=ascii(column)[:80])
        spec = [
            {"source-id": ids[column], "field-id": field_id, "name": column, "transform": "identity"}
            for field_id, column in enumerate(partition_by, 1_000)  # Iceberg's first id of a partition field
        ]
        for end in range(1, len(levels) + 1):
            with contextlib.suppress(ConflictError):  # the namespace exists
                create_namespace(self, levels[:end], {DOMAIN_PROPERTY: levels[0]})
        request = {
            "name": last,
            "schema": to_iceberg(numbered),
            "partition-spec": {"spec-id": 0, "fields": spec},
            "properties": {"format-version": "2"},
        }
        try:
            create_table(self, levels, request)
        except ConflictError:
            if not exist_ok:
                raise

    def append(self, table: str, rows: pa.Table) -> None:
        """Append rows to an unprotected table, such as a source; the catalog refuses a protected one."""
        location = _load_metadata(self, table).location
        token = self.lend(Role.OPERATOR).token
        ids = ("none", "none", "0" * 32)  # placeholders of workload, chunk and attempt
        to = Destination(self.url, table, "main", location, *ids, token, Operation.APPEND)
        SmallStager(self).stage(lambda: rows, to)

    def read(self, table: str, snapshot_id: int | None = None) -> pa.Table:
        """The rows that a consumer sees, or those of one snapshot: a job passes `chunk.source_snapshot_id`."""
        kernel_engine()  # raises without the Rust kernel, the only reader of data files
        with self.with_token(self.lend(Role.CONSUMER).token) as consumer:
            metadata = _load_metadata(consumer, table)
        snapshot = metadata.current_snapshot if snapshot_id is None else metadata.snapshot(snapshot_id)
        if snapshot is None and snapshot_id is not None:
            message = f"{table} has no such snapshot"
            raise Code.SNAPSHOT_UNUSABLE(message, reason="snapshot_unknown", got=str(snapshot_id))
        files = StoredFiles()
        scan = plan_scan(metadata, snapshot, files)
        schema = pa.schema([pa.field(each.name, arrow_type(each.type)) for each in scan.schema.fields])
        # One type for each column: files of different writers give text and bytes in different layouts.
        parts = [
            pa.Table.from_batches([batch]).cast(schema)
            for each in scan.files
            for batch in scan_batches(scan, each, files.fetch, read_batches)
        ]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def protect(self, contract: Path | str) -> None:
        """Protect the target of the contract in this file, by the development operator's signature.

        A table under another contract is migrated to this one, which ends the table's open workloads. A table under
        this contract stays as it is.
        """
        path = Path(contract)
        text = contract_text(read_contract(path), str(path))
        wanted_sha256, wanted = contract_sha256(text), parse_contract(text.encode(), str(path))
        current = self.target("table", wanted.boundary.target)
        if current.contract_sha256 == wanted_sha256:
            return
        table, metadata = table_ref(current), table_metadata(current)
        if current.contract_sha256 is None:
            signer = _signer_fields(f"protected under {path.name} in development")
            target = target_of(table, metadata, wanted_sha256)
            protection = Protection(action=ProtectionAction.PROTECT, target=target, contract=text, **signer)
            self.submit_protection(self._sign(protection))
            return
        before = parse_contract(self.contract(current.contract_sha256), "the contract in force")
        if (warning := wanted.claim_warning(before)) is not None:
            warnings.warn(warning, UserWarning, stacklevel=2)
        migration = Migration(
            table=table,
            before=state_of(metadata, current.contract_sha256),
            after=state_of(metadata, wanted_sha256),
            updates="[]",
            contract=text,
            **_signer_fields(f"moved to {path.name} in development"),
        )
        self.submit_migration(self._sign(migration))

    def _sign(self, approval: Protection | Migration) -> bytes:
        return sign_statement(approval, open_key_pair(self.folder / _KEY_FILE)).to_bytes()


def start_development(path: Path | str) -> DevelopmentSteward:
    """Start the development Steward of that folder; the first start creates the folder, and warns about its keys."""
    is_new = not (Path(path) / _CONFIG_FILE).exists()
    steward = start_as(DevelopmentSteward, path)
    if is_new:
        # Level 3 is the caller of the public function `pvdm.Steward.development`.
        warnings.warn(_NOTICE.format(folder=steward.folder, key=_KEY_FILE), DevelopmentWarning, stacklevel=3)
    return steward


def _load_metadata(client: StewardClient, table: str) -> TableMetadata:
    return TableMetadata.from_json(TableClient(client, *split_name(table)).load())


def _signer_fields(reason: str) -> SignerFields:
    return signer_fields(OPERATOR, reason, now=time.time_ns() // 1_000, lifetime_micros=_APPROVAL_MICROS)
