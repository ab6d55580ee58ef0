"""The section `[alerts]` of `steward.toml`: where alerts go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field

from pvdm.errors import Code, PvdmError
from pvdm.model.host import is_loopback
from pvdm.steward.config.sections import StrictSection

ALERT_TIMEOUT_MAX_SECONDS: Final = 300
ALERT_COMMAND_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class CommandAlerts:
    """A command that gets each alert on its standard input."""

    argv: tuple[str, ...]
    timeout_seconds: int
    job_stuck_seconds: int


@dataclass(frozen=True, slots=True)
class WebhookAlerts:
    """A webhook that gets each alert as a request, signed under the secret in a file."""

    url: str
    secret_file: Path
    timeout_seconds: int
    job_stuck_seconds: int


AlertsConfig: TypeAlias = CommandAlerts | WebhookAlerts
_Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4_096)]


class AlertsSection(StrictSection):
    """The section as written, with either `command`, or `webhook` and `secret_file`."""

    command: Annotated[list[_Text], Field(min_length=1, max_length=ALERT_COMMAND_MAX)] | None = None
    webhook: _Text | None = None
    secret_file: _Text | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=ALERT_TIMEOUT_MAX_SECONDS)] = 10
    job_stuck_seconds: Annotated[int, Field(ge=60, le=86_400)] = 900


def make_alerts_config(section: AlertsSection | None, folder: Path) -> AlertsConfig | None:
    """Check the section and make its path absolute. Returns None without a section."""
    if section is None:
        return None
    limits = (section.timeout_seconds, section.job_stuck_seconds)
    match section.command, section.webhook, section.secret_file:
        case list() as command, None, None:
            return CommandAlerts(tuple(command), *limits)
        case None, str() as url, str() as file:
            _require_safe_url(url)
            return WebhookAlerts(url, folder / file, *limits)
        case _:
            given = [name for name in ("command", "webhook", "secret_file") if getattr(section, name) is not None]
            expected = "command, or webhook and secret_file"
            raise _error("the section does not say where alerts go", expected, " and ".join(given) or "nothing")


def _require_safe_url(url: str) -> None:
    """Require a URL with TLS or on loopback, since an alert says what failed. Refuse a password in the URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not host or port == 0 or not is_safe or "@" in parts.netloc:
        # The URL is not shown: it may hold a token.
        raise _error(
            "the webhook cannot be accepted",
            "an https:// URL without a password, or http:// on loopback, with a port that exists",
            "another URL",
        )


def _error(what: str, expected: str, got: str) -> PvdmError:
    return Code.CONFIG_INVALID(f"[alerts]: {what}", expected=expected, got=got)
