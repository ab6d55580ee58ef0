"""Applies deletes to the rows of a data file: by row position and by equal values."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.lake.format.manifest.entry import FileContent
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.paths import in_file
from pvdm.lake.read.deletes import DELETED_ROW_ID, FILE_PATH_ID, POSITION_ID, DeleteFile, ScanFile
from pvdm.lake.read.resolve import Array, BatchReader, Resolution, arrow_type, every_id, pc
from pvdm.lake.read.vectors import Vectors
from pvdm.model.schema import Field, Kind, ListType, MapType, PrimitiveType, Schema, StructType

Fetch: TypeAlias = Callable[[str], bytes]  # returns the bytes of the file at a location
_arange: Final[Any] = getattr(pa, "arange")  # noqa: B009  PyArrow's stubs lack it
_POSITION_DELETES: Final = Schema(
    (
        Field("file_path", PrimitiveType(Kind.STRING), field_id=FILE_PATH_ID),
        Field("pos", PrimitiveType(Kind.LONG), field_id=POSITION_ID),
    )
)
# A position delete file may also have a column with the deleted row itself.
_POSITION_DELETES_IDS: Final = frozenset({FILE_PATH_ID, POSITION_ID, DELETED_ROW_ID})


@dataclass(frozen=True, slots=True)
class Columns:
    """The snapshot's schema, the table's other schemas, all field ids that files may have, and default values by id."""

    schema: Schema
    other_schemas: tuple[Schema, ...]
    known_ids: frozenset[int]
    defaults: Mapping[int, Value]

    def other_ids(self, schema: Schema) -> frozenset[int]:
        """The ids that a file may have besides those of `schema`."""
        return self.known_ids - every_id(schema)


@dataclass(frozen=True, slots=True)
class Removal:
    """The deletes of one data file: sorted row positions, and keys of equality deletes.

    `vector` is the deletion vector, if there is one: one bit for each row, at least up to the last deleted row.
    """

    columns: Columns
    constants: Mapping[int, Value]
    positions: Array
    equalities: tuple[EqualityDelete, ...]
    vector: Array | None = None

    @classmethod
    def load(cls, columns: Columns, file: ScanFile, vectors: Vectors, fetch: Fetch, read: BatchReader) -> Removal:
        """Read the delete files that apply to the data file."""
        found: list[Array] = []
        vector: Array | None = None
        # Equality delete files by their key columns, and by whether they are hidden (`DeleteFile`).
        by_key: dict[tuple[tuple[int, ...], bool], list[DeleteFile]] = {}
        for delete in file.deletes:
            if delete.is_vector:
                with in_file(delete.location):
                    vector = vectors.read(delete, fetch_listed(delete, fetch), file.record_count or 0)
            elif delete.content is FileContent.POSITION_DELETES:
                data = fetch_listed(delete, fetch)
                found.append(_read_positions(delete, data, file.location, read, columns.known_ids))
            else:
                by_key.setdefault((delete.equality_ids, delete.is_hidden), []).append(delete)
        equalities = tuple(EqualityDelete.load(columns, ids, files, fetch, read) for (ids, _), files in by_key.items())
        joined = pa.chunked_array(found, pa.int64()).unique()
        positions = joined.take(pc.array_sort_indices(joined))
        if vector is not None:
            _require_in_vector(positions, vector, file)
        return cls(columns, file.constants, positions, equalities, vector)

    def read_keys(self, data: bytes, read: BatchReader) -> list[Iterator[pa.RecordBatch]]:
        """For each equality delete: the key columns of the data file, in the same batches as its rows."""
        found: list[Iterator[pa.RecordBatch]] = []
        for each in self.equalities:
            resolution = Resolution(each.columns, self.columns.defaults, self.constants)
            found.append(map(resolution.apply, read(data, resolution.wanted, self.columns.other_ids(each.columns))))
        return found

    def kept_mask(self, first: int, rows: int, keys: Sequence[Iterator[pa.RecordBatch]]) -> Array | None:
        """A mask of the `rows` rows from position `first` on: True for rows that stay. None if all rows stay."""
        deleted: list[Array] = []
        for equality, batches in zip(self.equalities, keys, strict=True):
            matches = equality.matches(_next_keys(batches, rows))
            # Engines that use the bounds in manifests do not open a hidden delete file, and show the row.
            if equality.is_hidden and pc.any(matches, min_count=0).as_py():
                got = "some that do not, so that engines differ about the row"
                raise Code.DELETES_REFUSED(reason="equality_delete_hidden", got=got)
            deleted.append(matches)
        if self.vector is not None:
            bits = self.vector.slice(first, rows)
            # No row after the end of the vector is deleted.
            deleted.append(pa.concat_arrays([bits, pa.repeat(pa.scalar(False), rows - len(bits))]))
        low, high = (
            bisect.bisect_left(self.positions, end, key=lambda each: int(each.as_py())) for end in (first, first + rows)
        )
        if low < high:
            deleted.append(pc.is_in(_arange(first, first + rows), value_set=self.positions.slice(low, high - low)))
        return pc.invert(functools.reduce(pc.or_, deleted)) if deleted else None


@dataclass(frozen=True, slots=True)
class _KeyColumn:
    """One column of the keys: its distinct `values`; `pairs` are the distinct results of `_pair` for this column."""

    values: Array
    pairs: Array


@dataclass(frozen=True, slots=True)
class EqualityDelete:
    """The keys of equality deletes over one set of columns. Null equals null, NaN equals NaN, -0.0 is not 0.0.

    The keys are hidden if the manifests say that no row of the data file has one of them.
    """

    columns: Schema
    key_columns: tuple[_KeyColumn, ...]
    is_hidden: bool = False

    @classmethod
    def load(
        cls, table: Columns, ids: Sequence[int], files: Sequence[DeleteFile], fetch: Fetch, read: BatchReader
    ) -> EqualityDelete:
        """Read the keys that these files delete. All of the files are hidden, or none."""
        columns = key_schema(ids, table.schema, table.other_schemas)
        resolution = Resolution(columns, table.defaults, {})
        rows: list[list[Array]] = []
        for file in files:
            data, seen = fetch_listed(file, fetch), 0
            with in_file(file.location):
                for batch in read(data, resolution.wanted, table.other_ids(columns)):
                    rows.append(_flatten_columns(resolution.apply(batch), columns))
                    seen += batch.num_rows
            _require_rows(file, seen)
        joined = [pa.chunked_array(each).combine_chunks() for each in zip(*rows, strict=True)]
        return cls(columns, tuple(_number_keys(joined)), files[0].is_hidden)

    def matches(self, batch: pa.RecordBatch) -> Array:
        """Whether each row has one of the keys."""
        if not self.key_columns:
            return pa.repeat(pa.scalar(False), batch.num_rows)
        number: Array = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
        for key_column, column in zip(self.key_columns, _flatten_columns(batch, self.columns), strict=True):
            # A value that is not among the keys becomes null and stays null.
            pair = _pair(number, column, key_column.values)
            number = pc.index_in(pair, value_set=key_column.pairs, skip_nulls=True).cast(pa.int64())
        return pc.is_valid(number)


def key_schema(ids: Sequence[int], schema: Schema, other_schemas: Sequence[Schema]) -> Schema:
    """The columns of an equality delete, each from the snapshot's schema or the first other schema that has it."""
    missing = set(ids)
    fields: tuple[Field, ...] = ()
    for each in (schema, *other_schemas):
        fields = _merge(fields, _select(each.fields, missing & every_id(each)))
        missing -= every_id(each)
    if missing:
        raise Code.DELETES_REFUSED(reason="equality_ids_unknown", got=", ".join(map(str, sorted(missing))))
    return Schema(fields)


