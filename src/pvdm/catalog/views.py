"""Operations on views: create, register, load, list, replace, rename and drop. A view holds text, never rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm import fault
from pvdm.catalog.access import require_free
from pvdm.catalog.commit import Change, remove_uncommitted, retry_if_row_changed
from pvdm.catalog.names import is_inside, new_place, read_metadata, require_name
from pvdm.catalog.requests import RequestKey, failures_mean_state_unknown, note_request
from pvdm.catalog.tables import CatalogParts, TableName, dotted_table, name_conflicts
from pvdm.errors import Code, ConflictError, PvdmError
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.json_document import Json, Node
from pvdm.lake.format.view import ViewMetadata, apply_view_updates, check_view_requirements, new_view
from pvdm.lake.paths import Pointer, parse_location
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, views
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.views import NewView, ViewRow
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.model.role import Role

_VIEW_CONFLICTS: Final[Mapping[str, str]] = {
    "view_exists": "View already exists",
    "name_of_table": "Table with same name already exists",
    "name_of_namespace": "Namespace with same name already exists",
}


@dataclass(frozen=True, slots=True)
class ViewState:
    """A view's row, which a commit compares with the ledger's, and the document that the row points to."""

    row: ViewRow
    metadata: ViewMetadata


# Stores the pointer to the view's new metadata file in the ledger, in the given transaction.
Swap = Callable[[Unit, Pointer], ViewRow]


class Views:
    """Operations on views. In a namespace that protects its tables only operators change views."""

    def __init__(self, parts: CatalogParts, files: MetadataFiles) -> None:
        self._parts = parts
        self._files = files

    def load(self, grant: Grant, levels: Levels, name: str) -> ViewState:
        """The view, for grants of its domain."""
        _, row = self._get_row(grant, levels, name)
        return self._load_state(row)

    def require_exists(self, grant: Grant, levels: Levels, name: str) -> None:
        """Raise unless the view exists for this grant."""
        self._get_row(grant, levels, name)

    def page(self, grant: Grant, levels: Levels, *, after: str | None, count: int | None) -> list[str]:
        """The names of a namespace's views, in order, after the name `after`; all of them if `count` is None."""
        namespace = self._parts.namespaces.get(grant, levels)
        with self._parts.ledger.read() as unit:
            return [row.name for row in views.page(unit, namespace.namespace_id, after=after, count=count)]

    def create(self, grant: Grant, levels: Levels, request: Json, *, key: RequestKey | None = None) -> ViewState:
        """Create a view."""
        node = Node(request, "$")
        name = require_name(node.text("name"), "the view's name")

        def make() -> ViewState:
            namespace = self._get_namespace_for_view(grant, levels)
            view_uuid = str(uuid.uuid4())
            location = node.optional_text("location") or str(new_place(self._parts.warehouse, levels, name, view_uuid))
            now_ms = self._parts.clock.now_micros() // 1_000
            after = new_view(request, location=location, view_uuid=view_uuid, now_ms=now_ms)
            return self._create(grant, namespace, name, after, key)

        with name_conflicts(levels, name, _VIEW_CONFLICTS):
            return retry_if_row_changed(make)

    def register(
        self, grant: Grant, levels: Levels, name: str, metadata_location: str, *, key: RequestKey | None = None
    ) -> ViewState:
        """Create a view from its metadata file elsewhere. The Steward keeps its own copy."""
        require_name(name, "the view's name")

        def make() -> ViewState:
            namespace = self._get_namespace_for_view(grant, levels)
            after = self._read_registered_metadata(grant, namespace, metadata_location)
            return self._create(grant, namespace, name, after, key)

        with name_conflicts(levels, name, _VIEW_CONFLICTS):
            return retry_if_row_changed(make)

    def commit(self, grant: Grant, change: Change, *, key: RequestKey | None = None) -> ViewState:
        """Replace the view, or change its properties. After a conflict the change is checked again on the new base."""
        return retry_if_row_changed(lambda: self._commit(grant, change, key))

    def state_of_repeated_request(self, grant: Grant, pointer: Sequence[Json], levels: Levels, name: str) -> ViewState:
        """The state after an earlier request with this idempotency key; `pointer` has that state's file and hash."""
        _, row = self._get_row(grant, levels, name)
        location, sha256 = (str(part) for part in pointer)
        return self._load_state(replace(row, pointer=Pointer(location, sha256)))

    def rename(self, grant: Grant, source: TableName, target: TableName, *, key: RequestKey | None = None) -> None:
        """Rename the view, perhaps into another namespace of the same domain."""
        require_name(target[1], "the view's new name")
        try:
            retry_if_row_changed(lambda: self._rename(grant, source, target, key))
        except ConflictError as error:
            kinds = {"view_exists": "View", "name_of_table": "Table"}
            if error.reason not in kinds:
                raise
            names = f"{dotted_table(*source)} to {dotted_table(*target)}"
            message = f"Cannot rename {names}. {kinds[error.reason]} already exists"
            raise ConflictError(error.reason, message) from None

    def drop(self, grant: Grant, levels: Levels, name: str, *, key: RequestKey | None = None) -> None:
        """Drop the view. Its metadata files stay."""
        retry_if_row_changed(lambda: self._drop(grant, levels, name, key))

    def _commit(self, grant: Grant, change: Change, key: RequestKey | None) -> ViewState:
        namespace, row = self._get_row(grant, change.levels, change.name)
        self._require_may_change(grant, namespace)
        before = self._load_state(row)
        check_view_requirements(before.metadata, change.requirements)
        now_ms = self._parts.clock.now_micros() // 1_000
        after = apply_view_updates(before.metadata, change.updates, now_ms=now_ms)
        if after is before.metadata:
            if key is not None:  # a repetition of the request gets this response, though nothing changes
                now = self._parts.clock.now_micros()
                self._parts.ledger.transact(lambda unit: _store_pointer(unit, key, row), at_micros=now)
            return before
        relocated = after.location != before.metadata.location
        if relocated:
            self._parts.access.require_place(grant, change.levels, after.location)

        def swap(unit: Unit, pointer: Pointer) -> ViewRow:
            new_row = views.swap(unit, namespace, row, pointer, location=after.location)
            if relocated:
                _require_free_place(unit, after.location)
            return new_row

        return self._put(after, row.revision + 1, swap, key)

    def _rename(self, grant: Grant, source: TableName, target: TableName, key: RequestKey | None) -> None:
        old_namespace, row = self._get_row(grant, *source)
        self._require_may_change(grant, old_namespace)
        new_levels, new_name = target
        namespace = self._get_namespace_for_view(grant, new_levels)
        if namespace.domain != row.domain:
            message = "a view stays in its domain"
            raise Code.PERMISSION_DENIED(message, reason="domain_wrong", expected=row.domain, got=namespace.domain)

        def work(unit: Unit) -> None:
            views.rename(unit, row, new_name, old_home=old_namespace, new_home=namespace)
            note_request(unit, key, {}, status=204)

        self._parts.ledger.transact(work, at_micros=self._parts.clock.now_micros())

    def _drop(self, grant: Grant, levels: Levels, name: str, key: RequestKey | None) -> None:
        namespace, row = self._get_row(grant, levels, name)
        self._require_may_change(grant, namespace)

        def work(unit: Unit) -> None:
            views.drop(unit, namespace, row)
            note_request(unit, key, {}, status=204)

        self._parts.ledger.transact(work, at_micros=self._parts.clock.now_micros())

    def _create(
        self, grant: Grant, namespace: Namespace, name: str, after: ViewMetadata, key: RequestKey | None
    ) -> ViewState:
        self._parts.access.require_place(grant, namespace.levels, after.location)

        def swap(unit: Unit, pointer: Pointer) -> ViewRow:
            row = views.create(unit, namespace, NewView(name, after.view_uuid, after.location, pointer))
            _require_free_place(unit, row.location)
            return row

        return self._put(after, 0, swap, key)

    def _put(self, after: ViewMetadata, revision: int, swap: Swap, key: RequestKey | None) -> ViewState:
        """Write and sync the file, then swap the pointer. A failure after the swap becomes `StateUnknownError`."""
        file = self._files.write(after.view_uuid, revision, after.to_bytes())
        fault.point("catalog.after_metadata_file")

        def work(unit: Unit) -> ViewRow:
            row = swap(unit, file)
            _store_pointer(unit, key, row)
            return row

        with remove_uncommitted(self._files, [file]):
            row = self._parts.ledger.transact(work, at_micros=self._parts.clock.now_micros())
        with failures_mean_state_unknown():
            fault.point("catalog.after_swap")
        return ViewState(row, after)

    def _read_registered_metadata(self, grant: Grant, namespace: Namespace, metadata_location: str) -> ViewMetadata:
        """Read a metadata file that is to be registered.

        An operator may register any file. Others may register one in the warehouse that is below the view's location,
        or one of a view that their domain dropped.
        """
        place = parse_location(metadata_location)
        inside = is_inside(self._parts.warehouse, place)
        with self._parts.ledger.read() as unit:
            dropped = views.find_dropped(unit, str(place))
        may_be_anywhere = grant.role is Role.OPERATOR or (dropped is not None and dropped.domain == namespace.domain)
        if not may_be_anywhere and not inside:
            raise _outside_error(str(self._parts.warehouse), str(place))
        after = ViewMetadata.parse(read_metadata(place, self._parts.stores))
        if not may_be_anywhere and not place.is_under(parse_location(after.location)):
            raise _outside_error(f"a file under {after.location}", str(place))
        return after

    def _get_namespace_for_view(self, grant: Grant, levels: Levels) -> Namespace:
        """The namespace. Raises unless the grant may create a view in it."""
        self._parts.access.require_may_manage(grant)
        self._parts.states.upstreams.require_not_upstream(levels, operation="create a view")
        namespace = self._parts.namespaces.get(grant, levels)
        self._require_may_change(grant, namespace)
        return namespace

    def _require_may_change(self, grant: Grant, namespace: Namespace) -> None:
        """Raise unless the grant may change views there; in a protected namespace only an operator may."""
        self._parts.access.require_may_manage(grant)
        if namespace.protected_by is not None and grant.role is not Role.OPERATOR:
            where = namespaces.dotted_name(namespace.levels)
            message = f"the namespace {where} protects its tables, and a view in it could pass for one"
            hint = "ask an operator, or keep the view in a namespace that protects nothing; nothing was changed"
            expected, got = Role.OPERATOR, grant.role
            raise Code.CHANGE_GATED(message, reason="namespace_gated", expected=expected, got=got, hint=hint)

    def _get_row(self, grant: Grant, levels: Levels, name: str) -> tuple[Namespace, ViewRow]:
        with self._parts.ledger.read() as unit:
            namespace = namespaces.find(unit, levels)
            row = None if namespace is None else views.find(unit, namespace.namespace_id, name)
        if namespace is not None:
            require_domain(grant, namespace.domain, f"the namespace {namespaces.dotted_name(levels)}")
        if namespace is None or row is None:
            raise Code.VIEW_UNKNOWN(f"View does not exist: {dotted_table(levels, name)}")
        return namespace, row

    def _load_state(self, row: ViewRow) -> ViewState:
        """The row with its document. The file is read, hashed and parsed every time: views are small."""
        return ViewState(row, ViewMetadata.parse(self._files.read(row.pointer)))


def _require_free_place(unit: Unit, location: str) -> None:
    """Raise if a table lies there. The lock keeps the place free of tables until the end of the unit."""
    unit.lock_name("places")
    require_free(unit, location)


def _store_pointer(unit: Unit, key: RequestKey | None, row: ViewRow) -> None:
    note_request(unit, key, {"pointers": [[row.pointer.location, row.pointer.sha256]]})


def _outside_error(expected: str, got: str) -> PvdmError:
    return Code.LOCATION_OUTSIDE("this metadata file may not be registered", expected=expected, got=got[:200])
