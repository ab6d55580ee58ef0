"""Reads facts of opened workloads and attempts (contract, parameters, branch, refusal), and describes them for logs."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Final

from pvdm.api.errors import RefusalView
from pvdm.errors import Code, PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.ids import REASON_MAX_CHARACTERS
from pvdm.ledger.record import proofs, protections
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant, require_domain
from pvdm.ledger.work import attempts, plannings, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.workloads import PARAMETERS_MAX_BYTES, Workload
from pvdm.model import canonical_json
from pvdm.model.chunk import BRANCH_PREFIX, branch_of, is_steward_branch
from pvdm.model.contract import BoundContract, DataProductContract, parse_contract
from pvdm.model.states import WorkloadState, needs_reason
from pvdm.steward.work.sources import table_name
from pvdm.steward.work.spent import find_spent_table, spent_error

Facts = dict[str, str | int | None]
_REFUSAL_KEYS: Final = ("code", "reason", "message", "expected", "got", "hint")
_REFUSAL_PART_CHARACTERS: Final = 600
_OWN_CREDENTIALS: Final = "a job that stages a branch of its own in an object store needs credentials of its own there"


def bound_contract(unit: Unit, workload: Workload | Planning) -> BoundContract:
    """The contract that a workload was opened under, with the workload's parameters."""
    return contract_of(unit, workload.opening.contract_hash).bind(parameters_of(workload))


def contract_of(unit: Unit, sha256: str) -> DataProductContract:
    """The contract of this hash. Raises if the ledger has none."""
    return _parse_cached(protections.get_contract(unit, sha256))


@functools.lru_cache(maxsize=64)
def _parse_cached(data: bytes) -> DataProductContract:
    """Cached, since every step of every chunk needs it and equal bytes are equal contracts."""
    return parse_contract(data)


def parameters_of(workload: Workload | Planning) -> dict[str, str]:
    """The workload's parameters by name."""
    found = canonical_json.parse(workload.opening.parameters, size_max_bytes=PARAMETERS_MAX_BYTES)
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def is_adopted(attempt: Attempt) -> bool:
    """Whether the attempt took over a branch that was staged before (`pvdm publish`). Its files are always copied.

    The staged files may lie anywhere below the table's location, not only in the attempt's prefix.
    """
    return attempt.branch != branch_of(attempt.attempt_id)


def staged_head(metadata: TableMetadata, branch: str) -> str | None:
    """The id of the branch's head, as text; None if there is no branch or `main` contains the head."""
    ref, current = metadata.refs.get(branch), metadata.current_snapshot_id
    if ref is None:
        return None
    in_main = current is not None and any(each.snapshot_id == ref.snapshot_id for each in metadata.ancestry(current))
    return None if in_main else str(ref.snapshot_id)


def get_workload(unit: Unit, grant: Grant, workload_id: str) -> Workload:
    """The workload, if it is of the caller's domain.

    Raises `workload_spent` if a restore has found publications under this id that the restored backup lacks.
    """
    found = workloads.find(unit, workload_id)
    if found is None:
        _require_unused_id(unit, grant, workload_id)
        _require_no_planning(unit, grant, workload_id)
        found = workloads.get(unit, workload_id)  # raises `workload_unknown`
    require_domain(grant, found.opening.domain)
    require_not_published_after_backup(unit, found)
    return found


def require_not_published_after_backup(unit: Unit, workload: Workload) -> None:
    """Raise `workload_spent` for a workload that a restore abandoned and that was published after the backup."""
    workload_id = workload.opening.workload_id
    table = find_spent_table(unit, workload_id) if workload.state is WorkloadState.ABANDONED else None
    if table is not None:
        raise spent_error(unit, workload_id, table)


def _require_unused_id(unit: Unit, grant: Grant, workload_id: str) -> None:
    """Raise `workload_spent` if a restore has found receipts or proofs of this workload id, which the backup lacks."""
    table = find_spent_table(unit, workload_id)
    if table is not None:
        row = tables.find_by_uuid(unit, table.uuid)
        require_domain(grant, EVERY_DOMAIN if row is None else row.domain)
        raise spent_error(unit, workload_id, table)


def _require_no_planning(unit: Unit, grant: Grant, workload_id: str) -> None:
    """Raise `workload_unknown` with the progress of the workload's plan, if a job is making the plan."""
    planning = plannings.find(unit, workload_id)
    if planning is None or planning.error is not None:
        return
    require_domain(grant, planning.opening.domain)
    got = f"a plan in the making, for which {planning.files_read} of {planning.files} source files are read"
    hint = "the workload is opened when its plan is made; `pvdm run` waits for it, and `pvdm status` lists the job"
    raise Code.RECORD_UNKNOWN(reason="workload_unknown", expected="an open workload", got=got, hint=hint)


