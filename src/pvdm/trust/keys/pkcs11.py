"""A key home in a PKCS#11 token (an HSM, or SoftHSM2). Keys are not extractable. A process has one session with it."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from pvdm.errors import Code, PvdmError
from pvdm.trust.keys.epochs import KeyEntry, KeyRole
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import EpochStore, KeyService

if TYPE_CHECKING:
    from pkcs11 import Session

_Result = TypeVar("_Result")

# The values of CKA_EC_PARAMS: DER of the curve's OID. The library has no name for Edwards curves.
_CURVES: Final = {
    Algorithm.ED25519: bytes.fromhex("06032b6570"),
    Algorithm.ECDSA_P256: bytes.fromhex("06082a8648ce3d030107"),
}


@dataclass(frozen=True, slots=True)
class Pkcs11Settings:
    """The token and its library, without the PIN."""

    library: str  # the path of the PKCS#11 module
    token: str  # the token's label
    algorithm: Algorithm = Algorithm.ED25519  # of new keys that sign


class Pkcs11Home:
    """A key home over one token. A reference is the hex of the key's CKA_ID."""

    __slots__ = ("_algorithm", "_connection")

    def __init__(self, settings: Pkcs11Settings, pin: Passphrase) -> None:
        self._algorithm = settings.algorithm
        self._connection: _Connection | None = _connect(settings, pin)

    def make(self, role: KeyRole) -> KeyEntry:
        """Make a new key inside the token, under a random id."""
        reference = os.urandom(16).hex()
        if not role.signs:
            self._run(lambda session: _make_root(session, role, reference))
            return KeyEntry(role, reference)
        algorithm = self._algorithm
        point = self._run(lambda session: _make_pair(session, algorithm, role, reference))
        return KeyEntry(role, reference, _decode_public(algorithm, point))

    def drop(self, entry: KeyEntry) -> None:
        """Destroy the key in the token."""
        self._run(lambda session: _destroy(session, entry.reference))

    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        """HMAC-SHA256 of the message, computed in the token."""
        return self._run(lambda session: _mac(session, entry.reference, message))

    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        """The signature of the data: 64 bytes for Ed25519, DER for ECDSA with SHA-256."""
        public = entry.public
        if public is None:
            message, got = "this key does not sign", entry.role.value
            raise Code.KEY_HOME_UNAVAILABLE(message, reason="key_reference_unknown", expected="signing or log", got=got)
        return self._run(lambda session: _sign(session, public.algorithm, entry.reference, data))

    def close(self) -> None:
        """Stop using the token. Closing the last open home of this process with this token also ends its session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _disconnect(connection)

    def _run(self, operation: Callable[[Session], _Result]) -> _Result:
        if self._connection is None:
            raise Code.KEY_HOME_UNAVAILABLE("the token is closed", reason="key_home_closed", got="closed")
        return self._connection.run(operation)


def open_pkcs11_keys(settings: Pkcs11Settings, pin: Passphrase, store: EpochStore) -> KeyService:
    """The key service over a token. `store` has the epoch book."""
    return KeyService(Pkcs11Home(settings, pin), store)


class _Connection:
    """The process's only session with a token, because a login is for the whole process. `users` counts key homes."""

    __slots__ = ("_lock", "_session", "pin", "settings", "users")

    def __init__(self, settings: Pkcs11Settings, pin: Passphrase) -> None:
        self.settings = settings
        self.pin = pin
        self.users = 0
        self._lock = threading.Lock()
        self._session: Session | None = None

    def run(self, operation: Callable[[Session], _Result]) -> _Result:
        """Run the operation while no other runs. An error ends the session; the next operation opens a new one."""
        failure: PvdmError | None = None
        with self._lock:
            try:
                if self._session is None:
                    self._session = _login(self.settings, self.pin)
                return operation(self._session)
            except PvdmError:
                raise
            except Exception as error:
                failure = _translate(error)
                self._end()
        raise failure

    def close(self) -> None:
        """End the session."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        from pkcs11.exceptions import PKCS11Error

        try:
            session.close()
        except PKCS11Error:
            return  # the session has ended already


_connections: dict[tuple[str, str], _Connection] = {}
_connections_lock: Final = threading.Lock()


def _connect(settings: Pkcs11Settings, pin: Passphrase) -> _Connection:
    name = (settings.library, settings.token)
    with _connections_lock:
        connection = _connections.get(name)
        if connection is None:
            connection = _Connection(settings, pin)
            connection.run(lambda _: None)  # log in now, so that a wrong PIN is noticed
            _connections[name] = connection
        elif not hmac.compare_digest(connection.pin.reveal(), pin.reveal()):
            raise Code.KEY_NOT_OPENED(reason="pkcs11_pin_wrong", got="another")
        connection.users += 1
        return connection


def _disconnect(connection: _Connection) -> None:
    with _connections_lock:
        connection.users -= 1
        if connection.users == 0:
            _connections.pop((connection.settings.library, connection.settings.token), None)
            connection.close()


def _login(settings: Pkcs11Settings, pin: Passphrase) -> Session:
    try:
        import pkcs11
    except ImportError:
        raise Code.DEPENDENCY_MISSING(reason="pkcs11_missing", got="none") from None
    token = pkcs11.lib(settings.library).get_token(token_label=settings.token)
    return token.open(rw=True, user_pin=pin.reveal().decode())


def _make_root(session: Session, role: KeyRole, reference: str) -> None:
    """Make a key from which attempts' keys are derived."""
    from pkcs11 import KeyType, MechanismFlag

    session.generate_key(
        KeyType.GENERIC_SECRET,
        256,
        id=bytes.fromhex(reference),
        label=f"pvdm {role.value}",
        store=True,
        capabilities=MechanismFlag.SIGN,
        template=_private_attributes(),
    )


