"""The YAML of contracts: plain values, each with its line and column. All other YAML is refused with its position."""

from __future__ import annotations

import pytest

from pvdm.errors import InputError
from pvdm.model.contract.parser import CONTRACT_SIZE_MAX_BYTES
from pvdm.model.contract.positions import YAML_DEPTH_MAX, YAML_NODES_MAX, Position, parse_yaml
from tests.support.for_each import for_each
from tests.unit.contract.examples import SMALL, refusal_of, to_yaml


def yaml_error(data: bytes | str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_yaml(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data, "c.yaml")
    return caught.value


@for_each(
    ("text", "value"),
    [
        ("null", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("false", False),
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("9999999999999999999", 9999999999999999999),
        ("99999999999999999999", "99999999999999999999"),
        ("007", "007"),
        ("+5", "+5"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("1.50", "1.50"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        ("2026-11-14", "2026-11-14"),
        ("12:30:00", "12:30:00"),
        ("yes", "yes"),
        ("True", "True"),
        ("NULL", "NULL"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("'null'", "null"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[1, a]", [1, "a"]),
        ("{k: {n: 1}}", {"k": {"n": 1}}),
    ],
)
def test_only_null_booleans_and_whole_numbers_are_more_than_text(text: str, value: object) -> None:
    assert parse_yaml(f"a: {text}".encode(), "c.yaml").value == {"a": value}


def test_every_key_and_value_has_its_line_and_column() -> None:
    document = parse_yaml(b"# comment\na:\n  b: [x, {c: y}]\n'd': 5\n", "c.yaml")
    assert document.position(("a", "b", 0)) == Position(3, 7)
    assert document.position(("a", "b", 1, "c")) == Position(3, 14)
    assert document.key_position(("a", "b", 1, "c")) == Position(3, 11)
    assert document.key_position(("d",)) == Position(4, 1)
    assert document.position(("d",)) == Position(4, 6)
    assert document.position(("a", "missing")) == Position(3, 3)


@for_each(
    ("data", "place", "expected"),
    [
        ("a: &x 1\nb: *x\n", "1:4", "every value written out"),
        ("a: 1\nb: *x\n", "2:4", "every value written out"),
        ("a: &x {b: *x}\n", "1:4", "every value written out"),
        ("base: {x: 1}\na:\n  <<: {y: 1}\n", "3:3", "every value written out"),
        ("a: 1\nb: 2\na: 3\n", "3:1", "each key once"),
        ("a: {b: 1, b: 2}\n", "1:11", "each key once"),
        ("1: a\n'1': b\n", "2:1", "each key once"),
        ("a: !!str 5\n", "1:4", "no tag"),
        ("a: !!python/object/apply:os.system [id]\n", "1:4", "no tag"),
        ("a: ! x\n", "1:4", "no tag"),
        ("!!map {a: 1}\n", "1:1", "no tag"),
        ("!!int 1: a\n", "1:1", "no tag"),
        ("a: !!binary aGk=\n", "1:4", "no tag"),
        ("? [a]\n: b\n", "1:3", "a plain key"),
        ("{a: b}: c\n", "1:1", "a plain key"),
        ("a: 1\n---\nb: 2\n", "2:1", "one document"),
        ("a: 1\n---\n", "2:1", "one document"),
        ("", "1:1", "one document"),
        ("# only a comment\n", "1:1", "one document"),
        ("a: [1\n", "2:1", "YAML"),
        ("a:\n\tb: 1\n", "2:1", "YAML"),
        ("a: 'x\n", "2:1", "YAML"),
        ("a: b: c\n", "1:5", "YAML"),
        ("%YAML 2.0\n---\na: 1\n", "1:1", "YAML"),
        ('a: "\\ud800"\n', "1:4", "well-formed Unicode"),
        ('"\\ud800": a\n', "1:1", "well-formed Unicode"),
        ("a: 1\nbé: \x01\n", "2:5", "printable characters"),
        (b"a: 1\nb\xc3\xa9: \xff\n", "2:5", "UTF-8"),
        (b"\xff\xfea\x00", "1:1", "UTF-8"),
    ],
)
def test_yaml_beyond_plain_values_is_refused_with_its_position(data: bytes | str, place: str, expected: str) -> None:
    error = yaml_error(data)
    assert error.reason == "contract_unreadable"
    assert error.message == f"c.yaml:{place}: the contract cannot be read"
    assert f"{error.details['line']}:{error.details['column']}" == place
    assert error.details["file"] == "c.yaml"
    assert (error.expected or "").startswith(expected)


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse_yaml("\ufeffa: 1\n".encode(), "c.yaml").value == {"a": 1}


def test_depth_has_a_limit() -> None:
    depth = YAML_DEPTH_MAX
    parse_yaml(b"[" * depth + b"1" + b"]" * depth, "c.yaml")
    error = yaml_error(b"[" * (depth + 1) + b"1" + b"]" * (depth + 1))
    assert error.expected == f"at most {YAML_DEPTH_MAX} levels"
    assert yaml_error(b"[" * 200_000).expected == f"at most {YAML_DEPTH_MAX} levels"
    assert yaml_error(b"a: " + b"{a: " * 60_000).expected == f"at most {YAML_DEPTH_MAX} levels"


def test_the_number_of_values_has_a_limit() -> None:
    parse_yaml(b"[" + b"1," * (YAML_NODES_MAX - 1) + b"]", "c.yaml")
    error = yaml_error(b"[" + b"1," * YAML_NODES_MAX + b"]")
    assert error.expected == f"at most {YAML_NODES_MAX} keys and values"


def test_the_size_has_a_limit() -> None:
    small = to_yaml(SMALL)
    error = refusal_of(small + b"#" * (CONTRACT_SIZE_MAX_BYTES - len(small) + 1))
    assert (error.reason, error.details["file"]) == ("contract_too_large", "c.yaml")


def test_an_error_shows_no_control_characters_of_the_file() -> None:
    error = refusal_of('"\\e[31mred": 1\n' + to_yaml(SMALL).decode())
    assert "\x1b" not in str(error)
    assert (error.got or "").isascii()
