"""A token that is handed on to an engine which speaks to the Steward's catalog by itself, as Spark does."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.client.token import AccessToken


@dataclass(frozen=True, slots=True)
class LentToken:
    """The token's text; with its id it buys short-lived ones as long as it is good, without it is sent as it is."""

    token: AccessToken
    token_id: str | None
