"""The kernel encodes rows in tiles, with fast paths for common columns; all have the same bytes as the reference."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest import Digester, Engine, Plan, reference_engine, schema_from_arrow
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName, content
from pvdm.model.secret import DigestKey
from tests.support.for_each import for_each

TILE_ROWS = 256
BORDERS = (0, 1, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1, 3 * TILE_ROWS + 17)


def draw_number(rnd: Random) -> int:
    """A number with any number of digits, often next to a power of ten."""
    size = 10 ** rnd.randrange(19)
    return rnd.choice((1, -1)) * rnd.choice((0, size - 1, size, size + 1, rnd.randrange(size)))


def draw_text(rnd: Random) -> str:
    """Text of lengths around those of the kernel's fixed copies and of one-byte lengths, ASCII and not."""
    length = rnd.choice((0, 1, 11, 12, 13, 31, 32, 33, 126, 127, 128, 129, 300))
    return "".join(rnd.choice("abc\0é漢😀" if rnd.random() < 0.2 else "abcdefgh ") for _ in range(length))


def draw_decimal(scale: int, digits: int) -> Callable[[Random], Decimal]:
    """A function that draws a decimal of up to `digits` digits."""
    return lambda rnd: Decimal(rnd.choice((1, -1)) * rnd.randrange(10 ** rnd.randint(0, digits))).scaleb(-scale)


NANS = [
    struct.unpack(">d", bytes.fromhex(bits))[0] for bits in ("7ff8000000000000", "fff8000000000000", "7ff8000020000000")
]
"""NaNs whose sign and payload Python and Arrow keep when they convert them."""

COLUMNS: dict[str, tuple[pa.DataType, Callable[[Random], Any]]] = {
    "int32": (pa.int32(), lambda rnd: draw_number(rnd) % 2**31 - 2**30),
    "int64": (pa.int64(), draw_number),
    "uint8": (pa.uint8(), lambda rnd: rnd.randrange(256)),
    "timestamp us": (pa.timestamp("us"), draw_number),
    "timestamp ms": (pa.timestamp("ms", "UTC"), lambda rnd: draw_number(rnd) // 1000),
    "date64": (pa.date64(), lambda rnd: rnd.randrange(-40_000, 40_000) * 86_400_000),
    "time us": (pa.time64("us"), lambda rnd: rnd.randrange(86_400_000_000)),
    "bool": (pa.bool_(), lambda rnd: rnd.random() < 0.5),
    "double": (pa.float64(), lambda rnd: rnd.choice((0.0, -0.0, 1.5, *NANS, rnd.random()))),
    "float": (pa.float32(), lambda rnd: rnd.choice((0.0, -0.0, 1.5, float("inf"), *NANS, rnd.random()))),
    "decimal(9,2)": (pa.decimal128(9, 2), draw_decimal(2, 9)),
    "decimal(18,0)": (pa.decimal128(18, 0), draw_decimal(0, 18)),
    "decimal(18,18)": (pa.decimal128(18, 18), draw_decimal(18, 18)),
    "decimal(38,10)": (pa.decimal128(38, 10), draw_decimal(10, 27)),
    "decimal64(16,4)": (pa.decimal64(16, 4), draw_decimal(4, 16)),
    "decimal32(7,7)": (pa.decimal32(7, 7), draw_decimal(7, 7)),
    "string": (pa.string(), draw_text),
    "large_string": (pa.large_string(), draw_text),
    "string_view": (pa.string_view(), draw_text),
    "binary": (pa.binary(), lambda rnd: rnd.randbytes(rnd.choice((0, 5, 32, 127, 128, 200)))),
    "fixed(7)": (pa.binary(7), lambda rnd: rnd.randbytes(7)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), lambda rnd: rnd.choice(("", "x", "é", "long " * 30))),
    "dictionary int8": (pa.dictionary(pa.int8(), pa.string()), lambda rnd: rnd.choice(("", "x", "y" * 32))),
    "list": (pa.list_(pa.int32()), lambda rnd: [rnd.randrange(9) for _ in range(rnd.randrange(4))]),
}


