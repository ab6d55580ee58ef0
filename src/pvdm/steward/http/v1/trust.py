"""Trust root, epochs, clock and step log: what operators do to the Steward as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from pvdm.ledger.record import events
from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart, envelope_bytes, envelope_of
from pvdm.steward.http.v1.models import (
    EVENTS_ABOUT_MAX_CHARS,
    PAGE_ROWS_MAX,
    ClockAnswer,
    EpochChangePart,
    EpochChangesAnswer,
    EpochPart,
    EpochsAnswer,
    EventPart,
    EventsAnswer,
    ReasonBody,
    TrustRootAnswer,
    TrustRootBody,
    TrustRootVersion,
)
from pvdm.trust.keys.epochs import Epoch, EpochChange

router = APIRouter()

Reasoned = Annotated[ReasonBody, Depends(body_of(ReasonBody))]
Rooted = Annotated[TrustRootBody, Depends(body_of(TrustRootBody))]
Number = Annotated[int, Path(ge=1, le=LONG_MAX)]


@router.get("/v1/trust-root", tags=["trust"])
def trust_root(notary: NotaryPart) -> TrustRootAnswer:
    """Every version of the trust root as it was signed; readers judge them by their own pin."""
    root = notary.trust.current()
    chain = [envelope_of(envelope) for envelope in notary.trust.chain()]
    return TrustRootAnswer(version=root.version, sha256=root.sha256, chain=chain)


@router.post("/v1/trust-root", tags=["trust"])
def accept_root(notary: NotaryPart, body: Rooted) -> TrustRootVersion:
    """Hand in the first or the next version; the newest one again changes nothing."""
    root = notary.trust.accept(envelope_bytes(body.envelope), pin=body.sha256)
    return TrustRootVersion(version=root.version, sha256=root.sha256)


@router.get("/v1/epochs", tags=["epochs"])
def epochs(notary: NotaryPart) -> EpochsAnswer:
    """Every generation of keys there ever was."""
    return EpochsAnswer(epochs=[_epoch(epoch) for epoch in notary.epochs.book().epochs])


@router.post("/v1/epochs", tags=["epochs"])
def create_epoch(notary: NotaryPart, body: Reasoned) -> EpochChangesAnswer:
    """New keys; nothing uses them until the epoch is activated."""
    return _changes(notary.epochs.create(body.reason))


@router.post("/v1/epochs/{number}/activate", tags=["epochs"])
def activate_epoch(notary: NotaryPart, number: Number, body: Reasoned) -> EpochChangesAnswer:
    """New workloads open under this epoch; the one that was active is retired."""
    return _changes(notary.epochs.activate(number, body.reason))


@router.post("/v1/epochs/{number}/retire", tags=["epochs"])
def retire_epoch(notary: NotaryPart, number: Number, body: Reasoned) -> EpochChangesAnswer:
    """No new workload opens under this epoch."""
    return _changes(notary.epochs.retire(number, body.reason))


@router.post("/v1/epochs/{number}/revoke", tags=["epochs"])
def revoke_epoch(notary: NotaryPart, number: Number, body: Reasoned) -> EpochChangesAnswer:
    """The keys of this epoch are not used again."""
    return _changes(notary.epochs.revoke(number, body.reason))


@router.post("/v1/clock/confirm", tags=["clock"])
def confirm_clock(notary: NotaryPart, grant: Caller, body: Reasoned) -> ClockAnswer:
    """Say, by the token's name, that the Steward's clock is right now."""
    found = notary.clock.confirm(operator=grant.name, reason=body.reason)
    return ClockAnswer(at=found.at_micros, confirmed=found.was_jumped)


@router.get("/v1/events", tags=["events"])
def step_log(
    notary: NotaryPart,
    after: Annotated[int, Query(ge=0, le=LONG_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
    about: Annotated[str | None, Query(min_length=1, max_length=EVENTS_ABOUT_MAX_CHARS)] = None,
) -> EventsAnswer:
    """The next steps of the step log after an id, oldest first; with `about`, those that name it: an id or a person."""
    with notary.ledger.read() as unit:
        page = events.page(unit, after=after, count=limit, about=about)
    return EventsAnswer(events=[_event(event) for event in page])


def _epoch(epoch: Epoch) -> EpochPart:
    ids = {key.role.value: key.public.key_id for key in epoch.keys if key.public is not None}
    return EpochPart(number=str(epoch.number), state=epoch.state.value, key_ids=ids)


def _changes(changes: Iterable[EpochChange]) -> EpochChangesAnswer:
    return EpochChangesAnswer(changes=[EpochChangePart.model_validate(change.to_json()) for change in changes])


def _event(event: events.Event) -> EventPart:
    return EventPart(
        event_id=str(event.event_id),
        at=event.at_micros,
        kind=event.kind,
        subject=event.subject,
        row_key=event.row_key,
        old=None if event.old is None else dict(event.old),
        new=None if event.new is None else dict(event.new),
    )
