"""A key home in AWS KMS: HMAC keys derive keys by GenerateMac, and P-256 keys sign. No root key leaves KMS."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.lake.stores.s3_client import hide_bodies
from pvdm.trust.keys.epochs import KeyEntry, KeyRole
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.keys.service import EpochStore, KeyService

KMS_TRIES_MAX: Final = 10
KMS_TIMEOUT_MAX_SECONDS: Final = 60

# KMS hashes messages of 1 to this many bytes itself. Other messages are hashed here. The signed hash is the same.
_RAW_MESSAGE_BYTES: Final = 4_096
_DELETION_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class KmsSettings:
    """Where KMS is, and how calls are made. Credentials come from the AWS credential chain."""

    region: str
    endpoint: str | None = None  # None: the region's endpoint
    timeout_seconds: int = 5  # for connecting, and for each read
    tries: int = 4

    def __post_init__(self) -> None:
        for name, largest in (("timeout_seconds", KMS_TIMEOUT_MAX_SECONDS), ("tries", KMS_TRIES_MAX)):
            if not 1 <= (value := getattr(self, name)) <= largest:
                message = f"{name} cannot be used"
                raise Code.CONFIG_INVALID(message, reason="kms_settings", expected=f"1 to {largest}", got=str(value))


class KmsHome:
    """A key home over one KMS client. A reference is the key's ARN, so that a moved alias changes nothing."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def make(self, role: KeyRole) -> KeyEntry:
        """Make a new KMS key, tagged with its role."""
        usage, spec = ("SIGN_VERIFY", "ECC_NIST_P256") if role.signs else ("GENERATE_VERIFY_MAC", "HMAC_256")
        response = self._call(
            self._client.create_key,
            KeyUsage=usage,
            KeySpec=spec,
            Description=f"pvdm {role.value}",
            Tags=[{"TagKey": "pvdm-role", "TagValue": role.value}],
        )
        match response:
            case {"KeyMetadata": {"Arn": str(reference)}}:
                return KeyEntry(role, reference, self._fetch_public(reference) if role.signs else None)
        raise _inconsistent_error("a response with KeyMetadata and Arn", "one without")

    def drop(self, entry: KeyEntry) -> None:
        """Let KMS delete the key after its shortest waiting time."""
        # Only new keys that are not needed are dropped. They are in this account, so the id without the ARN is enough.
        key_id = entry.reference.rpartition("/")[2]
        self._call(self._client.schedule_key_deletion, KeyId=key_id, PendingWindowInDays=_DELETION_DAYS)

    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        """HMAC-SHA256 of the message, computed by KMS."""
        key_id, algorithm = entry.reference, "HMAC_SHA_256"
        response = self._call(self._client.generate_mac, KeyId=key_id, MacAlgorithm=algorithm, Message=message)
        return _read_blob(key_id, "Mac", response)

    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        """The ECDSA signature of the data's SHA-256, in DER."""
        raw = 1 <= len(data) <= _RAW_MESSAGE_BYTES
        response = self._call(
            self._client.sign,
            KeyId=entry.reference,
            SigningAlgorithm="ECDSA_SHA_256",
            MessageType="RAW" if raw else "DIGEST",
            Message=data if raw else hashlib.sha256(data).digest(),
        )
        return _read_blob(entry.reference, "Signature", response)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _fetch_public(self, reference: str) -> PublicKey:
        response = self._call(self._client.get_public_key, KeyId=reference)
        public = PublicKey.from_der(_read_blob(reference, "PublicKey", response))
        if public.algorithm is not Algorithm.ECDSA_P256:
            raise _inconsistent_error("an ECDSA key on P-256", public.algorithm.value)
        return public

    def _call(self, operation: Callable[..., Any], **arguments: object) -> Any:
        # The response may hold a derived key, and the library's errors may hold the response. So our error is raised
        # outside the handler: it has neither as its context, and no local of this frame holds them.
        failure: PvdmError | None = None
        try:
            return operation(**arguments)
        except Exception as error:
            failure = _translate(error)
        raise failure


def open_kms_keys(settings: KmsSettings, store: EpochStore) -> KeyService:
    """The key service over KMS. `store` has the epoch book."""
    return KeyService(KmsHome(_connect(settings)), store)


def _connect(settings: KmsSettings) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise Code.DEPENDENCY_MISSING(reason="kms_missing", got="none") from None
    hide_bodies()  # the library's log would show responses, which hold derived keys
    config = Config(
        connect_timeout=settings.timeout_seconds,
        read_timeout=settings.timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.tries},
    )
    try:
        session = boto3.session.Session()
        return session.client("kms", region_name=settings.region, endpoint_url=settings.endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise Code.CONFIG_INVALID(reason="kms_settings", got=type(error).__name__) from None


def _translate(error: Exception) -> PvdmError:
    from botocore.exceptions import BotoCoreError, ClientError

    match error:
        case ClientError():
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            got = str(error.response.get("Error", {}).get("Code", "an error without a code"))[:160]
            reason = "kms_refused" if 400 <= status < 500 else "kms_unavailable"
            return Code.KEY_HOME_UNAVAILABLE(reason=reason, got=got)
        case BotoCoreError() | OSError():
            return Code.KEY_HOME_UNAVAILABLE(reason="kms_unavailable", got=type(error).__name__)
        case _:
            raise error


def _read_blob(reference: str, name: str, response: Any) -> bytes:
    """The bytes under `name` in a response, which must be about this key."""
    blob, key_id = response.get(name), response.get("KeyId")
    del response
    # Some versions of the service return the bare id.
    arn = f"{reference.rpartition('/')[0]}/{key_id}"
    if isinstance(blob, bytes) and isinstance(key_id, str) and reference in {key_id, arn}:
        return blob
    # An error may be shown with the locals of its frames: the blob may be a key.
    del blob
    raise _inconsistent_error(f"{name} of {reference}", f"a response about {key_id}"[:160])


def _inconsistent_error(expected: str, got: str) -> UnavailableError:
    return UnavailableError("key_home_inconsistent", "KMS returned an unexpected response", expected=expected, got=got)
