"""Reading and changing metadata takes time and memory in proportion to the input, also for hostile input."""

from __future__ import annotations

import contextlib
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format import json_document
from pvdm.lake.format.json_document import Node, parse_json
from pvdm.lake.format.schema.type_names import TypeName, is_default_of, parse_type_name
from pvdm.lake.format.table import metadata
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import strip_location
from pvdm.lake.format.table.snapshots import SnapshotRef, parse_ref
from pvdm.lake.format.view import ViewMetadata, apply_view_updates
from tests.support.catalog.views import document as view_document
from tests.support.lake.metadata import FILE, NOW, Doc, column, partition_statistics, schema, snapshot, table

# Four times the input may take eight times as long, because of caches and memory. Quadratic work takes sixteen times.
SIZE_FACTOR = 4
TIME_FACTOR_MAX = 8
FLOOR_SECONDS = 0.004  # shorter times are too inexact to compare


def seconds(work: Callable[[], object]) -> float:
    """The processor time of this thread for the work: the smallest of five tries."""
    found = []
    for _ in range(5):
        gc.disable()
        start = time.thread_time()
        try:
            with contextlib.suppress(InputError):
                work()
        finally:
            gc.enable()
        found.append(time.thread_time() - start)
    return min(found)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


def commit(updates: list[Doc], **more: object) -> Callable[[], object]:
    base = table(2, **more)
    return lambda: apply_updates(base, updates, now_ms=NOW + 20, previous_location=FILE)


def quotes(count: int) -> Callable[[], object]:
    return lambda: parse_json(b'"' + b'\\"' * count)


def backslashes(count: int) -> Callable[[], object]:
    return lambda: parse_json(b'["' + b"\\" * (2 * count))


def keys(count: int) -> Callable[[], object]:
    data = "{" + ",".join(f'"k{each}":1' for each in range(count)) + f',"k{count - 1}":1}}'
    return lambda: parse_json(data.encode())


def spaces(word: str) -> Callable[[int], Callable[[], object]]:
    return lambda count: lambda: parse_type_name(f"{word}({' ' * count}", "$")


def brackets(count: int) -> Callable[[], object]:
    return lambda: parse_type_name(f"geography({')' * count}x", "$")


def slashes(count: int) -> Callable[[], object]:
    return lambda: strip_location("file:/a" + "/" * count, "$")


def schemas(count: int) -> Callable[[], object]:
    return commit([{"action": "add-schema", "schema": schema(0, column(1, f"c{each}"))} for each in range(count)])


def specs(count: int) -> Callable[[], object]:
    """The specs differ in an unknown field only: these take longest to compare."""
    fields = [
        {"name": f"p{each}", "transform": f"bucket[{each + 1}]", "source-id": 1, "field-id": 2_000 + each}
        for each in range(8)
    ]
    return commit(
        [{"action": "add-spec", "spec": {"fields": fields, "x-mark": each}} for each in range(count)],
    )


def orders(count: int) -> Callable[[], object]:
    field = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    return commit(
        [
            {"action": "add-sort-order", "sort-order": {"order-id": 9, "fields": [field] * 16, "x-mark": each}}
            for each in range(count)
        ]
    )


def statistics(count: int) -> Callable[[], object]:
    return commit(
        [
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(each)}
            for each in range(count)
        ]
    )


def snapshots(count: int) -> Callable[[], object]:
    """Every snapshot has a branch, and is removed by an update of its own."""
    listed = [snapshot(each, 3) for each in range(100, 100 + count)]
    refs = {f"b{each['snapshot-id']}": {"snapshot-id": each["snapshot-id"], "type": "branch"} for each in listed}
    gone: list[Doc] = [{"action": "remove-snapshots", "snapshot-ids": [each["snapshot-id"]]} for each in listed]
    base = table()
    base_refs = {name: ref.raw for name, ref in base.refs.items()}
    return commit(gone, snapshots=[*(each.raw for each in base.snapshots), *listed], refs={**base_refs, **refs})


def view_schemas(count: int) -> Callable[[], object]:
    base = ViewMetadata.from_json(view_document())
    updates: list[Any] = [{"action": "add-schema", "schema": schema(0, column(1, f"c{each}"))} for each in range(count)]
    return lambda: apply_view_updates(base, updates, now_ms=NOW + 20)


def view_ids(count: int) -> Callable[[], object]:
    document = view_document()
    many = [schema(each, column(1, f"c{each}")) for each in range(100, 100 + count)]
    return lambda: ViewMetadata.from_json({**document, "schemas": [*document["schemas"], *many]})


