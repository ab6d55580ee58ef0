"""Operations on namespaces: create, describe, list, change and drop. One domain owns each namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.requests import RequestKey, note_request
from pvdm.catalog.upstreams import Upstreams
from pvdm.errors import Code
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant, require_domain
from pvdm.model.role import Role

DOMAIN_PROPERTY: Final = "pvdm.domain"
PAGE_ROWS_MAX: Final = 1_000
_GOT_CHARACTERS: Final = 80


class Namespaces:
    """Operations on namespaces."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, access: CatalogAccess, upstreams: Upstreams) -> None:
        self._ledger = ledger
        self._clock = clock
        self._access = access
        self._upstreams = upstreams

    def get(self, grant: Grant, levels: Levels) -> Namespace:
        """The namespace, for grants of its domain."""
        with self._ledger.read() as unit:
            return self._get(unit, grant, levels)

    def page(self, grant: Grant, parent: Levels, *, after: Levels | None, count: int | None) -> list[Namespace]:
        """The namespaces directly inside `parent` that the grant may see; all of them if `count` is None."""
        domain = None if grant.domain == EVERY_DOMAIN else grant.domain
        with self._ledger.read() as unit:
            if parent:
                self._get(unit, grant, parent)
            return namespaces.list_children(unit, parent, domain=domain, after=after, count=count)

    def create(
        self, grant: Grant, levels: Levels, properties: Mapping[str, str], *, key: RequestKey | None = None
    ) -> Namespace:
        """Create a namespace. If it has a parent, it belongs to the parent's domain and inherits its protection."""
        self._access.require_may_manage(grant)
        if self._upstreams.mount_of(levels) is not None:
            # An operator decides to which domain the namespace belongs.
            if grant.role is not Role.OPERATOR:
                message = "only an operator creates a namespace of an upstream catalog here"
                raise Code.PERMISSION_DENIED(message, reason="role_wrong", expected=Role.OPERATOR, got=grant.role)
            self._upstreams.require_namespace(levels)

        def work(unit: Unit) -> Namespace:
            parent = self._get(unit, grant, levels[:-1]) if len(levels) > 1 else None
            domain = _choose_domain(grant, parent, properties)
            stored = {**properties, DOMAIN_PROPERTY: domain}
            new = namespaces.create(unit, levels, domain=domain, properties=stored)
            if parent is not None and parent.protected_by is not None:
                namespaces.protect(unit, new, parent.protected_by)
            note_request(unit, key, {"namespace": list(levels), "properties": stored})
            return new

        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def drop(self, grant: Grant, levels: Levels, *, key: RequestKey | None = None) -> None:
        """Drop an empty namespace. Only an operator may drop a namespace that protects its tables."""
        self._access.require_may_manage(grant)

        def work(unit: Unit) -> None:
            found = self._get(unit, grant, levels)
            if found.protected_by is not None and grant.role is not Role.OPERATOR:
                message = f"the namespace {namespaces.dotted_name(levels)} protects its tables"
                raise Code.CHANGE_GATED(message, reason="namespace_gated", expected=Role.OPERATOR, got=grant.role)
            namespaces.drop(unit, found)
            note_request(unit, key, {}, status=204)

        self._ledger.transact(work, at_micros=self._clock.now_micros())

    def change(
        self,
        grant: Grant,
        levels: Levels,
        updates: Mapping[str, str],
        removals: Sequence[str],
        *,
        key: RequestKey | None = None,
    ) -> dict[str, list[str]]:
        """Set some properties and remove others. Returns the names by "missing", "removed" and "updated"."""
        self._access.require_may_manage(grant)
        in_both = sorted(set(updates) & set(removals))
        if in_both:
            raise Code.NAMESPACE_INVALID(reason="namespace_properties_overlap", got=", ".join(in_both)[:200])

        def work(unit: Unit) -> dict[str, list[str]]:
            unit.lock_name("namespaces")
            found = self._get(unit, grant, levels)
            kept = {name: value for name, value in found.properties.items() if name not in removals}
            _require_domain_kept(found, updates, removals)
            namespaces.set_properties(unit, found, {**kept, **updates})
            distinct = dict.fromkeys(removals)
            changed = {
                "missing": [name for name in distinct if name not in found.properties],
                "removed": [name for name in distinct if name in found.properties],
                "updated": list(updates),
            }
            note_request(unit, key, changed)
            return changed

        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _get(self, unit: Unit, grant: Grant, levels: Levels) -> Namespace:
        found = namespaces.get(unit, levels)
        require_domain(grant, found.domain, f"the namespace {namespaces.dotted_name(levels)}")
        return found


def _choose_domain(grant: Grant, parent: Namespace | None, properties: Mapping[str, str]) -> str:
    """The parent's domain; at the top level the grant's.

    If that domain and the grant's are both `*` (every domain), the property `pvdm.domain` may name another one.
    """
    wanted = properties.get(DOMAIN_PROPERTY)
    owner = parent.domain if parent is not None else grant.domain
    if wanted in (None, owner):
        return owner
    if owner != EVERY_DOMAIN or grant.domain != EVERY_DOMAIN:
        raise Code.PERMISSION_DENIED(
            "the namespace would belong to another domain",
            reason="domain_wrong",
            expected=owner,
            got=ascii(wanted)[:_GOT_CHARACTERS],
            hint=f"only a token for every domain chooses {DOMAIN_PROPERTY}, and only at the top level or below a"
            " namespace of every domain",
        )
    return str(wanted)


def _require_domain_kept(found: Namespace, updates: Mapping[str, str], removals: Sequence[str]) -> None:
    """Raise if the updates change the property that names the domain, or the removals contain it."""
    wanted = updates.get(DOMAIN_PROPERTY, found.domain)
    if wanted == found.domain and DOMAIN_PROPERTY not in removals:
        return
    message = "the domain of a namespace cannot change"
    got = "its removal" if DOMAIN_PROPERTY in removals else ascii(wanted)[:_GOT_CHARACTERS]
    raise Code.PERMISSION_DENIED(message, reason="domain_wrong", expected=found.domain, got=got)
