"""A running Steward for tests of the command line, and tokens for the commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm.model.role import Role
from tests.support.steward.http import served
from tests.support.steward.notary import Stand


@dataclass(frozen=True)
class ServedSteward:
    """A running Steward, and tokens for the commands that ask it."""

    stand: Stand
    url: str
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def use_token(self, role: Role, name: str = "operator-tom", domain: str = "*") -> str:
        """Let the next commands use a new token of this role; returns the token's text."""
        text, grant = self.stand.token(role, domain, name)
        file = self.folder / f"{grant.token_id}.token"
        file.write_text(text)
        file.chmod(0o600)
        self.monkeypatch.setenv("PVDM_URL", self.url)
        self.monkeypatch.setenv("PVDM_TOKEN_FILE", str(file))
        return text


@contextlib.contextmanager
def serve_steward(folder: Path, monkeypatch: pytest.MonkeyPatch, *, rooted: bool = True) -> Iterator[ServedSteward]:
    """A Steward with its trust root, served on a free port."""
    with served(folder / "steward", rooted=rooted) as running:
        yield ServedSteward(running.stand, running.server.url, folder, monkeypatch)
