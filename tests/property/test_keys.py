"""Properties of key derivation and of epochs, over all inputs and all sequences."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pvdm.digest.plan import Mode, framed
from pvdm.errors import NotAllowedError
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.epoch import EpochStage
from pvdm.trust.keys.context import AttemptContext, Purpose
from pvdm.trust.keys.epochs import EpochBook, KeyEntry, KeyRole
from pvdm.trust.keys.public import PublicKey

pytestmark = pytest.mark.property

ROOT = bytes(range(32))
HASHES = st.binary(min_size=32, max_size=32)
RANDOM_IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
NAMES = st.text("ABCabc019._-", min_size=1, max_size=128).filter(lambda name: name.strip(".") != "")
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=64).filter(str.strip)
BOTH = st.tuples(
    st.tuples(st.just(ProjectionName.IDENTITY), HASHES), st.tuples(st.just(ProjectionName.CONTENT), HASHES)
)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "workload_id": NAMES,
    "chunk_id": TEXTS,
    "attempt_id": RANDOM_IDS,
    "nonce": RANDOM_IDS,
    "mode": st.sampled_from(Mode),
    "fingerprints": BOTH,
    "intent_root": HASHES,
    "staged_root": HASHES,
}
CONTEXTS = st.builds(AttemptContext, epoch=st.integers(1, 2**63 - 1), **FIELDS)
PURPOSES = st.sampled_from([Purpose.ROW_HASH, Purpose.COMMITMENT])
PROJECTIONS = st.sampled_from(ProjectionName)


def key(context: AttemptContext, purpose: Purpose, projection: ProjectionName) -> bytes:
    return hmac.digest(ROOT, context.message(purpose, projection), hashlib.sha256)


def test_every_field_of_the_context_is_varied_below() -> None:
    assert {field.name for field in fields(AttemptContext)} == {*FIELDS, "epoch"}


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"fingerprints"}))
@given(data=st.data(), context=CONTEXTS, purpose=PURPOSES, projection=PROJECTIONS)
def test_another_value_of_a_field_gives_another_key(
    name: str, data: st.DataObject, context: AttemptContext, purpose: Purpose, projection: ProjectionName
) -> None:
    value = data.draw(FIELDS[name])
    assume(value != getattr(context, name))
    changed = replace(context, **{name: value})  # type: ignore[arg-type]
    assert key(changed, purpose, projection) != key(context, purpose, projection)


@given(context=CONTEXTS, fingerprint=HASHES, purpose=PURPOSES, projection=PROJECTIONS)
def test_another_fingerprint_of_the_projection_gives_another_key(
    context: AttemptContext, fingerprint: bytes, purpose: Purpose, projection: ProjectionName
) -> None:
    assume(dict(context.fingerprints)[projection] != fingerprint)
    changed = replace(
        context,
        fingerprints=tuple(
            (name, fingerprint if name is projection else other) for name, other in context.fingerprints
        ),
    )
    assert key(changed, purpose, projection) != key(context, purpose, projection)


@given(context=CONTEXTS, projection=PROJECTIONS)
def test_another_purpose_gives_another_key(context: AttemptContext, projection: ProjectionName) -> None:
    assert key(context, Purpose.ROW_HASH, projection) != key(context, Purpose.COMMITMENT, projection)


@given(context=CONTEXTS, fingerprint=HASHES, purpose=PURPOSES)
def test_another_projection_gives_another_key_even_over_one_schema(
    context: AttemptContext, fingerprint: bytes, purpose: Purpose
) -> None:
    same = replace(context, fingerprints=tuple((name, fingerprint) for name in ProjectionName))
    assert key(same, purpose, ProjectionName.IDENTITY) != key(same, purpose, ProjectionName.CONTENT)


@given(context=CONTEXTS)
def test_intent_and_staged_root_are_not_interchangeable(context: AttemptContext) -> None:
    assume(context.intent_root != context.staged_root)
    swapped = replace(context, intent_root=context.staged_root, staged_root=context.intent_root)
    content = ProjectionName.CONTENT
    assert key(swapped, Purpose.ROW_HASH, content) != key(context, Purpose.ROW_HASH, content)


@given(context=CONTEXTS)
def test_a_context_survives_its_document(context: AttemptContext) -> None:
    assert AttemptContext.parse(context.to_json()) == context


def split(data: bytes) -> list[bytes]:
    """The fields of joined bytes, read from the specification alone."""
    found = []
    while data:
        size = shift = 0
        while True:
            byte, data = data[0], data[1:]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append(data[:size])
        data = data[size:]
    return found


@given(parts=st.lists(st.one_of(st.binary(max_size=8), st.binary(min_size=120, max_size=300)), max_size=8))
def test_joined_fields_can_be_split_in_one_way_only(parts: list[bytes]) -> None:
    assert split(b"".join(map(framed, parts))) == parts


@cache
def entries(seed: int) -> tuple[KeyEntry, ...]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    def public(role: KeyRole) -> PublicKey | None:
        if not role.signs:
            return None
        private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{seed} {role.value}".encode()).digest())
        return PublicKey.from_der(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    return tuple(KeyEntry(role, f"{seed}-{role.value}", public(role)) for role in KeyRole)


ORDER = list(EpochStage)


class Epochs(RuleBasedStateMachine):
    """A book beside a model that is a plain dictionary from number to state."""

    def __init__(self) -> None:
        super().__init__()
        self.book = EpochBook()
        self.model: dict[int, EpochStage] = {}
        self.workloads: dict[int, int] = {}
        self.steps: dict[int, list[EpochStage]] = {}

    def note(self, changes: object) -> None:
        assert isinstance(changes, tuple)
        for change in changes:
            seen = self.steps.setdefault(change.epoch, [])
            assert change.before is (seen[-1] if seen else None)
            seen.append(change.after)

    @rule(above=st.integers(0, 8))
    def create(self, above: int) -> None:
        number = self.book.next_number(above)
        assert number > max([above, *self.model])
        self.book, changes = self.book.create(number, entries(number), "test")
        self.model[number] = EpochStage.CREATED
        self.note(changes)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model)))
        if self.model[number] is not EpochStage.CREATED:
            with pytest.raises(NotAllowedError):
                self.book.activate(number, "test")
            return
        self.book, changes = self.book.activate(number, "test")
        for other, state in self.model.items():
            if state is EpochStage.ACTIVE:
                self.model[other] = EpochStage.RETIRED
        self.model[number] = EpochStage.ACTIVE
        self.note(changes)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model)))
        if self.model[number] is not EpochStage.ACTIVE:
            with pytest.raises(NotAllowedError):
                self.book.retire(number, "test")
            return
        self.book, changes = self.book.retire(number, "test")
        self.model[number] = EpochStage.RETIRED
        self.note(changes)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model)))
        if self.model[number] not in {EpochStage.ACTIVE, EpochStage.RETIRED}:
            with pytest.raises(NotAllowedError):
                self.book.revoke(number, "test")
            return
        self.book, changes = self.book.revoke(number, "test")
        self.model[number] = EpochStage.REVOKED
        self.note(changes)

    @rule()
    def open_workload(self) -> None:
        active = [number for number, state in self.model.items() if state is EpochStage.ACTIVE]
        if not active:
            with pytest.raises(NotAllowedError) as caught:
                self.book.epoch_for(None)
            assert caught.value.reason == "epoch_none_active"
            return
        assert self.book.epoch_for(None) == active[0]
        self.workloads[len(self.workloads)] = active[0]

    @invariant()
    def the_book_is_the_model(self) -> None:
        assert {epoch.number: epoch.state for epoch in self.book.epochs} == self.model

    @invariant()
    def at_most_one_is_active(self) -> None:
        assert sum(epoch.state is EpochStage.ACTIVE for epoch in self.book.epochs) <= 1

    @invariant()
    def every_epoch_has_walked_the_line_without_a_gap(self) -> None:
        for number, states in self.steps.items():
            assert states == ORDER[: len(states)]
            assert states[-1] is self.model[number]

    @invariant()
    def a_workload_stays_on_its_epoch_unless_that_is_revoked(self) -> None:
        for epoch in self.workloads.values():
            if self.model[epoch] is EpochStage.REVOKED:
                with pytest.raises(NotAllowedError) as caught:
                    self.book.epoch_for(epoch)
                assert caught.value.reason == "epoch_revoked"
            else:
                assert self.book.epoch_for(epoch) == epoch

    def teardown(self) -> None:
        """The book survives its document; judged once a sequence, since every public key in it is loaded again."""
        assert EpochBook.parse(self.book.to_bytes()) == self.book


TestEpochs = Epochs.TestCase
