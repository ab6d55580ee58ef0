"""`pvdm protect`, `unprotect`, `protections` and `contract`: signed on the operator's side, in force at the Steward."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pvdm.cli.table.approvals import Signing
from pvdm.model.role import Role
from pvdm.model.statements.migration import Protection
from tests.behaviour.cli.house import BY_TOM, REASON, House, protected
from tests.support.gate.approvals import CONTRACT, HASH, OTHER_HASH, contract_for
from tools.proof_kit import SIGNERS


def test_a_table_is_protected_and_its_contract_can_be_read_back(house: House) -> None:
    shown = house.done(house.protect("--json")).json["protection"]
    assert (shown["name"], shown["action"], shown["contract_sha256"]) == ("sales.orders", "protect", HASH)
    assert house.scene.contract_of() == HASH
    assert house.scene.notary.protections.get_contract(HASH, house.scene.grant()) == CONTRACT.encode()


def test_the_result_says_who_and_why(house: House) -> None:
    out = house.done(house.protect()).out
    assert out.startswith("PROTECTED  table sales.orders")
    assert f"operator-tom: {REASON}" in out


def test_the_result_says_what_main_showed(house: House) -> None:
    head = house.scene.found().metadata.current_snapshot_id
    assert re.search(rf"main showed +snapshot {head}\n", house.done(house.protect()).out)
    shown = house.done(house.run("protections", "--json")).json["protections"][0]
    assert shown["snapshot_id"] == str(head)


def test_of_an_empty_table_and_of_a_namespace_it_is_said_too(house: House, tmp_path: Path) -> None:
    house.scene.make("empty")
    house.scene.make("empty", levels=("raw",))
    (tmp_path / "empty.yaml").write_text(contract_for("empty"))
    out = house.done(house.run("protect", "sales.empty", "--contract", "empty.yaml", *BY_TOM)).out
    assert re.search(r"main showed +no snapshot yet\n", out)
    spaced = house.done(house.run("protect", "--namespace", "sales", "--contract", "orders.yaml", *BY_TOM)).out
    assert "main showed" not in spaced


def test_a_main_that_moves_while_the_operator_signs_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = Signing.sign

    def slow(self: Signing, said: Protection) -> bytes:
        house.scene.stage(branch="main")
        return sign(self, said)

    monkeypatch.setattr(Signing, "sign", slow)
    refused = house.protect("--json")
    assert (refused.code, refused.error) == (4, "approval_main_moved")
    assert house.scene.contract_of() is None


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


NO_CONTRACTS = (
    "",
    "a: 1\n---\nb: 2\n",
    "a: [1",
    "!!python/object/apply:os.getcwd []",
    "# nothing\n",
    "\ta: 1",
    "hello",
    "[a, b]",
    "&a [*a]",
    "a: &b 1\nc: *b\n",
    "a: &b 1\n",
)


def test_a_contract_that_is_not_one_plain_yaml_mapping_is_refused(house: House, tmp_path: Path) -> None:
    found = {}
    for text in NO_CONTRACTS:
        (tmp_path / "orders.yaml").write_text(text)
        refused = house.protect("--json")
        found[text] = (refused.code, refused.error in ("contract_invalid", "contract_unreadable"))
    assert found == dict.fromkeys(NO_CONTRACTS, (2, True))
    assert house.scene.contract_of() is None


def test_a_contract_with_an_alias_says_so(house: House, tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text("a: 1\nb: &c [1]\nd: *c\n")
    refused = house.protect("--json").json["error"]
    assert (refused["expected"], refused["got"]) == (
        "every value written out where it belongs",
        "an alias or an anchor",
    )
    assert "orders.yaml:2:4" in refused["message"]


def test_a_key_that_nobody_trusts_protects_nothing(house: House) -> None:
    by = ("--key", "rogue.pem", "--operator", "operator-tom", "--reason", REASON)
    refused = house.run("protect", "sales.orders", "--contract", "orders.yaml", *by, "--json")
    assert (refused.code, refused.error) == (5, "key_unknown")
    assert house.scene.contract_of() is None


def test_a_token_that_is_no_operators_protects_nothing(house: House) -> None:
    house.door.come_as(Role.AUDITOR)
    refused = house.protect("--json")
    assert (refused.code, refused.error) == (5, "role_wrong")


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.AUDITOR])
def test_who_is_no_operator_hears_that_an_operator_is_wanted(house: House, role: Role) -> None:
    house.door.come_as(role)
    for words in (("protect", "sales.orders", "--contract", "orders.yaml"), ("unprotect", "sales.orders", "--yes")):
        error = house.run(*words, *BY_TOM, "--json").json["error"]
        assert (error["reason"], error["expected"], error["got"]) == ("role_wrong", "operator", role.value)


def test_a_public_key_is_told_as_one(house: House, tmp_path: Path) -> None:
    file = tmp_path / "operator-tom.pem.pub"
    file.write_bytes(SIGNERS["operator-tom"].public.to_pem())
    for mode in (0o644, 0o600):
        file.chmod(mode)
        by = ("--key", file.name, "--operator", "operator-tom", "--reason", REASON)
        refused = house.run("protect", "sales.orders", "--contract", "orders.yaml", *by, "--json")
        assert (refused.code, refused.error) == (2, "key_is_public")
        assert refused.json["error"]["hint"].endswith("such as operator-tom.pem")


@pytest.mark.parametrize("name", ["lake.sales.orders", "orders", "nowhere.orders"])
def test_a_name_that_is_not_there_hears_how_names_are_written(house: House, name: str) -> None:
    asked = [
        house.run("protect", name, "--contract", "orders.yaml", *BY_TOM, "--json"),
        house.run("migrate", "propose", name, "--set-property", "a=b", "--json"),
    ]
    for refused in asked:
        assert (refused.code, refused.error) == (2, "table_unknown")
        assert "lake in lake.sales.orders" in refused.json["error"]["hint"]


def test_too_long_an_approval_is_told_in_days(house: House) -> None:
    refused = house.protect("--expires", "8d", "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert "expected at most 7d, got 8d" in refused.json["error"]["message"]


def test_seven_days_are_not_too_long(house: House) -> None:
    house.done(house.protect("--expires", "7d"))


def test_what_is_protected_now_is_listed_with_its_origin(house: House) -> None:
    house.done(house.run("protect", "--namespace", "sales", "--contract", "orders.yaml", *BY_TOM))
    house.scene.make("born")
    protection = house.done(house.protect("--json")).json["protection"]
    house.door.come_as(Role.PRODUCER, domain="sales")
    found = house.done(house.run("protections", "--current", "--json")).json["protected"]
    assert [(each["kind"], each["name"]) for each in found] == [
        ("namespace", "sales"),
        ("table", "sales.born"),
        ("table", "sales.orders"),
    ]
    assert (found[1]["born_in"], found[1]["protection_id"]) == ("sales", None)
    assert (found[2]["born_in"], found[2]["protection_id"]) == (None, protection["protection_id"])
    assert found[2]["id"] == house.scene.found().row.table_uuid
    out = house.done(house.run("protections", "--current", "sales.born")).out
    assert out.startswith("table sales.born\n")
    assert "created in namespace sales" in out
    assert "orders" not in out
    listed = house.done(house.run("protections", "--current", "--namespace", "sales", "--json")).json["protected"]
    assert listed == found
    assert "nothing that you named" in house.done(house.run("protections", "--current", "sales.none")).out


@pytest.mark.parametrize(
    "words", [("sales.orders",), ("--namespace", "sales"), ("--current", "sales.orders", "--namespace", "sales")]
)
def test_one_thing_is_asked_for_and_with_current_only(house: House, words: tuple[str, ...]) -> None:
    refused = house.run("protections", *words, "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_a_contract_is_printed_byte_for_byte(house: House) -> None:
    protected(house)
    house.door.come_as(Role.PRODUCER, domain="sales")
    assert house.done(house.run("contract", "show", HASH)).out == CONTRACT
    assert house.done(house.run("contract", "show", HASH, "--json")).json == {
        "contract_sha256": HASH,
        "contract": CONTRACT,
    }
    assert house.run("contract", "show", OTHER_HASH, "--json").error == "contract_unknown"


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


def test_a_table_whose_names_hold_dots_is_named_as_json_and_has_no_contract_of_its_own(house: House) -> None:
    house.scene.make("orders.v2")
    refused = house.run("protect", '["sales","orders.v2"]', "--contract", "orders.yaml", *BY_TOM, "--json")
    assert (refused.code, refused.error) == (5, "contract_of_other_table")
    assert refused.json["error"]["expected"] == '["sales","orders.v2"]'
    assert house.scene.contract_of("orders.v2") is None
