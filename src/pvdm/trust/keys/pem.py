"""Key pairs in PEM files. They belong to people (operators, attestors, root signers) or to an embedded Steward."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pvdm.errors import Code
from pvdm.model.secret import NoCopies, Secret
from pvdm.trust.keys import disk
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.keys.seal import Passphrase

PRIVATE_KEY_SIZE_MAX_BYTES: Final = 8_192

_Private: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


class PemKeyPair(NoCopies):
    """A key pair, opened from its PEM file. It signs approvals, trust roots and other statements."""

    __slots__ = ("_private", "public")

    def __init__(self, private: _Private) -> None:
        self._private = private
        self.public = PublicKey.from_loaded(private.public_key())

    def __repr__(self) -> str:
        return f"PemKeyPair(key_id={self.public.key_id})"

    def sign(self, data: bytes) -> bytes:
        """The signature of the data: 64 bytes for Ed25519, DER for ECDSA with SHA-256."""
        match self._private:
            case ed25519.Ed25519PrivateKey() as key:
                return key.sign(data)
            case key:
                return key.sign(data, ec.ECDSA(SHA256()))


def create_key_pair(
    path: Path, *, algorithm: Algorithm = Algorithm.ED25519, passphrase: Passphrase | None = None
) -> PublicKey:
    """Write a new private key to `path` and its public half to `path` plus `.pub`. Existing files are an error."""
    if algorithm is Algorithm.ED25519:
        private: _Private = ed25519.Ed25519PrivateKey.generate()
    else:
        private = ec.generate_private_key(ec.SECP256R1())
    public = PublicKey.from_loaded(private.public_key())
    public_path = path.with_name(f"{path.name}.pub")
    if public_path.exists():
        raise disk.file_exists_error(public_path)
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.reveal())
    pem = Secret(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    disk.write(path, pem, mode=disk.PRIVATE_MODE, fresh=True)
    disk.write(public_path, Secret(public.to_pem()), mode=disk.PUBLIC_MODE, fresh=True)
    return public


def open_key_pair(path: Path, passphrase: Passphrase | None = None) -> PemKeyPair:
    """The key pair of a private key file, whose mode and owner are checked."""
    private = _try_load(Secret(disk.read_own(path, size_max_bytes=PRIVATE_KEY_SIZE_MAX_BYTES)), passphrase)
    if private is None:
        raise Code.KEY_INVALID(f"{path.name} cannot be opened", reason="private_key_malformed", got="something else")
    return PemKeyPair(private)


def read_public_key(path: Path) -> PublicKey:
    """The public key in this PEM file."""
    return PublicKey.from_pem(disk.read_own(path, size_max_bytes=PRIVATE_KEY_SIZE_MAX_BYTES, private=False))


def _try_load(pem: Secret, passphrase: Passphrase | None) -> _Private | None:
    # No error leaves this function: the library's errors may hold the key or the passphrase.
    try:
        loaded = load_pem_private_key(pem.reveal(), None if passphrase is None else passphrase.reveal())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    match loaded:
        case ed25519.Ed25519PrivateKey():
            return loaded
        case ec.EllipticCurvePrivateKey() if isinstance(loaded.curve, ec.SECP256R1):
            return loaded
        case _:
            return None
