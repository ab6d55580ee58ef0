"""The published JSON schema and the reference page match the code; schema and parser accept and refuse the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pvdm.errors import InputError
from pvdm.model.contract import parse_contract
from tests.support.for_each import for_each
from tests.unit.contract.examples import GONE, SMALL, document_with, refusal_of, to_yaml
from tools.make_contract_reference import PAGE, SCHEMA, json_schema, page_text, schema_text

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "orders.yaml"
VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))

GOOD: list[tuple[str, Any]] = [
    ("metadata/domain", "a.b-c_1"),
    ("metadata/description", "x" * 4096),
    ("metadata/owner", "x" * 256),
    ("boundary/source", {"files": {"manifest": "s3://bucket/manifest.json"}}),
    ("boundary/source", {"table": "a.b.c", "files": None}),
    ("boundary/where", "a = 1"),
    ("boundary/where", True),
    ("boundary/columns", ["id", {"from": "a"}, {"from": "b", "to": "c"}, {"from": "d", "type": "long"}]),
    ("boundary/columns", None),
    ("boundary/operation", "overwrite-partitions"),
    ("boundary/operation", "overwrite"),
    ("boundary/partition", {"day": "2026-11-14", "n": 5, "flag": True, "none": None}),
    ("boundary/claim", {"column": "day"}),
    ("boundary/claim", None),
    ("chunking", {"by": "none"}),
    ("chunking", {"by": "partition", "columns": ["a", "b"]}),
    ("chunking", {"by": "files", "max-size": "512MiB"}),
    ("chunking", {"by": "files", "max-size": 1}),
    ("chunking", {"by": "range", "column": "a", "bounds": [1, "2.5"]}),
    ("projections/content", {"exclude": [{"column": "x", "reason": "y"}]}),
    ("atomicity", "workload"),
    ("storage", "copied"),
    ("governance", {}),
    ("governance/on-fail", "delete"),
    ("governance/sample-keys", ["producer"]),
    ("governance/sample-keys", []),
    ("governance/attempts", 100),
    ("governance/repair", {}),
    ("governance/repair/automatic", 4),
    ("governance/proof-lifetime", "7d"),
    ("limits", {"chunks": 1, "files": 1, "rows": 1, "size": "1"}),
    ("limits/size", "10TiB"),
]
WRONG_FORMS: list[tuple[str, Any, str]] = [
    ("apiVersion", "pvdm/v2", "pvdm/v1"),
    ("apiVersion", GONE, "a value"),
    ("kind", "Mesh", "DataProduct"),
    ("kind", GONE, "a value"),
    ("metadata", GONE, "a value"),
    ("metadata", "sales", "a mapping"),
    ("metadata", None, "a mapping"),
    ("metadata/domain", GONE, "a value"),
    ("metadata/domain", 5, "a text"),
    ("metadata/domain", "Sales", "at most 64 of a-z"),
    ("metadata/domain", "x" * 65, "at most 64 of a-z"),
    ("metadata/product", "", "at most 64 of a-z"),
    ("metadata/owner", "", "a text that is not empty"),
    ("metadata/owner", "x" * 257, "at most 256 characters"),
    ("metadata/description", ["a"], "a text"),
    ("metadata/team", "x", "one of domain, product, owner, description"),
    ("parameters", [], "a mapping"),
    ("parameters/1day", {"type": "date"}, "a name of letters"),
    ("parameters/day", "date", "a mapping"),
    ("parameters/day", {}, "a value"),
    ("parameters/day", {"type": "decimal"}, "string, boolean, int"),
    ("parameters/day", {"type": "date", "default": "x"}, "one of type, description"),
    ("parameters", {f"p{at}": {"type": "int"} for at in range(65)}, "at most 64 entries"),
    ("boundary", GONE, "a value"),
    ("boundary/source", GONE, "a value"),
    ("boundary/source/table", "orders", "a table as namespace.name, without spaces, slashes and backquotes"),
    ("boundary/source/table", "raw..orders", "a table as namespace.name, without spaces, slashes and backquotes"),
    ("boundary/source/table", "raw. orders", "a table as namespace.name, without spaces, slashes and backquotes"),
    ("boundary/source/table", ["raw", "orders"], "a text"),
    ("boundary/source/files", {}, "a value"),
    ("boundary/source/files", {"manifest": ""}, "a text that is not empty"),
    ("boundary/source/files", {"manifest": "m", "glob": "*"}, "one of manifest"),
    ("boundary/source/query", "select 1", "one of table, uuid, files"),
    ("boundary/where", 5, "a text"),
    ("boundary/where", False, "a text"),
    ("boundary/where", "", "a text that is not empty"),
    ("boundary/where", None, "a text"),
    ("boundary/where", "a = 1".ljust(65_537, "1"), "at most 65536 characters"),
    ("boundary/columns", [], "a list that is not empty"),
    ("boundary/columns", "id", "a list"),
    ("boundary/columns", [5], "a text or a mapping"),
    ("boundary/columns", [{"to": "a"}], "a value"),
    ("boundary/columns", [{"from": "a", "as": "b"}], "one of from, to, type"),
    ("boundary/columns", [""], "a text that is not empty"),
    ("boundary/columns", [{"from": "a", "type": 5}], "a text"),
    ("boundary/target", "orders", "a table as namespace.name, without spaces, slashes and backquotes"),
    ("boundary/target", GONE, "a value"),
    ("boundary/operation", "merge", "append, overwrite-partitions or overwrite"),
    ("boundary/operation", GONE, "a value"),
    ("boundary/partition", ["day"], "a mapping"),
    ("boundary/partition", {"day": ["x"]}, "a text or a whole number or true or false or null"),
    ("boundary/partition", {"": "x"}, "a text that is not empty"),
    ("boundary/claim", "day", "a mapping"),
    ("boundary/claim", {}, "a value"),
    ("boundary/claim", {"column": "a", "range": 1}, "one of column"),
    ("boundary/mode", "x", "one of source, where, columns"),
    ("chunking", {"by": "size"}, "none, partition, files or range"),
    ("chunking", {}, "a value"),
    ("chunking", {"by": "none", "count": 1}, "one of by, columns, max-size, column, bounds"),
    ("chunking", {"by": "partition", "columns": "a"}, "a list"),
    ("chunking", {"by": "partition", "columns": [f"c{at}" for at in range(17)]}, "at most 16 entries"),
    ("chunking", {"by": "files", "max-size": "512MB"}, "a number of bytes"),
    ("chunking", {"by": "files", "max-size": 0}, "at least 1"),
    ("chunking", {"by": "files", "max-size": 10**16}, "less than"),
    ("chunking", {"by": "files", "max-size": [1]}, "a text or a whole number"),
    ("chunking", {"by": "range", "column": "a", "bounds": [True]}, "a text or a whole number"),
    ("projections", GONE, "a value"),
    ("projections/identity", [], "a list that is not empty"),
    ("projections/identity", "id", "a list"),
    ("projections/identity", GONE, "a value"),
    ("projections/identity", [f"c{at}" for at in range(65)], "at most 64 entries"),
    ("projections/content", {"exclude": [{"column": "x"}]}, "a value"),
    ("projections/content", {"exclude": [{"column": "x", "reason": ""}]}, "a text that is not empty"),
    ("projections/content", {"exclude": [{"column": "x", "reason": "y", "who": "z"}]}, "one of column, reason"),
    ("projections/content", {"include": []}, "one of exclude"),
    ("projections/keys", ["id"], "one of identity, content"),
    ("profile", "B", "A, T or O"),
    ("profile", True, "A, T or O"),
    ("atomicity", "table", "chunk or workload"),
    ("extraction", "duckdb", "direct or spark"),
    ("storage", "closed", "open, copied or sealed"),
    ("governance/on-fail", "ignore", "quarantine or delete"),
    ("governance/sample-keys", ["consumer"], "producer, operator or auditor"),
    ("governance/sample-keys", ["producer"] * 4, "at most 3 entries"),
    ("governance/attestation", True, "none or required"),
    ("governance/threshold", 0, "at least 1"),
    ("governance/threshold", 17, "at most 16"),
    ("governance/threshold", "1", "a whole number"),
    ("governance/threshold", True, "a whole number"),
    ("governance/attempts", 101, "at most 100"),
    ("governance/attempts", 0, "at least 1"),
    ("governance/repair", 3, "a mapping"),
    ("governance/repair/automatic", 100, "at most 99"),
    ("governance/repair/automatic", -1, "at least 0"),
    ("governance/proof-lifetime", "1w", "a number with s, m, h or d"),
    ("governance/proof-lifetime", 60, "a text"),
    ("governance/owner", "x", "one of on-fail, sample-keys"),
    ("limits/chunks", 0, "at least 1"),
    ("limits/chunks", 10_001, "at most 10000"),
    ("limits/files", 1_000_001, "at most 1000000"),
    ("limits/rows", 10**15 + 1, "at most 1000000000000000"),
    ("limits/rows", 10**25, "a whole number"),
    ("limits/size", "1 TiB", "a number of bytes"),
    ("limits/time", "1h", "one of chunks, files, rows, size"),
    ("version", 1, "one of apiVersion, kind, metadata"),
]


def is_accepted(document: Any) -> bool:
    try:
        parse_contract(to_yaml(document))
    except InputError:
        return False
    return True


def fitting_document(path: str, value: Any) -> Any:
    """The small contract with this value, and with the other keys changed so that the parser accepts it."""
    document = document_with((path, value))
    if path == "boundary/source" and value.get("files"):
        document["boundary"]["source"].pop("table", None)
    if path == "boundary/claim" and value:
        document["boundary"]["where"] = f"{value['column']} = 1"
    return document


@for_each(("path", "value"), GOOD, ids=str)
def test_schema_and_parser_accept_each_key(path: str, value: Any) -> None:
    document = fitting_document(path, value)
    assert VALIDATOR.is_valid(document)
    assert is_accepted(document)


@for_each(("path", "value", "expected"), WRONG_FORMS, ids=lambda part: str(part)[:40])
def test_schema_and_parser_refuse_each_wrong_form(path: str, value: Any, expected: str) -> None:
    document = document_with((path, value))
    error = refusal_of(to_yaml(document))
    assert error.reason == "contract_invalid"
    assert (error.expected or "").startswith(expected)
    # The parser reads a number of more than 19 digits as text, and the schema finds it too large.
    assert not VALIDATOR.is_valid(yaml.safe_load(to_yaml(document)))


@for_each("value", [None, [], "text", 5])
def test_a_document_that_is_no_mapping_is_refused(value: Any) -> None:
    error = refusal_of(to_yaml(value))
    assert (error.expected, error.details["line"]) == ("a mapping", 1)
    assert not VALIDATOR.is_valid(value)


def test_the_small_contract_is_accepted() -> None:
    assert VALIDATOR.is_valid(SMALL)
    assert is_accepted(SMALL)


def test_the_example_is_accepted_and_has_every_key_of_its_main_parts() -> None:
    document = yaml.safe_load(EXAMPLE.read_bytes())
    assert VALIDATOR.is_valid(json.loads(json.dumps(document, default=str)))
    parse_contract(EXAMPLE.read_bytes(), str(EXAMPLE)).bind({"date": "2026-11-14"})
    schema = json_schema()
    for name in ("", "Metadata", "Boundary", "Projections", "Governance", "Limits"):
        part = schema["$defs"][name] if name else schema
        missing = set(part["properties"]) - set(document[name.lower()] if name else document)
        assert missing == set()


def test_the_published_schema_is_that_of_the_code() -> None:
    assert SCHEMA.read_text("utf-8") == schema_text()
    Draft202012Validator.check_schema(json_schema())


def test_the_reference_page_is_generated_from_the_schema() -> None:
    assert PAGE.read_text("utf-8") == page_text()


def test_the_reference_has_a_row_for_every_key() -> None:
    page = page_text()
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key in part["properties"]:
            assert f"| `{key}` |" in page
