"""The entries of vectors/multisets.json: rows, test keys, and the digests of the rows under these keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pvdm.digest import Construction, Engine
from pvdm.digest.plan import element_key
from pvdm.model.schema import Field, Schema
from tests.vectors.multiset import Multiset
from tools.vector_draw import GEOGRAPHY, GEOMETRY, Draw, Json, draw_slot
from tools.vector_variant import Content, choose_first, encode_variant

SEED: Final = "pvdm multisets 1"
COUNTING_KEY: Final = bytes(range(32)).hex()
_EPOCH_LAST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Case:
    """A multiset of rows; its digests are computed under every construction.

    `rule` is the section of the specification that the case tests. `equals` names another case that must have the same
    digest. `parts` are lists of row indexes, for each of which a partial digest is computed too.
    """

    name: str
    schema: Json
    rows: Sequence[Json]
    rule: str = "digest 3"
    mode: str = "stored"
    projection: Json = None
    key: str = COUNTING_KEY
    epoch: int = 1
    equals: str | None = None
    parts: Sequence[Sequence[int]] = field(default=())


def published_key(name: str) -> str:
    """The published test key of this name, in hex."""
    return hashlib.sha256(f"pvdm test key {name}".encode()).hexdigest()


def entries(engine: Engine) -> list[Json]:
    """Every entry, with the digests that this engine gives."""
    cases = [*_payments(), *_identity(), *_schemas(), *_portable(), *_typed(), *_lengths(), *_partials()]
    return [_entry(engine, case, construction) for case in cases for construction in Construction]


def _entry(engine: Engine, case: Case, construction: Construction) -> Json:
    names = [column["name"] for column in case.schema["fields"]]
    entry = {
        "name": f"{case.name}, {construction.value}",
        "rule": case.rule,
        "mode": case.mode,
        "construction": construction.value,
        "schema": case.schema,
        "projection": case.projection or {"content": sorted(names)},
        "key": case.key,
        "epoch": str(case.epoch),
        "rows": list(case.rows),
        **({} if case.equals is None else {"equals": f"{case.equals}, {construction.value}"}),
    }
    multiset = Multiset(entry)
    plan, name = multiset.plan(), multiset.projection
    whole = multiset.digest(engine, multiset.batch())
    return {
        **entry,
        "fingerprint_json": json.dumps(
            plan.projected_schema(name).to_json(), ensure_ascii=False, separators=(",", ":")
        ),
        "fingerprint": whole.fingerprint.hex(),
        "element_key": element_key(multiset.key, plan, name).hex(),
        "key_check": whole.key_check.hex(),
        "encoded": [row.hex() for row in engine.encode(plan, name, multiset.batch())],
        "count": whole.rows,
        "sum": whole.total.to_bytes(32, "big").hex(),
        "partial": whole.to_bytes().hex(),
        "parts": [
            {"rows": list(part), "partial": multiset.digest(engine, multiset.batch(part)).to_bytes().hex()}
            for part in case.parts
        ],
    }


def _schema(*fields: Json) -> Json:
    return {"fields": list(fields), "type": "struct"}


def _field(name: str, kind: Json, *, required: bool = False) -> Json:
    return {"name": name, "required": required, "type": kind}


def _with_ids(value: Json, first: int) -> Json:
    """The same type or schema with ids for all fields, elements, keys and values, in the order of the notation."""
    numbers = iter(range(first, first + 10_000))

    def number(part: Json) -> Json:
        if isinstance(part, list):
            return [number(item) for item in part]
        if not isinstance(part, dict):
            return part
        own = {"id": next(numbers)} if "required" in part else {}
        return own | {name: number(item) for name, item in part.items()}

    return number(value)


PAYMENT_ID: Final = _field("payment_id", "long", required=True)
AMOUNT: Final = _field("amount", "decimal(10,2)")
NOTE: Final = _field("note", "string")
PAYMENTS: Final = _schema(PAYMENT_ID, AMOUNT, NOTE)


def _payment(number: int, cents: int | None, note: str | None, scale: int = 2) -> Json:
    amount = None if cents is None else {"unscaled": str(cents * 10 ** (scale - 2)), "scale": scale}
    return {"payment_id": str(number), "amount": amount, "note": note}


_ONE: Final = _payment(88121, 1000, None)
_TWO: Final = _payment(88122, None, "ok")
_TEN: Final = [_payment(88121 + n, 250 * n - 700, None if n % 4 == 0 else f"note {n % 3}") for n in range(9)] + [_ONE]


def _payments() -> Iterator[Case]:
    yield Case("no rows", PAYMENTS, [], parts=[[], []])
    yield Case("one row", PAYMENTS, [_ONE])
    yield Case("one row twice", PAYMENTS, [_ONE, _ONE])
    yield Case("one row thrice", PAYMENTS, [_ONE] * 3, parts=[[0], [1], [2]])
    yield Case("the worked example", PAYMENTS, [_ONE, _TWO], rule="digest 5")
    yield Case("the worked example, row 2 twice", PAYMENTS, [_ONE, _TWO, _TWO], rule="digest 5", parts=[[0, 1], [2]])
    ten = Case("ten rows", PAYMENTS, _TEN)
    yield ten
    yield replace(ten, name="ten rows backwards", rows=_TEN[::-1], equals=ten.name)
    yield replace(ten, name="ten rows shuffled", rows=Draw(f"{SEED}/shuffle").shuffled(_TEN), equals=ten.name)
    moved = _schema(NOTE, PAYMENT_ID, AMOUNT)
    yield replace(ten, name="ten rows, columns in another order", schema=moved, equals=ten.name)
    yield replace(ten, name="ten rows, one dropped", rows=_TEN[:-1])
    yield replace(ten, name="ten rows, one twice", rows=[*_TEN, _TEN[3]])
    yield replace(ten, name="ten rows, one twice for another", rows=[*_TEN[1:], _TEN[3]])
    yield replace(ten, name="ten rows, one cent changed", rows=[*_TEN[:-1], _payment(88121, 1001, None)])
    yield replace(ten, name="ten rows, null to empty", rows=[*_TEN[:-1], _payment(88121, 1000, "")])
    yield replace(ten, name="ten rows, another key", key=published_key("1"), rule="digest 2")
    yield replace(ten, name="ten rows, key of zeros", key="00" * 32, rule="digest 2")
    yield replace(ten, name="ten rows, key of ff", key="ff" * 32, rule="digest 2")
    # The partial contains the epoch; the digest does not depend on it.
    yield replace(ten, name="ten rows, epoch 0", epoch=0, rule="digest 4", equals=ten.name)
    yield replace(ten, name="ten rows, last epoch", epoch=_EPOCH_LAST, rule="digest 4", equals=ten.name)
    swapped = [_payment(1, 2, "x"), _payment(3, 4, "y")]
    crossed = [_payment(1, 4, "x"), _payment(3, 2, "y")]
    yield Case("two rows", PAYMENTS, swapped)
    yield Case("two rows, amounts exchanged", PAYMENTS, crossed)
    yield Case("rows of nulls", _schema(AMOUNT, NOTE), [{"amount": None, "note": None}] * 2)


def _identity() -> Iterator[Case]:
    ids = Case("identity of ten rows", PAYMENTS, _TEN, projection={"identity": ["payment_id"]}, rule="digest 2")
    yield ids
    yield replace(ids, name="identity of no rows", rows=[])
    yield replace(ids, name="identity of two columns", projection={"identity": ["payment_id", "note"]})
    changed = [{**row, "note": "changed"} for row in _TEN]
    yield replace(ids, name="identity of ten rows, notes changed", rows=changed, equals=ids.name)
    every = {"identity": ["amount", "note", "payment_id"]}
    yield replace(ids, name="identity of every column", projection=every)
    excluded = {"content": ["amount", "payment_id"], "exclude": {"note": "free text, not relied on"}}
    yield replace(ids, name="content without the notes", projection=excluded)
    yield replace(ids, name="content without the notes, notes changed", projection=excluded, rows=changed,
                  equals="content without the notes")  # fmt: skip


def _schemas() -> Iterator[Case]:
    ten = Case("ten rows", PAYMENTS, _TEN, rule="digest 1")
    yield replace(ten, name="ten rows with field ids", schema=_with_ids(PAYMENTS, 1))
    yield replace(ten, name="ten rows with other field ids", schema=_with_ids(PAYMENTS, 2))
    yield replace(
        ten, name="ten rows, NOT NULL dropped", schema=_schema({**PAYMENT_ID, "required": False}, AMOUNT, NOTE)
    )
    yield replace(
        ten, name="ten rows, more digits", schema=_schema(PAYMENT_ID, _field("amount", "decimal(12,2)"), NOTE)
    )
    yield replace(ten, name="ten rows, int", schema=_schema(_field("payment_id", "int", required=True), AMOUNT, NOTE))
    renamed = _schema(PAYMENT_ID, AMOUNT, _field("notes", "string"))
    rows = [{"payment_id": row["payment_id"], "amount": row["amount"], "notes": row["note"]} for row in _TEN]
    yield replace(ten, name="ten rows, a column renamed", schema=renamed, rows=rows)
    names = ('say "x"', "back\\slash", "tab\there", "line\nfeed", "\r", "\b\f", "\x01\x1f", "\x7f", "/", "\u2028",
             "\u00e9", "e\u0301", "\uffee", "\U0001f600", "A", "a")  # fmt: skip
    escapes = _schema(*(_field(name, "int") for name in names))
    row = {name: str(number) for number, name in enumerate(names)}
    yield Case("names that JSON escapes", escapes, [row, row], rule="digest 1")
    yield Case("names that JSON escapes, with ids", _with_ids(escapes, 2**31 - 101), [row, row], rule="digest 1")
    crs = {"crs": 'projjson:"\u00e9\\"\n', "type": "geometry"}
    yield Case("a CRS that JSON escapes", _schema(_field("g", crs)), [{"g": None}, {"g": "00"}], rule="digest 1")


def _portable() -> Iterator[Case]:
    def payments(kind: str) -> Json:
        return _schema(PAYMENT_ID, _field("amount", kind), NOTE)

    rows = [
        _payment(1, 150, "caf\u00e9"),
        _payment(2, -5, "\uac01"),
        _payment(3, None, None),
        _payment(2, -5, "\uac01"),
    ]
    base = Case("portable at scale 2", payments("decimal(10,2)@2"), rows, mode="portable")
    yield base
    decomposed = [_payment(1, 150, "cafe\u0301"), rows[1], rows[2], _payment(2, -5, "\u1100\u1161\u11a8")]
    yield replace(base, name="portable at scale 2, decomposed", rows=decomposed, equals=base.name)
    yield replace(base, name="portable at scale 4", schema=payments("decimal(10,2)@4"))
    four = [_payment(int(row["payment_id"]), cents, row["note"], 4)
            for row, cents in zip(rows, (150, -5, None, -5), strict=True)]  # fmt: skip
    yield replace(base, name="portable from scale 4 at scale 2", schema=payments("decimal(10,4)@2"), rows=four)
    yield replace(base, name="portable with field ids", schema=_with_ids(base.schema, 1))
    yield replace(base, name="portable, no rows", rows=[])
    yield replace(base, name="portable identity", projection={"identity": ["amount", "payment_id"]})
    yield replace(base, name="the portable rows, stored", mode="stored", schema=payments("decimal(10,2)"))
    yield replace(base, name="the portable rows, stored and decomposed", mode="stored",
                  schema=payments("decimal(10,2)"), rows=decomposed)  # fmt: skip
    inner = {"required": True, "type": "decimal(5,3)@1"}
    nested = _schema(_field("m", {"key": inner, "type": "map", "value": {"required": False, "type": "decimal(5,0)@2"}}))
    pair = [{"unscaled": "-2500", "scale": 3}, {"unscaled": "7", "scale": 0}]
    other = [{"unscaled": "100", "scale": 3}, None]
    maps = Case("portable map of decimals", nested, [{"m": [pair, other]}, {"m": []}, {"m": None}], mode="portable")
    yield maps
    exchanged = [{"m": None}, {"m": [other, pair]}, {"m": []}]
    yield replace(maps, name="portable map of decimals, entries exchanged", rows=exchanged, equals=maps.name)


def _typed() -> Iterator[Case]:
    scalars = ("boolean", "int", "long", "date", "time", "time_ns", "timestamp", "timestamptz", "timestamp_ns",
               "timestamptz_ns", "string", "uuid", "fixed(7)", "binary", "unknown", "variant")  # fmt: skip
    stored = _schema(*(_field(f"c_{kind}", kind) for kind in (*scalars, "float", "double", "decimal(38,9)")),
                     _field("c_geometry", GEOMETRY), _field("c_geography", GEOGRAPHY))  # fmt: skip
    portable = _schema(*(_field(f"c_{kind}", kind) for kind in (*scalars, "decimal(38,9)@12")))
    thirds = [list(range(start, 24, 3)) for start in range(3)]
    yield Case("every scalar type", stored, _rows(stored, 24), parts=thirds)
    yield Case("every scalar type, portable", portable, _rows(portable, 24), mode="portable", parts=thirds)
    item = _schema(_field("sku", "string", required=True), _field("count", "int"))
    tags = {"key": {"required": True, "type": "string"}, "type": "map", "value": {"required": False, "type": "date"}}
    orders = _schema(
        _field("order_id", "uuid", required=True),
        _field("items", {"element": {"required": True, "type": item}, "type": "list"}),
        _field("tags", {"key": tags["key"], "type": "map", "value": {"required": False, "type": tags}}),
    )
    rows = _rows(orders, 12)
    yield Case("nested", orders, rows, parts=[[0, 1, 2, 3, 4], [], [5, 6, 7, 8, 9, 10, 11]])
    turned = [{**row, "tags": None if row["tags"] is None else row["tags"][::-1]} for row in rows]
    yield Case("nested, map entries turned round", orders, turned, equals="nested")
    yield Case("nested with ids at every depth", _with_ids(orders, 1), rows, rule="digest 1")
    yield Case("nested, portable", orders, rows, mode="portable")
    contents: list[Content] = [
        ("object", {"b": ("integer", n), "a": ("array", [("string", "x" * n)])}) for n in (1, 2, 70)
    ]
    held = _schema(_field("v", "variant"))
    first = Case("variants", held, [{"v": encode_variant(content, choose_first)} for content in contents])
    yield first
    below = Draw(f"{SEED}/layouts").below
    rows = [{"v": encode_variant(content, below)} for content in contents]
    yield replace(first, name="variants in other layouts", rows=rows, equals=first.name)
    yield Case("a column of nothing", _schema(_field("u", "unknown")), [{"u": None}] * 5, parts=[[0, 1, 2], [3, 4]])


def _rows(schema: Json, count: int) -> list[Json]:
    columns: tuple[Field, ...] = Schema.from_json(schema).fields
    portable = "@" in json.dumps(schema)
    draw = Draw(f"{SEED}/{json.dumps(schema)}")
    return [{column.name: draw_slot(draw, column, portable=portable) for column in columns} for _ in range(count)]


def _lengths() -> Iterator[Case]:
    # Rows around the block sizes of SHA-256 (64, padding from 56), the chunk of BLAKE3 (1,024) and its tree of chunks.
    blobs = _schema(_field("b", "binary", required=True))
    edges = (53, 54, 55, 61, 62, 63, 64, 1020, 1021, 1022, 2044, 2045, 2046, 3069, 4093, 8190)
    rows = [{"b": {"repeat": "a5", "times": times}} for times in edges]
    yield Case("rows at the edges of hash blocks", blobs, rows, parts=[[0, 2, 4], [*range(1, 6, 2), *range(6, 16)]])
    yield Case("one row of two bytes", blobs, [{"b": ""}])


def _partials() -> Iterator[Case]:
    rows = [_payment(n % 7, 100 * n, None) for n in range(20)] + [_ONE] * 4
    whole = Case("24 rows in one part", PAYMENTS, rows, rule="digest 4", key=published_key("2"), epoch=7)
    yield replace(whole, parts=[range(24)])
    for name, parts in (
        ("two parts", [range(12), range(12, 24)]),
        ("24 parts", [[number] for number in range(24)]),
        ("parts with an empty one", [[], range(24), []]),
        ("parts that share a row's copies", [[*range(20), 20], [21, 22], [23]]),
    ):
        yield replace(whole, name=f"24 rows in {name}", parts=parts, equals=whole.name)
    yield replace(whole, name="identity of 24 rows in three parts", projection={"identity": ["payment_id"]},
                  parts=[range(0, 24, 3), range(1, 24, 3), range(2, 24, 3)])  # fmt: skip
