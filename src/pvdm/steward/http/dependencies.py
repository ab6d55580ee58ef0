"""What routes are given: the notary they serve, the caller's grant, the app's metrics; and how envelopes travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from pvdm.ledger.record.tokens import Grant
from pvdm.model import canonical_json
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import CommitmentKey, DigestKey
from pvdm.steward.http.long_poll import Waiting
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.readiness import Readiness
from pvdm.steward.http.request import caller
from pvdm.steward.http.token_lookup import Lookup
from pvdm.steward.http.v1.models import Envelope, KeyPair, ProjectionWord
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


async def _lookup(request: Request) -> Lookup:
    found = request.app.state.lookup
    assert isinstance(found, Lookup)  # noqa: S101 - only `create_app` sets it
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
LookupPart: TypeAlias = Annotated[Lookup, Depends(_lookup)]
ReadinessPart: TypeAlias = Annotated[Readiness, Depends(_readiness)]
WaitingPart: TypeAlias = Annotated[Waiting, Depends(_waiting)]
Caller: TypeAlias = Annotated[Grant, Depends(caller)]


def envelope_bytes(envelope: Envelope) -> bytes:
    """The envelope in the one spelling that is signed for and logged, however the caller spelled it."""
    return canonical_json.dump(envelope.model_dump())


def envelope_of(data: bytes) -> Envelope:
    """A stored envelope as it is shown."""
    return Envelope.model_validate_json(data)


def key_pairs(
    row_hash: Mapping[ProjectionName, DigestKey], commitment: Mapping[ProjectionName, CommitmentKey]
) -> dict[ProjectionWord, KeyPair]:
    """The keys of each projection, in hex, for the answers in which keys leave the Steward."""
    return {
        name.value: KeyPair(row_hash=row_hash[name].reveal().hex(), commitment=commitment[name].reveal().hex())
        for name in row_hash
    }
