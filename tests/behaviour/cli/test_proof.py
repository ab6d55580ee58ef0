"""`pvdm proof show` and `check`: what is proved and what is not, in words and as JSON, without asking a Steward."""

from __future__ import annotations

import gzip
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.model.canonical_json import dump
from pvdm.model.statements.proof import Isolation, Proof
from pvdm.trust.verify import sign_statement
from tests.behaviour.cli.support import AT, EXAMPLES, CommandResult, Run, bundle_envelopes, bundle_of
from tests.support.for_each import for_each
from tests.support.gate.hostile_assets import ASSETS, manifest
from tools.proof_kit import (
    CORE,
    FAIL_PROOF,
    FAIL_PROOF_ID,
    NEXT_ROOT,
    ORIGIN,
    PROOF,
    PROOF_ID,
    RECEIPT,
    ROOT,
    SIGNERS,
    notary_part,
)

BUNDLE = EXAMPLES / "bundle.json"
ROOT_FILE = EXAMPLES / "trust-root-1.json"
PINNED = ("--root-sha256", ROOT.sha256)
SECOND_PROOF = Proof(CORE, notary_part("notary-b"))


def check(pvdm: Run, file: object, *more: object) -> CommandResult:
    return pvdm("proof", "check", file, "--trust-root", ROOT_FILE, "--at", AT, *more)


@pytest.fixture
def fail_bundle(tmp_path: Path) -> Path:
    """A genuine FAIL proof in a bundle."""
    (tmp_path / "fail.json").write_bytes(bundle_of((FAIL_PROOF, "notary-a")))
    return tmp_path / "fail.json"


# --- check ---


def test_a_valid_bundle_holds(pvdm: Run) -> None:
    checked = check(pvdm, BUNDLE, *PINNED, "--json")
    assert checked.code == 0
    assert checked.json["holds"] is True
    assert checked.json["verdict"] == {"outcome": "PASS", "classes": []}
    assert checked.json["proof_ids"] == [PROOF_ID]
    assert checked.json["trust_root"] == {"version": 1, "sha256": ROOT.sha256, "pinned": True}


def test_the_text_says_what_is_not_proved(pvdm: Run) -> None:
    shown = check(pvdm, BUNDLE, *PINNED).out
    _, _, not_proved = shown.partition("not proved:")
    assert "only the notary signed that" in not_proved
    assert "whether anything was published: the receipt" in not_proved
    assert "the same log: a monitor" in not_proved


def test_the_text_says_what_is_proved(pvdm: Run) -> None:
    proved = check(pvdm, BUNDLE, *PINNED).out.partition("not proved:")[0]
    assert "notary-a signed the verdict PASS" in proved
    assert "3 added files by SHA-256" in proved
    assert f"logged 2026-11-14 10:00:00Z in {ORIGIN}" in proved


def test_checking_opens_no_connection(pvdm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: object, **_named: object) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert check(pvdm, BUNDLE, *PINNED).code == 0


def test_an_unpinned_trust_root_is_reported_as_not_verified(pvdm: Run) -> None:
    checked = check(pvdm, BUNDLE)
    assert checked.code == 0
    assert "not verified" in checked.err
    assert "not verified" in checked.out.partition("not proved:")[2]
    assert check(pvdm, BUNDLE, "--json").json["trust_root"]["pinned"] is False


def test_another_pin_is_refused(pvdm: Run) -> None:
    refused = check(pvdm, BUNDLE, "--root-sha256", "0" * 64, "--json")
    assert (refused.code, refused.error) == (3, "trust_root_not_pinned")


def test_a_genuine_fail_proof_holds_and_is_shown_loudly(pvdm: Run, fail_bundle: Path) -> None:
    checked = check(pvdm, fail_bundle, *PINNED)
    assert checked.code == 0
    assert "*** FAIL (modified) ***" in checked.out
    assert "it allows no publication" in checked.out
    assert check(pvdm, fail_bundle, *PINNED, "--json").json["verdict"] == {"outcome": "FAIL", "classes": ["modified"]}


def test_whether_a_fail_was_overridden_is_listed_as_not_proved(pvdm: Run, fail_bundle: Path) -> None:
    assert any("overrode this FAIL" in line for line in check(pvdm, fail_bundle, *PINNED, "--json").json["not_proved"])


