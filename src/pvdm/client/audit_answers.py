"""What the Steward answers an auditor: a table's document and logged statements, as frozen values."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from pvdm.client.answers import read_envelope
from pvdm.client.reading import Reading, unreadable

LOGGED_KINDS: Final = frozenset({"receipt", "proof", "break-glass", "protection", "migration"})


@dataclass(frozen=True, slots=True)
class LoggedView:
    """A signed envelope in its one spelling, when and where it was logged, and the hashes from there to the root."""

    kind: str
    envelope: bytes
    logged_at: int
    index: int
    hashes: tuple[bytes, ...]

    @classmethod
    def read(cls, value: object) -> LoggedView:
        """The answer's value."""
        fields = Reading(value, "the statement")
        kind = fields.text("kind")
        if kind not in LOGGED_KINDS:
            raise unreadable("the kind of a statement", ", ".join(sorted(LOGGED_KINDS)), "another one")
        return cls(
            kind,
            read_envelope(fields.value("envelope")),
            fields.number("logged_at"),
            fields.decimal("index"),
            tuple(_decoded(text) for text in fields.texts("hashes")),
        )


@dataclass(frozen=True, slots=True)
class AuditView:
    """A table as it is now, the newest checkpoint of the log, and the approvals about the table."""

    catalog: str
    table_uuid: str
    name: str
    contract_sha256: str | None
    metadata_path: str
    metadata: bytes
    checkpoint: bytes
    log_size: int
    statements: tuple[LoggedView, ...]

    @classmethod
    def read(cls, value: object) -> AuditView:
        """The answer's value."""
        fields = Reading(value, "the audit")
        table, document = fields.reading("table"), fields.reading("metadata")
        return cls(
            table.text("catalog"),
            table.text("uuid"),
            table.text("name"),
            fields.optional_hex("contract_sha256", 32),
            document.text("path"),
            document.text("text").encode(),
            fields.text("checkpoint").encode(),
            fields.decimal("log_size"),
            fields.items("statements", LoggedView.read),
        )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise unreadable("a hash of a log proof", "base64", "something else") from None
