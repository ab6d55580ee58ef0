"""Short-lived credentials of a role, cut down to some places; the store's own service for them makes them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code
from pvdm.lake.stores.policies import Role
from pvdm.lake.stores.s3_client import S3Credentials, S3Settings, asked, open_client
from pvdm.model.secret import Secret

VENDED_LEAST_SECONDS: Final = 900
VENDED_MAX_SECONDS: Final = 43_200


@dataclass(frozen=True, slots=True)
class VendingSettings:
    """The roles whose sessions are vended: one that writes, one that only reads."""

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
class Vended:
    """Credentials and when they end, in seconds."""

    credentials: S3Credentials
    ends_seconds: int


class Sts:
    """Asks for sessions with the Steward's own credentials."""

    def __init__(self, settings: S3Settings, endpoint: str | None, client: Any = None) -> None:
        self._client = client or open_client(settings, "sts", endpoint=endpoint)
        if client is None:
            weakref.finalize(self, self._client.close)

    def assume(self, role: Role, *, name: str, policy: str, seconds: int) -> Vended:
        """A session that may do at most what the policy says."""
        try:
            answer = asked(
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
                else "see that the role trusts the Steward, and that the Steward may assume it",
            ) from None
        found = answer["Credentials"]
        credentials = S3Credentials(
            found["AccessKeyId"],
            Secret(found["SecretAccessKey"].encode()),
            Secret(found["SessionToken"].encode()),
        )
        return Vended(credentials, int(found["Expiration"].timestamp()))
