"""The part of the Steward's benchmark about proofs: signing, recording through the whole Steward, checking offline."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.steward_ledger import append
from bench.steward_measure import Case, Elapsed, time_steps
from pvdm.ledger import Unit
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.model.contract import Atomicity
from pvdm.model.role import Role
from pvdm.model.statements.core import AddedFile, FileSet, ProofCore
from pvdm.model.statements.proof import Isolation, NotaryPart, Proof, Storage
from pvdm.steward.record.recorder import signing_epoch
from pvdm.trust.bundle import check_bundle, log_checker
from pvdm.trust.envelope import STATEMENT_TYPE, pae
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.file import create_file_keys
from pvdm.trust.keys.pkcs11 import Pkcs11Settings, open_pkcs11_keys
from pvdm.trust.keys.public import Algorithm
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import KeyService
from pvdm.trust.statement import payload_of
from pvdm.trust.verify import sign_statement
from tests.support.steward.epoch_file import FileEpochStore
from tests.support.steward.notary import LOG_ORIGIN, NOTARY, Stand, commitments, core_of
from tools.proof_kit import NOW, SECOND, fixed

SMALL_FILES, BIG_FILES = 3, 1_000
TOKEN_LABEL, TOKEN_PIN = "pvdm-bench", "734512"
_TOKEN_LIBRARIES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
)


def with_files(core: ProofCore, count: int) -> ProofCore:
    """The core as if the attempt had added this many files."""
    prefix = f"s3://lake/curated/orders/attempts/{core.attempt.attempt_id}"
    added = tuple(
        AddedFile(
            staged_path=f"{prefix}/data/part-{number:05}.parquet",
            staged_size_bytes=4_194_304 + number,
            staged_sha256=fixed(f"bench file {number}"),
            published_path=f"s3://lake/curated/orders/published/part-{number:05}.parquet",
            published_size_bytes=4_193_280 + number,
            published_sha256=fixed(f"published bench file {number}"),
        )
        for number in range(count)
    )
    return replace(core, files=FileSet(added, core.files.removed))


@contextlib.contextmanager
def key_homes(folder: Path, left_out: dict[str, str]) -> Iterator[dict[str, KeyService]]:
    """Every kind of key home that is available here, by home and algorithm, each with epoch 1 ACTIVE."""
    with contextlib.ExitStack() as stack:
        found = {"file_ed25519": create_file_keys(folder / "keystore")}
        library = next((path for path in _TOKEN_LIBRARIES if Path(path).exists()), None)
        if importlib.util.find_spec("pkcs11") is None:
            left_out["pkcs11"] = "python-pkcs11 is not installed"
        elif library is None or shutil.which("softhsm2-util") is None:
            left_out["pkcs11"] = "SoftHSM2 is not installed"
        else:
            found |= _token_homes(folder, library)
        left_out["kms"] = "only moto's server is available, and its speed says nothing about AWS"
        for service in found.values():
            stack.callback(service.close)
            service.create_epoch("bench")
            service.activate_epoch(1, "bench")
        yield found


def _token_homes(folder: Path, library: str) -> dict[str, KeyService]:
    (folder / "tokens").mkdir()
    configuration = folder / "softhsm2.conf"
    configuration.write_text(
        f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\nlog.level = ERROR\n"
    )
    os.environ["SOFTHSM2_CONF"] = str(configuration)
    command = ["softhsm2-util", "--init-token", "--free", "--label", TOKEN_LABEL]
    subprocess.run([*command, "--so-pin", "87654321", "--pin", TOKEN_PIN], check=True, capture_output=True)

    def open_keys(name: str, algorithm: Algorithm) -> KeyService:
        settings = Pkcs11Settings(library, TOKEN_LABEL, algorithm)
        return open_pkcs11_keys(settings, Passphrase(TOKEN_PIN), FileEpochStore.create(folder / f"book-{name}"))

    return {
        "pkcs11_ed25519": open_keys("ed25519", Algorithm.ED25519),
        "pkcs11_p256": open_keys("p256", Algorithm.ECDSA_P256),
    }


def signing_cases(homes: dict[str, KeyService], small: int, big: int) -> list[Case]:
    """Sign a proof with every key home, one of many files with the keystore file, and sign bare bytes."""
    core = core_of("bench")
    part = NotaryPart(NOTARY, 1, commitments(passed=True), Isolation.PROCESS, Storage.OPEN, NOW, NOW + 3_600 * SECOND)
    proof, large = Proof(core, part), Proof(with_files(core, BIG_FILES), part)

    def sign(keys: KeyService, signed: Proof) -> None:
        assert sign_statement(signed, keys.signer(KeyRole.SIGNING, 1)).to_bytes()

    def run(keys: KeyService, signed: Proof, operations: int) -> Elapsed:
        return time_steps([partial(sign, keys, signed)] * operations, 1)

    key, message = Ed25519PrivateKey.generate(), pae(STATEMENT_TYPE, payload_of(proof))
    file = homes["file_ed25519"]
    return [
        *(Case(f"signed_{name}", small, partial(run, keys, proof, small)) for name, keys in homes.items()),
        Case(f"signed_file_ed25519_{BIG_FILES}_files", big, partial(run, file, large, big)),
        Case("bare_ed25519_signatures", small, lambda: time_steps([partial(key.sign, message)] * small, 1)),
    ]


def fill(stand: Stand, entries: int) -> None:
    """Give the Steward's log a history, so that proofs from it have a realistic length."""
    keys = stand.notary.keys
    append(stand.notary.ledger, LOG_ORIGIN, keys.signer(KeyRole.LOG, signing_epoch(keys.book())), entries)


