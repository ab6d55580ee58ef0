"""Values for tests of keys: the contexts from which keys are derived, and a keystore with an active epoch."""

from __future__ import annotations

from pathlib import Path

from pvdm.digest.plan import Mode
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import Secret
from pvdm.trust.keys.context import AttemptContext, SourceContext
from pvdm.trust.keys.file import FileKeystore
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import EpochStore, KeyHome, KeyService

CHEAP_COST_LOG2 = 14
"""A low cost of sealing a keystore with a passphrase, so that tests are fast."""


def attempt_context(epoch: int = 1, *, nonce: str = "00112233445566778899aabbccddeeff") -> AttemptContext:
    return AttemptContext(
        epoch=epoch,
        workload_id="orders-2026-11-14",
        chunk_id="day=2026-11-14",
        attempt_id="0123456789abcdef0123456789abcdef",
        nonce=nonce,
        mode=Mode.STORED,
        fingerprints=((ProjectionName.IDENTITY, bytes([0x11]) * 32), (ProjectionName.CONTENT, bytes([0x22]) * 32)),
        intent_root=bytes([0x33]) * 32,
        staged_root=bytes([0x44]) * 32,
    )


def source_context(epoch: int = 1) -> SourceContext:
    return SourceContext(
        epoch=epoch,
        catalog="lake",
        table_uuid="f79c3e09-677c-4bbd-a479-3f349cb785e7",
        snapshot_id=3051729675574597004,
        attestor="payments",
        nonce="ffeeddccbbaa99887766554433221100",
        mode=Mode.STORED,
        fingerprints=((ProjectionName.CONTENT, bytes([0x22]) * 32),),
    )


def keystore(path: Path, passphrase: str | None = None) -> KeyService:
    """Create a keystore whose epoch 1 is ACTIVE."""
    sealed_with = None if passphrase is None else Passphrase(passphrase)
    store = FileKeystore.create(path, sealed_with, cost_log2=CHEAP_COST_LOG2)
    return with_active_epoch(store, store)


def with_active_epoch(home: KeyHome, store: EpochStore) -> KeyService:
    service = KeyService(home, store)
    service.create_epoch("first")
    service.activate_epoch(1, "first")
    return service


def adopt(store: FileKeystore, reference: str, material: bytes) -> None:
    """Set the value of a new key before it is written, to bring the key of another key home into this one."""
    store._pending[reference] = Secret(material)


def left_over(folder: Path) -> list[str]:
    """The names of temporary files that were not removed."""
    return sorted(path.name for path in folder.iterdir() if ".new-" in path.name)
