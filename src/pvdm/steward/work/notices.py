"""Puts alerts and OpenLineage steps into the outbox, without values of rows, names of chunks or texts of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from pvdm.errors import PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger import Unit
from pvdm.ledger.record import outbox
from pvdm.ledger.record.outbox import Channel, event_id_of
from pvdm.ledger.work import attempts, plannings, statistics, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.leases import Lease
from pvdm.model import canonical_json
from pvdm.model.contract import DataProductContract
from pvdm.model.printable import iso_time
from pvdm.model.statements.core import ProofCore
from pvdm.model.states import CRASH_LOOP_LEASES, ROLLED_BACK_MAX, AttemptState
from pvdm.steward.logs import log_warning
from pvdm.steward.record.audit import AuditNotice
from pvdm.steward.work.lineage import RunStep, add_step
from pvdm.steward.work.opened import contract_of
from pvdm.steward.work.sources import table_name

_DAY_MICROS: Final = 86_400 * 1_000_000

AlertFacts = Mapping[str, canonical_json.Value]


class AlertKind(StrEnum):
    """What an alert is about. docs/monitoring.md lists them."""

    VERDICT_FAIL = "verdict_fail"
    GATE_REFUSED = "gate_refused"
    ATTEMPTS_USED_UP = "attempts_used_up"
    CRASH_LOOP = "crash_loop"
    DEADLINE_PASSED = "deadline_passed"
    JOB_STUCK = "job_stuck"
    BREAK_GLASS_USED = "break_glass_used"
    EXPIRING = "expiring"
    AUDIT_FINDING = "audit_finding"


@dataclass(frozen=True, slots=True)
class Notices:
    """Adds alerts and steps for OpenLineage in the transaction of the caller.

    Adds no alert without `[alerts]` in steward.toml (`alerts`), and no step without `[lineage]` (`lineage`).
    """

    steward: str  # the Steward's name
    alerts: bool = False
    lineage: bool = False

    def add_alert(self, unit: Unit, kind: AlertKind, key: str, facts: AlertFacts) -> bool:
        """Add an alert, unless one of this kind was added under this key. Returns False if there is no place for it."""
        if not self.alerts:
            return True
        event_id, domain = event_id_of(Channel.ALERTS, kind, key), facts.get("domain") or ""
        body = {"event_id": event_id, "kind": kind.value, "at": iso_time(unit.at_micros), "steward": self.steward}
        added = outbox.add(unit, Channel.ALERTS, kind, event_id, {**body, **facts}, domain=str(domain))
        if not added:
            log_warning("alert_dropped", kind=kind.value, domain=str(domain))
        return added

    def add_verdict_fail(self, unit: Unit, attempt: Attempt, core: ProofCore, proof_id: str) -> None:
        """Add the alert about a FAIL, and one if the chunk has no attempt left. Also adds the OpenLineage step."""
        self._add_failed_step(unit, attempt)
        if not self.alerts:
            return
        contract, facts = _describe(unit, attempt)
        more: AlertFacts = {"proof_id": proof_id, "classes": [each.value for each in core.verdict.classes]}
        self.add_alert(unit, AlertKind.VERDICT_FAIL, proof_id, {**facts, **more})
        self._add_if_used_up(unit, attempt, contract, facts)

    def add_gate_refusal(self, unit: Unit, attempt: Attempt, error: PvdmError) -> None:
        """Add the alert about a refusal by the gate, and one if the chunk has no attempt left.

        Also adds the OpenLineage step.
        """
        self._add_failed_step(unit, attempt)
        if not self.alerts:
            return
        contract, facts = _describe(unit, attempt)
        more: AlertFacts = {"code": error.code, "reason": error.reason}
        self.add_alert(unit, AlertKind.GATE_REFUSED, attempt.attempt_id, {**facts, **more})
        self._add_if_used_up(unit, attempt, contract, facts)

    def add_roll_back(self, unit: Unit, attempt: Attempt) -> None:
        """Add an alert if so many attempts of the chunk were rolled back that no further one is possible."""
        if self.alerts:
            self._add_if_used_up(unit, attempt, *_describe(unit, attempt))

    def add_crash_loop(self, unit: Unit, lease: Lease) -> None:
        """Add an alert if the last runs of the workload handed nothing in."""
        if not self.alerts or lease.lease_number < CRASH_LOOP_LEASES:
            return
        if statistics.list_without_progress(unit, CRASH_LOOP_LEASES, workload_id=lease.workload_id):
            handed_in = statistics.find_last_hand_in(unit, lease.workload_id)
            runs = lease.lease_number - handed_in
            more: AlertFacts = {"runs": runs, "runner": lease.runner, "producer": lease.holder}
            facts = describe_workload_facts(unit, lease.workload_id)
            self.add_alert(unit, AlertKind.CRASH_LOOP, f"{lease.workload_id} {handed_in}", {**facts, **more})

    def add_audit_finding(self, unit: Unit, notice: AuditNotice) -> None:
        """Add the alert about violations that an auditor reported; the same report counts once a day."""
        day = unit.at_micros // _DAY_MICROS
        facts: AlertFacts = {**asdict(notice), "codes": list(notice.codes)}
        key = f"{notice.table_uuid} {day} {notice.violations} {','.join(notice.codes)}"
        self.add_alert(unit, AlertKind.AUDIT_FINDING, key, facts)

    def _add_failed_step(self, unit: Unit, attempt: Attempt) -> None:
        step = (RunStep.FAIL, attempt.workload_id, unit.at_micros, attempt.attempt_id)
        if self.lineage and not add_step(unit, *step):
            log_warning("lineage_dropped", step=RunStep.FAIL.value, workload_id=attempt.workload_id)

    def _add_if_used_up(self, unit: Unit, attempt: Attempt, contract: DataProductContract, facts: AlertFacts) -> None:
        earlier = attempts.list_by_chunk(unit, attempt.workload_id, attempt.chunk_id)
        failed = _count(earlier, AttemptState.VERIFICATION_FAILED)
        rolled_back = _count(earlier, AttemptState.ROLLED_BACK)
        if failed >= contract.governance.attempts_max or rolled_back >= ROLLED_BACK_MAX:
            more = {"failed": failed, "rolled_back": rolled_back}
            self.add_alert(unit, AlertKind.ATTEMPTS_USED_UP, attempt.attempt_id, {**facts, **more})


NO_NOTICES: Final = Notices("")
"""Adds nothing."""


def describe_workload_facts(unit: Unit, workload_id: str) -> dict[str, canonical_json.Value]:
    """Domain, product and table of a workload, or of a workload that is still planned."""
    opening = (plannings.find(unit, workload_id) or workloads.get(unit, workload_id)).opening
    return {
        "domain": opening.domain,
        "product": contract_of(unit, opening.contract_hash).product.product,
        "table": table_name(unit, opening.table_uuid),
        "table_uuid": opening.table_uuid,
        "workload_id": workload_id,
    }


def describe_known_facts(unit: Unit, workload_id: str) -> dict[str, canonical_json.Value]:
    """`describe_workload_facts`, or only the id and the domain if the ledger lacks the others (after a restore)."""
    try:
        return describe_workload_facts(unit, workload_id)
    except (StateUnknownError, UnavailableError):
        raise
    except PvdmError as error:
        log_warning("alert_not_described", workload_id=workload_id, code=error.reason)
    found = plannings.find(unit, workload_id) or workloads.find(unit, workload_id)
    domain = {} if found is None else {"domain": found.opening.domain}
    return {**domain, "workload_id": workload_id}


def _describe(unit: Unit, attempt: Attempt) -> tuple[DataProductContract, dict[str, canonical_json.Value]]:
    contract = contract_of(unit, workloads.get(unit, attempt.workload_id).opening.contract_hash)
    facts = describe_workload_facts(unit, attempt.workload_id)
    return contract, {**facts, "attempt_id": attempt.attempt_id, "attempt": attempt.number}


def _count(found: Sequence[Attempt], state: AttemptState) -> int:
    return sum(each.state is state for each in found)
