"""The key service: epochs, attempt keys and signatures, with keys in a file, in AWS KMS or in a PKCS#11 token."""

from pvdm.trust.keys.context import AttemptContext, Purpose, SourceContext
from pvdm.trust.keys.epochs import Epoch, EpochBook, EpochChange, KeyEntry, KeyRole
from pvdm.trust.keys.file import create_file_keys, open_file_keys
from pvdm.trust.keys.handles import HandleRecord, HandleRegistry, Handles, HandleState, InProcessRegistry
from pvdm.trust.keys.passphrase import Passphrase
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.keys.service import (
    AttemptKeys,
    EpochKeyService,
    EpochStore,
    KeyHome,
    KeyService,
    Signer,
    attempt_keys,
    release,
)

__all__ = [
    "Algorithm",
    "AttemptContext",
    "AttemptKeys",
    "Epoch",
    "EpochBook",
    "EpochChange",
    "EpochKeyService",
    "EpochStore",
    "HandleRecord",
    "HandleRegistry",
    "HandleState",
    "Handles",
    "InProcessRegistry",
    "KeyEntry",
    "KeyHome",
    "KeyRole",
    "KeyService",
    "Passphrase",
    "PublicKey",
    "Purpose",
    "Signer",
    "SourceContext",
    "attempt_keys",
    "create_file_keys",
    "open_file_keys",
    "release",
]
