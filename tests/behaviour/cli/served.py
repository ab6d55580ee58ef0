"""A running Steward for tests of the command line, and callers with tokens of their own."""

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
class Door:
    """The Steward's address, and the way to become somebody."""

    stand: Stand
    url: str
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def come_as(self, role: Role, name: str = "operator-tom", domain: str = "*") -> str:
        """From now on commands come with a token of this role; gives its text."""
        text, grant = self.stand.token(role, domain, name)
        file = self.folder / f"{grant.token_id}.token"
        file.write_text(text)
        file.chmod(0o600)
        self.monkeypatch.setenv("PVDM_URL", self.url)
        self.monkeypatch.setenv("PVDM_TOKEN_FILE", str(file))
        return text


@contextlib.contextmanager
def open_door(folder: Path, monkeypatch: pytest.MonkeyPatch, *, rooted: bool = True) -> Iterator[Door]:
    """A Steward with its trust root, served on a free port."""
    with served(folder / "steward", rooted=rooted) as running:
        yield Door(running.stand, running.server.url, folder, monkeypatch)
