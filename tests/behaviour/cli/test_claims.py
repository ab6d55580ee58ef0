"""`pvdm claims` lists lost claims, and releases them with an operator's signature. `pvdm audit` shows releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pvdm.cli.common.times import utc
from pvdm.client import StewardClient
from pvdm.errors import NotAllowedError
from pvdm.ledger.record import statements
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.statement import read_unchecked
from tests.behaviour.cli.house import House, open_house
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.audit.published_history import FULL_NAME, Audited
from tests.support.gate.approvals import reason_of, signed
from tests.support.steward.lost_claims import lose_claims

BY_TOM = ("--key", "operator-tom.pem", "--operator", "operator-tom", "--reason", "compared, day by day")


@dataclass(frozen=True)
class Desk:
    """A served Steward after a restore lost two claims on `sales.sold`: one with a receipt, one with a proof only."""

    house: House
    receipt_id: str
    proof_id: str

    def release(self, publication_id: str, *words: object) -> CommandResult:
        return self.house.run("claims", "release", publication_id, *BY_TOM, *words)

    def releases(self) -> list[str]:
        """The ids of all logged claim releases."""
        with self.house.scene.notary.ledger.read() as unit:
            return list(statements.list_ids_by_kind(unit, StatementKind.CLAIM_RELEASE))


@pytest.fixture
def desk(
    pvdm: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_examples_time: None,
    example_key: Callable[[str], Path],
) -> Iterator[Desk]:
    with open_house(pvdm, tmp_path, monkeypatch, example_key) as house:
        audited = Audited(house.scene).open()
        audited.publish("first")
        audited.publish("second", witnessed=False)
        notary = house.scene.notary
        monkeypatch.setattr("pvdm.cli.common.times._nanos", lambda: house.scene.now * 1_000)
        with notary.ledger.read() as unit:
            (receipt_id,) = statements.list_ids_by_kind(unit, StatementKind.RECEIPT)
            proof_id = statements.list_ids_by_kind(unit, StatementKind.PROOF)[-1]
        lose_claims(notary, audited.state.row.table_uuid, {receipt_id: "sold-first", proof_id: "sold-second"})
        yield Desk(house, receipt_id, proof_id)


def test_a_lost_claim_is_listed_with_its_publication_and_after_a_release_with_the_release(desk: Desk) -> None:
    shown = desk.house.require_ok(desk.house.run("claims", "lost", "--json")).json["lost_claims"]
    assert {(each["workload_id"], each["receipt_id"], each["release"]) for each in shown} == {
        ("sold-first", desk.receipt_id, None),
        ("sold-second", None, None),
    }
    first, second = shown
    notary = desk.house.scene.notary
    with notary.ledger.read() as unit:
        receipt = read_unchecked(statements.get(unit, desk.receipt_id).envelope, Receipt)
        core = read_unchecked(statements.get(unit, desk.proof_id).envelope, Proof).core
    assert (first["snapshot_id"], first["published_at"]) == (str(receipt.new_snapshot_id), receipt.published_at)
    assert (second["snapshot_id"], second["published_at"]) == (None, None)
    assert (second["parameters"], second["chunk_ids"]) == (dict(core.attempt.parameters), [core.attempt.chunk_id])
    assert (second["rows"], second["chunks_more"]) == (str(core.rows.staged), "0")
    text = desk.house.require_ok(desk.house.run("claims", "lost")).out
    for line in (
        f"  parameters    {', '.join(f'{name}={value}' for name, value in core.attempt.parameters)}\n",
        f"  chunks        {core.attempt.chunk_id}\n",
        f"  rows          {core.rows.staged:,}\n",
        f"  snapshot      {receipt.new_snapshot_id}, published at {utc(receipt.published_at)}\n",
    ):
        assert line in text
    out = desk.house.require_ok(desk.release(desk.receipt_id, "--yes")).out
    assert out.startswith(f"RELEASED  a lost claim on {FULL_NAME}\n")
    assert "operator-tom: compared, day by day" in out
    listed = desk.house.require_ok(desk.house.run("claims", "lost")).out
    assert listed.index(f"LOST  a claim on {FULL_NAME}") < listed.index(f"RELEASED  a lost claim on {FULL_NAME}")
    assert desk.releases()[0] in listed


def test_a_repeated_release_changes_nothing_and_reports_the_first_one(desk: Desk) -> None:
    first = desk.house.require_ok(desk.release(desk.receipt_id, "--yes", "--json")).json
    again = desk.house.require_ok(desk.release(desk.receipt_id, "--json")).json
    assert (first["applied"], again["applied"]) == ("now", "before")
    assert first["release"] == again["release"]
    assert desk.releases() == [first["release"]["release_id"]]
    assert desk.release(desk.receipt_id).out.startswith(f"ALREADY RELEASED  a lost claim on {FULL_NAME}\n")


def test_a_publication_without_a_receipt_is_released_by_its_proof(desk: Desk) -> None:
    release = desk.house.require_ok(desk.release(desk.proof_id, "--yes", "--json")).json["release"]
    assert (release["receipt_id"], release["proof_ids"]) == (None, [desk.proof_id])


def test_the_audit_shows_who_released_which_claim(desk: Desk) -> None:
    for publication_id in (desk.receipt_id, desk.proof_id):
        desk.house.require_ok(desk.release(publication_id, "--yes"))
    desk.house.steward.use_token(Role.AUDITOR, "auditor-eve", "sales")
    shown = desk.house.run("audit", FULL_NAME, "--export", "sold.audit.json")
    assert "CLAIM RELEASED by operator-tom, workload sold-first: compared, day by day" in shown.out
    assert "audit_release" not in shown.out
    report = desk.house.run("audit", FULL_NAME, "--json").json
    assert [each["publication_id"] for each in report["claim_releases"]] == [desk.receipt_id, desk.proof_id]
    assert report["findings"] == []


def test_a_claim_that_no_restore_has_lost_is_not_released(desk: Desk) -> None:
    refused = desk.release("ab" * 32, "--yes", "--json")
    assert (refused.code, refused.error) == (5, "claim_not_lost")
    assert desk.releases() == []


def test_a_proof_that_is_named_as_a_receipt_is_not_released(desk: Desk) -> None:
    release = replace(desk.house.scene.claim_release(desk.proof_id), receipt_id=desk.proof_id)
    assert reason_of(lambda: desk.house.scene.release(release), NotAllowedError) == "claim_release_differs"
    assert desk.releases() == []


def test_without_yes_and_without_a_terminal_nothing_is_released(desk: Desk) -> None:
    refused = desk.release(desk.receipt_id, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    question = "allow other workloads to claim rows of this table, in your name?"
    assert f'"{question}" needs a terminal' in refused.json["error"]["message"]
    assert desk.releases() == []


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.AUDITOR])
def test_a_token_of_another_role_releases_nothing(desk: Desk, role: Role) -> None:
    desk.house.steward.use_token(role)
    refused = desk.release(desk.receipt_id, "--yes", "--json")
    assert (refused.code, refused.error) == (5, "role_wrong")
    assert desk.releases() == []


def test_the_steward_refuses_a_signed_release_from_a_producers_token(desk: Desk) -> None:
    scene, url = desk.house.scene, desk.house.steward.url
    envelope = signed(scene.claim_release(desk.receipt_id))
    with StewardClient(url, scene.stand.token(Role.PRODUCER, "sales")[0]) as client:
        assert reason_of(lambda: client.submit_claim_release(envelope), NotAllowedError) == "role_wrong"
    assert desk.releases() == []
    with StewardClient(url, scene.stand.token(Role.OPERATOR, "sales")[0]) as client:
        assert client.submit_claim_release(envelope).receipt_id == desk.receipt_id


def test_a_release_by_an_unknown_key_is_refused(desk: Desk) -> None:
    by_rogue = ("--key", "rogue.pem", "--operator", "operator-tom", "--reason", "a guess")
    refused = desk.house.run("claims", "release", desk.receipt_id, *by_rogue, "--yes", "--json")
    assert (refused.code, refused.error) == (5, "key_unknown")
    assert desk.releases() == []
