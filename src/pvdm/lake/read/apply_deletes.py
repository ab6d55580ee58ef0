"""Rows taken out of a data file: by their place, and by equal values."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa

from pvdm.errors import Code, VerificationError
from pvdm.lake.file_context import in_file
from pvdm.lake.format.manifest.entry import FileContent
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.read.arrow_types import arrow_type
from pvdm.lake.read.deletes import FILE_PATH_ID, POSITION_ID, ROW_ID, DeleteFile
from pvdm.lake.read.resolve import Array, Resolution, every_id, pc
from pvdm.lake.read.vectors import Vectors
from pvdm.model.schema import Field, Kind, ListType, MapType, PrimitiveType, Schema, StructType

_arange: Final[Any] = getattr(pa, "arange")  # noqa: B009  its stubs do not know it
_PLACES: Final = Schema(
    (
        Field("file_path", PrimitiveType(Kind.STRING), field_id=FILE_PATH_ID),
        Field("pos", PrimitiveType(Kind.LONG), field_id=POSITION_ID),
    )
)
# With the rows themselves, which a file may have beside their places.
_PLACES_IDS: Final = frozenset({FILE_PATH_ID, POSITION_ID, ROW_ID})


class _Reader(Protocol):
    """Reads the rows of a Parquet file in memory; as `scan.BatchReader`, as far as deletes need it."""

    def __call__(
        self, data: bytes, schema: Schema, dropped: Collection[int] = (), *, claims_checked: bool = False
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class Columns:
    """What is known of a table's columns: as the snapshot has them, as they were, every id, and initial defaults."""

    schema: Schema
    older: tuple[Schema, ...]
    known: frozenset[int]
    defaults: Mapping[int, Value]

    def besides(self, schema: Schema) -> frozenset[int]:
        """The ids that a file may have when it is read for these columns."""
        return self.known - every_id(schema)


class Deleted(Protocol):
    """A data file with its partition values and the delete files that apply to it."""

    @property
    def location(self) -> str:
        """Where it lies."""

    @property
    def record_count(self) -> int | None:
        """How many rows are listed for it."""

    @property
    def constants(self) -> Mapping[int, Value]:
        """The values of its identity partitions, by column."""

    @property
    def deletes(self) -> Sequence[DeleteFile]:
        """The delete files."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What leaves one data file: sorted places, and sets of keys with the columns that they are read from.

    Where the file has a deletion vector, `vector` has one bit a row, up to the last that it deletes at least, and the
    places are in it.
    """

    columns: Columns
    constants: Mapping[int, Value]
    positions: Array
    equalities: tuple[Equality, ...]
    vector: Array | None = None

    @classmethod
    def load(
        cls,
        columns: Columns,
        file: Deleted,
        vectors: Vectors,
        fetch: Callable[[str], bytes],
        read: _Reader,
    ) -> Removal:
        """Read the delete files that apply to the data file."""
        places: list[Array] = []
        vector: Array | None = None
        equal: dict[tuple[tuple[int, ...], bool], list[DeleteFile]] = {}
        for delete in file.deletes:
            if delete.vector:
                with in_file(delete.location):
                    vector = vectors.read(delete, _fetched(delete, fetch), file.record_count or 0)
            elif delete.content is FileContent.POSITION_DELETES:
                data = _fetched(delete, fetch)
                places.append(_positions(delete, data, file.location, read, columns.known))
            else:
                equal.setdefault((delete.equality_ids, delete.hidden), []).append(delete)
        equalities = tuple(
            replace(Equality.load(columns, ids, files, fetch, read), hidden=hidden)
            for (ids, hidden), files in equal.items()
        )
        found = _sorted(places)
        if vector is not None:
            _require_within(found, vector, file)
        return cls(columns, file.constants, found, equalities, vector)

    def keys(self, data: bytes, read: _Reader) -> list[Iterator[pa.RecordBatch]]:
        """The key columns of the data file, batch by batch beside its rows: a key may be a column that is gone."""
        found: list[Iterator[pa.RecordBatch]] = []
        for each in self.equalities:
            resolution = Resolution(each.columns, self.columns.defaults, self.constants)
            found.append(map(resolution.apply, read(data, resolution.wanted, self.columns.besides(each.columns))))
        return found

    def mask(self, first: int, rows: int, keys: Sequence[Iterator[pa.RecordBatch]]) -> Array | None:
        """Which of the next rows stay; None where all do."""
        gone: Array | None = None
        for equality, batches in zip(self.equalities, keys, strict=True):
            found = equality.matches(_beside(batches, rows))
            if equality.hidden:
                _require_none(found)
            gone = found if gone is None else pc.or_(gone, found)
        if self.vector is not None:
            found = self._bits(first, rows)
            gone = found if gone is None else pc.or_(gone, found)
        low, high = (bisect.bisect_left(self.positions, at, key=_whole) for at in (first, first + rows))
        if low < high:
            found = pc.is_in(_arange(first, first + rows), value_set=self.positions.slice(low, high - low))
            gone = found if gone is None else pc.or_(gone, found)
        return None if gone is None else pc.invert(gone)

    def _bits(self, first: int, rows: int) -> Array:
        """What the vector says of these rows; behind its end nothing is deleted."""
        found = self.vector.slice(first, rows) if self.vector is not None else pa.nulls(0, pa.bool_())
        return pa.concat_arrays([found, pa.repeat(pa.scalar(False), rows - len(found))])


