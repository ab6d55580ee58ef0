"""Writes the contract's JSON Schema and its reference page from `pvdm.model.contract.document`."""

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
    """Append the table of the mapping at this path, then the sections of the mappings inside it."""
    title = f"### `{path}`" if path else "### The document"
    lines += [title, "", _description(part), "", "| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    inner: list[tuple[str, dict[str, Any]]] = []
    for key, value in part["properties"].items():
        is_required = key in part.get("required", ())
        default = "**required**" if is_required else _default(value)
        meaning = _description(value) or _description(_resolve_ref(value, defs))
        lines.append(f"| `{key}` | {_value_text(value, defs)} | {default} | {meaning} |")
        inner += [(_join(path, key, suffix), mapping) for suffix, mapping in _inner_mappings(value, defs)]
    lines.append("")
    for inner_path, mapping in inner:
        _section(lines, inner_path, mapping, defs)


def _join(path: str, key: str, suffix: str) -> str:
    return f"{path}.{key}{suffix}" if path else f"{key}{suffix}"


def _resolve_ref(value: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The schema that a `$ref` names, or the value itself."""
    name = str(value.get("$ref", "")).rpartition("/")[2]
    return dict(defs[name]) if name else value


def _alternatives(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of a union, or the value itself."""
    parts = value.get("anyOf") or value.get("oneOf")
    return [inner for part in parts for inner in _alternatives(part)] if parts else [value]


def _inner_mappings(value: dict[str, Any], defs: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The mappings with keys of their own inside a value, each with the suffix that leads from the value to it."""
    found: list[tuple[str, dict[str, Any]]] = []
    for schema in (_resolve_ref(alternative, defs) for alternative in _alternatives(value)):
        if "properties" in schema:
            found.append(("", schema))
        for part, suffix in (
            (schema.get("items"), "[]"),
            (schema.get("additionalProperties"), ".NAME"),
            *((pattern, ".NAME") for pattern in schema.get("patternProperties", {}).values()),
        ):
            if isinstance(part, dict):
                found += [(suffix + inner_suffix, inner) for inner_suffix, inner in _inner_mappings(part, defs)]
    return found


def _value_text(value: dict[str, Any], defs: dict[str, Any]) -> str:
    """The column "value": all alternatives. A size is one phrase, although it is a number or a text."""
    texts = [_alternative_text(_resolve_ref(alternative, defs), defs) for alternative in _alternatives(value)]
    size = PATTERNS[SIZE]
    return size if size in texts else " or ".join(text for text in texts if text != "null")


def _alternative_text(value: dict[str, Any], defs: dict[str, Any]) -> str:
    if "const" in value:
        return f"`{'true' if value['const'] is True else value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{name}`" for name in value["enum"])
    match value["type"]:
        case "string":
            if "pattern" in value:
                return PATTERNS[value["pattern"]]
            return f"text (at most {value['maxLength']:,} characters)" if "maxLength" in value else "text"
        case "integer":
            top = value.get("maximum", value.get("exclusiveMaximum", 0) - 1)
            return f"{value['minimum']:,} to {top:,}" if "minimum" in value else "whole number"
        case "array":
            return f"list of {_value_text(value['items'], defs)}"
        case "object":
            inner = value.get("additionalProperties")
            return f"mapping of {_value_text(inner, defs)}" if isinstance(inner, dict) else "mapping"
        case "boolean":
            return "true or false"
        case kind:
            return str(kind)


def _default(value: dict[str, Any]) -> str:
    given = value.get("default")
    if given in (None, [], {}, "") or isinstance(given, dict):
        return "–"
    return f"`{json.dumps(given, ensure_ascii=False)}`" if isinstance(given, list) else f"`{given}`"


def _description(value: dict[str, Any]) -> str:
    return " ".join(str(value.get("description", "")).split())


def main() -> None:
    """Write both files."""
    SCHEMA.write_text(schema_text(), "utf-8")
    PAGE.write_text(page_text(), "utf-8")


if __name__ == "__main__":
    main()
