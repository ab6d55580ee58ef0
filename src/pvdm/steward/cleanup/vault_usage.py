"""How much lies in the vault, counted in the background; who asks gets the last count."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.lake.vault import Vault, VaultKind

VAULT_COUNTED_MAX_FILES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """One count: files and bytes of each kind, and when the oldest file was put into quarantine.

    A count that stopped at the limit is not `whole`. `counted` is the time of `clock` at its end.
    """

    files: Mapping[VaultKind, int]
    size_bytes: Mapping[VaultKind, int]
    oldest_seconds: float | None
    whole: bool
    counted: float


class VaultUsage:
    """Counts the files in the vault on request, and keeps the last count."""

    def __init__(
        self, vault: Vault, *, most: int = VAULT_COUNTED_MAX_FILES, clock: Callable[[], float] = time.time
    ) -> None:
        self._vault = vault
        self._most = most
        self._clock = clock
        self._last: Usage | None = None

    def last(self) -> Usage | None:
        """The last count; None before the first."""
        return self._last

    def count(self) -> Usage:
        """Count again, up to the limit of files. Raises UnavailableError where the vault cannot be read."""
        files, sizes = Counter[VaultKind](), Counter[VaultKind]()
        oldest, whole = None, True
        for kind, each in self._vault.walk():
            if files.total() == self._most:
                whole = False
                break
            files[kind] += 1
            sizes[kind] += each.size
            if kind is VaultKind.QUARANTINE:
                oldest = each.modified_seconds if oldest is None else min(oldest, each.modified_seconds)
        self._last = Usage(files, sizes, oldest, whole, self._clock())
        return self._last
