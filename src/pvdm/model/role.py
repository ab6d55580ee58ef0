"""The roles at the Steward's door; each has its own credential."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Who is asking."""

    PRODUCER = "producer"
    PUBLISHER = "publisher"
    CONSUMER = "consumer"
    ATTESTOR = "attestor"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    STEWARD = "steward"  # its own workers: they see all of a table and keep its staging branches
