"""The drill of docs/restore.md, step by step: backup, more work, loss of the ledger, restore, audit, new work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviour.cli.restore_drill import CONFIGURED, DAYS, Drill, drill_at, stewards_keys
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.ledger.rows import receipts_of
from tests.support.servers.starter import Starter
from tests.support.steward.shop import contract

RESTORE = ("steward", "restore", "--yes", *CONFIGURED, "--operator", "ruth", "--reason", "disk failed", "--json")


@pytest.fixture
def drill(
    pvdm: Run, tmp_path: Path, ledger_url: str, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Drill]:
    with drill_at(pvdm, tmp_path, ledger_url, starter, monkeypatch) as made:
        yield made


def work_and_back_up(drill: Drill) -> None:
    """Protect two tables, publish one day to the first, and back up."""
    drill.create_tables("raw.orders", "sales.orders", "sales.prices", "sales.returns")
    drill.write(DAYS, "raw.orders")
    drill.protect("sales.orders")
    drill.protect("sales.returns")
    assert drill.publish("sales.orders", 13).code == 0
    drill.back_up()


def go_on_after_restore(drill: Drill, *, epoch: int) -> None:
    """Steps 5 and 6 of docs/restore.md: new tokens, a trust root that names the new epoch, and its activation."""
    drill.issue_tokens(str(epoch))
    drill.run_ok("steward", "public", "keys", *CONFIGURED)
    (drill.folder / "new.toml").write_text(stewards_keys(epoch))
    number = len(drill.roots) + 1
    drill.run_ok("keys", "root", "next", *drill.roots, "--add", "new.toml", "--out", f"root-{number}.draft")
    words = ("--key", "alice.pem", "--yes", "--out", f"root-{number}.json")
    drill.run_ok("keys", "root", "sign", f"root-{number}.draft", *words)
    drill.run_ok("steward", "trust", f"root-{number}.json", *CONFIGURED)
    drill.roots.append(f"root-{number}.json")
    drill.serve()
    drill.as_role("operator").run_ok("keys", "activate", epoch, "--reason", "restored")


def test_after_the_drill_nothing_is_lost_and_nothing_is_published_twice(drill: Drill) -> None:
    work_and_back_up(drill)

    # After the backup: a publication, an overridden FAIL, another FAIL, a protection, and the end of a protection.
    assert drill.publish("sales.orders", 14).code == 0
    assert drill.publish("sales.orders", 15, [(99, "2026-11-15", "Kiel")]).code == 3
    override_id = drill.waive("orders-15")
    assert drill.publish("sales.orders", 16, [(98, "2026-11-16", "Kiel")]).code == 3
    drill.protect("sales.prices")
    words = ("--key", "tom.pem", "--operator", "tom", "--reason", "it is loaded again", "--yes")
    drill.as_role("operator").run_ok("unprotect", "sales.returns", *words)
    ids, fail_ids = drill.visible_ids("sales.orders"), list_fail_proof_ids(drill)
    assert ids == [13, 14, 99]

    # The ledger is lost. The newest backup takes its place.
    drill.stop()
    drill.put_back()
    refused = drill.run("steward", "token", "list", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (3, "log_behind_checkpoint")
    done = drill.run_ok(*RESTORE).json
    assert [(each["table"], each["created"]) for each in done["advanced"]] == [("sales.orders", False)]
    assert (done["lost_publications"], done["blocked"], done["missing"]) == ([], [], "0")
    assert ([each["table"] for each in done["unprotected"]], done["unregistered"]) == (["sales.returns"], [])
    again = drill.run_ok(*RESTORE).json
    assert again["repeated"] is True

    go_on_after_restore(drill, epoch=2)
    drill.stop()
    assert drill.run_ok(*RESTORE).json["repeated"] is True
    drill.serve()
    assert drill.visible_ids("sales.orders") == ids
    assert list_fail_proof_ids(drill) == fail_ids
    (listed,) = drill.run_ok("break-glass", "list", "--json").json["overrides"]
    assert (listed["override_id"], listed["state"]) == (override_id, "COMMITTED")
    protected = drill.run_ok("protections", "--current", "--json").json["protected"]
    assert {each["name"] for each in protected} == {"sales.orders", "sales.prices"}
    audited = drill.audit("sales.orders")
    assert audited.code == 0, audited.out

    # Nothing is published twice, and work goes on.
    assert drill.publish("sales.orders", 14).error == "workload_spent"
    status = drill.run("status", "--workload-id", "orders-14", "--json")
    assert (status.code, status.error) == (3, "workload_spent")
    assert "of sales.orders as snapshot" in status.json["error"]["got"]
    assert drill.publish("sales.orders", 14, suffix="-again").error == "claim_overlaps"
    assert drill.publish("sales.orders", 16, suffix="-mended").code == 0
    assert drill.publish("sales.prices", 13).code == 0
    assert drill.visible_ids("sales.orders") == [13, 14, 16, 99]
    assert drill.audit("sales.orders").code == 0


def list_fail_proof_ids(drill: Drill) -> list[str]:
    """The ids of the FAIL proofs that an auditor sees, newest first."""
    found = drill.as_role("auditor").run_ok("proof", "list", "--json").json["proofs"]
    return [each["proof_id"] for each in found if each["verdict"] == "FAIL"]


def test_a_publication_that_the_restore_cannot_bring_back_is_named_and_published_again(
    pvdm: Run, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    with drill_at(pvdm, tmp_path, "sqlite:///ledger.db", starter, monkeypatch) as drill:
        work_and_back_up(drill)
        assert drill.publish("sales.orders", 14).code == 0
        assert drill.publish("sales.orders", 15).code == 0
        drill.stop()
        lost = delete_metadata_file(drill, "orders-15")
        drill.put_back()
        refused = drill.run(*RESTORE)
        assert (refused.code, refused.error) == (3, "restore_publications_lost")
        (named,) = drill.run_ok(*RESTORE, "--accept-lost").json["lost_publications"]
        assert (named["table"], named["workload_id"], named["file"]) == ("sales.orders", "orders-15", lost)
        go_on_after_restore(drill, epoch=2)
        assert drill.visible_ids("sales.orders") == [13, 14]
        assert finding_codes(drill.audit("sales.orders")) == ["audit_receipt_without_snapshot"]
        assert drill.publish("sales.orders", 15).code == 0
        assert drill.visible_ids("sales.orders") == [13, 14, 15]
        audited = drill.audit("sales.orders", "--accept-lost", named["snapshot_id"])
        assert (audited.code, audited.json["holds"]) == (0, True)
        assert named["snapshot_id"] in audited.json["not_proved"][0]


def test_a_workload_that_was_published_in_part_is_completed_by_a_contract_that_overwrites(
    pvdm: Run, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/restore.md: the section "A workload that was published in part", and the trust root of step 8."""
    with drill_at(pvdm, tmp_path, "sqlite:///ledger.db", starter, monkeypatch) as drill:
        drill.create_tables("raw.orders", "sales.orders")
        drill.write([*DAYS, (24, "2026-11-14", "Bonn")], "raw.orders")
        drill.protect("sales.orders", contract_by_town("append", "day = ${date}", "{column: day}"))
        drill.back_up()
        assert drill.publish("sales.orders", 14, [(24, "2026-11-14", "Bonn")]).code == 3
        assert drill.visible_ids("sales.orders") == [24]
        drill.stop()
        drill.put_back()
        shown = drill.run_ok(*RESTORE[:-1]).out
        assert "spent      workload orders-14" in shown
        go_on_after_restore(drill, epoch=2)

        refused = drill.publish("sales.orders", 14, [(14, "2026-11-14", "Ulm")]).json["error"]
        assert refused["reason"] == "workload_spent"
        assert "Bonn" in refused["details"]["published_chunks"]
        assert "contract that overwrites, and you run the whole part under a new workload id" in refused["hint"]
        rest = drill.publish("sales.orders", 14, [(14, "2026-11-14", "Ulm")], suffix="-rest")
        assert rest.error == "claim_overlaps"

        drill.migrate("sales.orders", contract_by_town("overwrite", "day <= ${date}", None))
        rows = [(13, "2026-11-13", "Ulm"), (14, "2026-11-14", "Ulm"), (24, "2026-11-14", "Bonn")]
        again = drill.publish("sales.orders", 14, rows, suffix="-again")
        assert again.code == 0, again.out
        assert drill.visible_ids("sales.orders") == [13, 14, 24]
        audit_with_the_new_trust_root(drill)


