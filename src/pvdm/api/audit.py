"""What auditors fetch: a table's document, logged statements, and proofs of the log."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import Decimal, Micros, ResponseModel, SentAs, Sha256
from pvdm.api.proofs import EnvelopeBytes

AUDIT_IDS_MAX: Final = 64


def _read_base64(text: str, _: ValidationInfo) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "Input should be base64") from None


def _write_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


Base64: TypeAlias = Annotated[bytes, SentAs(str, _read_base64, _write_base64)]
HexHash: TypeAlias = Annotated[bytes, SentAs(Sha256, lambda text, _: bytes.fromhex(text), bytes.hex)]


class LoggedView(ResponseModel):
    """A signed envelope, when and where it was logged, and the hashes from its entry to the log's root."""

    kind: Literal["receipt", "proof", "break-glass", "protection", "migration"]
    envelope: EnvelopeBytes
    logged_at: Micros
    index: Decimal
    hashes: tuple[Base64, ...]


class LoggedList(ResponseModel):
    """Statements in the log's order, as many as fit into one response."""

    statements: tuple[LoggedView, ...]


class AuditTable(ResponseModel):
    """A table, as signed statements name it."""

    catalog: str
    uuid: str
    name: str


class AuditDocument(ResponseModel):
    """The table's document: its path, the hash of its bytes, and the bytes as text."""

    path: str
    sha256: Sha256
    text: str


class AuditView(ResponseModel):
    """A table as it is now, the newest checkpoint of the log, and every approval about the table."""

    table: AuditTable
    contract_sha256: Sha256 | None
    metadata: AuditDocument
    checkpoint: str
    log_size: Decimal
    statements: tuple[LoggedView, ...]


class ConsistencyView(ResponseModel):
    """The hashes of a consistency proof."""

    hashes: tuple[HexHash, ...]
