"""`pvdm migrate`: an operator proposes a change, reads and signs it, and the Steward applies it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pvdm.api.protection import TargetView
from pvdm.errors import InputError
from pvdm.metadata.gate.state import table_metadata
from pvdm.model import canonical_json
from pvdm.model.statements.migration import Migration, contract_sha256
from pvdm.trust.statement import read_unchecked
from tests.behaviour.cli.house import REASON, House, protect_orders
from tests.support.gate.approvals import CONTRACT, HASH, OTHER_CONTRACT, OTHER_HASH

CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "a column added": (("--add-column", "channel:string"), "+ column channel: string, optional, id 4"),
    "a column dropped": (("--drop-column", "town"), "- column town: string, optional, id 3"),
    "a column renamed": (("--rename-column", "town:city"), "~ column town: is renamed to city, id 3"),
    "a property set": (("--set-property", "word=mine"), "+ property word = mine"),
    "a property changed": (("--set-property", "owner=risk"), "~ property owner: sales becomes risk"),
    "a property removed": (("--remove-property", "owner"), "- property owner = sales"),
    "a later format": (("--format-version", "3"), "~ format-version: 2 becomes 3"),
    "another contract": (("--contract", "orders-2.yaml"), f"~ contract: {HASH} becomes {OTHER_HASH}"),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_each_change_is_shown_signed_and_applied(house: House, tmp_path: Path, change: str) -> None:
    words, line = CHANGES[change]
    proposed = protect_orders(house).require_ok(house.propose(*words, "--json")).json
    assert line in proposed["difference"]
    house.require_ok(house.sign("--yes"))
    house.scene.prepare_source(read_unchecked((tmp_path / "migration.json").read_bytes(), Migration))
    applied = house.require_ok(house.run("migrate", "submit", "migration.json", "--json")).json["migration"]
    assert applied["after"] == proposed["after"]
    assert house.run("migrate", "show", applied["migration_id"], "--json").json["migration"] == applied
    assert [each["migration_id"] for each in house.run("migrate", "list", "--json").json["migrations"]] == [
        applied["migration_id"]
    ]
    found = house.require_ok(house.propose("--set-property", "next=1", "--json", out=None)).json["before"]
    assert found == applied["after"]


def test_several_changes_and_updates_from_a_file_make_one_proposal(house: House, tmp_path: Path) -> None:
    updates = [{"action": "set-properties", "updates": {"from-file": "yes"}}]
    (tmp_path / "updates.json").write_text(json.dumps({"updates": updates}))
    words = ("--updates", "updates.json", "--add-column", "channel:string", "--rename-column", "town:city")
    shown = protect_orders(house).require_ok(house.propose(*words)).out
    for line in ("+ property from-file = yes", "+ column channel", "~ column town: is renamed to city"):
        assert line in shown
    assert "schema        " in shown


def test_a_new_schema_fingerprint_is_shown(house: House) -> None:
    shown = protect_orders(house).require_ok(house.propose("--add-column", "channel:string", "--json")).json
    assert shown["before"]["schema_fingerprint"] != shown["after"]["schema_fingerprint"]


def test_a_proposal_changes_nothing(house: House) -> None:
    before = protect_orders(house).scene.table_state()
    house.require_ok(house.propose("--add-column", "channel:string"))
    house.require_ok(house.sign("--yes"))
    assert house.scene.table_state() == before


def test_an_unprotected_table_is_not_migrated(house: House) -> None:
    refused = house.propose("--set-property", "a=b", "--json")
    assert (refused.code, refused.error) == (5, "not_protected")


WRONG_CHANGES: dict[tuple[str, ...], str] = {
    (): "migration_empty",
    ("--set-property", "owner=sales"): "migration_empty",
    ("--add-column", "channel"): "change_invalid",
    ("--drop-column", "nothing"): "column_unknown",
    ("--add-column", "n:bigint"): "column_type_unknown",
    ("--add-column", "n:list<string>"): "column_type_unknown",
    ("--add-column", "n:decimal(39,0)"): "column_type_unknown",
}


def test_a_change_that_cannot_be_made_is_refused(house: House) -> None:
    protect_orders(house)
    found = {words: house.propose(*words, "--json").error for words in WRONG_CHANGES}
    assert found == WRONG_CHANGES


FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "location": ({"action": "set-location", "location": "file:///elsewhere"}, "migration_moves_table"),
    "UUID": ({"action": "assign-uuid", "uuid": "11111111-2222-4333-8444-555555555555"}, "migration_moves_table"),
    "main": ({"action": "remove-snapshot-ref", "ref-name": "main"}, "migration_moves_data"),
    "snapshot": ({"action": "remove-snapshots", "snapshot-ids": [1001]}, "migration_moves_data"),
}


HINTS = {
    "bigint": "bigint of SQL is long in Iceberg",
    "varchar(9)": "varchar of SQL is string in Iceberg",
    "array<string>": "--updates FILE",
    "money": "--updates FILE",
}


def test_a_type_that_iceberg_lacks_is_refused_with_the_known_types_and_a_hint(house: House) -> None:
    protect_orders(house)
    for kind, hint in HINTS.items():
        error = house.propose("--add-column", f"n:{kind}", "--json").json["error"]
        assert error["expected"].startswith("boolean, int, long")
        assert hint in error["hint"]


def test_adding_a_timestamp_without_a_zone_prints_a_notice(house: House) -> None:
    protect_orders(house)
    proposed = house.require_ok(house.propose("--add-column", "at:timestamp", out=None))
    assert "Spark's TIMESTAMP is timestamptz" in proposed.err
    assert house.require_ok(house.propose("--add-column", "at:timestamptz", out=None)).err == ""


def test_a_forbidden_change_cannot_be_proposed(house: House, tmp_path: Path) -> None:
    protect_orders(house)
    found = {}
    for name, (update, _) in FORBIDDEN.items():
        (tmp_path / "updates.json").write_text(json.dumps([update]))
        found[name] = house.propose("--updates", "updates.json", "--json").error
    assert found == {name: code for name, (_, code) in FORBIDDEN.items()}


UNFIT_CONTRACTS: dict[str, tuple[str, tuple[int, str]]] = {
    "an unknown key": (OTHER_CONTRACT.replace("[id]", "[number]"), (2, "projection_column_unknown")),
    "another target": (OTHER_CONTRACT.replace("sales.orders", "sales.returns"), (5, "contract_of_other_table")),
    "another domain": (OTHER_CONTRACT.replace("domain: sales", "domain: risk"), (5, "contract_of_other_domain")),
    "an unknown partition": (
        OTHER_CONTRACT.replace("operation: append", "operation: overwrite-partitions\n  partition: {week: 2}"),
        (2, "partition_unknown"),
    ),
}


def test_a_contract_that_the_steward_would_refuse_is_not_proposed(house: House, tmp_path: Path) -> None:
    protect_orders(house)
    found = {}
    for name, (text, _) in UNFIT_CONTRACTS.items():
        (tmp_path / "orders-2.yaml").write_text(text)
        refused = house.propose("--contract", "orders-2.yaml", "--json")
        found[name] = (refused.code, refused.error)
    assert found == {name: refusal for name, (_, refusal) in UNFIT_CONTRACTS.items()}
    assert not (tmp_path / "proposal.json").exists()


def test_a_contract_that_the_steward_would_refuse_is_not_signed(house: House, tmp_path: Path) -> None:
    protect_orders(house).require_ok(house.propose("--contract", "orders-2.yaml"))
    proposal, found = (tmp_path / "proposal.json").read_text(), {}
    for name, (text, _) in UNFIT_CONTRACTS.items():
        value = json.loads(proposal.replace(OTHER_HASH, contract_sha256(text)))
        (tmp_path / "proposal.json").write_bytes(canonical_json.dump(value | {"contract": text}))
        refused = house.sign("--yes", "--json")
        found[name] = (refused.code, refused.error)
    assert found == {name: refusal for name, (_, refusal) in UNFIT_CONTRACTS.items()}
    assert not (tmp_path / "migration.json").exists()


def test_a_key_column_of_the_contract_in_force_cannot_be_dropped(house: House) -> None:
    refused = protect_orders(house).propose("--drop-column", "id", "--json")
    assert (refused.code, refused.error) == (2, "projection_column_unknown")


def test_a_partition_of_the_contract_in_force_cannot_leave_the_partition_spec(house: House, tmp_path: Path) -> None:
    by_town = {"name": "town", "transform": "identity", "source-id": 3}
    add = {"action": "add-spec", "spec": {"fields": [by_town]}}
    house.scene.commit([add, {"action": "set-default-spec", "spec-id": -1}])
    declared = "operation: overwrite-partitions\n  partition: {town: Rome}"
    (tmp_path / "orders.yaml").write_text(CONTRACT.replace("operation: append", declared))
    protect_orders(house)
    (tmp_path / "updates.json").write_text(json.dumps([{"action": "set-default-spec", "spec-id": 0}]))
    refused = house.propose("--updates", "updates.json", "--json")
    assert (refused.code, refused.error) == (2, "partition_unknown")


def test_without_yes_and_without_a_terminal_nothing_is_signed(house: House, tmp_path: Path) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    refused = house.sign("--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert not (tmp_path / "migration.json").exists()


def test_a_long_value_is_cut_in_the_proposal_and_shown_whole_for_signing(house: House) -> None:
    long = "x" * 600 + "END"
    protect_orders(house)
    shown = house.require_ok(house.propose("--set-property", f"a={long}")).out
    assert "… (603 characters)" in shown
    assert "--json and `pvdm migrate sign` show them whole" in shown
    assert long not in shown
    assert (
        f"+ property a = {long}"
        in house.require_ok(house.propose("--set-property", f"a={long}", "--json", out=None)).json["difference"]
    )
    signed = house.require_ok(house.sign("--yes")).out
    assert f"+ property a = {long}" in signed
    assert "characters)" not in signed


def test_a_proposal_without_long_values_does_not_mention_cuts(house: House) -> None:
    assert "are cut here" not in protect_orders(house).require_ok(house.propose("--set-property", "a=b")).out


def test_signing_shows_the_updates_the_reason_and_the_expiry(house: House) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    signed = house.require_ok(house.sign("--yes")).out
    assert '[{"action":"set-properties","updates":{"a":"b"}}]' in signed
    assert f"operator-tom: {REASON}" in signed
    assert "valid until" in signed


def test_a_change_of_contract_is_shown_as_a_difference_of_texts(house: House) -> None:
    protect_orders(house)
    proposed = house.require_ok(house.propose("--contract", "orders-2.yaml")).out
    signed = house.require_ok(house.sign("--yes")).out
    for shown in (proposed, signed):
        assert f"    --- contract {HASH}\n    +++ contract {OTHER_HASH}\n" in shown
        assert "\n       product: orders\n    -  owner: sales\n    +  owner: risk\n" in shown


def test_a_difference_in_line_ends_only_is_shown(house: House, tmp_path: Path) -> None:
    (tmp_path / "orders-2.yaml").write_bytes(CONTRACT.replace("\n", "\r\n", 1).encode())
    shown = protect_orders(house).require_ok(house.propose("--contract", "orders-2.yaml")).out
    assert "-apiVersion: pvdm/v1\n    +apiVersion: pvdm/v1\\r\n" in shown


def test_submitting_an_unsigned_proposal_is_refused_with_the_next_step(house: House) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    refused = house.run("migrate", "submit", "proposal.json", "--json")
    assert (refused.code, refused.error) == (2, "proposal_unsigned")
    assert "pvdm migrate sign proposal.json" in refused.json["error"]["hint"]


CONTRACT_SPOILS: dict[str, Callable[[Any], object]] = {
    "another text before": lambda value: value.update(contract_before="product: nothing\n"),
    "no text before": lambda value: value.update(contract_before=None),
    "another text after": lambda value: value.update(contract="product: nothing\n"),
    "no text after": lambda value: value.update(contract=None),
}


def test_a_proposal_with_another_contract_text_than_its_hashes_say_is_not_signed(house: House, tmp_path: Path) -> None:
    protect_orders(house).require_ok(house.propose("--contract", "orders-2.yaml"))
    good = (tmp_path / "proposal.json").read_text()
    found = {}
    for name, spoil in CONTRACT_SPOILS.items():
        value = json.loads(good)
        spoil(value)
        (tmp_path / "proposal.json").write_bytes(canonical_json.dump(value))
        refused = house.sign("--yes", "--json")
        found[name] = (refused.code, refused.error)
    assert found == dict.fromkeys(CONTRACT_SPOILS, (5, "proposal_not_whole"))


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


def test_a_proposal_whose_parts_contradict_each_other_is_not_signed(house: House, tmp_path: Path) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    good = (tmp_path / "proposal.json").read_text()
    found = {}
    for name, spoil in SPOILS.items():
        value = json.loads(good)
        spoil(value)
        (tmp_path / "proposal.json").write_bytes(canonical_json.dump(value))
        refused = house.sign("--yes", "--json")
        found[name] = (refused.code, refused.error)
    assert found == dict.fromkeys(SPOILS, (5, "proposal_not_whole"))
    assert not (tmp_path / "migration.json").exists()


def test_a_file_that_is_no_proposal_is_not_signed(house: House, tmp_path: Path) -> None:
    (tmp_path / "proposal.json").write_text("product: orders")
    assert house.sign("--yes", "--json").error == "file_kind_wrong"
    (tmp_path / "proposal.json").write_text("{}")
    assert house.sign("--yes", "--json").error == "document_key_missing"


def test_a_proposal_of_an_unknown_format_version_is_not_signed(house: House, tmp_path: Path) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    value = json.loads((tmp_path / "proposal.json").read_text())
    (tmp_path / "proposal.json").write_bytes(canonical_json.dump({**value, "format": "pvdm-migration-proposal/v2"}))
    assert house.sign("--yes", "--json").error == "proposal_invalid"


def test_a_file_without_updates_is_refused(house: House, tmp_path: Path) -> None:
    (tmp_path / "updates.json").write_text('{"requirements": []}')
    assert protect_orders(house).propose("--updates", "updates.json", "--json").error == "updates_invalid"


def test_a_target_without_a_metadata_document_is_refused_as_no_table() -> None:
    found = TargetView(
        kind="namespace", catalog="pvdm", id="00" * 16, name="sales", contract_sha256=None, metadata=None
    )
    with pytest.raises(InputError) as caught:
        table_metadata(found)
    assert caught.value.reason == "table_expected"


def test_a_migration_of_a_table_that_has_changed_since_is_refused(house: House) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    house.require_ok(house.sign("--yes"))
    house.scene.migrate(house.scene.migration([{"action": "set-properties", "updates": {"c": "d"}}]))
    refused = house.run("migrate", "submit", "migration.json", "--json")
    assert (refused.code, refused.error) == (5, "approval_stale")


def test_submitting_an_applied_migration_again_says_so_with_the_contract_in_force(house: House, tmp_path: Path) -> None:
    protect_orders(house).require_ok(house.propose("--set-property", "a=b"))
    house.require_ok(house.sign("--yes"))
    old = tmp_path / "old.json"
    (tmp_path / "migration.json").rename(old)
    first = house.require_ok(house.run("migrate", "submit", old, "--json")).json
    assert (first["applied"], first["contract_in_force"]) == ("now", HASH)
    (tmp_path / "proposal.json").unlink()
    house.require_ok(house.propose("--contract", "orders-2.yaml"))
    house.require_ok(house.sign("--yes"))
    house.scene.prepare_source(read_unchecked((tmp_path / "migration.json").read_bytes(), Migration))
    assert house.require_ok(house.run("migrate", "submit", "migration.json")).out.startswith("MIGRATED  sales.orders\n")
    again = house.require_ok(house.run("migrate", "submit", old, "--json")).json
    assert again == {**first, "applied": "before", "contract_in_force": OTHER_HASH}
    repeated = house.require_ok(house.run("migrate", "submit", old)).out
    assert repeated.startswith("ALREADY APPLIED  sales.orders at 20")
    assert f"Z; nothing was changed now; the contract is {OTHER_HASH}\n" in repeated
    assert "MIGRATED" not in repeated