def describe_work(ledger: Ledger, subject: str, *, is_plan: bool) -> Facts:
    """Facts about a job's `subject`, the id of an attempt or a workload. `state` is the state of what the id names.

    The chunk's name is left out, since it may contain a value of the data. If the ledger cannot be read, the only fact
    is the workload's id, for a plan.
    """
    facts: Facts = dict.fromkeys(("table", "table_uuid", "workload_id", "attempt_id", "state", "verdict"))
    facts |= {"workload_id": subject} if is_plan else {}
    with contextlib.suppress(PvdmError), ledger.read() as unit:
        attempt, workload = _find_work(unit, subject)
        if workload is None:
            return facts if is_plan else facts | {"attempt_id": subject or None}
        opening, state = workload.opening, workload.state.value if isinstance(workload, Workload) else None
        found = facts | {"table": table_name(unit, opening.table_uuid), "table_uuid": opening.table_uuid}
        found |= {"workload_id": opening.workload_id, "state": state}
        if attempt is not None:
            attempt_proofs = proofs.list_by_attempt(unit, attempt.attempt_id)
            verdict = attempt_proofs[-1].verdict.value if attempt_proofs else None
            found |= {"attempt_id": attempt.attempt_id, "state": attempt.state.value, "verdict": verdict}
        return found
    return facts


def list_tables_and_workloads(ledger: Ledger, subjects: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Table name and workload id for each job's subject; both None if the subject is unknown or empty."""
    with ledger.read() as unit:
        found = [_find_work(unit, subject)[1] for subject in subjects]
        return [
            (None, None) if each is None else (table_name(unit, each.opening.table_uuid), each.opening.workload_id)
            for each in found
        ]


def _find_work(unit: Unit, subject: str) -> tuple[Attempt | None, Workload | Planning | None]:
    """The attempt (None if the subject is a workload's id), and the workload, or its plan in the making."""
    attempt = attempts.find(unit, subject)
    workload_id = subject if attempt is None else attempt.workload_id
    return attempt, workloads.find(unit, workload_id) or plannings.find(unit, workload_id)


def encode_refusal(error: PvdmError) -> str:
    """Encode the error as the reason of an attempt's end; `decode_refusal` decodes it."""
    parts = {key: getattr(error, key) for key in _REFUSAL_KEYS}
    shortened = {key: None if part is None else str(part)[:_REFUSAL_PART_CHARACTERS] for key, part in parts.items()}
    text = json.dumps(shortened, ensure_ascii=False).replace("\x00", "")
    if len(text) <= REASON_MAX_CHARACTERS:
        return text
    # Escapes have made the text too long: only the code, the reason and the first words are kept.
    kept = {"code": error.code, "reason": error.reason, "message": str(error.message)[:80]}
    return json.dumps(dict.fromkeys(_REFUSAL_KEYS) | kept)


def decode_refusal(reason: str) -> RefusalView | None:
    """Decode a reason that `encode_refusal` wrote; None for a plain sentence."""
    if not reason.startswith('{"code"'):
        return None
    try:
        found = json.loads(reason)
        return RefusalView(**{key: found[key] for key in _REFUSAL_KEYS})
    except (ValueError, KeyError):
        return None


def sentence_of(reason: str) -> str:
    """The reason as a sentence: for an encoded refusal, its reason code and message."""
    found = decode_refusal(reason)
    return reason if found is None else f"{found.reason}: {found.message}"


def require_adoptable(metadata: TableMetadata, branch: str) -> None:
    """Refuse a branch that `pvdm publish` cannot take over: unknown, a tag, `main`, or made by the Steward."""
    ref = metadata.refs.get(branch)
    if ref is None or ref.type is not RefType.BRANCH:
        hint = _OWN_CREDENTIALS if metadata.location.startswith("s3") else None
        raise Code.BRANCH_UNKNOWN(got=ascii(branch[:80]), hint=hint)
    if branch == MAIN or is_steward_branch(branch):
        expected, got = f"a branch of your own, neither {MAIN} nor {BRANCH_PREFIX}…", ascii(branch[:80])
        raise Code.BRANCH_REFUSED("this branch cannot be adopted", reason="branch_reserved", expected=expected, got=got)


def retry_needs_reason(ended: Attempt) -> bool:
    """Whether another attempt after this one needs a reason."""
    return needs_reason(ended.state, refused=decode_refusal(ended.reason) is not None)
