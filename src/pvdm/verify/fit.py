"""Whether a contract can ever publish from its source to its target, judged by both schemas and no row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from pvdm.digest import default_engine
from pvdm.errors import Code, InputError
from pvdm.lake.format.schema.logical import type_to_iceberg
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import partition_types
from pvdm.model.contract import ChunkingBy, DataProductContract, ParameterRef, columns_read, resolve
from pvdm.model.filter.bind import column_type, require_bindable, require_spellable
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.literal import parse_literal
from pvdm.model.schema import Kind, PrimitiveType, Schema
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.chunks import plan_chunks
from pvdm.verify.extraction import require_extractable
from pvdm.verify.intent import digest_plan, no_rows, require_mapping

_PROJECTED: Final = "name a column of the target, in its own spelling"


def require_contract_fit(contract: DataProductContract, source: Schema, target: Schema) -> None:
    """Refuse a contract under which no workload can be opened, whatever its parameters and the source's rows are.

    The same judgement stands before a contract comes into force and before each workload is opened.
    """
    with _name_place("projections", _PROJECTED):
        plan = digest_plan(contract, target)
        require_identity(target, contract.projections.identity)
    require_source_fit(contract, source)
    with _name_place("boundary.columns"):
        mapped = require_mapping(contract, source, plan)
        engine, batch = default_engine(), no_rows(mapped, source)
        for projection in plan.projections:
            engine.encode(plan, projection.name, batch)


def require_source_fit(contract: DataProductContract, source: Schema) -> None:
    """Refuse a contract that asks its source for columns that it does not have, or that are of another type."""
    boundary, chunking = contract.boundary, contract.chunking
    with _name_place("boundary.columns"):
        resolve(boundary.mapping, source)
    with _name_place("boundary.where"):
        require_bindable(boundary.where, source, {each.name: each.type.type for each in contract.parameters})
    if boundary.claim is not None:
        with _name_place("boundary.claim"):
            Claim.value(boundary.claim, type_to_iceberg(column_type(source, boundary.claim)), None)
    with _name_place("chunking"):
        if chunking.by is not ChunkingBy.FILES:
            plan_chunks(chunking, source, values=(), files=(), most=contract.limits.chunks)


def require_extraction_fit(contract: DataProductContract, source: Schema, target: Schema) -> None:
    """Refuse columns that Spark's reader gives as others, where the contract wants rows by that reader."""
    if contract.extraction is not ExtractionPath.SPARK:
        return
    require_extractable(target, "target")
    wanted = columns_read(contract, target.names) & set(source.names)
    require_extractable(source.select(wanted), "source")


def require_identity(target: Schema, names: Sequence[str]) -> None:
    """Keys are values that can be told apart and shown: none is a variant, nor has one inside."""
    for path, slot in target.select(names).walk():
        if slot.type == PrimitiveType(Kind.VARIANT):
            raise Code.IDENTITY_TYPE_UNSUPPORTED(
                f"column {path!a} cannot be part of the identity", got=str(slot.type), column=path
            )


def require_partition_fit(contract: DataProductContract, target: TableMetadata) -> None:
    """Refuse declared partition values that no partition of the target can have."""
    declared = contract.boundary.partition
    parameters = {each.name: each.type.type for each in contract.parameters}
    with _name_place("boundary.partition"):
        types = partition_types(target, [name for name, _ in declared])
        for name, value in declared:
            _, kind = types[name]
            if isinstance(value, ParameterRef):
                require_spellable(value.name, parameters[value.name], name, kind)
            elif value is not None:
                parse_literal(value, kind)


@contextlib.contextmanager
def _name_place(place: str, hint: str | None = None) -> Iterator[None]:
    """Add the place in the contract to a refusal."""
    try:
        yield
    except InputError as error:
        raise InputError(
            error.reason,
            f"{place} does not fit: {error.message}",
            expected=error.expected,
            got=error.got,
            hint=error.hint or hint or f"correct {place} of the contract",
            **{**error.details, "path": place},
        ) from None
