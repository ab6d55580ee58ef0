"""The Steward's client: typed answers over HTTP with time-outs and careful retries. Calls `model` and `errors` only."""

from pvdm.client.answers import (
    AttemptToken,
    AttemptView,
    ClockConfirmed,
    EpochChange,
    EpochView,
    Event,
    ExchangedToken,
    Identity,
    PublishedView,
    Readiness,
    StewardInfo,
    TrustRootChain,
    TrustRootVersion,
    WorkloadDetail,
    WorkloadView,
)
from pvdm.client.proof_answers import (
    AttestationView,
    Challenge,
    OpenedContext,
    OpenedProof,
    OverrideView,
    ProjectionKeys,
    ProofView,
)
from pvdm.client.settings import Retries, TimeOuts
from pvdm.client.steward import StewardClient
from pvdm.client.token import AccessToken

__all__ = [
    "AccessToken",
    "AttemptToken",
    "AttemptView",
    "AttestationView",
    "Challenge",
    "ClockConfirmed",
    "EpochChange",
    "EpochView",
    "Event",
    "ExchangedToken",
    "Identity",
    "OpenedContext",
    "OpenedProof",
    "OverrideView",
    "ProjectionKeys",
    "ProofView",
    "PublishedView",
    "Readiness",
    "Retries",
    "StewardClient",
    "StewardInfo",
    "TimeOuts",
    "TrustRootChain",
    "TrustRootVersion",
    "WorkloadDetail",
    "WorkloadView",
]
