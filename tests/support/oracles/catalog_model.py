"""A model of a table: its metadata after a sequence of Iceberg updates, computed without any code of pvdm."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Doc = dict[str, Any]

_KNOWN_REF = frozenset({"snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"})
_CHANGED_BY_STAGING = ("last-updated-ms", "last-sequence-number", "next-row-id", "metadata-log")
"""Fields that commits to staging branches change, and that do not affect what main's readers see."""


@dataclass
class Model:
    """A table: the fields of its document that updates change, and the rows of each snapshot by field id."""

    document: Doc
    protected: bool
    rows: dict[int, tuple[dict[int, object], ...]] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Doc, *, protected: bool) -> Model:
        """A model that begins with this document, which is not checked here."""
        return cls(copy.deepcopy(document), protected)

    @property
    def version(self) -> int:
        return int(self.document["format-version"])

    @property
    def refs(self) -> Doc:
        found: Doc = self.document["refs"]
        return found

    @property
    def snapshots(self) -> dict[int, Doc]:
        return {each["snapshot-id"]: each for each in self.document["snapshots"]}

    def head(self, ref: str) -> int | None:
        found = self.refs.get(ref)
        return None if found is None else int(found["snapshot-id"])

    def is_tag(self, ref: str) -> bool:
        return ref in self.refs and self.refs[ref]["type"] == "tag"

    def ancestry(self) -> list[int]:
        """The snapshots of main's history, newest first."""
        return ancestry(self.document)

    def scan(self, ref: str) -> list[Doc]:
        """The rows of a ref. A tag has the columns of its snapshot's schema, a branch those of the current schema."""
        head = self.head(ref)
        if head is None:
            return []
        schema_id = self.document["current-schema-id"]
        if self.is_tag(ref):
            schema_id = self.snapshots[head]["schema-id"]
        columns = next(each for each in self.document["schemas"] if each["schema-id"] == schema_id)["fields"]
        return [{each["name"]: _value(row, each) for each in columns} for row in self.rows[head]]

    def apply(self, updates: Sequence[Doc]) -> None:
        """Apply the updates in order. `last_added` has the ids to which -1 refers in a later update."""
        last_added: dict[str, int] = {}
        for update in updates:
            action = update["action"].replace("-", "_")
            getattr(self, f"_{action}")(update, last_added)

    def _add_snapshot(self, update: Doc, _: dict[str, int]) -> None:
        snapshot = update["snapshot"]
        self.document["snapshots"].append(snapshot)
        if self.version > 1:
            # A snapshot that was written for format 1, before an upgrade, has no sequence number.
            self.document["last-sequence-number"] = snapshot.get("sequence-number", 0)
        if self.version > 2:
            self.document["next-row-id"] += snapshot["added-rows"]

    def _set_snapshot_ref(self, update: Doc, _: dict[str, int]) -> None:
        name = update["ref-name"]
        given = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
        unknown = {key: value for key, value in self.refs.get(name, {}).items() if key not in _KNOWN_REF}
        self.refs[name] = unknown | given

    def _remove_snapshot_ref(self, update: Doc, _: dict[str, int]) -> None:
        self.refs.pop(update["ref-name"], None)

    def _remove_snapshots(self, update: Doc, _: dict[str, int]) -> None:
        gone = set(update["snapshot-ids"]) & self.snapshots.keys()
        for key in ("snapshots", "statistics", "partition-statistics"):
            self.document[key] = [each for each in self.document.get(key, []) if each["snapshot-id"] not in gone]
        for name in [name for name, ref in self.refs.items() if ref["snapshot-id"] in gone]:
            del self.refs[name]

    def _set_properties(self, update: Doc, _: dict[str, int]) -> None:
        self.document["properties"] |= update["updates"]

    def _remove_properties(self, update: Doc, _: dict[str, int]) -> None:
        for name in update["removals"]:
            self.document["properties"].pop(name, None)

    def _add_schema(self, update: Doc, last_added: dict[str, int]) -> None:
        fields = update["schema"]["fields"]
        known = {each["schema-id"]: each for each in self.document["schemas"]}
        same = [at for at, each in known.items() if each["fields"] == fields]
        highest = max(each["id"] for each in fields)
        self.document["last-column-id"] = max(self.document["last-column-id"], highest)
        if same:
            last_added["schema"] = same[0]
        else:
            last_added["schema"] = max(known) + 1
            self.document["schemas"].append({"type": "struct", "schema-id": last_added["schema"], "fields": fields})

    def _set_current_schema(self, update: Doc, last_added: dict[str, int]) -> None:
        self.document["current-schema-id"] = _id(update["schema-id"], "schema", last_added)

    def _add_spec(self, update: Doc, last_added: dict[str, int]) -> None:
        specs, fields = self.document["partition-specs"], update["spec"]["fields"]
        last_added["spec"] = max(each["spec-id"] for each in specs) + 1
        specs.append({"spec-id": last_added["spec"], "fields": fields})
        ids = [each["field-id"] for each in fields]
        self.document["last-partition-id"] = max([self.document["last-partition-id"], *ids])

    def _set_default_spec(self, update: Doc, last_added: dict[str, int]) -> None:
        self.document["default-spec-id"] = _id(update["spec-id"], "spec", last_added)

    def _add_sort_order(self, update: Doc, last_added: dict[str, int]) -> None:
        orders = self.document["sort-orders"]
        last_added["order"] = max(each["order-id"] for each in orders) + 1
        orders.append({"order-id": last_added["order"], "fields": update["sort-order"]["fields"]})

    def _set_default_sort_order(self, update: Doc, last_added: dict[str, int]) -> None:
        self.document["default-sort-order-id"] = _id(update["sort-order-id"], "order", last_added)

    def _set_location(self, update: Doc, _: dict[str, int]) -> None:
        self.document["location"] = update["location"]

    def _upgrade_format_version(self, update: Doc, _: dict[str, int]) -> None:
        if self.version < 2 <= update["format-version"]:
            self.document["last-sequence-number"] = 0
        if self.version < 3 <= update["format-version"]:
            self.document["next-row-id"] = 0
        self.document["format-version"] = update["format-version"]

    def _set_statistics(self, update: Doc, _: dict[str, int]) -> None:
        self._put_file("statistics", update["statistics"])

    def _set_partition_statistics(self, update: Doc, _: dict[str, int]) -> None:
        self._put_file("partition-statistics", update["partition-statistics"])

    def _put_file(self, key: str, file: Doc) -> None:
        others = [each for each in self.document.get(key, []) if each["snapshot-id"] != file["snapshot-id"]]
        self.document[key] = [*others, file]

    def _add_encryption_key(self, update: Doc, _: dict[str, int]) -> None:
        keys = self.document.setdefault("encryption-keys", [])
        if update["encryption-key"] not in keys:
            keys.append(update["encryption-key"])