def batch_of(name: str, rows: int, *, nulls: bool) -> pa.RecordBatch:
    kind, draw = COLUMNS[name]
    rnd = Random(f"{name} {rows} {nulls}")
    values = [None if nulls and rnd.random() < 0.3 else draw(rnd) for _ in range(rows + 3)]
    # A slice, so that the rows do not begin at the start of the array's buffers.
    return pa.RecordBatch.from_arrays([pa.array(values, kind)[2 : rows + 2]], names=["v"])


def plan_of(batch: pa.RecordBatch) -> Plan:
    schema = schema_from_arrow(batch.schema)
    return Plan(schema, (content(schema),))


@for_each("nulls", [False, True], ids=["full", "nulls"])
@for_each("name", COLUMNS)
def test_rows_around_tile_borders_equal_those_of_the_reference(kernel: Engine, name: str, nulls: bool) -> None:
    for rows in BORDERS:
        batch = batch_of(name, rows, nulls=nulls)
        plan = plan_of(batch)
        expected = reference_engine().encode(plan, ProjectionName.CONTENT, batch)
        assert kernel.encode(plan, ProjectionName.CONTENT, batch) == expected


def test_rows_larger_than_a_tile_equal_those_of_the_reference(kernel: Engine) -> None:
    values = ["x" * size for size in (0, 400_000, 700_000, 3, 2_000_000, 0, 1, 600_000, 600_000)]
    batch = pa.RecordBatch.from_arrays([pa.array(values), pa.array([[value] for value in values])], names=["v", "w"])
    plan = plan_of(batch)
    expected = reference_engine().encode(plan, ProjectionName.CONTENT, batch)
    assert kernel.encode(plan, ProjectionName.CONTENT, batch) == expected


def test_every_hash_path_has_the_sums_of_the_reference(kernel: Engine) -> None:
    from pvdm_kernel import hash_paths

    from pvdm.digest.kernel import KernelEngine

    assert kernel.name == "kernel"
    arrays = [batch_of(name, 700, nulls=True).column(0) for name in ("int64", "string", "list")]
    batch = pa.RecordBatch.from_arrays(arrays, names=["a", "b", "c"])
    plan = plan_of(batch)

    def total(engine: Engine) -> int:
        digester = Digester(plan, {ProjectionName.CONTENT: DigestKey(bytes(range(32)), epoch=1)}, engine=engine)
        digester.update(batch)
        return digester.partials()[ProjectionName.CONTENT].total

    expected = total(reference_engine())
    for path in hash_paths():
        assert total(KernelEngine(path)) == expected, path


def test_an_invalid_dictionary_value_is_refused_only_if_it_is_used(kernel: Engine) -> None:
    words = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), words)
    used = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), words)
    plan = plan_of(pa.RecordBatch.from_arrays([unused], names=["v"]))
    rows = kernel.encode(plan, ProjectionName.CONTENT, pa.RecordBatch.from_arrays([unused], names=["v"]))
    assert rows == [b"\x0c\x01a"] * 3
    with pytest.raises(InputError) as refusal:
        kernel.encode(plan, ProjectionName.CONTENT, pa.RecordBatch.from_arrays([used], names=["v"]))
    assert (refusal.value.reason, refusal.value.details["row"]) == ("string_not_utf8", 1)


@pytest.mark.parametrize("nested", [False, True], ids=["column", "field"])
def test_a_name_with_nul_is_not_accepted_for_its_beginning(engine: Engine, nested: bool) -> None:
    expected = pa.struct([pa.field("a", pa.int64())]) if nested else pa.int64()
    plan = plan_of(pa.RecordBatch.from_arrays([pa.nulls(0, expected)], names=["a"]))
    with_nul = pa.struct([pa.field("a\0b", pa.int64())]) if nested else pa.int64()
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, with_nul)], names=["a" if nested else "a\0b"])
    with pytest.raises(InputError) as refusal:
        engine.encode(plan, ProjectionName.CONTENT, batch)
    assert refusal.value.reason in {"column_unexpected", "column_missing"}
