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
    ServedCatalog,
    StewardInfo,
    TrustRootChain,
    TrustRootVersion,
    WorkloadDetail,
    WorkloadView,
)
from pvdm.client.lent import LentToken
from pvdm.client.proof_answers import (
    AttestationView,
    Challenge,
    OpenedContext,
    OpenedProof,
    OverrideView,
    ProjectionKeys,
    ProofView,
)
from pvdm.client.protection_answers import MigrationView, ProtectedView, ProtectionView, TargetView
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
    "LentToken",
    "MigrationView",
    "OpenedContext",
    "OpenedProof",
    "OverrideView",
    "ProjectionKeys",
    "ProofView",
    "ProtectedView",
    "ProtectionView",
    "PublishedView",
    "Readiness",
    "Retries",
    "ServedCatalog",
    "StewardClient",
    "StewardInfo",
    "TargetView",
    "TimeOuts",
    "TrustRootChain",
    "TrustRootVersion",
    "WorkloadDetail",
    "WorkloadView",
]
