"""Who may do what in the catalog: domains, roles, places, and the gate in front of protected tables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
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
_ONLY_PROTECTED_ROLES: Final = frozenset({Role.PUBLISHER, Role.STEWARD})
_MANAGING_ROLES: Final = frozenset({Role.PRODUCER, Role.OPERATOR})


class CatalogAccess:
    """Checks each request by the grant, the domain, the places it names, and the table's protection."""

    def __init__(self, ledger: Ledger, warehouse: Location, *own: Location) -> None:
        """`own` are the places where the Steward keeps its own files."""
        self._ledger = ledger
        self._warehouse = warehouse
        self._own = own

    def require_may_manage(self, grant: Grant) -> None:
        """Only producers and operators create, drop, rename and register tables and namespaces."""
        if grant.role not in _MANAGING_ROLES or grant.attempt_id is not None:
            got = grant.role if grant.attempt_id is None else "a token for one attempt"
            raise Code.PERMISSION_DENIED(reason="role_wrong", expected=" or ".join(sorted(_MANAGING_ROLES)), got=got)

    def require_create(
        self, grant: Grant, namespace: Namespace, name: str, after: TableMetadata, *, replaces: TableRow | None = None
    ) -> None:
        """Check that the grant may create the table, in its own place, and empty in a protected namespace.

        Only an operator may create a table with a UUID that is protected in the log.
        """
        self.require_may_manage(grant)
        with self._ledger.read() as unit:
            # A restore may have lost the table of a UUID that is protected in the log.
            is_operator = grant.role is Role.OPERATOR
            if not is_operator and protections.current_contract(unit, str(after.table_uuid)) is not None:
                raise Code.TABLE_UUID_PROTECTED(expected=Role.OPERATOR, got=grant.role)
            require_no_view(unit, namespace.namespace_id, name)
            taken = tables.find(unit, namespace.namespace_id, name)
        # The swap reports a taken name.
        self.require_place(grant, namespace.levels, after.location, of=replaces or taken)
        self._require_write_paths(grant, {}, after, of=replaces or taken)
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
            raise rule.main_gated_error(row.name, what, to="have an operator unprotect it first")

    def require_place(self, grant: Grant, levels: Levels, location: str, *, of: TableRow | None = None) -> None:
        """Raise unless the place is below its namespace's folder, in no other table's place, and not the Steward's.

        An operator may use a place outside the namespace's folder, but none of another domain. `of` is the table that
        may lie in this place.
        """
        place = parse_location(location)
        if grant.role is not Role.OPERATOR:
            self._require_home(levels, place)
        self._require_usable(grant, place, of=of)

    def _require_usable(self, grant: Grant, place: Location, *, of: TableRow | None) -> None:
        self.require_not_own(place)
        with self._ledger.read() as unit:
            require_domain_place(grant, place, self._warehouse, namespaces.list_owners(unit))
            require_free(unit, str(place), of=of)

    def _require_write_paths(
        self, grant: Grant, before: Mapping[str, str], after: TableMetadata, *, of: TableRow | None
    ) -> None:
        """Raise if properties newly send the table's files to a place that is neither its own nor free."""
        for place in changed_write_paths(before, after.properties):
            self._require_usable(grant, place, of=of)

    def require_not_own(self, place: Location) -> None:
        """Raise `location_reserved` if the place overlaps the Steward's own files."""
        if any(place.overlaps(own) or _lead_to_each_other(place, own) for own in self._own):
            raise Code.LOCATION_RESERVED(got=str(place)[:200])

    def require_readable(self, unit: Unit, folders: Sequence[Location], domain: str) -> None:
        """Raise if a folder that the Steward is to read for a domain is the Steward's own, or another domain's."""
        homes = {*self._own, *(home for home, _, owner in self._homes(unit) if owner != domain)}
        foreign = next((each for each in folders if any(above in homes for above in each.self_and_parents())), None)
        if foreign is not None or tables.find_containing(unit, folders, but_domain=domain) is not None:
            raise Code.SOURCE_NOT_ALLOWED(
                reason="source_file_foreign",
                expected=f"files of the domain {domain}, or of no domain",
                got="in the place of another table" if foreign is None else str(foreign)[:200],
            )

    def require_upstream_place(self, place: Location, mounted: Levels | None) -> None:
        """Raise if a place of an upstream is one of the Steward's, or in a namespace's folder not below `mounted`."""
        self.require_not_own(place)
        if mounted is None:
            return
        with self._ledger.read() as unit:
            homes = [home for home, levels, _ in self._homes(unit) if levels[: len(mounted)] != mounted]
        if any(place.overlaps(home) for home in homes):
            raise Code.LOCATION_TAKEN("a namespace's folder lies there", got=str(place)[:200])

    def _require_home(self, levels: Levels, place: Location) -> None:
        """Raise unless the place is below the namespace's folder and contains no namespace's folder."""
        home = namespace_folder(self._warehouse, levels)
        if not place.is_under(home) or place == home:
            where = "namespace's folder" if place.is_under(self._warehouse) else "warehouse"
            raise Code.LOCATION_OUTSIDE(
                f"the location is outside the {where}",
                expected=f"a place below {home}",
                got=str(place)[:200],
                hint="leave the location out, and the table gets a place of its own; or ask an operator",
            )
        with self._ledger.read() as unit:
            contains_folder = any(each.is_under(place) for each, _, _ in self._homes(unit))
        if contains_folder:
            raise Code.LOCATION_TAKEN("a namespace's folder lies there", got=str(place)[:200])

    def _homes(self, unit: Unit) -> list[tuple[Location, Levels, str]]:
        """The folder, the levels and the domain of every namespace."""
        owners = namespaces.list_owners(unit)
        return [(namespace_folder(self._warehouse, levels), levels, domain) for levels, domain in owners]

    def require_may_write(self, grant: Grant, row: TableRow) -> None:
        """Raise unless the role may write to tables of this kind. Checked before anything of the table is disclosed."""
        if grant.role not in _WRITING_ROLES:
            message, expected = "this token only reads", " or ".join(sorted(_WRITING_ROLES))
            raise Code.PERMISSION_DENIED(message, reason="role_wrong", expected=expected, got=grant.role)
        if not row.protected and (grant.role in _ONLY_PROTECTED_ROLES or grant.attempt_id is not None):
            raise Code.PERMISSION_DENIED(
                "the token may not write to a table that is not protected", reason="role_wrong", got=grant.role
            )

    def require_commit(
        self, grant: Grant, before: TableState, after: TableMetadata, data: bytes, *, permit: Permit | None, now_ms: int
    ) -> None:
        """Check a commit by the states before and after it. On a protected table `main` changes by permit only."""
        name = before.row.name
        self.require_may_write(grant, before.row)
        if str(after.table_uuid).lower() != before.row.table_uuid:
            expected, got = before.row.table_uuid, str(after.table_uuid)
            message = f"the UUID of {name} cannot change"
            raise Code.CHANGE_GATED(message, reason="table_uuid_changed", expected=expected, got=got)
        if before.row.upstream is not None:  # only tables at an upstream have fences
            rule.require_reserved_kept(before.metadata, after, grant)
        if after.location != before.metadata.location:
            with self._ledger.read() as unit:
                home = namespaces.find_by_id(unit, before.row.namespace_id)
            if home is None:
                raise Code.NAMESPACE_MOVED("the namespace was dropped meanwhile")
            self.require_place(grant, home.levels, after.location, of=before.row)
        if not before.row.protected:
            self._require_write_paths(grant, before.metadata.properties, after, of=before.row)
            if grant.role is not Role.OPERATOR:
                homes = (parse_location(before.row.location), parse_location(after.location))
                sanity.require_manifests(rule.added_snapshots(before.metadata, after), homes)
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
        own_branch, prefixes = self._staging(grant, before.row)
        rule.require_refs_allowed(before.metadata, after, grant, own_branch)
        self._require_branches_staging(grant, before, after)
        rule.require_snapshots_on_branches(before.metadata, after, name)
        rule.require_own_snapshots(before.metadata, after, grant, own_branch, name)
        rule.require_branches_whole(before.metadata, after, name)
        shared = may_reuse_sequence_numbers(grant, before.row)
        sanity.require_sane(before.metadata, after, now_ms=now_ms, prefixes=prefixes, shared_numbers=shared)
        sanity.require_document(data)
        additions = self.staged_additions(grant, before, after)
        if additions is not None:
            sanity.require_producer_quota(self._ledger, before.row, additions, after)

    def staged_additions(self, grant: Grant, before: TableState, after: TableMetadata) -> sanity.StagedAdditions | None:
        """What a producer adds to a protected table by this commit. None for other roles, who have no quota."""
        if grant.role is not Role.PRODUCER or not before.row.protected:
            return None
        return sanity.StagedAdditions.of(grant, before.metadata, after)

    def _require_branches_staging(self, grant: Grant, before: TableState, after: TableMetadata) -> None:
        """Raise if a branch changes whose attempt is no longer STAGING and has not ended."""
        if grant.role is Role.STEWARD:
            return
        changed = [each.name for each in rule.ref_changes(before.metadata, after) if is_steward_branch(each.name)]
        for name in changed:
            with self._ledger.read() as unit:
                found = attempts.find_live_on_branch(unit, before.row.table_uuid, name)
            if found is not None and found.state is not AttemptState.STAGING:
                raise _not_staging_error(found.state)

    def _staging(self, grant: Grant, row: TableRow) -> tuple[str | None, tuple[Location, ...]]:
        """The branch and the places for a token of one attempt. Others have no branch, and the table's location."""
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

    Attempts stage at the same time, each on its own branch, which no reader combines with others. The gate writes what
    main shows under numbers of its own. So no attempt has to start again because another one committed first. An
    upstream makes its own checks.
    """
    return grant.attempt_id is not None and row.protected and row.upstream is None


def require_staging(unit: Unit, attempt_id: str) -> None:
    """Raise unless the attempt is still STAGING when its commit takes effect.

    It may have ended since the commit was checked. Its clean-up would then miss what the commit adds.
    """
    state = attempts.lock(unit, attempt_id).state
    if state is not AttemptState.STAGING:
        raise _not_staging_error(state)


def _not_staging_error(state: AttemptState) -> NotAllowedError:
    return NotAllowedError(
        Code.ATTEMPT_NOT_STAGING, "the attempt accepts no more writes", expected=AttemptState.STAGING, got=state
    )


def require_free(unit: Unit, location: str, *, of: TableRow | None = None) -> None:
    """Raise `location_taken` if another table lies at, above or below the location."""
    if tables.find_overlapping(unit, parse_location(location), but=None if of is None else of.table_id) is not None:
        raise Code.LOCATION_TAKEN("another table lies there", got=location)


def _lead_to_each_other(place: Location, other: Location) -> bool:
    """Whether links on this machine lead one of two local places into the other."""
    if (place.scheme, other.scheme) != ("file", "file"):
        return False
    real, own = (Path(os.path.realpath(each.local)) for each in (place, other))
    return real.is_relative_to(own) or own.is_relative_to(real)