def contract_by_town(operation: str, where: str, claim: str | None) -> str:
    """A contract with one chunk for each town. Without `claim`, the chunks become visible together."""
    more = ["parameters:\n  date:\n    type: date", "chunking:\n  by: partition\n  columns: [town]"]
    boundary = {"where": where} if claim is None else {"where": where, "claim": claim}
    atomicity = [] if claim else ["atomicity: workload"]
    return contract("sales.orders", *more, *atomicity, operation=operation, **boundary)


def audit_with_the_new_trust_root(drill: Drill) -> None:
    """Steps 5 and 8: the audit fails with the old trust roots, which lack the new epoch, and passes with the new."""
    pinned = ("--root-sha256", drill.pin)
    drill.run_ok("keys", "root", "check", "root-1.json", *pinned, "--out", "roots.json")
    words = ("audit", "sales.orders", "--rehash", *pinned, "--json", "--trust-root")
    assert drill.as_role("auditor").run(*words, "roots.json").error == "note_key_unknown"
    drill.run_ok("keys", "root", "check", "roots.json", "root-2.json", *pinned, "--out", "roots-2.json")
    audited = drill.run(*words, "roots-2.json")
    assert audited.code == 0, audited.out


def delete_metadata_file(drill: Drill, workload_id: str) -> str:
    """Delete the metadata file that this workload's receipt names; returns its path."""
    from pvdm.ledger.record import statements
    from pvdm.model.statements.receipt import Receipt
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.notary import open_notary
    from pvdm.trust.statement import read_unchecked

    notary = open_notary(load_config(drill.folder / "steward.toml"))
    try:
        with notary.ledger.read() as unit:
            (record,) = receipts_of(unit, workload_id)
            path = read_unchecked(statements.get(unit, record.receipt_id).envelope, Receipt).metadata_path
    finally:
        notary.close()
    Path(path.removeprefix("file://")).unlink()
    return path


def finding_codes(ran: CommandResult) -> list[str]:
    assert ran.code == 3, ran.out
    return [each["code"] for each in ran.json["findings"]]