def test_the_text_says_that_an_embedded_notary_stops_accidents_only(pvdm: Run, tmp_path: Path) -> None:
    embedded = Proof(CORE, replace(notary_part(), isolation=Isolation.EMBEDDED))
    (tmp_path / "b.json").write_bytes(bundle_of((embedded, "notary-a")))
    assert "accidents, not malice" in check(pvdm, "b.json", *PINNED).out


def test_a_flipped_verdict_does_not_hold_although_it_is_logged(pvdm: Run, tmp_path: Path) -> None:
    """PASS under the signature of a FAIL: form, log and trust root are in order, the signature alone is not."""
    passed = sign_statement(PROOF, SIGNERS["notary-a"])
    flipped = replace(passed, signatures=sign_statement(FAIL_PROOF, SIGNERS["notary-a"]).signatures)
    (tmp_path / "b.json").write_bytes(bundle_envelopes(flipped.to_bytes()))
    refused = check(pvdm, "b.json", *PINNED, "--json")
    assert (refused.code, refused.error) == (3, "signature_invalid")


@pytest.mark.parametrize("asset", [each for each in manifest() if each.door == "bundle"], ids=lambda each: each.name)
def test_a_hostile_bundle_does_not_hold(pvdm: Run, asset: Any) -> None:
    refused = pvdm(
        "proof", "check", ASSETS / asset.name, "--trust-root", ROOT_FILE, *PINNED, "--at", str(asset.now), "--json"
    )
    assert (refused.code, refused.error) == (3, asset.code)


@for_each(
    "asset", [each for each in manifest() if each.door == "publish" and not each.used], ids=lambda each: each.name
)
def test_showing_a_hostile_proof_never_ends_in_a_bug(pvdm: Run, asset: Any, tmp_path: Path) -> None:
    """Whatever is in the file, the result is text or an error with a code."""
    (tmp_path / "proof.json").write_bytes(asset.data)
    shown = pvdm("proof", "show", "proof.json", "--json")
    assert shown.code in {0, 2, 3}


def test_a_proof_that_the_log_does_not_contain_is_refused(pvdm: Run, tmp_path: Path) -> None:
    bundle = json.loads(BUNDLE.read_bytes())
    bundle["proofs"][0]["logged_at"] += 1
    (tmp_path / "b.json").write_bytes(dump(bundle))
    refused = check(pvdm, "b.json", *PINNED, "--json")
    assert (refused.code, refused.error) == (3, "inclusion_root")


def test_a_threshold_above_the_number_of_notaries_is_not_met(pvdm: Run) -> None:
    refused = check(pvdm, BUNDLE, *PINNED, "--threshold", 2, "--json")
    assert (refused.code, refused.error) == (3, "threshold_not_met")


def test_two_notaries_meet_a_threshold_of_two(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "two.json").write_bytes(bundle_of((PROOF, "notary-a"), (SECOND_PROOF, "notary-b")))
    checked = check(pvdm, "two.json", *PINNED, "--threshold", 2, "--json")
    assert (checked.code, checked.json["notaries"]) == (0, ["notary-a", "notary-b"])


def test_a_log_that_the_trust_root_does_not_name_is_refused(pvdm: Run) -> None:
    refused = check(pvdm, BUNDLE, *PINNED, "--origin", "log.example/other", "--json")
    assert (refused.code, refused.error) == (3, "log_key_missing")


def test_an_envelope_alone_is_not_a_bundle(pvdm: Run) -> None:
    refused = check(pvdm, EXAMPLES / "proof.json", *PINNED, "--json")
    assert (refused.code, refused.error) == (2, "bundle_expected")


def test_a_chain_of_roots_in_one_file_is_followed(pvdm: Run, tmp_path: Path) -> None:
    roots = b",".join((EXAMPLES / f"trust-root-{n}.json").read_bytes() for n in (1, 2))
    (tmp_path / "roots.json").write_bytes(b"[" + roots + b"]")
    words = ("proof", "check", BUNDLE, "--trust-root", "roots.json", *PINNED, "--at", AT, "--json")
    assert pvdm(*words).json["trust_root"]["version"] == NEXT_ROOT.version


