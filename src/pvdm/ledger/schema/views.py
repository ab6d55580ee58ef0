"""The catalog's views: which metadata file each of them shows."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, Index, text

from pvdm.ledger.schema.columns import hex_text, number, table, time, word

views: Final = table(
    "views",
    word("view_id", primary_key=True),
    word("namespace_id", ForeignKey("namespaces.namespace_id")),
    word("name"),
    word("domain"),
    word("view_uuid"),
    word("location"),
    word("metadata_location"),
    word("metadata_sha256"),
    number("revision"),
    number("dropped_micros", nullable=True),
    time(),
    *hex_text("view_id", 32),
    *hex_text("metadata_sha256", 64),
    changes=(
        "namespace_id",
        "name",
        "location",
        "metadata_location",
        "metadata_sha256",
        "revision",
        "dropped_micros",
        "at_micros",
    ),
)
_there = text("dropped_micros IS NULL")
Index("views_name_once", views.c.namespace_id, views.c.name, unique=True, sqlite_where=_there, postgresql_where=_there)
Index("views_uuid_once", views.c.view_uuid, unique=True, sqlite_where=_there, postgresql_where=_there)
