"""Routes about the Steward itself: health, metrics, identity, trust root, epochs of its keys, clock and step log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from pvdm.api import service as api
from pvdm.api.base import PAGE_ROWS_MAX
from pvdm.errors import PvdmError
from pvdm.ledger.record import events, outbox
from pvdm.ledger.record.tokens import Grant
from pvdm.model.fields import LONG_MAX, MICROS_PER_SECOND
from pvdm.steward.http.admission import bearer_token
from pvdm.steward.http.body import ReasonBody, body_of
from pvdm.steward.http.dependencies import Caller, LookupPart, MetricsPart, NotaryPart, ReadinessPart
from pvdm.steward.http.errors import RETRY_AFTER_SECONDS, error_document
from pvdm.steward.http.limits import peer_of
from pvdm.steward.http.openapi import raw_response
from pvdm.steward.http.request import context_of
from pvdm.steward.http.roles import RULES, require_allowed
from pvdm.steward.notary import Notary
from pvdm.trust.keys.epochs import EpochChange
from pvdm.version import __version__

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter()

TrustRootBody = Annotated[api.TrustRootRequest, body_of(api.TrustRootRequest)]
EpochNumber = Annotated[int, Path(ge=1, le=LONG_MAX)]


@router.get("/healthz", tags=["service"])
async def health() -> api.Health:
    """Whether the process is alive; ledger, keys and stores are not checked."""
    return api.Health(alive=True)


@router.get("/readyz", response_model=api.ReadinessView, tags=["service"])
async def ready(request: Request, readiness: ReadinessPart, lookup: LookupPart) -> Response:
    """Whether the Steward accepts work. A 503 response has every reason, with details for operators and auditors."""
    reasons = await readiness.reasons()
    may_see_details = bool(reasons) and await _may_see_details(request, lookup)
    visible = reasons if may_see_details else [_without_details(each) for each in reasons]
    request_id = context_of(request.scope).request_id
    body = {"ready": not reasons, "reasons": [error_document(each, request_id) for each in visible]}
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
def metrics(all_metrics: MetricsPart) -> Response:
    """The metrics in Prometheus' text format."""
    return Response(all_metrics.render(), media_type=METRICS_TYPE)


@router.get("/v1/identity", tags=["service"])
async def identity(grant: Caller) -> api.Identity:
    """What the caller's token allows."""
    return identity_of(grant)


@router.get("/v1/steward", tags=["service"])
def steward(notary: NotaryPart) -> api.StewardInfo:
    """The Steward's name, version, epoch, log size and catalog."""
    active, catalog, root = notary.epochs.book().active, notary.config.catalog, notary.trust.find()
    return api.StewardInfo(
        notary=notary.config.notary,
        origin=notary.config.origin,
        isolation=notary.config.isolation,
        version=__version__,
        active_epoch=None if active is None else active.number,
        log_size=notary.log.size(),
        trust_root_version=None if root is None else root.version,
        catalog=api.ServedCatalog(name=catalog.name, warehouse=catalog.warehouse),
        outbox=tuple(_outbox_views(notary)),
    )


def _outbox_views(notary: Notary) -> Iterator[api.OutboxView]:
    now = notary.clock.trusted_micros()
    with notary.ledger.read() as unit:
        since = now - outbox.OUTBOX_SET_ASIDE_SHOWN_SECONDS * MICROS_PER_SECOND
        found = {
            channel: (
                outbox.find_pending(unit, channel) or outbox.Pending(0, now, None),
                outbox.find_set_aside(unit, channel, since_micros=since) or outbox.SetAside(0, None),
            )
            for channel in notary.deliveries
        }
    for channel, (pending, aside) in found.items():
        if pending.count or aside.count:
            yield api.OutboxView(
                channel=channel.value,
                pending=pending.count,
                oldest_seconds=max(0, now - pending.since_micros) // MICROS_PER_SECOND,
                problem=pending.problem,
                set_aside=aside.count,
                set_aside_problem=aside.problem,
            )


async def _may_see_details(request: Request, lookup: LookupPart) -> bool:
    """Whether the caller's token may read /metrics. /readyz is public, so the middleware has not checked a token."""
    try:
        grant = await lookup(bearer_token(request.scope), peer_of(request.scope))
        require_allowed(RULES["GET", "/metrics"], grant, {})
    except PvdmError:
        return False
    return True


