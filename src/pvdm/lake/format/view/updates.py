"""A view's first state, and the updates of a commit applied to its document as Iceberg's own builder does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import INT_LAST, Node, Raw, shown
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.table import update_structure as structure
from pvdm.lake.format.table.draft import LAST_ADDED, whole_property
from pvdm.lake.format.table.metadata import check_uuid, stripped_location
from pvdm.lake.format.table.structural_index import Alike
from pvdm.lake.format.view.metadata import (
    SQL,
    VIEW_FORMAT_VERSION,
    ViewMetadata,
    ViewVersion,
    parse_version,
    require_view_format,
)

VIEW_UPDATES_MAX: Final = 1_000
HISTORY_PROPERTY: Final = "version.history.num-entries"
HISTORY_DEFAULT: Final = 10
DROP_DIALECT_PROPERTY: Final = "replace.drop-dialect.allowed"
ASSERT_UUID: Final = "assert-view-uuid"


class ViewDraft:
    """A view's next state; changeable on purpose, and never kept: `finish` gives the new state, judged as a whole."""

    def __init__(self, base: ViewMetadata | None, *, now_ms: int, view_uuid: str) -> None:
        self.base = base
        self.now_ms = now_ms
        self.changed = base is None
        self.view_uuid = view_uuid
        self.location: str | None = base.location if base else None
        self.properties: dict[str, str] = dict(base.properties) if base else {}
        self.schemas: dict[int, TableSchema] = {each.schema_id: each for each in base.schemas} if base else {}
        self.versions: dict[int, ViewVersion] = {each.version_id: each for each in base.versions} if base else {}
        self.current_id: int | None = base.current_version_id if base else None
        self._alike_schemas = Alike(self.schemas, lambda schema: schema.meaning)
        self._alike_versions = Alike(self.versions, lambda version: version.meaning)
        # What this commit did, as far as later updates of it ask.
        self.last_schema: int | None = None
        self.last_version: int | None = None
        self.added_versions: set[int] = set()
        self.log_entry: Raw | None = None

    def put_schema(self, schema: TableSchema) -> None:
        """Add the schema, or find the one that is the same."""
        known = self._alike_schemas.find(schema)
        if known is not None:
            # Found is as good as added: another writer may have added it just before.
            self.last_schema = known
            return
        schema_id = max(self.schemas, default=-1) + 1
        raw = {**schema.raw, "type": "struct", "schema-id": schema_id}
        self.schemas[schema_id] = replace(schema, schema_id=schema_id, raw=raw)
        self._alike_schemas.add(schema_id, self.schemas[schema_id])
        self.last_schema = schema_id
        self.changed = True

    def put_version(self, version: ViewVersion) -> None:
        """Add the version, or find the one that behaves the same."""
        if version.schema_id == LAST_ADDED:
            schema_id = structure.last_added(self.last_schema, "schema", f"{version.place}.schema-id")
            version = replace(version, schema_id=schema_id, raw={**version.raw, "schema-id": schema_id})
        known = self._alike_versions.find(version)
        if known is not None:
            self.last_version = known
            return
        _judge_new(version)
        version_id = max(version.version_id, max(self.versions, default=0) + 1)
        if not 0 < version.version_id <= version_id <= INT_LAST:
            raise Code.VIEW_INVALID(
                reason="view_version_id_invalid",
                expected=f"1 to {INT_LAST}, and room for the next",
                got=str(version.version_id),
                place=f"{version.place}.version-id",
            )
        self.versions[version_id] = replace(
            version, version_id=version_id, raw={**version.raw, "version-id": version_id}
        )
        self._alike_versions.add(version_id, self.versions[version_id])
        self.added_versions.add(version_id)
        self.last_version = version_id
        self.changed = True

    def make_current(self, version_id: int, place: str) -> None:
        """Let the view show one of its versions."""
        if version_id == LAST_ADDED:
            version_id = structure.last_added(self.last_version, "version", place)
        if version_id == self.current_id:
            return
        found = self.versions.get(version_id)
        if found is None:
            raise Code.VIEW_INVALID(
                "no version has this id",
                reason="view_version_unknown",
                expected=f"one of {', '.join(str(known) for known in list(self.versions)[:32])}",
                got=str(version_id),
                place=place,
            )
        # A version that comes back became current now, not when it was made.
        time = found.timestamp_ms if version_id in self.added_versions else self.now_ms
        self.log_entry = {"timestamp-ms": time, "version-id": version_id}
        self.current_id = version_id
        self.changed = True

    def finish(self) -> ViewMetadata:
        """The new state; the old one itself if nothing changed."""
        if self.base is not None and not self.changed:
            return self.base
        if self.base is not None:
            self._judge_dialects(self.base.current_version)
        kept = self._kept()
        raw: dict[str, Json] = dict(self.base.raw) if self.base else {}
        raw["view-uuid"] = self.view_uuid
        raw["format-version"] = VIEW_FORMAT_VERSION
        if self.base is None or self.location != self.base.location:
            raw["location"] = self.location
        if self.properties or "properties" in raw:
            raw["properties"] = dict(self.properties)
        raw["schemas"] = [schema.raw for schema in self.schemas.values()]
        raw["current-version-id"] = self.current_id
        raw["versions"] = [version.raw for version in self.versions.values() if version.version_id in kept]
        raw["version-log"] = self._log(kept)
        return ViewMetadata.from_json(raw)

    def _kept(self) -> set[int]:
        """The newest versions, as many as the property says; those of this commit and the current one in any case."""
        size = whole_property(self.properties, HISTORY_PROPERTY, HISTORY_DEFAULT)
        if size < 1:
            raise Code.VIEW_INVALID(
                f"the property {HISTORY_PROPERTY} cannot be accepted", reason="view_history_size_invalid", got=str(size)
            )
        kept = set(self.added_versions) | {found for found in (self.current_id,) if found is not None}
        for version_id in sorted(self.versions, reverse=True):
            if len(kept) >= size:
                break
            kept.add(version_id)
        return kept

    def _log(self, kept: set[int]) -> list[Json]:
        old = self.base.raw.get("version-log") if self.base else None
        whole = [entry for entry in (old if isinstance(old, list) else []) if isinstance(entry, Mapping)]
        whole += [] if self.log_entry is None else [self.log_entry]
        entries: list[Json] = []
        for entry in whole:
            if entry["version-id"] in self.versions and entry["version-id"] not in kept:
                # A gap would tell a lie: what lies before it would seem to have been current until after it.
                entries.clear()
            else:
                entries.append(entry)
        return entries

    def _judge_dialects(self, previous: ViewVersion) -> None:
        current = self.versions[self.current_id] if self.current_id is not None else previous
        lost = previous.dialects - current.dialects
        if lost and self.properties.get(DROP_DIALECT_PROPERTY, "false").lower() != "true":
            raise Code.VIEW_INVALID(
                reason="view_dialect_dropped",
                expected=f"a query for {', '.join(sorted(previous.dialects))}",
                got=", ".join(sorted(current.dialects)) or "none",
                hint=f"set {DROP_DIALECT_PROPERTY}=true in the view's properties if that is meant",
            )