def _select(fields: tuple[Field, ...], ids: Collection[int]) -> Iterator[Field]:
    """The fields of these ids and the structs around them, all optional: a file may be older than any of them.

    Each field is named by its id, since a dropped field may have had the name of another field.
    """
    for field in fields:
        if field.field_id in ids:
            if isinstance(field.type, StructType | ListType | MapType):
                raise Code.DELETES_REFUSED(reason="equality_column_nested", got=f"{field.name[:80]!a}, {field.type}")
            yield replace(field, name=str(field.field_id), required=False)
        elif isinstance(field.type, StructType) and (inside := tuple(_select(field.type.fields, ids))):
            yield replace(field, name=str(field.field_id), type=StructType(inside), required=False)


def _merge(known: tuple[Field, ...], more: Iterable[Field]) -> tuple[Field, ...]:
    """The fields of both arguments. If both have a struct of the same id, its fields are merged."""
    fields = {field.field_id: field for field in known}
    for field in more:
        same = fields.get(field.field_id)
        if same is None:
            fields[field.field_id] = field
        elif isinstance(same.type, StructType) and isinstance(field.type, StructType):
            fields[field.field_id] = replace(same, type=StructType(_merge(same.type.fields, field.type.fields)))
        else:
            raise AssertionError("the id was looked up before")
    return tuple(fields.values())


def _flatten_columns(batch: pa.RecordBatch, columns: Schema) -> list[Array]:
    """The key columns without structs, converted so that values that are equal for Iceberg compare as equal."""
    pairs = zip(batch.columns, columns.fields, strict=True)
    return [array for column, field in pairs for array in _flatten(column, field)]


