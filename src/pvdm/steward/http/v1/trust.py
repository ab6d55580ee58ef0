"""Routes of trust root, epochs, clock and step log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from pvdm.api.base import PAGE_ROWS_MAX, ReasonRequest
from pvdm.api.service import (
    EVENTS_ABOUT_MAX_CHARS,
    ClockConfirmed,
    EpochChange,
    EpochChangeList,
    EpochList,
    EpochView,
    Event,
    EventList,
    TrustRootChain,
    TrustRootRequest,
    TrustRootVersion,
)
from pvdm.ledger.record import events
from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.trust.keys import epochs as epoch_book

router = APIRouter()

ReasonBody = Annotated[ReasonRequest, Depends(body_of(ReasonRequest))]
TrustRootBody = Annotated[TrustRootRequest, Depends(body_of(TrustRootRequest))]
Number = Annotated[int, Path(ge=1, le=LONG_MAX)]


@router.get("/v1/trust-root", tags=["trust"])
def trust_root(notary: NotaryPart) -> TrustRootChain:
    """Every version of the trust root as it was signed; readers verify them by their own pin."""
    root = notary.trust.current()
    return TrustRootChain(version=root.version, sha256=root.sha256, chain=tuple(notary.trust.chain()))


@router.post("/v1/trust-root", tags=["trust"])
def accept_root(notary: NotaryPart, body: TrustRootBody) -> TrustRootVersion:
    """Submit the first or the next version; the newest one again changes nothing."""
    root = notary.trust.accept(body.envelope.to_bytes(), pin=body.sha256)
    return TrustRootVersion(version=root.version, sha256=root.sha256)


@router.get("/v1/epochs", tags=["epochs"])
def epochs(notary: NotaryPart) -> EpochList:
    """Every generation of keys, in order."""
    return EpochList(epochs=tuple(_epoch_view(epoch) for epoch in notary.epochs.book().epochs))


@router.post("/v1/epochs", tags=["epochs"])
def create_epoch(notary: NotaryPart, body: ReasonBody) -> EpochChangeList:
    """New keys; nothing uses them until the epoch is activated."""
    return _change_list(notary.epochs.create(body.reason))


@router.post("/v1/epochs/{number}/activate", tags=["epochs"])
def activate_epoch(notary: NotaryPart, number: Number, body: ReasonBody) -> EpochChangeList:
    """New workloads open under this epoch; the one that was active is retired."""
    return _change_list(notary.epochs.activate(number, body.reason))


@router.post("/v1/epochs/{number}/retire", tags=["epochs"])
def retire_epoch(notary: NotaryPart, number: Number, body: ReasonBody) -> EpochChangeList:
    """No new workload opens under this epoch."""
    return _change_list(notary.epochs.retire(number, body.reason))


@router.post("/v1/epochs/{number}/revoke", tags=["epochs"])
def revoke_epoch(notary: NotaryPart, number: Number, body: ReasonBody) -> EpochChangeList:
    """The keys of this epoch are not used again."""
    return _change_list(notary.epochs.revoke(number, body.reason))


@router.post("/v1/clock/confirm", tags=["clock"])
def confirm_clock(notary: NotaryPart, grant: Caller, body: ReasonBody) -> ClockConfirmed:
    """Confirm, under the token's name, that the Steward's clock is right now."""
    found = notary.clock.confirm(operator=grant.name, reason=body.reason)
    return ClockConfirmed(at=found.at_micros, confirmed=found.was_jumped)


@router.get("/v1/events", tags=["events"])
def step_log(
    notary: NotaryPart,
    after: Annotated[int, Query(ge=0, le=LONG_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
    about: Annotated[str | None, Query(min_length=1, max_length=EVENTS_ABOUT_MAX_CHARS)] = None,
) -> EventList:
    """The next steps of the step log after an id, oldest first; with `about`, those that name it: an id or a person."""
    with notary.ledger.read() as unit:
        page = events.page(unit, after=after, count=limit, about=about)
    return EventList(events=tuple(_event(event) for event in page))


def _epoch_view(epoch: epoch_book.Epoch) -> EpochView:
    ids = {key.role.value: key.public.key_id for key in epoch.keys if key.public is not None}
    return EpochView(number=epoch.number, state=epoch.state, key_ids=ids)


def _change_list(changes: Iterable[epoch_book.EpochChange]) -> EpochChangeList:
    return EpochChangeList(changes=tuple(EpochChange.model_validate(change.to_json()) for change in changes))


def _event(event: events.Event) -> Event:
    return Event(
        event_id=event.event_id,
        at=event.at_micros,
        kind=event.kind,
        subject=event.subject,
        row_key=event.row_key,
        old=None if event.old is None else dict(event.old),
        new=None if event.new is None else dict(event.new),
    )
