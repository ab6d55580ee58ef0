"""Proofs and break-glass overrides: shown, handed out, opened for auditors, and handed in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.body import body_of, require_empty
from pvdm.steward.http.dependencies import Caller, NotaryPart, envelope_bytes, key_pairs
from pvdm.steward.http.openapi import raw
from pvdm.steward.http.v1.models import (
    HEX16,
    HEX32,
    PAGE_ROWS_MAX,
    WORKLOAD_ID,
    ContextPart,
    EnvelopeBody,
    OpenedAnswer,
    OverrideAnswer,
    OverridesAnswer,
    ProofAnswer,
    ProofsAnswer,
    ReasonBody,
)
from pvdm.steward.http.v1.work import attempt_answer
from pvdm.steward.http.v1.work_models import AttemptAnswer
from pvdm.steward.record.overrides import OverrideView
from pvdm.steward.record.proofs import ProofView

JSON_TYPE = "application/json"

router = APIRouter()

Reasoned = Annotated[ReasonBody, Depends(body_of(ReasonBody))]
Enveloped = Annotated[EnvelopeBody, Depends(body_of(EnvelopeBody))]
ProofId = Annotated[str, Path(pattern=HEX32)]
OverrideId = Annotated[str, Path(pattern=HEX32)]


@router.get("/v1/proofs", tags=["proofs"])
def proofs(
    notary: NotaryPart,
    grant: Caller,
    workload_id: Annotated[str | None, Query(pattern=WORKLOAD_ID)] = None,
    attempt_id: Annotated[str | None, Query(pattern=HEX16)] = None,
    after: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
) -> ProofsAnswer:
    """The newest proofs, going back in the log from the log index `after`."""
    found = notary.proofs.listed(grant, workload_id=workload_id, attempt_id=attempt_id, after=after, count=limit)
    return ProofsAnswer(proofs=[_proof(view) for view in found])


@router.get("/v1/proofs/{proof_id}", tags=["proofs"])
def proof(notary: NotaryPart, grant: Caller, proof_id: ProofId) -> ProofAnswer:
    """What one proof says."""
    return _proof(notary.proofs.get(proof_id, grant))


@router.get("/v1/proofs/{proof_id}/envelope", tags=["proofs"], responses=raw(JSON_TYPE))
def envelope(notary: NotaryPart, grant: Caller, proof_id: ProofId) -> Response:
    """The signed bytes."""
    return Response(notary.proofs.envelope(proof_id, grant), media_type=JSON_TYPE)


@router.get("/v1/proofs/{proof_id}/bundle", tags=["proofs"], responses=raw(JSON_TYPE))
def bundle(notary: NotaryPart, grant: Caller, proof_id: ProofId) -> Response:
    """All that an offline check needs, but the trust root."""
    return Response(notary.proofs.bundle(proof_id, grant), media_type=JSON_TYPE)


@router.post("/v1/proofs/{proof_id}/open", tags=["proofs"])
def open_proof(notary: NotaryPart, grant: Caller, proof_id: ProofId, body: Reasoned) -> OpenedAnswer:
    """A closed attempt's keys, so that its digests can be computed from the data; noted in the step log."""
    context, keys = notary.proofs.open(proof_id, grant, reason=body.reason)
    pairs = key_pairs(dict(keys.row_hash), dict(keys.commitment))
    return OpenedAnswer(context=ContextPart.model_validate(context.to_json()), keys=pairs)


@router.get("/v1/overrides", tags=["break-glass"])
def overrides(notary: NotaryPart, grant: Caller) -> OverridesAnswer:
    """The newest break-glass overrides of the token's domain, at most 1,000."""
    return OverridesAnswer(overrides=[_override(view) for view in notary.overrides.listed(grant)])


@router.post("/v1/overrides", tags=["break-glass"])
def submit_override(notary: NotaryPart, grant: Caller, body: Enveloped) -> OverrideAnswer:
    """Hand in a signed override of one FAIL proof; it waives the verdict at the gate, once, and nothing else."""
    return _override(notary.overrides.submit(envelope_bytes(body.envelope), grant))


@router.post("/v1/overrides/{override_id}/publish", tags=["break-glass"], dependencies=[Depends(require_empty)])
def publish_override(notary: NotaryPart, grant: Caller, override_id: OverrideId) -> AttemptAnswer:
    """Bring back exactly the bytes that the override names, as a new attempt, which is verified and put to the gate.

    Once more answers the attempt as it is; nothing is published twice.
    """
    return attempt_answer(notary.work.views(grant, [notary.waiving.bring_back(grant, override_id)])[0])


def _proof(view: ProofView) -> ProofAnswer:
    shown = asdict(view)
    for name in ("rows_intent", "rows_staged", "epoch", "log_index"):
        shown[name] = None if shown[name] is None else str(shown[name])
    return ProofAnswer(**{**shown, "classes": list(view.classes), "overridden": view.override_id is not None})


def _override(view: OverrideView) -> OverrideAnswer:
    return OverrideAnswer(**{**asdict(view), "log_index": str(view.log_index)})
