"""Roles of an object store: session policies, vended sessions, and seals in bucket policies."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code
from pvdm.lake.paths import Location
from pvdm.lake.stores.s3_client import S3Credentials, S3Settings, call_store, open_client
from pvdm.model.secret import Secret

SESSION_POLICY_MAX_CHARACTERS: Final = 2_048
BUCKET_POLICY_MAX_BYTES: Final = 20_480
SEAL_STEP_SECONDS: Final = 300
"""Seals that end within one such step share a statement, since the size of a bucket's policy is limited."""
_VERSION: Final = "2012-10-17"
_SEAL: Final = re.compile(r"PvdmSealUntil([0-9]{1,12})")
# The actions that change or hide a file. Completing a multipart upload is PutObject too.
DENIED: Final = (
    "s3:AbortMultipartUpload",
    "s3:BypassGovernanceRetention",
    "s3:DeleteObject",
    "s3:DeleteObjectTagging",
    "s3:DeleteObjectVersion",
    "s3:PutObject",
    "s3:PutObjectAcl",
    "s3:PutObjectTagging",
    "s3:RestoreObject",
)
_WRITE: Final = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_READ: Final = ("s3:GetObject", "s3:GetObjectVersion")
_PARTITION: Final = re.compile(r"arn:([a-z0-9-]+):iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}")

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Role:
    """A role of the object store, by its ARN."""

    arn: str

    def __post_init__(self) -> None:
        if _PARTITION.fullmatch(self.arn) is None:
            raise Code.S3_SETTINGS("not a role ARN", expected="arn:aws:iam::<account>:role/<name>", got=self.arn[:80])

    @property
    def partition(self) -> str:
        """The AWS partition of the ARN."""
        return self.arn.split(":")[1]


def session_policy(role: Role, *, write: Iterable[Location], read: Iterable[Location]) -> str:
    """The policy that limits a session of the role to these places."""
    writing, reading = list(write), [*write, *read]
    statements: list[Document] = []
    if writing:
        statements.append(_allow(_WRITE, [_below(role.partition, each) for each in writing]))
    statements.append(_allow(_READ, [_below(role.partition, each) for each in reading]))
    # Readers get every name from the catalog. Staged files have random names below the table, so that without a
    # listing other sessions do not find them.
    for bucket in sorted({each.authority for each in writing}):
        inside = [_escaped(f"{'/'.join(each.parts)}/") + "*" for each in writing if each.authority == bucket]
        listing = _allow(("s3:ListBucket",), [f"arn:{role.partition}:s3:::{bucket}"])
        statements.append({**listing, "Condition": {"StringLike": {"s3:prefix": inside}}})
    text = _text({"Version": _VERSION, "Statement": statements})
    if len(text) > SESSION_POLICY_MAX_CHARACTERS:
        expected = f"at most {SESSION_POLICY_MAX_CHARACTERS} characters"
        raise Code.SESSION_POLICY_TOO_LONG(expected=expected, got=str(len(text)))
    return text


