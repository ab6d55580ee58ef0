"""Commands that call a running Steward: what each role sees, what is refused, and that no token is printed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pvdm.api.service import Identity
from pvdm.client import StewardClient
from pvdm.errors import Code, NotAllowedError
from pvdm.ledger.record import events, outbox
from pvdm.ledger.record.outbox import Channel, OutboxEvent, event_id_of
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.delivery.delivery import Delivery
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.checkpoint import open_checkpoint
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.note import NoteKey, parse_vkey
from pvdm.trust.log.proof import parse_log_proof, verify_log_proof
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.catalog.http import lake_at
from tests.support.ledger.log_storage import Log, MemoryStorage, entries
from tests.support.steward.notary import LOG_ORIGIN, override_of, root_naming, signed_override, signed_root
from tests.support.steward.notary import failed as failing
from tools.proof_kit import NOW


def pin_option(steward: ServedSteward) -> tuple[str, str]:
    return "--root-sha256", steward.stand.notary.trust.current().sha256


# --- address and token ---


def test_a_command_without_an_address_is_refused(pvdm: Run) -> None:
    refused = pvdm("status", "--json")
    assert (refused.code, refused.error) == (2, "url_missing")


def test_a_command_without_a_token_is_refused(pvdm: Run) -> None:
    refused = pvdm("status", "--url", "http://127.0.0.1:9", "--json")
    assert (refused.code, refused.error) == (2, "token_missing")


def test_a_steward_that_cannot_be_reached_is_unavailable(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    refused = pvdm("keys", "list", "--url", "http://127.0.0.1:9", "--json")
    assert (refused.code, refused.error) == (7, "steward_unreachable")


def test_an_address_without_tls_is_refused_without_naming_the_librarys_argument(
    pvdm: Run, steward: ServedSteward
) -> None:
    steward.use_token(Role.OPERATOR)
    refused = pvdm("keys", "list", "--url", "http://steward.example:8181", "--json")
    assert (refused.code, refused.error) == (5, "steward_address_insecure")
    assert "insecure=" not in refused.out
    assert "https" in refused.json["error"]["hint"]


def test_a_token_may_be_in_the_environment(pvdm: Run, steward: ServedSteward, monkeypatch: pytest.MonkeyPatch) -> None:
    text = steward.use_token(Role.OPERATOR)
    monkeypatch.delenv("PVDM_TOKEN_FILE")
    monkeypatch.setenv("PVDM_TOKEN", text)
    assert pvdm("keys", "list").code == 0


def test_a_token_file_that_others_can_read_is_refused(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    text = steward.use_token(Role.OPERATOR)
    (tmp_path / "open.token").write_text(text)
    (tmp_path / "open.token").chmod(0o644)
    refused = pvdm("keys", "list", "--token-file", "open.token", "--json")
    assert (refused.code, refused.error) == (5, "token_file_mode")


def test_a_token_that_nobody_issued_is_refused_and_not_shown(
    pvdm: Run, steward: ServedSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PVDM_URL", steward.url)
    monkeypatch.setenv("PVDM_TOKEN", "pvdm_nobody-issued-this-one")
    refused = pvdm("status", "--json")
    assert (refused.code, refused.error) == (5, "token_unknown")
    assert "nobody-issued" not in refused.out + refused.err


# --- status ---


def test_the_status_shows_readiness_epochs_workloads_and_proofs(pvdm: Run, steward: ServedSteward) -> None:
    recorded = steward.stand.proved("one")
    steward.use_token(Role.OPERATOR)
    status = pvdm("status", "--json").json
    assert status["readiness"] == {"ready": True, "reasons": []}
    assert [epoch["state"] for epoch in status["epochs"]] == ["ACTIVE"]
    assert [workload["workload_id"] for workload in status["workloads"]] == ["work-one"]
    assert [proof["proof_id"] for proof in status["proofs"]] == [recorded.statement_id]
    assert status["overrides"] == []


def test_the_status_shows_events_that_cannot_be_built_first_as_undelivered_and_then_as_not_sent(
    pvdm: Run, steward: ServedSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    notary = steward.stand.notary

    def fail(_event: OutboxEvent) -> None:
        raise Code.RECORD_UNKNOWN(reason="contract_unknown", got="x")

    sender = Delivery(notary.ledger, notary.clock, Channel.LINEAGE, fail)
    monkeypatch.setitem(notary.deliveries, Channel.LINEAGE, sender)
    event_id = event_id_of(Channel.LINEAGE, "START", "run-1")
    notary.ledger.transact(
        lambda unit: outbox.add(unit, Channel.LINEAGE, "START", event_id, {}), at_micros=notary.clock.now_micros()
    )
    sender.deliver_due()
    steward.use_token(Role.OPERATOR)
    problem = "the event cannot be built: contract_unknown"
    shown = " ".join(pvdm("status").out.split())
    assert f"NOT DELIVERED: 1 event of the channel lineage, the oldest for 0 seconds: {problem}" in shown
    monkeypatch.setattr("pvdm.steward.delivery.delivery.UNBUILT_TRIES_MAX", 2)
    steward.stand.time.pass_by(5_000_000)
    sender.deliver_due()
    shown = " ".join(pvdm("status").out.split())
    assert f"NOT SENT: 1 event of the channel lineage in the last seven days: {problem}" in shown
    assert "NOT DELIVERED" not in shown


def test_the_status_shows_the_newest_workloads_first_and_how_many_there_are(pvdm: Run, steward: ServedSteward) -> None:
    for name in ("b", "c", "a"):
        steward.stand.time.pass_by(1_000_000)
        steward.stand.proved(name)
    steward.use_token(Role.OPERATOR)
    status = pvdm("status", "--rows", "2", "--json").json
    assert [each["workload_id"] for each in status["workloads"]] == ["work-a", "work-c"]
    assert status["workloads_total"] == "3"
    assert "workloads, newest first: 2 of 3 shown\n" in pvdm("status", "--rows", "2").out
    assert "workloads, newest first: 3 shown\n" in pvdm("status", "--rows", "3").out


def test_the_status_says_which_catalog_is_served(pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake_at(tmp_path) as lake:
        ServedSteward(lake.steward.stand, lake.steward.server.url, tmp_path, monkeypatch).use_token(Role.CONSUMER)
        shown, catalog = pvdm("status").out, pvdm("status", "--json").json["steward"]["catalog"]
    assert f"catalog     lake, tables in file://{tmp_path}/warehouse" in shown
    assert catalog == {"name": "lake", "warehouse": f"file://{tmp_path}/warehouse"}


def test_the_status_says_what_the_role_may_not_see(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    shown = pvdm("status")
    assert shown.code == 0
    assert "proofs: not shown to the role attestor" in shown.out
    assert pvdm("status", "--json").json["proofs"] is None


def test_an_operator_of_another_domain_sees_no_workloads_and_no_proofs(pvdm: Run, steward: ServedSteward) -> None:
    steward.stand.proved("one", domain="sales")
    steward.use_token(Role.OPERATOR, domain="stock")
    status = pvdm("status", "--json")
    assert (status.code, status.json["workloads"], status.json["proofs"]) == (0, [], [])


def test_a_token_that_is_revoked_during_the_status_is_an_error(
    pvdm: Run, steward: ServedSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_token(*_words: object, **_named: object) -> None:
        raise NotAllowedError("token_revoked", "the token was revoked")

    steward.use_token(Role.OPERATOR)
    monkeypatch.setattr(StewardClient, "proofs", refuse_token)
    refused = pvdm("status", "--json")
    assert (refused.code, refused.error) == (5, "token_revoked")


def test_the_status_begins_with_a_warning_about_an_override(pvdm: Run, steward: ServedSteward) -> None:
    submit_override(steward)
    steward.use_token(Role.AUDITOR)
    shown = pvdm("status").out
    assert shown.startswith("*** BREAK-GLASS: operator-ruth waived a FAIL verdict of curated.orders ***")
    assert "OVERRIDDEN by break-glass" in shown


def test_the_status_says_why_a_steward_is_not_ready(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    steward.stand.time.jump(400 * 86_400 * 1_000_000)
    shown = pvdm("status")
    assert shown.code == 7
    as_json = pvdm("status", "--json")
    assert (as_json.code, as_json.json["readiness"]["ready"]) == (7, False)
    codes = [each["code"] for each in as_json.json["readiness"]["reasons"]]
    assert codes
    assert not [code for code in codes if f"  NOT READY: {code}: " not in shown.out]
    assert "shows more" not in shown.out


def test_the_status_for_one_domain_says_whose_token_shows_more_reasons(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR, domain="sales")
    steward.stand.time.jump(400 * 86_400 * 1_000_000)
    shown = pvdm("status").out
    assert "an operator's or auditor's token of every domain shows more" in shown


def test_without_an_active_epoch_the_status_names_the_next_step(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    pvdm("keys", "create", "--reason", "rotation")
    assert "hint" not in pvdm("status").out
    pvdm("keys", "retire", "1", "--reason", "restored")
    assert "`pvdm keys activate 2`" in pvdm("status").out


def test_control_characters_in_names_are_escaped_in_the_status(
    pvdm: Run, steward: ServedSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    steward.use_token(Role.OPERATOR)
    found = Identity(
        token_id="t", role=Role.OPERATOR, domain="sa\x1bles", name="ru\nth", expires_at=NOW, attempt_id=None
    )
    monkeypatch.setattr(StewardClient, "identity", lambda _: found)
    assert "ru\\nth, operator of domain sa\\x1bles" in pvdm("status").out


def test_an_operator_confirms_the_clock(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    steward.stand.time.jump(400 * 86_400 * 1_000_000)
    assert pvdm("status").code == 7
    confirmed = pvdm("steward", "confirm-clock", "--reason", "NTP was off", "--json")
    assert confirmed.code == 0
    assert confirmed.json["at"] > NOW
    assert confirmed.json["confirmed"] is True


def test_if_the_clock_has_not_jumped_nothing_is_confirmed(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    shown = pvdm("steward", "confirm-clock", "--reason", "just so")
    assert (shown.code, "nothing to confirm: the clock has not jumped" in shown.out) == (0, True)
    assert pvdm("steward", "confirm-clock", "--reason", "just so", "--json").json["confirmed"] is False
    with steward.stand.notary.ledger.read() as unit:
        assert "clock_confirmed" not in {event.kind for event in events.page(unit, count=1_000)}


def test_an_auditor_cannot_confirm_the_clock(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.AUDITOR)
    assert pvdm("steward", "confirm-clock", "--reason", "mine", "--json").error == "role_wrong"


def submit_override(steward: ServedSteward) -> None:
    """Submit an override of a FAIL."""
    core = failing(steward.stand.verifying("bad"))
    recorded = steward.stand.record(core)
    envelope = signed_override(override_of(recorded, core, NOW))
    steward.stand.notary.overrides.submit(envelope, steward.stand.grant())


# --- proofs ---


def test_a_fetched_bundle_passes_an_offline_check(pvdm: Run, steward: ServedSteward) -> None:
    recorded = steward.stand.proved("one")
    steward.use_token(Role.CONSUMER)
    assert pvdm("proof", "get", recorded.statement_id, "--out", "b.json").code == 0
    assert pvdm("keys", "root", "fetch", *pin_option(steward), "--out", "roots.json").code == 0
    checked = pvdm("proof", "check", "b.json", "--trust-root", "roots.json", *pin_option(steward), "--json")
    assert (checked.code, checked.json["proof_ids"]) == (0, [recorded.statement_id])
    assert checked.json["origin"] == LOG_ORIGIN


def test_an_envelope_alone_can_be_fetched(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    recorded = steward.stand.proved("one")
    steward.use_token(Role.CONSUMER)
    pvdm("proof", "get", recorded.statement_id, "--envelope", "--out", "p.json")
    assert (tmp_path / "p.json").read_bytes() == recorded.envelope


def test_an_unknown_proof_is_bad_input(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.CONSUMER)
    refused = pvdm("proof", "get", "0" * 64, "--out", "p.json", "--json")
    assert (refused.code, refused.error) == (2, "proof_unknown")


def test_proofs_of_another_domain_are_neither_shown_nor_listed(pvdm: Run, steward: ServedSteward) -> None:
    recorded = steward.stand.proved("one", domain="sales")
    steward.use_token(Role.CONSUMER, domain="stock")
    assert pvdm("proof", "get", recorded.statement_id, "--out", "p.json", "--json").code == 5
    assert pvdm("proof", "list", "--json").json["proofs"] == []


def test_a_list_of_proofs_marks_a_fail_and_its_override(pvdm: Run, steward: ServedSteward) -> None:
    steward.stand.proved("one")
    submit_override(steward)
    steward.use_token(Role.AUDITOR)
    shown = pvdm("proof", "list").out
    assert "PASS  work-one" in shown
    assert "*** FAIL (modified), OVERRIDDEN by break-glass ***  work-bad" in shown


# --- break-glass ---


def test_submitting_an_override_again_has_the_same_result(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    core = failing(steward.stand.verifying("bad"))
    recorded = steward.stand.record(core)
    (tmp_path / "o.json").write_bytes(signed_override(override_of(recorded, core, NOW)))
    steward.use_token(Role.OPERATOR)
    first, again = (pvdm("break-glass", "submit", "o.json", "--json") for _ in range(2))
    assert first.code == again.code == 0
    assert first.json == again.json
    assert pvdm("break-glass", "list").out.startswith("*** BREAK-GLASS: operator-ruth")


@pytest.mark.parametrize(
    ("signer", "code"),
    [("notary-a", "key_unknown"), ("operator-tom", "key_role_wrong"), ("source-payments", "key_role_wrong")],
)
def test_an_override_that_no_break_glass_key_signed_is_refused(
    pvdm: Run, steward: ServedSteward, tmp_path: Path, signer: str, code: str
) -> None:
    core = failing(steward.stand.verifying("bad"))
    recorded = steward.stand.record(core)
    (tmp_path / "o.json").write_bytes(signed_override(override_of(recorded, core, NOW), signer))
    steward.use_token(Role.OPERATOR)
    refused = pvdm("break-glass", "submit", "o.json", "--json")
    assert (refused.code, refused.error) == (5, code)


def test_an_override_that_names_a_pass_proof_is_refused(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    core = failing(steward.stand.verifying("bad"))
    steward.stand.record(core)
    other = steward.stand.proved("good")
    (tmp_path / "o.json").write_bytes(signed_override(override_of(other, core, NOW)))
    steward.use_token(Role.OPERATOR)
    refused = pvdm("break-glass", "submit", "o.json", "--json")
    assert (refused.code, refused.error) == (5, "override_of_pass")


def test_a_producer_cannot_submit_an_override(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text('{"payload":"","payloadType":"t","signatures":[]}')
    steward.use_token(Role.PRODUCER, domain="sales")
    assert pvdm("break-glass", "submit", "o.json", "--json").code == 5


def test_without_overrides_the_list_says_that_no_verdict_was_overridden(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.AUDITOR)
    assert pvdm("break-glass", "list").out == "no verdict was ever overridden here\n"


# --- epochs and trust roots ---


def test_epochs_are_created_and_activated_under_a_trust_root_that_names_them(
    pvdm: Run, steward: ServedSteward, tmp_path: Path
) -> None:
    steward.use_token(Role.OPERATOR)
    created = pvdm("keys", "create", "--reason", "rotation", "--json").json["changes"]
    assert [(change["epoch"], change["before"], change["after"]) for change in created] == [("2", None, "CREATED")]
    early = pvdm("keys", "activate", 2, "--reason", "rotation", "--json")
    assert (early.code, early.error) == (3, "trust_root_lacks_epoch")
    book = steward.stand.notary.epochs.book()
    first = steward.stand.notary.trust.current()
    (tmp_path / "r.json").write_bytes(signed_root(root_naming(*book.epochs, version=2, previous=first.sha256)))
    assert pvdm("keys", "root", "submit", "r.json", "--json").json["version"] == 2
    activated = pvdm("keys", "activate", 2, "--reason", "rotation", "--json").json["changes"]
    assert [(change["epoch"], change["after"]) for change in activated] == [("1", "RETIRED"), ("2", "ACTIVE")]
    assert pvdm("keys", "revoke", 1, "--reason", "leaked", "--json").code == 0
    states = [epoch["state"] for epoch in pvdm("keys", "list", "--json").json["epochs"]]
    assert states == ["REVOKED", "ACTIVE"]


def test_after_the_only_epoch_is_retired_the_steward_is_not_ready(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    assert "ACTIVE → RETIRED" in pvdm("keys", "retire", 1, "--reason", "moving").out
    assert "NOT READY" in pvdm("status").out


def test_creating_an_epoch_without_a_reason_is_a_usage_error(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.OPERATOR)
    assert pvdm("keys", "create", "--json").error == "usage"


def test_submitting_the_newest_trust_root_again_changes_nothing(
    pvdm: Run, steward: ServedSteward, tmp_path: Path
) -> None:
    (tmp_path / "r.json").write_bytes(steward.stand.notary.trust.chain()[0])
    steward.use_token(Role.OPERATOR)
    assert pvdm("keys", "root", "submit", "r.json", "--json").json["version"] == 1


def test_a_fetched_root_that_is_not_the_pinned_one_is_not_written(
    pvdm: Run, steward: ServedSteward, tmp_path: Path
) -> None:
    steward.use_token(Role.CONSUMER)
    refused = pvdm("keys", "root", "fetch", "--root-sha256", "0" * 64, "--out", "r.json", "--json")
    assert (refused.code, refused.error) == (3, "trust_root_not_pinned")
    assert not (tmp_path / "r.json").exists()


# --- the log ---


def vkey_option(steward: ServedSteward) -> tuple[str, str]:
    for key in steward.stand.notary.trust.current().keys:
        if key.identity == LOG_ORIGIN:
            return "--vkey", NoteKey(LOG_ORIGIN, key.public.der).to_vkey()
    raise AssertionError("the trust root names no key of the log")


def fetch_checkpoint(pvdm: Run, steward: ServedSteward, *words: object) -> CommandResult:
    return pvdm("log", "checkpoint", *vkey_option(steward), *words, "--json")


def test_a_checkpoint_is_fetched_and_its_signature_checked(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    steward.use_token(Role.CONSUMER)
    shown = fetch_checkpoint(pvdm, steward, "--out", "c").json
    assert (shown["origin"], shown["signature_checked"]) == (LOG_ORIGIN, True)
    assert (tmp_path / "c").read_bytes() == steward.stand.notary.log.checkpoint()


def test_a_checkpoint_fetched_without_a_key_is_shown_as_unchecked(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.CONSUMER)
    shown = pvdm("log", "checkpoint", "--json")
    assert shown.json["signature_checked"] is False
    assert "signature was not checked" in shown.err


def test_a_log_that_only_grew_is_consistent_with_an_older_checkpoint(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.CONSUMER)
    fetch_checkpoint(pvdm, steward, "--out", "monday")
    steward.stand.proved("one")
    assert fetch_checkpoint(pvdm, steward, "--since", "monday", "--out", "tuesday").code == 0
    assert pvdm("log", "compare", "monday", "tuesday", *vkey_option(steward)).code == 0


def fork_checkpoint(steward: ServedSteward, size: int) -> bytes:
    """Sign a checkpoint of other entries with the log's own key."""
    log = Log(MemoryStorage(), origin=LOG_ORIGIN, signer=steward.stand.notary.keys.signer(KeyRole.LOG, 1))
    return log.append(entries(0, size)).checkpoint.note


