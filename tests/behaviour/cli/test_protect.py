"""`pvdm protect`, `unprotect` and `migrate`: proposed, read, signed on the operator's side, applied by the Steward."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pvdm.cli.protect import table_metadata
from pvdm.client import TargetView
from pvdm.errors import InputError
from pvdm.model import document
from pvdm.model.role import Role
from tests.behaviour.cli.served import Door
from tests.behaviour.cli.support import Ran, Run
from tests.databases import memory_folder
from tests.protection_examples import CONTRACT, HASH, OTHER_CONTRACT, OTHER_HASH, Scene, furnish, with_catalog
from tests.steward_http import served

REASON = "orders go live"
BY_TOM = ("--key", "operator-tom.pem", "--operator", "operator-tom", "--reason", REASON)


@dataclass(frozen=True)
class House:
    """A served Steward with the table `sales.orders`, and commands of an operator."""

    scene: Scene
    door: Door
    run: Run

    def protect(self, *words: object) -> Ran:
        return self.run("protect", "sales.orders", "--contract", "orders.yaml", *BY_TOM, *words)

    def propose(self, *words: object, out: str | None = "proposal.json") -> Ran:
        placed = () if out is None else ("--out", out)
        return self.run("migrate", "propose", "sales.orders", *words, *placed)

    def sign(self, *words: object) -> Ran:
        return self.run("migrate", "sign", "proposal.json", *BY_TOM, "--out", "migration.json", *words)

    def done(self, ran: Ran) -> Ran:
        assert ran.code == 0, ran.err + ran.out
        return ran


@pytest.fixture
def house(
    pvdm: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_examples_time: None,
    example_key: Callable[[str], Path],
) -> Iterator[House]:
    for name in ("operator-tom", "operator-ruth", "rogue"):
        example_key(name)
    (tmp_path / "orders.yaml").write_text(CONTRACT)
    (tmp_path / "orders-2.yaml").write_text(OTHER_CONTRACT)
    with memory_folder() as folder, served(folder, changed=with_catalog(folder.resolve())) as running:
        door = Door(running.stand, running.server.url, tmp_path, monkeypatch)
        door.come_as(Role.OPERATOR)
        yield House(furnish(running.stand), door, pvdm)


def protected(house: House) -> House:
    house.done(house.protect())
    return house


def test_a_table_is_protected_and_its_contract_can_be_read_back(house: House) -> None:
    shown = house.done(house.protect("--json")).json["protection"]
    assert (shown["name"], shown["action"], shown["contract_sha256"]) == ("sales.orders", "protect", HASH)
    assert house.scene.contract_of() == HASH
    assert house.scene.notary.protections.contract(HASH, house.scene.grant()) == CONTRACT.encode()


def test_the_result_says_who_and_why(house: House) -> None:
    out = house.done(house.protect()).out
    assert out.startswith("PROTECTED  table sales.orders")
    assert f"operator-tom: {REASON}" in out


def test_a_protected_table_is_unprotected_loudly(house: House) -> None:
    protected(house)
    out = house.done(house.run("unprotect", "sales.orders", *BY_TOM, "--yes")).out
    assert out.startswith("*** UNPROTECTED  table sales.orders ***")
    assert house.scene.contract_of() is None


def test_without_yes_and_without_a_terminal_nothing_is_unprotected(house: House) -> None:
    protected(house)
    refused = house.run("unprotect", "sales.orders", *BY_TOM, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert house.scene.contract_of() == HASH


def test_what_is_not_protected_is_not_unprotected(house: House) -> None:
    refused = house.run("unprotect", "sales.orders", *BY_TOM, "--yes", "--json")
    assert (refused.code, refused.error) == (5, "not_protected")


def test_a_namespace_is_protected_and_a_new_table_is_born_so(house: House) -> None:
    house.done(house.run("protect", "--namespace", "sales", "--contract", "orders.yaml", *BY_TOM))
    house.scene.make("born")
    assert house.scene.contract_of("born") == HASH
    house.done(house.run("unprotect", "--namespace", "sales", *BY_TOM, "--yes"))
    house.scene.make("free")
    assert house.scene.contract_of("free") is None


@pytest.mark.parametrize("words", [(), ("sales.orders", "--namespace", "sales")])
def test_a_table_or_a_namespace_is_named_and_not_both(house: House, words: tuple[str, ...]) -> None:
    refused = house.run("protect", *words, "--contract", "orders.yaml", *BY_TOM, "--json")
    assert (refused.code, refused.error) == (2, "usage")


NO_CONTRACTS = ("", "a: 1\n---\nb: 2\n", "a: [1", "!!python/object/apply:os.getcwd []", "# nothing\n", "\ta: 1")


def test_a_contract_that_is_not_one_plain_yaml_document_is_refused(house: House, tmp_path: Path) -> None:
    found = {}
    for text in NO_CONTRACTS:
        (tmp_path / "orders.yaml").write_text(text)
        refused = house.protect("--json")
        found[text] = (refused.code, refused.error)
    assert found == dict.fromkeys(NO_CONTRACTS, (2, "contract_invalid"))
    assert house.scene.contract_of() is None


def test_a_key_that_nobody_trusts_protects_nothing(house: House) -> None:
    by = ("--key", "rogue.pem", "--operator", "operator-tom", "--reason", REASON)
    refused = house.run("protect", "sales.orders", "--contract", "orders.yaml", *by, "--json")
    assert (refused.code, refused.error) == (5, "key_unknown")
    assert house.scene.contract_of() is None


def test_a_token_that_is_no_operators_protects_nothing(house: House) -> None:
    house.door.come_as(Role.AUDITOR)
    refused = house.protect("--json")
    assert (refused.code, refused.error) == (5, "role_wrong")


def test_protections_are_listed_newest_first(house: House) -> None:
    protected(house)
    house.done(house.run("unprotect", "sales.orders", *BY_TOM, "--yes"))
    house.door.come_as(Role.CONSUMER, domain="sales")
    listed = house.done(house.run("protections", "--json")).json["protections"]
    assert [each["action"] for each in listed] == ["unprotect", "protect"]
    assert "*** UNPROTECTED" in house.done(house.run("protections")).out


def test_a_list_of_nothing_says_so(house: House) -> None:
    assert "nothing was ever protected" in house.done(house.run("protections")).out
    assert "no table was ever migrated" in house.done(house.run("migrate", "list")).out


CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "a column added": (("--add-column", "channel:string"), "+ column channel: string, optional, id 4"),
    "a column dropped": (("--drop-column", "town"), "- column town: string, optional, id 3"),
    "a column renamed": (("--rename-column", "town:city"), "~ column town: is called city now, id 3"),
    "a property set": (("--set-property", "word=mine"), "+ property word = mine"),
    "a property changed": (("--set-property", "owner=risk"), "~ property owner: sales becomes risk"),
    "a property removed": (("--remove-property", "owner"), "- property owner = sales"),
    "a later format": (("--format-version", "3"), "~ format-version: 2 becomes 3"),
    "another contract": (("--contract", "orders-2.yaml"), f"~ contract: {HASH} becomes {OTHER_HASH}"),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_each_change_is_shown_signed_and_applied(house: House, change: str) -> None:
    words, line = CHANGES[change]
    proposed = protected(house).done(house.propose(*words, "--json")).json
    assert line in proposed["difference"]
    house.done(house.sign("--yes"))
    applied = house.done(house.run("migrate", "submit", "migration.json", "--json")).json["migration"]
    assert applied["after"] == proposed["after"]
    assert house.run("migrate", "show", applied["migration_id"], "--json").json["migration"] == applied
    assert [each["migration_id"] for each in house.run("migrate", "list", "--json").json["migrations"]] == [
        applied["migration_id"]
    ]
    found = house.done(house.propose("--set-property", "next=1", "--json", out=None)).json["before"]
    assert found == applied["after"]


def test_several_changes_at_once_and_updates_from_a_file(house: House, tmp_path: Path) -> None:
    updates = [{"action": "set-properties", "updates": {"from-file": "yes"}}]
    (tmp_path / "updates.json").write_text(json.dumps({"updates": updates}))
    words = ("--updates", "updates.json", "--add-column", "channel:string", "--rename-column", "town:city")
    shown = protected(house).done(house.propose(*words)).out
    for line in ("+ property from-file = yes", "+ column channel", "~ column town: is called city now"):
        assert line in shown
    assert "schema        " in shown


def test_a_new_schema_fingerprint_is_shown(house: House) -> None:
    shown = protected(house).done(house.propose("--add-column", "channel:string", "--json")).json
    assert shown["before"]["schema_fingerprint"] != shown["after"]["schema_fingerprint"]


def test_a_proposal_changes_nothing(house: House) -> None:
    before = protected(house).scene.found()
    house.done(house.propose("--add-column", "channel:string"))
    house.done(house.sign("--yes"))
    assert house.scene.found() == before


def test_an_unprotected_table_is_not_migrated(house: House) -> None:
    refused = house.propose("--set-property", "a=b", "--json")
    assert (refused.code, refused.error) == (5, "not_protected")


WRONG_WISHES: dict[tuple[str, ...], str] = {
    (): "migration_empty",
    ("--set-property", "owner=sales"): "migration_empty",
    ("--add-column", "channel"): "change_invalid",
    ("--drop-column", "nothing"): "column_unknown",
}


def test_a_change_that_cannot_be_made_is_refused(house: House) -> None:
    protected(house)
    found = {words: house.propose(*words, "--json").error for words in WRONG_WISHES}
    assert found == WRONG_WISHES


FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "location": ({"action": "set-location", "location": "file:///elsewhere"}, "migration_moves_table"),
    "UUID": ({"action": "assign-uuid", "uuid": "11111111-2222-4333-8444-555555555555"}, "migration_moves_table"),
    "main": ({"action": "remove-snapshot-ref", "ref-name": "main"}, "migration_moves_data"),
    "snapshot": ({"action": "remove-snapshots", "snapshot-ids": [1001]}, "migration_moves_data"),
}


def test_what_no_migration_may_do_is_not_even_proposed(house: House, tmp_path: Path) -> None:
    protected(house)
    found = {}
    for name, (update, _) in FORBIDDEN.items():
        (tmp_path / "updates.json").write_text(json.dumps([update]))
        found[name] = house.propose("--updates", "updates.json", "--json").error
    assert found == {name: code for name, (_, code) in FORBIDDEN.items()}


def test_without_yes_and_without_a_terminal_nothing_is_signed(house: House, tmp_path: Path) -> None:
    protected(house).done(house.propose("--set-property", "a=b"))
    refused = house.sign("--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert not (tmp_path / "migration.json").exists()


SPOILS: dict[str, Callable[[Any], object]] = {
    "other updates": lambda value: value.update(updates='[{"action":"set-properties","updates":{"a":"other"}}]'),
    "no change": lambda value: value.update(structure_after=value["structure_before"]),
    "another property": lambda value: value.update(
        structure_after=value["structure_after"].replace('"a":"b"', '"a":"c"')
    ),
    "another fingerprint": lambda value: value["after"].update(schema_fingerprint="00" * 32),
    "another structure": lambda value: value["before"].update(structure_sha256="00" * 32),
    "another spec": lambda value: value["after"].update(spec_id=7),
}


def test_a_proposal_whose_parts_do_not_fit_is_not_signed(house: House, tmp_path: Path) -> None:
    protected(house).done(house.propose("--set-property", "a=b"))
    good = (tmp_path / "proposal.json").read_text()
    found = {}
    for name, spoil in SPOILS.items():
        value = json.loads(good)
        spoil(value)
        (tmp_path / "proposal.json").write_bytes(document.dump(value))
        refused = house.sign("--yes", "--json")
        found[name] = (refused.code, refused.error)
    assert found == dict.fromkeys(SPOILS, (5, "proposal_not_whole"))
    assert not (tmp_path / "migration.json").exists()


def test_another_file_is_no_proposal(house: House, tmp_path: Path) -> None:
    (tmp_path / "proposal.json").write_text("product: orders")
    assert house.sign("--yes", "--json").error == "file_kind_wrong"
    (tmp_path / "proposal.json").write_text("{}")
    assert house.sign("--yes", "--json").error == "document_key_missing"


def test_a_proposal_of_a_format_to_come_is_not_signed(house: House, tmp_path: Path) -> None:
    protected(house).done(house.propose("--set-property", "a=b"))
    value = json.loads((tmp_path / "proposal.json").read_text())
    (tmp_path / "proposal.json").write_bytes(document.dump({**value, "format": "pvdm-migration-proposal/v2"}))
    assert house.sign("--yes", "--json").error == "proposal_invalid"


def test_a_file_without_updates_is_refused(house: House, tmp_path: Path) -> None:
    (tmp_path / "updates.json").write_text('{"requirements": []}')
    assert protected(house).propose("--updates", "updates.json", "--json").error == "updates_invalid"


def test_what_has_no_document_is_no_table() -> None:
    with pytest.raises(InputError) as caught:
        table_metadata(TargetView("namespace", "pvdm", "00" * 16, "sales", None, None))
    assert caught.value.code == "table_expected"


def test_a_migration_of_a_table_that_moved_on_is_refused(house: House) -> None:
    protected(house).done(house.propose("--set-property", "a=b"))
    house.done(house.sign("--yes"))
    house.scene.migrate(house.scene.migration([{"action": "set-properties", "updates": {"c": "d"}}]))
    refused = house.run("migrate", "submit", "migration.json", "--json")
    assert (refused.code, refused.error) == (5, "approval_stale")


def test_the_same_migration_again_answers_the_same(house: House) -> None:
    protected(house).done(house.propose("--set-property", "a=b"))
    house.done(house.sign("--yes"))
    first = house.done(house.run("migrate", "submit", "migration.json", "--json")).json
    assert house.done(house.run("migrate", "submit", "migration.json", "--json")).json == first


def test_a_table_whose_names_hold_dots_is_named_as_json(house: House) -> None:
    house.scene.make("orders.v2")
    house.done(house.run("protect", '["sales","orders.v2"]', "--contract", "orders.yaml", *BY_TOM))
    assert house.scene.contract_of("orders.v2") == HASH
