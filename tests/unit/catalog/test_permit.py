"""A permit fits one swap of one table to one document, and no code but the gate's makes one."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import NotAllowedError
from pvdm.metadata.gate.target import Permit
from tests.support.ledger.rows import hex64

SOURCE = Path(__file__).parents[3] / "src" / "pvdm"
SWAP: dict[str, Any] = {"table_uuid": "t-1", "base_sha256": hex64("base"), "new_sha256": hex64("new")}


def test_a_permit_fits_its_own_swap() -> None:
    Permit(**SWAP).require(**SWAP)


@pytest.mark.parametrize(
    ("name", "value"),
    [("table_uuid", "t-2"), ("base_sha256", hex64("other")), ("new_sha256", hex64("other"))],
)
def test_a_permit_for_another_table_base_or_document_is_refused(name: str, value: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        Permit(**SWAP).require(**{**SWAP, name: value})
    assert caught.value.reason == "permit_for_other_commit"


def test_a_permit_is_not_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Permit(**SWAP).table_uuid = "t-2"  # type: ignore[misc]


def makers(source: str) -> list[str]:
    """Every way in which this source could come to a permit of its own making."""
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
                held = [*args, *(keyword.value for keyword in keywords)]
                found += [ast.unparse(node) for each in held if isinstance(each, ast.Name) and each.id in names]
            case ast.Assign(value=ast.Name(id=name)) | ast.ClassDef(bases=[ast.Name(id=name), *_]) if name in names:
                found.append(ast.unparse(node))
    return found


def test_no_permit_is_made_outside_the_gates_room() -> None:
    made = {
        str(path.relative_to(SOURCE)): found
        for path in sorted(SOURCE.rglob("*.py"))
        if "metadata" not in path.relative_to(SOURCE).parts[:1] and (found := makers(path.read_text()))
    }
    assert made == {}


@pytest.mark.parametrize(
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
def test_every_way_to_make_a_permit_is_seen(source: str) -> None:
    assert makers(source)


def test_naming_the_type_makes_no_permit() -> None:
    assert makers("from pvdm.metadata.gate.target import Permit\ndef f(p: Permit | None = None) -> Permit: ...") == []
