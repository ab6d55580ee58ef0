"""Invalid Arrow arrays: both implementations refuse them with an error, and neither crashes nor hangs."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest import Digester, Engine, Mode, Plan, schema_from_arrow
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import Field, FixedType, Inner, Kind, ListType, PrimitiveType, Schema, Type
from pvdm.model.secret import DigestKey

CONTENT = ProjectionName.CONTENT
STRING, INT = PrimitiveType(Kind.STRING), PrimitiveType(Kind.INT)


def buffer(form: str, *numbers: int) -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"<{form}", *numbers))


def strings(offsets: list[int], data: bytes, *, valid: int | None = None) -> pa.Array[Any]:
    bitmap = None if valid is None else buffer("Q", valid)
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [bitmap, buffer(f"{len(offsets)}i", *offsets), pa.py_buffer(data)]
    )


def run_ends(ends: list[int], values: list[int], rows: int) -> pa.Array[Any]:
    kind = pa.run_end_encoded(pa.int32(), pa.int32())
    return pa.Array.from_buffers(
        kind, rows, [None], children=[pa.array(ends, pa.int32()), pa.array(values, pa.int32())]
    )


def deeply_nested() -> pa.Array[Any]:
    array: pa.Array[Any] = pa.array([1], pa.int32())
    for _ in range(2_000):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    return array


def encode(engine: Engine, target: Type, array: pa.Array[Any]) -> list[bytes]:
    schema = Schema((Field("v", target),))
    batch = pa.RecordBatch.from_arrays([array], names=["v"])
    return engine.encode(Plan(schema, (content(schema),)), CONTENT, batch)


HOSTILE: dict[str, tuple[Type, Callable[[], pa.Array[Any]], str]] = {
    "empty string array far past its offsets": (
        STRING,
        lambda: pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")], offset=2**40),
        "arrow_invalid",
    ),
    "empty list array far past its offsets": (
        ListType(Inner(INT)),
        lambda: pa.Array.from_buffers(
            pa.list_(pa.int32()), 0, [None, pa.py_buffer(b"")], offset=2**40, children=[pa.array([], pa.int32())]
        ),
        "arrow_invalid",
    ),
    "empty array with a negative offset": (
        STRING,
        lambda: pa.Array.from_buffers(pa.string(), 0, [None, buffer("4i", 0, 0, 0, -5), pa.py_buffer(b"")], offset=3),
        "arrow_invalid",
    ),
    "fixed-size list past its child": (
        ListType(Inner(INT)),
        lambda: pa.Array.from_buffers(
            pa.list_(pa.int32(), 2), 1, [None], offset=10, children=[pa.array([1, 2], pa.int32())]
        ),
        "arrow_invalid",
    ),
    "run ends that fall": (INT, lambda: run_ends([3, 1, 2, 5], [1, 2, 3, 4], 5), "arrow_invalid"),
    "run ends that stand": (INT, lambda: run_ends([2, 2, 5], [1, 2, 3], 5), "arrow_invalid"),
    "a run end of zero": (INT, lambda: run_ends([0, 5], [1, 2], 5), "arrow_invalid"),
    "types without end": (INT, deeply_nested, "nesting_too_deep"),
    "a string cut inside a character": (STRING, lambda: strings([0, 1, 2], "é".encode()), "string_not_utf8"),
    "offsets that reach back past what was judged": (
        STRING,
        lambda: strings([0, 8, *[4] * 61, 8], b"aaaa\xff\xfe\xfd\xfc", valid=2**63 - 1 - 2),
        "string_not_utf8",
    ),
    "list offsets past the child": (
        ListType(Inner(INT)),
        lambda: pa.Array.from_buffers(
            pa.list_(pa.int32()), 2, [None, buffer("3i", 0, 9, 2)], children=[pa.array([1, 2], pa.int32())]
        ),
        "arrow_invalid",
    ),
    "an extension hidden in a dictionary": (
        FixedType(16),
        lambda: pa.DictionaryArray.from_arrays(
            pa.array([0], pa.int8()), pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
        ),
        "arrow_type_unsupported",
    ),
    "too many rows": (
        PrimitiveType(Kind.UNKNOWN),
        lambda: pa.Array.from_buffers(pa.null(), 2**40, [None]),
        "batch_too_large",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_invalid_array_is_refused(engine: Engine, name: str) -> None:
    target, build, reason = HOSTILE[name]
    with pytest.raises(InputError) as refusal:
        encode(engine, target, build())
    # Offsets that go back are refused as such, or when the bytes that they reach are read.
    assert refusal.value.reason in {reason, "arrow_invalid"}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_invalid_array_is_refused_after_a_valid_one(engine: Engine, name: str) -> None:
    """A type that was checked is not checked again, but every array and every other type is."""
    target, build, reason = HOSTILE[name]
    array, schema = build(), Schema((Field("v", target),))
    digester = Digester(Plan(schema, (content(schema),)), {CONTENT: DigestKey(bytes(32), epoch=1)}, engine=engine)
    valid_type: Any = pa.null() if reason in {"nesting_too_deep", "arrow_type_unsupported"} else array.type
    for _ in range(2):
        digester.update(pa.RecordBatch.from_arrays([pa.nulls(2, valid_type)], names=["v"]))
    with pytest.raises(InputError) as refusal:
        digester.update(pa.RecordBatch.from_arrays([array], names=["v"]))
    assert refusal.value.reason in {reason, "arrow_invalid"}


def test_run_values_beyond_the_run_ends_are_ignored(engine: Engine) -> None:
    assert encode(engine, INT, run_ends([2], [1, 2, 3, 4, 5], 2)) == [b"\x02\x011"] * 2


def test_an_empty_slice_is_accepted(engine: Engine) -> None:
    assert encode(engine, STRING, pa.array(["a", "b", "c"])[2:2]) == []


def test_metadata_that_is_not_text_is_ignored_or_refused(engine: Engine) -> None:
    schema = pa.schema([pa.field("v", pa.int32(), metadata={b"x": b"\xff"})])
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], schema=schema)
    target = Schema((Field("v", INT),))
    outcomes: list[object] = []
    try:
        outcomes += engine.encode(Plan(target, (content(target),)), CONTENT, batch)
    except InputError as refusal:
        outcomes.append(refusal.reason)
    assert outcomes in ([b"\x02\x011"], ["arrow_invalid"])


def test_columns_that_are_too_large_together_are_refused_at_the_first_excess(kernel: Engine) -> None:
    size = 2**27
    huge = pa.Array.from_buffers(pa.large_list(pa.null()), 1, [None, buffer("2q", 0, size)], children=[pa.nulls(size)])
    names = [f"c{number}" for number in range(200)]
    unknown = PrimitiveType(Kind.UNKNOWN)
    schema = Schema(tuple(Field(name, ListType(Inner(unknown))) for name in names))
    batch = pa.RecordBatch.from_arrays([huge] * len(names), names=names)
    with pytest.raises(InputError) as refusal:
        kernel.encode(Plan(schema, (content(schema),)), CONTENT, batch)
    assert refusal.value.reason == "row_too_large"
    # Two columns fill a row; two hundred would have taken 26 GB.
    assert refusal.value.details["column"] in {"c1", "c10", "c100"}


def test_the_message_about_a_very_long_name_is_short(engine: Engine) -> None:
    size = 3_000_000
    metadata = b"\xc1" + struct.pack("<III", 1, 0, size) + b"\xff" * size
    variant = pa.StructArray.from_arrays([pa.array([metadata]), pa.array([b"\0"])], names=["metadata", "value"])
    with pytest.raises(InputError) as refusal:
        encode(engine, PrimitiveType(Kind.VARIANT), variant)
    assert len(str(refusal.value.to_json())) < 2_000


class SlowEngine:
    """An engine whose update waits, so that two threads use it at the same time."""

    name = "slow"

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        raise AssertionError((plan, projection, batch))

    def start(self, plan: Plan, element_keys: Any) -> SlowEngine:
        assert (plan.mode, len(element_keys)) == (Mode.STORED, 1)
        return self

    def update(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows == 1
        self.entered.set()
        assert self.go_on.wait(10)

    def totals(self) -> dict[ProjectionName, tuple[int, int]]:
        return {CONTENT: (0, 0)}


def test_a_second_thread_on_one_digester_is_refused() -> None:
    schema = Schema((Field("v", INT),))
    engine = SlowEngine()
    digester = Digester(Plan(schema, (content(schema),)), {CONTENT: DigestKey(bytes(32), epoch=1)}, engine=engine)
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], names=["v"])
    first = threading.Thread(target=digester.update, args=(batch,))
    first.start()
    assert engine.entered.wait(10)
    with pytest.raises(InputError) as refusal:
        digester.update(batch)
    engine.go_on.set()
    first.join()
    assert refusal.value.reason == "digester_in_use"


def test_keys_of_two_epochs_are_refused() -> None:
    schema = Schema((Field("v", INT),))
    plan = Plan(schema, (identity(schema, ["v"]), content(schema)))
    keys = {name: DigestKey(bytes(32), epoch=epoch) for epoch, name in enumerate(ProjectionName)}
    with pytest.raises(InputError) as refusal:
        Digester(plan, keys)
    assert refusal.value.reason == "partial_epoch_mismatch"


@pytest.mark.parametrize("field_id", [b"9" * 5_000, b"-1", b"x"], ids=["long", "negative", "word"])
def test_an_invalid_field_id_is_refused(field_id: bytes) -> None:
    schema = pa.schema([pa.field("v", pa.int32(), metadata={b"PARQUET:field_id": field_id})])
    with pytest.raises(InputError) as refusal:
        schema_from_arrow(schema)
    assert refusal.value.reason == "schema_invalid"