def _without_details(error: PvdmError) -> PvdmError:
    """The error without paths, addresses and numbers, which only operators and auditors may see."""
    return type(error)(
        error.reason, "the Steward is not ready", hint="an operator's or auditor's token of every domain shows more"
    )


def identity_of(grant: Grant) -> api.Identity:
    """A grant (the rights of a token) as it is shown to its bearer."""
    return api.Identity(
        token_id=grant.token_id,
        role=grant.role,
        domain=grant.domain,
        name=grant.name,
        expires_at=grant.expires_micros,
        attempt_id=grant.attempt_id,
    )


@router.get("/v1/trust-root", tags=["trust"])
def trust_root(notary: NotaryPart) -> api.TrustRootChain:
    """Every signed version of the trust root, which names trusted keys. Readers must know the first version's hash."""
    root = notary.trust.current()
    return api.TrustRootChain(version=root.version, sha256=root.sha256, chain=tuple(notary.trust.chain()))


@router.post("/v1/trust-root", tags=["trust"])
def accept_root(notary: NotaryPart, body: TrustRootBody) -> api.TrustRootVersion:
    """Submit the first or the next version of the trust root; submitting the newest one again changes nothing."""
    root = notary.trust.accept(body.envelope.to_bytes(), pin=body.sha256)
    return api.TrustRootVersion(version=root.version, sha256=root.sha256)


@router.get("/v1/epochs", tags=["epochs"])
def epochs(notary: NotaryPart) -> api.EpochList:
    """Every epoch, in order of number."""
    views = []
    for epoch in notary.epochs.book().epochs:
        ids = {key.role.value: key.public.key_id for key in epoch.keys if key.public is not None}
        views.append(api.EpochView(number=epoch.number, state=epoch.state, key_ids=ids))
    return api.EpochList(epochs=tuple(views))


@router.post("/v1/epochs", tags=["epochs"])
def create_epoch(notary: NotaryPart, body: ReasonBody) -> api.EpochChangeList:
    """Create an epoch with new keys; nothing uses them until it is activated."""
    return _change_list(notary.epochs.create(body.reason))


@router.post("/v1/epochs/{number}/activate", tags=["epochs"])
def activate_epoch(notary: NotaryPart, number: EpochNumber, body: ReasonBody) -> api.EpochChangeList:
    """Activate the epoch: new workloads open under it, and the epoch that was active is retired."""
    return _change_list(notary.epochs.activate(number, body.reason))


@router.post("/v1/epochs/{number}/retire", tags=["epochs"])
def retire_epoch(notary: NotaryPart, number: EpochNumber, body: ReasonBody) -> api.EpochChangeList:
    """Retire the epoch: no new workload opens under it."""
    return _change_list(notary.epochs.retire(number, body.reason))


@router.post("/v1/epochs/{number}/revoke", tags=["epochs"])
def revoke_epoch(notary: NotaryPart, number: EpochNumber, body: ReasonBody) -> api.EpochChangeList:
    """Revoke the epoch: its keys are not used again."""
    return _change_list(notary.epochs.revoke(number, body.reason))


@router.post("/v1/clock/confirm", tags=["clock"])
def confirm_clock(notary: NotaryPart, grant: Caller, body: ReasonBody) -> api.ClockConfirmation:
    """Confirm, under the token's name, that the Steward's clock now shows the correct time."""
    confirmation = notary.clock.confirm(operator=grant.name, reason=body.reason)
    return api.ClockConfirmation(at=confirmation.at_micros, confirmed=confirmation.had_jumped)


@router.get("/v1/events", tags=["events"])
def step_log(
    notary: NotaryPart,
    after: Annotated[int, Query(ge=0, le=LONG_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
    about: Annotated[str | None, Query(min_length=1, max_length=api.EVENTS_ABOUT_MAX_CHARACTERS)] = None,
) -> api.EventList:
    """Events of the step log after the id `after`, oldest first; with `about`, only those about this id or person."""
    with notary.ledger.read() as unit:
        page = events.page(unit, after=after, count=limit, about=about)
    views = [
        api.Event(
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
    return api.EventList(events=tuple(views))


def _change_list(changes: Iterable[EpochChange]) -> api.EpochChangeList:
    return api.EpochChangeList(changes=tuple(api.EpochChange.model_validate(change.to_json()) for change in changes))
