"""Policy documents of an object store: what a vended session may do, and what a seal denies; pure text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code
from pvdm.lake.paths import Location

SESSION_POLICY_MAX_CHARACTERS: Final = 2_048
BUCKET_POLICY_MAX_BYTES: Final = 20_480
SEAL_STEP_SECONDS: Final = 300
"""Seals that end within one such step share a statement, for a bucket's policy is small."""
_VERSION: Final = "2012-10-17"
_SEAL: Final = re.compile(r"PvdmSealUntil([0-9]{1,12})")
# What a producer could change of a file, or hide it with; completing an upload in parts is PutObject too.
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
    """A role of the store's own, by its ARN."""

    arn: str

    def __post_init__(self) -> None:
        if _PARTITION.fullmatch(self.arn) is None:
            raise Code.S3_SETTINGS("this is no role", expected="arn:aws:iam::<account>:role/<name>", got=self.arn[:80])

    @property
    def partition(self) -> str:
        """The part of the world that its ARNs belong to."""
        return self.arn.split(":")[1]


def session_policy(role: Role, *, write: Iterable[Location], read: Iterable[Location]) -> str:
    """What a session of the role may do: at most this, whatever the role may."""
    writing, reading = list(write), [*write, *read]
    statements: list[Document] = []
    if writing:
        statements.append(_allow(_WRITE, [_below(role.partition, each) for each in writing]))
    statements.append(_allow(_READ, [_below(role.partition, each) for each in reading]))
    # Who only reads is told every name by the catalog. What is staged lies below the table under names drawn at random,
    # so that without a listing nobody else finds it.
    for bucket in sorted({each.authority for each in writing}):
        inside = [_escaped(f"{'/'.join(each.parts)}/") + "*" for each in writing if each.authority == bucket]
        listing = _allow(("s3:ListBucket",), [f"arn:{role.partition}:s3:::{bucket}"])
        statements.append({**listing, "Condition": {"StringLike": {"s3:prefix": inside}}})
    text = _text({"Version": _VERSION, "Statement": statements})
    if len(text) > SESSION_POLICY_MAX_CHARACTERS:
        raise Code.SESSION_POLICY_TOO_LONG(
            expected=f"at most {SESSION_POLICY_MAX_CHARACTERS} characters", got=str(len(text))
        )
    return text


def sealed(policy: str | None, role: Role, prefix: Location, *, until: int, now: int) -> str:
    """The bucket's policy with a seal on the prefix for sessions of the role; seals that have ended are left out.

    Statements of others are kept as they are.
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
        raise Code.SEAL_FAILED(
            reason="seal_policy_full", expected=f"at most {BUCKET_POLICY_MAX_BYTES} bytes", got=str(len(text.encode()))
        )
    return text


def is_sealed(policy: str | None, role: Role, prefix: Location, *, until: int) -> bool:
    """Whether the policy holds a seal on the prefix to that time at least."""
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
    """When a seal ends; None for a statement that is none."""
    found = _SEAL.fullmatch(str(statement.get("Sid", ""))) if isinstance(statement, dict) else None
    return None if found is None else int(found[1])


def _seals(document: Document) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for each in document["Statement"]:
        if (end := _end_of(each)) is not None:
            found.setdefault(end, []).extend(_texts(each.get("Resource")))
    return found


def _texts(value: Any) -> list[str]:
    """One text or several; a store may spell a list of one as the one."""
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
    """A key's own stars and question marks mean themselves."""
    return re.sub(r"[*?$]", lambda found: "${" + found[0] + "}", key)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
