"""Checks of a table metadata document as a whole: references between its parts must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import LONG_LAST
from pvdm.lake.format.schema.document import TableSchema, check_version
from pvdm.lake.format.table import specs
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot
from pvdm.model.fields import CLOCK_SKEW_MAX_SECONDS

if TYPE_CHECKING:
    from pvdm.lake.format.table.metadata import TableMetadata

CLOCK_SKEW_MAX_MS: Final = CLOCK_SKEW_MAX_SECONDS * 1_000
_Part = TypeVar("_Part", TableSchema, specs.TableSpec, specs.TableOrder)


def check(metadata: TableMetadata) -> None:
    """Raise the error of the first rule that the document breaks."""
    _check_numbers(metadata)
    _check_schemas(metadata)
    _check_specs(metadata)
    _check_orders(metadata)
    _check_snapshots(metadata)
    _check_refs(metadata)
    if repeated := find_repeated(key.key_id for key in metadata.encryption_keys):
        raise Code.TABLE_METADATA_INVALID(reason="encryption_key_duplicate", got=repeated, place="$.encryption-keys")
    _check_log(metadata, [entry.timestamp_ms for entry in metadata.snapshot_log], "snapshot")
    _check_log(metadata, [entry.timestamp_ms for entry in metadata.metadata_log], "metadata")


def require_part(parts: Mapping[int, _Part], part_id: int, code: Code, reason: str, place: str) -> _Part:
    """The schema, spec or sort order of this id. Raises an error of this code if the table does not have it."""
    if part_id not in parts:
        ids = ", ".join(map(str, parts)) or "none"
        raise code(reason=reason, expected=f"one of {ids}", got=str(part_id), place=place)
    return parts[part_id]


def _check_numbers(metadata: TableMetadata) -> None:
    for key, number in (
        ("last-sequence-number", metadata.last_sequence_number),
        ("last-column-id", metadata.last_column_id),
        ("next-row-id", metadata.next_row_id),
    ):
        if number < 0:
            words = f"{key} is negative"
            raise Code.TABLE_METADATA_INVALID(words, reason="counter_negative", got=str(number), place=f"$.{key}")


def _check_schemas(metadata: TableMetadata) -> None:
    if repeated := find_repeated(schema.schema_id for schema in metadata.schemas):
        raise Code.ICEBERG_SCHEMA_INVALID(reason="schema_id_duplicate", got=repeated, place="$.schemas")
    _ = metadata.current_schema  # raises if the table does not have it
    for schema in metadata.schemas:
        check_version(schema, metadata.format_version)
        if schema.highest_field_id > (last := metadata.last_column_id):
            raise _behind("last_column_id_behind", "last-column-id", schema.highest_field_id, last)


def _check_specs(metadata: TableMetadata) -> None:
    if repeated := find_repeated(spec.spec_id for spec in metadata.specs):
        raise Code.PARTITION_SPEC_INVALID(reason="spec_id_duplicate", got=repeated, place="$.partition-specs")
    current = metadata.current_schema
    specs.check_spec(metadata.default_spec, current)
    for spec in metadata.specs:
        specs.check_spec_names(spec, current)
        specs.check_spec_types(spec, current)
        if spec.fields and spec.highest_field_id > (last := metadata.last_partition_id):
            raise _behind("last_partition_id_behind", "last-partition-id", spec.highest_field_id, last)


def _behind(reason: str, key: str, highest_id: int, last: int) -> PvdmError:
    expected, got = f"at least {highest_id}", str(last)
    return Code.TABLE_METADATA_INVALID(reason=reason, expected=expected, got=got, place=f"$.{key}")


def _check_orders(metadata: TableMetadata) -> None:
    if repeated := find_repeated(order.order_id for order in metadata.sort_orders):
        raise Code.SORT_ORDER_INVALID(reason="sort_order_id_duplicate", got=repeated, place="$.sort-orders")
    specs.check_order(metadata.default_sort_order, metadata.current_schema)


def _check_snapshots(metadata: TableMetadata) -> None:
    if repeated := find_repeated(snapshot.snapshot_id for snapshot in metadata.snapshots):
        raise Code.SNAPSHOT_INVALID(reason="snapshot_id_duplicate", got=repeated, place="$.snapshots")
    for snapshot in metadata.snapshots:
        if snapshot.sequence_number > metadata.last_sequence_number:
            expected, got = f"at most {metadata.last_sequence_number}", str(snapshot.sequence_number)
            raise _ahead("snapshot_sequence_ahead", expected, got, snapshot)
        if metadata.format_version < 3 or snapshot.first_row_id is None:
            continue
        end = snapshot.first_row_id + (snapshot.added_rows or 0)
        if end > min(metadata.next_row_id, LONG_LAST):
            expected = f"row ids below next-row-id {metadata.next_row_id}"
            raise _ahead("snapshot_row_ids_ahead", expected, f"row ids up to {end}", snapshot)


def _ahead(reason: str, expected: str, got: str, snapshot: Snapshot) -> PvdmError:
    got = f"{got} for snapshot {snapshot.snapshot_id}"
    return Code.SNAPSHOT_INVALID(reason=reason, expected=expected, got=got, place=snapshot.place)


def _check_refs(metadata: TableMetadata) -> None:
    current = metadata.current_snapshot_id
    if current is not None and metadata.snapshot(current) is None:
        raise Code.SNAPSHOT_INVALID(reason="current_snapshot_unknown", got=str(current), place="$.current-snapshot-id")
    main = metadata.refs.get(MAIN)
    if main is not None and (main.snapshot_id != current or main.type is not RefType.BRANCH):
        got, expected = f"{main.type.value} main at {main.snapshot_id}", f"branch main at {current}"
        raise Code.REF_INVALID(reason="main_mismatch", expected=expected, got=got, place="$.refs['main']")
    for name, ref in metadata.refs.items():
        if metadata.snapshot(ref.snapshot_id) is None:
            words = f"{ref.type.value} {name[:64]!r} points to a snapshot that the table does not have"
            got = str(ref.snapshot_id)
            raise Code.REF_INVALID(words, reason="ref_target_unknown", got=got, place=f"$.refs[{name[:64]!r}]")


def _check_log(metadata: TableMetadata, times: Sequence[int], what: str) -> None:
    """Raise unless the log's times ascend, up to the table's last update, within the allowed clock skew."""
    place = f"$.{what}-log"
    last = len(times) - 1
    for index, (earlier, later) in enumerate(pairwise((*times, metadata.last_updated_ms))):
        if later < earlier - CLOCK_SKEW_MAX_MS:
            reason = "last_updated_before_log" if index == last else "log_unsorted"
            expected = f"at least {earlier} less {CLOCK_SKEW_MAX_MS} ms"
            raise Code.TABLE_METADATA_INVALID(reason=reason, expected=expected, got=str(later), place=place)


def find_repeated(ids: Iterable[int | str]) -> str | None:
    """The first id that occurs twice, worded for an error; None if each id occurs once."""
    return next((f"{each} twice" for each, count in Counter(ids).items() if count > 1), None)
