"""The tables of publications to upstream catalogs: announced before the upstream is asked, settled after."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, text

from pvdm.ledger.schema.columns import hex_text, states, table, time, word
from pvdm.model.states import ANNOUNCED

announced: Final = table(
    "announced",
    word("announced_id", primary_key=True),
    word("table_uuid"),
    word("workload_id", ForeignKey("workloads.workload_id")),
    word("snapshot_id"),
    word("override_nonce", nullable=True),
    word("holder"),
    word("order_text"),
    *states(ANNOUNCED),
    word("reason"),
    time(),
    *hex_text("announced_id", 32),
    changes=("state", "reason", "at_micros"),
    unlogged=("order_text",),
)
_open = text("state = 'OPEN'")
# The queue of a table across Stewards: whoever has announced is first, until that is settled.
Index("announced_open_once", announced.c.table_uuid, unique=True, sqlite_where=_open, postgresql_where=_open)
Index("announced_snapshot_once", announced.c.table_uuid, announced.c.snapshot_id, unique=True)
Index("announced_open", announced.c.state, sqlite_where=_open, postgresql_where=_open)

announced_attempts: Final = table(
    "announced_attempts",
    word("announced_id", ForeignKey("announced.announced_id"), primary_key=True),
    word("attempt_id", primary_key=True),
    word("nonce"),
    time(),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    Index("announced_attempts_attempt_id", "attempt_id"),
)

vouched: Final = table(
    "vouched",
    word("table_uuid", primary_key=True),
    word("snapshot_id", primary_key=True),
    word("facts_sha256", primary_key=True),
    word("structure_sha256"),
    time(),
    *hex_text("facts_sha256", 64),
    *hex_text("structure_sha256", 64),
    unlogged=None,  # a history may be long; what it comes of, a protection or an announcement, is logged
)
