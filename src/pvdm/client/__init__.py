"""The Steward's client: typed responses over HTTP, with retries. Calls `api`, `model`, `errors`; for tables `lake`."""

from pvdm.client.settings import Retries, TimeOuts
from pvdm.client.steward import Readiness, StewardClient
from pvdm.client.token import AttemptToken, LentToken
from pvdm.model.role import AccessToken

__all__ = ["AccessToken", "AttemptToken", "LentToken", "Readiness", "Retries", "StewardClient", "TimeOuts"]
