"""What auditors fetch: a table's document with its checkpoint, statements with log proofs, manifests."""

from __future__ import annotations

import base64
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Query, Response

from pvdm.catalog.names import parse_full_name
from pvdm.lake.format.manifest.entry import LOCATION_MAX_BYTES
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.metadata.audit.evidence import LoggedStatement
from pvdm.model.fields import LONG_MAX
from pvdm.steward.http.dependencies import Caller, NotaryPart, envelope_of
from pvdm.steward.http.openapi import raw
from pvdm.steward.http.v1.log import OCTETS_TYPE
from pvdm.steward.http.v1.models import PAGE_ROWS_MAX, Decimal, Envelope, Micros, Sha256, Told
from pvdm.steward.http.v1.protection import TARGET_NAME_MAX_CHARACTERS

AUDIT_IDS_MAX: Final = 64
_IDS: Final = rf"^[0-9a-f]{{64}}(,[0-9a-f]{{64}}){{0,{AUDIT_IDS_MAX - 1}}}$"

router = APIRouter(prefix="/v1/tables/{table}/audit", tags=["audit"])

Size = Annotated[int, Query(ge=1, le=LONG_MAX)]
Name = Annotated[str, Path(min_length=1, max_length=TARGET_NAME_MAX_CHARACTERS)]


class LoggedPart(Told):
    """A signed envelope, and the way from its entry to the root of the log at the size that was asked for."""

    kind: Literal["receipt", "proof", "break-glass", "protection", "migration"]
    envelope: Envelope
    logged_at: Micros
    index: Decimal
    hashes: list[str]


class AuditTable(Told):
    """A table, as signed statements name it."""

    catalog: str
    uuid: str
    name: str


class AuditDocument(Told):
    """The table's document: where it lies, the hash of its bytes, and the bytes as text."""

    path: str
    sha256: Sha256
    text: str


class AuditAnswer(Told):
    """A table as it is now, the newest checkpoint, and every approval about the table."""

    table: AuditTable
    contract_sha256: Sha256 | None
    metadata: AuditDocument
    checkpoint: str
    log_size: Decimal
    statements: list[LoggedPart]


class LoggedAnswer(Told):
    """Statements in the log's order, so many as fit."""

    statements: list[LoggedPart]


@router.get("")
def evidence(notary: NotaryPart, grant: Caller, table: Name) -> AuditAnswer:
    """The table's document, checkpoint and approvals: where an audit begins."""
    found = notary.audits.evidence(grant, *_place(table))
    return AuditAnswer(
        table=AuditTable(catalog=found.table.catalog, uuid=found.table.uuid, name=found.table.name),
        contract_sha256=found.contract_sha256,
        metadata=AuditDocument(
            path=found.metadata.path, sha256=found.metadata.sha256, text=found.metadata.data.decode()
        ),
        checkpoint=found.checkpoint.decode(),
        log_size=str(found.checkpoint.split(b"\n")[1].decode()),
        statements=[_logged(each) for each in found.statements],
    )


@router.get("/receipts")
def receipts(
    notary: NotaryPart,
    grant: Caller,
    table: Name,
    size: Size,
    after: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
) -> LoggedAnswer:
    """The table's receipts behind the log index `after`, each with its proof in the log of that size."""
    found = notary.audits.receipts(grant, *_place(table), size=size, after=after, count=limit)
    return LoggedAnswer(statements=[_logged(each) for each in found])


@router.get("/statements")
def statements(
    notary: NotaryPart, grant: Caller, table: Name, size: Size, ids: Annotated[str, Query(pattern=_IDS)]
) -> LoggedAnswer:
    """Proofs and overrides about the table by id, joined by commas: the first of them that fit, at least one."""
    found = notary.audits.statements(grant, *_place(table), ids.split(","), size=size)
    return LoggedAnswer(statements=[_logged(each) for each in found])


@router.get("/files", responses=raw(OCTETS_TYPE))
def file(
    notary: NotaryPart,
    grant: Caller,
    table: Name,
    snapshot_id: Annotated[int, Query(ge=0, le=LONG_MAX)],
    manifest: Annotated[str | None, Query(min_length=1, max_length=LOCATION_MAX_BYTES)] = None,
) -> Response:
    """The manifest list of a snapshot that `main` shows or showed, or a manifest that the list names."""
    return Response(notary.audits.file(grant, *_place(table), snapshot_id, manifest), media_type=OCTETS_TYPE)


def _place(table: str) -> tuple[Levels, str]:
    parts = parse_full_name(table)
    return parts[:-1], parts[-1]


def _logged(found: LoggedStatement) -> LoggedPart:
    return LoggedPart(
        kind=found.kind.value,  # type: ignore[arg-type] # only those are asked for, and pydantic judges it
        envelope=envelope_of(found.envelope),
        logged_at=found.logged_at,
        index=str(found.index),
        hashes=[base64.b64encode(each).decode() for each in found.hashes],
    )