def facts(document: Doc) -> Doc:
    """The document for a comparison: without logs, times and fields that repeat others, and lists as dicts by id."""
    found = {key: value for key, value in document.items() if key not in ("last-updated-ms", "metadata-log")}
    for key in ("schema", "partition-spec", "snapshot-log", "current-snapshot-id"):
        found.pop(key, None)
    for key, by in (
        ("snapshots", "snapshot-id"),
        ("statistics", "snapshot-id"),
        ("partition-statistics", "snapshot-id"),
        ("schemas", "schema-id"),
        ("partition-specs", "spec-id"),
        ("sort-orders", "order-id"),
    ):
        found[key] = {each[by]: each for each in found.get(key, [])}
    return found


def ancestry(document: Doc) -> list[int]:
    """The snapshots of main's history, newest first, back to the first one that the document lacks."""
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in document["snapshots"]}
    return list(_ancestors(parents, document["refs"].get("main", {}).get("snapshot-id")))


def shown_by_main(document: Doc) -> Doc:
    """The part of a document that main's readers see. The catalog computes this in another way."""
    found = {key: value for key, value in document.items() if key not in _CHANGED_BY_STAGING}
    on_main = set(ancestry(document))
    existing = {each["snapshot-id"] for each in document["snapshots"]}
    found["snapshots"] = [each for each in document["snapshots"] if each["snapshot-id"] in on_main]
    for key in ("statistics", "partition-statistics"):
        listed = document.get(key, [])
        # An entry for a snapshot that does not exist belongs to no branch, so it is not staging either.
        found[key] = [each for each in listed if each["snapshot-id"] in on_main or each["snapshot-id"] not in existing]
    found["refs"] = {name: ref for name, ref in document["refs"].items() if name == "main"}
    return found


def tags(document: Doc) -> Doc:
    """The tags of a document, of snapshots of main and of staging branches."""
    return {name: ref for name, ref in document["refs"].items() if ref["type"] == "tag"}


def history_needs_none_of(document: Doc, gone: set[int]) -> bool:
    """Whether none of these snapshots is in the snapshot log or in the history of a ref that points to another one."""
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in document["snapshots"]}
    heads = {ref["snapshot-id"] for ref in document["refs"].values()} - gone
    reachable = {each for head in heads for each in _ancestors(parents, head)}
    return not gone & (reachable | {each["snapshot-id"] for each in document["snapshot-log"]})


def _ancestors(parents: dict[int, int | None], at: int | None) -> Iterator[int]:
    """The snapshot and its ancestors, as far as `parents` has them."""
    while at is not None and at in parents:
        yield at
        at = parents[at]


def _id(given: int, kind: str, last_added: dict[str, int]) -> int:
    """The id of an update. -1 is the last one that the same commit added."""
    return last_added[kind] if given == -1 else given


def _value(row: dict[int, object], column: Doc) -> object:
    """The value as JSON has it. A column that the row lacks has its initial default."""
    value = row[column["id"]] if column["id"] in row else column.get("initial-default")
    return value.isoformat() if isinstance(value, datetime.date) else value