def test_an_older_trust_root_than_one_seen_is_refused(pvdm: Run, tmp_path: Path) -> None:
    roots = b",".join((EXAMPLES / f"trust-root-{n}.json").read_bytes() for n in (1, 2))
    (tmp_path / "roots.json").write_bytes(b"[" + roots + b"]")
    words = ("--at", AT, *PINNED, "--seen", "seen", "--json")
    assert pvdm("proof", "check", BUNDLE, "--trust-root", "roots.json", *words).code == 0
    refused = pvdm("proof", "check", BUNDLE, "--trust-root", ROOT_FILE, *words)
    assert (refused.code, refused.error) == (3, "trust_root_rolled_back")


def test_remembering_an_unpinned_root_is_a_usage_error(pvdm: Run, tmp_path: Path) -> None:
    refused = check(pvdm, BUNDLE, "--seen", "seen", "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert list(tmp_path.iterdir()) == []


def test_without_seen_nothing_is_remembered(pvdm: Run, tmp_path: Path) -> None:
    check(pvdm, BUNDLE, *PINNED)
    assert list(tmp_path.iterdir()) == []


def test_checking_with_an_expired_trust_root_is_refused(pvdm: Run) -> None:
    words = ("--trust-root", ROOT_FILE, *PINNED, "--at", "2027-06-01", "--json")
    assert pvdm("proof", "check", BUNDLE, *words).error == "trust_root_expired"


@pytest.mark.parametrize("time", ["yesterday", "2026-11-14T12:00:00", "12", "", "99999-01-01"])
def test_an_invalid_time_is_a_usage_error(pvdm: Run, time: str) -> None:
    refused = pvdm("proof", "check", BUNDLE, "--trust-root", ROOT_FILE, "--at", time, "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_a_file_that_is_too_large_is_not_read(pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.cli.evidence.proof.BUNDLE_SIZE_MAX_BYTES", 100)
    refused = check(pvdm, BUNDLE, *PINNED, "--json")
    assert (refused.code, refused.error) == (2, "input_too_large")


# --- single statements ---


@pytest.mark.parametrize(
    ("name", "signer"),
    [
        ("receipt", "notary-a"),
        ("workload", "notary-a"),
        ("epoch", "notary-a"),
        ("restore", "notary-a"),
        ("migration", "operator-tom"),
        ("protection", "operator-tom"),
        ("break-glass", "operator-ruth"),
        ("source-attestation", "source-payments"),
    ],
)
def test_a_single_statement_is_checked_for_its_signature_only(pvdm: Run, name: str, signer: str) -> None:
    checked = check(pvdm, EXAMPLES / f"{name}.json", *PINNED, "--json")
    assert checked.code == 0, checked.out
    assert (checked.json["kind"], checked.json["signer"]) == (name, signer)
    assert any("in the log" in sentence for sentence in checked.json["not_proved"])


def test_the_text_of_a_single_statement_says_what_was_not_checked(pvdm: Run) -> None:
    shown = check(pvdm, EXAMPLES / "break-glass.json")
    assert shown.out.startswith("*** BREAK-GLASS")
    for words in ("the signature holds", "operator-ruth signed this", "only signature and signer", "not verified"):
        assert words in shown.out


def test_a_changed_statement_does_not_hold(pvdm: Run, tmp_path: Path) -> None:
    envelope = json.loads((EXAMPLES / "receipt.json").read_bytes())
    other = json.loads((EXAMPLES / "epoch.json").read_bytes())
    envelope["signatures"][0]["sig"] = other["signatures"][0]["sig"]
    (tmp_path / "r.json").write_bytes(dump(envelope))
    refused = check(pvdm, "r.json", *PINNED, "--json")
    assert (refused.code, refused.error) == (3, "signature_invalid")


def test_a_key_that_the_trust_root_lacks_is_refused_with_a_next_step(pvdm: Run, tmp_path: Path) -> None:
    known = {key.key_id for key in ROOT.keys}
    stranger = next(signer for signer in SIGNERS.values() if signer.public.key_id not in known)
    (tmp_path / "r.json").write_bytes(sign_statement(RECEIPT, stranger).to_bytes())
    refused = check(pvdm, "r.json", *PINNED, "--json")
    assert (refused.code, refused.error) == (3, "key_unknown")
    assert "`pvdm keys root fetch`" in refused.json["error"]["hint"]


def test_a_statement_by_a_key_of_another_role_does_not_hold(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(sign_statement(RECEIPT, SIGNERS["operator-tom"]).to_bytes())
    refused = check(pvdm, "r.json", *PINNED, "--json")
    assert (refused.code, refused.error) == (3, "key_role_wrong")


@pytest.mark.parametrize("words", [("--threshold", "1"), ("--origin", "log.example/orders")])
def test_options_for_bundles_are_refused_for_a_single_statement(pvdm: Run, words: tuple[str, str]) -> None:
    assert check(pvdm, EXAMPLES / "receipt.json", *words, "--json").error == "usage"


# --- show ---


@pytest.mark.parametrize(
    ("name", "next_step"),
    [
        ("bundle", "`pvdm proof check` checks both"),
        ("proof", "`pvdm proof get` fetches its bundle"),
        ("receipt", "checks who signed it"),
        ("break-glass", "not its place in the log"),
    ],
)
def test_showing_names_a_next_step_that_exists(pvdm: Run, name: str, next_step: str) -> None:
    assert next_step in pvdm("proof", "show", EXAMPLES / f"{name}.json").out.splitlines()[-1]


@pytest.mark.parametrize("content", [b"", b"notary = 1", b"\xff\xd8", b"[[keys]]"])
def test_a_file_of_another_kind_is_bad_input_with_its_name(pvdm: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    for words in (("proof", "show", "other"), ("proof", "check", "other", "--trust-root", ROOT_FILE)):
        refused = pvdm(*words, "--json")
        assert (refused.code, refused.error) == (2, "file_kind_wrong")
        assert "other is not a signed statement" in refused.json["error"]["message"]


def test_a_proof_is_shown_in_words(pvdm: Run) -> None:
    shown = pvdm("proof", "show", EXAMPLES / "proof.json").out
    assert shown.startswith("PASS\n")
    for words in ("curated.orders in lake", "48,210 intended, 48,210 staged", "without ingested_at", PROOF_ID):
        assert words in shown


def test_showing_says_that_nothing_was_checked(pvdm: Run) -> None:
    assert "nothing was checked" in pvdm("proof", "show", EXAMPLES / "proof.json").out
    assert pvdm("proof", "show", EXAMPLES / "proof.json", "--json").json["checked"] is False


def test_a_fail_proof_is_shown_loudly_with_what_is_wrong(pvdm: Run) -> None:
    shown = pvdm("proof", "show", EXAMPLES / "proof-fail.json").out
    assert shown.startswith("*** FAIL (modified) ***\n")
    assert "rows were written with other values" in shown


def test_an_override_is_shown_loudly_with_who_and_why(pvdm: Run) -> None:
    shown = pvdm("proof", "show", EXAMPLES / "break-glass.json").out
    assert shown.startswith("*** BREAK-GLASS")
    assert "operator-ruth" in shown
    assert "incident 4711" in shown
    assert FAIL_PROOF_ID in shown


@pytest.mark.parametrize(
    "name", ["receipt", "workload", "migration", "protection", "source-attestation", "epoch", "bundle"]
)
def test_every_kind_of_statement_is_shown(pvdm: Run, name: str) -> None:
    assert pvdm("proof", "show", EXAMPLES / f"{name}.json").code == 0
    kind = "proof" if name == "bundle" else name
    assert pvdm("proof", "show", EXAMPLES / f"{name}.json", "--json").json["statements"][0]["kind"] == kind


def test_text_of_the_data_cannot_steer_the_terminal_or_fake_a_line(pvdm: Run, tmp_path: Path) -> None:
    target = replace(CORE.target, partition=(("order_day", "x\n*** PASS ***\x1b[2J\u202e"),))
    proof = Proof(replace(FAIL_PROOF.core, target=target), FAIL_PROOF.notary)
    (tmp_path / "p.json").write_bytes(sign_statement(proof, SIGNERS["notary-a"]).to_bytes())
    shown = pvdm("proof", "show", "p.json").out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\n*** PASS" not in shown


def test_showing_a_trust_root_as_a_statement_is_refused(pvdm: Run) -> None:
    refused = pvdm("proof", "show", ROOT_FILE, "--json")
    assert (refused.code, refused.error) == (3, "payload_type_wrong")


def test_an_oversized_envelope_is_refused(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "huge.json").write_bytes(gzip.decompress((ASSETS / "proof-oversized.json.gz").read_bytes()))
    assert pvdm("proof", "show", "huge.json", "--json").code in {2, 3}
