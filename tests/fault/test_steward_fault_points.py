"""A Steward that dies at any point opens again with ledger, log and outside checkpoint in agreement.

An act is a call that records a statement. Repeated after the crash, it records nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pvdm.digest.plan import Mode
from pvdm.ledger.record import statements
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Storage
from pvdm.steward.notary import Notary, create_notary, log_keys
from pvdm.steward.record.attestations import ChallengeRequest
from pvdm.steward.record.log import LedgerLogReader
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import sign_statement
from tests.support import fault
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import (
    LOG_ORIGIN,
    Stand,
    Time,
    commitments,
    config_at,
    context_of,
    core_of,
    failed,
    opened,
    override_of,
    root_naming,
    signed_override,
    signed_root,
    stand_at,
)
from tools.proof_kit import ATTESTATION, SECOND, SIGNERS, SOURCE

Act = Callable[[Notary], Any]

POINTS = ("ledger.before_commit", "ledger.after_commit", "steward.before_outside", "steward.after_outside")
CREATED, ACTIVE, RETIRED, REVOKED = EpochStage
ENTRIES_AT_START = 3
"""The log's entries when a test starts: two steps of epoch 1, and the trust root."""


class CrashError(Exception):
    """What a test raises at a point."""


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


def proof(stand: Stand) -> Act:
    core = stand.verifying()
    return lambda notary: notary.proofs.record(
        core,
        commitments(passed=True),
        storage=Storage.OPEN,
        lifetime_micros=3_600 * SECOND,
        context=context_of(core, 1),
    )


def fail_proof(stand: Stand) -> Act:
    core = failed(stand.verifying())
    return lambda notary: notary.proofs.record(
        core, commitments(passed=False), storage=Storage.OPEN, lifetime_micros=3_600 * SECOND, context=None
    )


def override(stand: Stand) -> Act:
    recorded = stand.proved(passed=False)
    envelope = signed_override(override_of(recorded, core_of("one"), stand.time.wall))
    grant = stand.grant()
    return lambda notary: notary.overrides.submit(envelope, grant)


def attestation(stand: Stand) -> Act:
    grant = stand.grant(Role.ATTESTOR, "payments", "source-payments")
    fingerprint = bytes.fromhex(ATTESTATION.schema_fingerprint)
    request = ChallengeRequest(
        ATTESTATION.nonce,
        SOURCE.catalog,
        SOURCE.uuid,
        ATTESTATION.snapshot_id,
        Mode.STORED,
        ((ProjectionName.CONTENT, fingerprint),),
    )
    epoch = stand.notary.attestations.challenge(grant, request).epoch
    said = ATTESTATION.from_json({**ATTESTATION.to_json(), "epoch": str(epoch), "issued_at": stand.time.wall})
    envelope = sign_statement(said, SIGNERS["source-payments"]).to_bytes()
    return lambda notary: notary.attestations.submit(envelope, grant)


def trust_root(stand: Stand) -> Act:
    current, active = stand.notary.trust.current(), stand.notary.epochs.book().active
    assert active is not None
    envelope = signed_root(root_naming(active, version=2, previous=current.sha256))
    return lambda notary: notary.trust.accept(envelope)


ACTS = (proof, fail_proof, override, attestation, trust_root)


def die(point: str, begin: Callable[[], Notary], act: Act, *, passes: int = 0) -> int:
    """The exit code of a new process that opens a Steward by `begin`, arms the point, and calls `act`."""
    child = os.fork()
    if child == 0:
        try:
            notary = begin()
            fault.arm(point, fault.Exit(), passes=passes)
            act(notary)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass(frozen=True)
class State:
    """What the ledger holds: the number of the log's entries, and of the statements of each kind."""

    size: int
    statements: tuple[int, ...]


def require_consistent(notary: Notary, folder: Path, outside: Path) -> State:
    """Require that log, statements and outside checkpoint agree; returns the state."""
    with notary.ledger.read() as unit:
        stored = [statements.list_by_kind(unit, kind) for kind in StatementKind]
    indexes = sorted(statement.log_index for found in stored for statement in found)
    assert indexes == list(range(notary.log.size())), "every entry has its statement, and every statement its entry"
    export(LedgerLogReader(notary.ledger), folder)
    vkeys = [key.to_vkey() for key in log_keys(notary.epochs.book(), LOG_ORIGIN)]
    assert fsck(folder, vkeys, since=outside.read_bytes()).size == len(indexes)
    assert outside.read_bytes() == notary.log.checkpoint(), "the outside checkpoint is the log's newest"
    return State(len(indexes), tuple(len(found) for found in stored))


