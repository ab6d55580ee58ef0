"""Accepts and verifies the Steward's trust root. It is a chain of signed versions; each version is in the log."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from pvdm.errors import Code, expect
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import statements
from pvdm.ledger.record.statements import Statement
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.recorder import Document, Recorder, signing_epoch
from pvdm.trust.keys.epochs import Epoch, KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.root import RootRole, TrustRoot, advance_root, pin_root
from pvdm.trust.verify import require_not_revoked, require_valid_at


@dataclass(eq=False)
class TrustRoots:
    """Reads and extends the chain; `pin` is the SHA-256 of the first version, if the configuration names it."""

    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    recorder: Recorder
    notary: str
    origin: str
    pin: str | None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _cached: tuple[tuple[str, ...], TrustRoot] | None = field(default=None, init=False)

    def chain(self) -> tuple[bytes, ...]:
        """Every version's envelope, from the first to the newest."""
        return tuple(statement.envelope for statement in self._statements())

    def current(self) -> TrustRoot:
        """The newest version; raises `steward_without_root` if there is no version yet."""
        found = self.find()
        if found is None:
            raise Code.STEWARD_WITHOUT_ROOT(got="none")
        return found

    def accept(self, envelope: bytes, *, pin: str | None = None) -> TrustRoot:
        """Accept the first version by its pinned hash, the next by its signatures. A repeated call changes nothing."""
        now = self.clock.now_micros()
        seen = self.ids()
        current = self.find()
        if current is None:
            root = pin_root(envelope, sha256=self._choose_pin(pin), now=now)
        else:
            root = advance_root(current, envelope, now=now)
        if current is not None and root.version == current.version:
            self.recorder.cover()
            return current
        book = self.keys.book()
        require_names_epoch(root, book.epoch(signing_epoch(book)), notary=self.notary, origin=self.origin)
        document = Document(StatementKind.TRUST_ROOT, root.sha256, envelope)

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            # The log's lock is held here, so of two concurrent next versions only the first is accepted.
            if statements.list_ids_by_kind(unit, StatementKind.TRUST_ROOT) != seen:
                raise Code.TRUST_ROOT_MOVED("another trust root was accepted first", hint="submit yours again")
            unit.add_request_facts(trust_root=root.sha256)
            document.store(unit, log_indexes[0])

        self.recorder.record([document], work)
        return self.current()

    def require_trusted(self, number: int) -> None:
        """Require that the newest root names the keys of this epoch, and that they are valid and not revoked now."""
        epoch, root, now = self.keys.book().epoch(number), self.current(), self.clock.trusted_micros()
        require_names_epoch(root, epoch, notary=self.notary, origin=self.origin)
        for role in (KeyRole.SIGNING, KeyRole.LOG):
            public = epoch.key(role).public
            key = None if public is None else root.find(public.key_id)
            if key is not None:
                require_not_revoked(key, now)
                require_valid_at(key, now)

    def require_signing_trusted(self) -> None:
        """Require that the newest root trusts the keys that this Steward signs with now."""
        self.require_trusted(signing_epoch(self.keys.book()))

    def ids(self) -> tuple[str, ...]:
        """The ids of all versions; a caller compares them again in the transaction that relies on them."""
        with self.ledger.read() as unit:
            return statements.list_ids_by_kind(unit, StatementKind.TRUST_ROOT)

    def _choose_pin(self, pin: str | None) -> str:
        if self.pin is not None and pin is not None and pin != self.pin:
            raise Code.TRUST_ROOT_PIN_INVALID(reason="trust_root_pin_differs", expected=self.pin, got=pin)
        chosen = self.pin or pin
        if chosen is None:
            raise Code.TRUST_ROOT_PIN_INVALID(reason="trust_root_pin_missing", got="none")
        return chosen

    def _statements(self) -> list[Statement]:
        with self.ledger.read() as unit:
            return statements.list_by_kind(unit, StatementKind.TRUST_ROOT)

    def find(self) -> TrustRoot | None:
        """The newest version; None if there is no version yet."""
        ids = self.ids()
        with self._lock:
            cached = self._cached
        if cached is not None:
            cached_ids, cached_root = cached
            if cached_ids == ids:
                return cached_root
        root = self._verify_chain()
        if root is not None:
            with self._lock:
                self._cached = (ids, root)
        return root

    def _verify_chain(self) -> TrustRoot | None:
        """Verify every version as of the time when it was accepted. Returns the newest, or None without versions."""
        root: TrustRoot | None = None
        for statement in self._statements():
            if root is None:
                pin = self.pin or statement.statement_id
                root = pin_root(statement.envelope, sha256=pin, now=statement.at_micros)
            else:
                root = advance_root(root, statement.envelope, now=statement.at_micros)
        return root


def require_names_epoch(root: TrustRoot, epoch: Epoch, *, notary: str, origin: str) -> None:
    """Require that the root names the epoch's signing key as the notary's, and the epoch's log key as the origin's."""
    for role, root_role, identity in ((KeyRole.SIGNING, RootRole.NOTARY, notary), (KeyRole.LOG, RootRole.LOG, origin)):
        public = expect(epoch.key(role).public, "signing and log keys have a public half")
        key = root.find(public.key_id)
        is_named = key is not None and key.identity == identity and root_role in key.roles
        if key is None or not is_named or (root_role is RootRole.NOTARY and epoch.number not in key.epochs):
            message = f"the trust root does not name the {role.value} key of epoch {epoch.number}"
            expected = f"{public.key_id} as {root_role.value} {identity}"
            got = "nothing" if key is None else "another identity, role or epoch"
            raise Code.TRUST_ROOT_LACKS_EPOCH(message, expected=expected, got=got)
