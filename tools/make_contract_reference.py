"""Writes the contract's JSON Schema and its reference page from the one schema in the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pvdm.model.contract.document import SIZE, Document
from pvdm.model.contract.refusal import PATTERNS

ROOT: Final = Path(__file__).parents[1]
SCHEMA: Final = ROOT / "spec" / "schemas" / "contract.schema.json"
PAGE: Final = ROOT / "docs" / "contract.md"

HEAD: Final = ROOT / "tools" / "contract_reference_head.md"


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a contract."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:pvdm:schema:contract:v1",
        **Document.model_json_schema(by_alias=True),
        "title": "The contract of a data product (pvdm/v1)",
    }


def schema_text() -> str:
    """The JSON Schema file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def page_text() -> str:
    """The reference page."""
    schema = json_schema()
    lines = [HEAD.read_text("utf-8")]
    _section(lines, "", schema, schema["$defs"])
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(lines: list[str], path: str, part: dict[str, Any], defs: dict[str, Any]) -> None:
    title = f"### `{path}`" if path else "### The document"
    lines += [title, "", _words(part), "", "| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    inner: list[tuple[str, dict[str, Any]]] = []
    for key, value in part["properties"].items():
        needed = key in part.get("required", ())
        default = "**required**" if needed else _default(value)
        meaning = _words(value) or _words(_resolved(value, defs))
        lines.append(f"| `{key}` | {_kind(value, defs)} | {default} | {meaning} |")
        inner += [(_join(path, key, suffix), found) for suffix, found in _objects(value, defs)]
    lines.append("")
    for name, found in inner:
        _section(lines, name, found, defs)


def _join(path: str, key: str, suffix: str) -> str:
    return f"{path}.{key}{suffix}" if path else f"{key}{suffix}"


def _resolved(value: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    name = str(value.get("$ref", "")).rpartition("/")[2]
    return dict(defs[name]) if name else value


def _members(value: dict[str, Any]) -> list[dict[str, Any]]:
    parts = value.get("anyOf") or value.get("oneOf")
    return [inner for part in parts for inner in _members(part)] if parts else [value]


def _objects(value: dict[str, Any], defs: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The mappings with keys of their own inside a value, and how their path goes on."""
    found: list[tuple[str, dict[str, Any]]] = []
    for member in (_resolved(each, defs) for each in _members(value)):
        if "properties" in member:
            found.append(("", member))
        for part, suffix in (
            (member.get("items"), "[]"),
            (member.get("additionalProperties"), ".NAME"),
            *((each, ".NAME") for each in member.get("patternProperties", {}).values()),
        ):
            if isinstance(part, dict):
                found += [(suffix + more, inner) for more, inner in _objects(part, defs)]
    return found


def _kind(value: dict[str, Any], defs: dict[str, Any]) -> str:
    kinds = [_one(_resolved(each, defs), defs) for each in _members(value)]
    size = PATTERNS[SIZE]
    return size if size in kinds else " or ".join(each for each in kinds if each != "null")


def _one(value: dict[str, Any], defs: dict[str, Any]) -> str:
    if "const" in value:
        return f"`{'true' if value['const'] is True else value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    match value["type"]:
        case "string":
            if "pattern" in value:
                return PATTERNS[value["pattern"]]
            return f"text (at most {value['maxLength']:,} characters)" if "maxLength" in value else "text"
        case "integer":
            top = value.get("maximum", value.get("exclusiveMaximum", 0) - 1)
            return f"{value['minimum']:,} to {top:,}" if "minimum" in value else "whole number"
        case "array":
            return f"list of {_kind(value['items'], defs)}"
        case "object":
            inner = value.get("additionalProperties")
            return f"mapping of {_kind(inner, defs)}" if isinstance(inner, dict) else "mapping"
        case "boolean":
            return "true or false"
        case kind:
            return str(kind)


def _default(value: dict[str, Any]) -> str:
    given = value.get("default")
    if given in (None, [], {}, "") or isinstance(given, dict):
        return "–"
    return f"`{json.dumps(given, ensure_ascii=False)}`" if isinstance(given, list) else f"`{given}`"


def _words(value: dict[str, Any]) -> str:
    return " ".join(str(value.get("description", "")).split())


def main() -> None:
    """Write both files."""
    SCHEMA.write_text(schema_text(), "utf-8")
    PAGE.write_text(page_text(), "utf-8")


if __name__ == "__main__":
    main()