def checking_cases(stand: Stand, small: int, big: int) -> list[Case]:
    """Check a bundle (envelope, inclusion proof, checkpoint) with nothing but the trust root."""
    root = stand.notary.trust.current()
    checker = log_checker(root, origin=LOG_ORIGIN)
    auditor = stand.grant(Role.AUDITOR, name="auditor-bench")

    def bundle(files: int) -> bytes:
        core = with_files(core_of(f"checked-{files}"), files)
        open_verifying(stand, [core])
        recorded = stand.record(core)
        return stand.notary.proofs.bundle(recorded.statement_id, auditor)

    def check(data: bytes, files: int) -> None:
        found = check_bundle(data, root, checker, threshold=1, now=NOW)
        assert found.proof.core.verdict.passed
        assert len(found.proof.core.files.added) == files

    def case(files: int, operations: int) -> Case:
        steps = [partial(check, bundle(files), files)] * operations
        return Case(f"checked_{files}_files", operations, lambda: time_steps(steps, 1))

    return [case(SMALL_FILES, small), case(BIG_FILES, big)]


def recording_cases(stand: Stand, operations: int) -> list[Case]:
    """Record verdicts through the whole Steward, in one thread and in eight, each for another workload."""
    used = 0

    def run(threads: int) -> Elapsed:
        nonlocal used
        cores = [core_of(f"recorded-{used + number}") for number in range(operations)]
        used += operations
        open_verifying(stand, cores)
        before = stand.notary.log.size()
        taken = time_steps([partial(stand.record, core) for core in cores], threads)
        assert stand.notary.log.size() == before + operations
        outside = stand.notary.outside.load()
        assert outside is not None
        assert outside.checkpoint.size == before + operations
        return taken

    return [Case(f"recorded_{threads}", operations, partial(run, threads), threads) for threads in (1, 8)]


def open_verifying(stand: Stand, cores: Sequence[ProofCore]) -> None:
    """Open a workload for each core, with its one attempt in VERIFYING, all in one transaction."""
    epoch = stand.notary.keys.epoch_for(None)

    def work(unit: Unit) -> None:
        for core in cores:
            _begin(unit, core, epoch)

    stand.notary.ledger.transact(work, at_micros=stand.notary.clock.now_micros())


def _begin(unit: Unit, core: ProofCore, epoch: int) -> None:
    attempt = core.attempt
    opening = Opening(
        attempt.workload_id,
        contract_hash=attempt.contract_sha256,
        table_uuid=core.target.table.uuid,
        source="raw.payments",
        parameters=b"{}",
        atomicity=Atomicity.CHUNK,
        domain="sales",
    )
    pinned = PinnedWorkload("77", attempt.plan_sha256, epoch, [Chunk(attempt.chunk_id, b"{}")])
    workloads.open_once(unit, opening, pinned)
    attempt_opening = AttemptOpening(
        attempt.attempt_id,
        attempt.workload_id,
        attempt.chunk_id,
        branch=core.staged.branch,
        prefix=f"s3://lake/{attempt.attempt_id}/",
        nonce=fixed(f"first {attempt.nonce}", 16),
        reason="opened",
    )
    attempts.open_next(unit, attempt_opening)
    staged_id = str(core.staged.snapshot_id)
    attempts.begin_verifying(
        unit, attempt.attempt_id, nonce=attempt.nonce, staged_snapshot_id=staged_id, reason="staged"
    )
