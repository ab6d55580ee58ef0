"""The columns of a Parquet file by its footer alone, and a file of one empty row that has the same columns."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.errors import Code, VerificationError
from pvdm.verify.fetch import Files

FOOTER_MAX_BYTES: Final = 67_108_864
_MAGIC: Final = b"PAR1"
_TAIL: Final = 8
_map: Final[Any] = pa.map_  # its stubs know no field in the place of a type


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's columns as Arrow has them, with their field ids; `int96` are those with timestamps of that old kind."""

    schema: pa.Schema
    int96: frozenset[str]

    @property
    def key(self) -> bytes:
        """The same for files of the same columns."""
        return bytes(self.schema.serialize()) + repr(sorted(self.int96)).encode()

    def twin(self) -> bytes:
        """A Parquet file of one row, all of it null, with these columns: what reads it could read the file as well."""
        schema = pa.schema([_relaxed(field) for field in self.schema])
        out = io.BytesIO()
        row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
        pq.write_table(row, out, store_schema=False)
        return out.getvalue()


def read_footer(location: str, files: Files) -> Footer:
    """The columns of a file; nothing but its end is read."""
    tail = files.end(location, _TAIL)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL or tail[4:] != _MAGIC or length > FOOTER_MAX_BYTES:
        raise _unreadable(location, "another ending than a Parquet file has")
    data = _MAGIC + files.end(location, length + _TAIL)
    try:
        opened = pq.ParquetFile(pa.BufferReader(data))
        schema = opened.schema.to_arrow_schema()
        leaves = [opened.metadata.schema.column(at) for at in range(opened.metadata.num_columns)]
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(location, str(error).partition("\n")[0][:200]) from None
    old = frozenset(each.path.partition(".")[0] for each in leaves if each.physical_type == "INT96")
    return Footer(schema.remove_metadata(), old)


def _relaxed(field: Any) -> Any:
    """The same column, which may be null at any depth: whether it may is no matter of reading it."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_relaxed(kind.field(at)) for at in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = _map(kind.key_field, _relaxed(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_relaxed(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_relaxed(kind.value_field))
    return field.with_type(kind).with_nullable(True)


def _unreadable(location: str, got: str) -> VerificationError:
    return VerificationError(
        Code.PARQUET_UNREADABLE, f"{location} cannot be read", expected="a Parquet file", got=got, file=location
    )
