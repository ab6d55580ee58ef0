"""A transparency log in memory for tests: its storage, signing keys and entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pvdm.errors import RolledBackError
from pvdm.model.statements.kind import StatementKind
from pvdm.trust.keys.public import PublicKey, SigningKey
from pvdm.trust.log import log as log_module
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import SignedCheckpoint
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.merkle import ConsistencyProof, InclusionProof, Node, fold, grow, leaf_hash
from pvdm.trust.log.note import NoteKey

ORIGIN = "log.example/orders"
KINDS = tuple(StatementKind)


class MemorySigner:
    """An Ed25519 key from a seed."""

    def __init__(self, seed: int) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(sha256(b"test key %d" % seed).digest())

    @property
    def public(self) -> PublicKey:
        return PublicKey.from_der(self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def sign(self, message: bytes, /) -> bytes:
        return self._key.sign(message)


class EcdsaSigner:
    """An ECDSA P-256 key from a seed: the kind of key that AWS KMS has."""

    def __init__(self, seed: int) -> None:
        self._key = ec.derive_private_key(seed + 1, ec.SECP256R1())

    @property
    def public(self) -> PublicKey:
        return PublicKey.from_der(self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    def sign(self, message: bytes, /) -> bytes:
        return self._key.sign(message, ec.ECDSA(SHA256()))


@dataclass
class MemoryStorage:
    """The log's entries, tree hashes and newest signed checkpoint (`note`), and the number of hashes read."""

    entries: list[bytes] = field(default_factory=list)
    hashes: dict[Node, bytes] = field(default_factory=dict)
    note: bytes | None = None
    hashes_read: int = 0

    def size(self) -> int:
        return len(self.entries)

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        self.hashes_read += len(nodes)
        return [self.hashes[node] for node in nodes]

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        assert 0 <= start <= end <= len(self.entries)
        return self.entries[start:end]

    def newest_checkpoint(self) -> bytes | None:
        return self.note

    def append(self, *, at: int, entries: Sequence[bytes], hashes: Mapping[Node, bytes], checkpoint: bytes) -> None:
        if at != len(self.entries):
            raise RolledBackError("log_moved", "another append was first", expected=str(at), got=str(len(self.entries)))
        self.entries += entries
        self.hashes |= hashes
        self.note = checkpoint

    def copy(self) -> MemoryStorage:
        return MemoryStorage(list(self.entries), dict(self.hashes), self.note)


SIGNER = MemorySigner(0)
KEY = NoteKey(ORIGIN, SIGNER.public.der)


def entry(number: int, salt: str = "") -> LogEntry:
    """The test entry with this number. Another `salt` gives another digest."""
    digest = sha256(f"{salt}{number}".encode()).hexdigest()
    return LogEntry(KINDS[number % len(KINDS)], digest, 1_700_000_000_000_000 + number)


def entries(start: int, end: int, salt: str = "") -> list[LogEntry]:
    """The test entries from number `start` to before `end`."""
    return [entry(number, salt) for number in range(start, end)]


class Log(log_module.Log):
    """The log of the source, with methods that append in one step and that make proofs at any size."""

    def append(self, added: Sequence[LogEntry]) -> log_module.AppendedEntries:
        return self.prepare(added).store(self._storage)

    def prove_inclusion(self, index: int, size: int) -> InclusionProof:
        return merkle.prove_inclusion(self._storage, index=index, size=self._require_size(size))

    def prove_consistency(self, old_size: int, new_size: int) -> ConsistencyProof:
        return merkle.prove_consistency(self._storage, old_size=old_size, new_size=self._require_size(new_size))


def open_log(storage: MemoryStorage, signer: SigningKey = SIGNER) -> Log:
    return Log(storage, origin=ORIGIN, signer=signer)


def filled_log(size: int, salt: str = "") -> tuple[MemoryStorage, Log]:
    """A log with `size` entries, all appended in one append, and its storage."""
    storage = MemoryStorage()
    log = open_log(storage)
    if size:
        log.append(entries(0, size, salt))
    return storage, log


def log_grown_to(sizes: Iterable[int]) -> tuple[MemoryStorage, Log, list[SignedCheckpoint]]:
    """A log that grew to each of these sizes in turn, after its storage and before the checkpoint at each size."""
    storage, old_size = MemoryStorage(), 0
    log, checkpoints = open_log(storage), []
    for size in sizes:
        checkpoints.append(log.append(entries(old_size, size)).checkpoint)
        old_size = size
    return storage, log, checkpoints


def tree_of(leaves: Sequence[bytes]) -> MemoryStorage:
    """A storage with these leaves and the hashes of their tree, for test vectors whose leaves are not log entries."""
    storage = MemoryStorage(entries=list(leaves))
    grow([], 0, map(leaf_hash, leaves), storage.hashes.__setitem__)
    return storage


def root_by_definition(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash (MTH) of the leaves, by the recursion of RFC 6962, section 2.1."""
    if len(leaves) <= 1:
        return fold([leaf_hash(leaf) for leaf in leaves])
    middle = 1
    while middle * 2 < len(leaves):
        middle *= 2
    left, right = root_by_definition(leaves[:middle]), root_by_definition(leaves[middle:])
    return sha256(b"\x01" + left + right).digest()
