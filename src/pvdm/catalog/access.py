"""Who may do what in the catalog: domains, roles, places, and the gate in front of protected tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from pvdm.catalog import rule, sanity
from pvdm.catalog.names import changed_write_paths, namespace_folder, require_domain_place
from pvdm.catalog.state import TableState
from pvdm.errors import Code, NotAllowedError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.protectable import require_protectable
from pvdm.lake.paths import Location, parse_location
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace, require_no_view
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import protections
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, workloads
from pvdm.metadata.gate.target import Permit
from pvdm.model.chunk import is_steward_branch
from pvdm.model.role import Role
from pvdm.model.states import AttemptState

_WRITING_ROLES: Final = frozenset({Role.PRODUCER, Role.OPERATOR, Role.PUBLISHER, Role.STEWARD})
_ONLY_PROTECTED_ROLES: Final = frozenset({Role.PUBLISHER, Role.STEWARD})  # they write to protected tables only
_MANAGING_ROLES: Final = frozenset({Role.PRODUCER, Role.OPERATOR})


class CatalogAccess:
    """Checks each request by its token's grant (role and domain), the places it names, and the table's protection."""

    def __init__(self, ledger: Ledger, warehouse: Location, *own_places: Location) -> None:
        """`own_places` are where the Steward keeps its own files."""
        self._ledger = ledger
        self._warehouse = warehouse
        self._own_places = own_places

    def require_may_manage(self, grant: Grant) -> None:
        """Raise unless the grant may create, drop, rename and register tables, views and namespaces."""
        if grant.role not in _MANAGING_ROLES or grant.attempt_id is not None:
            got = grant.role if grant.attempt_id is None else "a token for one attempt"
            raise Code.PERMISSION_DENIED(reason="role_wrong", expected=" or ".join(sorted(_MANAGING_ROLES)), got=got)

    def require_create(
        self, grant: Grant, namespace: Namespace, name: str, after: TableMetadata, *, replaces: TableRow | None = None
    ) -> None:
        """Raise unless the grant may create the table `after`. In a protected namespace the table must be empty.

        Only an operator may create a table whose UUID is protected in the log. `after` replaces the table `replaces`.
        """
        self.require_may_manage(grant)
        with self._ledger.read() as unit:
            # After a restore, the ledger may lack a table whose UUID is protected in the log.
            is_operator = grant.role is Role.OPERATOR
            if not is_operator and protections.find_current_contract(unit, str(after.table_uuid)) is not None:
                raise Code.TABLE_UUID_PROTECTED(expected=Role.OPERATOR, got=grant.role)
            require_no_view(unit, namespace.namespace_id, name)
            same_name = tables.find(unit, namespace.namespace_id, name)
        # A table of the same name may lie in the place: the commit's transaction reports that the name is taken.
        self.require_place(grant, namespace.levels, after.location, for_table=replaces or same_name)
        self._require_write_paths(grant, {}, after, for_table=replaces or same_name)
        if not is_operator:
            sanity.require_manifests(after.snapshots, (parse_location(after.location),))
        if namespace.protected_by is not None:
            require_protectable(after)
            if after.snapshots or after.last_sequence_number or after.next_row_id:
                raise rule.main_gated_error(name, "its namespace protects it, and it would begin with rows")

    def require_may_rename_or_drop(self, grant: Grant, row: TableRow, what: str) -> None:
        """Raise unless the grant may rename, drop or replace the table; `main_gated` for a protected table."""
        self.require_may_manage(grant)
        if row.protected:
            raise rule.main_gated_error(row.name, what, next_step="have an operator unprotect it first")

    def require_place(self, grant: Grant, levels: Levels, location: str, *, for_table: TableRow | None = None) -> None:
        """Raise unless the place is below its namespace's folder, in no other table's place, and not the Steward's.

        An operator may use a place outside the namespace's folder, but none of another domain. Only the table
        `for_table` may lie in the place already.
        """
        place = parse_location(location)
        if grant.role is not Role.OPERATOR:
            self._require_in_namespace_folder(levels, place)
        self._require_usable(grant, place, for_table=for_table)

    def _require_usable(self, grant: Grant, place: Location, *, for_table: TableRow | None) -> None:
        self.require_not_own(place)
        with self._ledger.read() as unit:
            require_domain_place(grant, place, self._warehouse, namespaces.list_owners(unit))
            require_free(unit, str(place), for_table=for_table)

    def _require_write_paths(
        self, grant: Grant, before: Mapping[str, str], after: TableMetadata, *, for_table: TableRow | None
    ) -> None:
        """Raise if a new property sends the table's files to a place that the grant or the table may not use."""
        for place in changed_write_paths(before, after.properties):
            self._require_usable(grant, place, for_table=for_table)

    def require_not_own(self, place: Location) -> None:
        """Raise `location_reserved` if the place overlaps a place of the Steward's own files."""
        if any(place.overlaps(own) or place.without_links.overlaps(own.without_links) for own in self._own_places):
            raise Code.LOCATION_RESERVED(got=str(place)[:200])

    def require_readable(self, unit: Unit, folders: Sequence[Location], domain: str) -> None:
        """Raise if a folder that the Steward is to read for a domain is the Steward's own, or another domain's."""
        closed = {*self._own_places, *(path for path, _, owner in self._namespace_folders(unit) if owner != domain)}
        closed |= {each.without_links for each in closed}
        foreign = next((each for each in folders if not closed.isdisjoint(each.self_and_parents())), None)
        if foreign is not None or tables.find_containing(unit, folders, except_domain=domain) is not None:
            expected = f"files of the domain {domain}, or of no domain"
            got = "in the place of another table" if foreign is None else str(foreign)[:200]
            raise Code.SOURCE_NOT_ALLOWED(reason="source_file_foreign", expected=expected, got=got)

    def require_upstream_place(self, place: Location, mounted: Levels | None) -> None:
        """Raise if a place of an upstream overlaps the Steward's, or the folder of a namespace outside `mounted`.

        `mounted` is the namespace that serves the upstream. With None only the Steward's places are checked.
        """
        self.require_not_own(place)
        if mounted is None:
            return
        with self._ledger.read() as unit:
            others = [path for path, levels, _ in self._namespace_folders(unit) if levels[: len(mounted)] != mounted]
        if any(place.overlaps(folder) for folder in others):
            raise Code.LOCATION_TAKEN("a namespace's folder lies there", got=str(place)[:200])

    def _require_in_namespace_folder(self, levels: Levels, place: Location) -> None:
        """Raise unless the place is below the namespace's folder and contains no namespace's folder."""
        folder = namespace_folder(self._warehouse, levels)
        if not place.is_under(folder) or place == folder:
            where = "namespace's folder" if place.is_under(self._warehouse) else "warehouse"
            message = f"the location is outside the {where}"
            hint = "leave the location out, and the table gets a place of its own; or ask an operator"
            raise Code.LOCATION_OUTSIDE(message, expected=f"a place below {folder}", got=str(place)[:200], hint=hint)
        with self._ledger.read() as unit:
            contains_folder = any(each.is_under(place) for each, _, _ in self._namespace_folders(unit))
        if contains_folder:
            raise Code.LOCATION_TAKEN("a namespace's folder lies there", got=str(place)[:200])

    def _namespace_folders(self, unit: Unit) -> list[tuple[Location, Levels, str]]:
        """The folder, the levels and the owning domain of every namespace."""
        owners = namespaces.list_owners(unit)
        return [(namespace_folder(self._warehouse, levels), levels, domain) for levels, domain in owners]

    def require_may_write(self, grant: Grant, row: TableRow) -> None:
        """Raise unless the role may write to the table, protected or not. Callers check this before they read more."""
        if grant.role not in _WRITING_ROLES:
            message, expected = "this token only reads", " or ".join(sorted(_WRITING_ROLES))
            raise Code.PERMISSION_DENIED(message, reason="role_wrong", expected=expected, got=grant.role)
        if not row.protected and (grant.role in _ONLY_PROTECTED_ROLES or grant.attempt_id is not None):
            message = "the token may not write to a table that is not protected"
            raise Code.PERMISSION_DENIED(message, reason="role_wrong", got=grant.role)

    def require_commit(
        self, grant: Grant, before: TableState, after: TableMetadata, data: bytes, *, permit: Permit | None, now_ms: int
    ) -> None:
        """Raise unless the grant may make this commit. `main` of a protected table changes only with a permit."""
        name = before.row.name
        self.require_may_write(grant, before.row)
        if str(after.table_uuid).lower() != before.row.table_uuid:
            expected, got = before.row.table_uuid, str(after.table_uuid)
            message = f"the UUID of {name} cannot change"
            raise Code.CHANGE_GATED(message, reason="table_uuid_changed", expected=expected, got=got)
        if before.row.upstream is not None:  # only an upstream's tables have fences (see `rule.FENCE_PREFIX`)
            rule.require_reserved_kept(before.metadata, after, grant)
        if after.location != before.metadata.location:
            with self._ledger.read() as unit:
                namespace = namespaces.find_by_id(unit, before.row.namespace_id)
            if namespace is None:
                raise Code.NAMESPACE_MOVED("the namespace was dropped meanwhile")
            self.require_place(grant, namespace.levels, after.location, for_table=before.row)
        if not before.row.protected:
            self._require_write_paths(grant, before.metadata.properties, after, for_table=before.row)
            if grant.role is not Role.OPERATOR:
                places = (parse_location(before.row.location), parse_location(after.location))
                sanity.require_manifests(rule.added_snapshots(before.metadata, after), places)
            return
        if permit is not None:
            permit.require(
                table_uuid=before.row.table_uuid,
                base_sha256=before.row.pointer.sha256,
                new_sha256=hashlib.sha256(data).hexdigest(),
            )
            return
        rule.require_main_unchanged(before.metadata, after, name)
        rule.require_structure_unchanged(before.metadata, after, name)
        own_branch, prefixes = self._branch_and_places(grant, before.row)
        rule.require_refs_allowed(before.metadata, after, grant, own_branch)
        self._require_branches_staging(grant, before, after)
        rule.require_snapshots_on_branches(before.metadata, after, name)
        rule.require_own_snapshots(before.metadata, after, grant, own_branch, name)
        rule.require_branches_whole(before.metadata, after, name)
        shared = may_reuse_sequence_numbers(grant, before.row)
        sanity.require_sane(before.metadata, after, now_ms=now_ms, prefixes=prefixes, shared_numbers=shared)
        sanity.require_document_size(data)
        additions = self.staged_additions(grant, before, after)
        if additions is not None:
            sanity.require_producer_quota(self._ledger, before.row, additions, after)

    def staged_additions(self, grant: Grant, before: TableState, after: TableMetadata) -> sanity.StagedAdditions | None:
        """What a producer adds to a protected table by this commit. None for other roles, who have no quota."""
        if grant.role is not Role.PRODUCER or not before.row.protected:
            return None
        return sanity.StagedAdditions.of(grant, before.metadata, after)

    def _require_branches_staging(self, grant: Grant, before: TableState, after: TableMetadata) -> None:
        """Raise if the commit changes the branch of an attempt that the Steward verifies or publishes now.

        The branch of an attempt of a run accepts only the attempt's own tokens, which end with the run's lease. With
        another token, a run whose workload was taken over could still write.
        """
        if grant.role is Role.STEWARD:
            return
        changed = [each.name for each in rule.ref_changes(before.metadata, after) if is_steward_branch(each.name)]
        for name in changed:
            with self._ledger.read() as unit:
                found = attempts.find_live_on_branch(unit, before.row.table_uuid, name)
            if found is not None and found.state is not AttemptState.STAGING:
                raise _not_staging_error(found.state)
            if found is not None and found.lease_number is not None and grant.attempt_id is None:
                raise Code.BRANCH_REFUSED(reason="branch_of_attempt", got=name)

    def _branch_and_places(self, grant: Grant, row: TableRow) -> tuple[str | None, tuple[Location, ...]]:
        """The branch (None: any) and places that the token may write to. An attempt's token has the attempt's."""
        if grant.attempt_id is None:
            return None, (parse_location(row.location),)
        with self._ledger.read() as unit:
            attempt = attempts.get(unit, grant.attempt_id)
            opening = workloads.get(unit, attempt.workload_id).opening
        if opening.table_uuid.lower() != row.table_uuid:
            raise Code.PERMISSION_DENIED(reason="attempt_of_other_table")
        if attempt.state is not AttemptState.STAGING:
            raise _not_staging_error(attempt.state)
        return attempt.branch, (parse_location(attempt.prefix),)