def add_seal(policy: str | None, role: Role, prefix: Location, *, until: int, now: int) -> str:
    """The bucket's policy with a seal on the prefix for sessions of the role, and without seals that have ended.

    Other statements are kept as they are.
    """
    document = _parsed(policy)
    seals = {end: list(resources) for end, resources in _seals(document).items() if end > now}
    resource = _below(role.partition, prefix)
    end = -(-until // SEAL_STEP_SECONDS) * SEAL_STEP_SECONDS
    if not any(resource in resources for at, resources in seals.items() if at >= until):
        seals.setdefault(end, []).append(resource)
    others = [each for each in document["Statement"] if _end_of(each) is None]
    own = [_seal(role, at, resources) for at, resources in sorted(seals.items())]
    text = _text({**document, "Statement": [*others, *own]})
    if len(text.encode()) > BUCKET_POLICY_MAX_BYTES:
        expected = f"at most {BUCKET_POLICY_MAX_BYTES} bytes"
        raise Code.SEAL_FAILED(reason="seal_policy_full", expected=expected, got=str(len(text.encode())))
    return text


def is_sealed(policy: str | None, role: Role, prefix: Location, *, until: int) -> bool:
    """Whether the policy has a seal on the prefix until that time or longer."""
    resource = _below(role.partition, prefix)
    return any(
        end >= until and resource in _texts(each.get("Resource")) and _denies(each, role)
        for each in _parsed(policy)["Statement"]
        if (end := _end_of(each)) is not None
    )


def _denies(statement: Document, role: Role) -> bool:
    principal = statement.get("Principal")
    whom = _texts(principal.get("AWS")) if isinstance(principal, dict) else []
    return (
        statement.get("Effect") == "Deny" and role.arn in whom and set(DENIED) <= set(_texts(statement.get("Action")))
    )


def _seal(role: Role, end: int, resources: Sequence[str]) -> Document:
    return {
        "Sid": f"PvdmSealUntil{end}",
        "Effect": "Deny",
        "Principal": {"AWS": role.arn},
        "Action": list(DENIED),
        "Resource": list(resources),
    }


def _end_of(statement: Any) -> int | None:
    """The end of a seal; None for other statements."""
    found = _SEAL.fullmatch(str(statement.get("Sid", ""))) if isinstance(statement, dict) else None
    return None if found is None else int(found[1])


def _seals(document: Document) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for each in document["Statement"]:
        if (end := _end_of(each)) is not None:
            found.setdefault(end, []).extend(_texts(each.get("Resource")))
    return found


def _texts(value: Any) -> list[str]:
    """A list of strings; a store may return a list of one as a string."""
    return [value] if isinstance(value, str) else list(value or ())


def _parsed(policy: str | None) -> Document:
    if policy is None:
        return {"Version": _VERSION, "Statement": []}
    found = json.loads(policy)
    statements = found["Statement"]
    return {**found, "Statement": statements if isinstance(statements, list) else [statements]}


def _allow(actions: Sequence[str], resources: Sequence[str]) -> Document:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}


def _below(partition: str, place: Location) -> str:
    return f"arn:{partition}:s3:::{place.authority}/{_escaped('/'.join(place.parts))}/*"


def _escaped(key: str) -> str:
    """The key with its wildcard characters escaped."""
    return re.sub(r"[*?$]", lambda found: "${" + found[0] + "}", key)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


VENDED_LEAST_SECONDS: Final = 900
VENDED_MAX_SECONDS: Final = 43_200


@dataclass(frozen=True, slots=True)
class VendingSettings:
    """The roles whose sessions are vended: one for writers and one for readers."""

    producer_role: str
    consumer_role: str
    sts_endpoint: str | None = None
    lifetime_seconds: int = 3_600

    def __post_init__(self) -> None:
        for arn in (self.producer_role, self.consumer_role):
            Role(arn)
        if self.producer_role == self.consumer_role:
            raise Code.S3_SETTINGS("readers and writers need roles of their own", expected="two roles", got="one")
        if not VENDED_LEAST_SECONDS <= self.lifetime_seconds <= VENDED_MAX_SECONDS:
            expected = f"{VENDED_LEAST_SECONDS} to {VENDED_MAX_SECONDS}"
            raise Code.S3_SETTINGS("lifetime_seconds cannot be used", expected=expected, got="another")


@dataclass(frozen=True, slots=True, eq=False)
class VendedCredentials:
    """Credentials and their end, in seconds."""

    credentials: S3Credentials
    ends_seconds: int


class Sts:
    """Requests sessions with the Steward's own credentials."""

    def __init__(self, settings: S3Settings, endpoint: str | None, client: Any = None) -> None:
        self._client = client or open_client(settings, "sts", endpoint=endpoint)
        if client is None:
            weakref.finalize(self, self._client.close)

    def assume(self, role: Role, *, name: str, policy: str, seconds: int) -> VendedCredentials:
        """A session that is limited by the policy. Raises if the service gives none."""
        try:
            answer = call_store(
                self._client.assume_role,
                RoleArn=role.arn,
                RoleSessionName=name,
                Policy=policy,
                DurationSeconds=seconds,
            )
        except OSError as error:
            raise Code.CREDENTIALS_UNAVAILABLE(
                expected=f"a session of {role.arn}",
                got=error.strerror or type(error).__name__,
                hint="try again later"
                if isinstance(error, TimeoutError)
                else "check that the role trusts the Steward, and that the Steward may assume it",
            ) from None
        found = answer["Credentials"]
        credentials = S3Credentials(
            found["AccessKeyId"],
            Secret(found["SecretAccessKey"].encode()),
            Secret(found["SessionToken"].encode()),
        )
        return VendedCredentials(credentials, int(found["Expiration"].timestamp()))
