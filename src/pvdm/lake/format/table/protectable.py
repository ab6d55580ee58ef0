"""Checks of a table before proofs protect its `main`: engines must be able to read it, and read it alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import dump_json
from pvdm.lake.format.manifest.fields import avro_name
from pvdm.lake.format.partition_spec import PartitionSpec, source_types
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import FixedType, ListType, MapType, StructType, Type

RESERVED_NAMES: Final = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""Columns that Iceberg adds to every table in Spark. Spark cannot read a table that has such a column itself."""


def require_protectable(metadata: TableMetadata) -> None:
    """Raise for column names, partitions and properties with which engines read the table differently or not at all."""
    _require_names(metadata)
    _require_partitions(metadata)
    require_no_reader_settings(metadata)


def _require_names(metadata: TableMetadata) -> None:
    columns = to_model(metadata.current_schema).fields
    for each in columns:
        if each.name.lower() in RESERVED_NAMES:
            words = f"column {each.name} has a name that Iceberg reserves: Spark cannot read such a table"
            raise Code.TABLE_UNPROTECTABLE(words, reason="column_name_reserved", got=each.name)
    names_in_table: dict[str, str] = {}
    names_in_files: dict[str, str] = {}
    for name, name_in_files in _list_names(StructType(columns)):
        places = ((names_in_table, name), (names_in_files, name_in_files))
        for names, key in ((names, key) for names, each in places for key in _ignore_case(each)):
            if (other := names.setdefault(key, name)) != name:
                words = f"columns {other} and {name} have one name for engines that ignore upper case"
                raise Code.TABLE_UNPROTECTABLE(words, reason="column_names_collide", got=f"{other} and {name}")


def _ignore_case(name: str) -> set[str]:
    """The name in lower case, and as Java's `equalsIgnoreCase` compares it: each character through its upper case."""
    upper = (each if len(each.upper()) > 1 else each.upper() for each in name)
    return {name.lower(), "".join(each.lower()[0] for each in upper)}


def _list_names(type_: Type, prefix: str = "", prefix_in_files: str = "") -> Iterator[tuple[str, str]]:
    """The full name of every named field at any depth, as in the table and as in files, where Iceberg escapes it."""
    match type_:
        case StructType(fields):
            for field in fields:
                name, name_in_files = f"{prefix}{field.name}", f"{prefix_in_files}{avro_name(field.name)}"
                yield name, name_in_files
                yield from _list_names(field.type, f"{name}.", f"{name_in_files}.")
        case ListType(element):
            yield from _list_names(element.type, f"{prefix}element.", f"{prefix_in_files}element.")
        case MapType(key, value):
            yield from _list_names(key.type, f"{prefix}key.", f"{prefix_in_files}key.")
            yield from _list_names(value.type, f"{prefix}value.", f"{prefix_in_files}value.")


def _require_partitions(metadata: TableMetadata) -> None:
    """Raise if a partition of any spec is the value of a column of type `fixed`.

    Iceberg's Java library writes a length before such values in manifests (apache/iceberg#17501). The specification has
    no length there, so Spark would show other values than readers that follow the specification.
    """
    fixed_column_ids = {
        field_id
        for schema in metadata.schemas
        for field_id, type_ in source_types(to_model(schema)).items()
        if isinstance(type_, FixedType)
    }
    for each in metadata.specs:
        for field in PartitionSpec.from_text(each.spec_id, dump_json(each.raw["fields"]).decode()).fields:
            if field.transform.name == "identity" and fixed_column_ids.intersection(field.source_ids):
                words = f"partition field {field.name} is a column of type fixed, whose values engines read differently"
                got = f"identity of a fixed column, in {field.name}"
                raise Code.TABLE_UNPROTECTABLE(words, reason="partition_fixed_refused", got=got)


# Table properties that tell PyIceberg how to reach files or which classes to load: by prefix, and by whole name.
_SETTING_PREFIXES: Final = tuple(
    "adls. auth. client. encryption.kms gcs. hdfs. header. hf. oauth2 oss. rest. s3. ssl.".split()  # noqa: SIM905
)
_SETTING_NAMES: Final = frozenset(
    """
    credential default_netloc default_scheme io-impl py-catalog-impl py-io-impl token uri warehouse
    write.py-location-provider.impl
    """.split()  # noqa: SIM905 - a list would have one name a line
)


def is_reader_setting(name: str) -> bool:
    """Whether a property of this name tells a reader how to reach files, or which classes to load."""
    normal = name.strip().lower()
    return normal in _SETTING_NAMES or normal.startswith(_SETTING_PREFIXES)


def require_no_reader_settings(metadata: TableMetadata) -> None:
    """Raise for properties that change where a reader finds files, or which code it loads.

    In PyIceberg a table's properties override the user's settings: `s3.endpoint` makes it read files from another
    address, which can serve any rows, and `py-io-impl` makes it load a class.
    """
    settings = sorted(name for name in metadata.properties if is_reader_setting(name))
    if settings:
        raise Code.TABLE_UNPROTECTABLE(reason="reader_setting_refused", got=ascii(settings[0][:80]))
