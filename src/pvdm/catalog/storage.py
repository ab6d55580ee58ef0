"""What clients get of the object store: its address, and credentials by role, if the Steward vends any."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores import s3_client as names
from pvdm.lake.stores.roles import Role as StoreRole
from pvdm.lake.stores.roles import Sts, VendedCredentials, VendingSettings, session_policy
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.ledger import Ledger
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts
from pvdm.model.role import Role
from pvdm.model.states import AttemptState

CREDENTIALS_KEPT_MAX: Final = 1_000
_WRITERS: Final = frozenset({Role.PRODUCER, Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table's location, UUID and protection, as far as access to its files depends on them."""

    place: Location
    table_uuid: str
    protected: bool


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a table's files: write below these places, read below those. `name` is the session's name."""

    name: str
    write: tuple[Location, ...]
    read: tuple[Location, ...]


class Storage:
    """The object store for clients. Without vending, clients bring credentials of their own."""

    def __init__(
        self,
        ledger: Ledger,
        settings: S3Settings | None = None,
        vending: VendingSettings | None = None,
        own: Callable[[str], tuple[Location, ...]] = lambda _: (),
        sts: Sts | None = None,
    ) -> None:
        """`own` gives the folders where the Steward puts what readers of the table with that UUID need."""
        self._ledger = ledger
        self._settings = settings
        self._vending = vending
        self._own = own
        self._sts = sts
        self._lock = threading.Lock()
        self._kept: OrderedDict[Access, VendedCredentials] = OrderedDict()

    @property
    def config(self) -> Mapping[str, str]:
        """The store's address and settings; never a credential."""
        return {} if self._settings is None else names.open_config(self._settings)

    def kept_of(self, table_uuid: str) -> tuple[Location, ...]:
        """The folders where the Steward keeps what readers of the table need."""
        return self._own(table_uuid)

    def credentials(self, grant: Grant, table: TableFiles) -> dict[str, dict[str, str]]:
        """Credentials by place. Empty if nothing is vended, or the table is on a disk."""
        if self._settings is None or self._vending is None or table.place.scheme != "s3":
            return {}
        access = self.access(grant, table)
        session = self._session(access)
        config = names.credential_config(session.credentials) | {names.ENDS_MS: str(session.ends_seconds * 1_000)}
        return {
            f"s3://{bucket}/": config for bucket in sorted({each.authority for each in (*access.write, *access.read)})
        }

    def access(self, grant: Grant, found: TableFiles) -> Access:
        """Access by role: an attempt's token writes below its own prefix while it stages.

        No other token writes to a protected table. Every role that sees the table reads what it may show.
        """
        table = found.place
        read = (table, *self._own(found.table_uuid))
        if grant.attempt_id is not None:
            with self._ledger.read() as unit:
                attempt = attempts.get(unit, grant.attempt_id)
            staging = attempt.state is AttemptState.STAGING and parse_location(attempt.prefix).is_under(table)
            write = (parse_location(attempt.prefix),) if staging else ()
            return Access(f"pvdm-{attempt.attempt_id}", write, read)
        write = (table,) if grant.role in _WRITERS and not found.protected else ()
        return Access(f"pvdm-{grant.role}-{found.table_uuid[:8]}", write, read)

    def _session(self, access: Access) -> VendedCredentials:
        """A session with at least half of its lifetime left; shared by grants with the same access."""
        if self._settings is None or self._vending is None:
            raise AssertionError("asked only where something is vended")
        lifetime, now = self._vending.lifetime_seconds, time.time()
        with self._lock:
            found = self._kept.get(access)
            if found is not None and found.ends_seconds - now > lifetime / 2:
                return found
            if self._sts is None:
                self._sts = Sts(self._settings, self._vending.sts_endpoint)
        role = StoreRole(self._vending.producer_role if access.write else self._vending.consumer_role)
        policy = session_policy(role, write=access.write, read=access.read)
        made = self._sts.assume(role, name=access.name[:64], policy=policy, seconds=lifetime)
        with self._lock:
            self._kept[access] = made
            while len(self._kept) > CREDENTIALS_KEPT_MAX:
                self._kept.popitem(last=False)
        return made
