"""spec/proof.md, its JSON schemas and its examples agree with the code."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource

from pvdm.digest.plan import Construction, Mode
from pvdm.errors import PvdmError
from pvdm.model.statements.core import CONSTRUCTIONS, MODES
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from pvdm.trust.root import TrustRoot
from pvdm.trust.statement import SIGNING_RULES, Predicate, payload_of, read_statement
from pvdm.trust.verify import verify_statement
from tests.support.for_each import for_each
from tests.support.gate.hostile_assets import manifest
from tools.make_proof_examples import EXAMPLES, envelopes, stale
from tools.proof_kit import NOW, ROOT

SPEC: Final = Path(__file__).parents[2] / "spec"
SCHEMAS: Final = {path.stem: json.loads(path.read_text()) for path in sorted((SPEC / "schemas").glob("*.json"))}
REGISTRY: Final = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
KINDS: Final = {rule.predicate_type.split(":")[2]: kind for kind, rule in SIGNING_RULES.items()}
STATEMENTS: Final = {name: envelope for name, envelope in envelopes().items() if not name.startswith("trust-root")}
# Objects whose keys the contract or the operator chooses.
OPEN_MAPS: Final = ("parameters", "partition", "key_ids")


def is_valid(name: str, document: object) -> bool:
    return bool(Draft202012Validator(SCHEMAS[name], registry=REGISTRY).is_valid(document))


def kind_of(statement: dict[str, Any]) -> str:
    return str(statement["predicateType"].split(":")[2])


def objects_in(value: Any, inside: str = "") -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if inside not in OPEN_MAPS:
            yield value
        for key, inner in value.items():
            yield from objects_in(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from objects_in(inner)


def change_everywhere(document: Any, change: Callable[[dict[str, Any]], Iterator[None]]) -> Iterator[Any]:
    """A changed copy of the document for each step of `change` in each of its objects."""
    for at in range(len(list(objects_in(document)))):
        step = 0
        while True:
            changed = copy.deepcopy(document)
            changes = change(list(objects_in(changed))[at])
            if sum(1 for _ in zip(range(step + 1), changes, strict=False)) <= step:
                break
            yield changed
            step += 1


def remove_each_key(document_object: dict[str, Any]) -> Iterator[None]:
    for key in sorted(document_object):
        value = document_object.pop(key)
        yield
        document_object[key] = value


def add_a_key(document_object: dict[str, Any]) -> Iterator[None]:
    document_object["more"] = "x"
    yield


def test_the_examples_are_what_the_tool_writes() -> None:
    assert list(stale()) == []


@for_each("name", sorted(STATEMENTS))
def test_an_example_is_accepted_with_the_example_root(name: str) -> None:
    data = (EXAMPLES / name).read_bytes()
    kind = KINDS[kind_of(json.loads(parse_envelope(data).payload))]
    assert payload_of(verify_statement(data, ROOT, kind, now=NOW).predicate) == parse_envelope(data).payload


@for_each("name", sorted(envelopes()))
def test_an_example_envelope_satisfies_the_schema(name: str) -> None:
    assert is_valid("envelope", json.loads((EXAMPLES / name).read_bytes()))


@pytest.mark.parametrize("name", ["bundle.json", "bundle-fail.json"])
def test_an_example_bundle_satisfies_the_schema(name: str) -> None:
    assert is_valid("bundle", json.loads((EXAMPLES / name).read_bytes()))


@for_each("name", sorted(STATEMENTS))
def test_an_example_statement_satisfies_the_schema(name: str) -> None:
    statement = json.loads(STATEMENTS[name].payload)
    assert is_valid(kind_of(statement), statement)


@pytest.mark.parametrize("name", ["trust-root-1.json", "trust-root-2.json"])
def test_an_example_trust_root_satisfies_the_schema(name: str) -> None:
    envelope = parse_envelope(
        (EXAMPLES / name).read_bytes(), payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX
    )
    assert is_valid("trust-root", json.loads(envelope.payload))


@pytest.mark.parametrize("change", [remove_each_key, add_a_key], ids=["one key less", "one key more"])
@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_schema_and_reader_both_refuse_any_other_set_of_keys(
    name: str, change: Callable[[dict[str, Any]], Iterator[None]]
) -> None:
    statement = json.loads(STATEMENTS[name].payload)
    kind = KINDS[kind_of(statement)]
    changed = list(change_everywhere(statement, change))
    assert changed
    assert [each for each in changed if is_valid(kind_of(statement), each)] == []
    assert [each for each in changed if is_read(each, kind)] == []


@pytest.mark.parametrize("change", [remove_each_key, add_a_key], ids=["one key less", "one key more"])
def test_schema_and_reader_of_the_trust_root_refuse_any_other_set_of_keys(
    change: Callable[[dict[str, Any]], Iterator[None]],
) -> None:
    changed = list(change_everywhere(json.loads(ROOT.to_bytes()), change))
    assert [each for each in changed if is_valid("trust-root", each)] == []
    for each in changed:
        with pytest.raises(PvdmError):
            TrustRoot.from_json(each)


def is_read(statement: dict[str, Any], kind: type[Predicate]) -> bool:
    try:
        read_statement(json.dumps(statement, separators=(",", ":"), sort_keys=True).encode(), kind)
    except PvdmError:
        return False
    return True


def test_every_kind_of_statement_has_a_schema_and_an_example() -> None:
    kinds = {kind_of(json.loads(envelope.payload)) for envelope in STATEMENTS.values()}
    assert kinds == set(KINDS)
    assert set(SCHEMAS) == {*KINDS, "audit", "common", "contract.schema", "envelope", "trust-root", "bundle"}


@for_each("name", sorted(SCHEMAS))
def test_a_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_every_code_of_the_assets_is_in_the_specification() -> None:
    documented = set(re.findall(r"`([a-z0-9_]+)`", (SPEC / "proof.md").read_text()))
    assert {asset.code for asset in manifest()} - documented == set()


def test_modes_and_constructions_are_those_of_the_digest() -> None:
    assert (set(MODES), set(CONSTRUCTIONS)) == ({m.value for m in Mode}, {c.value for c in Construction})
