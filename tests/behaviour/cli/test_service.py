"""Commands that ask a Steward: what each role sees, what is refused, and that no token is ever shown."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pvdm.api.service import Identity
from pvdm.client import StewardClient
from pvdm.errors import NotAllowedError
from pvdm.ledger.record import events
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.checkpoint import open_checkpoint
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.note import NoteKey, parse_vkey
from pvdm.trust.log.proof import parse_log_proof, verify_log_proof
from tests.behaviour.cli.served import Door
from tests.behaviour.cli.support import Ran, Run
from tests.support.catalog.http import lake_at
from tests.support.ledger.log_storage import Log, MemoryStorage, entries
from tests.support.steward.notary import LOG_ORIGIN, override_of, root_naming, signed_override, signed_root
from tests.support.steward.notary import failed as failing
from tools.proof_kit import NOW


def pin(door: Door) -> tuple[str, str]:
    return "--root-sha256", door.stand.notary.trust.current().sha256


# --- how it is reached ---


def test_without_an_address_it_is_asked_for(pvdm: Run) -> None:
    refused = pvdm("status", "--json")
    assert (refused.code, refused.error) == (2, "url_missing")


def test_without_a_token_it_is_asked_for(pvdm: Run) -> None:
    refused = pvdm("status", "--url", "http://127.0.0.1:9", "--json")
    assert (refused.code, refused.error) == (2, "token_missing")


def test_a_steward_that_is_not_there_is_unavailable(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    refused = pvdm("keys", "list", "--url", "http://127.0.0.1:9", "--json")
    assert (refused.code, refused.error) == (7, "steward_unreachable")


def test_an_address_without_tls_is_refused_in_the_words_of_a_command_line(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    refused = pvdm("keys", "list", "--url", "http://steward.example:8181", "--json")
    assert (refused.code, refused.error) == (5, "steward_address_insecure")
    assert "insecure=" not in refused.out
    assert "https" in refused.json["error"]["hint"]


def test_a_token_may_stand_in_the_environment(pvdm: Run, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    text = door.come_as(Role.OPERATOR)
    monkeypatch.delenv("PVDM_TOKEN_FILE")
    monkeypatch.setenv("PVDM_TOKEN", text)
    assert pvdm("keys", "list").code == 0


def test_a_token_file_that_others_can_read_is_refused(pvdm: Run, door: Door, tmp_path: Path) -> None:
    text = door.come_as(Role.OPERATOR)
    (tmp_path / "open.token").write_text(text)
    (tmp_path / "open.token").chmod(0o644)
    refused = pvdm("keys", "list", "--token-file", "open.token", "--json")
    assert (refused.code, refused.error) == (5, "token_file_mode")


def test_a_token_that_nobody_issued_is_refused_and_not_shown(
    pvdm: Run, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PVDM_URL", door.url)
    monkeypatch.setenv("PVDM_TOKEN", "pvdm_nobody-issued-this-one")
    refused = pvdm("status", "--json")
    assert (refused.code, refused.error) == (5, "token_unknown")
    assert "nobody-issued" not in refused.out + refused.err


# --- status ---


def test_the_status_shows_readiness_epochs_workloads_and_proofs(pvdm: Run, door: Door) -> None:
    recorded = door.stand.proved("one")
    door.come_as(Role.OPERATOR)
    status = pvdm("status", "--json").json
    assert status["readiness"] == {"ready": True, "reasons": []}
    assert [epoch["state"] for epoch in status["epochs"]] == ["ACTIVE"]
    assert [workload["workload_id"] for workload in status["workloads"]] == ["work-one"]
    assert [proof["proof_id"] for proof in status["proofs"]] == [recorded.statement_id]
    assert status["overrides"] == []


def test_the_status_shows_the_newest_workloads_first_and_how_many_there_are(pvdm: Run, door: Door) -> None:
    for name in ("b", "c", "a"):
        door.stand.time.pass_by(1_000_000)
        door.stand.proved(name)
    door.come_as(Role.OPERATOR)
    status = pvdm("status", "--rows", "2", "--json").json
    assert [each["workload_id"] for each in status["workloads"]] == ["work-a", "work-c"]
    assert status["workloads_total"] == "3"
    assert "workloads, newest first: 2 of 3 shown\n" in pvdm("status", "--rows", "2").out
    assert "workloads, newest first: 3 shown\n" in pvdm("status", "--rows", "3").out


def test_the_status_says_which_catalog_is_served(pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake_at(tmp_path) as lake:
        Door(lake.steward.stand, lake.steward.server.url, tmp_path, monkeypatch).come_as(Role.CONSUMER)
        shown, told = pvdm("status").out, pvdm("status", "--json").json["steward"]["catalog"]
    assert f"catalog     lake, tables in file://{tmp_path}/warehouse" in shown
    assert told == {"name": "lake", "warehouse": f"file://{tmp_path}/warehouse"}


def test_a_role_is_told_what_it_may_not_see(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    shown = pvdm("status")
    assert shown.code == 0
    assert "proofs: not shown to the role attestor" in shown.out
    assert pvdm("status", "--json").json["proofs"] is None


def test_an_operator_of_one_domain_sees_its_own(pvdm: Run, door: Door) -> None:
    door.stand.proved("one", domain="sales")
    door.come_as(Role.OPERATOR, domain="stock")
    status = pvdm("status", "--json")
    assert (status.code, status.json["workloads"], status.json["proofs"]) == (0, [], [])


def test_a_token_that_ends_in_between_is_not_taken_for_nothing_to_see(
    pvdm: Run, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_words: object, **_named: object) -> None:
        raise NotAllowedError("token_revoked", "the token was revoked")

    door.come_as(Role.OPERATOR)
    monkeypatch.setattr(StewardClient, "proofs", ended)
    refused = pvdm("status", "--json")
    assert (refused.code, refused.error) == (5, "token_revoked")


def test_a_broken_glass_comes_first_and_loudly(pvdm: Run, door: Door) -> None:
    break_the_glass(door)
    door.come_as(Role.AUDITOR)
    shown = pvdm("status").out
    assert shown.startswith("*** BREAK-GLASS: operator-ruth waived a FAIL verdict of curated.orders ***")
    assert "OVERRIDDEN by break-glass" in shown


def test_why_a_steward_is_not_ready_is_said(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    door.stand.time.jump(400 * 86_400 * 1_000_000)
    shown = pvdm("status")
    assert shown.code == 7
    as_json = pvdm("status", "--json")
    assert (as_json.code, as_json.json["readiness"]["ready"]) == (7, False)
    codes = [each["code"] for each in as_json.json["readiness"]["reasons"]]
    assert codes
    assert not [code for code in codes if f"  NOT READY: {code}: " not in shown.out]
    assert "shows more" not in shown.out


def test_an_operator_of_one_domain_is_told_whose_token_says_why(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR, domain="sales")
    door.stand.time.jump(400 * 86_400 * 1_000_000)
    shown = pvdm("status").out
    assert "an operator's or auditor's token of every domain shows more" in shown


def test_without_an_active_epoch_the_status_says_what_is_to_be_done(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    pvdm("keys", "create", "--reason", "rotation")
    assert "hint" not in pvdm("status").out
    pvdm("keys", "retire", "1", "--reason", "restored")
    assert "`pvdm keys activate 2`" in pvdm("status").out


def test_names_cannot_steer_the_terminal_of_who_asks_for_the_status(
    pvdm: Run, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.come_as(Role.OPERATOR)
    found = Identity(
        token_id="t", role=Role.OPERATOR, domain="sa\x1bles", name="ru\nth", expires_at=NOW, attempt_id=None
    )
    monkeypatch.setattr(StewardClient, "identity", lambda _: found)
    assert "ru\\nth, operator of domain sa\\x1bles" in pvdm("status").out


def test_an_operator_confirms_the_clock(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    door.stand.time.jump(400 * 86_400 * 1_000_000)
    assert pvdm("status").code == 7
    confirmed = pvdm("steward", "confirm-clock", "--reason", "NTP was off", "--json")
    assert confirmed.code == 0
    assert confirmed.json["at"] > NOW
    assert confirmed.json["confirmed"] is True


def test_where_the_clock_has_not_jumped_nothing_is_confirmed(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    shown = pvdm("steward", "confirm-clock", "--reason", "just so")
    assert (shown.code, "nothing to confirm: the clock has not jumped" in shown.out) == (0, True)
    assert pvdm("steward", "confirm-clock", "--reason", "just so", "--json").json["confirmed"] is False
    with door.stand.notary.ledger.read() as unit:
        assert "clock_confirmed" not in {event.kind for event in events.page(unit, count=1_000)}


def test_only_an_operator_confirms_the_clock(pvdm: Run, door: Door) -> None:
    door.come_as(Role.AUDITOR)
    assert pvdm("steward", "confirm-clock", "--reason", "mine", "--json").error == "role_wrong"


def break_the_glass(door: Door) -> bytes:
    core = failing(door.stand.verifying("bad"))
    recorded = door.stand.record(core)
    envelope = signed_override(override_of(recorded, core, NOW))
    door.stand.notary.overrides.submit(envelope, door.stand.grant())
    return envelope


# --- proofs ---


def test_a_bundle_that_is_fetched_checks_offline(pvdm: Run, door: Door) -> None:
    recorded = door.stand.proved("one")
    door.come_as(Role.CONSUMER)
    assert pvdm("proof", "get", recorded.statement_id, "--out", "b.json").code == 0
    assert pvdm("keys", "root", "fetch", *pin(door), "--out", "roots.json").code == 0
    checked = pvdm("proof", "check", "b.json", "--trust-root", "roots.json", *pin(door), "--json")
    assert (checked.code, checked.json["proof_ids"]) == (0, [recorded.statement_id])
    assert checked.json["origin"] == LOG_ORIGIN


def test_an_envelope_alone_can_be_fetched(pvdm: Run, door: Door, tmp_path: Path) -> None:
    recorded = door.stand.proved("one")
    door.come_as(Role.CONSUMER)
    pvdm("proof", "get", recorded.statement_id, "--envelope", "--out", "p.json")
    assert (tmp_path / "p.json").read_bytes() == recorded.envelope


def test_an_unknown_proof_is_bad_input(pvdm: Run, door: Door) -> None:
    door.come_as(Role.CONSUMER)
    refused = pvdm("proof", "get", "0" * 64, "--out", "p.json", "--json")
    assert (refused.code, refused.error) == (2, "proof_unknown")


def test_proofs_of_another_domain_are_not_given_out(pvdm: Run, door: Door) -> None:
    recorded = door.stand.proved("one", domain="sales")
    door.come_as(Role.CONSUMER, domain="stock")
    assert pvdm("proof", "get", recorded.statement_id, "--out", "p.json", "--json").code == 5
    assert pvdm("proof", "list", "--json").json["proofs"] == []


def test_a_list_of_proofs_shows_fail_and_override_loudly(pvdm: Run, door: Door) -> None:
    door.stand.proved("one")
    break_the_glass(door)
    door.come_as(Role.AUDITOR)
    shown = pvdm("proof", "list").out
    assert "PASS  work-one" in shown
    assert "*** FAIL (modified), OVERRIDDEN by break-glass ***  work-bad" in shown


# --- break-glass ---


def test_an_override_is_handed_in_once_and_again_without_harm(pvdm: Run, door: Door, tmp_path: Path) -> None:
    core = failing(door.stand.verifying("bad"))
    recorded = door.stand.record(core)
    (tmp_path / "o.json").write_bytes(signed_override(override_of(recorded, core, NOW)))
    door.come_as(Role.OPERATOR)
    first, again = (pvdm("break-glass", "submit", "o.json", "--json") for _ in range(2))
    assert first.code == again.code == 0
    assert first.json == again.json
    assert pvdm("break-glass", "list").out.startswith("*** BREAK-GLASS: operator-ruth")


@pytest.mark.parametrize(
    ("signer", "code"),
    [("notary-a", "key_unknown"), ("operator-tom", "key_role_wrong"), ("source-payments", "key_role_wrong")],
)
def test_an_override_by_another_key_is_not_allowed(
    pvdm: Run, door: Door, tmp_path: Path, signer: str, code: str
) -> None:
    core = failing(door.stand.verifying("bad"))
    recorded = door.stand.record(core)
    (tmp_path / "o.json").write_bytes(signed_override(override_of(recorded, core, NOW), signer))
    door.come_as(Role.OPERATOR)
    refused = pvdm("break-glass", "submit", "o.json", "--json")
    assert (refused.code, refused.error) == (5, code)


def test_an_override_for_another_proof_is_not_allowed(pvdm: Run, door: Door, tmp_path: Path) -> None:
    core = failing(door.stand.verifying("bad"))
    door.stand.record(core)
    other = door.stand.proved("good")
    (tmp_path / "o.json").write_bytes(signed_override(override_of(other, core, NOW)))
    door.come_as(Role.OPERATOR)
    refused = pvdm("break-glass", "submit", "o.json", "--json")
    assert (refused.code, refused.error) == (5, "override_of_pass")


def test_only_an_operator_hands_an_override_in(pvdm: Run, door: Door, tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text('{"payload":"","payloadType":"t","signatures":[]}')
    door.come_as(Role.PRODUCER, domain="sales")
    assert pvdm("break-glass", "submit", "o.json", "--json").code == 5


def test_where_no_glass_was_broken_that_is_said(pvdm: Run, door: Door) -> None:
    door.come_as(Role.AUDITOR)
    assert pvdm("break-glass", "list").out == "no verdict was ever overridden here\n"


# --- epochs and trust roots ---


def test_epochs_are_created_and_activated_under_a_trust_root_that_names_them(
    pvdm: Run, door: Door, tmp_path: Path
) -> None:
    door.come_as(Role.OPERATOR)
    created = pvdm("keys", "create", "--reason", "rotation", "--json").json["changes"]
    assert [(change["epoch"], change["before"], change["after"]) for change in created] == [("2", None, "CREATED")]
    early = pvdm("keys", "activate", 2, "--reason", "rotation", "--json")
    assert (early.code, early.error) == (3, "trust_root_lacks_epoch")
    book = door.stand.notary.epochs.book()
    first = door.stand.notary.trust.current()
    (tmp_path / "r.json").write_bytes(signed_root(root_naming(*book.epochs, version=2, previous=first.sha256)))
    assert pvdm("keys", "root", "submit", "r.json", "--json").json["version"] == 2
    activated = pvdm("keys", "activate", 2, "--reason", "rotation", "--json").json["changes"]
    assert [(change["epoch"], change["after"]) for change in activated] == [("1", "RETIRED"), ("2", "ACTIVE")]
    assert pvdm("keys", "revoke", 1, "--reason", "leaked", "--json").code == 0
    states = [epoch["state"] for epoch in pvdm("keys", "list", "--json").json["epochs"]]
    assert states == ["REVOKED", "ACTIVE"]


def test_retiring_the_only_epoch_leaves_none_active(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    assert "ACTIVE → RETIRED" in pvdm("keys", "retire", 1, "--reason", "moving").out
    assert "NOT READY" in pvdm("status").out


def test_an_epoch_changes_only_with_a_reason(pvdm: Run, door: Door) -> None:
    door.come_as(Role.OPERATOR)
    assert pvdm("keys", "create", "--json").error == "usage"


def test_the_newest_trust_root_again_changes_nothing(pvdm: Run, door: Door, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(door.stand.notary.trust.chain()[0])
    door.come_as(Role.OPERATOR)
    assert pvdm("keys", "root", "submit", "r.json", "--json").json["version"] == 1


def test_a_fetched_root_that_is_not_the_pinned_one_is_not_kept(pvdm: Run, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.CONSUMER)
    refused = pvdm("keys", "root", "fetch", "--root-sha256", "0" * 64, "--out", "r.json", "--json")
    assert (refused.code, refused.error) == (3, "trust_root_not_pinned")
    assert not (tmp_path / "r.json").exists()


# --- the log ---


def vkey(door: Door) -> tuple[str, str]:
    for key in door.stand.notary.trust.current().keys:
        if key.identity == LOG_ORIGIN:
            return "--vkey", NoteKey(LOG_ORIGIN, key.public.der).to_vkey()
    raise AssertionError("the trust root names the log")


def checkpoint(pvdm: Run, door: Door, *words: object) -> Ran:
    return pvdm("log", "checkpoint", *vkey(door), *words, "--json")


def test_a_checkpoint_is_fetched_and_its_signature_checked(pvdm: Run, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.CONSUMER)
    shown = checkpoint(pvdm, door, "--out", "c").json
    assert (shown["origin"], shown["signature_checked"]) == (LOG_ORIGIN, True)
    assert (tmp_path / "c").read_bytes() == door.stand.notary.log.checkpoint()


def test_a_checkpoint_without_a_key_is_said_to_be_unchecked(pvdm: Run, door: Door) -> None:
    door.come_as(Role.CONSUMER)
    shown = pvdm("log", "checkpoint", "--json")
    assert shown.json["signature_checked"] is False
    assert "signature was not checked" in shown.err


def test_a_log_that_only_grew_contains_what_was_kept(pvdm: Run, door: Door) -> None:
    door.come_as(Role.CONSUMER)
    checkpoint(pvdm, door, "--out", "monday")
    door.stand.proved("one")
    assert checkpoint(pvdm, door, "--since", "monday", "--out", "tuesday").code == 0
    assert pvdm("log", "compare", "monday", "tuesday", *vkey(door)).code == 0


def forked(door: Door, size: int) -> bytes:
    """A checkpoint of another history, under the log's own key."""
    log = Log(MemoryStorage(), origin=LOG_ORIGIN, signer=door.stand.notary.keys.signer(KeyRole.LOG, 1))
    return log.append(entries(0, size)).checkpoint.note


