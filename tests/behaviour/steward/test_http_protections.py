"""Protections and migrations over HTTP: what each role can do with the client, and the errors that it gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from pvdm.api.protection import Applied
from pvdm.client import StewardClient
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.ledger.record import protections as store
from pvdm.model.role import Role
from pvdm.model.statements.migration import ProtectionAction
from tests.support.gate.approvals import CONTRACT, HASH, Scene, furnish, reason_of, signed, with_catalog
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import served


@dataclass(frozen=True)
class House:
    """A served Steward with the table `sales.orders`."""

    scene: Scene
    url: str

    def client(self, role: Role = Role.OPERATOR, domain: str = "*") -> StewardClient:
        return StewardClient(self.url, self.scene.stand.token(role, domain)[0])


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, served(folder, changed=with_catalog(folder.resolve())) as running:
        yield House(furnish(running.stand), running.server.url)


def test_a_table_is_read_protected_migrated_and_listed(house: House) -> None:
    with house.client() as client:
        found = client.target("table", "sales.orders")
        assert (found.id, found.contract_sha256) == (house.scene.table_state().row.table_uuid, None)
        assert str(found.metadata).encode() == house.scene.table_state().metadata.to_bytes()
        envelope = signed(house.scene.protection())
        protection = client.submit_protection(envelope)
        assert client.submit_protection(envelope) == protection
        assert (protection.action, protection.contract_sha256) == (ProtectionAction.PROTECT, HASH)
        assert protection.snapshot_id == house.scene.table_state().metadata.current_snapshot_id
        assert client.protections() == (protection,)
        assert client.contract(HASH) == CONTRACT.encode()
        assert client.target("table", "sales.orders").contract_sha256 == HASH
        envelope = signed(house.scene.migration())
        first, again = client.submit_migration(envelope), client.submit_migration(envelope)
        migration = first.migration
        assert again == first.model_copy(update={"applied": Applied.BEFORE})
        assert (first.applied, first.contract_sha256) == (Applied.NOW, HASH)
        assert client.migrations() == (migration,)
        assert client.migration(migration.migration_id) == migration
        assert migration.before.contract_sha256 == migration.after.contract_sha256 == HASH


def test_a_namespace_is_read(house: House) -> None:
    with house.client(Role.AUDITOR, "sales") as client:
        found = client.target("namespace", "sales")
    assert (found.kind, found.id, found.metadata) == ("namespace", house.scene.space().namespace_id, None)


UNKNOWN_TARGETS = {
    ("table", "sales.nothing"): "table_unknown",
    ("table", "nowhere.orders"): "table_unknown",
    ("table", "orders"): "table_unknown",
    ("namespace", "nowhere"): "namespace_unknown",
    ("table", "sales..orders"): "name_invalid",
    ("view", "sales.orders"): "request_invalid",
}


def test_an_unknown_target_is_refused_with_its_own_reason(house: House) -> None:
    with house.client() as client:
        found = {target: reason_of(partial(client.target, *target), InputError) for target in UNKNOWN_TARGETS}
    assert found == UNKNOWN_TARGETS


def test_another_domain_sees_neither_table_nor_protection_nor_migration(house: House) -> None:
    house.scene.protect()
    migration = house.scene.migrate()
    with house.client(Role.AUDITOR, "risk") as client:
        assert reason_of(lambda: client.target("table", "sales.orders"), NotAllowedError) == "domain_wrong"
        assert reason_of(lambda: client.target("namespace", "sales"), NotAllowedError) == "domain_wrong"
        assert reason_of(lambda: client.contract(HASH), NotAllowedError) == "domain_wrong"
        assert reason_of(lambda: client.migration(migration.migration_id), NotAllowedError) == "domain_wrong"
        assert (client.protections(), client.migrations()) == ((), ())


def test_a_consumer_sees_protections_and_contracts_of_its_domain_but_no_migrations_and_targets(house: House) -> None:
    house.scene.protect()
    with house.client(Role.CONSUMER, "sales") as client:
        assert [view.contract_sha256 for view in client.protections()] == [HASH]
        assert client.contract(HASH) == CONTRACT.encode()
        for call in (client.migrations, lambda: client.target("table", "sales.orders")):
            assert reason_of(call, NotAllowedError) == "role_wrong"


def test_every_role_of_the_domain_sees_what_is_protected_now(house: House) -> None:
    protection = house.scene.protect()
    house.scene.protect(house.scene.namespace_protection(levels=("risk",)))
    row = house.scene.table_state().row
    for role in set(Role) - {Role.ATTESTOR, Role.WORKER}:
        with house.client(role, "sales") as client:
            (found,) = client.protected()
            assert (found.kind, found.name, found.id) == ("table", "sales.orders", row.table_uuid)
            assert (found.contract_sha256, found.protection_id, found.born_in) == (HASH, protection.protection_id, None)
            assert client.protected("namespace") == ()
    with house.client(Role.AUDITOR, "risk") as client:
        assert (client.protected(), [each.name for each in client.protected("namespace")]) == ((), ["risk"])
    with house.client(Role.OPERATOR) as client:
        assert [each.name for each in client.protected("namespace")] == ["risk"]
        assert client.protected(name="sales.nothing") == client.protected(namespace="risk") == ()
        assert client.protected(after="sales.orders") == ()


def test_a_table_created_in_a_protected_namespace_names_that_namespace(house: House) -> None:
    house.scene.protect(house.scene.namespace_protection())
    house.scene.make("born")
    with house.client(Role.PRODUCER, "sales") as client:
        (found,) = client.protected()
        assert (found.name, found.protection_id, found.born_in) == ("sales.born", None, "sales")
        assert found.since_at > 0


def test_a_producer_reads_the_contract_of_its_domain(house: House) -> None:
    house.scene.protect()
    with house.client(Role.PRODUCER, "sales") as client:
        assert client.contract(HASH) == CONTRACT.encode()
    with house.client(Role.PRODUCER, "risk") as client:
        assert reason_of(lambda: client.contract(HASH), NotAllowedError) == "domain_wrong"


def test_a_contract_that_does_not_match_its_hash_is_refused_by_the_client(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.scene.protect()
    monkeypatch.setattr(store, "get_contract", lambda *_: b"product: others\n")
    with house.client() as client:
        assert reason_of(lambda: client.contract(HASH), UnavailableError) == "steward_answer_invalid"


def test_a_stale_migration_is_refused_with_the_command_that_proposes_it_again(house: House) -> None:
    house.scene.protect()
    stale = signed(house.scene.migration())
    house.scene.migrate()
    with house.client() as client, pytest.raises(NotAllowedError) as caught:
        client.submit_migration(stale)
    assert "`pvdm migrate propose`" in str(caught.value.hint)


def test_a_main_that_has_moved_is_a_conflict_over_http(house: House) -> None:
    stale = signed(house.scene.protection())
    house.scene.stage(branch="main")
    with house.client() as client:
        assert reason_of(lambda: client.submit_protection(stale), ConflictError) == "approval_main_moved"


def test_refusals_keep_type_and_reason_over_http(house: House) -> None:
    house.scene.protect()
    with house.client() as client:
        again = signed(house.scene.protection())
        stale = signed(house.scene.migration())
        house.scene.migrate()
        found: list[tuple[type[PvdmError], str]] = []
        for call in (lambda: client.submit_protection(again), lambda: client.submit_migration(stale)):
            with pytest.raises(PvdmError) as caught:
                call()
            found.append((type(caught.value), caught.value.reason))
    assert found == [(NotAllowedError, "protected_already"), (NotAllowedError, "approval_stale")]
