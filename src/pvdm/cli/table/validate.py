"""`pvdm validate`: judges a contract's file, and its parameters where they are given, without asking anybody."""

from __future__ import annotations

from pathlib import Path

import click

from pvdm.cli.common.files import read_file
from pvdm.cli.common.options import PlaceType, json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.errors import InputError
from pvdm.model.contract import CONTRACT_SIZE_MAX_BYTES, BoundContract, DataProductContract, Operation, parse_contract
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.claim_filter import read_claim
from pvdm.model.filter.expression import (
    Boolean,
    Literal,
    LiteralValue,
    Number,
    Parameter,
    Text,
    literals_of,
    predicates,
)
from pvdm.model.filter.literal import parse_literal
from pvdm.model.schema import Kind, PrimitiveType


def read_parameters(given: tuple[str, ...]) -> dict[str, str]:
    """Parameters as they are typed: name=value, each once."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"expected name=value, got {each[:80]!a}", param_hint="--param")
        if name in found:
            raise click.BadParameter(f"expected each parameter once, got {name[:80]!a} again", param_hint="--param")
        found[name] = value
    return found


@click.command("validate", short_help="Check a contract's file.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@click.option("--param", "given", multiple=True, metavar="NAME=VALUE", help="A parameter of a workload; all, or none.")
def validate(*, as_json: bool, file: Path, given: tuple[str, ...]) -> None:
    """Check a contract without asking anybody: its form, whether its parts fit each other, and the parameters.

    What is wrong is told with file, line and column, and ends with 2. Whether the tables have the named columns is
    judged when the table is protected and when a workload is opened.

    \b
    Examples:
      pvdm validate orders.yaml
      pvdm validate orders.yaml --param date=2026-11-14
      pvdm validate orders.yaml --json | jq .sha256
    """
    parameters = read_parameters(given)
    contract = parse_contract(read_file(file, size_max_bytes=CONTRACT_SIZE_MAX_BYTES), str(file))
    bound = contract.bind(parameters) if parameters else None
    if as_json:
        say_json(_to_json(file, contract, bound))
        return
    for line in _lines(contract, bound):
        say(line)


def _to_json(file: Path, contract: DataProductContract, bound: BoundContract | None) -> dict[str, object]:
    boundary, claimed = contract.boundary, _claimed(contract, bound)
    return {
        "file": str(file),
        "sha256": contract.sha256,
        "domain": contract.product.domain,
        "product": contract.product.product,
        "source": {
            "table": boundary.source.table,
            "uuid": boundary.source.uuid,
            "manifest": boundary.source.manifest,
        },
        "where": str(boundary.where),
        "target": boundary.target,
        "operation": boundary.operation.value,
        "claim": boundary.claim,
        "claimed": None if claimed is None else claimed.text,
        "chunking": contract.chunking.by.value,
        "atomicity": contract.atomicity.value,
        "storage": contract.storage.value,
        "extraction": contract.extraction.value,
        "declared": {each.name: each.type.value for each in contract.parameters},
        "parameters": None if bound is None else dict(bound.parameters),
        "partition": None if bound is None else dict(bound.partition),
    }


def _lines(contract: DataProductContract, bound: BoundContract | None) -> list[str]:
    boundary = contract.boundary
    declared = ", ".join(f"{each.name} ({each.type.value})" for each in contract.parameters)
    source = boundary.source.table or f"files of {boundary.source.manifest}"
    if boundary.source.uuid is not None:
        source += f" (the table {boundary.source.uuid})"
    lines = [
        f"{contract.product.domain}/{contract.product.product}: a valid contract",
        f"  sha256     {contract.sha256}",
        f"  source     {source}, where {boundary.where}",
        f"  target     {boundary.target}, {boundary.operation.value}, visible by {contract.atomicity.value}",
        *_claim_lines(contract, bound),
        f"  chunks     by {contract.chunking.by.value}",
        f"  storage    {contract.storage.value}, extraction {contract.extraction.value}",
        f"  parameters {declared or 'none'}",
    ]
    if bound is not None:
        lines += [f"  {name} = {value}" for name, value in bound.parameters]
    return lines


def _claim_lines(contract: DataProductContract, bound: BoundContract | None) -> list[str]:
    """An append claims what its filter lets through; nothing else claims anything."""
    column = contract.boundary.claim
    if contract.boundary.operation is not Operation.APPEND:
        return []
    if column is None:
        return ["  claim      everything: there can be one workload only"]
    claimed = _claimed(contract, bound)
    if claimed is None:
        return [f"  claim      {column}: of each workload the part that the filter bounds"]
    alone = "" if contract.parameters else ": the same for every workload, so that there can be one only"
    return [f"  claim      {claimed.text}{alone}"]


def _claimed(contract: DataProductContract, bound: BoundContract | None) -> Claim | None:
    """What a workload would claim, with the column's type as the parameters and literals beside it have it."""
    boundary = contract.boundary
    if boundary.claim is None or (bound is None and contract.parameters):
        return None
    given = {} if bound is None else dict(bound.parameters)
    kind = _kind(contract, boundary.claim)

    def value_of(literal: Literal) -> LiteralValue:
        text = given[literal.name] if isinstance(literal, Parameter) else _written(literal)
        return parse_literal(text, PrimitiveType(kind))

    try:
        return read_claim(boundary.where, boundary.claim, kind.value, value_of)
    except InputError:
        return None  # only the source knows the column's type


def _kind(contract: DataProductContract, column: str) -> Kind:
    declared = {each.name: Kind(each.type.value) for each in contract.parameters}
    found = [
        literal
        for predicate in predicates(contract.boundary.where)
        if predicate.column == column
        for literal in literals_of(predicate)
    ]
    for literal in found:
        if isinstance(literal, Parameter):
            return declared[literal.name]
    if found and isinstance(found[0], Number | Boolean):
        return Kind.LONG if isinstance(found[0], Number) else Kind.BOOLEAN
    return Kind.STRING


def _written(literal: Literal) -> str:
    return literal.value if isinstance(literal, Text) else str(literal)
