"""The tasks of the Steward's jobs, with outcomes that a test sets, over a real ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pvdm.ledger import Unit
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import Attempt, AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.model.contract import Atomicity
from pvdm.model.states import AttemptState
from pvdm.steward.pipeline.jobs import Jobs, Tasks
from pvdm.steward.work.queries import JobKind
from tests.support.steward.notary import Stand
from tools.proof_kit import fixed


@dataclass
class JobTasks:
    """Tasks whose outcomes a test sets. `calls_made` has the calls in order, `changed_attempts` ids of attempts."""

    stand: Stand
    calls_made: list[tuple[str, object]] = field(default_factory=list)
    verify: Callable[[str], None] = lambda _: None
    publish: Callable[[Sequence[str]], None] = lambda _: None
    settle: Callable[[], None] = lambda: None
    plan: Callable[[str], None] = lambda _: None
    changed_attempts: list[str] = field(default_factory=list)

    def jobs(self, *, threads: int, **options: float) -> Jobs:
        """The Steward's jobs with these tasks."""
        tasks = Tasks(self._verify, self._publish, self._dispose, self._settle, self._plan, lambda: None)
        notary = self.stand.notary
        return Jobs(
            notary.ledger, notary.clock, tasks, changed=self.changed_attempts.append, threads=threads, **options
        )

    def _verify(self, attempt_id: str) -> None:
        self.calls_made.append(("verify", attempt_id))
        self.verify(attempt_id)

    def _publish(self, _: str, attempt_ids: Sequence[str]) -> None:
        self.calls_made.append(("publish", tuple(sorted(attempt_ids))))
        self.publish(attempt_ids)

    def _dispose(self, attempt_id: str) -> None:
        self.calls_made.append(("dispose", attempt_id))

    def _plan(self, workload_id: str) -> None:
        self.calls_made.append(("plan", workload_id))
        self.plan(workload_id)

    def _settle(self) -> None:
        self.calls_made.append(("settle", None))
        self.settle()

    def change(self, work: Callable[[Unit], object]) -> None:
        self.stand.notary.ledger.transact(work, at_micros=self.stand.notary.clock.now_micros())

    def passed(self, attempt_id: str) -> None:
        self.change(lambda unit: attempts.begin_committing(unit, attempt_id, reason="PASS"))

    def failed(self, attempt_id: str) -> None:
        self.end(attempt_id, AttemptState.VERIFICATION_FAILED)

    def end(self, attempt_id: str, state: AttemptState) -> None:
        self.change(lambda unit: attempts.end(unit, attempt_id, state, reason="ended"))

    def published(self, attempt_ids: Sequence[str]) -> None:
        def work(unit: Unit) -> None:
            for attempt_id in attempt_ids:
                attempts.publish(unit, attempt_id, nonce=fixed(f"second {attempt_id}", 16), snapshot_id="9")

        self.change(work)

    def attempts(self, *names: str, atomicity: Atomicity = Atomicity.CHUNK) -> list[str]:
        """Open an attempt in VERIFYING at each of these chunks of one workload; returns their ids."""
        ids = self.staging(*names, atomicity=atomicity)
        for attempt_id in ids:
            self.hand_in(attempt_id)
        return ids

    def staging(self, *names: str, atomicity: Atomicity = Atomicity.CHUNK) -> list[str]:
        """Open an attempt in STAGING at each of these chunks of one workload; returns their ids."""
        ids = [fixed(f"attempt {name}", 16) for name in names]

        def work(unit: Unit) -> None:
            opening = Opening("work", "ab" * 32, "t", "s", b"{}", atomicity, "sales")
            planned = [Chunk(name, b"{}") for name in names]
            workloads.open_once(unit, opening, PinnedWorkload("7", "cd" * 32, 1, planned))
            for name, attempt_id in zip(names, ids, strict=True):
                nonce = fixed(f"first {attempt_id}", 16)
                attempt = AttemptOpening(attempt_id, "work", name, f"b-{name}", f"p-{name}", nonce, "opened")
                attempts.open_next(unit, attempt)

        self.change(work)
        return ids

    def hand_in(self, attempt_id: str) -> None:
        """Move the attempt from STAGING to VERIFYING."""
        nonce = fixed(f"second {attempt_id}", 16)
        self.change(
            lambda unit: attempts.begin_verifying(
                unit, attempt_id, nonce=nonce, staged_snapshot_id="8", reason="staged"
            )
        )

    def attempt(self, attempt_id: str) -> Attempt:
        with self.stand.notary.ledger.read() as unit:
            return attempts.get(unit, attempt_id)

    def calls(self, kind: str) -> list[object]:
        """The arguments of the calls of one task."""
        return [subject for what, subject in self.calls_made if what == kind]


def queue_verification(jobs: Jobs, attempt_id: str) -> None:
    """Queue the verification of the attempt, whatever its state."""
    jobs._queue(JobKind.VERIFY, attempt_id)