def new_view(request: Json, *, location: str, view_uuid: str, now_ms: int) -> ViewMetadata:
    """The first state of a view that a client asks for; the schema gets id 0."""
    node = Node(request, "$")
    draft = ViewDraft(None, now_ms=now_ms, view_uuid=check_uuid(view_uuid, "$.view-uuid"))
    draft.location = stripped_location(location, "$.location")
    draft.properties.update(node.strings("properties") if node.has("properties") else {})
    draft.put_schema(parse_schema(node.node("schema")))
    version = parse_version(node.node("view-version"))
    draft.put_version(replace(version, schema_id=LAST_ADDED))
    draft.make_current(LAST_ADDED, "$.view-version")
    return draft.finish()


def apply_view_updates(base: ViewMetadata, updates: Sequence[Json], *, now_ms: int) -> ViewMetadata:
    """The state after the updates; `base` itself if they change nothing."""
    draft = ViewDraft(base, now_ms=now_ms, view_uuid=base.view_uuid)
    for node, apply in _actions(updates):
        apply(draft, node)
    return draft.finish()


def check_view_requirements(base: ViewMetadata, requirements: Sequence[Json]) -> None:
    """Raise a conflict if a requirement does not hold; there is only the one about the view's UUID."""
    _require_few(requirements, "requirements")
    for position, requirement in enumerate(requirements):
        node = Node(requirement, f"$.requirements[{position}]")
        kind = node.text("type").lower()
        if kind != ASSERT_UUID:
            raise Code.COMMIT_REQUEST_INVALID(
                f"the requirement {shown(kind)} is not known",
                reason="requirement_unknown",
                expected=ASSERT_UUID,
                got=shown(kind),
                place=node.at("type"),
            )
        if node.text("uuid").lower() != base.view_uuid.lower():
            raise Code.REQUIREMENT_FAILED(
                reason="requirement_uuid", expected=shown(node.text("uuid")), got=base.view_uuid, place=node.place
            )


