"""Completes the outcome of a run with facts of the whole workload, and makes the outcome of a supervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pvdm.api.work import AttemptView, ChunkView, WorkloadView
from pvdm.client import StewardClient
from pvdm.durable import failure_text
from pvdm.durable.chunk_counts import ChunkCounts
from pvdm.durable.outcome import ChunkOutcome, Committed, Outcome, RolledBack, VerificationFailed
from pvdm.errors import Code, PvdmError
from pvdm.model.printable import counted
from pvdm.model.states import AttemptState


def complete_outcome(client: StewardClient, outcome: Outcome, *, repairs: bool = False) -> Outcome:
    """Add the counts of the workload's chunks to an outcome with an error, and complete the error's message.

    `repairs`: the contract allows automatic repairs, so failed attempts before the last ones are added to any outcome.
    """
    if repairs:
        outcome = _with_failed_attempts(client, outcome)
    if isinstance(outcome, Committed):
        return outcome
    counts = _count_chunks(client, outcome.workload_id)
    if isinstance(outcome, VerificationFailed):
        error = failure_text.with_publication(outcome.error, counts)
        return replace(outcome, error=error, chunk_counts=counts)
    return replace(outcome, error=_rolled_back_error(outcome, counts), chunk_counts=counts)


def _rolled_back_error(outcome: RolledBack, counts: ChunkCounts | None) -> PvdmError:
    error = outcome.error
    if error.reason == Code.SEGMENT_ENDED:
        return error.with_context(_segment_text(outcome, counts))
    if failure_text.has_no_verdict(error):
        return failure_text.with_publication(error, counts)
    return error


def _segment_text(outcome: RolledBack, counts: ChunkCounts | None) -> str:
    """How many chunks were published by a segment that has staged `max_chunks`, and how many are left."""
    published = sum(1 for each in outcome.chunks if each.state is AttemptState.COMMITTED and not each.before)
    waiting = sum(1 for each in outcome.chunks if each.attempt.waiting)
    done = [f"{counted(published, 'chunk')} {'was' if published == 1 else 'were'} published"] if published else []
    done += [f"{counted(waiting, 'chunk')} {'waits' if waiting == 1 else 'wait'} for the others"] if waiting else []
    left = "" if counts is None else f"; {counts.to_stage:,} {'is' if counts.to_stage == 1 else 'are'} left"
    return f"{', '.join(done) or 'no chunk was published'}{left}"


def _count_chunks(client: StewardClient, workload_id: str) -> ChunkCounts | None:
    """The chunks of the workload by state; None if the Steward does not answer. Does not wait for a restart."""
    with contextlib.suppress(PvdmError):
        found = client.with_patience(patient=False).workload(workload_id, limit=1, look_up_source=False)
        return ChunkCounts.of(found)
    return None


def rolled_back_outcome(
    client: StewardClient, workload: WorkloadView, error: PvdmError, published_before: Collection[str]
) -> RolledBack:
    """The outcome of a supervisor that stops with this error, with the chunks as they are now.

    `published_before` are the ids of the chunks that were published before its first segment.
    """
    chunks: tuple[ChunkOutcome, ...] = ()
    with contextlib.suppress(PvdmError):
        chunks = tuple(
            ChunkOutcome(each.chunk_id, each.attempt, each.chunk_id in published_before)
            for each in read_chunks(client.with_patience(patient=False), workload.workload_id)
            if each.attempt is not None
        )
    table, counts = workload.table or workload.table_uuid, _count_chunks(client, workload.workload_id)
    return RolledBack(workload.workload_id, table, chunks, error, chunk_counts=counts)


def find_published(client: StewardClient, workload: WorkloadView) -> frozenset[str]:
    """The ids of the chunks that are published."""
    if AttemptState.COMMITTED not in {each.state for each in workload.chunk_states}:
        return frozenset()
    return frozenset(
        each.chunk_id
        for each in read_chunks(client, workload.workload_id)
        if each.attempt is not None and each.attempt.state is AttemptState.COMMITTED
    )


def read_chunks(client: StewardClient, workload_id: str) -> Iterator[ChunkView]:
    """Every chunk of the workload, in the plan's order."""
    read = 0
    while page := client.chunks(workload_id, after=read):
        yield from page
        read += len(page)


def count_as_published_now(outcome: Outcome, published_before: Collection[str]) -> Outcome:
    """The outcome of the last segment. Chunks that earlier segments of the command published count as published now."""
    chunks = tuple(replace(each, before=each.chunk_id in published_before) for each in outcome.chunks)
    return replace(outcome, chunks=chunks)


def read_failed_attempts(
    client: StewardClient, workload_id: str, last: Mapping[str, AttemptView]
) -> dict[str, tuple[AttemptView, ...]]:
    """The VERIFICATION_FAILED attempts before the `last` attempt at each of these chunks, by chunk id."""
    wanted = {chunk_id for chunk_id, attempt in last.items() if attempt.number > 1}
    found: dict[str, list[AttemptView]] = {chunk_id: [] for chunk_id in wanted}
    read = 0
    while wanted and (page := client.workload(workload_id, chunks_after=read, look_up_source=False)).chunk_ids:
        for each in page.attempts:
            if each.chunk_id in found and each.number < last[each.chunk_id].number:
                found[each.chunk_id] += [each] if each.state is AttemptState.VERIFICATION_FAILED else []
        wanted -= set(page.chunk_ids)
        read += len(page.chunk_ids)
    return {chunk_id: tuple(sorted(each, key=lambda one: one.number)) for chunk_id, each in found.items() if each}


def _with_failed_attempts(client: StewardClient, outcome: Outcome) -> Outcome:
    """The outcome with the failed attempts before the last ones; without them if they cannot be read."""
    failed: dict[str, tuple[AttemptView, ...]] = {}
    with contextlib.suppress(PvdmError):
        last = {each.chunk_id: each.attempt for each in outcome.chunks}
        failed = read_failed_attempts(client.with_patience(patient=False), outcome.workload_id, last)
    chunks = tuple(replace(each, failed_attempts=failed.get(each.chunk_id, ())) for each in outcome.chunks)
    return replace(outcome, chunks=chunks)
