"""Reads signed statements from files, and shows them and the Steward's views of them as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pvdm.cli.common.files import read_file, require_json
from pvdm.cli.common.screen import ALERT, Line
from pvdm.cli.common.times import utc
from pvdm.errors import Code
from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.proof import Isolation, Proof, Storage
from pvdm.model.statements.verdict import Outcome, Verdict
from pvdm.model.states import NonceState
from pvdm.trust.bundle import BUNDLE_SIZE_MAX_BYTES, parse_bundle
from pvdm.trust.envelope import Envelope, parse_envelope
from pvdm.trust.refusal import refuse_input_errors
from pvdm.trust.statement import PAYLOAD_SIZE_MAX_BYTES, SIGNING_RULES, Predicate, read_statement
from pvdm.trust.strict_json import parse_strict

if TYPE_CHECKING:
    from pvdm.api.proofs import OverrideView, ProofView

_BUNDLE_START = b'{"format":"pvdm-bundle/'


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and its envelope; in a bundle also the time of its log entry."""

    envelope: Envelope
    predicate: Predicate
    logged_at: int | None = None

    @property
    def statement_id(self) -> str:
        """SHA-256 of the payload."""
        return self.envelope.payload_sha256

    @property
    def kind(self) -> str:
        """The kind by its name, such as `proof` or `receipt`."""
        return SIGNING_RULES[type(self.predicate)].kind


def is_bundle(data: bytes) -> bool:
    """Whether the bytes begin as a bundle does."""
    return data.startswith(_BUNDLE_START)


