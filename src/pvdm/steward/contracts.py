"""A contract's file as it is taken in: one YAML mapping of a modest size; what it must say comes with its language."""

from __future__ import annotations

import yaml  # type: ignore[import-untyped]

from pvdm.errors import InputError
from pvdm.model.migration import CONTRACT_MAX_BYTES


def contract_text(data: bytes) -> str:
    """The text of a contract's bytes, judged; encoded again it is the same bytes."""
    if not 0 < len(data) <= CONTRACT_MAX_BYTES:
        raise _invalid(f"1 to {CONTRACT_MAX_BYTES} bytes", f"{len(data)} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _invalid("UTF-8", f"{error.reason} at byte {error.start}") from None
    judge_contract(text)
    return text


def judge_contract(text: str) -> None:
    """One YAML mapping with plain values, each written where it stands; no tag of it makes an object."""
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        # Before anything is made of it: an alias can make a document endless, or far larger than its text.
        for event in yaml.parse(text, Loader=loader):
            if getattr(event, "anchor", None) is not None:
                raise _invalid("no anchors (&) and no aliases (*)", f"one in line {event.start_mark.line + 1}")
        found = list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = "" if place is None else f" in line {place.line + 1}"
        raise _invalid("a YAML document", f"{getattr(error, 'problem', None) or 'another text'}{where}"[:200]) from None
    except (RecursionError, ValueError, OverflowError) as error:
        # What a date, a number or a depth may be is not all told as an error of YAML.
        raise _invalid("a YAML document", str(error)[:200] or type(error).__name__) from None
    if len(found) != 1 or found[0] is None:
        raise _invalid("one YAML document", f"{len(found)} documents" if len(found) != 1 else "an empty one")
    if not isinstance(found[0], dict):
        raise _invalid("a mapping, such as `product: orders`", f"a {type(found[0]).__name__}")


def _invalid(expected: str, got: str) -> InputError:
    return InputError("contract_invalid", "the contract cannot be accepted", expected=expected, got=got)
