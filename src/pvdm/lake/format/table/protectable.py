"""What a protected table may not have, since some engine cannot read it or reads it differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import dump_json
from pvdm.lake.format.manifest.fields import avro_name
from pvdm.lake.format.partition.spec import PartitionSpec, source_types
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.reader_settings import require_no_reader_settings
from pvdm.model.schema import Field, FixedType, ListType, MapType, StructType, Type

RESERVED_NAMES: Final = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""Columns that Iceberg adds to every table in Spark, which then cannot read a table that has one of its own."""


def require_protectable(metadata: TableMetadata) -> None:
    """Refuse column names, partitions and properties by which some engine reads the table differently or not at all."""
    _require_names(metadata)
    _require_partitions(metadata)
    require_no_reader_settings(metadata)


def _require_names(metadata: TableMetadata) -> None:
    columns = to_model(metadata.current_schema).fields
    for each in columns:
        if each.name.lower() in RESERVED_NAMES:
            raise Code.COLUMN_NAME_RESERVED(
                f"column {each.name} has a name that Iceberg keeps for itself: Spark cannot read such a table",
                got=each.name,
            )
    in_table: dict[str, str] = {}
    in_files: dict[str, str] = {}
    for path, path_in_files in _paths(columns):
        name = ".".join(path)
        for seen, lowered in ((in_table, name.lower()), (in_files, ".".join(path_in_files).lower())):
            other = seen.setdefault(lowered, name)
            if other != name:
                raise Code.COLUMN_NAMES_COLLIDE(
                    f"columns {other} and {name} have one name for engines that ignore upper case",
                    got=f"{other} and {name}",
                )


def _paths(columns: tuple[Field, ...]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every named field at any depth: its path, and the path that it has in files."""
    for each in columns:
        own, in_files = (each.name,), (avro_name(each.name),)
        yield own, in_files
        for inner, inner_in_files in _paths_inside(each.type):
            yield own + inner, in_files + inner_in_files


def _paths_inside(kind: Type) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    match kind:
        case StructType(fields):
            yield from _paths(fields)
        case ListType(element):
            yield from _below("element", element.type)
        case MapType(key, value):
            yield from _below("key", key.type)
            yield from _below("value", value.type)


def _below(name: str, kind: Type) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for own, in_files in _paths_inside(kind):
        yield (name, *own), (name, *in_files)


def _require_partitions(metadata: TableMetadata) -> None:
    """No partition is a column of `fixed` itself.

    Iceberg's Java library writes a length before such values in manifests and reads them so (apache/iceberg#17501).
    Avro has none there: Spark would show other values than every reader that follows the specification.
    """
    found = _fixed_partition(metadata)
    if found is not None:
        raise Code.PARTITION_FIXED_REFUSED(
            f"partition field {found} is a column of type fixed, whose values engines read differently",
            got=f"identity of a fixed column, in {found}",
        )


def _fixed_partition(metadata: TableMetadata) -> str | None:
    """The name of a partition field, of any spec of the table, that is the value of a column of type fixed."""
    fixed = {
        field_id
        for schema in metadata.schemas
        for field_id, kind in source_types(to_model(schema)).items()
        if isinstance(kind, FixedType)
    }
    for each in metadata.specs:
        spec = PartitionSpec.from_text(each.spec_id, dump_json(each.raw["fields"]).decode())
        for field in spec.fields:
            if field.transform.name == "identity" and fixed.intersection(field.source_ids):
                return field.name
    return None
