"""The codec of documents: a written document is read back, and an invalid one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import pytest

from pvdm.errors import InputError
from pvdm.model.canonical_json import Value
from pvdm.model.codec import NOT_STORED, Count, DecimalText, Document, FieldType, Identity, documents
from pvdm.model.fields import Fields, require_text
from tests.support.for_each import for_each


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Leaf(Document, title="a leaf"):
    name: Identity
    size: DecimalText


def _read_pair(fields: Fields, _key: str) -> tuple[int, int]:
    return fields.number("low"), fields.number("high")


def _write_pair(pair: tuple[int, int]) -> Value:
    return {"low": pair[0], "high": pair[1]}


@dataclass(frozen=True, slots=True)
class Tree(Document, title="the tree", format="tree/v1"):
    leaves: Annotated[tuple[Leaf, ...], documents(Leaf, 1, 2)]
    colours: tuple[Colour, ...]
    parent: Leaf | None
    span: Annotated[tuple[int, int], FieldType(_read_pair, _write_pair, keys=("low", "high"))]
    note: Annotated[str | None, FieldType(Fields.text, check=require_text, required=False)] = None
    seen: Annotated[bool, NOT_STORED] = False

    def require_consistent(self) -> None:
        """The span is not empty."""
        if self.span[0] > self.span[1]:
            raise InputError("document_value_invalid", "the span is empty")


LEAF = Leaf("oak", 2**62)
TREE = Tree((LEAF,), (Colour.RED, Colour.BLUE), None, (1, 2))
DOCUMENT: Mapping[str, Value] = {
    "format": "tree/v1",
    "leaves": [{"name": "oak", "size": str(2**62)}],
    "colours": ["red", "blue"],
    "parent": None,
    "low": 1,
    "high": 2,
}


def test_a_document_has_one_key_for_each_stored_field() -> None:
    assert TREE.to_json() == DOCUMENT


@pytest.mark.parametrize("tree", [TREE, Tree((LEAF, LEAF), (), LEAF, (3, 3), "a note")], ids=["least", "most"])
def test_a_document_is_read_back_as_it_was_written(tree: Tree) -> None:
    assert Tree.from_json(tree.to_json()) == tree


@for_each(
    ("change", "reason"),
    [
        ({"more": 1}, "document_key_unknown"),
        ({"format": "tree/v2"}, "document_value_invalid"),
        ({"leaves": []}, "document_value_invalid"),
        ({"leaves": [{"name": "oak", "size": 1}]}, "document_value_invalid"),
        ({"leaves": [{"name": "oak"}]}, "document_key_missing"),
        ({"leaves": [{"name": "Oak!", "size": "1"}]}, "document_value_invalid"),
        ({"leaves": [{"name": "oak", "size": str(2**63)}]}, "document_value_invalid"),
        ({"colours": ["green"]}, "document_value_invalid"),
        ({"parent": "oak"}, "document_value_invalid"),
        ({"low": 3}, "document_value_invalid"),
        ({"note": None}, "document_value_invalid"),
        ({"note": ""}, "document_value_invalid"),
        ({"seen": True}, "document_key_unknown"),
    ],
    ids=str,
)
def test_an_invalid_document_is_refused(change: Mapping[str, Value], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        Tree.from_json({**DOCUMENT, **change})
    assert caught.value.reason == reason


def test_a_field_is_checked_when_the_document_is_created() -> None:
    with pytest.raises(InputError, match="name of a leaf"):
        Leaf("", 1)


@dataclass(frozen=True, slots=True)
class Undeclared(Document, title="an undeclared one"):
    number: int | str
    count: Count


def test_a_field_without_a_field_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="needs a FieldType"):
        Undeclared(1, 2)
