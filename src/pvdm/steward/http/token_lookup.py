"""Tokens that nobody has shown before are looked up few at a time, so that whoever guesses keeps nobody else out."""

from __future__ import annotations

from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.limits import Limiter, token_identity
from pvdm.steward.notary import Notary

LOOKUP_THREADS_MAX: Final = 2


class Lookup:
    """Asks the ledger for a token in threads of its own.

    There is no rate limit on the address: a token has 256 random bits, so guessing needs no brake, and a brake would
    let one caller behind a proxy shut out every other one there. Each address asks for few tokens at a time and the
    rest of it waits in line; all addresses take turns, and none of them takes a thread from those who are known.
    """

    def __init__(self, notary: Notary, limiter: Limiter) -> None:
        self.limiter = limiter
        self._notary = notary
        self._threads = CapacityLimiter(LOOKUP_THREADS_MAX)

    async def __call__(self, token: str, peer: str) -> Grant:
        """What the token allows; the limiter knows it from now on."""
        async with self.limiter.slot(f"lookup {peer}", most=LOOKUP_THREADS_MAX):
            grant = await run_sync(self._notary.access.authenticate, token, limiter=self._threads)
        self.limiter.learn(token, token_identity(grant))
        return grant
