"""A Steward without HTTP, in a folder of its own and on a clock that tests move: trust root, tokens and workloads."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pvdm.digest.plan import Mode
from pvdm.ledger import Unit
from pvdm.ledger.record.tokens import BearerToken, Grant
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.model.contract import Atomicity
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import FileSet, ProofCore
from pvdm.model.statements.proof import Commitments, Isolation, Storage
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.model.states import AttemptState
from pvdm.steward.access import Access
from pvdm.steward.config.steward import CatalogConfig, FileKeys, KeysConfig, ServiceConfig, StewardConfig
from pvdm.steward.notary import Notary, create_notary, open_notary
from pvdm.steward.record.proofs import RecordedProof
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.epochs import Epoch, KeyRole
from pvdm.trust.root import RootRole, Thresholds, TrustedKey, TrustRoot, sign_root
from pvdm.trust.verify import sign_statement
from tests.support.ledger.databases import memory_file_system
from tools.proof_kit import CORE, DAY, KEYS, NOW, SECOND, SIGNERS, fixed

NOTARY = "steward-one"
LOG_ORIGIN = "steward-one.example/log"
PEOPLE = ("operator-ruth", "operator-tom", "root-one", "root-two", "source-payments", "source-other")


@dataclass(slots=True)
class Time:
    """A clock that only the test moves. `pass_by` moves wall and monotonic clock, `jump` only the wall clock."""

    wall: int = NOW
    monotonic: int = 1_000 * SECOND

    def pass_by(self, micros: int) -> None:
        self.wall += micros
        self.monotonic += micros

    def jump(self, micros: int) -> None:
        self.wall += micros


class RealTime(Time):
    """The real time, for tests with other clients that use it, such as Spark."""

    wall: int = property(lambda _: time.time_ns() // 1_000)  # type: ignore[assignment]
    monotonic: int = property(lambda _: time.monotonic_ns() // 1_000)  # type: ignore[assignment]

    def __init__(self) -> None:
        pass


def config_at(folder: Path, *, ledger_url: str | None = None, keys: KeysConfig | None = None) -> StewardConfig:
    (folder / "outside").mkdir(parents=True, exist_ok=True)
    return StewardConfig(
        notary=NOTARY,
        origin=LOG_ORIGIN,
        ledger_url=ledger_url or f"sqlite:///{folder}/ledger.db",
        keys=keys or FileKeys(folder / "keys"),
        outside_path=folder / "outside" / "checkpoint",
        catalog=CatalogConfig(f"file://{folder}/warehouse", folder / "catalog"),
        isolation=Isolation.PROCESS,
        service=ServiceConfig(port=0),
    )


def root_naming(
    *epochs: Epoch, version: int = 1, previous: str | None = None, origin: str = LOG_ORIGIN, notary: str = NOTARY
) -> TrustRoot:
    """A trust root with the keys of the example people, and with the Steward's keys of these epochs."""
    keys = [KEYS[name] for name in PEOPLE]
    for epoch in epochs:
        for role, root_role, identity in (
            (KeyRole.SIGNING, RootRole.NOTARY, notary),
            (KeyRole.LOG, RootRole.LOG, origin),
        ):
            public = epoch.key(role).public
            assert public is not None
            keys.append(TrustedKey(public, identity, (root_role,), (epoch.number,), NOW - DAY, NOW + 300 * DAY))
    ordered = tuple(sorted(keys, key=lambda key: key.key_id))
    return TrustRoot(version, previous, NOW - DAY, NOW + 200 * DAY, ordered, Thresholds(1, 2))


def attempt_token(access: Access, grant: Grant, attempt_id: str) -> tuple[BearerToken, Grant]:
    """A new token for one attempt."""
    token = BearerToken.draw()
    return token, access.issue_attempt_token(grant, attempt_id, token.sha256)


def signed_root(root: TrustRoot) -> bytes:
    return sign_root(root, [SIGNERS["root-one"], SIGNERS["root-two"]]).to_bytes()