@dataclass(frozen=True, slots=True)
class _Step:
    """One more key column: its distinct values, and the distinct pairs of it with what came before."""

    values: Array
    pairs: Array


@dataclass(frozen=True, slots=True)
class Equality:
    """The keys of equality deletes over one set of columns; null equals null, NaN equals NaN, -0.0 is not 0.0.

    `hidden` are those of which manifests say that no row of the data file has one.
    """

    columns: Schema
    steps: tuple[_Step, ...]
    hidden: bool = False

    @classmethod
    def load(
        cls,
        known: Columns,
        ids: Sequence[int],
        files: Sequence[DeleteFile],
        fetch: Callable[[str], bytes],
        read: _Reader,
    ) -> Equality:
        """Read the keys that these files delete."""
        columns = key_schema(ids, known.schema, known.older)
        resolution = Resolution(columns, known.defaults, {})
        rows: list[list[Array]] = []
        for file in files:
            data, seen = _fetched(file, fetch), 0
            with in_file(file.location):
                for batch in read(data, resolution.wanted, known.besides(columns)):
                    rows.append(_keys(resolution.apply(batch), columns))
                    seen += batch.num_rows
            _require_rows(file, seen)
        joined = [pa.chunked_array(each).combine_chunks() for each in zip(*rows, strict=True)]
        return cls(columns, tuple(_steps(joined)))

    def matches(self, batch: pa.RecordBatch) -> Array:
        """Whether each row has one of the keys."""
        if not self.steps:
            return pa.repeat(pa.scalar(False), batch.num_rows)
        code: Array = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
        for step, column in zip(self.steps, _keys(batch, self.columns), strict=True):
            # What is not among the keys is null, and stays null to the end.
            found = pc.index_in(column, value_set=step.values).cast(pa.int64())
            pair = pc.add(pc.multiply(code, len(step.values)), found)
            code = pc.index_in(pair, value_set=step.pairs, skip_nulls=True).cast(pa.int64())
        return pc.is_valid(code)


def key_schema(ids: Sequence[int], schema: Schema, older: Sequence[Schema]) -> Schema:
    """The columns of an equality delete, each as the snapshot has it or as the table had it last."""
    left = set(ids)
    fields: dict[int | None, Field] = {}
    for each in (schema, *older):
        for field in _narrowed(each.fields, left & every_id(each)):
            known = fields.get(field.field_id)
            fields[field.field_id] = field if known is None else _joined(known, field)
        left -= every_id(each)
    if left:
        raise Code.EQUALITY_DELETE_REFUSED(reason="equality_ids_unknown", got=", ".join(map(str, sorted(left))))
    return Schema(tuple(fields.values()))


def _narrowed(fields: tuple[Field, ...], ids: Collection[int]) -> Iterator[Field]:
    """The fields of these ids, and structs around them; none is required, as a file may be older than any.

    They are named by their ids: a field that is gone may have had the name of one that is there.
    """
    for field in fields:
        if field.field_id in ids:
            if isinstance(field.type, StructType | ListType | MapType):
                raise Code.EQUALITY_DELETE_REFUSED(
                    reason="equality_column_nested", got=f"{field.name[:80]!a}, {field.type}"
                )
            yield replace(field, name=str(field.field_id), required=False)
        elif isinstance(field.type, StructType) and (inside := tuple(_narrowed(field.type.fields, ids))):
            yield replace(field, name=str(field.field_id), type=StructType(inside), required=False)


def _joined(one: Field, other: Field) -> Field:
    """A struct of which some fields are looked up in one schema, and some in another."""
    if not (isinstance(one.type, StructType) and isinstance(other.type, StructType)):
        raise AssertionError("an id is looked up once")
    fields = {field.field_id: field for field in one.type.fields}
    for field in other.type.fields:
        known = fields.get(field.field_id)
        fields[field.field_id] = field if known is None else _joined(known, field)
    return replace(one, type=StructType(tuple(fields.values())))


def _keys(batch: pa.RecordBatch, columns: Schema) -> list[Array]:
    """Key columns in a form in which equal means equal."""
    found: list[Array] = []
    for column, field in zip(batch.columns, columns.fields, strict=True):
        found.extend(_flat(column, field))
    return found


