"""Files read by threads of the Steward's own process; each thread holds one file at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pvdm.digest import Digester, Keys, kernel_engine
from pvdm.digest.sharing import share
from pvdm.errors import Code, InputError, PvdmError, VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.compare import Partials
from pvdm.verify.fetch import Fetched, Files
from pvdm.verify.file_orders import (
    Ground,
    Held,
    Outcome,
    ReadFile,
    SourceOrder,
    StagedOrder,
    Work,
    added_file,
    together,
)
from pvdm.verify.findings import Finding
from pvdm.verify.intent import Digesting, Fetch, Intent
from pvdm.verify.observed import Observed, observe
from pvdm.verify.usable import source_readable


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
        """What was staged and what was intended, side by side: whichever thread is free takes the next largest file."""
        ground, seen = work.ground, dict[int, tuple[ReadFile, Partials | None] | Finding]()
        with source_readable():
            intent = Digesting(Intent(ground.bound, ground.source, ground.chunk, ground.plan), ground.plan, held.keys)

        fetch = self._fetching(work)

        def worker() -> Callable[[StagedOrder | SourceOrder], None]:
            add = intent.worker(fetch)

            def one(order: StagedOrder | SourceOrder) -> None:
                if isinstance(order, StagedOrder):
                    seen[order.position] = self._staged(work, order, held.keys)
                    return
                with source_readable():
                    add(order.file)

            return one

        orders: list[StagedOrder | SourceOrder] = [*work.staged, *work.source]
        orders.sort(key=lambda order: order.size, reverse=True)
        share(orders, [worker() for _ in range(max(1, min(self.count, len(orders))))])
        found = [seen[order.position] for order in work.staged]
        read = tuple(each if isinstance(each, Finding) else each[0] for each in found)
        whole = [each[1] for each in found if not isinstance(each, Finding) and each[1] is not None]
        complete = len(whole) == len(found)
        staged = together(ground.plan, held.keys, whole) if complete else None
        return Outcome(read, staged, intent.partials())

    def _staged(self, work: Work, order: StagedOrder, keys: Keys) -> tuple[ReadFile, Partials | None] | Finding:
        """One file: fetched once; what was hashed is what is decoded, and what the published file is made of."""
        try:
            fetched = self.files.fetch_frozen(order.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, order.path)
        observed, partials = judged(work.ground, order, fetched, keys)
        added = added_file(work, order, observed, lambda: fetched.data)
        return ReadFile(added, observed, partials is not None), partials

    def _fetching(self, work: Work) -> Fetch:
        """Files of the source, held to what they were frozen with."""
        frozen = {seen.location: seen for order in work.source for seen in order.frozen}

        def fetch(location: str) -> bytes:
            found = frozen.get(location)
            if found is None:
                raise not_frozen(location)
            return self.files.fetch_frozen(found).data

        return fetch


def judged(ground: Ground, order: StagedOrder, fetched: Fetched, keys: Keys) -> tuple[Observed, Partials | None]:
    """A staged file through a digester of its own; one that could not be read to its end has no digest."""
    digester = Digester(ground.plan, keys, engine=kernel_engine())
    observed = observe(
        digester,
        fetched,
        ground.metadata,
        order.entry,
        rewrite=ground.rewrites,
        footer_published=not ground.rewrites,
    )
    return observed, _partials(digester)


def not_frozen(location: str) -> PvdmError:
    """Nothing is decoded that was not frozen before there was a key."""
    return PvdmError(Code.SOURCE_NOT_FROZEN, "a file of the source is read that was not frozen", got=location)


def _partials(digester: Digester) -> Partials | None:
    try:
        return digester.partials()
    except InputError as error:
        if error.code != Code.DIGESTER_VOID:
            raise
        return None
