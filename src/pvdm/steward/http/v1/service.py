"""Routes about the Steward itself: health, metrics, identity, trust root, epochs, clock and step log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

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
    Health,
    Identity,
    ReadinessView,
    ServedCatalog,
    StewardInfo,
    TrustRootChain,
    TrustRootRequest,
    TrustRootVersion,
)
from pvdm.errors import PvdmError
from pvdm.ledger.record import events
from pvdm.ledger.record.tokens import Grant
from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, LookupPart, MetricsPart, NotaryPart, ReadinessPart
from pvdm.steward.http.door import bearer
from pvdm.steward.http.errors import RETRY_AFTER_SECONDS, error_document
from pvdm.steward.http.limits import peer_of
from pvdm.steward.http.openapi import raw_response
from pvdm.steward.http.request import context_of
from pvdm.steward.http.roles import RULES, require_allowed
from pvdm.trust.keys import epochs as epoch_book
from pvdm.version import __version__

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter()


ReasonBody = Annotated[ReasonRequest, Depends(body_of(ReasonRequest))]
TrustRootBody = Annotated[TrustRootRequest, Depends(body_of(TrustRootRequest))]
Number = Annotated[int, Path(ge=1, le=LONG_MAX)]


@router.get("/healthz", tags=["service"])
async def health() -> Health:
    """Whether the process is alive; says nothing about anything behind it."""
    return Health(alive=True)


@router.get("/readyz", response_model=ReadinessView, tags=["service"])
async def ready(request: Request, readiness: ReadinessPart, lookup: LookupPart) -> Response:
    """Whether the Steward takes work; 503 names every reason why not, in full to an operator or auditor."""
    reasons = await readiness.reasons()
    shown = reasons if reasons and await _may_see_all(request, lookup) else [_brief(reason) for reason in reasons]
    request_id = context_of(request.scope).request_id
    body = {"ready": not reasons, "reasons": [error_document(reason, request_id) for reason in shown]}
    if not reasons:
        return JSONResponse(body)
    return JSONResponse(body, 503, {"retry-after": str(RETRY_AFTER_SECONDS)})


@router.get("/v1/openapi.json", responses=raw_response("application/json"), tags=["service"])
def openapi(request: Request) -> Response:
    """This API, as OpenAPI."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = json.dumps(request.app.openapi()).encode()
    return Response(state.document, media_type="application/json")


@router.get("/metrics", responses=raw_response("text/plain"), tags=["service"])
def metrics(found: MetricsPart) -> Response:
    """The counters in Prometheus' text form."""
    return Response(found.exposed(), media_type=METRICS_TYPE)


@router.get("/v1/identity", tags=["service"])
async def identity(grant: Caller) -> Identity:
    """What the caller's token allows."""
    return identity_of(grant)


@router.get("/v1/steward", tags=["service"])
def steward(notary: NotaryPart) -> StewardInfo:
    """The Steward's name, version, epoch, log size and catalog."""
    active, catalog, root = notary.epochs.book().active, notary.config.catalog, notary.trust.find()
    return StewardInfo(
        notary=notary.config.notary,
        origin=notary.config.origin,
        isolation=notary.config.isolation,
        version=__version__,
        active_epoch=None if active is None else active.number,
        log_size=notary.log.size(),
        trust_root_version=None if root is None else root.version,
        catalog=ServedCatalog(name=catalog.name, warehouse=catalog.warehouse),
    )


async def _may_see_all(request: Request, lookup: LookupPart) -> bool:
    """Whether the caller has a token that may read /metrics."""
    try:
        grant = await lookup(bearer(request.scope), peer_of(request.scope))
        require_allowed(RULES["GET", "/metrics"], grant, {})
    except PvdmError:
        return False
    return True


def _brief(reason: PvdmError) -> PvdmError:
    """The reason without paths, addresses and numbers, which only operators and auditors may see."""
    return type(reason)(
        reason.reason, "the Steward is not ready", hint="an operator's or auditor's token of every domain shows more"
    )


def identity_of(grant: Grant) -> Identity:
    """A grant as it is shown to its bearer."""
    return Identity(
        token_id=grant.token_id,
        role=grant.role,
        domain=grant.domain,
        name=grant.name,
        expires_at=grant.expires_micros,
        attempt_id=grant.attempt_id,
    )


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
    views = []
    for epoch in notary.epochs.book().epochs:
        ids = {key.role.value: key.public.key_id for key in epoch.keys if key.public is not None}
        views.append(EpochView(number=epoch.number, state=epoch.state, key_ids=ids))
    return EpochList(epochs=tuple(views))


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
    views = [
        Event(
            event_id=event.event_id,
            at=event.at_micros,
            kind=event.kind,
            subject=event.subject,
            row_key=event.row_key,
            old=None if event.old is None else dict(event.old),
            new=None if event.new is None else dict(event.new),
        )
        for event in page
    ]
    return EventList(events=tuple(views))


def _change_list(changes: Iterable[epoch_book.EpochChange]) -> EpochChangeList:
    return EpochChangeList(changes=tuple(EpochChange.model_validate(change.to_json()) for change in changes))
