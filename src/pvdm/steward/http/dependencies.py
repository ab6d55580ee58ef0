"""What routes depend on: the notary that they serve, the caller's grant, and parts of the app."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.limits import TokenLookup
from pvdm.steward.http.long_poll import Waiting
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.readiness import Readiness
from pvdm.steward.http.request import caller
from pvdm.steward.notary import Notary


async def _notary(request: Request) -> Notary:
    return notary_of(request)


def notary_of(request: Request) -> Notary:
    """The notary that the app serves."""
    found = request.app.state.notary
    assert isinstance(found, Notary)  # noqa: S101 - only `create_app` sets it
    return found


async def _metrics(request: Request) -> Metrics:
    found = request.app.state.metrics
    assert isinstance(found, Metrics)  # noqa: S101 - only `create_app` sets it
    return found


async def _lookup(request: Request) -> TokenLookup:
    found = request.app.state.lookup
    assert isinstance(found, TokenLookup)  # noqa: S101 - only `create_app` sets it
    return found


async def _readiness(request: Request) -> Readiness:
    found = request.app.state.readiness
    assert isinstance(found, Readiness)  # noqa: S101 - only `create_app` sets it
    return found


async def _waiting(request: Request) -> Waiting:
    found = request.app.state.waiting
    assert isinstance(found, Waiting)  # noqa: S101 - only `create_app` sets it
    return found


NotaryPart: TypeAlias = Annotated[Notary, Depends(_notary)]
MetricsPart: TypeAlias = Annotated[Metrics, Depends(_metrics)]
LookupPart: TypeAlias = Annotated[TokenLookup, Depends(_lookup)]
ReadinessPart: TypeAlias = Annotated[Readiness, Depends(_readiness)]
WaitingPart: TypeAlias = Annotated[Waiting, Depends(_waiting)]
Caller: TypeAlias = Annotated[Grant, Depends(caller)]
