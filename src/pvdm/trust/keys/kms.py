"""Keys in AWS KMS: HMAC keys derive by GenerateMac, and P-256 keys sign. No key leaves the service."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.lake.stores.s3_client import hide_bodies
from pvdm.trust.keys.epochs import KeyEntry, KeyRole
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.keys.service import EpochStore, KeyService

KMS_TRIES_MAX: Final = 10
KMS_TIMEOUT_MAX_SECONDS: Final = 60

# KMS hashes 1 to this many bytes itself; other data is hashed here and sent as a digest. The signature is the same.
_RAW_MESSAGE_BYTES: Final = 4_096
_DELETION_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class KmsSettings:
    """The region of KMS and its timeouts. Credentials come from the AWS credential chain."""

    region: str
    endpoint: str | None = None
    timeout_seconds: int = 5
    tries: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_seconds <= KMS_TIMEOUT_MAX_SECONDS:
            most, got = f"1 to {KMS_TIMEOUT_MAX_SECONDS}", str(self.timeout_seconds)
            raise Code.KMS_SETTINGS("timeout_seconds cannot be used", expected=most, got=got)
        if not 1 <= self.tries <= KMS_TRIES_MAX:
            raise Code.KMS_SETTINGS("tries cannot be used", expected=f"1 to {KMS_TRIES_MAX}", got=str(self.tries))


class KmsHome:
    """A key home over one KMS client. A reference is the key's ARN, so that aliases do not matter."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def make(self, role: KeyRole) -> KeyEntry:
        """A new KMS key, tagged with its role."""
        usage, spec = ("SIGN_VERIFY", "ECC_NIST_P256") if role.signs else ("GENERATE_VERIFY_MAC", "HMAC_256")
        answer = self._ask(
            self._client.create_key,
            KeyUsage=usage,
            KeySpec=spec,
            Description=f"pvdm {role.value}",
            Tags=[{"TagKey": "pvdm-role", "TagValue": role.value}],
        )
        reference = _arn_of(answer)
        return KeyEntry(role, reference, self._public(reference) if role.signs else None)

    def drop(self, entry: KeyEntry) -> None:
        """Let KMS delete the key after its shortest waiting time."""
        # By its bare id: it is in this account, where it was just made.
        key_id = entry.reference.rpartition("/")[2]
        self._ask(self._client.schedule_key_deletion, KeyId=key_id, PendingWindowInDays=_DELETION_DAYS)

    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        """HMAC-SHA256 of the message, computed by KMS."""
        key_id, algorithm = entry.reference, "HMAC_SHA_256"
        answer = self._ask(self._client.generate_mac, KeyId=key_id, MacAlgorithm=algorithm, Message=message)
        return _blob(key_id, "Mac", answer)

    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        """The ECDSA signature of the data's SHA-256, in DER."""
        raw = 1 <= len(data) <= _RAW_MESSAGE_BYTES
        answer = self._ask(
            self._client.sign,
            KeyId=entry.reference,
            SigningAlgorithm="ECDSA_SHA_256",
            MessageType="RAW" if raw else "DIGEST",
            Message=data if raw else hashlib.sha256(data).digest(),
        )
        return _blob(entry.reference, "Signature", answer)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _public(self, reference: str) -> PublicKey:
        answer = self._ask(self._client.get_public_key, KeyId=reference)
        public = PublicKey.from_der(_blob(reference, "PublicKey", answer))
        if public.algorithm is not Algorithm.ECDSA_P256:
            raise _inconsistent("an ECDSA key on P-256", public.algorithm.value)
        return public

    def _ask(self, call: Callable[..., Any], **arguments: object) -> Any:
        # The answer may hold a key and the library's errors may hold the answer: neither is chained to ours, and
        # ours is raised where no local holds them.
        failure: PvdmError | None = None
        try:
            return call(**arguments)
        except Exception as error:
            failure = _failure(error)
        raise failure


def open_kms_keys(settings: KmsSettings, store: EpochStore) -> KeyService:
    """The key service over KMS. `store` has the epoch book."""
    return KeyService(KmsHome(_client(settings)), store)


def _client(settings: KmsSettings) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise Code.KMS_MISSING(got="none") from None
    hide_bodies()
    config = Config(
        connect_timeout=settings.timeout_seconds,
        read_timeout=settings.timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.tries},
    )
    try:
        return boto3.session.Session().client(
            "kms", region_name=settings.region, endpoint_url=settings.endpoint, config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise Code.KMS_SETTINGS(got=type(error).__name__) from None


def _failure(error: Exception) -> PvdmError:
    from botocore.exceptions import BotoCoreError, ClientError

    match error:
        case ClientError():
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            got = str(error.response.get("Error", {}).get("Code", "an error without a code"))[:160]
            return (Code.KMS_REFUSED if 400 <= status < 500 else Code.KMS_UNAVAILABLE)(got=got)
        case BotoCoreError() | OSError():
            return Code.KMS_UNAVAILABLE(got=type(error).__name__)
        case _:
            raise error


def _arn_of(answer: Any) -> str:
    metadata = answer.get("KeyMetadata")
    arn = metadata.get("Arn") if isinstance(metadata, Mapping) else None
    if not isinstance(arn, str):
        raise _inconsistent("an answer with KeyMetadata and Arn", "one without")
    return arn


def _blob(reference: str, name: str, answer: Any) -> bytes:
    blob, key_id = answer.get(name), answer.get("KeyId")
    del answer
    if isinstance(blob, bytes) and isinstance(key_id, str) and reference in {key_id, _arn(reference, key_id)}:
        return blob
    del blob
    raise _inconsistent(f"{name} of {reference}", f"an answer about {key_id}"[:160])


def _arn(reference: str, key_id: str) -> str:
    # Some versions of the service answer with the bare id.
    return f"{reference.rpartition('/')[0]}/{key_id}"


def _inconsistent(expected: str, got: str) -> UnavailableError:
    return UnavailableError(Code.KEY_HOME_INCONSISTENT, "KMS gave an unexpected answer", expected=expected, got=got)
