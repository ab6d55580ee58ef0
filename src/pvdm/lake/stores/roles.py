"""Roles of an object store: session policies, vended sessions, and seals in bucket policies.

The Steward, pvdm's service, vends a session: it assumes a role and gives the session's credentials to a client. A seal
is a statement in a bucket's policy that denies writes below a prefix to sessions of a role (`seal`).
"""

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

SESSION_POLICY_MAX_CHARACTERS: Final = 2_048  # a limit of AWS
BUCKET_POLICY_MAX_BYTES: Final = 20_480  # a limit of AWS
SEAL_STEP_SECONDS: Final = 300
"""Seals that end within one such step share a statement, since the size of a bucket's policy is limited."""
_POLICY_VERSION: Final = "2012-10-17"
_SEAL_ID: Final = re.compile(r"PvdmSealUntil([0-9]{1,12})")
# The actions that change or hide a file. Completing a multipart upload is PutObject too.
DENIED_ACTIONS: Final = (
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
_WRITE_ACTIONS: Final = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_READ_ACTIONS: Final = ("s3:GetObject", "s3:GetObjectVersion")
_ROLE_ARN: Final = re.compile(r"arn:([a-z0-9-]+):iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}")

Document = dict[str, Any]  # a policy, or one of its statements


@dataclass(frozen=True, slots=True)
class Role:
    """A role of the object store, by its ARN."""

    arn: str

    def __post_init__(self) -> None:
        if _ROLE_ARN.fullmatch(self.arn) is None:
            expected = "arn:aws:iam::<account>:role/<name>"
            raise Code.CONFIG_INVALID("not a role ARN", reason="s3_settings", expected=expected, got=self.arn[:80])

    @property
    def partition(self) -> str:
        """The AWS partition of the ARN, for example `aws` or `aws-cn`."""
        return self.arn.split(":")[1]


def session_policy(role: Role, *, write: Iterable[Location], read: Iterable[Location]) -> str:
    """The policy that limits a session of the role to these folders. Those in `write` may be read too."""
    writable = list(write)
    readable = [*writable, *read]
    statements: list[Document] = []
    if writable:
        statements.append(_allow(_WRITE_ACTIONS, [_resource(role, each) for each in writable]))
    statements.append(_allow(_READ_ACTIONS, [_resource(role, each) for each in readable]))
    # Readers may not list: the catalog names every file that they need, and the names of staged files are random.
    for bucket in sorted({each.authority for each in writable}):
        prefixes = [_escape(f"{'/'.join(each.parts)}/") + "*" for each in writable if each.authority == bucket]
        listing = _allow(("s3:ListBucket",), [f"arn:{role.partition}:s3:::{bucket}"])
        statements.append({**listing, "Condition": {"StringLike": {"s3:prefix": prefixes}}})
    text = _dump({"Version": _POLICY_VERSION, "Statement": statements})
    if len(text) > SESSION_POLICY_MAX_CHARACTERS:
        expected = f"at most {SESSION_POLICY_MAX_CHARACTERS} characters"
        raise Code.STORAGE_UNSUPPORTED(reason="session_policy_too_long", expected=expected, got=str(len(text)))
    return text


def policy_with_seal(policy: str | None, role: Role, prefix: Location, *, until: int, now: int) -> str:
    """The bucket's policy with a seal on the prefix for sessions of the role, and without seals that have ended.

    Times are in seconds since 1970. Other statements are kept as they are.
    """
    document = _parse(policy)
    seals: dict[int, list[str]] = {}
    for end, seal in _seals_of(document):
        if end > now:
            seals.setdefault(end, []).extend(_texts(seal.get("Resource")))
    resource = _resource(role, prefix)
    if not any(resource in resources for end, resources in seals.items() if end >= until):
        rounded_up = -(-until // SEAL_STEP_SECONDS) * SEAL_STEP_SECONDS
        seals.setdefault(rounded_up, []).append(resource)
    others = [each for each in document["Statement"] if _end_of(each) is None]
    own = [_seal(role, end, resources) for end, resources in sorted(seals.items())]
    text = _dump({**document, "Statement": [*others, *own]})
    if len(text.encode()) > BUCKET_POLICY_MAX_BYTES:
        expected = f"at most {BUCKET_POLICY_MAX_BYTES} bytes"
        raise Code.SEAL_FAILED(reason="seal_policy_full", expected=expected, got=str(len(text.encode())))
    return text


def is_sealed(policy: str | None, role: Role, prefix: Location, *, until: int) -> bool:
    """Whether the policy has a seal on the prefix until that time or longer, in seconds since 1970."""
    resource = _resource(role, prefix)
    return any(
        end >= until and resource in _texts(seal.get("Resource")) and _denies(seal, role)
        for end, seal in _seals_of(_parse(policy))
    )


def _denies(statement: Document, role: Role) -> bool:
    principal = statement.get("Principal")
    arns = _texts(principal.get("AWS")) if isinstance(principal, dict) else []
    denied = _texts(statement.get("Action")) if statement.get("Effect") == "Deny" else []
    return role.arn in arns and set(DENIED_ACTIONS) <= set(denied)


def _seal(role: Role, end: int, resources: Sequence[str]) -> Document:
    return {
        "Sid": f"PvdmSealUntil{end}",
        "Effect": "Deny",
        "Principal": {"AWS": role.arn},
        "Action": list(DENIED_ACTIONS),
        "Resource": list(resources),
    }


def _seals_of(document: Document) -> list[tuple[int, Document]]:
    """The seals among the policy's statements, each with its end."""
    return [(end, each) for each in document["Statement"] if (end := _end_of(each)) is not None]


def _end_of(statement: Any) -> int | None:
    """The end of a seal in seconds since 1970; None for other statements."""
    found = _SEAL_ID.fullmatch(str(statement.get("Sid", ""))) if isinstance(statement, dict) else None
    return None if found is None else int(found[1])


def _texts(value: Any) -> list[str]:
    """The value as a list: a store may return a list of one string as the string itself."""
    return [value] if isinstance(value, str) else list(value or ())


def _parse(policy: str | None) -> Document:
    if policy is None:
        return {"Version": _POLICY_VERSION, "Statement": []}
    found = json.loads(policy)
    statements = found["Statement"]
    return {**found, "Statement": statements if isinstance(statements, list) else [statements]}


def _allow(actions: Sequence[str], resources: Sequence[str]) -> Document:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}


def _resource(role: Role, folder: Location) -> str:
    """The ARN pattern of all objects below the folder."""
    return f"arn:{role.partition}:s3:::{folder.authority}/{_escape('/'.join(folder.parts))}/*"


def _escape(key: str) -> str:
    """The key with its wildcard characters escaped."""
    return re.sub(r"[*?$]", lambda found: "${" + found[0] + "}", key)


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


VENDED_LEAST_SECONDS: Final = 900  # AWS does not allow shorter sessions
VENDED_MAX_SECONDS: Final = 43_200  # AWS does not allow longer sessions


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
            message = "readers and writers need roles of their own"
            raise Code.CONFIG_INVALID(message, reason="s3_settings", expected="two roles", got="one")
        if not VENDED_LEAST_SECONDS <= self.lifetime_seconds <= VENDED_MAX_SECONDS:
            expected, got = f"{VENDED_LEAST_SECONDS} to {VENDED_MAX_SECONDS}", str(self.lifetime_seconds)
            raise Code.CONFIG_INVALID("lifetime_seconds is not valid", reason="s3_settings", expected=expected, got=got)


@dataclass(frozen=True, slots=True, eq=False)
class VendedCredentials:
    """Credentials of a vended session, and when it ends, in seconds since 1970."""

    credentials: S3Credentials
    ends_seconds: int


class Sts:
    """A client of AWS's token service: requests sessions with the Steward's own credentials."""

    def __init__(self, settings: S3Settings, endpoint: str | None) -> None:
        self._client = open_client(settings, "sts", endpoint=endpoint)
        weakref.finalize(self, self._client.close)

    def assume(self, role: Role, *, name: str, policy: str, seconds: int = VENDED_LEAST_SECONDS) -> VendedCredentials:
        """Request a session that is limited by the policy. Raises if the service returns none."""
        session = {"RoleArn": role.arn, "RoleSessionName": name, "Policy": policy}
        try:
            found = call_store(self._client.assume_role, **session, DurationSeconds=seconds)["Credentials"]
        except OSError as error:
            rights = "check that the role trusts the Steward, and that the Steward may assume it"
            hint = "try again later" if isinstance(error, TimeoutError) else rights
            expected, got = f"a session of {role.arn}", error.strerror or type(error).__name__
            reason = "credentials_unavailable"
            raise Code.STORAGE_UNAVAILABLE(reason=reason, expected=expected, got=got, hint=hint) from None
        secret, token = (Secret(found[key].encode()) for key in ("SecretAccessKey", "SessionToken"))
        credentials = S3Credentials(found["AccessKeyId"], secret, token)
        return VendedCredentials(credentials, int(found["Expiration"].timestamp()))
