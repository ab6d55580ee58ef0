"""A restore takes an entry from the archive only with its envelope and a valid signature, and keeps its logged time."""

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


# --- missing envelopes ---


def test_entries_without_their_envelopes_stop_the_restore_and_are_named(scene: Scene) -> None:
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
    restored = read_statement(parse_envelope(statement.envelope).payload, RestoreStatement)
    assert (restored.refilled, restored.missing) == (1, 1)


# --- entries of an archive beyond the outside checkpoint ---


@dataclass
class MemoryStorage:
    """A log in memory, which is filled from an archive, lengthened, and exported to it."""

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
class CopiedKey:
    """A stolen copy of a key: it signs whatever the state of its epoch is."""

    public: PublicKey
    key: SigningKey

    def sign(self, data: bytes) -> bytes:
        return self.key.sign(data)


def lengthen_archive(scene: Scene, signer: SigningKey, kind: StatementKind, envelope: bytes) -> None:
    """Append an entry to the archive, under a checkpoint that this key signed."""
    folder = scene.stand.config.archive
    assert folder is not None
    archive = ArchivedLog(folder)
    note = (log_folder(folder) / "checkpoint").read_bytes()
    memory = MemoryStorage(list(archive.entries(0, archived_size(folder))), note)
    path = envelope_path(folder, hashlib.sha256(envelope).hexdigest())
    assert isinstance(path, Path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(envelope)
    log = Log(memory, origin=LOG_ORIGIN, signer=signer)  # type: ignore[arg-type]
    log.append([LogEntry(kind, hashlib.sha256(envelope).hexdigest(), NOW)])
    export(memory, log_folder(folder))  # type: ignore[arg-type]


def copy_key(scene: Scene, role: KeyRole, epoch: int) -> CopiedKey:
    """A copy of a key of the keystore, which still signs after its epoch was revoked."""
    import pvdm.trust.keys.file as keystore

    home: Any = scene.notary.keys._home
    entry = scene.notary.keys.book().epoch(epoch).key(role)
    assert entry.public is not None
    return CopiedKey(entry.public, keystore._load_private(home._load_content().keys[entry.reference]))  # type: ignore[arg-type]


def sign_envelope(signer: SigningKey, predicate: Predicate) -> bytes:
    return sign_statement(predicate, signer).to_bytes()


def epoch_step(epoch: int, after: EpochStage) -> EpochStatement:
    return EpochStatement(NOTARY, epoch, RETIRED, after, "forged", (), NOW)


def test_a_revoked_log_key_does_not_lengthen_the_log(scene: Scene) -> None:
    log = copy_key(scene, KeyRole.LOG, 1)
    signing = copy_key(scene, KeyRole.SIGNING, 1)
    scene.rotate()
    scene.notary.epochs.revoke(1, "the log key was copied")
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    lengthen_archive(scene, log, StatementKind.EPOCH, sign_envelope(signing, epoch_step(2, REVOKED)))
    refused(scene.restore, "restore_archive_unbelieved")


def test_a_log_key_that_was_revoked_after_the_backup_does_not_lengthen_the_log(scene: Scene) -> None:
    log = copy_key(scene, KeyRole.LOG, 1)
    signing = copy_key(scene, KeyRole.SIGNING, 1)
    scene.rotate()
    scene.back_up()
    put_back = scene.keep_keys()
    scene.notary.epochs.revoke(1, "the log key was copied")
    scene.lose_the_database()
    put_back()
    lengthen_archive(scene, log, StatementKind.EPOCH, sign_envelope(signing, epoch_step(2, REVOKED)))
    refused(scene.restore, "restore_archive_unbelieved")


def test_an_active_log_key_lengthens_the_log(scene: Scene) -> None:
    """The archive is written before the outside checkpoint, so after a crash it may have one entry more."""
    signing, log = copy_key(scene, KeyRole.SIGNING, 1), copy_key(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    receipt = replace(RECEIPT, notary=NOTARY, epoch=1, workload_id="work-late", override_id=None, published_at=NOW)
    lengthen_archive(scene, log, StatementKind.RECEIPT, sign_envelope(signing, receipt))
    assert scene.restore().spent == ("work-late",)
    with scene.start().ledger.read() as unit:
        refused(lambda: restores.require_not_published_in_lost_time(unit, "work-late"), "workload_spent")


@pytest.mark.parametrize(
    ("kind", "predicate"),
    [
        (StatementKind.EPOCH, epoch_step(1, REVOKED)),
        (StatementKind.RECEIPT, replace(RECEIPT, notary=NOTARY, epoch=1, workload_id="work-of-a-rival")),
        (StatementKind.RECEIPT, replace(RECEIPT, notary="source-other", epoch=1, workload_id="work-of-a-rival")),
    ],
    ids=["epoch", "receipt", "receipt in its own name"],
)
def test_a_statement_that_another_key_signed_stops_the_restore(
    scene: Scene, kind: StatementKind, predicate: Predicate
) -> None:
    log = copy_key(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    before = scene.ledger.read_bytes()
    lengthen_archive(scene, log, kind, sign_envelope(SIGNERS["source-other"], predicate))
    error = refused(scene.restore, "restore_statement_invalid")
    assert error.details["index"] == 4
    assert scene.ledger.read_bytes() == before


def test_a_statement_of_the_notarys_own_key_in_anothers_name_stops_the_restore(scene: Scene) -> None:
    signing, log = copy_key(scene, KeyRole.SIGNING, 1), copy_key(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    receipt = replace(RECEIPT, notary="another", epoch=1, override_id=None)
    lengthen_archive(scene, log, StatementKind.RECEIPT, sign_envelope(signing, receipt))
    assert refused(scene.restore, "restore_statement_invalid").details["cause"] == "signer_name_wrong"


def test_a_statement_of_another_epoch_than_its_key_stops_the_restore(scene: Scene) -> None:
    signing, log = copy_key(scene, KeyRole.SIGNING, 1), copy_key(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    receipt = replace(RECEIPT, notary=NOTARY, epoch=7, override_id=None)
    lengthen_archive(scene, log, StatementKind.RECEIPT, sign_envelope(signing, receipt))
    assert refused(scene.restore, "restore_statement_invalid").details["cause"] == "key_epoch_wrong"


def test_a_statement_with_the_signature_of_another_one_stops_the_restore(scene: Scene) -> None:
    signing, log = copy_key(scene, KeyRole.SIGNING, 1), copy_key(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    receipt = replace(RECEIPT, notary=NOTARY, epoch=1, override_id=None)
    signed = sign_statement(receipt, signing)
    other = sign_statement(replace(receipt, workload_id="work-of-a-rival"), signing)
    lengthen_archive(scene, log, StatementKind.RECEIPT, replace(other, signatures=signed.signatures).to_bytes())
    refused(scene.restore, "restore_statement_invalid")


def test_a_receipt_of_another_notary_of_the_root_stops_the_restore(scene: Scene) -> None:
    log = copy_key(scene, KeyRole.LOG, 1)
    root = scene.notary.trust.current()
    next_root = root_naming(scene.notary.epochs.book().epoch(1), version=2, previous=root.sha256)
    rival = TrustedKey(SIGNERS["notary-b"].public, "notary-b", (RootRole.NOTARY,), (1,), NOW - DAY, NOW + DAY)
    keys = tuple(sorted((*next_root.keys, rival), key=lambda key: key.key_id))
    scene.notary.trust.accept(signed_root(replace(next_root, keys=keys)))
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    receipt = replace(RECEIPT, notary="notary-b", epoch=1, override_id=None, published_at=NOW)
    lengthen_archive(scene, log, StatementKind.RECEIPT, sign_envelope(SIGNERS["notary-b"], receipt))
    refused(scene.restore, "restore_statement_invalid")


def test_a_statement_by_a_revoked_signing_key_beyond_the_outside_checkpoint_stops_the_restore(scene: Scene) -> None:
    signing = copy_key(scene, KeyRole.SIGNING, 1)
    scene.rotate()
    scene.notary.epochs.revoke(1, "copied")
    log = copy_key(scene, KeyRole.LOG, 2)
    root = scene.notary.trust.current()
    next_root = root_naming(scene.notary.epochs.book().epoch(2), version=root.version + 1, previous=root.sha256)
    scene.notary.trust.accept(signed_root(next_root))
    scene.back_up()
    scene.stand.proved("later")
    scene.lose_the_database()
    receipt = replace(RECEIPT, notary=NOTARY, epoch=1, override_id=None)
    lengthen_archive(scene, log, StatementKind.RECEIPT, sign_envelope(signing, receipt))
    assert refused(scene.restore, "restore_statement_invalid").details["cause"] == "key_unknown"


def test_a_trust_root_that_skips_a_version_stops_the_restore(scene: Scene) -> None:
    log = copy_key(scene, KeyRole.LOG, 1)
    scene.back_up()
    scene.stand.proved("later")
    root = scene.notary.trust.current()
    third = root_naming(scene.notary.epochs.book().epoch(1), version=3, previous=root.sha256)
    scene.lose_the_database()
    lengthen_archive(scene, log, StatementKind.TRUST_ROOT, signed_root(third))
    refused(scene.restore, "restore_statement_invalid")


def test_proofs_overrides_trust_roots_and_epoch_steps_are_refilled(scene: Scene) -> None:
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
    next_root = root_naming(active, version=2, previous=root.sha256)
    scene.notary.trust.accept(signed_root(replace(next_root, expires_at=NOW + 2000 * DAY)))
    scene.lose_the_database()
    scene.stand.time.pass_by(400 * DAY)
    scene.restore(replace(scene.order, confirm_clock=True))
    assert scene.start().trust.current().version == 2