def _make_pair(session: Session, algorithm: Algorithm, role: KeyRole, reference: str) -> bytes:
    """Make a key pair that signs. Returns the public key's point, as the token encodes it (CKA_EC_POINT)."""
    from pkcs11 import Attribute, KeyType, Mechanism, MechanismFlag

    edwards = algorithm is Algorithm.ED25519
    parameters = session.create_domain_parameters(
        KeyType.EC_EDWARDS if edwards else KeyType.EC, {Attribute.EC_PARAMS: _CURVES[algorithm]}, local=True
    )
    public, _ = parameters.generate_keypair(
        mechanism=Mechanism.EC_EDWARDS_KEY_PAIR_GEN if edwards else Mechanism.EC_KEY_PAIR_GEN,
        id=bytes.fromhex(reference),
        label=f"pvdm {role.value}",
        store=True,
        capabilities=MechanismFlag.SIGN | MechanismFlag.VERIFY,
        private_template=_private_attributes(),
    )
    return bytes(public[Attribute.EC_POINT])


def _private_attributes() -> dict[Any, Any]:
    from pkcs11 import Attribute

    return {Attribute.SENSITIVE: True, Attribute.EXTRACTABLE: False, Attribute.PRIVATE: True}


def _destroy(session: Session, reference: str) -> None:
    from pkcs11 import Attribute

    for found in list(session.get_objects({Attribute.ID: bytes.fromhex(reference)})):
        found.destroy()


def _mac(session: Session, reference: str, message: bytes) -> bytes:
    from pkcs11 import Mechanism, ObjectClass

    key: Any = session.get_key(object_class=ObjectClass.SECRET_KEY, id=bytes.fromhex(reference))
    return bytes(key.sign(message, mechanism=Mechanism.SHA256_HMAC))


def _sign(session: Session, algorithm: Algorithm, reference: str, data: bytes) -> bytes:
    from pkcs11 import Mechanism, ObjectClass

    key: Any = session.get_key(object_class=ObjectClass.PRIVATE_KEY, id=bytes.fromhex(reference))
    if algorithm is Algorithm.ED25519:
        return bytes(key.sign(data, mechanism=Mechanism.EDDSA))
    r_and_s = bytes(key.sign(hashlib.sha256(data).digest(), mechanism=Mechanism.ECDSA))
    half = len(r_and_s) // 2
    return encode_dss_signature(int.from_bytes(r_and_s[:half], "big"), int.from_bytes(r_and_s[half:], "big"))


def _decode_public(algorithm: Algorithm, point: bytes) -> PublicKey:
    # CKA_EC_POINT is a DER OCTET STRING around the point. A point is below 128 bytes, so the header has 2 bytes.
    if point[:1] != b"\x04" or len(point) < 2 or point[1] != len(point) - 2:
        message, got = "the token returned a malformed public key", "something else"
        raise Code.KEY_HOME_UNAVAILABLE(message, reason="key_home_inconsistent", expected="a DER octet string", got=got)
    if algorithm is Algorithm.ED25519:
        return PublicKey.from_loaded(ed25519.Ed25519PublicKey.from_public_bytes(point[2:]))
    return PublicKey.from_loaded(ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point[2:]))


def _translate(error: Exception) -> PvdmError:
    from pkcs11 import exceptions

    match error:
        case exceptions.PinIncorrect() | exceptions.PinLenRange() | exceptions.PinInvalid():
            return Code.KEY_NOT_OPENED(reason="pkcs11_pin_wrong", got="another")
        case exceptions.PinLocked():
            return Code.KEY_NOT_OPENED(reason="pkcs11_pin_locked", got="locked")
        case exceptions.NoSuchToken() | exceptions.MultipleTokensReturned() | exceptions.NoSuchKey():
            return Code.KEY_HOME_UNAVAILABLE(reason="pkcs11_not_found", got=type(error).__name__)
        case exceptions.PKCS11Error() | RuntimeError() | OSError():
            return Code.KEY_HOME_UNAVAILABLE(reason="pkcs11_unavailable", got=type(error).__name__)
        case _:
            raise error
