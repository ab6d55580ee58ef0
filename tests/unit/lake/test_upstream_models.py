"""Commits as objects of PyIceberg: a field or update that PyIceberg would lose is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.upstream.models import as_models
from tests.support.for_each import for_each

Doc = dict[str, Any]
SNAPSHOT: Doc = {
    "snapshot-id": 7,
    "parent-snapshot-id": 6,
    "sequence-number": 3,
    "timestamp-ms": 1_794_650_400_000,
    "manifest-list": "file:///lake/snap-7.avro",
    "summary": {"operation": "append", "added-records": "2", "pvdm.workload": "w"},
    "schema-id": 0,
    "first-row-id": 4,
    "added-rows": 2,
}


def test_a_commit_of_the_gate_is_converted_whole() -> None:
    requirements: list[Doc] = [
        {"type": "assert-table-uuid", "uuid": "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22"},
        {"type": "assert-ref-snapshot-id", "ref": "pvdm-fence-1", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 6},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
    ]
    updates: list[Doc] = [
        {"action": "add-snapshot", "snapshot": SNAPSHOT},
        {
            "action": "set-snapshot-ref",
            "ref-name": "main",
            "type": "branch",
            "snapshot-id": 7,
            "max-snapshot-age-ms": 5,
            "min-snapshots-to-keep": 2,
        },
        {"action": "remove-snapshot-ref", "ref-name": "pvdm_1"},
        {"action": "remove-snapshots", "snapshot-ids": [5]},
    ]
    models = as_models(requirements, updates)
    assert [len(each) for each in models] == [4, 4]
    assert '"first-row-id":4' in models[1][0].model_dump_json()
    assert '"snapshot-id":null' in models[0][1].model_dump_json()


def test_a_commit_of_spark_is_converted_whole() -> None:
    schema: Doc = {
        "type": "struct",
        "schema-id": 1,
        "fields": [
            {"id": 1, "name": "id", "required": True, "type": "long", "doc": "the key"},
            {"id": 2, "name": "price", "required": False, "type": "decimal(10, 2)"},
            {
                "id": 3,
                "name": "tags",
                "required": False,
                "type": {"type": "list", "element-id": 4, "element": "string", "element-required": False},
            },
        ],
    }
    spec: Doc = {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}]}
    _, models = as_models(
        [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3}],
        [
            {"action": "add-schema", "schema": schema, "last-column-id": 4},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": spec},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "set-properties", "updates": {"a": "b"}},
            {"action": "remove-properties", "removals": ["c"]},
        ],
    )
    assert len(models) == 6


@for_each(
    ("update", "lost"),
    [
        ({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "key-id": "k"}}, "add-snapshot.snapshot.key-id"),
        ({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "new-field": [1]}}, "add-snapshot.snapshot.new-field"),
        (
            {"action": "add-snapshot", "snapshot": {k: v for k, v in SNAPSHOT.items() if k != "timestamp-ms"}},
            "add-snapshot.snapshot.timestamp-ms",
        ),
        ({"action": "add-encryption-key", "encryption-key": {"key-id": "k"}}, "Input tag"),
    ],
    ids=["encryption", "a field of tomorrow", "a time that is made up", "an update of tomorrow"],
)
def test_a_field_or_update_that_would_be_lost_is_refused_by_name(update: Doc, lost: str) -> None:
    with pytest.raises(InputError) as caught:
        as_models([], [update])
    assert caught.value.reason == "upstream_commit_lossy"
    assert str(caught.value.got).startswith(lost)