def _flatten(array: Array, field: Field) -> Iterator[Array]:
    if isinstance(field.type, StructType):
        # A null struct differs from a struct of nulls.
        yield pc.is_valid(array)
        for child, inner in zip(array.flatten(), field.type.fields, strict=True):
            yield from _flatten(child, inner)
        return
    wanted = arrow_type(field.type)
    try:
        plain = array if array.type == wanted else array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        words, got = f"key column {field.name} is not of its schema's type", str(array.type)[:120]
        raise Code.SOURCE_DAMAGED(words, reason="equality_type_differs", expected=str(field.type), got=got) from None
    if pa.types.is_floating(wanted):
        one_nan = pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), wanted), plain)
        plain = one_nan.view(pa.int64() if wanted == pa.float64() else pa.int32())
    yield plain


def _number_keys(columns: Sequence[Array]) -> Iterator[_KeyColumn]:
    """Number the keys column by column: keys that are equal in all columns so far have the same number.

    Each number is below the count of keys, so that no product in `_pair` leaves 64 bits.
    """
    number: Array = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0])) if columns else None
    for column in columns:
        values = pc.unique(column)
        pair = _pair(number, column, values)
        pairs = pc.unique(pair)
        number = pc.index_in(pair, value_set=pairs).cast(pa.int64())
        yield _KeyColumn(values, pairs)


def _pair(number: Array, column: Array, values: Array) -> Array:
    """Make one number of a key's `number` so far and its value in this column; null if `values` lacks the value."""
    return pc.add(pc.multiply(number, len(values)), pc.index_in(column, value_set=values).cast(pa.int64()))


def _next_keys(batches: Iterator[pa.RecordBatch], rows: int) -> pa.RecordBatch:
    batch = next(batches, None)
    if batch is None or batch.num_rows != rows:
        raise AssertionError("the second read of the file has other batches than the first")
    return batch


def fetch_listed(file: DeleteFile | ScanFile, fetch: Fetch) -> bytes:
    """The file's bytes. Raises unless the listed size is right: with a smaller size, readers could see fewer rows."""
    data = fetch(file.location)
    if len(data) != file.size:
        size, got = f"{file.size} bytes", f"{len(data)} bytes"
        raise Code.FILE_MISMATCH(reason="file_size_lies", expected=size, got=got, file=file.location)
    return data


def _require_rows(file: DeleteFile, seen: int) -> None:
    if seen != file.record_count:
        listed, got = f"{file.record_count} rows", f"{seen} rows"
        words = "a delete file does not have the rows that are listed for it"
        raise VerificationError(Code.RECORD_COUNT_LIES, words, expected=listed, got=got, file=file.location)


def _read_positions(file: DeleteFile, data: bytes, location: str, read: BatchReader, known: frozenset[int]) -> Array:
    """The positions that a delete file has for the data file at `location`. It may also have those of other files."""
    found: list[Array] = []
    seen = 0
    try:
        for batch in read(data, _POSITION_DELETES, known | _POSITION_DELETES_IDS):
            seen += batch.num_rows
            if seen > file.record_count:
                break
            if batch.schema.names != list(_POSITION_DELETES.names):
                expected = "a column of paths and one of positions, by their field ids"
                raise _refused(file, expected, "a file without them")
            paths, positions = batch.column(0).cast(pa.large_string()), batch.column(1).cast(pa.int64())
            found.append(_filter_positions(file, location, paths, positions))
        if seen == file.record_count:
            # Iceberg in Java reads the rows of one path and skips row groups that the statistics rule out. So a second
            # pass, after the count of rows is known, checks the statistics against the values.
            next(read(data, _POSITION_DELETES, known | _POSITION_DELETES_IDS, claims_checked=True), None)
    except (VerificationError, pa.ArrowException) as error:
        if isinstance(error, VerificationError) and error.reason == "position_deletes_refused":
            raise
        raise _refused(file, "a readable Parquet file", str(error)[:200]) from None
    _require_rows(file, seen)
    return pa.chunked_array(found, pa.int64()).combine_chunks()


def _filter_positions(file: DeleteFile, location: str, paths: Array, positions: Array) -> Array:
    if paths.null_count or positions.null_count:
        raise _refused(file, "paths and positions", "a null")
    of_location = pc.equal(paths, location)
    if file.referenced is not None and not pc.all(of_location, min_count=0).as_py():
        raise _refused(file, f"rows of {file.referenced} only, as it is listed", "rows of other files")
    return positions.filter(of_location)


def _require_in_vector(positions: Array, vector: Array, file: ScanFile) -> None:
    """Raise unless the vector has all positions of older delete files: some readers skip these files, others do not."""
    of_rows = positions.filter(pc.less(positions, file.record_count or 0))
    in_vector = of_rows.filter(pc.less(of_rows, len(vector)))
    if len(in_vector) < len(of_rows) or not pc.all(vector.take(in_vector), min_count=0).as_py():
        reason, got = "deletion_vector_incomplete", "one that does not"
        raise Code.DELETES_REFUSED(reason=reason, got=got, file=file.location)


def _refused(file: DeleteFile, expected: str, got: str) -> PvdmError:
    return Code.SOURCE_DAMAGED(reason="position_deletes_refused", expected=expected, got=got, file=file.location)
