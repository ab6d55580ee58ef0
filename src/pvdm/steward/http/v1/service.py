"""Routes about the Steward itself: health, readiness, metrics, the caller's identity, and its own."""

from __future__ import annotations

import json
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from pvdm.api.service import Health, Identity, ReadinessView, ServedCatalog, StewardInfo
from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.dependencies import Caller, LookupPart, MetricsPart, NotaryPart, ReadinessPart
from pvdm.steward.http.door import bearer
from pvdm.steward.http.errors import RETRY_AFTER_SECONDS, error_document
from pvdm.steward.http.limits import peer_of
from pvdm.steward.http.openapi import raw
from pvdm.steward.http.request import context_of
from pvdm.steward.http.roles import RULES, require_allowed
from pvdm.steward.notary import Notary
from pvdm.version import __version__

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter(tags=["service"])


@router.get("/healthz")
async def health() -> Health:
    """Whether the process is alive; says nothing about anything behind it."""
    return Health(alive=True)


@router.get("/readyz", response_model=ReadinessView)
async def ready(request: Request, readiness: ReadinessPart, lookup: LookupPart) -> Response:
    """Whether the Steward takes work; 503 names every reason why not, in full to an operator or auditor."""
    reasons = await readiness.reasons()
    shown = reasons if reasons and await _may_see_all(request, lookup) else [_brief(reason) for reason in reasons]
    request_id = context_of(request.scope).request_id
    body = {"ready": not reasons, "reasons": [error_document(reason, request_id) for reason in shown]}
    if not reasons:
        return JSONResponse(body)
    return JSONResponse(body, 503, {"retry-after": str(RETRY_AFTER_SECONDS)})


@router.get("/v1/openapi.json", responses=raw("application/json"))
def openapi(request: Request) -> Response:
    """This API, as OpenAPI."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = json.dumps(request.app.openapi()).encode()
    return Response(state.document, media_type="application/json")


@router.get("/metrics", responses=raw("text/plain"))
def metrics(found: MetricsPart) -> Response:
    """The counters in Prometheus' text form."""
    return Response(found.exposed(), media_type=METRICS_TYPE)


@router.get("/v1/identity")
async def identity(grant: Caller) -> Identity:
    """What the caller's token allows."""
    return identity_of(grant)


@router.get("/v1/steward")
def steward(notary: NotaryPart) -> StewardInfo:
    """The Steward's name, version, epoch, log size and catalog."""
    active, catalog = notary.epochs.book().active, notary.config.catalog
    return StewardInfo(
        notary=notary.config.notary,
        origin=notary.config.origin,
        isolation=notary.config.isolation,
        version=__version__,
        active_epoch=None if active is None else active.number,
        log_size=notary.log.size(),
        trust_root_version=_root_version(notary),
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


def _root_version(notary: Notary) -> int | None:
    try:
        return notary.trust.current().version
    except UnavailableError as error:
        if error.code != Code.STEWARD_WITHOUT_ROOT:
            raise
        return None
