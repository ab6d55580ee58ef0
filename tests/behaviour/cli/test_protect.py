"""`pvdm protect` and `unprotect`, which an operator signs, and what `protections` and `contract show` print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pvdm.cli.table.approvals import Signing
from pvdm.model.role import Role
from pvdm.model.statements.migration import Protection
from tests.behaviour.cli.house import BY_TOM, REASON, House, protect_orders
from tests.support.gate.approvals import CONTRACT, HASH, OTHER_HASH, contract_for
from tools.proof_kit import SIGNERS


def test_a_table_is_protected_and_its_contract_can_be_read_back(house: House) -> None:
    shown = house.require_ok(house.protect("--json")).json["protection"]
    assert (shown["name"], shown["action"], shown["contract_sha256"]) == ("sales.orders", "protect", HASH)
    assert house.scene.contract_of() == HASH
    assert house.scene.notary.protections.get_contract(HASH, house.scene.grant()) == CONTRACT.encode()


def test_the_result_says_who_and_why(house: House) -> None:
    out = house.require_ok(house.protect()).out
    assert out.startswith("PROTECTED  table sales.orders")
    assert f"operator-tom: {REASON}" in out


def test_the_result_says_what_main_showed(house: House) -> None:
    head = house.scene.table_state().metadata.current_snapshot_id
    assert re.search(rf"main showed +snapshot {head}\n", house.require_ok(house.protect()).out)
    shown = house.require_ok(house.run("protections", "--json")).json["protections"][0]
    assert shown["snapshot_id"] == str(head)


def test_the_result_says_that_an_empty_table_showed_no_snapshot_and_nothing_of_a_namespace(
    house: House, tmp_path: Path
) -> None:
    house.scene.make("empty")
    house.scene.make("empty", levels=("raw",))
    (tmp_path / "empty.yaml").write_text(contract_for("empty"))
    out = house.require_ok(house.run("protect", "sales.empty", "--contract", "empty.yaml", *BY_TOM)).out
    assert re.search(r"main showed +no snapshot yet\n", out)
    protected = house.require_ok(house.run("protect", "--namespace", "sales", "--contract", "orders.yaml", *BY_TOM))
    assert "main showed" not in protected.out


def test_protecting_a_table_whose_main_moves_during_the_signing_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = Signing.sign

    def move_main_then_sign(self: Signing, protection: Protection) -> bytes:
        house.scene.stage(branch="main")
        return sign(self, protection)

    monkeypatch.setattr(Signing, "sign", move_main_then_sign)
    refused = house.protect("--json")
    assert (refused.code, refused.error) == (4, "approval_main_moved")
    assert house.scene.contract_of() is None


def test_a_protected_table_is_unprotected_loudly(house: House) -> None:
    protect_orders(house)
    out = house.require_ok(house.run("unprotect", "sales.orders", *BY_TOM, "--yes")).out
    assert out.startswith("*** UNPROTECTED  table sales.orders ***")
    assert house.scene.contract_of() is None


def test_without_yes_and_without_a_terminal_nothing_is_unprotected(house: House) -> None:
    protect_orders(house)
    refused = house.run("unprotect", "sales.orders", *BY_TOM, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert house.scene.contract_of() == HASH


def test_unprotecting_an_unprotected_table_is_refused(house: House) -> None:
    refused = house.run("unprotect", "sales.orders", *BY_TOM, "--yes", "--json")
    assert (refused.code, refused.error) == (5, "not_protected")


def test_a_table_that_is_created_in_a_protected_namespace_is_protected(house: House) -> None:
    house.require_ok(house.run("protect", "--namespace", "sales", "--contract", "orders.yaml", *BY_TOM))
    house.scene.make("born")
    assert house.scene.contract_of("born") == HASH
    house.require_ok(house.run("unprotect", "--namespace", "sales", *BY_TOM, "--yes"))
    house.scene.make("free")
    assert house.scene.contract_of("free") is None


@pytest.mark.parametrize("words", [(), ("sales.orders", "--namespace", "sales")])
def test_naming_neither_a_table_nor_a_namespace_or_both_is_a_usage_error(house: House, words: tuple[str, ...]) -> None:
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


def test_the_error_for_a_contract_with_an_alias_says_so(house: House, tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text("a: 1\nb: &c [1]\nd: *c\n")
    refused = house.protect("--json").json["error"]
    assert (refused["expected"], refused["got"]) == (
        "every value written out where it belongs",
        "an alias or an anchor",
    )
    assert "orders.yaml:2:4" in refused["message"]


def test_a_protection_by_an_unknown_key_is_refused(house: House) -> None:
    by = ("--key", "rogue.pem", "--operator", "operator-tom", "--reason", REASON)
    refused = house.run("protect", "sales.orders", "--contract", "orders.yaml", *by, "--json")
    assert (refused.code, refused.error) == (5, "key_unknown")
    assert house.scene.contract_of() is None


def test_protecting_with_an_auditors_token_is_refused(house: House) -> None:
    house.steward.use_token(Role.AUDITOR)
    refused = house.protect("--json")
    assert (refused.code, refused.error) == (5, "role_wrong")


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.AUDITOR])
def test_the_refusal_of_another_role_names_the_role_operator(house: House, role: Role) -> None:
    house.steward.use_token(role)
    for words in (("protect", "sales.orders", "--contract", "orders.yaml"), ("unprotect", "sales.orders", "--yes")):
        error = house.run(*words, *BY_TOM, "--json").json["error"]
        assert (error["reason"], error["expected"], error["got"]) == ("role_wrong", "operator", role.value)


def test_a_public_key_in_place_of_the_private_one_is_refused_with_a_hint(house: House, tmp_path: Path) -> None:
    file = tmp_path / "operator-tom.pem.pub"
    file.write_bytes(SIGNERS["operator-tom"].public.to_pem())
    for mode in (0o644, 0o600):
        file.chmod(mode)
        by = ("--key", file.name, "--operator", "operator-tom", "--reason", REASON)
        refused = house.run("protect", "sales.orders", "--contract", "orders.yaml", *by, "--json")
        assert (refused.code, refused.error) == (2, "key_is_public")
        assert refused.json["error"]["hint"].endswith("such as operator-tom.pem")


@pytest.mark.parametrize("name", ["lake.sales.orders", "orders", "nowhere.orders"])
def test_an_unknown_table_is_refused_with_a_hint_on_names(house: House, name: str) -> None:
    refusals = [
        house.run("protect", name, "--contract", "orders.yaml", *BY_TOM, "--json"),
        house.run("migrate", "propose", name, "--set-property", "a=b", "--json"),
    ]
    for refused in refusals:
        assert (refused.code, refused.error) == (2, "table_unknown")
        assert "lake in lake.sales.orders" in refused.json["error"]["hint"]


def test_an_approval_for_more_than_seven_days_is_refused(house: House) -> None:
    refused = house.protect("--expires", "8d", "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert "expected at most 7d, got 8d" in refused.json["error"]["message"]


def test_an_approval_for_seven_days_is_accepted(house: House) -> None:
    house.require_ok(house.protect("--expires", "7d"))


def test_current_protections_are_listed_with_their_origin(house: House) -> None:
    house.require_ok(house.run("protect", "--namespace", "sales", "--contract", "orders.yaml", *BY_TOM))
    house.scene.make("born")
    protection = house.require_ok(house.protect("--json")).json["protection"]
    house.steward.use_token(Role.PRODUCER, domain="sales")
    found = house.require_ok(house.run("protections", "--current", "--json")).json["protected"]
    assert [(each["kind"], each["name"]) for each in found] == [
        ("namespace", "sales"),
        ("table", "sales.born"),
        ("table", "sales.orders"),
    ]
    assert (found[1]["born_in"], found[1]["protection_id"]) == ("sales", None)
    assert (found[2]["born_in"], found[2]["protection_id"]) == (None, protection["protection_id"])
    assert found[2]["id"] == house.scene.table_state().row.table_uuid
    out = house.require_ok(house.run("protections", "--current", "sales.born")).out
    assert out.startswith("table sales.born\n")
    assert "created in namespace sales" in out
    assert "orders" not in out
    listed = house.require_ok(house.run("protections", "--current", "--namespace", "sales", "--json")).json["protected"]
    assert listed == found
    assert "nothing that you named" in house.require_ok(house.run("protections", "--current", "sales.none")).out


@pytest.mark.parametrize(
    "words", [("sales.orders",), ("--namespace", "sales"), ("--current", "sales.orders", "--namespace", "sales")]
)
def test_a_table_or_namespace_without_current_or_both_is_a_usage_error(house: House, words: tuple[str, ...]) -> None:
    refused = house.run("protections", *words, "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_a_contract_is_printed_byte_for_byte(house: House) -> None:
    protect_orders(house)
    house.steward.use_token(Role.PRODUCER, domain="sales")
    assert house.require_ok(house.run("contract", "show", HASH)).out == CONTRACT
    assert house.require_ok(house.run("contract", "show", HASH, "--json")).json == {
        "contract_sha256": HASH,
        "contract": CONTRACT,
    }
    assert house.run("contract", "show", OTHER_HASH, "--json").error == "contract_unknown"


def test_protections_are_listed_newest_first(house: House) -> None:
    protect_orders(house)
    house.require_ok(house.run("unprotect", "sales.orders", *BY_TOM, "--yes"))
    house.steward.use_token(Role.CONSUMER, domain="sales")
    listed = house.require_ok(house.run("protections", "--json")).json["protections"]
    assert [each["action"] for each in listed] == ["unprotect", "protect"]
    assert "*** UNPROTECTED" in house.require_ok(house.run("protections")).out


def test_an_empty_list_says_so(house: House) -> None:
    assert "nothing was ever protected" in house.require_ok(house.run("protections")).out
    assert "no table was ever migrated" in house.require_ok(house.run("migrate", "list")).out


def test_a_table_with_a_dot_in_its_name_is_named_as_json_and_no_contract_fits_it(house: House) -> None:
    house.scene.make("orders.v2")
    refused = house.run("protect", '["sales","orders.v2"]', "--contract", "orders.yaml", *BY_TOM, "--json")
    assert (refused.code, refused.error) == (5, "contract_of_other_table")
    assert refused.json["error"]["expected"] == '["sales","orders.v2"]'
    assert house.scene.contract_of("orders.v2") is None
