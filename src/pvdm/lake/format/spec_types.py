"""Which partition specs a protected table may have."""

from __future__ import annotations

from pvdm.errors import NotAllowedError
from pvdm.lake.format.document import dump_json
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.partition import PartitionSpec, source_types
from pvdm.lake.format.schema_model import to_model
from pvdm.model.schema import FixedType


def require_readable_partitions(metadata: TableMetadata) -> None:
    """No partition is a column of `fixed` itself.

    Iceberg's Java library writes a length before such values in manifests and reads them so (apache/iceberg#17501).
    Avro has none there: Spark would show other values than every reader that follows the specification.
    """
    found = _fixed_partition(metadata)
    if found is not None:
        raise NotAllowedError(
            "partition_fixed_refused",
            f"partition field {found} is a column of type fixed, whose values engines read differently",
            expected="partitions by other columns, or by bucket of this one",
            got=f"identity of a fixed column, in {found}",
            hint="nothing was changed; the table needs another partition spec, and no old one like that",
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