def test_a_log_that_is_shorter_than_an_older_checkpoint_is_refused(
    pvdm: Run, steward: ServedSteward, tmp_path: Path
) -> None:
    steward.use_token(Role.CONSUMER)
    size = steward.stand.notary.log.size()
    (tmp_path / "longer").write_bytes(fork_checkpoint(steward, size + 3))
    refused = fetch_checkpoint(pvdm, steward, "--since", "longer")
    assert (refused.code, refused.error) == (3, "log_behind_checkpoint")


def test_a_forked_log_is_refused(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    steward.use_token(Role.CONSUMER)
    size = steward.stand.notary.log.size()
    (tmp_path / "same").write_bytes(fork_checkpoint(steward, size))
    assert fetch_checkpoint(pvdm, steward, "--since", "same").error == "log_forked"
    (tmp_path / "shorter").write_bytes(fork_checkpoint(steward, size - 1))
    refused = fetch_checkpoint(pvdm, steward, "--since", "shorter")
    assert (refused.code, refused.error) == (3, "log_not_consistent")


def test_the_steward_proves_that_an_entry_is_in_the_log(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    recorded = steward.stand.proved("one")
    steward.use_token(Role.CONSUMER)
    assert pvdm("log", "prove", recorded.log_index, *vkey_option(steward), "--out", "p").code == 0
    proof = parse_log_proof((tmp_path / "p").read_bytes())
    entry = LogEntry(StatementKind.PROOF, hashlib.sha256(recorded.envelope).hexdigest(), NOW).to_bytes()
    keys = [parse_vkey(vkey_option(steward)[1])]
    verify_log_proof(proof, entry=entry, origin=LOG_ORIGIN, keys=keys)
    open_checkpoint(proof.note, origin=LOG_ORIGIN, keys=keys)


def test_no_command_prints_the_token(pvdm: Run, steward: ServedSteward) -> None:
    text = steward.use_token(Role.OPERATOR)
    for words in (("status",), ("keys", "list"), ("break-glass", "list"), ("keys", "activate", 9, "--reason", "x")):
        for more in ((), ("--json",)):
            shown = pvdm(*words, *more)
            assert text not in shown.out + shown.err