def read_statement_file(path: Path) -> tuple[bytes, list[Statement]]:
    """The file's bytes, and the statements of its envelope or bundle."""
    data = read_file(path, size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    require_json(path, data, "a signed statement or a bundle")
    if is_bundle(data):
        return data, [_parse_statement(each.envelope, each.logged_at) for each in parse_bundle(data).proofs]
    return data, [_parse_statement(data, None)]


def read_proofs(path: Path) -> tuple[bytes, list[tuple[str, Proof]]]:
    """The file's bytes, and its proofs with their ids. Raises for another kind of statement."""
    data, statements = read_statement_file(path)
    proofs = []
    for each in statements:
        if not isinstance(each.predicate, Proof):
            raise Code.INPUT_FILE_INVALID(f"{path} holds no proof", reason="proof_expected", got=f"a {each.kind}")
        proofs.append((each.statement_id, each.predicate))
    return data, proofs


def _parse_statement(data: bytes, logged_at: int | None) -> Statement:
    envelope = parse_envelope(data)
    return Statement(envelope, read_statement(envelope.payload, _predicate_class(envelope.payload)), logged_at)


def _predicate_class(payload: bytes) -> type[Predicate]:
    """The class that the payload names; an unknown kind is read as a proof, whose reader raises the error."""
    value: Value = parse_strict(payload, "the statement", size_max_bytes=PAYLOAD_SIZE_MAX_BYTES)
    with refuse_input_errors():
        fields = Fields(value, "the statement", ("_type", "subject", "predicateType", "predicate"))
        name = fields.text("predicateType")
    return next((kind for kind, rule in SIGNING_RULES.items() if rule.predicate_type == name), Proof)


_CLASS_TEXTS: Mapping[str, str] = {
    "added": "rows were written that were not intended, or some were written twice",
    "duplicated": "rows were written more often than intended",
    "metadata": "the table's metadata does not match the files",
    "missing": "intended rows were not written",
    "modified": "rows were written with other values than intended",
    "physical": "a file does not match its own metadata",
    "schema": "the files have another schema than the table",
}
_ISOLATION_TEXTS: Mapping[Isolation, str] = {
    Isolation.EMBEDDED: "in the producer's process: protects against accidents, not against malice",
    Isolation.PROCESS: "its own process, but not its own account",
    Isolation.ACCOUNT: "its own account",
}
_STORAGE_TEXTS: Mapping[Storage, str] = {
    Storage.OPEN: "the producer could still write the files",
    Storage.COPIED: "the notary copied the files to where only it writes",
    Storage.SEALED: "the store refused the producer's writes to the files",
}


def verdict_line(verdict: Verdict) -> Line:
    """The verdict; a FAIL with its classes."""
    if verdict.passed:
        return "PASS", "green"
    return f"*** FAIL ({', '.join(each.value for each in verdict.classes)}) ***", ALERT


def statement_lines(statement: Statement) -> Iterator[Line]:
    """A statement of any kind."""
    match statement.predicate:
        case Proof() as proof:
            yield from proof_lines(proof)
        case BreakGlass() as override:
            yield from override_lines(override)
        case other:
            yield f"{statement.kind} statement", "bold"
            for name, value in other.to_json().items():
                yield f"  {name.replace('_', ' '):<22}{_value_text(name, value)}", None
    yield f"  {'id':<22}{statement.statement_id}", None
    yield f"  {'signed with':<22}key {statement.envelope.signature.key_id}", None
    if statement.logged_at is not None:
        yield f"  {'logged':<22}{utc(statement.logged_at)}, according to the bundle", None


def proof_lines(proof: Proof) -> Iterator[Line]:
    """What the notary states in a proof, the verdict first."""
    core, notary = proof.core, proof.notary
    attempt, target, method = core.attempt, core.target, core.method
    yield verdict_line(core.verdict)
    for each in core.verdict.classes:
        yield f"  {each.value}: {_CLASS_TEXTS[each.value]}", "red"
    partition = ", ".join(f"{name}={value}" for name, value in target.partition)
    operation = f"{target.operation.value} of {partition}" if partition else target.operation.value
    yield f"  {'table':<22}{target.table.name} in {target.table.catalog}", None
    yield f"  {'':<22}{target.table.uuid}", None
    yield f"  {'goes to':<22}branch {target.branch}, {operation}, on {_base_text(target.base_snapshot_id)}", None
    yield f"  {'workload':<22}{attempt.workload_id}, chunk {attempt.chunk_id}", None
    yield f"  {'attempt':<22}{attempt.number}, {attempt.attempt_id}", None
    yield f"  {'rows':<22}{_count_text(core.rows.intent)} intended, {_count_text(core.rows.staged)} staged", None
    yield f"  {'files':<22}{len(core.files.added)} added, {len(core.files.removed)} removed", None
    for source in core.sources:
        yield f"  {'source':<22}{source.table.name} in {source.table.catalog}, snapshot {source.snapshot_id}", None
    for proved in core.projections:
        columns = ", ".join(proved.projection.columns)
        yield f"  {proved.projection.name.value:<22}{columns}", None
        for excluded in proved.projection.excluded:
            yield f"  {'':<22}without {excluded.column}: {excluded.reason}", "yellow"
    reading = f"{method.extraction.value} {method.extraction_version}"
    yield f"  {'method':<22}profile {method.profile.value}, {method.mode}, {method.construction}, read {reading}", None
    yield f"  {'checks':<22}{', '.join(core.checks) or 'the digests only'}", None
    yield f"  {'notary':<22}{notary.notary}, epoch {notary.epoch}", None
    embedded = notary.isolation is Isolation.EMBEDDED
    yield f"  {'isolation':<22}{_ISOLATION_TEXTS[notary.isolation]}", "yellow" if embedded else None
    yield f"  {'storage':<22}{_STORAGE_TEXTS[notary.storage]}", "yellow" if notary.storage is Storage.OPEN else None
    yield f"  {'issued':<22}{utc(notary.issued_at)}", None
    yield f"  {'valid until':<22}{utc(notary.expires_at)} for a publication; as evidence without end", None


def override_lines(override: BreakGlass) -> Iterator[Line]:
    """Who overrides which verdict, and why."""
    yield "*** BREAK-GLASS: a FAIL verdict is waived ***", ALERT
    yield f"  {'operator':<22}{override.operator}", "red"
    yield f"  {'reason':<22}{override.reason}", "red"
    yield f"  {'table':<22}{override.table.name} in {override.table.catalog}", None
    yield f"  {'':<22}{override.table.uuid}", None
    yield f"  {'on':<22}{_base_text(override.base_snapshot_id)}", None
    yield f"  {'waives':<22}FAIL proof {override.fail_proof_id}", None
    yield f"  {'files':<22}{len(override.file_hashes)}, exactly those of the proof", None
    yield f"  {'nonce':<22}{override.nonce}", None
    yield f"  {'issued':<22}{utc(override.issued_at)}", None
    yield f"  {'expires':<22}{utc(override.expires_at)}", None


def _value_text(name: str, value: Value) -> str:
    if name.endswith("_at") and isinstance(value, int):
        return utc(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_value_text(key, inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_value_text(name, inner) for inner in value)
    return "none" if value is None else str(value)


def _count_text(rows: int | None) -> str:
    return "unknown" if rows is None else f"{rows:,}"


def _base_text(snapshot_id: int | None) -> str:
    return "a table without a snapshot" if snapshot_id is None else f"base snapshot {snapshot_id}"


def override_view_lines(view: OverrideView) -> Iterator[Line]:
    """An override and the state of its nonce."""
    states = {
        NonceState.RESERVED: "not used yet",
        NonceState.COMMITTED: "USED: the rows that failed were published",
        NonceState.ABORTED: "aborted: nothing was published with it",
    }
    yield f"*** BREAK-GLASS: {view.operator} waived a FAIL verdict of {view.table} ***", ALERT
    yield f"  {'reason':<14}{view.reason}", "red"
    yield f"  {'state':<14}{states[view.state]}", "red" if view.state is NonceState.COMMITTED else None
    yield f"  {'FAIL proof':<14}{view.fail_proof_id}", None
    yield f"  {'override':<14}{view.override_id}, log entry {view.log_index:,}", None
    yield f"  {'issued':<14}{utc(view.issued_at)}, valid until {utc(view.expires_at)}", None


def proof_view_line(view: ProofView) -> Line:
    """One line about a proof, marked if its verdict was overridden."""
    rows = ""
    if view.rows_intent is not None and view.rows_staged is not None:
        rows = f"  {view.rows_staged:,} of {view.rows_intent:,} rows"
    issued = f"{utc(view.issued_at)}  log entry {view.log_index:,}  {view.proof_id}"
    facts = f"{view.workload_id} chunk {view.chunk_id}{rows}  {issued}"
    if view.verdict is Outcome.PASS:
        return f"PASS  {facts}", "green"
    classes = ", ".join(each.value for each in view.classes)
    if view.overridden:
        return f"*** FAIL ({classes}), OVERRIDDEN by break-glass ***  {facts}", ALERT
    return f"*** FAIL ({classes}) ***  {facts}", "bold red"
