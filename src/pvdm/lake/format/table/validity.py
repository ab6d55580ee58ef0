"""The validity of a metadata document as a whole: what one part says of another must be true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pvdm.errors import InputError
from pvdm.lake.format.json.document import LONG_LAST
from pvdm.lake.format.schema.document import TableSchema, judge_version
from pvdm.lake.format.table.snapshots import MAIN, RefType
from pvdm.lake.format.table.specs import (
    TableOrder,
    TableSpec,
    judge_order,
    judge_spec,
    judge_spec_names,
    judge_spec_types,
)
from pvdm.model.clock import CLOCK_SKEW_MAX_SECONDS

if TYPE_CHECKING:
    from pvdm.lake.format.table.metadata import TableMetadata

CLOCK_SKEW_MAX_MS: Final = CLOCK_SKEW_MAX_SECONDS * 1_000


def judge(metadata: TableMetadata) -> None:
    """Raise on the first thing that does not hold."""
    _judge_numbers(metadata)
    _judge_schemas(metadata)
    _judge_specs(metadata)
    _judge_orders(metadata)
    _judge_snapshots(metadata)
    _judge_refs(metadata)
    _judge_keys(metadata)
    _judge_log(metadata, [entry.timestamp_ms for entry in metadata.snapshot_log], "snapshot")
    _judge_log(metadata, [entry.timestamp_ms for entry in metadata.metadata_log], "metadata")


def schema_by_id(metadata: TableMetadata, schema_id: int) -> TableSchema:
    """The schema of an id that must be there."""
    found = metadata.schema(schema_id)
    if found is None:
        ids = ", ".join(str(schema.schema_id) for schema in metadata.schemas)
        raise _refused(
            "schema_unknown", "no schema has this id", f"one of {ids or 'none'}", str(schema_id), "$.schemas"
        )
    return found


def spec_by_id(metadata: TableMetadata, spec_id: int) -> TableSpec:
    """The spec of an id that must be there."""
    found = metadata.spec(spec_id)
    if found is None:
        ids = ", ".join(str(spec.spec_id) for spec in metadata.specs)
        raise _refused(
            "spec_unknown",
            "no partition spec has this id",
            f"one of {ids or 'none'}",
            str(spec_id),
            "$.partition-specs",
        )
    return found


def order_by_id(metadata: TableMetadata, order_id: int) -> TableOrder:
    """The sort order of an id that must be there."""
    found = metadata.sort_order(order_id)
    if found is None:
        ids = ", ".join(str(order.order_id) for order in metadata.sort_orders)
        raise _refused(
            "sort_order_unknown", "no sort order has this id", f"one of {ids or 'none'}", str(order_id), "$.sort-orders"
        )
    return found


def _judge_numbers(metadata: TableMetadata) -> None:
    for key, number in (
        ("last-sequence-number", metadata.last_sequence_number),
        ("last-column-id", metadata.last_column_id),
        ("next-row-id", metadata.next_row_id),
    ):
        if number < 0:
            raise _refused("counter_negative", f"{key} cannot be accepted", "a number from 0", str(number), f"$.{key}")


def _judge_schemas(metadata: TableMetadata) -> None:
    if twice := _twice(schema.schema_id for schema in metadata.schemas):
        raise _refused("schema_id_duplicate", "two schemas have one id", "each id once", twice, "$.schemas")
    schema_by_id(metadata, metadata.current_schema_id)
    for schema in metadata.schemas:
        judge_version(schema, metadata.format_version)
        if schema.highest_field_id > metadata.last_column_id:
            raise _refused(
                "last_column_id_behind",
                "last-column-id is below a column's id, so that id would be given again",
                f"at least {schema.highest_field_id}",
                str(metadata.last_column_id),
                "$.last-column-id",
            )


def _judge_specs(metadata: TableMetadata) -> None:
    if twice := _twice(spec.spec_id for spec in metadata.specs):
        raise _refused(
            "spec_id_duplicate", "two partition specs have one id", "each id once", twice, "$.partition-specs"
        )
    current = metadata.current_schema
    judge_spec(spec_by_id(metadata, metadata.default_spec_id), current)
    for spec in metadata.specs:
        judge_spec_names(spec, current)
        judge_spec_types(spec, current)
        if spec.fields and spec.highest_field_id > metadata.last_partition_id:
            raise _refused(
                "last_partition_id_behind",
                "last-partition-id is below a partition field's id, so that id would be given again",
                f"at least {spec.highest_field_id}",
                str(metadata.last_partition_id),
                "$.last-partition-id",
            )


def _judge_orders(metadata: TableMetadata) -> None:
    if twice := _twice(order.order_id for order in metadata.sort_orders):
        raise _refused("sort_order_id_duplicate", "two sort orders have one id", "each id once", twice, "$.sort-orders")
    judge_order(order_by_id(metadata, metadata.default_sort_order_id), metadata.current_schema)


def _judge_snapshots(metadata: TableMetadata) -> None:
    if twice := _twice(snapshot.snapshot_id for snapshot in metadata.snapshots):
        raise _refused("snapshot_id_duplicate", "two snapshots have one id", "each id once", twice, "$.snapshots")
    for snapshot in metadata.snapshots:
        if snapshot.sequence_number > metadata.last_sequence_number:
            raise _refused(
                "snapshot_sequence_ahead",
                f"snapshot {snapshot.snapshot_id} has a sequence number that the table has not given",
                f"at most {metadata.last_sequence_number}",
                str(snapshot.sequence_number),
                snapshot.place,
            )
        if metadata.format_version < 3 or snapshot.first_row_id is None:
            continue
        end = snapshot.first_row_id + (snapshot.added_rows or 0)
        if end > min(metadata.next_row_id, LONG_LAST):
            raise _refused(
                "snapshot_row_ids_ahead",
                f"snapshot {snapshot.snapshot_id} has row ids that the table would give again",
                f"row ids below next-row-id {metadata.next_row_id}",
                f"row ids up to {end}",
                snapshot.place,
            )


def _judge_refs(metadata: TableMetadata) -> None:
    current = metadata.current_snapshot_id
    if current is not None and metadata.snapshot(current) is None:
        raise _refused(
            "current_snapshot_unknown",
            "the current snapshot is not among the snapshots",
            "a snapshot of the table",
            str(current),
            "$.current-snapshot-id",
        )
    main = metadata.refs.get(MAIN)
    if main is not None and (main.snapshot_id != current or main.type is not RefType.BRANCH):
        raise _refused(
            "main_mismatch",
            "main and the current snapshot do not agree",
            f"branch main at {current}",
            f"{main.type.value} main at {main.snapshot_id}",
            "$.refs['main']",
        )
    for name, ref in metadata.refs.items():
        if metadata.snapshot(ref.snapshot_id) is None:
            raise _refused(
                "ref_target_unknown",
                f"{ref.type.value} {name[:64]!r} points to a snapshot that the table does not have",
                "a snapshot of the table",
                str(ref.snapshot_id),
                f"$.refs[{name[:64]!r}]",
            )


def _judge_keys(metadata: TableMetadata) -> None:
    if twice := _twice(key.key_id for key in metadata.encryption_keys):
        raise _refused("encryption_key_duplicate", "two keys have one id", "each id once", twice, "$.encryption-keys")


def _judge_log(metadata: TableMetadata, times: Sequence[int], what: str) -> None:
    place = f"$.{what}-log"
    for earlier, later in pairwise(times):
        if later - earlier < -CLOCK_SKEW_MAX_MS:
            raise _refused(
                "log_unsorted",
                f"the {what} log is not in order of time",
                f"at least {earlier} less {CLOCK_SKEW_MAX_MS} ms",
                str(later),
                place,
            )
    if times and metadata.last_updated_ms - times[-1] < -CLOCK_SKEW_MAX_MS:
        raise _refused(
            "last_updated_before_log",
            f"last-updated-ms lies before the last entry of the {what} log",
            f"at least {times[-1]} less {CLOCK_SKEW_MAX_MS} ms",
            str(metadata.last_updated_ms),
            place,
        )


def _twice(ids: Iterable[int | str]) -> str | None:
    """The first id that comes again."""
    listed = list(ids)
    if len(set(listed)) == len(listed):
        return None
    seen: set[int | str] = set()
    for found in listed:
        if found in seen:
            return f"{found} twice"
        seen.add(found)
    return None


def _refused(code: str, message: str, expected: str, got: str, place: str) -> InputError:
    return InputError(code, f"{message} ({place})", expected=expected, got=got, place=place)