WORK: dict[str, tuple[Callable[[int], Callable[[], object]], int]] = {
    "quotes in a string without an end": (quotes, 4_000),
    "backslashes in a string without an end": (backslashes, 200_000),
    "a key that comes again at the end": (keys, 4_000),
    "space in a geometry": (spaces("geometry"), 400),
    "space in a geography": (spaces("geography"), 300),
    "brackets in a geography": (brackets, 40_000),
    "slashes at the end of a location": (slashes, 60_000),
    "schemas added": (schemas, 60),
    "partition specs added": (specs, 60),
    "sort orders added": (orders, 60),
    "statistics set": (statistics, 1_500),
    "snapshots removed one by one": (snapshots, 1_000),
    "schemas added to a view": (view_schemas, 100),
    "schemas of a view": (view_ids, 2_000),
}


@pytest.mark.parametrize("what", WORK)
def test_four_times_as_much_takes_no_more_than_eight_times_as_long(what: str) -> None:
    make, count = WORK[what]
    small = max(seconds(make(count)), FLOOR_SECONDS)
    assert seconds(make(SIZE_FACTOR * count)) <= TIME_FACTOR_MAX * small


@pytest.mark.parametrize(
    "data",
    [b'"' + b"a" * 2_000_000 + b'"', b'"' + b'\\"' * 1_000_000 + b'"', b"[" + b'"",' * 600_000 + b'""]'],
    ids=["one text", "escapes", "texts"],
)
def test_a_document_takes_memory_in_proportion(data: bytes) -> None:
    assert peak_bytes(lambda: parse_json(data)) < 8 * len(data)


def test_a_default_of_many_bytes_takes_memory_in_proportion() -> None:
    text = "ab" * 1_000_000
    assert peak_bytes(lambda: is_default_of(TypeName("binary"), text)) < 1_000_000


@pytest.mark.parametrize("size", range(1, 14))
def test_the_depth_is_counted_the_same_for_every_size_of_pieces(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "_PIECE_BYTES", size)
    text = ("[" * 200 + '"\\') * 4
    deep = b'{"a\\\\":' * 257 + b'"\\\\"' + b"}" * 257
    assert parse_json(to_json([text, "\\", text])) == [text, "\\", text]
    with pytest.raises(InputError) as caught:
        parse_json(deep)
    assert caught.value.reason == "lake_json_too_deep"


def test_brackets_in_a_string_without_an_end_are_not_depth() -> None:
    with pytest.raises(InputError) as caught:
        parse_json(b'"' + b"[" * 1_000)
    assert caught.value.reason == "lake_json_malformed"


def test_a_document_with_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "JSON_VALUES_MAX", 4)
    assert parse_json(b'[1,2,3,"a,[]{},"]')
    with pytest.raises(InputError) as caught:
        parse_json(b"[1,2,3,{}]")
    assert caught.value.reason == "lake_json_values_too_many"


@pytest.mark.parametrize("number", ["1" * 1_001, "-" + "1" * 1_000, "0." + "1" * 999])
def test_a_number_of_more_than_1000_characters_is_refused(number: str) -> None:
    assert parse_json(f"[{number[:-1]}]".encode())
    with pytest.raises(InputError) as caught:
        parse_json(f"[{number}]".encode())
    assert caught.value.reason == "lake_json_number_invalid"


def test_a_commit_parses_only_the_refs_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    refs = {f"attempt-{each}": {"snapshot-id": 1, "type": "branch"} for each in range(32)}
    refs["main"] = {"snapshot-id": 1, "type": "branch"}
    base = table(2, **{"snapshots": [snapshot(1, 1)], "refs": refs, "current-snapshot-id": 1, "snapshot-log": []})
    parsed = list[str]()

    def record_parsing(node: Node) -> SnapshotRef:
        parsed.append(node.place)
        return parse_ref(node)

    monkeypatch.setattr(metadata, "parse_ref", record_parsing)
    updates: list[Doc] = [
        {"action": "set-snapshot-ref", "ref-name": "attempt-7", "type": "tag", "snapshot-id": 1},
        {"action": "remove-snapshot-ref", "ref-name": "attempt-8"},
    ]
    changed = apply_updates(base, updates, now_ms=NOW + 20, previous_location=FILE)
    assert parsed == ["$.refs['attempt-7']"]
    assert changed.refs["attempt-6"] is base.refs["attempt-6"]
    assert "attempt-8" not in changed.refs
