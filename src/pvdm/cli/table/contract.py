"""`pvdm init`, `pvdm validate` and `pvdm contract`: contracts written, checked and shown."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common import options
from pvdm.cli.common.commands import command, command_group, wants_json
from pvdm.cli.common.files import read_file, write_new
from pvdm.cli.common.screen import say_json, say_result
from pvdm.errors import InputError
from pvdm.model.contract import CONTRACT_SIZE_MAX_BYTES, BoundContract, DataProductContract, Operation, parse_contract
from pvdm.model.filter import expression
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.claim_filter import read_claim
from pvdm.model.filter.literal import parse_literal
from pvdm.model.schema import Kind, PrimitiveType

_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9._-]+")


@command("init")
@click.option("--table", default="curated.TABLE", metavar="NAME", help="The target, as namespace.name.")
@click.option("--source", default="raw.TABLE", metavar="NAME", help="The source, as namespace.name.")
@options.path_option("--out", help="Where to write it.  [default: standard output]")
def init(*, table: str, source: str, out: Path | None) -> None:
    """Write a commented contract to start from. Nothing is overwritten.

    \b
    Examples:
      pvdm init
      pvdm init --table curated.orders --source raw.orders --out orders.yaml
    """
    text = fill_template(table, source, out.name if out else "FILE")
    data = text.encode()
    parse_contract(data, str(out) if out else "contract")  # raises if a name cannot be a table's
    document = {
        "file": out,
        "written": out is not None and write_new(out, data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "contract": text,
    }
    written = f"{out}: a contract for {table}; change what is in capitals, then `pvdm validate {out}`"
    say_result(document, text.splitlines() if out is None else [written])


def fill_template(table: str, source: str, file: str) -> str:
    """A contract for a table, with placeholders in capitals."""
    names = [_NOT_IN_LABEL.sub("-", part.lower()).strip("-._") or "name" for part in table.split(".")]
    text = resources.files("pvdm.cli.table").joinpath("contract_template.yaml").read_text("utf-8")
    return text.format(domain=names[0], product=names[-1], target=table, source=source, file=file)


@command("validate")
@options.path_argument("file")
@click.option(
    "--param", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter of a workload: give all of them or none."
)
def validate(*, file: Path, pairs: tuple[str, ...]) -> None:
    """Check a contract offline: its form, whether its parts are consistent, and the parameters.

    An error names file, line and column, and the command ends with 2. Whether the tables have the named columns is
    checked when the table is protected and when a workload is opened.

    \b
    Examples:
      pvdm validate orders.yaml
      pvdm validate orders.yaml --param date=2026-11-14
      pvdm validate orders.yaml --json | jq .sha256
    """
    parameters = options.parse_pairs(pairs, "--param")
    contract = parse_contract(read_file(file, size_max_bytes=CONTRACT_SIZE_MAX_BYTES), str(file))
    bound = contract.bind(parameters) if parameters else None
    say_result(_to_json(file, contract, bound), _lines(contract, bound))


def _to_json(file: Path, contract: DataProductContract, bound: BoundContract | None) -> dict[str, object]:
    boundary, source, claim = contract.boundary, contract.boundary.source, _read_claim(contract, bound)
    return {
        "file": str(file),
        "sha256": contract.sha256,
        "domain": contract.product.domain,
        "product": contract.product.product,
        "source": {"table": source.table, "uuid": source.uuid, "manifest": source.manifest},
        "where": str(boundary.where),
        "target": boundary.target,
        "operation": boundary.operation.value,
        "claim": boundary.claim,
        "claimed": None if claim is None else claim.text,
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
        f"{contract.product.domain}/{contract.product.product}: a valid contract; source and target were not looked at",
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
    """A line about the claim of an append; other operations claim nothing."""
    column = contract.boundary.claim
    if contract.boundary.operation is not Operation.APPEND:
        return []
    if column is None:
        return ["  claim      everything: only one workload is possible"]
    claim = _read_claim(contract, bound)
    if claim is None:
        return [f"  claim      {column}: for each workload the part that the filter selects"]
    only_one = "" if contract.parameters else ": the same for every workload, so only one is possible"
    return [f"  claim      {claim.text}{only_one}"]


def _read_claim(contract: DataProductContract, bound: BoundContract | None) -> Claim | None:
    """The claim of a workload. None without `claim`, or if it needs parameters or types that are not known here."""
    boundary = contract.boundary
    if boundary.claim is None or (bound is None and contract.parameters):
        return None
    parameters = {} if bound is None else dict(bound.parameters)
    kind = _guess_kind(contract, boundary.claim)

    def value_of(literal: expression.Literal) -> expression.LiteralValue:
        if isinstance(literal, expression.Parameter):
            text = parameters[literal.name]
        else:
            text = literal.value if isinstance(literal, expression.Text) else str(literal)
        return parse_literal(text, PrimitiveType(kind))

    try:
        return read_claim(boundary.where, boundary.claim, kind.value, value_of)
    except InputError:
        return None  # only the source's schema has the column's type


def _guess_kind(contract: DataProductContract, column: str) -> Kind:
    """The column's type, by the parameters and literals that the filter compares it with."""
    declared = {each.name: Kind(each.type.value) for each in contract.parameters}
    found = [
        literal
        for predicate in expression.predicates(contract.boundary.where)
        if predicate.column == column
        for literal in expression.literals_of(predicate)
    ]
    for literal in found:
        if isinstance(literal, expression.Parameter):
            return declared[literal.name]
    if found and isinstance(found[0], expression.Number | expression.Boolean):
        return Kind.LONG if isinstance(found[0], expression.Number) else Kind.BOOLEAN
    return Kind.STRING


@command_group("contract")
def contract() -> None:
    """Read the contracts that tables are, or were, protected under.

    \b
    Examples:
      pvdm protections --current sales.orders
      pvdm contract show SHA256
    """


@contract.command("show", short_help="Print a contract.")
@click.argument("contract_sha256", metavar="SHA256")
@options.service_options
def contract_show(*, contract_sha256: str, service: options.Service) -> None:
    """Print a contract byte for byte, by the SHA-256 that `pvdm protections` shows.

    \b
    Examples:
      pvdm contract show SHA256 --url https://steward.example:8181
      pvdm contract show SHA256 > orders.yaml
    """
    with service.connect() as client:
        text = client.contract(contract_sha256).decode()
    if wants_json():
        say_json({"contract_sha256": contract_sha256, "contract": text})
        return
    click.echo(text.encode(), nl=False)
