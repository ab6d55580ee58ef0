"""Routes for audits: a table's metadata document, signed statements with inclusion proofs, manifests, and the log."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response

from pvdm.api.base import PAGE_ROWS_MAX, TABLE_NAME_MAX_CHARACTERS
from pvdm.api.proofs import (
    AUDIT_IDS_MAX,
    AuditDocument,
    AuditReported,
    AuditReportRequest,
    AuditTable,
    AuditView,
    ConsistencyView,
    LoggedList,
    LoggedView,
)
from pvdm.catalog.names import parse_full_name
from pvdm.lake.format.manifest.entry import LOCATION_MAX_BYTES
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.metadata.audit.evidence import LoggedStatement
from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.steward.http.openapi import raw_response

TILE_PATH_MAX_CHARACTERS: Final = 200
TEXT_TYPE: Final = "text/plain; charset=utf-8"
OCTETS_TYPE: Final = "application/octet-stream"
_IDS: Final = rf"^[0-9a-f]{{64}}(,[0-9a-f]{{64}}){{0,{AUDIT_IDS_MAX - 1}}}$"
_AUDIT: Final = "/v1/tables/{table}/audit"

router = APIRouter()

LogSize = Annotated[int, Query(ge=1, le=LONG_MAX)]
LogSizeOrZero = Annotated[int, Query(ge=0, le=LONG_MAX)]
ReportBody = Annotated[AuditReportRequest, body_of(AuditReportRequest)]
FullName = Annotated[str, Path(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)]


@router.get(_AUDIT, tags=["audit"])
def evidence(notary: NotaryPart, grant: Caller, table: FullName) -> AuditView:
    """What an audit begins with: the table's metadata document, the newest checkpoint, and signed approvals.

    The approvals are the protections, migrations and claim releases of the table, and the protections of its namespace.
    """
    found = notary.audits.read_evidence(grant, *_split_name(table))
    document = found.metadata
    return AuditView(
        table=AuditTable(catalog=found.table.catalog, uuid=found.table.uuid, name=found.table.name),
        contract_sha256=found.contract_sha256,
        metadata=AuditDocument(path=document.path, sha256=document.sha256, text=document.data.decode()),
        checkpoint=found.checkpoint.decode(),
        log_size=int(found.checkpoint.split(b"\n")[1]),  # the second line of a checkpoint
        statements=tuple(map(_logged_view, found.statements)),
        released_claims=found.released_claims,
    )


@router.get(f"{_AUDIT}/receipts", tags=["audit"])
def receipts(
    notary: NotaryPart,
    grant: Caller,
    table: FullName,
    size: LogSize,
    after: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
) -> LoggedList:
    """The table's receipts after the log index `after`, each with its inclusion proof in the log of this size."""
    found = notary.audits.read_receipts(grant, *_split_name(table), size=size, after=after, count=limit)
    return LoggedList(statements=tuple(map(_logged_view, found)))


@router.get(f"{_AUDIT}/statements", tags=["audit"])
def statements(
    notary: NotaryPart, grant: Caller, table: FullName, size: LogSize, ids: Annotated[str, Query(pattern=_IDS)]
) -> LoggedList:
    """The table's proofs and overrides with these ids (joined by commas), and inclusion proofs for the log size `size`.

    The list ends before the envelopes exceed 32 MiB together. It has the first envelope even if that alone is larger.
    """
    found = notary.audits.read_statements(grant, *_split_name(table), ids.split(","), size=size)
    return LoggedList(statements=tuple(map(_logged_view, found)))


@router.get(f"{_AUDIT}/files", tags=["audit"], responses=raw_response(OCTETS_TYPE))
def file(
    notary: NotaryPart,
    grant: Caller,
    table: FullName,
    snapshot_id: Annotated[int, Query(ge=0, le=LONG_MAX)],
    manifest: Annotated[str | None, Query(min_length=1, max_length=LOCATION_MAX_BYTES)] = None,
) -> Response:
    """The manifest list of a snapshot (the head of `main` or its ancestor), or the `manifest` that this list names."""
    return Response(notary.audits.read_file(grant, *_split_name(table), snapshot_id, manifest), media_type=OCTETS_TYPE)


@router.post(f"{_AUDIT}/report", tags=["audit"])
def report(notary: NotaryPart, grant: Caller, table: FullName, body: ReportBody) -> AuditReported:
    """Report violations that an audit of the table has found, so that operators are alerted."""
    notary.audits.report(grant, *_split_name(table), codes=body.codes, violations=body.violations)
    return AuditReported(alerted=notary.notices.alerts)


@router.get("/v1/log/checkpoint", tags=["log"], responses=raw_response("text/plain"))
def checkpoint(notary: NotaryPart) -> Response:
    """The newest signed checkpoint."""
    return Response(notary.log.checkpoint(), media_type=TEXT_TYPE)


@router.get("/v1/log/tile/{path:path}", tags=["log"], responses=raw_response(OCTETS_TYPE))
def tile(notary: NotaryPart, path: Annotated[str, Path(min_length=1, max_length=TILE_PATH_MAX_CHARACTERS)]) -> Response:
    """One tile of the log's hashes or one bundle of its entries, by its path in C2SP's format tlog-tiles."""
    return Response(notary.log.tile(f"tile/{path}"), media_type=OCTETS_TYPE)


@router.get("/v1/log/entries/{index}/proof", tags=["log"], responses=raw_response("text/plain"))
def log_proof(notary: NotaryPart, index: Annotated[int, Path(ge=0, le=LONG_MAX)]) -> Response:
    """The proof that the entry is in the tree of the newest checkpoint, in C2SP's format tlog-proof."""
    return Response(notary.log.proof(index), media_type=TEXT_TYPE)


@router.get("/v1/log/consistency", tags=["log"])
def consistency(notary: NotaryPart, old: LogSizeOrZero, new: LogSizeOrZero) -> ConsistencyView:
    """The proof that the tree of size `new` begins with the tree of size `old`."""
    return ConsistencyView(hashes=notary.log.consistency(old, new).hashes)


def _split_name(table: str) -> tuple[Levels, str]:
    parts = parse_full_name(table)
    return parts[:-1], parts[-1]


def _logged_view(found: LoggedStatement) -> LoggedView:
    return LoggedView(
        kind=found.kind.value,  # type: ignore[arg-type] # the audit selects these kinds, and the model checks them
        envelope=found.envelope,
        logged_at=found.logged_at,
        index=found.index,
        hashes=tuple(found.hashes),
    )