def _flat(array: Array, field: Field) -> Iterator[Array]:
    if isinstance(field.type, StructType):
        # A struct that is null is not one whose fields are null.
        yield pc.is_valid(array)
        for child, inner in zip(array.flatten(), field.type.fields, strict=True):
            yield from _flat(child, inner)
        return
    wanted = arrow_type(field.type)
    try:
        plain = array if array.type == wanted else array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Code.EQUALITY_TYPE_DIFFERS(
            f"key column {field.name} is not of its schema's type", expected=str(field.type), got=str(array.type)[:120]
        ) from None
    if pa.types.is_floating(wanted):
        one_nan = pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), wanted), plain)
        plain = one_nan.view(pa.int64() if wanted == pa.float64() else pa.int32())
    yield plain


def _steps(columns: Sequence[Array]) -> Iterator[_Step]:
    """Each column folded into a number below the count of keys, so that no product leaves 64 bits."""
    code: Array = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0])) if columns else None
    for column in columns:
        values = pc.unique(column)
        found = pc.index_in(column, value_set=values).cast(pa.int64())
        pair = pc.add(pc.multiply(code, len(values)), found)
        pairs = pc.unique(pair)
        code = pc.index_in(pair, value_set=pairs).cast(pa.int64())
        yield _Step(values, pairs)


def _beside(batches: Iterator[pa.RecordBatch], rows: int) -> pa.RecordBatch:
    batch = next(batches, None)
    if batch is None or batch.num_rows != rows:
        raise AssertionError("one file is read in the same batches each time")
    return batch


def _fetched(file: DeleteFile, fetch: Callable[[str], bytes]) -> bytes:
    data = fetch(file.location)
    if len(data) != file.size:
        raise Code.FILE_SIZE_LIES(
            "a delete file has another size than is listed for it",
            expected=f"{file.size} bytes",
            got=f"{len(data)} bytes",
            file=file.location,
        )
    return data


def _require_rows(file: DeleteFile, seen: int) -> None:
    if seen != file.record_count:
        raise VerificationError(
            Code.RECORD_COUNT_LIES,
            "a delete file does not hold the rows that are listed for it",
            expected=f"{file.record_count} rows",
            got=f"{seen} rows",
            file=file.location,
        )


def _positions(file: DeleteFile, data: bytes, location: str, read: _Reader, known: frozenset[int]) -> Array:
    """The places that a position delete file names in one data file; batch by batch, as it may name many others."""
    found: list[Array] = []
    seen = 0
    try:
        for batch in read(data, _PLACES, known | _PLACES_IDS):
            seen += batch.num_rows
            if seen > file.record_count:
                break
            if batch.schema.names != list(_PLACES.names):
                raise _refused(
                    file, "a column of paths and one of positions, by their field ids", "a file without them"
                )
            paths, places = batch.column(0).cast(pa.large_string()), batch.column(1).cast(pa.int64())
            found.append(_here(file, location, paths, places))
        if seen == file.record_count:
            # Iceberg in Java asks the file for the rows of one path, and passes over what its statistics rule out. They
            # are held to the values in a second pass, once it is known that there are no more rows than are listed.
            next(read(data, _PLACES, known | _PLACES_IDS, claims_checked=True), None)
    except (VerificationError, pa.ArrowException) as error:
        if isinstance(error, VerificationError) and error.code == Code.POSITION_DELETES_REFUSED:
            raise
        raise _refused(file, "a readable Parquet file", str(error)[:200]) from None
    _require_rows(file, seen)
    return pa.chunked_array(found, pa.int64()).combine_chunks()


def _here(file: DeleteFile, location: str, paths: Array, places: Array) -> Array:
    if paths.null_count or places.null_count:
        raise _refused(file, "paths and positions", "a null")
    here = pc.equal(paths, location)
    if file.referenced is not None and not pc.all(here, min_count=0).as_py():
        raise _refused(file, f"rows of {file.referenced} only, as it is listed", "rows of other files")
    return places.filter(here)


def _require_within(places: Array, vector: Array, file: Deleted) -> None:
    """A vector stands for every older position delete file too: some readers then leave those out, others do not."""
    inside = places.filter(pc.less(places, min(len(vector), file.record_count or 0)))
    behind = len(places) - len(inside) - pc.sum(pc.greater_equal(places, file.record_count or 0), min_count=0).as_py()
    if behind or not pc.all(vector.take(inside), min_count=0).as_py():
        raise Code.DELETION_VECTOR_REFUSED(
            reason="deletion_vector_incomplete", got="one that does not", file=file.location
        )


def _require_none(found: Array) -> None:
    """Engines that believe the manifests do not open the delete file, and show the row."""
    if pc.any(found, min_count=0).as_py():
        raise Code.EQUALITY_DELETE_REFUSED(
            reason="equality_delete_hidden", got="some that do not, so that engines differ about the row"
        )


def _sorted(places: Sequence[Array]) -> Array:
    joined = pa.chunked_array(list(places), pa.int64()).unique()
    return joined.take(pc.array_sort_indices(joined))


def _whole(number: Any) -> int:
    return int(number.as_py())


def _refused(file: DeleteFile, expected: str, got: str) -> VerificationError:
    return VerificationError(
        Code.POSITION_DELETES_REFUSED,
        "a position delete file cannot be applied",
        expected=expected,
        got=got,
        file=file.location,
    )
