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
    WORKER = "worker"  # a process of the Steward's Spark application: it gets keys for a handle, and nothing else
    STEWARD = "steward"  # its own workers: they see all of a table and keep its staging branches