@dataclass(slots=True)
class Stand:
    """A Steward (`notary`), with its folder, configuration and clock."""

    folder: Path
    config: StewardConfig
    time: Time
    notary: Notary
    counter: int = field(default=0)

    def grant(self, role: Role = Role.OPERATOR, domain: str = "*", name: str = "operator-tom") -> Grant:
        return self.token(role, domain, name)[1]

    def token(self, role: Role = Role.OPERATOR, domain: str = "*", name: str = "operator-tom") -> tuple[str, Grant]:
        token, grant = self.notary.access.issue(role, domain=domain, name=name, lifetime_seconds=30 * 86_400)
        return token.reveal(), grant

    def reopen(self) -> Notary:
        """Close the Steward and open it again, as a restart does."""
        self.notary.close()
        self.notary = opened(self.config, self.time)
        return self.notary

    def staging(self, name: str = "one", *, domain: str = "sales") -> ProofCore:
        """Open a workload with one chunk and an attempt in STAGING; returns the core of a PASS proof for it."""
        core = core_of(name)
        epoch = self.notary.keys.epoch_for(None)

        def work(unit: Unit) -> None:
            opening = Opening(
                core.attempt.workload_id,
                core.attempt.contract_sha256,
                core.target.table.uuid,
                "raw.payments",
                b"{}",
                Atomicity.CHUNK,
                domain,
            )
            planned = [Chunk(core.attempt.chunk_id, b"{}")]
            workloads.open_once(unit, opening, PinnedWorkload("77", core.attempt.plan_sha256, epoch, planned))
            attempts.open_next(
                unit,
                AttemptOpening(
                    core.attempt.attempt_id,
                    core.attempt.workload_id,
                    core.attempt.chunk_id,
                    core.staged.branch,
                    f"s3://lake/{core.attempt.attempt_id}/",
                    fixed(f"first nonce {name}", 16),
                    "opened",
                ),
            )

        self.notary.ledger.transact(work, at_micros=self.notary.clock.now_micros())
        return core

    def verifying(self, name: str = "one", *, domain: str = "sales") -> ProofCore:
        """Like `staging`, with the attempt in VERIFYING."""
        core = self.staging(name, domain=domain)

        def work(unit: Unit) -> None:
            attempts.begin_verifying(
                unit,
                core.attempt.attempt_id,
                nonce=core.attempt.nonce,
                staged_snapshot_id=str(core.staged.snapshot_id),
                reason="staged",
            )

        self.notary.ledger.transact(work, at_micros=self.notary.clock.now_micros())
        return core

    def give_up(self, core: ProofCore) -> None:
        """End the attempt as ROLLED_BACK."""

        def work(unit: Unit) -> None:
            attempts.end(unit, core.attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up")

        self.notary.ledger.transact(work, at_micros=self.notary.clock.now_micros())

    def proved(self, name: str = "one", *, domain: str = "sales", passed: bool = True) -> RecordedProof:
        """Record a proof of a new attempt: PASS, or FAIL with the class modified."""
        core = self.verifying(name, domain=domain)
        return self.record(core if passed else failed(core))

    def record(self, core: ProofCore) -> RecordedProof:
        """Sign and log a proof with this core."""
        epoch = self.notary.keys.epoch_for(None)
        return self.notary.proofs.record(
            core,
            commitments(passed=core.verdict.passed),
            storage=Storage.OPEN,
            lifetime_micros=3_600 * SECOND,
            context=context_of(core, epoch),
        )


def core_of(name: str) -> ProofCore:
    """The example core of a proof, for an attempt of the workload `work-<name>`.

    It has few files: AWS KMS signs messages of at most 4,096 bytes, and moto signs a digest as if it were a message.
    """
    attempt = replace(
        CORE.attempt,
        workload_id=f"work-{name}",
        attempt_id=fixed(f"attempt {name}", 16),
        nonce=fixed(f"nonce {name}", 16),
    )
    staged = replace(CORE.staged, branch=f"pvdm-{attempt.attempt_id}")
    return replace(CORE, attempt=attempt, staged=staged, files=FileSet(CORE.files.added[:1], CORE.files.removed))


def failed(core: ProofCore) -> ProofCore:
    return replace(core, verdict=Verdict.failed(FailureClass.MODIFIED))


def commitments(*, passed: bool) -> tuple[Commitments, ...]:
    return tuple(
        Commitments(name, fixed(f"intent {name.value}"), fixed(f"{'intent' if passed else 'staged'} {name.value}"))
        for name in (ProjectionName.CONTENT, ProjectionName.IDENTITY)
    )


def context_of(core: ProofCore, epoch: int) -> AttemptContext:
    fingerprints = {proved.projection.name: bytes.fromhex(proved.schema_fingerprint) for proved in core.projections}
    return AttemptContext(
        epoch=epoch,
        workload_id=core.attempt.workload_id,
        chunk_id=core.attempt.chunk_id,
        attempt_id=core.attempt.attempt_id,
        nonce=core.attempt.nonce,
        mode=Mode(core.method.mode),
        fingerprints=tuple((name, fingerprints[name]) for name in ProjectionName if name in fingerprints),
        intent_root=hashlib.sha256(b"intent").digest(),
        staged_root=hashlib.sha256(b"staged").digest(),
    )


def override_of(recorded: RecordedProof, core: ProofCore, now: int, *, nonce: str = "break") -> BreakGlass:
    """The override, by the operator Ruth, that publishes the data of this FAIL proof."""
    return BreakGlass(
        operator="operator-ruth",
        reason="the changed amounts are known and explained in incident 4711",
        table=core.target.table,
        base_snapshot_id=core.target.base_snapshot_id,
        fail_proof_id=recorded.statement_id,
        file_hashes=core.files.staged_hashes,
        nonce=fixed(nonce, 16),
        issued_at=now,
        expires_at=now + 3_600 * SECOND,
    )


def signed_override(override: BreakGlass, signer: str = "operator-ruth") -> bytes:
    return sign_statement(override, SIGNERS[signer]).to_bytes()


def opened(config: StewardConfig, time: Time) -> Notary:
    """Open the Steward of this configuration on this clock."""
    return open_notary(config, wall=lambda: time.wall, monotonic=lambda: time.monotonic)


@functools.cache
def _template(*, rooted: bool) -> Path:
    """The files of a new Steward. They are created once in a process, and copied for each test."""
    folder = Path(tempfile.mkdtemp(prefix="pvdm-steward-", dir=memory_file_system()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    created(config_at(folder), Time(), rooted=rooted, own_keys=True).close()
    return folder


def _copy_template(config: StewardConfig, *, rooted: bool) -> bool:
    """Copy the template's files to this Steward's folder; returns False if they do not fit its configuration."""
    if not config.ledger_url.startswith("sqlite:///"):
        return False
    ledger = Path(config.ledger_url.removeprefix("sqlite:///"))
    folder = ledger.parent
    of_template = config_at(folder)
    # The files do not depend on these parts of the configuration; of the catalog they only have its name.
    catalog = replace(of_template.catalog, name=config.catalog.name)
    if replace(config, service=of_template.service, catalog=catalog, s3=None, vending=None, spark=None) != of_template:
        return False
    if ledger.exists() or (folder / "keys").exists():
        return False
    shutil.copytree(_template(rooted=rooted), folder, dirs_exist_ok=True)
    return True


def created(config: StewardConfig, time: Time, *, rooted: bool = True, own_keys: bool = False) -> Notary:
    """Create a Steward. If it is `rooted`, it has a trust root.

    Without `own_keys` its files are copied from a template, so that Stewards of one process have the same keys and log.
    """
    if not own_keys and time.wall == NOW and _copy_template(config, rooted=rooted):
        return opened(config, time)
    notary = create_notary(config, reason="the first epoch", wall=lambda: time.wall, monotonic=lambda: time.monotonic)
    if rooted:
        active = notary.epochs.book().active
        assert active is not None
        root = root_naming(active)
        notary.trust.accept(signed_root(root), pin=root.sha256)
    return notary


@contextlib.contextmanager
def stand_at(
    folder: Path,
    *,
    ledger_url: str | None = None,
    rooted: bool = True,
    changed: Callable[[StewardConfig], StewardConfig] = lambda config: config,
    clock: Time | None = None,
    own_keys: bool = False,
) -> Iterator[Stand]:
    """A Steward in this folder, closed afterwards.

    With a `clock` it has no trust root, because the example trust root is valid only at the example time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, now = changed(config_at(folder, ledger_url=ledger_url)), clock or Time()
    stand = Stand(folder, config, now, created(config, now, rooted=rooted and clock is None, own_keys=own_keys))
    try:
        yield stand
    finally:
        stand.notary.close()
