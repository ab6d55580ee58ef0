"""A chunk for the job that makes its rows: its definition, and with Spark its rows in the pinned source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pvdm.api.work import ChunkView, WorkloadView
from pvdm.client import StewardClient
from pvdm.client.table import TableClient, split_name
from pvdm.errors import Code, InputError, PvdmError
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.logical import schema_from_text, to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from pvdm.lake.read.resolve import initial_defaults
from pvdm.lake.read.scan import read_columns, schema_of, with_newer_columns
from pvdm.lake.spark import SparkCatalog, add_catalog
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract, columns_read, map_columns
from pvdm.model.filter.bind import bind
from pvdm.model.role import Role
from pvdm.model.schema import Schema
from pvdm.physical.spark import condition, literal, null_of, spark_name, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The Steward does not pin a larger manifest of source files.
_MANIFEST_BYTES: Final = 67_108_864
_FILE_COLUMN: Final = "_file"
_NOT_FOUND: Final = frozenset({Code.TABLE_UNKNOWN, Code.NAMESPACE_UNKNOWN})


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """The pinned source of one workload, read with the producer's rights; `session` returns the Spark session."""

    client: StewardClient
    session: Callable[[], SparkSession]
    workload: WorkloadView
    bound: BoundContract

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        """The manifest of source files that the contract names. Raises if it is not the one that was pinned."""
        location = parse_location(str(self.bound.contract.boundary.source.manifest))
        try:
            with location.local.open("rb") as file:
                data = file.read(_MANIFEST_BYTES + 1)
            found = json.loads(data)
        except (OSError, ValueError) as error:
            expected, got = str(location), type(error).__name__
            raise Code.SOURCE_UNREADABLE(reason="source_manifest_unreadable", expected=expected, got=got) from error
        snapshot_id = int(hashlib.sha256(data).hexdigest()[:16], 16) >> 1  # a manifest's id: 63 bits of its hash
        if not isinstance(found, dict) or snapshot_id != self._snapshot_id:
            expected, got = str(self._snapshot_id), str(location)
            raise Code.SOURCE_UNSUPPORTED(reason="source_manifest_changed", expected=expected, got=got)
        return found

    @property
    def _snapshot_id(self) -> int | None:
        return self.workload.source_snapshot_id

    @cached_property
    def schema(self) -> Schema:
        """The columns of the pinned snapshot, and columns that the table got later, if the contract reads them."""
        if self.bound.contract.boundary.source.table is None:
            schema, _ = schema_from_text(json.dumps(self._manifest["schema"]))
            return schema
        return to_model(self._schema_with_newer)

    @cached_property
    def _table(self) -> TableMetadata:
        """The source's metadata; raises `source_gone` if it is not the table that the workload pinned."""
        table = str(self.bound.contract.boundary.source.table)
        try:
            found = TableMetadata.from_json(TableClient(self.client, *split_name(table)).load())
        except InputError as error:
            if error.code not in _NOT_FOUND:
                raise
            raise self._gone_error(table, "no table of that name") from error
        if found.table_uuid != self.workload.source:
            raise self._gone_error(table, f"the table {found.table_uuid}")
        if self._snapshot_id is not None and found.snapshot(self._snapshot_id) is None:
            raise self._gone_error(table, f"a table without snapshot {self._snapshot_id}")
        return found

    def _gone_error(self, table: str, got: str) -> PvdmError:
        """The error for a source that is no longer the pinned one; a change of the job cannot fix it."""
        return Code.SOURCE_GONE(
            f"{table} is no longer the table that the workload has pinned",
            expected=f"the table {self.workload.source} with snapshot {self._snapshot_id}",
            got=got,
            hint=f"restore it under its name; or an operator abandons the workload (`pvdm abandon "
            f"{self.workload.workload_id} --reason TEXT`), and a new workload id pins the source as it is now",
        )

    @cached_property
    def _schema_with_newer(self) -> TableSchema:
        if self._snapshot_id is None:
            return self._table.current_schema
        newer = read_columns(self.workload.source_newer_columns.encode())
        extended = with_newer_columns(self._table, self._snapshot_id, newer, self._columns_read)
        return schema_of(extended, extended.snapshot(self._snapshot_id))

    def _columns_read(self) -> frozenset[str]:
        contract = self.bound.contract
        target = TableMetadata.from_json(TableClient(self.client, *split_name(contract.boundary.target)).load())
        return columns_read(contract, to_model(target.current_schema).names)

    def _add_newer_columns(self, frame: DataFrame) -> DataFrame:
        """Add later columns with their defaults or null, since Spark reads a snapshot by the snapshot's own schema."""
        defaults = initial_defaults(self._schema_with_newer)
        names_in_frame = {name.lower() for name in frame.columns}
        for field in self.schema.fields:
            if field.name.lower() not in names_in_frame:
                default = None if field.field_id is None else defaults.get(field.field_id)
                value = null_of(field.type) if default is None else literal(default, field.type)
                frame = frame.withColumn(field.name, value)
        return frame

    def frame(self, chunk: ChunkDefinition) -> DataFrame:
        """The chunk's rows in the source, by the filters of contract and chunk. No value becomes a part of SQL text."""
        from pyspark.sql import functions

        filters = condition(self.bound.where(self.schema)) & condition(bind(chunk.expression, self.schema, {}))
        table = self.bound.contract.boundary.source.table
        if table is None:
            all_paths = [str(each["path"]) for each in self._manifest["files"]]
            paths = all_paths if chunk.files is None else list(chunk.files)
            if paths:
                return self.session().read.parquet(*paths).where(filters)
            columns = ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in self.schema.fields)
            return self.session().createDataFrame([], columns)
        if self._snapshot_id is None:
            return self.session().table(self._spark_name(table)).where(functions.lit(False))
        frame = self.session().read.option("versionAsOf", str(self._snapshot_id)).table(self._spark_name(table))
        if chunk.files is not None:
            frame = frame.where(functions.col(_FILE_COLUMN).isin(*chunk.files))
        return self._add_newer_columns(frame).where(filters)

    def apply_mapping(self, frame: DataFrame) -> DataFrame:
        """Apply the declared mapping: columns renamed, left out, reordered and widened."""
        from pyspark.sql import functions

        columns = []
        for each in map_columns(self.bound.contract.boundary.columns, self.schema):
            column = functions.col(spark_name(each.source))
            if each.type != self.schema.column(each.source).type:
                column = column.cast(spark_type(each.type))
            columns.append(column.alias(each.target))
        return frame.select(*columns)

    def _spark_name(self, table: str) -> str:
        levels, name = split_name(table)
        return spark_name(self._catalog_name, *levels, name)

    @cached_property
    def _catalog_name(self) -> str:
        """The name of a catalog that is added to the session, with the Steward's address and the producer's token."""
        lent = self.client.lend(Role.PRODUCER)
        digest = hashlib.sha256(self.client.url.encode() + (lent.token_id or "").encode() + lent.token.reveal())
        name = f"pvdm_{digest.hexdigest()[:16]}"
        catalog = SparkCatalog(name, f"{self.client.url}/catalog", lent.token, lent.token_id)
        add_catalog(self.session(), catalog)
        return catalog.name


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk, as the job gets it. Its rows are those in the source's `files`, or those where `where` is true."""

    workload_id: str
    chunk_id: str
    table: str
    where: str | None
    files: tuple[str, ...] | None
    parameters: Mapping[str, str]
    source_snapshot_id: int | None
    _source: Source | None

    @classmethod
    def of(cls, workload: WorkloadView, chunk: ChunkView, source: Source | None) -> Chunk:
        """The chunk for the job, from the workload and the chunk in the Steward's responses."""
        table, parameters, pinned = str(workload.table), dict(workload.parameters), workload.source_snapshot_id
        return cls(workload.workload_id, chunk.chunk_id, table, chunk.where, chunk.files, parameters, pinned, source)

    def _require_source(self) -> Source:
        if self._source is None:
            raise Code.JOB_INVALID(reason="chunk_without_spark", got="a small job")
        return self._source

    def source(self) -> DataFrame:
        """The chunk's rows in the pinned source, with the source's columns."""
        return self._require_source().frame(ChunkDefinition(self.chunk_id, self.where, self.files))

    def rows(self) -> DataFrame:
        """The rows of `source()`, with the target's columns, by the contract's column mapping."""
        return self._require_source().apply_mapping(self.source())
