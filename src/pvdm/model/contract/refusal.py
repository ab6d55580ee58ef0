"""Translates pydantic's errors about a contract into plain words with the position in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from pvdm.errors import InputError
from pvdm.model.contract import document
from pvdm.model.contract.positions import KeyPath, ParsedYaml, Plain, Position, error_at

_SHOWN_CHARACTERS: Final = 80
PATTERNS: Final = {  # the meaning of the patterns in `document`
    document.TABLE_UUID: "a UUID of lower-case hexadecimal digits",
    document.SIZE: "a number of bytes, plain or with KiB, MiB, GiB or TiB",
    document.PARAMETER_NAME: "a name of letters, digits and _, not beginning with a digit",
    r"^[^.\s`/]+(\.[^.\s`/]+)+$": "a table as namespace.name, without spaces, slashes and backquotes",
    r"^[a-z0-9][a-z0-9._-]{0,63}$": "at most 64 of a-z, 0-9, dot, _ and -, the first a letter or digit",
    r"^[1-9][0-9]{0,6}[smhd]$": "a number with s, m, h or d, such as 24h",
}
# By pydantic's type of error. Braces are filled from its context.
_EXPECTED_TEXTS: Final = {
    "string_too_short": "a text that is not empty",
    "string_too_long": "at most {max_length} characters",
    "too_short": "a list that is not empty",
    "too_long": "at most {max_length} entries",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "none_required": "nothing",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_FORMS: Final = {  # by the tags of union members in `document`
    "(null)": "null",
    "(boolean)": "true or false",
    "(integer)": "a whole number",
    "(text)": "a text",
    "(mapping)": "a mapping",
    "(list)": "a list",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a contract, or a setting that only a later version will serve. `path` leads to the setting."""

    position: Position
    path: KeyPath
    expected: str
    got: str
    hint: str | None = None
    served_later: bool = False


def make_error(found: Iterable[Finding], name: str) -> InputError:
    """The error for the first fault in the file."""
    first = min(found, key=lambda each: each.position)
    path = ".".join(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in first.path)
    reason, verb = "contract_invalid", "cannot be accepted"
    if first.served_later:
        reason, verb = "contract_not_yet", "is not served yet"
    message = f"{path or 'the document'} {verb}"
    return error_at(reason, name, first.position, message, expected=first.expected, got=first.got, hint=first.hint)


def list_findings(errors: Iterable[Mapping[str, Any]], parsed: ParsedYaml) -> list[Finding]:
    """Pydantic's errors with positions. A missing key beside an unknown key is left out: it may be misspelled there."""
    found = [(str(each["type"]), _make_finding(each, parsed)) for each in errors]
    with_unknown_key = {each.path[:-1] for kind, each in found if kind == "extra_forbidden"}
    return [each for kind, each in found if kind != "missing" or each.path[:-1] not in with_unknown_key]


def _make_finding(error: Mapping[str, Any], parsed: ParsedYaml) -> Finding:
    kind, given, context = str(error["type"]), error.get("input"), error.get("ctx") or {}
    path = _remove_tags(error["loc"], parsed.value)
    if path[-1:] == ("[key]",) and kind.startswith("string_"):  # pydantic's mark for an error about a key itself
        path = path[:-1]
        return Finding(parsed.key_position(path), path, _describe_expected(kind, context), _show_value(path[-1]))
    if kind == "missing":
        return Finding(parsed.position(path[:-1]), path, "a value", "none")
    if kind == "extra_forbidden":
        known = ", ".join(_known_keys(path[:-1]))
        return Finding(parsed.key_position(path), path, f"one of {known}", "an unknown key")
    return Finding(parsed.position(path), path, _describe_expected(kind, context), _show_value(given))


def _remove_tags(location: Iterable[str | int], value: Plain) -> KeyPath:
    """The path in the file: pydantic's location without the tags of union members. `value` is the whole document."""
    found: list[str | int] = []
    for part in location:
        is_key = isinstance(value, dict) and part in value
        if part in _FORMS and not is_key:
            continue
        found.append(part)
        if isinstance(value, dict):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
    return tuple(found)


def _describe_expected(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "literal_error":
            return str(context["expected"]).replace("'", "")
        case "string_pattern_mismatch":
            return PATTERNS[str(context["pattern"])]
        case "union_tag_invalid":
            tags = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
            return " or ".join(_FORMS[tag] for tag in tags)
        case _:
            return _EXPECTED_TEXTS[kind].format(**context)


_MODELS: Final[dict[str, type[BaseModel]]] = {  # by the last key of the path to a mapping
    "metadata": document.Metadata,
    "boundary": document.Boundary,
    "source": document.Source,
    "files": document.Files,
    "claim": document.Claim,
    "chunking": document.Chunking,
    "projections": document.Projections,
    "content": document.Content,
    "governance": document.Governance,
    "repair": document.Repair,
    "limits": document.Limits,
}
_ENTRY_MODELS: Final[dict[str, type[BaseModel]]] = {  # by the key of the list or mapping that has the entry
    "parameters": document.Parameter,
    "columns": document.Column,
    "exclude": document.Exclusion,
}


def _known_keys(path: KeyPath) -> list[str]:
    """The known keys of the mapping at a path."""
    model: type[BaseModel] = document.Document
    if len(path) > 1 and path[-2] in _ENTRY_MODELS:
        model = _ENTRY_MODELS[str(path[-2])]
    elif path:
        model = _MODELS[str(path[-1])]
    return [field.alias or name for name, field in model.model_fields.items()]


def _show_value(value: object) -> str:
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, str):
        return ascii(value[:_SHOWN_CHARACTERS])
    return "a mapping" if isinstance(value, dict) else "a list"
