"""The table of the differential suite: a column of every type, and rows whose ends and nulls are known."""

from __future__ import annotations

import copy
import datetime
import itertools
import math
import uuid
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import Schema
from tests.support.lake.metadata import Doc, column, schema
from tests.support.lake.scans import table_of
from tests.support.verify.staged import metadata

UTC: Final = datetime.UTC
ROWS: Final = 24
CASE, ID = "trial", "id"
CASE_FIELD_ID: Final = 1
"""The case is the first column of every table: the number of the file that a row comes from."""
PLACE: Final[Doc] = {"type": "struct", "fields": [column(23, "floor", "int"), column(24, "hall", "string")]}
TAGS: Final[Doc] = {"type": "list", "element-id": 25, "element": "string", "element-required": False}
COUNTS: Final[Doc] = {
    "type": "map",
    "key-id": 26,
    "key": "string",
    "value-id": 27,
    "value": "string",
    "value-required": False,
}
COLUMNS: Final[tuple[Doc, ...]] = (
    column(CASE_FIELD_ID, CASE, "int"),
    column(2, ID, "long"),
    column(3, "flag", "boolean"),
    column(4, "small", "int"),
    column(5, "ratio", "float"),
    column(6, "amount", "double"),
    column(7, "price9", "decimal(9, 2)"),
    column(8, "price18", "decimal(18, 3)"),
    column(9, "price38", "decimal(38, 4)"),
    column(10, "day", "date"),
    column(11, "clock", "time"),
    column(12, "made", "timestamp"),
    column(13, "seen", "timestamptz"),
    column(14, "town", "string"),
    column(15, "code", "binary"),
    column(16, "mark", "fixed[5]"),
    column(17, "key", "uuid"),
    column(18, "place", PLACE),
    column(19, "tags", TAGS),
    column(20, "counts", COUNTS),
    column(21, "nothing", "string"),
    column(22, "odd", "double"),
)
NAMES: Final = tuple(str(each["name"]) for each in COLUMNS)
NESTED: Final = frozenset({"place", "tags", "counts"})
ORDERED: Final = tuple(name for name in NAMES if name not in NESTED | {CASE, "nothing", "odd"})
"""Columns whose values have one order in every engine: `odd` has NaN, `nothing` has no value."""
MOMENT: Final = datetime.datetime.fromisoformat("2026-11-14T12:00:00.123456")


def columns(without: Collection[str] = ()) -> tuple[Doc, ...]:
    """The table's columns, with ids as the catalog gives them: top-level columns first, then what is in them."""
    found = [copy.deepcopy(each) for each in COLUMNS if each["name"] not in without]
    for number, each in enumerate(found, 1):
        each["id"] = number
    numbers = itertools.count(len(found) + 1)
    for each in found:
        kind = each["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            for inner in kind["fields"]:
                inner["id"] = next(numbers)
        elif isinstance(kind, dict):
            kind |= {key: next(numbers) for key in ("element-id", "key-id", "value-id") if key in kind}
    return tuple(found)


def table_schema(without: Collection[str] = ()) -> Doc:
    """The schema as a request to create the table has it."""
    return schema(0, *columns(without))


def table_metadata(without: Collection[str] = ()) -> TableMetadata:
    return metadata(*columns(without))


def model(without: Collection[str] = ()) -> Schema:
    return to_model(table_metadata(without).current_schema)


def row(case: int, number: int) -> Doc:
    """The row with this number. In every second row two columns are null, other ones each time."""
    step = number - ROWS // 2  # so that values are negative, zero and positive
    moment = MOMENT + datetime.timedelta(hours=step, microseconds=number)
    town = f"town {chr(97 + number % 20)}{'x' * (number % 3)}"
    made: Doc = {
        CASE: case,
        ID: 1_000 + number,
        "flag": number % 3 == 0,
        "small": step * 1_000,
        "ratio": step / 4,
        "amount": step * 1.5,
        "price9": Decimal(step * 137).scaleb(-2),
        "price18": Decimal(step * 100_000_000_007).scaleb(-3),
        "price38": Decimal(step * 10**25 + number).scaleb(-4),
        "day": datetime.date(2026, 11, 14) + datetime.timedelta(days=step),
        "clock": datetime.time(number, 59 - number, number, 1_000 * number),
        "made": moment,
        "seen": moment.replace(tzinfo=UTC),
        "town": town,
        "code": bytes([number * 10, 255, 0, number]),
        "mark": bytes([number * 10, 1, 2, 3, 255 - number]),
        "key": uuid.UUID(int=(number * 10 << 120) | (number << 8) | 7),
        "place": {"floor": step, "hall": f"hall {number % 5}"},
        "tags": [f"t{number}", None, f"u{number % 4}"][: number % 4],
        "counts": [(f"k{number % 6}", f"v{number}"), (f"m{number % 6}", None)][: number % 3],
        "odd": math.nan if number % 4 == 1 else float(step),
        "nothing": None,
    }
    if number % 2 == 0:
        return made
    nullable = NAMES[2:]  # all but case and id
    first_null, second_null = nullable[number % len(nullable)], nullable[(number * 7 + 3) % len(nullable)]
    return {**made, first_null: None, second_null: None}


def rows_of_case(case: int) -> list[Doc]:
    return [row(case, number) for number in range(ROWS)]


def arrow_rows(rows: Sequence[Doc], without: Collection[str] = (), lacks: Collection[str] = ()) -> pa.Table:
    """Rows as Arrow, with field ids at every depth; the table has no columns `without`, the file none of `lacks`."""
    made = table_of(model(without), rows)
    return made.drop_columns([name for name in lacks if name in made.column_names])


def ends(name: str) -> tuple[Any, Any, Any]:
    """The least value of a column, its greatest, and one between."""
    values = sorted(value for each in rows_of_case(0) if (value := each[name]) is not None)
    return values[0], values[-1], values[len(values) // 2]
