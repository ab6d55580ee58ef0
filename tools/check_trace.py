"""Checks with TLC whether a workload's steps in a ledger's step log are a run of the TLA+ model."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pvdm.ledger import Ledger, open_ledger
from pvdm.ledger.record import events
from pvdm.ledger.record.events import Event
from pvdm.model.states import NonceState
from tools.check_model import INVARIANTS, ModelError, fetch_tlc, run_tlc

ACTIONS: Final = {
    ("STAGING", "VERIFYING"): "HandIn",
    ("STAGING", "ROLLED_BACK"): "Abort",
    ("VERIFYING", "COMMITTING"): "EndVerification",
    ("VERIFYING", "VERIFICATION_FAILED"): "EndVerification",
    ("COMMITTING", "COMMITTED"): "Settle",
}
"""The model's action for a change of an attempt's state. The other changes of spec/states.md are not in the model."""
_NONCES: Final = {NonceState.RESERVED: "RESERVED", NonceState.COMMITTED: "USED", NonceState.ABORTED: "VOID"}
_MADE: Final = re.compile(r'<<"steps made", (\d+)>>')


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: the model's action, and the facts that `Trace.tla` compares."""

    action: str
    facts: dict[str, str | int]

    def to_tla(self) -> str:
        """The step as a record of TLA+."""
        values = {"action": self.action, **self.facts}
        texts = {name: str(value) if isinstance(value, int) else f'"{value}"' for name, value in values.items()}
        return "[{}]".format(", ".join(f"{name} |-> {text}" for name, text in texts.items()))


def read_steps(ledger: Ledger, workload_id: str) -> list[Step]:
    """The steps of a workload. Raises `ModelError` if the model has no action for one of them."""
    log: list[Event] = []
    with ledger.read() as unit:
        while page := events.page(unit, after=log[-1].event_id if log else 0):
            log += page
    return list(_Translation(workload_id).steps(log))


@dataclass(slots=True)
class _Translation:
    """Translates the events of one workload into steps. Chunks and attempts are numbered by their first use."""

    workload_id: str
    attempts: dict[str, int] = field(default_factory=dict)
    chunks: dict[str, str] = field(default_factory=dict)
    nonces: dict[str, str] = field(default_factory=dict)  # by attempt: the state of its newest nonce

    def steps(self, log: Sequence[Event]) -> Iterator[Step]:
        """The steps in order. A transaction's events have the same time; a step has the nonce at its end."""
        for _, group in itertools.groupby(log, key=lambda each: each.at_micros):
            transaction = list(group)
            for each in transaction:
                if each.subject == "nonces" and each.new is not None:
                    self.nonces[str(each.new["attempt_id"])] = _NONCES[NonceState(each.new["state"])]
            for each in transaction:
                yield from self._steps_of(each)

    def _steps_of(self, event: Event) -> Iterator[Step]:
        old, new = event.old or {}, event.new or {}
        if event.subject == "leases" and event.row_key == self.workload_id:
            number = int(new["lease_number"])
            yield Step("Acquire", {"runner": f"runner {number}", "lease": number})
        elif new.get("workload_id") != self.workload_id:
            return
        elif (event.subject, event.kind) == ("attempts", "insert"):
            if new["lease_number"] is None:
                raise ModelError("the model has no attempt that the Steward opens, as for `pvdm publish`")
            self.attempts[event.row_key] = len(self.attempts) + 1
            chunk = self.chunks.setdefault(str(new["chunk_id"]), f"chunk {len(self.chunks) + 1}")
            yield self._step("Open", event.row_key, new, chunk=chunk, lease=int(new["lease_number"]))
        elif (event.subject, event.kind) == ("attempts", "update") and old["state"] != new["state"]:
            action = ACTIONS.get((old["state"], new["state"]))
            if action is None:
                raise ModelError(f"the model has no step from {old['state']} to {new['state']}")
            yield self._step(action, event.row_key, new)
        elif (event.subject, event.kind) == ("proofs", "insert"):
            yield Step("Prove", {"attempt": self.attempts[new["attempt_id"]], "proof": str(new["verdict"])})
        elif (event.subject, event.kind) == ("published", "insert"):
            yield Step("Swap", {"attempt": self.attempts[new["attempt_id"]]})

    def _step(self, action: str, attempt_id: str, row: Mapping[str, Any], **facts: str | int) -> Step:
        after = {"state": row["state"], "nonce": self.nonces[attempt_id]}
        return Step(action, {"attempt": self.attempts[attempt_id], **after, **facts})


def find_refused(tlc: Path, steps: Sequence[Step]) -> Step | None:
    """The first step that no run of the model can make; None if the model can make all steps."""
    done = run_tlc(tlc, "RealRun", {"RealRun.tla": _module(steps), "RealRun.cfg": _config(steps)}, workers="1")
    if "Invariant StepsAreLeft is violated" in done.stdout:
        return None
    if "Model checking completed. No error has been found." not in done.stdout:
        raise ModelError(f"TLC has not ended as expected: {done.stdout[-800:]}{done.stderr[-500:]}")
    return steps[max((int(each) for each in _MADE.findall(done.stdout)), default=0)]


def _module(steps: Sequence[Step]) -> str:
    records = ",\n    ".join(each.to_tla() for each in steps)
    return f"---- MODULE RealRun ----\nEXTENDS Trace\nRealSteps == <<\n    {records}\n>>\n====\n"


def _config(steps: Sequence[Step]) -> str:
    def names(fact: str) -> str:
        return ", ".join(
            f'"{name}"' for name in sorted({str(each.facts[fact]) for each in steps if fact in each.facts})
        )

    leases = sum(each.action == "Acquire" for each in steps)
    return (
        "SPECIFICATION TraceSpec\nCHECK_DEADLOCK FALSE\n"
        f"INVARIANTS {' '.join(INVARIANTS)} StepsAreLeft\nCONSTRAINT Progress\n"
        f"CONSTANTS\n  Chunks = {{{names('chunk')}}}\n  Runners = {{{names('runner')}}}\n"
        f'  Stewards = {{"steward"}}\n  AttemptsMax = {sum(each.action == "Open" for each in steps)}\n'
        f"  LeasesMax = {leases}\n  CrashesMax = {leases}\n  MovesMax = 0\n"
        '  Removed = "none"\n  Observed <- RealSteps\n'
    )


def main() -> int:
    """Check a workload of a ledger; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", help="the URL of the ledger, such as sqlite:///ledger.sqlite")
    parser.add_argument("workload_id")
    given = parser.parse_args()
    steps = read_steps(open_ledger(given.ledger), given.workload_id)
    refused = find_refused(fetch_tlc(), steps)
    print(f"{len(steps)} steps, refused by the model: {'none' if refused is None else refused.to_tla()}")
    return int(refused is not None)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ModelError as error:
        sys.exit(f"model: {error}")