def _assign_uuid(draft: ViewDraft, node: Node) -> None:
    wanted = check_uuid(node.text("uuid"), node.at("uuid"))
    if wanted.lower() != draft.view_uuid.lower():
        raise Code.VIEW_INVALID(reason="view_uuid_changed", expected=draft.view_uuid, got=wanted, place=node.at("uuid"))


def _upgrade(draft: ViewDraft, node: Node) -> None:
    """upgrade-format-version: there is only one so far."""
    del draft
    require_view_format(node.integer("format-version"), node.at("format-version"))


def _add_schema(draft: ViewDraft, node: Node) -> None:
    draft.put_schema(parse_schema(node.node("schema")))


def _add_version(draft: ViewDraft, node: Node) -> None:
    draft.put_version(parse_version(node.node("view-version")))


def _set_current(draft: ViewDraft, node: Node) -> None:
    draft.make_current(node.integer("view-version-id"), node.at("view-version-id"))


_UPDATES: Final[Mapping[str, Callable[[ViewDraft, Node], None]]] = MappingProxyType(
    {
        "assign-uuid": _assign_uuid,
        "upgrade-format-version": _upgrade,
        "set-location": structure.set_location,
        "set-properties": structure.set_properties,
        "remove-properties": structure.remove_properties,
        "add-schema": _add_schema,
        "add-view-version": _add_version,
        "set-current-view-version": _set_current,
    }
)


def _actions(updates: Sequence[Json]) -> list[tuple[Node, Callable[[ViewDraft, Node], None]]]:
    """Every update with what applies it; one unknown word and nothing is applied."""
    _require_few(updates, "updates")
    found = []
    for position, update in enumerate(updates):
        node = Node(update, f"$.updates[{position}]")
        action = node.text("action").lower()
        apply = _UPDATES.get(action)
        if apply is None:
            raise Code.COMMIT_REQUEST_INVALID(
                f"the update {shown(action)} is not known",
                reason="update_unknown",
                expected="an update of the Iceberg REST specification for views",
                got=shown(action),
                place=node.at("action"),
            )
        found.append((node, apply))
    return found


def _require_few(found: Sequence[Json], what: str) -> None:
    if len(found) > VIEW_UPDATES_MAX:
        raise Code.COMMIT_REQUEST_INVALID(
            f"a commit to a view has too many {what}",
            reason="updates_too_many",
            expected=f"at most {VIEW_UPDATES_MAX}",
            got=str(len(found)),
        )


def _judge_new(version: ViewVersion) -> None:
    """A new version says something, in kinds that are known, once in each dialect."""
    seen: set[str] = set()
    for each in version.representations:
        if each.type != SQL or each.dialect is None:
            raise Code.VIEW_INVALID(
                reason="view_representation_unsupported",
                expected=SQL,
                got=shown(each.type),
                place=f"{version.place}.representations",
            )
        dialect = each.dialect.lower()
        if dialect in seen:
            raise Code.VIEW_DIALECT_TWICE(
                f"Invalid view version: Cannot add multiple queries for dialect {dialect[:64]}",
                got=shown(dialect),
                place=f"{version.place}.representations",
            )
        seen.add(dialect)
    if not seen:
        raise Code.VIEW_INVALID(reason="view_query_missing", got="none", place=f"{version.place}.representations")
