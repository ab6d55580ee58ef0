"""Batches with one column, encoded by the reference engine: its cells for a target type, or its error."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.plan import Mode, Plan
from pvdm.digest.reference import ReferenceEngine
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName, content
from pvdm.model.schema import Schema

CONTENT = ProjectionName.CONTENT
ARROW: Any = pa
"""pyarrow without its type stubs, which lack some layouts."""


def plan_for(kind: object, mode: Mode = Mode.STORED, *, required: bool = False) -> Plan:
    """The plan for a schema with the one column `c` of this type."""
    fields = [{"name": "c", "required": required, "type": kind}]
    schema = Schema.from_json({"fields": fields, "type": "struct"})
    return Plan(schema, (content(schema),), mode)


def cells(array: Any, kind: object, mode: Mode = Mode.STORED, *, required: bool = False) -> list[str]:
    """The encoded rows of an array for a target type, in hex. A row has only the cell of column `c`."""
    batch = pa.record_batch([array], names=["c"])
    return [row.hex() for row in ReferenceEngine().encode(plan_for(kind, mode, required=required), CONTENT, batch)]


def refusal(array: Any, kind: object, mode: Mode = Mode.STORED, *, required: bool = False) -> InputError:
    """The error with which the reference refuses the array."""
    with pytest.raises(InputError) as caught:
        cells(array, kind, mode, required=required)
    return caught.value


def text_cell(tag: str, text: str) -> str:
    """The expected cell of a short text, in hex: tag, length, UTF-8."""
    return f"{tag}{len(text.encode()):02x}{text.encode().hex()}"


def list_of(kind: object, *, required: bool = False) -> dict[str, object]:
    return {"element": {"required": required, "type": kind}, "type": "list"}


def map_of(key: object, value: object) -> dict[str, object]:
    return {"key": {"required": True, "type": key}, "type": "map", "value": {"required": False, "type": value}}


def struct_of(**kinds: object) -> dict[str, object]:
    return {"fields": [{"name": n, "required": False, "type": k} for n, k in kinds.items()], "type": "struct"}


def raw(kind: Any, *values: int, code: str = "q") -> Any:
    """An array of this Arrow type over given integers, for values that `pa.array` would refuse."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(struct.pack(f"={len(values)}{code}", *values))])


def dictionary(values: Any, indices: list[int | None]) -> Any:
    return ARROW.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)


def run_ends(ends: list[int], values: Any) -> Any:
    return ARROW.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int16()), values)


class VariantType(pa.ExtensionType):
    """An extension type with a given name, as a reader of Parquet files may register one for variants."""

    def __init__(self, storage: Any, name: str) -> None:
        super().__init__(storage, name)

    def __arrow_ext_serialize__(self) -> bytes:
        return self.extension_name.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> VariantType:
        return cls(storage_type, serialized.decode())


NAMES = b"\x01\x02\x00\x01\x02ba"
"""Metadata of a variant with the unsorted names `b` and `a`."""
STORAGE = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def variants(*values: bytes | None, metadata: bytes = NAMES, storage: Any = STORAGE) -> Any:
    """An array of variants with these value bytes, all with the same metadata."""
    return pa.array([None if v is None else {"metadata": metadata, "value": v} for v in values], storage)
