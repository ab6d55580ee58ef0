"""`pvdm audit`: at a running Steward, and without one from an exported bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.cli.evidence.audit import AUDIT_TRIES_MAX, gather_evidence
from pvdm.client import StewardClient
from pvdm.metadata.audit.evidence import Evidence, parse_audit_bundle
from pvdm.model.role import Role
from pvdm.trust.log.checkpoint import Checkpoint, sign_checkpoint
from tests.behaviour.cli.house import open_house
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import EXAMPLES, CommandResult, Run
from tests.support.audit.crafted_history import History
from tests.support.audit.published_history import FULL_NAME, NAME, Audited, permitted
from tests.support.gate.approvals import SALES
from tests.support.steward.notary import root_naming, signed_root
from tools.proof_kit import ORIGIN, SIGNERS


class Auditor:
    """An auditor at a served Steward with a proved table; the auditor has the trust root in a file of their own."""

    def __init__(self, audited: Audited, steward: ServedSteward, run: Run) -> None:
        self.audited, self.steward, self.run = audited, steward, run
        active = audited.scene.notary.epochs.book().active
        assert active is not None
        root = root_naming(active)
        self.pin = root.sha256
        (steward.folder / "roots.json").write_bytes(signed_root(root))

    @property
    def trust_options(self) -> tuple[str, ...]:
        return ("--trust-root", "roots.json", "--root-sha256", self.pin)

    def audit(self, *words: object) -> CommandResult:
        return self.run("audit", *words, *self.trust_options)


@pytest.fixture
def auditor(
    pvdm: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_examples_time: None,
    example_key: Callable[[str], Path],
) -> Iterator[Auditor]:
    with open_house(pvdm, tmp_path, monkeypatch, example_key) as made:
        audited = Audited(made.scene).open()
        audited.publish("first")
        audited.publish("second")
        monkeypatch.setattr("pvdm.cli.common.times._nanos", lambda: made.scene.now * 1_000)
        made.steward.use_token(Role.AUDITOR, "auditor-eve", "sales")
        yield Auditor(audited, made.steward, pvdm)


def test_the_audit_of_a_proved_table_holds_and_has_a_line_for_each_snapshot(auditor: Auditor) -> None:
    ran = auditor.audit(FULL_NAME, "--rehash")
    assert ran.code == 0, ran.out + ran.err
    lines = [line for line in ran.out.splitlines() if line.endswith("  OK")]
    assert ["sold-first" in lines[0], "sold-second" in lines[1]] == [True, True]
    assert "PROTECTED by operator-tom" in ran.out
    assert "no violations in the history of main: 2 ok" in ran.out
    found = auditor.audit(FULL_NAME, "--json").json
    assert (found["holds"], found["trust_root"]["own"], found["rehashed"]) == (True, True, None)


def test_a_snapshot_without_a_receipt_ends_the_audit_with_3_online_and_from_a_bundle(auditor: Auditor) -> None:
    auditor.audited.publish("third", witnessed=False)
    ran = auditor.audit(FULL_NAME, "--export", "sold.audit.json")
    assert ran.code == 3
    assert "*** UNPROVED ***" in ran.out
    assert "audit_receipt_missing" in ran.out
    offline = auditor.audit("--bundle", "sold.audit.json", "--json")
    assert (offline.code, offline.json["holds"], offline.json["counts"]["unproved"]) == (3, False, 1)


class GatherDuringExpiry:
    """Replaces `gather_evidence`. History expires after the first call; with `stale`, all calls return its evidence."""

    def __init__(self, auditor: Auditor, *, stale: bool) -> None:
        self.auditor, self.stale = auditor, stale
        self.first: Evidence | None = None
        self.count = 0

    def __call__(self, client: StewardClient, table: str) -> Evidence:
        self.count += 1
        found = gather_evidence(client, table)
        if self.first is None:
            self.first = found
            self.expire()
        return self.first if self.stale else found

    def expire(self) -> None:
        scene, metadata = self.auditor.audited.scene, self.auditor.audited.state.metadata
        shown = [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]
        change = Change(SALES, NAME, (), [{"action": "remove-snapshots", "snapshot-ids": shown[1:]}])
        scene.notary.catalog.commits.commit(scene.grant(Role.OPERATOR), [change], make_permit=permitted)


def test_history_that_expires_while_an_audit_runs_is_no_finding(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = GatherDuringExpiry(auditor, stale=False)
    monkeypatch.setattr("pvdm.cli.evidence.audit.gather_evidence", gathering)
    ran = auditor.audit(FULL_NAME, "--rehash", "--export", "sold.audit.json", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert (gathering.count, len(ran.json["snapshots"])) == (2, 1)
    assert auditor.audit("--bundle", "sold.audit.json").code == 0


def test_a_snapshot_that_stays_unknown_is_a_finding_after_the_last_try(
    auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = GatherDuringExpiry(auditor, stale=True)
    monkeypatch.setattr("pvdm.cli.evidence.audit.gather_evidence", gathering)
    ran = auditor.audit(FULL_NAME)
    assert (ran.code, gathering.count) == (3, AUDIT_TRIES_MAX)
    assert "audit_snapshot_unknown" in ran.out


def test_changed_data_is_found_by_rehash(auditor: Auditor) -> None:
    path = Path(auditor.audited.data_file("first").file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes().upper())
    assert auditor.audit(FULL_NAME).code == 0
    ran = auditor.audit(FULL_NAME, "--rehash")
    assert ran.code == 3
    assert "*** CHANGED ***" in ran.out


def test_an_exported_bundle_is_audited_without_the_steward(auditor: Auditor, monkeypatch: pytest.MonkeyPatch) -> None:
    online = auditor.audit(FULL_NAME, "--export", "sold.audit.json", "--json").json
    monkeypatch.delenv("PVDM_URL")
    monkeypatch.delenv("PVDM_TOKEN_FILE")
    offline = auditor.audit("--bundle", "sold.audit.json", "--rehash", "--json")
    assert offline.code == 0, offline.out
    for key in ("table", "snapshots", "approvals", "log_size", "counts"):
        assert offline.json[key] == online[key]
    assert offline.json["rehashed"]["data_files"] == 2


def test_without_a_trust_root_of_their_own_the_auditor_gets_a_notice(auditor: Auditor) -> None:
    ran = auditor.run("audit", FULL_NAME, "--json")
    assert ran.code == 0
    assert "the trust root came from the Steward itself" in ran.err
    assert (ran.json["trust_root"]["own"], ran.json["trust_root"]["pinned"]) == (False, False)


def test_other_roles_and_auditors_of_other_domains_get_no_evidence(auditor: Auditor) -> None:
    results = {}
    for role in (Role.PRODUCER, Role.CONSUMER, Role.PUBLISHER):
        auditor.steward.use_token(role, "somebody", "sales")
        results[role] = auditor.audit(FULL_NAME, "--json")
    assert {(ran.code, ran.error) for ran in results.values()} == {(5, "role_wrong")}
    auditor.steward.use_token(Role.AUDITOR, "auditor-max", "risk")
    assert auditor.audit(FULL_NAME, "--json").code in (2, 5)
    auditor.steward.use_token(Role.AUDITOR, "auditor-eve", "sales")
    assert auditor.audit("sales.nothing", "--json").error == "table_unknown"


# From a bundle alone


@pytest.fixture
def history(tmp_path: Path, pvdm: Run, at_examples_time: None) -> History:
    """A proved table, and its bundle in the folder of the command."""
    made = History(tmp_path / "lake")
    made.folder.mkdir()
    made.snapshot([made.data_file("old")])
    made.protect()
    made.publish(made.data_file("first"))
    made.publish(made.data_file("waived"), passed=False, waived=True)
    (tmp_path / "sold.audit.json").write_bytes(made.bundle().to_bytes())
    return made


OFFLINE = ("audit", "--bundle", "sold.audit.json", "--trust-root", EXAMPLES / "trust-root-1.json")


def test_the_audit_of_a_bundle_shows_snapshots_before_the_protection_and_waived_ones(
    pvdm: Run, history: History
) -> None:
    ran = pvdm(*OFFLINE, "--rehash")
    assert ran.code == 0, ran.out
    assert "unproved: before the protection" in ran.out
    assert "*** BREAK-GLASS ***" in ran.out
    assert "operator-ruth waived a FAIL: known and explained in incident 4711" in ran.out
    assert "that the trust root is the right one" in ran.out


def test_a_backdated_snapshot_is_listed_after_the_protection_that_it_came_after(
    pvdm: Run, tmp_path: Path, at_examples_time: None
) -> None:
    made = History(tmp_path / "lake")
    made.folder.mkdir()
    made.snapshot([made.data_file("old")])
    early = made.now // 1_000
    made.protect()
    made.snapshot([made.data_file("slipped")], said=lambda snapshot: {**snapshot, "timestamp-ms": early})
    made.publish(made.data_file("first"))
    (tmp_path / "sold.audit.json").write_bytes(made.bundle().to_bytes())
    ran = pvdm(*OFFLINE)
    words = ("before the protection", "PROTECTED by operator-tom", "*** UNPROVED ***", "  OK")
    lines = ran.out.splitlines()
    assert (ran.code, [next(at for at, line in enumerate(lines) if word in line) for word in words]) == (
        3,
        [2, 3, 4, 7],
    )
    assert "main showed snapshot 1001: orders go live" in lines[3]


def test_a_missing_data_file_is_found_by_rehashing_from_a_bundle(pvdm: Run, history: History) -> None:
    Path(history.data_file("first").file_path.removeprefix("file://")).unlink()
    assert pvdm(*OFFLINE).code == 0
    assert pvdm(*OFFLINE, "--rehash").code == 3


def test_a_bundle_that_is_not_canonical_json_is_refused(pvdm: Run, history: History, tmp_path: Path) -> None:
    path = tmp_path / "sold.audit.json"
    data = path.read_bytes()
    assert parse_audit_bundle(data).to_bytes() == data
    path.write_bytes(json.dumps(json.loads(data), sort_keys=True).encode())
    ran = pvdm(*OFFLINE, "--json")
    assert (ran.code, ran.error) == (3, "json_not_canonical")


def test_a_checkpoint_by_an_unknown_key_does_not_hold(pvdm: Run, history: History, tmp_path: Path) -> None:
    forged = sign_checkpoint(Checkpoint(ORIGIN, history.storage.size(), bytes(32)), SIGNERS["rogue"]).note
    bundle = history.bundle()
    lie = replace(bundle, evidence=replace(bundle.evidence, checkpoint=forged))
    (tmp_path / "sold.audit.json").write_bytes(lie.to_bytes())
    assert pvdm(*OFFLINE, "--json").code == 3


def test_an_audit_at_a_time_before_the_logs_entries_does_not_hold(pvdm: Run, history: History) -> None:
    ran = pvdm(*OFFLINE, "--at", "2026-11-14T09:00:00Z", "--json")
    assert ran.code == 3
    assert "audit_logged_in_future" in ran.out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("sales.orders", "--bundle", "x.json", "--trust-root", "r.json"),
        ("--bundle", "x.json", "--export", "y.json", "--trust-root", "r.json"),
        ("--bundle", "x.json"),
    ],
)
def test_anything_but_a_table_or_a_bundle_with_a_trust_root_is_a_usage_error(pvdm: Run, words: tuple[str, ...]) -> None:
    refused = pvdm("audit", *words, "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_a_file_that_is_no_bundle_is_bad_input(pvdm: Run, at_examples_time: None) -> None:
    root = EXAMPLES / "trust-root-1.json"
    refused = pvdm("audit", "--bundle", root, "--trust-root", root, "--json")
    assert (refused.code, refused.error) == (2, "file_kind_wrong")
