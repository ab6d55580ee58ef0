"""The keys' door for workers of the Steward's own Spark application: a handle in, one job's digest keys out, once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import NotaryPart
from pvdm.steward.http.v1.models import RedeemBody, RedeemedAnswer

router = APIRouter(tags=["keys"])


@router.post("/v1/keys/redeem")
def redeem(notary: NotaryPart, body: Annotated[RedeemBody, Depends(body_of(RedeemBody))]) -> RedeemedAnswer:
    """The keys of a job that is frozen and not over, for a worker that did not have them before."""
    keys = notary.handles.redeem(body.handle, job_id=body.job_id, worker=body.worker)
    epoch = next(iter(keys.values())).epoch
    return RedeemedAnswer(epoch=str(epoch), keys={name.value: key.reveal().hex() for name, key in keys.items()})
