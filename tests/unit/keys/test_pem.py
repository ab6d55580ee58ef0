"""Key pairs as PEM files: two files, the private one for its owner only, neither overwritten."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pvdm.errors import InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.trust.keys.pem import create_key_pair, open_key_pair, read_public_key
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.keys.seal import Passphrase
from tests.support.for_each import for_each

WORD = Passphrase("correct horse battery staple")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "glass.pem"


@pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: algorithm.value)
@pytest.mark.parametrize("word", [None, WORD], ids=["open", "sealed"])
def test_a_pair_signs_what_its_public_half_verifies(path: Path, algorithm: Algorithm, word: Passphrase | None) -> None:
    public = create_key_pair(path, algorithm=algorithm, passphrase=word)
    public.verify(open_key_pair(path, word).sign(b"override"), b"override")


@pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: algorithm.value)
def test_a_signature_over_other_bytes_is_refused(path: Path, algorithm: Algorithm) -> None:
    public = create_key_pair(path, algorithm=algorithm)
    with pytest.raises(VerificationError) as caught:
        public.verify(open_key_pair(path).sign(b"override"), b"another")
    assert caught.value.reason == "signature_invalid"


def test_the_private_file_has_mode_0600_and_the_public_one_0644(path: Path) -> None:
    create_key_pair(path)
    public = path.with_name("glass.pem.pub")
    assert (path.stat().st_mode & 0o7777, public.stat().st_mode & 0o7777) == (0o600, 0o644)


def test_the_public_file_holds_the_public_half(path: Path) -> None:
    assert create_key_pair(path) == read_public_key(path.with_name("glass.pem.pub"))


@pytest.mark.parametrize("name", ["glass.pem", "glass.pem.pub"])
def test_no_file_is_overwritten(path: Path, name: str) -> None:
    path.with_name(name).write_text("there before")
    with pytest.raises(NotAllowedError) as caught:
        create_key_pair(path)
    assert (caught.value.reason, path.with_name(name).read_text()) == ("key_file_exists", "there before")


def test_a_private_file_that_others_may_read_is_refused(path: Path) -> None:
    create_key_pair(path)
    path.chmod(0o640)
    with pytest.raises(NotAllowedError) as caught:
        open_key_pair(path)
    assert caught.value.reason == "key_file_mode"


def test_a_public_file_that_others_may_write_is_refused(path: Path) -> None:
    create_key_pair(path)
    path.with_name("glass.pem.pub").chmod(0o664)
    with pytest.raises(NotAllowedError) as caught:
        read_public_key(path.with_name("glass.pem.pub"))
    assert caught.value.reason == "key_file_mode"


@pytest.mark.parametrize(("created_with", "opened_with"), [(WORD, None), (WORD, Passphrase("another")), (None, WORD)])
def test_a_wrong_passphrase_is_refused(
    path: Path, created_with: Passphrase | None, opened_with: Passphrase | None
) -> None:
    create_key_pair(path, passphrase=created_with)
    with pytest.raises(InputError) as caught:
        open_key_pair(path, opened_with)
    assert caught.value.reason == "private_key_malformed"


@pytest.mark.parametrize("kind", ["rsa", "p384", "text"])
def test_a_key_of_another_kind_is_refused(path: Path, kind: str) -> None:
    private = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        b"hello" if kind == "text" else private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    path.chmod(0o600)
    with pytest.raises(InputError) as caught:
        open_key_pair(path)
    assert caught.value.reason == "private_key_malformed"


def test_the_key_id_is_the_hash_of_the_der(path: Path) -> None:
    public = create_key_pair(path)
    assert public.key_id == hashlib.sha256(public.der).hexdigest()


def other_public_key(kind: str) -> bytes:
    der, form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    p256 = ec.generate_private_key(ec.SECP256R1()).public_key()
    match kind:
        case "rsa":
            return rsa.generate_private_key(65537, 2048).public_key().public_bytes(der, form)
        case "p384":
            return ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(der, form)
        case "compressed":
            header = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
            return header + p256.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        case "trailing":
            return p256.public_bytes(der, form) + b"\0"
        case "long":
            return bytes(2000)
        case _:
            return b"hello"


@for_each("kind", ["rsa", "p384", "compressed", "trailing", "long", "text"])
def test_a_public_key_of_another_kind_or_spelling_is_refused(kind: str) -> None:
    with pytest.raises(PvdmError) as caught:
        PublicKey.from_der(other_public_key(kind))
    assert caught.value.reason == "public_key_malformed"


def test_a_key_under_the_name_of_another_algorithm_is_refused(path: Path) -> None:
    public = create_key_pair(path)
    with pytest.raises(InputError) as caught:
        PublicKey(Algorithm.ECDSA_P256, public.der)
    assert caught.value.reason == "public_key_malformed"
