"""The entries of vectors/values.json: edge values of every type, then random values, nested up to four deep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pvdm.digest import Engine
from pvdm.model.schema import DecimalType, Kind, type_from_json
from tests.vectors.loader import Vector
from tools.vector_draw import FLOATS, GEOGRAPHY, GEOMETRY, RANGES, TEXTS, WKB_POINT, Draw, Json, draw_type, draw_value
from tools.vector_variant import Content, choose_first, encode_variant

SEED: Final = "pvdm vectors 1"
DRAWN_PER_MODE: Final = 160
MODES: Final = ("stored", "portable")
_SMALL: Final = (0, 1, -1, 7, 9, 10, -10, 99, 100, -128, 255, 65_536, 999_999_999, 1_000_000_000, 4_294_967_296)
_DECIMALS: Final = (
    (1, 0), (1, 1), (2, 1), (9, 2), (9, 9), (10, 4), (18, 0), (18, 18), (19, 3), (38, 0), (38, 10), (38, 38), (39, 1),
    (76, 0), (76, 38), (76, 76),
)  # fmt: skip
_WKB_LINE: Final = "010200000002000000" + "00" * 16 + "000000000000f03f" * 2
_LENGTHS: Final = (1, 2, 127, 128, 129)


@dataclass(frozen=True, slots=True)
class Case:
    """A value; its canonical cell is computed in each of `modes`.

    `rule` is the section of the specification that the case tests. `arrow` is the Arrow type that holds the value, if
    not the usual one.
    """

    name: str
    rule: str
    type: Json
    value: Json
    modes: tuple[str, ...] = MODES
    arrow: str | None = None


def entries(engine: Engine) -> list[Json]:
    """Every entry, with the cell that this engine gives."""
    made = []
    pairs = [(case, mode) for case in _cases() for mode in case.modes]
    for number, (case, mode) in enumerate(pairs):
        entry = {
            "name": f"{case.name}, {mode}",
            "rule": case.rule,
            "mode": mode,
            "type": case.type,
            "required": case.value is not None and number % 3 == 0,
            **({} if case.arrow is None else {"arrow": case.arrow}),
            "value": case.value,
        }
        vector = Vector(entry)
        (row,) = engine.encode(vector.plan(), vector.projection, vector.batch())
        made.append({**entry, "cell": row.hex()})
    return made


def _cases() -> Iterator[Case]:
    yield from _simple()
    yield from _decimals()
    yield from _bytes()
    yield from _nested()
    yield from _variants()
    yield from _layouts()
    yield from _drawn()


def _simple() -> Iterator[Case]:
    for flag in (True, False, None):
        yield Case(f"boolean {flag}".lower(), "canonical 4", "boolean", flag)
    yield Case("unknown", "canonical 5.7", "unknown", None)
    for kind, (low, high) in RANGES.items():
        numbers = {low, low + 1, high - 1, high, *(number for number in _SMALL if low <= number <= high)}
        rule = "canonical 5.1" if kind in {Kind.INT, Kind.LONG} else "canonical 5.5"
        # Both modes encode integers alike, so most numbers are in one mode only; the bounds and zero are in both.
        for number in sorted(numbers):
            modes = MODES if number in {low, high, 0} else (MODES[number % 2],)
            yield Case(f"{kind.value} {number}", rule, kind.value, str(number), modes)
        yield Case(f"{kind.value} null", "canonical 4", kind.value, None)
    for kind, patterns in FLOATS.items():
        for bits in patterns:
            yield Case(f"{kind.value} {bits}", "canonical 5.3", kind.value, bits, ("stored",))
        yield Case(f"{kind.value} null", "canonical 4", kind.value, None, ("stored",))


def _decimals() -> Iterator[Case]:
    for precision, scale in _DECIMALS:
        text = f"decimal({precision},{scale})"
        most = 10**precision - 1
        for unscaled in sorted({0, 1, -1, 10**scale if scale < precision else 5, most, -most}):
            yield Case(f"{text} {unscaled}", "canonical 5.2", text, _decimal_json(unscaled, scale), ("stored",))
        for declared in sorted({0, scale, precision}):
            kind = DecimalType(precision, scale, declared)
            for unscaled in _exact_values(precision, scale, declared):
                yield Case(
                    f"{kind} {unscaled}", "canonical 5.2", str(kind), _decimal_json(unscaled, scale), ("portable",)
                )
    yield Case("decimal null", "canonical 4", "decimal(10,2)", None, ("stored",))
    yield Case("decimal at a declared scale, null", "canonical 4", "decimal(10,2)@4", None, ("portable",))


def _decimal_json(unscaled: int, scale: int) -> Json:
    return {"unscaled": str(unscaled), "scale": scale}


def _exact_values(precision: int, scale: int, declared: int) -> list[int]:
    """Zero, and the largest and smallest unscaled values that are exact at the declared scale."""
    most = 10 ** (precision - abs(scale - declared)) - 1
    shift = max(scale - declared, 0)
    return sorted({0, most * 10**shift, -most * 10**shift})


def _bytes() -> Iterator[Case]:
    draw = Draw(f"{SEED}/bytes")
    for number, text in enumerate(TEXTS):
        yield Case(f"string {number}", "canonical 5.4", "string", text)
    yield Case("string null", "canonical 4", "string", None)
    yield Case("string of 16,383 bytes", "canonical 4", "string", {"repeat": "61", "times": 16_383}, ("stored",))
    yield Case("string of 16,384 bytes", "canonical 4", "string", {"repeat": "61", "times": 16_384}, ("stored",))
    for name, sixteen in (("zero", "00" * 16), ("last", "ff" * 16), ("drawn", draw.hex(16)), ("null", None)):
        yield Case(f"uuid {name}", "canonical 4", "uuid", sixteen)
    for length in (*_LENGTHS, 16):
        yield Case(f"fixed({length})", "canonical 4", f"fixed({length})", draw.hex(length))
    yield Case("fixed null", "canonical 4", "fixed(2)", None)
    for length in (0, *_LENGTHS):
        yield Case(f"binary of {length} bytes", "canonical 4", "binary", draw.hex(length))
    yield Case("binary null", "canonical 4", "binary", None)
    for kind in (GEOMETRY, GEOGRAPHY):
        for name, wkb in (("point", WKB_POINT), ("line", _WKB_LINE), ("null", None)):
            yield Case(f"{kind['type']} {name}", "canonical 4", kind, wkb, ("stored",))


def _list(kind: Json, *, required: bool = False) -> Json:
    return {"element": {"required": required, "type": kind}, "type": "list"}


def _map(key: Json, value: Json, *, required: bool = False) -> Json:
    return {"key": {"required": True, "type": key}, "type": "map", "value": {"required": required, "type": value}}


def _struct(**kinds: Json) -> Json:
    return {
        "fields": [{"name": name, "required": False, "type": kind} for name, kind in kinds.items()],
        "type": "struct",
    }


def _nested() -> Iterator[Case]:
    rule = "canonical 4"
    for scalar, first, second in (
        ("boolean", True, False), ("int", "-5", "12"), ("long", "5", "-12"), ("date", "0", "-1"), ("string", "b", "a"),
        ("time", "1", "0"), ("time_ns", "1", "0"), ("timestamp", "-1", "1"), ("timestamptz", "-1", "1"),
        ("timestamp_ns", "-1", "1"), ("timestamptz_ns", "-1", "1"), ("uuid", "ff" * 16, "00" * 16),
        ("fixed(2)", "ffff", "0000"), ("binary", "ff", "00ff"),
    ):  # fmt: skip
        yield Case(f"list of {scalar}", rule, _list(scalar), [first, None, second, first])
        yield Case(f"list of required {scalar}", rule, _list(scalar, required=True), [second, first])
        yield Case(f"map from {scalar}", "canonical 5.6", _map(scalar, "int"), [[first, "1"], [second, None]])
        yield Case(f"map to {scalar}", "canonical 5.6", _map("string", scalar, required=True), [["k", first]])
        yield Case(f"struct of {scalar}", rule, _struct(b=scalar, a=scalar), {"b": first, "a": None})
    floats = _map("double", "float")
    pairs = [["8000000000000000", "80000000"], ["0000000000000000", None], ["7ff8000000000001", "ffffffff"]]
    yield Case("map from double to float", "canonical 5.6", floats, pairs, ("stored",))
    geo = [[WKB_POINT, {"a": WKB_POINT, "g": [None]}]]
    yield Case("map of geo", rule, _map(GEOMETRY, _struct(a=GEOGRAPHY, g=_list(GEOMETRY))), geo, ("stored",))
    for name, kind, empty in (("list", _list("int"), []), ("map", _map("int", "int"), []), ("struct", _struct(), {})):
        yield Case(f"{name} empty", rule, kind, empty)
        yield Case(f"{name} null", rule, kind, None)
        yield Case(f"list of {name}, empty and null", rule, _list(kind), [empty, None, empty])
    yield Case("list of unknown", "canonical 5.7", _list("unknown"), [None, None])
    yield Case("struct of unknown", "canonical 5.7", _struct(u="unknown", a="int"), {"u": None, "a": "1"})
    four = _struct(m=_map("string", _list(_struct(z="long", y="string"))))
    value = {"m": [["z", [{"z": "1", "y": "e\u0301"}, None]], ["a", []], ["b", None]]}
    yield Case("four deep", rule, _list(four), [value, {"m": None}, None])
    by_struct = _map(_struct(b="int", a=_list("string")), _map("date", "boolean"))
    pairs = [[{"b": "1", "a": ["x", None]}, [["1", True], ["-1", None]]], [{"b": None, "a": None}, None]]
    yield Case("map from struct to map", "canonical 5.6", by_struct, pairs)
    long = _map("int", "string")
    yield Case("map of 64 entries", "canonical 5.6", long, [[str(63 - n), "v" * (n % 5)] for n in range(64)])


def _variants() -> Iterator[Case]:
    draw = Draw(f"{SEED}/variants")
    counts = {"integer": Kind.LONG, "date": Kind.DATE, "time": Kind.TIME}
    counts |= {kind.value: kind for kind in RANGES if kind.value.startswith("timestamp")}
    contents: list[Content] = [("null", None), ("boolean", True), ("boolean", False)]
    for name, kind in counts.items():
        contents += [(name, number) for number in (*RANGES[kind], 1)]
    contents += [("integer", number) for number in (127, 128, -128, -129, 32_767, 32_768, 2**31 - 1, 2**31)]
    contents += [("string", text) for text in ("", "\0", "e\u0301", "\u1100\u1161", "s" * 63, "s" * 64, "s" * 128)]
    contents += [("uuid", bytes(16)), ("uuid", bytes(range(16))), ("binary", b""), ("binary", b"\x00\xff" * 64)]
    contents += [
        ("array", []),
        ("object", {}),
        ("array", [("null", None)] * 130),
        ("array", [("array", [("array", [])])]),
    ]
    contents += [
        ("object", {"b": ("null", None), "a": ("integer", 1), "": ("string", "")}),
        ("object", {"\U0001f600": ("boolean", True), "\uff41": ("boolean", False), "e\u0301": ("date", 0)}),
        ("object", {"o": ("object", {"o": ("object", {"o": ("array", [("object", {})])})})}),
        ("object", {f"{n:03d}": ("integer", n) for n in range(260)}),
    ]
    portable_count = len(contents)  # the contents up to here are allowed in both modes
    contents += [("decimal", (u, s)) for u in (0, 5, -5, 10**9 - 1, 10**18 - 1, 1 - 10**38) for s in (0, 2, 38)]
    contents += [("float", bytes.fromhex(bits)) for bits in FLOATS[Kind.FLOAT][:14:3]]
    contents += [("double", bytes.fromhex(bits)) for bits in FLOATS[Kind.DOUBLE][:14:3]]
    for number, content in enumerate(contents):
        modes = MODES if number < portable_count else ("stored",)
        name = f"variant {content[0]} {number}"
        yield Case(name, "canonical 6", "variant", encode_variant(content, choose_first), modes)
        yield Case(
            f"{name} in another layout", "canonical 6", "variant", encode_variant(content, draw.below), modes[:1]
        )
    keys = _map("variant", "variant")
    pairs = [
        [encode_variant((kind, held), choose_first), encode_variant(("null", None), choose_first)]
        for kind, held in contents[:4]
    ]
    yield Case("map from variant to variant", "canonical 5.6", keys, pairs)
    yield Case("variant SQL null", "canonical 6", "variant", None)


def _layouts() -> Iterator[Case]:
    rule = "canonical 7.1"
    for kind, arrow, value in (
        ("boolean", "dictionary<int8, bool>", True),
        ("boolean", "run_end_encoded<int16, bool>", False),
        ("int", "int8", "-128"),
        ("int", "uint16", "65535"),
        ("long", "uint32", "4294967295"),
        ("long", "dictionary<uint32, int64>", "-9223372036854775808"),
        ("date", "date64", "2147483647"),
        ("date", "date64", "-2147483648"),
        ("time", "time32[s]", "86399000000"),
        ("time", "time32[ms]", "86399999000"),
        ("timestamp", "timestamp[s]", "-62135596800000000"),
        ("timestamp", "timestamp[ms]", "9223372036854775000"),
        ("timestamptz", "timestamp[us, tz=Asia/Kolkata]", "-1"),
        ("timestamptz_ns", "timestamp[ns, tz=-03:30]", "1"),
        ("string", "large_string", "thirteen byte"),
        ("string", "string_view", "twelve bytes"),
        ("string", "string_view", "thirteen byte"),
        ("string", "dictionary<int64, string_view>", "e\u0301"),
        ("string", "run_end_encoded<int64, large_string>", ""),
        ("binary", "binary_view", "00" * 13),
        ("binary", "dictionary<uint8, binary>", ""),
        ("uuid", "extension<arrow.uuid>", "00112233445566778899aabbccddeeff"),
        ("fixed(3)", "dictionary<int16, fixed_size_binary(3)>", "010203"),
        (_list("string"), "large_list<dictionary<int8, string>>", ["a", None, "a"]),
        (_list("int"), "fixed_size_list<int16, 3>", ["1", None, "-3"]),
        (_list("uuid"), "list<extension<arrow.uuid>>", ["ff" * 16, None]),
        (_list(_list("date")), "list_view<large_list_view<date32>>", [["1"], [], None]),
        (_struct(a="string", b="int"), "struct<b: run_end_encoded<int32, int8>, a: string_view>", {"a": "x", "b": "1"}),
        (_map("string", "binary"), "map<large_string, binary_view>", [["k", "00"], ["a", None]]),
        (
            "variant",
            "struct<value: binary_view, metadata: dictionary<int8, binary>>",
            encode_variant(("null", None), choose_first),
        ),
    ):
        yield Case(
            f"{kind if isinstance(kind, str) else kind['type']} {value} from {arrow}", rule, kind, value, MODES, arrow
        )


def _drawn() -> Iterator[Case]:
    for mode in MODES:
        for number in range(DRAWN_PER_MODE):
            draw = Draw(f"{SEED}/{mode}/{number}")
            depth = 1 + number % 4
            kind = draw_type(draw, portable=mode == "portable", depth=depth)
            value = draw_value(draw, type_from_json(kind), portable=mode == "portable")
            yield Case(f"drawn {number}, type of depth {depth}", "canonical 4", kind, value, (mode,))
