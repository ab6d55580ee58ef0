"""The transparency log as its readers fetch it: checkpoint, tiles, inclusion and consistency proofs."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response

from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.dependencies import NotaryPart
from pvdm.steward.http.openapi import raw
from pvdm.steward.http.v1.models import ConsistencyAnswer

TILE_PATH_MAX_CHARACTERS: Final = 200
TEXT_TYPE: Final = "text/plain; charset=utf-8"
OCTETS_TYPE: Final = "application/octet-stream"

router = APIRouter(tags=["log"])

Size = Annotated[int, Query(ge=0, le=LONG_MAX)]


@router.get("/v1/log/checkpoint", responses=raw("text/plain"))
def checkpoint(notary: NotaryPart) -> Response:
    """The newest signed checkpoint."""
    return Response(notary.log.checkpoint(), media_type=TEXT_TYPE)


@router.get("/v1/log/tile/{path:path}", responses=raw(OCTETS_TYPE))
def tile(notary: NotaryPart, path: Annotated[str, Path(min_length=1, max_length=TILE_PATH_MAX_CHARACTERS)]) -> Response:
    """One tile or entry bundle, by its C2SP path."""
    return Response(notary.log.tile(f"tile/{path}"), media_type=OCTETS_TYPE)


@router.get("/v1/log/entries/{index}/proof", responses=raw("text/plain"))
def proof(notary: NotaryPart, index: Annotated[int, Path(ge=0, le=LONG_MAX)]) -> Response:
    """That the entry is in the tree of the newest checkpoint, as a log proof file."""
    return Response(notary.log.proof(index), media_type=TEXT_TYPE)


@router.get("/v1/log/consistency")
def consistency(notary: NotaryPart, old: Size, new: Size) -> ConsistencyAnswer:
    """That the tree of the new size begins with the tree of the old one."""
    found = notary.log.consistency(old, new)
    return ConsistencyAnswer(hashes=[each.hex() for each in found.hashes])
