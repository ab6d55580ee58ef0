"""A permit allows one commit of one table to one metadata document. Only the package `metadata` creates permits."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import NotAllowedError
from pvdm.metadata.gate.target import Permit
from tests.support.for_each import for_each
from tests.support.ledger.rows import hex64

SOURCE = Path(__file__).parents[3] / "src" / "pvdm"
COMMIT: dict[str, Any] = {"table_uuid": "t-1", "base_sha256": hex64("base"), "new_sha256": hex64("new")}


def test_a_permit_allows_its_own_commit() -> None:
    Permit(**COMMIT).require(**COMMIT)


@pytest.mark.parametrize(
    ("name", "value"),
    [("table_uuid", "t-2"), ("base_sha256", hex64("other")), ("new_sha256", hex64("other"))],
)
def test_a_permit_for_another_table_base_or_document_is_refused(name: str, value: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        Permit(**COMMIT).require(**{**COMMIT, name: value})
    assert caught.value.reason == "permit_for_other_commit"


def test_a_permit_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Permit(**COMMIT).table_uuid = "t-2"  # type: ignore[misc]


def find_permit_creations(source: str) -> list[str]:
    """Every expression of this source that could create a permit."""
    if "Permit" not in source and "import *" not in source:
        return []
    found: list[str] = []
    names: set[str] = {"Permit"}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="pvdm.metadata.gate.target", names=imported):
                names |= {alias.asname for alias in imported if alias.name == "Permit" and alias.asname}
                found += ["import *" for alias in imported if alias.name == "*"]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in names:
                found.append(ast.unparse(node))
            case ast.Attribute(attr="Permit"):
                found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id=name)) if name in names:
                found.append(ast.unparse(node))
            case ast.Call(args=args, keywords=keywords):
                arguments = [*args, *(keyword.value for keyword in keywords)]
                found += [ast.unparse(node) for each in arguments if isinstance(each, ast.Name) and each.id in names]
            case ast.Assign(value=ast.Name(id=name)) | ast.ClassDef(bases=[ast.Name(id=name), *_]) if name in names:
                found.append(ast.unparse(node))
    return found


def test_no_permit_is_created_outside_of_the_metadata_package() -> None:
    made = {
        str(path.relative_to(SOURCE)): found
        for path in sorted(SOURCE.rglob("*.py"))
        if "metadata" not in path.relative_to(SOURCE).parts[:1] and (found := find_permit_creations(path.read_text()))
    }
    assert made == {}


@for_each(
    "source",
    [
        "from pvdm.metadata.gate.target import Permit\nPermit('a', 'b', 'c')",
        "from pvdm.metadata.gate.target import Permit as P\nP('a', 'b', 'c')",
        "from pvdm.metadata import permit\npermit.Permit('a', 'b', 'c')",
        "from pvdm.metadata.gate.target import Permit\nPermit.for_tests('a')",
        "from pvdm.metadata.gate.target import Permit\nmake = Permit",
        "from pvdm.metadata.gate.target import Permit\nfunctools.partial(Permit, 'a')",
        "from pvdm.metadata.gate.target import Permit\nobject.__new__(Permit)",
        "from pvdm.metadata.gate.target import Permit\nclass Mine(Permit): pass",
        "from pvdm.metadata.gate.target import *",
    ],
)
def test_every_way_to_create_a_permit_is_found(source: str) -> None:
    assert find_permit_creations(source)


def test_a_type_annotation_creates_no_permit() -> None:
    source = "from pvdm.metadata.gate.target import Permit\ndef f(p: Permit | None = None) -> Permit: ..."
    assert find_permit_creations(source) == []
