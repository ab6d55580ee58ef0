"""Signed statements in plain words; FAIL and break-glass cannot be overlooked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pvdm.cli.common.times import utc
from pvdm.cli.proof.files import Statement
from pvdm.model.canonical_json import Value
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore, Target
from pvdm.model.statements.proof import Isolation, NotaryPart, Proof, Storage
from pvdm.model.statements.verdict import Verdict

# Each line with its style; without colours the words alone are loud enough.
Line = tuple[str, str | None]
LOUD = "bold white on red"

_CLASSES: Mapping[str, str] = {
    "added": "rows are there that were not intended, or some are there twice",
    "duplicated": "rows are there more often than intended",
    "metadata": "the table's metadata says something else than the files",
    "missing": "intended rows are not there",
    "modified": "rows are there with other values than intended",
    "physical": "a file is not what it claims to be",
    "schema": "the files have another schema than the table",
}
_ISOLATION: Mapping[Isolation, str] = {
    Isolation.EMBEDDED: "embedded in the producer's process: stops accidents, not malice",
    Isolation.PROCESS: "a process of its own, not an account of its own",
    Isolation.ACCOUNT: "an account of its own",
}
_STORAGE: Mapping[Storage, str] = {
    Storage.OPEN: "the producer could still write the files",
    Storage.COPIED: "the notary copied the files to where only it writes",
    Storage.SEALED: "the producer's access to the files had ended",
}


def verdict_line(verdict: Verdict) -> Line:
    """PASS in green; FAIL loudly, with its classes."""
    if verdict.passed:
        return "PASS", "green"
    return f"*** FAIL ({', '.join(found.value for found in verdict.classes)}) ***", LOUD


def statement_lines(statement: Statement) -> Iterator[Line]:
    """Any statement."""
    match statement.predicate:
        case Proof() as proof:
            yield from proof_lines(proof)
        case BreakGlass() as override:
            yield from override_lines(override)
        case other:
            yield f"{statement.kind} statement", "bold"
            for name, value in other.to_json().items():
                yield f"  {name.replace('_', ' '):<22}{_plain(name, value)}", None
    yield f"  {'id':<22}{statement.statement_id}", None
    yield f"  {'signed with':<22}key {statement.envelope.signature.key_id}", None
    if statement.logged_at is not None:
        yield f"  {'logged':<22}{utc(statement.logged_at)}, says the bundle", None


def proof_lines(proof: Proof) -> Iterator[Line]:
    """What the notary says, in the order in which people ask."""
    core, notary = proof.core, proof.notary
    yield verdict_line(core.verdict)
    for found in core.verdict.classes:
        yield f"  {found.value}: {_CLASSES[found.value]}", "red"
    yield from _target_lines(core)
    yield f"  {'rows':<22}{_count(core.rows.intent)} intended, {_count(core.rows.staged)} staged", None
    yield f"  {'files':<22}{len(core.files.added)} added, {len(core.files.removed)} removed", None
    for source in core.sources:
        yield f"  {'source':<22}{source.table.name} in {source.table.catalog}, snapshot {source.snapshot_id}", None
    for proved in core.projections:
        columns = ", ".join(proved.projection.columns)
        yield f"  {proved.projection.name.value:<22}{columns}", None
        for gone in proved.projection.excluded:
            yield f"  {'':<22}without {gone.column}: {gone.reason}", "yellow"
    method = core.method
    reading = f"{method.extraction.value} {method.extraction_version}"
    yield f"  {'method':<22}profile {method.profile.value}, {method.mode}, {method.construction}, read {reading}", None
    yield f"  {'checks':<22}{', '.join(core.checks) or 'none beside the digests'}", None
    yield from _notary_lines(notary)


def _target_lines(core: ProofCore) -> Iterator[Line]:
    attempt, target = core.attempt, core.target
    yield f"  {'table':<22}{target.table.name} in {target.table.catalog}", None
    yield f"  {'':<22}{target.table.uuid}", None
    yield f"  {'goes to':<22}branch {target.branch}, {_boundary(target)}, on {_snapshot(target.base_snapshot_id)}", None
    yield f"  {'workload':<22}{attempt.workload_id}, chunk {attempt.chunk_id}", None
    yield f"  {'attempt':<22}{attempt.number}, {attempt.attempt_id}", None


def _boundary(target: Target) -> str:
    where = ", ".join(f"{name}={value}" for name, value in target.partition)
    return f"{target.operation.value} of {where}" if where else target.operation.value


def _notary_lines(notary: NotaryPart) -> Iterator[Line]:
    yield f"  {'notary':<22}{notary.notary}, epoch {notary.epoch}", None
    embedded = notary.isolation is Isolation.EMBEDDED
    yield f"  {'isolation':<22}{_ISOLATION[notary.isolation]}", "yellow" if embedded else None
    yield f"  {'storage':<22}{_STORAGE[notary.storage]}", "yellow" if notary.storage is Storage.OPEN else None
    yield f"  {'issued':<22}{utc(notary.issued_at)}", None
    yield f"  {'good until':<22}{utc(notary.expires_at)} for a publication; as evidence it stays", None


def override_lines(override: BreakGlass) -> Iterator[Line]:
    """An override says who, why and what for."""
    yield "*** BREAK-GLASS: a FAIL verdict is waived ***", LOUD
    yield f"  {'operator':<22}{override.operator}", "red"
    yield f"  {'reason':<22}{override.reason}", "red"
    yield f"  {'table':<22}{override.table.name} in {override.table.catalog}", None
    yield f"  {'':<22}{override.table.uuid}", None
    yield f"  {'on':<22}{_snapshot(override.base_snapshot_id)}", None
    yield f"  {'waives':<22}FAIL proof {override.fail_proof_id}", None
    yield f"  {'files':<22}{len(override.file_hashes)}, exactly those of the proof", None
    yield f"  {'nonce':<22}{override.nonce}", None
    yield f"  {'issued':<22}{utc(override.issued_at)}", None
    yield f"  {'expires':<22}{utc(override.expires_at)}", None


def _plain(name: str, value: Value) -> str:
    if name.endswith("_at") and isinstance(value, int):
        return utc(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_plain(key, inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_plain(name, inner) for inner in value)
    return "none" if value is None else str(value)


def _count(rows: int | None) -> str:
    return "unknown" if rows is None else f"{rows:,}"


def _snapshot(number: int | None) -> str:
    return "a table that shows nothing yet" if number is None else f"base snapshot {number}"