def may_reuse_sequence_numbers(grant: Grant, row: TableRow) -> bool:
    """Whether the commit may reuse sequence numbers and row ids that another branch was given meanwhile.

    Attempts stage at the same time, each on its own branch, and no reader combines these branches. The gate gives new
    numbers to what it publishes. So no attempt has to start again because another attempt committed first. An
    upstream checks the numbers itself, so the answer is False for its tables.
    """
    return grant.attempt_id is not None and row.protected and row.upstream is None


def require_staging(unit: Unit, attempt_id: str) -> None:
    """Raise unless the attempt is still STAGING when its commit takes effect.

    The attempt may have ended since the commit was checked. Its clean-up would then miss what the commit adds. The run
    that opened it must still hold the workload's lease.
    """
    found = attempts.lock(unit, attempt_id)
    if found.state is not AttemptState.STAGING:
        raise _not_staging_error(found.state)
    attempts.require_leased(unit, found, now_micros=unit.at_micros)


def _not_staging_error(state: AttemptState) -> NotAllowedError:
    message = "the attempt accepts no more writes"
    return NotAllowedError(Code.ATTEMPT_NOT_STAGING, message, expected=AttemptState.STAGING, got=state)


def require_free(unit: Unit, location: str, *, for_table: TableRow | None = None) -> None:
    """Raise `location_taken` if another table than `for_table` lies at, above or below the location."""
    own_id = None if for_table is None else for_table.table_id
    if tables.find_overlapping(unit, parse_location(location), except_id=own_id) is not None:
        raise Code.LOCATION_TAKEN("another table lies there", got=location)
