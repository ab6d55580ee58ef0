"""Tables, snapshots and sources as signed documents name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, decimal, require_form, require_long, require_random, require_sha256, require_text

SOURCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table: its UUID is what counts, catalog and name say where it is found."""

    catalog: str
    uuid: str
    name: str

    def __post_init__(self) -> None:
        require_text(self.catalog, "the catalog")
        require_form(self.uuid, "uuid", "the table UUID")
        require_text(self.name, "the table name")

    def to_json(self) -> dict[str, Value]:
        """The table in a signed document."""
        return {"catalog": self.catalog, "uuid": self.uuid, "name": self.name}

    @classmethod
    def from_json(cls, value: Value) -> TableRef:
        """The table that `to_json` wrote."""
        fields = Fields(value, "a table", ("catalog", "uuid", "name"))
        return cls(fields.text("catalog"), fields.text("uuid"), fields.text("name"))


@dataclass(frozen=True, slots=True)
class NamespaceRef:
    """A namespace: its id is what counts, catalog and name say where it is found."""

    catalog: str
    id: str
    name: str

    def __post_init__(self) -> None:
        require_text(self.catalog, "the catalog")
        require_random(self.id, "the namespace's id")
        require_text(self.name, "the namespace's name")

    def to_json(self) -> dict[str, Value]:
        """The namespace in a signed document."""
        return {"catalog": self.catalog, "id": self.id, "name": self.name}

    @classmethod
    def from_json(cls, value: Value) -> NamespaceRef:
        """The namespace that `to_json` wrote."""
        fields = Fields(value, "a namespace", ("catalog", "id", "name"))
        return cls(fields.text("catalog"), fields.text("id"), fields.text("name"))


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The pinned snapshot of a source, and the root over its frozen files."""

    table: TableRef
    snapshot_id: int
    freeze_root_sha256: str

    def __post_init__(self) -> None:
        require_long(self.snapshot_id, "the source snapshot")
        require_sha256(self.freeze_root_sha256, "the source's freeze root")

    def to_json(self) -> dict[str, Value]:
        """The source in a signed document."""
        return {
            "table": self.table.to_json(),
            "snapshot_id": decimal(self.snapshot_id),
            "freeze_root_sha256": self.freeze_root_sha256,
        }

    @classmethod
    def from_json(cls, value: Value) -> SourceSnapshot:
        """The source that `to_json` wrote."""
        fields = Fields(value, "a source", ("table", "snapshot_id", "freeze_root_sha256"))
        return cls(
            TableRef.from_json(fields.value("table")), fields.decimal("snapshot_id"), fields.text("freeze_root_sha256")
        )