def test_a_log_that_took_something_back_is_noticed(pvdm: Run, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.CONSUMER)
    size = door.stand.notary.log.size()
    (tmp_path / "longer").write_bytes(forked(door, size + 3))
    refused = checkpoint(pvdm, door, "--since", "longer")
    assert (refused.code, refused.error) == (3, "log_behind_checkpoint")


def test_a_forked_log_is_noticed(pvdm: Run, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.CONSUMER)
    size = door.stand.notary.log.size()
    (tmp_path / "same").write_bytes(forked(door, size))
    assert checkpoint(pvdm, door, "--since", "same").error == "log_forked"
    (tmp_path / "shorter").write_bytes(forked(door, size - 1))
    refused = checkpoint(pvdm, door, "--since", "shorter")
    assert (refused.code, refused.error) == (3, "log_not_consistent")


def test_an_entry_is_proved_by_the_steward(pvdm: Run, door: Door, tmp_path: Path) -> None:
    recorded = door.stand.proved("one")
    door.come_as(Role.CONSUMER)
    assert pvdm("log", "prove", recorded.log_index, *vkey(door), "--out", "p").code == 0
    proof = parse_log_proof((tmp_path / "p").read_bytes())
    entry = LogEntry(StatementKind.PROOF, hashlib.sha256(recorded.envelope).hexdigest(), NOW).to_bytes()
    keys = [parse_vkey(vkey(door)[1])]
    verify_log_proof(proof, entry=entry, origin=LOG_ORIGIN, keys=keys)
    open_checkpoint(proof.note, origin=LOG_ORIGIN, keys=keys)


def test_no_token_is_ever_printed(pvdm: Run, door: Door) -> None:
    text = door.come_as(Role.OPERATOR)
    for words in (("status",), ("keys", "list"), ("break-glass", "list"), ("keys", "activate", 9, "--reason", "x")):
        for more in ((), ("--json",)):
            shown = pvdm(*words, *more)
            assert text not in shown.out + shown.err