def state(stand: Stand) -> State:
    return require_consistent(stand.notary, stand.folder / "export", stand.config.outside_path)


@pytest.mark.parametrize("make", ACTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("point", POINTS)
def test_a_steward_that_dies_is_opened_again_with_all_or_nothing(
    stand: Stand, make: Callable[[Stand], Act], point: str
) -> None:
    act = make(stand)
    before = state(stand)
    stand.notary.close()
    assert die(point, lambda: opened(stand.config, stand.time), act) == fault.EXIT_CODE
    stand.notary = opened(stand.config, stand.time)
    after = state(stand)
    is_kept = point != "ledger.before_commit"
    assert after.size == before.size + is_kept
    answer = act(stand.notary)
    done = state(stand)
    assert (done.size, sum(done.statements)) == (before.size + 1, before.size + 1)
    if is_kept:
        assert done == after, "the repeated call found what the first one left"
    assert act(stand.notary) == answer
    assert state(stand) == done


@pytest.mark.parametrize("make", ACTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("point", POINTS)
def test_a_call_that_is_cut_off_in_a_running_steward_can_be_made_again(
    stand: Stand, make: Callable[[Stand], Act], point: str
) -> None:
    act = make(stand)
    before = state(stand)
    with fault.armed(point, fault.Raise(CrashError())), pytest.raises(CrashError):
        act(stand.notary)
    answer = act(stand.notary)
    assert act(stand.notary) == answer
    assert state(stand).size == before.size + 1


@pytest.mark.parametrize("make", ACTS, ids=lambda make: make.__name__)
def test_at_before_outside_the_outside_checkpoint_does_not_cover_the_new_entry(
    stand: Stand, make: Callable[[Stand], Act]
) -> None:
    """Shows that in the tests above a Steward really has an outside checkpoint to bring up to date."""
    act = make(stand)
    covered = stand.config.outside_path.read_bytes()
    with fault.armed("steward.before_outside", fault.Raise(CrashError())), pytest.raises(CrashError):
        act(stand.notary)
    assert stand.config.outside_path.read_bytes() == covered != stand.notary.log.checkpoint()


def epoch_steps(stand: Stand) -> list[tuple[int, EpochStage | None, EpochStage]]:
    """The logged steps of epochs: the epoch's number, and its stages before and after."""
    with stand.notary.ledger.read() as unit:
        stored = statements.list_by_kind(unit, StatementKind.EPOCH)
    logged = [read_statement(parse_envelope(statement.envelope).payload, EpochStatement) for statement in stored]
    return [(one.epoch, one.before, one.after) for one in logged]


def create(stand: Stand) -> Act:
    return lambda notary: notary.epochs.create("dies on the way")


def activate(stand: Stand) -> Act:
    stand.notary.epochs.create("rotation")
    current, book = stand.notary.trust.current(), stand.notary.epochs.book()
    stand.notary.trust.accept(signed_root(root_naming(*book.epochs, version=2, previous=current.sha256)))
    return lambda notary: notary.epochs.activate(2, "dies on the way")


def retire(stand: Stand) -> Act:
    return lambda notary: notary.epochs.retire(1, "dies on the way")


def revoke(stand: Stand) -> Act:
    activate(stand)(stand.notary)
    return lambda notary: notary.epochs.revoke(2, "dies on the way")


FIRST = [(1, None, CREATED), (1, CREATED, ACTIVE)]
ROTATED = [*FIRST, (2, None, CREATED), (1, ACTIVE, RETIRED), (2, CREATED, ACTIVE)]
EPOCH_ACTS: dict[Callable[[Stand], Act], list[tuple[int, EpochStage | None, EpochStage]]] = {
    create: [*FIRST, (2, None, CREATED)],
    activate: ROTATED,
    retire: [*FIRST, (1, ACTIVE, RETIRED)],
    revoke: [*ROTATED, (2, ACTIVE, RETIRED), (2, RETIRED, REVOKED)],
}


@pytest.mark.parametrize("make", EPOCH_ACTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("point", ["steward.after_epoch_step", *POINTS])
def test_a_step_of_an_epoch_is_in_the_log_once_after_a_death_at_any_point(
    stand: Stand, make: Callable[[Stand], Act], point: str
) -> None:
    act = make(stand)
    stand.notary.close()
    assert die(point, lambda: opened(stand.config, stand.time), act) == fault.EXIT_CODE
    stand.notary = opened(stand.config, stand.time)
    assert epoch_steps(stand) == EPOCH_ACTS[make]
    first = state(stand)
    stand.reopen()
    assert state(stand) == first


def test_an_epoch_step_cut_off_before_the_outside_checkpoint_is_covered_by_log_missing(stand: Stand) -> None:
    with fault.armed("steward.before_outside", fault.Raise(CrashError())), pytest.raises(CrashError):
        stand.notary.epochs.create("cut off")
    stand.notary.epochs.log_missing("after the crash")
    assert epoch_steps(stand) == [*FIRST, (2, None, CREATED)]
    assert state(stand).size == ENTRIES_AT_START + 1


@pytest.mark.parametrize("point", ["keys.after_make", "keys.disk.after_temp"])
def test_a_step_that_did_not_reach_the_book_is_not_in_the_log(stand: Stand, point: str) -> None:
    stand.notary.close()
    assert die(point, lambda: opened(stand.config, stand.time), create(stand)) == fault.EXIT_CODE
    stand.notary = opened(stand.config, stand.time)
    assert epoch_steps(stand) == FIRST


# Every point that the creation of a Steward reaches, with the number of passes without effect before it acts.
CREATION_CRASHES = [
    *(("keys.disk.after_temp", passes) for passes in range(3)),
    *(("keys.disk.after_rename", passes) for passes in range(3)),
    *(("ledger.before_commit", passes) for passes in range(2)),
    *(("ledger.after_commit", passes) for passes in range(2)),
    ("keys.after_make", 0),
    ("steward.after_epoch_step", 0),
    ("steward.before_outside", 0),
    ("steward.after_outside", 0),
]


@pytest.mark.parametrize(("point", "passes"), CREATION_CRASHES)
def test_a_steward_that_dies_while_it_is_created_is_created_by_the_next_try(point: str, passes: int) -> None:
    with memory_folder() as folder:
        config, time = config_at(folder), Time()

        def create_here(_: object = None) -> Notary:
            return create_notary(config, reason="first", wall=lambda: time.wall, monotonic=lambda: time.monotonic)

        def open_nothing() -> Any:
            return None

        assert die(point, open_nothing, create_here, passes=passes) == fault.EXIT_CODE
        stand = Stand(folder, config, time, create_here())
        assert epoch_steps(stand) == FIRST
        assert [(epoch.number, epoch.state) for epoch in stand.notary.epochs.book().epochs] == [(1, ACTIVE)]
        assert state(stand).size == len(FIRST), "without a trust root"
        stand.reopen()
        assert epoch_steps(stand) == FIRST
        stand.notary.close()


def test_a_steward_that_dies_at_its_start_starts_again(stand: Stand) -> None:
    stand.proved()
    stand.notary.close()
    for point in ("ledger.before_commit", "ledger.after_commit"):
        code = die(point, lambda: None, lambda _: opened(stand.config, stand.time))  # type: ignore[arg-type,return-value]
        assert code == fault.EXIT_CODE
    stand.notary = opened(stand.config, stand.time)
    assert state(stand).size == ENTRIES_AT_START + 1


def test_an_entry_that_was_never_acknowledged_may_be_lost(stand: Stand) -> None:
    """The outside checkpoint does not cover the entry, so a ledger from before it is not taken for rolled back."""
    core = stand.verifying()
    stand.notary.close()
    before = (stand.folder / "ledger.db").read_bytes()
    stand.notary = opened(stand.config, stand.time)
    with fault.armed("steward.before_outside", fault.Raise(CrashError())), pytest.raises(CrashError):
        stand.record(core)
    stand.notary.ledger.close()
    (stand.folder / "ledger.db").write_bytes(before)
    stand.notary = opened(stand.config, stand.time)
    assert stand.record(core).log_index == ENTRIES_AT_START
    assert state(stand).size == ENTRIES_AT_START + 1
