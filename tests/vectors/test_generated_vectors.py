"""Every engine reproduces the generated values and multisets, and so does plain hashing of the canonical rows."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import blake3
import pytest

from pvdm.digest import Engine, Mode, Partial, combine
from pvdm.digest.plan import element_key, key_check
from pvdm.model.schema import Inner, ListType, MapType, Schema, StructType, Type, type_from_json
from tests.support.for_each import for_each
from tests.support.oracles.canonical_decoder import decode_cell, decode_row
from tests.vectors.agreement import agrees
from tests.vectors.loader import VECTORS, Vector, load
from tests.vectors.multiset import Multiset, load_multisets
from tools import make_vectors

VALUES = load("values.json")
MULTISETS = load_multisets()
BY_NAME = {multiset.name: multiset for multiset in MULTISETS}
DIGEST_SPEC = (VECTORS.parent / "spec" / "digest.md").read_text("utf-8")
SCALARS = {
    "boolean", "int", "long", "date", "time", "time_ns", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns",
    "string", "uuid", "binary", "unknown", "variant", "decimal", "fixed", "struct", "list", "map",
}  # fmt: skip
STORED_ONLY = {"float", "double", "geometry", "geography"}

each_value = for_each("vector", VALUES, ids=lambda vector: ascii(vector.name))
each_multiset = for_each("multiset", MULTISETS, ids=lambda multiset: ascii(multiset.name))


def _children(kind: Type) -> list[Type]:
    match kind:
        case StructType(fields):
            return [field.type for field in fields]
        case ListType(element):
            return [element.type]
        case MapType(key, value):
            return [key.type, value.type]
        case _:
            return []


def _depth(kind: Type) -> int:
    return 1 + max(map(_depth, _children(kind)), default=0)


def _names(kind: Type) -> Iterator[str]:
    yield str(kind).partition("(")[0]
    for child in _children(kind):
        yield from _names(child)


# Values.


@each_value
def test_a_generated_cell_is_reproduced(engine: Engine, vector: Vector) -> None:
    encoded = engine.encode(vector.plan(), vector.projection, vector.batch())
    assert [row.hex() for row in encoded] == [vector.entry["cell"]]


@each_value
def test_a_generated_cell_is_decoded_to_its_value(vector: Vector) -> None:
    entry = vector.entry
    kind, mode = type_from_json(entry["type"]), Mode(entry["mode"])
    decoded = decode_cell(Inner(kind, entry["required"]), mode, bytes.fromhex(entry["cell"]))
    assert agrees(kind, entry["value"], decoded, portable=mode is Mode.PORTABLE)


@pytest.mark.parametrize("mode", ["stored", "portable"])
def test_the_generated_values_cover_every_type_of_a_mode(mode: str) -> None:
    kinds = [type_from_json(vector.entry["type"]) for vector in VALUES if vector.entry["mode"] == mode]
    expected = SCALARS if mode == "portable" else SCALARS | STORED_ONLY
    assert {name for kind in kinds for name in _names(kind)} == expected


@pytest.mark.parametrize("mode", ["stored", "portable"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_generated_values_nest_to_a_depth_in_a_mode(mode: str, depth: int) -> None:
    at_depth = [v for v in VALUES if v.entry["mode"] == mode and _depth(type_from_json(v.entry["type"])) == depth]
    assert len(at_depth) >= 40


# Multisets, through the engines.


@each_multiset
def test_the_digest_of_a_multiset_is_reproduced(engine: Engine, multiset: Multiset) -> None:
    assert multiset.digest(engine, multiset.batch()).to_bytes().hex() == multiset.entry["partial"]


@each_multiset
def test_rows_in_another_order_and_one_by_one_have_the_same_digest(engine: Engine, multiset: Multiset) -> None:
    single = [multiset.batch([index]) for index in reversed(range(len(multiset.entry["rows"])))]
    assert multiset.digest(engine, *single).to_bytes().hex() == multiset.entry["partial"]


@each_multiset
def test_the_canonical_rows_of_a_multiset_are_reproduced(engine: Engine, multiset: Multiset) -> None:
    encoded = engine.encode(multiset.plan(), multiset.projection, multiset.batch())
    assert [row.hex() for row in encoded] == multiset.entry["encoded"]


@each_multiset
def test_the_parts_of_a_multiset_have_their_partials(engine: Engine, multiset: Multiset) -> None:
    for part in multiset.entry["parts"]:
        assert multiset.digest(engine, multiset.batch(part["rows"])).to_bytes().hex() == part["partial"]


@each_multiset
def test_the_keys_of_a_multiset_are_reproduced(multiset: Multiset) -> None:
    plan, name = multiset.plan(), multiset.projection
    derived = plan.fingerprint(name), element_key(multiset.key, plan, name), key_check(multiset.key, plan, name)
    given = (multiset.entry[field] for field in ("fingerprint", "element_key", "key_check"))
    assert [part.hex() for part in derived] == list(given)


@each_multiset
def test_the_canonical_rows_of_a_multiset_are_decoded(multiset: Multiset) -> None:
    schema = multiset.plan().projected_schema(multiset.projection)
    for row in multiset.entry["encoded"]:
        assert list(decode_row(schema, Mode(multiset.entry["mode"]), bytes.fromhex(row))) == list(schema.names)


# Partials on the wire.


@each_multiset
def test_a_partial_says_what_its_entry_says(multiset: Multiset) -> None:
    entry, partial = multiset.entry, Partial.from_bytes(bytes.fromhex(multiset.entry["partial"]))
    assert (str(partial.epoch), partial.construction.value, partial.mode.value, partial.projection.value) == (
        entry["epoch"],
        entry["construction"],
        entry["mode"],
        next(iter(entry["projection"])),
    )
    assert (partial.rows, f"{partial.total:064x}") == (entry["count"], entry["sum"])


@each_multiset
def test_a_partial_survives_the_wire(multiset: Multiset) -> None:
    assert Partial.from_bytes(bytes.fromhex(multiset.entry["partial"])).to_bytes().hex() == multiset.entry["partial"]


@for_each("multiset", [m for m in MULTISETS if m.entry["parts"]], ids=lambda multiset: multiset.name)
def test_the_parts_combine_to_the_whole(multiset: Multiset) -> None:
    parts = [Partial.from_bytes(bytes.fromhex(part["partial"])) for part in multiset.entry["parts"]]
    assert combine(parts).to_bytes().hex() == multiset.entry["partial"]


@for_each("multiset", [m for m in MULTISETS if m.entry["parts"]], ids=lambda multiset: multiset.name)
def test_every_row_is_in_one_part(multiset: Multiset) -> None:
    indices = [index for part in multiset.entry["parts"] for index in part["rows"]]
    assert sorted(indices) == list(range(multiset.entry["count"]))


# Multisets again, from specification and canonical rows alone: no code of pvdm below.


def _canonical_schema(part: Any) -> Any:
    if isinstance(part, list):
        return sorted(map(_canonical_schema, part), key=lambda field: field["name"].encode("utf-32-be"))
    if isinstance(part, dict):
        return {name: _canonical_schema(held) for name, held in part.items()}
    return part


def _projected_json(entry: dict[str, Any]) -> str:
    (columns,) = (held for name, held in entry["projection"].items() if name != "exclude")
    fields = [field for field in entry["schema"]["fields"] if field["name"] in columns]
    schema = _canonical_schema({"fields": fields, "type": "struct"})
    return json.dumps(schema, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _derived(entry: dict[str, Any], label: bytes) -> bytes:
    names = (entry["construction"], entry["mode"], next(iter(entry["projection"])))
    context = b"".join(bytes([len(name)]) + name.encode() for name in names)
    context += bytes([32]) + bytes.fromhex(entry["fingerprint"])
    return hmac.digest(bytes.fromhex(entry["key"]), label + b"\0" + context, "sha256")


def _element_hash(entry: dict[str, Any], row: bytes) -> bytes:
    key = bytes.fromhex(entry["element_key"])
    if entry["construction"] == "hmac-sha256":
        return hmac.digest(key, row, "sha256")
    return bytes(blake3.blake3(row, key=key).digest())


@each_multiset
def test_a_fingerprint_follows_from_the_schema_by_hand(multiset: Multiset) -> None:
    text = _projected_json(multiset.entry)
    assert text == multiset.entry["fingerprint_json"]
    assert hashlib.sha256(b"pvdm/schema/v1\0" + text.encode()).hexdigest() == multiset.entry["fingerprint"]


@each_multiset
def test_keys_follow_from_the_input_key_by_hand(multiset: Multiset) -> None:
    entry = multiset.entry
    assert _derived(entry, b"pvdm/element/v1").hex() == entry["element_key"]
    assert _derived(entry, b"pvdm/key-check/v1")[:16].hex() == entry["key_check"]


@each_multiset
def test_a_sum_follows_from_the_canonical_rows_by_hand(multiset: Multiset) -> None:
    entry = multiset.entry
    hashes = [int.from_bytes(_element_hash(entry, bytes.fromhex(row)), "big") for row in entry["encoded"]]
    assert (len(hashes), f"{sum(hashes) % 2**256:064x}") == (entry["count"], entry["sum"])


@each_multiset
def test_a_partial_follows_from_its_fields_by_hand(multiset: Multiset) -> None:
    entry = multiset.entry
    names = (entry["construction"], entry["mode"], next(iter(entry["projection"])))
    framed = "".join(f"{len(name):02x}{name.encode().hex()}" for name in names)
    head = f"7076646d01{int(entry['epoch']):016x}{framed}{entry['fingerprint']}{entry['key_check']}"
    assert entry["partial"] == f"{head}{entry['count']:016x}{entry['sum']}"


# Multisets beside one another.


@for_each("multiset", [m for m in MULTISETS if "equals" in m.entry], ids=lambda multiset: multiset.name)
def test_equal_multisets_have_equal_digests(multiset: Multiset) -> None:
    other = BY_NAME[multiset.entry["equals"]].entry
    assert (multiset.entry["count"], multiset.entry["sum"]) == (other["count"], other["sum"])


def test_multisets_that_are_not_said_to_be_equal_have_different_sums() -> None:
    sums = [m.entry["sum"] for m in MULTISETS if "equals" not in m.entry and m.entry["count"]]
    assert len(set(sums)) == len(sums)


def test_no_two_domains_share_an_element_key() -> None:
    fields = ("key", "construction", "mode", "fingerprint")
    domains = {(*(m.entry[field] for field in fields), m.projection): m.entry["element_key"] for m in MULTISETS}
    assert len(set(domains.values())) == len(domains)


@pytest.mark.parametrize("name", ["the worked example", "the worked example, row 2 twice"])
def test_the_worked_example_of_the_specification_is_among_the_multisets(name: str) -> None:
    entry = BY_NAME[f"{name}, hmac-sha256"].entry
    assert f"rows {entry['count']}, sum {entry['sum']}" in DIGEST_SPEC


# The files.


def test_the_tool_writes_the_committed_files_again(capsys: pytest.CaptureFixture[str]) -> None:
    status = make_vectors.main(["--check"])
    assert (status, capsys.readouterr().out) == (0, "")


@pytest.mark.parametrize("file", ["values.json", "multisets.json"])
def test_a_generated_file_begins_with_a_note_on_how_it_was_made(file: str) -> None:
    held = json.loads((VECTORS / file).read_text("utf-8"))
    assert list(held)[:2] == ["note", "spec"]
    assert "make vectors" in held["note"]


@pytest.mark.parametrize("file", ["values.json", "multisets.json"])
def test_a_generated_file_is_ascii(file: str) -> None:
    assert (VECTORS / file).read_bytes().isascii()


@pytest.mark.parametrize(("names", "least"), [(VALUES, 450), (MULTISETS, 60)], ids=["values", "multisets"])
def test_there_are_enough_entries_with_distinct_names(names: list[Vector | Multiset], least: int) -> None:
    assert len({entry.name for entry in names}) == len(names) >= least


def test_multisets_stand_with_and_without_field_ids() -> None:
    with_ids = [
        any(slot.field_id is not None for _, slot in Schema.from_json(m.entry["schema"]).walk()) for m in MULTISETS
    ]
    assert {True, False} == set(with_ids)
