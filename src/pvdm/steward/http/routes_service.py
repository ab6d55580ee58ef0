"""What the Steward says of itself: health, readiness, metrics, who asks and who answers."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

import pvdm
from pvdm.errors import UnavailableError
from pvdm.steward.http.answers import RETRY_AFTER_SECONDS, error_document
from pvdm.steward.http.asked import asked_in
from pvdm.steward.http.models import HealthAnswer, IdentityAnswer, ReadyAnswer, StewardAnswer
from pvdm.steward.http.openapi import raw
from pvdm.steward.http.parts import Caller, MetricsPart, NotaryPart
from pvdm.steward.notary import Notary
from pvdm.store.tokens import Grant

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter(tags=["service"])


@router.get("/healthz")
async def health() -> HealthAnswer:
    """Whether the process lives; says nothing about anything behind it."""
    return HealthAnswer(alive=True)


@router.get("/readyz", response_model=ReadyAnswer)
def ready(request: Request, notary: NotaryPart) -> Response:
    """Whether the Steward takes work; 503 names every reason why not."""
    reasons = notary.readiness()
    request_id = asked_in(request.scope).request_id
    told = {"ready": not reasons, "reasons": [error_document(reason, request_id) for reason in reasons]}
    if not reasons:
        return JSONResponse(told)
    return JSONResponse(told, 503, {"retry-after": str(RETRY_AFTER_SECONDS)})


@router.get("/v1/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """This API, as OpenAPI."""
    document: dict[str, Any] = request.app.openapi()
    return document


@router.get("/metrics", responses=raw("text/plain"))
def metrics(found: MetricsPart) -> Response:
    """The counters in Prometheus' text form."""
    return Response(found.exposed(), media_type=METRICS_TYPE)


@router.get("/v1/identity")
async def identity(grant: Caller) -> IdentityAnswer:
    """What the caller's token allows."""
    return identity_of(grant)


@router.get("/v1/steward")
def steward(notary: NotaryPart) -> StewardAnswer:
    """Who the Steward is and where it stands."""
    active = notary.epochs.book().active
    return StewardAnswer(
        notary=notary.config.notary,
        origin=notary.config.origin,
        isolation=notary.config.isolation.value,
        version=pvdm.__version__,
        active_epoch=None if active is None else str(active.number),
        log_size=str(notary.log.size()),
        trust_root_version=_root_version(notary),
    )


def identity_of(grant: Grant) -> IdentityAnswer:
    """A grant as it is shown to its bearer."""
    return IdentityAnswer(
        token_id=grant.token_id,
        role=grant.role.value,
        domain=grant.domain,
        name=grant.name,
        expires_at=grant.expires_micros,
        attempt_id=grant.attempt_id,
    )


def _root_version(notary: Notary) -> int | None:
    try:
        return notary.trust.current().version
    except UnavailableError as error:
        if error.code != "steward_without_root":
            raise
        return None
