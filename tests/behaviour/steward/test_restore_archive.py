"""What a restore takes from an archive has an envelope, a signature that counts, and the time of its logging."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.ledger.record import restores
from pvdm.model.statements.epoch import EpochStage, EpochStatement, RestoreStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.log import ArchivedLog, archived_size, envelope_path, log_folder
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.public import PublicKey, SigningKey
from pvdm.trust.log import merkle
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.export import export
from pvdm.trust.log.merkle import Node
from pvdm.trust.root import RootRole, TrustedKey
from pvdm.trust.statement import Predicate, read_statement
from pvdm.trust.verify import sign_statement
from tests.support.ledger.log_storage import Log
from tests.support.steward.notary import (
    LOG_ORIGIN,
    NOTARY,
    core_of,
    override_of,
    root_naming,
    signed_override,
    signed_root,
)
from tests.support.steward.restore import Scene, refused, scene_at
from tools.proof_kit import DAY, NOW, RECEIPT, SIGNERS

CREATED, ACTIVE, RETIRED, REVOKED = EpochStage


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path / "steward") as made:
        yield made


# --- envelopes that are not there ---


def test_an_entry_without_its_envelope_is_not_left_out_silently(scene: Scene) -> None:
    scene.back_up()
    second = scene.name_epochs()
    scene.publish("gone", scene.stand.proved("gone"))
    (receipt,) = scene.statements(StatementKind.RECEIPT)
    scene.lose_the_database()
    scene.lose_envelope(second)
    scene.lose_envelope(receipt.envelope)
    before = scene.ledger.read_bytes()
    error = refused(scene.restore, "restore_envelopes_missing")
    assert error.got == "trust-root 3, receipt 5"
    assert scene.ledger.read_bytes() == before


def test_an_accepted_loss_is_in_the_restore_statement(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("gone")
    scene.lose_the_database()
    scene.lose_envelope(recorded.envelope)
    done = scene.restore(replace(scene.order, accept_missing=True))
    assert done.missing == 1
    scene.start()
    (statement,) = scene.statements(StatementKind.RESTORE)
    said = read_statement(parse_envelope(statement.envelope).payload, RestoreStatement)
    assert (said.refilled, said.missing) == (1, 1)


# --- what an archive says beyond the checkpoint outside ---


@dataclass
class Memory:
    """A log storage in memory, to lengthen an archive with."""

    entries: list[bytes]
    note: bytes
    hashes: dict[Node, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        merkle.grow([], 0, map(merkle.leaf_hash, self.entries), self.hashes.__setitem__)

    def size(self) -> int:
        return len(self.entries)

    def read_hashes(self, nodes: Sequence[Node]) -> list[bytes]:
        return [self.hashes[node] for node in nodes]

    def read_entries(self, start: int, end: int) -> list[bytes]:
        return self.entries[start:end]

    def newest_checkpoint(self) -> bytes:
        return self.note

    def append(self, *, at: int, entries: Sequence[bytes], hashes: dict[Node, bytes], checkpoint: bytes) -> None:
        assert at == len(self.entries)
        self.entries += entries
        self.hashes |= hashes
        self.note = checkpoint


@dataclass(frozen=True)
class Thief:
    """Someone with a copy of a key, who signs whatever the epoch book says."""

    public: PublicKey
    key: SigningKey

    def sign(self, data: bytes) -> bytes:
        return self.key.sign(data)


def lengthen(scene: Scene, signer: SigningKey, kind: StatementKind, envelope: bytes) -> None:
    """One more entry in the archive, under a checkpoint of this key."""
    folder = scene.stand.config.archive
    assert folder is not None
    archive = ArchivedLog(folder)
    note = (log_folder(folder) / "checkpoint").read_bytes()
    memory = Memory(list(archive.entries(0, archived_size(folder))), note)
    path = envelope_path(folder, hashlib.sha256(envelope).hexdigest())
    assert isinstance(path, Path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(envelope)
    log = Log(memory, origin=LOG_ORIGIN, signer=signer)  # type: ignore[arg-type]
    log.append([LogEntry(kind, hashlib.sha256(envelope).hexdigest(), NOW)])
    export(memory, log_folder(folder))  # type: ignore[arg-type]


def copied(scene: Scene, role: KeyRole, epoch: int) -> Thief:
    """A key of the keystore that goes on signing after its epoch was revoked."""
    import pvdm.trust.keys.file as keystore

    home: Any = scene.notary.keys._home
    entry = scene.notary.keys.book().epoch(epoch).key(role)
    assert entry.public is not None
    return Thief(entry.public, keystore._private(home._current().keys[entry.reference]))  # type: ignore[arg-type]


def signed_by(signer: SigningKey, said: Predicate) -> bytes:
    return sign_statement(said, signer).to_bytes()


def step(epoch: int, after: EpochStage) -> EpochStatement:
    return EpochStatement(NOTARY, epoch, RETIRED, after, "forged", (), NOW)


def test_a_revoked_log_key_does_not_lengthen_the_log(scene: Scene) -> None:
    thief = copied(scene, KeyRole.LOG, 1)
    signing = copied(scene, KeyRole.SIGNING, 1)
    scene.rotate()
    scene.notary.epochs.revoke(1, "the log key was copied")
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    lengthen(scene, thief, StatementKind.EPOCH, signed_by(signing, step(2, REVOKED)))
    refused(scene.restore, "restore_archive_unbelieved")


def test_nor_one_whose_revocation_is_in_the_part_to_be_refilled(scene: Scene) -> None:
    thief = copied(scene, KeyRole.LOG, 1)
    signing = copied(scene, KeyRole.SIGNING, 1)
    scene.rotate()
    scene.back_up()
    put_back = scene.keep_keys()
    scene.notary.epochs.revoke(1, "the log key was copied")
    scene.lose_the_database()
    put_back()
    lengthen(scene, thief, StatementKind.EPOCH, signed_by(signing, step(2, REVOKED)))
    refused(scene.restore, "restore_archive_unbelieved")


def test_a_log_key_in_use_does_lengthen_it(scene: Scene) -> None:
    """The archive is written before the outside: after a crash in between it is longer by right."""
    signing, log = copied(scene, KeyRole.SIGNING, 1), copied(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    said = replace(RECEIPT, notary=NOTARY, epoch=1, workload_id="work-late", override_id=None, published_at=NOW)
    lengthen(scene, log, StatementKind.RECEIPT, signed_by(signing, said))
    assert scene.restore().spent == ("work-late",)
    with scene.start().ledger.read() as unit:
        refused(lambda: restores.require_unused(unit, "work-late"), "workload_spent")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (StatementKind.EPOCH, step(1, REVOKED)),
        (StatementKind.RECEIPT, replace(RECEIPT, notary=NOTARY, epoch=1, workload_id="work-of-a-rival")),
        (StatementKind.RECEIPT, replace(RECEIPT, notary="source-other", epoch=1, workload_id="work-of-a-rival")),
    ],
    ids=["epoch", "receipt", "receipt in its own name"],
)
def test_a_statement_that_another_key_signed_has_no_effect(scene: Scene, kind: StatementKind, said: Predicate) -> None:
    log = copied(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    before = scene.ledger.read_bytes()
    lengthen(scene, log, kind, signed_by(SIGNERS["source-other"], said))
    error = refused(scene.restore, "restore_statement_invalid")
    assert error.details["index"] == 4
    assert scene.ledger.read_bytes() == before


def test_a_statement_of_the_notarys_own_key_in_anothers_name_has_no_effect(scene: Scene) -> None:
    signing, log = copied(scene, KeyRole.SIGNING, 1), copied(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    said = replace(RECEIPT, notary="another", epoch=1, override_id=None)
    lengthen(scene, log, StatementKind.RECEIPT, signed_by(signing, said))
    assert refused(scene.restore, "restore_statement_invalid").details["cause"] == "signer_name_wrong"


def test_a_statement_of_another_epoch_than_its_key_has_no_effect(scene: Scene) -> None:
    signing, log = copied(scene, KeyRole.SIGNING, 1), copied(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    said = replace(RECEIPT, notary=NOTARY, epoch=7, override_id=None)
    lengthen(scene, log, StatementKind.RECEIPT, signed_by(signing, said))
    assert refused(scene.restore, "restore_statement_invalid").details["cause"] == "key_epoch_wrong"


def test_a_statement_under_a_signature_of_another_one_has_no_effect(scene: Scene) -> None:
    signing, log = copied(scene, KeyRole.SIGNING, 1), copied(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    said = replace(RECEIPT, notary=NOTARY, epoch=1, override_id=None)
    signed = sign_statement(said, signing)
    other = sign_statement(replace(said, workload_id="work-of-a-rival"), signing)
    lengthen(scene, log, StatementKind.RECEIPT, replace(other, signatures=signed.signatures).to_bytes())
    refused(scene.restore, "restore_statement_invalid")


def test_a_receipt_of_another_notary_of_the_root_has_no_effect(scene: Scene) -> None:
    log = copied(scene, KeyRole.LOG, 1)
    root = scene.notary.trust.current()
    named = root_naming(scene.notary.epochs.book().epoch(1), version=2, previous=root.sha256)
    rival = TrustedKey(SIGNERS["notary-b"].public, "notary-b", (RootRole.NOTARY,), (1,), NOW - DAY, NOW + DAY)
    keys = tuple(sorted((*named.keys, rival), key=lambda key: key.key_id))
    scene.notary.trust.accept(signed_root(replace(named, keys=keys)))
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    said = replace(RECEIPT, notary="notary-b", epoch=1, override_id=None, published_at=NOW)
    lengthen(scene, log, StatementKind.RECEIPT, signed_by(SIGNERS["notary-b"], said))
    refused(scene.restore, "restore_statement_invalid")


def test_a_revoked_signing_key_says_nothing_beyond_the_checkpoint_outside(scene: Scene) -> None:
    signing = copied(scene, KeyRole.SIGNING, 1)
    scene.rotate()
    scene.notary.epochs.revoke(1, "copied")
    log = copied(scene, KeyRole.LOG, 2)
    root = scene.notary.trust.current()
    named = root_naming(scene.notary.epochs.book().epoch(2), version=root.version + 1, previous=root.sha256)
    scene.notary.trust.accept(signed_root(named))
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    said = replace(RECEIPT, notary=NOTARY, epoch=1, override_id=None)
    lengthen(scene, log, StatementKind.RECEIPT, signed_by(signing, said))
    assert refused(scene.restore, "restore_statement_invalid").details["cause"] == "key_unknown"


def test_a_trust_root_that_does_not_follow_is_refused(scene: Scene) -> None:
    log = copied(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    root = scene.notary.trust.current()
    third = root_naming(scene.notary.epochs.book().epoch(1), version=3, previous=root.sha256)
    scene.lose_the_database()
    lengthen(scene, log, StatementKind.TRUST_ROOT, signed_root(third))
    refused(scene.restore, "restore_statement_invalid")


def test_statements_of_every_kind_come_back(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("failed", passed=False)
    now = scene.notary.clock.now_micros()
    override = signed_override(override_of(recorded, core_of("failed"), now))
    scene.notary.overrides.submit(override, scene.stand.grant())
    scene.rotate()
    scene.stand.proved("later")
    size = scene.notary.log.size()
    scene.lose_the_database()
    done = scene.restore()
    assert (done.refilled, done.missing) == (size - 3, 0)
    scene.start()
    assert scene.epochs() == [(1, RETIRED), (2, RETIRED), (3, CREATED)]


# --- time ---


def test_a_refilled_statement_keeps_the_time_at_which_it_was_logged(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("gone")
    logged_at = scene.stand.time.wall
    scene.lose_the_database()
    scene.stand.time.pass_by(DAY)
    scene.restore()
    scene.start()
    at = {each.statement_id: each.at_micros for each in scene.statements(StatementKind.PROOF)}
    assert at[recorded.statement_id] == logged_at


def test_a_trust_root_whose_signers_have_expired_since_still_counts(scene: Scene) -> None:
    scene.back_up()
    root = scene.notary.trust.current()
    active = scene.notary.epochs.book().active
    assert active is not None
    named = root_naming(active, version=2, previous=root.sha256)
    scene.notary.trust.accept(signed_root(replace(named, expires_at=NOW + 2000 * DAY)))
    scene.lose_the_database()
    scene.stand.time.pass_by(400 * DAY)
    scene.restore(replace(scene.order, confirm_clock=True))
    assert scene.start().trust.current().version == 2
