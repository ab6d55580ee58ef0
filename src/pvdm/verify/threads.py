"""Files read by threads of the Steward's own process; each thread holds one file at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from pvdm.digest import Digester, Keys, kernel_engine
from pvdm.errors import InputError, PvdmError, VerificationError
from pvdm.model.verdict import FailureClass
from pvdm.verify.compare import Partials
from pvdm.verify.fetch import Fetched, Files
from pvdm.verify.finding import Finding
from pvdm.verify.intent import digest_intent
from pvdm.verify.observed import Observed, observe
from pvdm.verify.orders import Ground, Held, Outcome, ReadFile, StagedOrder, Work, added_file, published_at, together
from pvdm.verify.usable import source_readable

_From = TypeVar("_From")
_To = TypeVar("_To")


@dataclass(frozen=True, slots=True)
class Threads:
    """The reader of small chunks."""

    files: Files
    count: int = 2

    def redemptions(self, work: Work) -> int:
        """None: threads share the Steward's keys."""
        del work
        return 0

    def read(self, work: Work, held: Held) -> Outcome:
        """What was staged, then what was intended."""
        seen = mapped(self.count, lambda order: self._staged(work, order, held.keys), work.staged)
        read = tuple(each if isinstance(each, Finding) else each[0] for each in seen)
        digests = [None if isinstance(each, Finding) else each[1] for each in seen]
        intent = self._intent(work, held.keys)
        whole = [each for each in digests if each is not None]
        complete = len(whole) == len(digests)
        return Outcome(read, together(work.ground.plan, held.keys, whole) if complete else None, intent)

    def _staged(self, work: Work, order: StagedOrder, keys: Keys) -> tuple[ReadFile, Partials | None] | Finding:
        """One file: fetched once; what was hashed is what is kept, and what is decoded."""
        try:
            fetched = self.files.fetch_frozen(order.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, order.path)
        published = published_at(work, order, fetched.data)
        observed, partials = judged(work.ground, order, fetched, keys)
        return ReadFile(added_file(order, published), observed, partials is not None), partials

    def _intent(self, work: Work, keys: Keys) -> Partials:
        ground = work.ground
        frozen = {seen.location: seen for order in work.source for seen in order.frozen}

        def fetch(location: str) -> bytes:
            found = frozen.get(location)
            if found is None:
                raise not_frozen(location)
            return self.files.fetch_frozen(found).data

        with source_readable():
            return digest_intent(
                ground.bound, ground.source, ground.chunk, ground.plan, keys, fetch, threads=self.count
            )


def judged(ground: Ground, order: StagedOrder, fetched: Fetched, keys: Keys) -> tuple[Observed, Partials | None]:
    """A staged file through a digester of its own; one that could not be read to its end has no digest."""
    digester = Digester(ground.plan, keys, engine=kernel_engine())
    observed = observe(digester, fetched, ground.metadata, order.entry)
    return observed, _partials(digester)


def mapped(threads: int, work: Callable[[_From], _To], given: Sequence[_From]) -> list[_To]:
    """What becomes of each, in order; after an error nothing more is begun."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(work, each) for each in given]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def not_frozen(location: str) -> PvdmError:
    """Nothing is decoded that was not frozen before there was a key."""
    return PvdmError("source_not_frozen", "a file of the source is read that was not frozen", got=location)


def _partials(digester: Digester) -> Partials | None:
    try:
        return digester.partials()
    except InputError as error:
        if error.code != "digester_void":
            raise
        return None
