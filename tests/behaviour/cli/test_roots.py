"""`pvdm keys root`: signers sign a draft in turn, and only a fully signed chain that begins at the pin holds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pvdm.cli.common.times import now_micros
from pvdm.cli.keys.roots import _find_key
from pvdm.errors import InputError
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from tests.behaviour.cli.support import AT, EXAMPLES, CommandResult, Run
from tools.proof_kit import NEXT_ROOT, ROOT

SPEC = """
expires = "365d"
thresholds = { notary = 1, root = 2 }
"""
KEY_ENTRY = """
[[keys]]
file = "{name}.pem.pub"
identity = "{name}"
roles = ["{role}"]
{more}
"""


def key_entry(name: str, role: str, more: str = "") -> str:
    return KEY_ENTRY.format(name=name, role=role, more=more)


@pytest.fixture
def draft_folder(pvdm: Run, tmp_path: Path) -> Path:
    """A folder with a draft of root 1, `root-1.draft`; alice's key is Ed25519, bob's is P-256."""
    for name in ("alice", "bob", "carol", "notary-a", "log.example"):
        pvdm("keys", "pair", f"{name}.pem", "--algorithm", "ecdsa-p256" if name == "bob" else "ed25519")
    people = key_entry("alice", "root") + key_entry("bob", "root")
    steward = key_entry("notary-a", "notary", "epochs = [1]") + key_entry("log.example", "log", "epochs = [1]")
    (tmp_path / "keys.toml").write_text(SPEC + people + steward)
    assert pvdm("keys", "root", "new", "keys.toml", "--out", "root-1.draft").code == 0
    return tmp_path


def sign(pvdm: Run, file: str, name: str, out: str, *more: str) -> CommandResult:
    return pvdm("keys", "root", "sign", file, "--key", f"{name}.pem", "--out", out, "--yes", "--json", *more)


@pytest.fixture
def root_sha256(pvdm: Run, draft_folder: Path) -> str:
    """The hash of root 1, which alice and bob have signed in `root-1.json`."""
    sign(pvdm, "root-1.draft", "alice", "root-1.alice")
    return str(sign(pvdm, "root-1.alice", "bob", "root-1.json").json["sha256"])


def make_successor(pvdm: Run, *words: object) -> None:
    """Make root 2 with these options, signed by alice and bob, in `root-2.json`."""
    made = pvdm("keys", "root", "next", "root-1.json", "--out", "root-2.draft", *words, "--json")
    assert made.code == 0, made.out
    sign(pvdm, "root-2.draft", "alice", "root-2.alice")
    assert sign(pvdm, "root-2.alice", "bob", "root-2.json").code == 0


def keys_of(pvdm: Run, file: str) -> dict[str, Any]:
    newest = pvdm("keys", "root", "show", file, "--json").json["roots"][-1]
    return {each["identity"]: each for each in newest["keys"]}


def test_two_signers_make_a_root_that_holds_under_its_pin(pvdm: Run, root_sha256: str) -> None:
    checked = pvdm("keys", "root", "check", "root-1.json", "--root-sha256", root_sha256, "--json")
    assert checked.code == 0
    assert (checked.json["version"], checked.json["pinned"], checked.json["sha256"]) == (1, True, root_sha256)


def test_the_hash_to_pin_is_known_before_anybody_signs(pvdm: Run, draft_folder: Path, root_sha256: str) -> None:
    assert pvdm("keys", "root", "show", "root-1.draft", "--json").json["roots"][0]["sha256"] == root_sha256


def test_one_signature_of_two_is_not_enough(pvdm: Run, draft_folder: Path) -> None:
    half = sign(pvdm, "root-1.draft", "alice", "root-1.alice").json
    assert half["complete"] is False
    checked = pvdm("keys", "root", "check", "root-1.alice", "--root-sha256", half["sha256"], "--json")
    assert (checked.code, checked.error) == (3, "trust_root_self_unsigned")


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_signing_a_second_time_changes_nothing(pvdm: Run, draft_folder: Path, name: str) -> None:
    sign(pvdm, "root-1.draft", name, "signed")
    before = (draft_folder / "signed").read_bytes()
    assert sign(pvdm, "root-1.draft", name, "signed").code == 0
    assert (draft_folder / "signed").read_bytes() == before


def test_a_signature_does_not_overwrite_another_file(pvdm: Run, draft_folder: Path) -> None:
    (draft_folder / "precious").write_text("mine")
    refused = sign(pvdm, "root-1.draft", "alice", "precious")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (draft_folder / "precious").read_text() == "mine"


def test_a_file_with_another_signers_signature_is_not_overwritten(pvdm: Run, draft_folder: Path) -> None:
    sign(pvdm, "root-1.draft", "alice", "signed")
    refused = sign(pvdm, "root-1.draft", "bob", "signed")
    assert (refused.code, refused.error) == (2, "output_exists")


def test_an_existing_output_file_is_refused_before_the_question(pvdm: Run, draft_folder: Path) -> None:
    (draft_folder / "signed").write_text("mine")
    refused = pvdm("keys", "root", "sign", "root-1.draft", "--key", "alice.pem", "--out", "signed", "--json")
    assert refused.error == "output_exists"


def test_a_key_that_the_draft_does_not_name_cannot_sign(pvdm: Run, draft_folder: Path) -> None:
    refused = sign(pvdm, "root-1.draft", "carol", "signed")
    assert (refused.code, refused.error) == (5, "root_signer_unknown")
    assert not (draft_folder / "signed").exists()


def test_a_notarys_key_cannot_sign_a_root(pvdm: Run, draft_folder: Path) -> None:
    assert sign(pvdm, "root-1.draft", "notary-a", "signed").error == "root_signer_unknown"


def test_without_a_terminal_and_without_yes_nothing_is_signed(pvdm: Run, draft_folder: Path) -> None:
    refused = pvdm("keys", "root", "sign", "root-1.draft", "--key", "alice.pem", "--out", "signed", "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert not (draft_folder / "signed").exists()


def test_a_signer_who_says_no_signs_nothing(pvdm: Run, draft_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda *_: "n")
    declined = pvdm("keys", "root", "sign", "root-1.draft", "--key", "alice.pem", "--out", "signed", "--json")
    assert (declined.code, declined.error) == (4, "declined")
    assert "notary: notary-a" in declined.err
    assert not (draft_folder / "signed").exists()


def test_a_sealed_key_signs_with_its_passphrase(pvdm: Run, draft_folder: Path) -> None:
    (draft_folder / "word").write_text("open sesame")
    pvdm("keys", "pair", "dora.pem", "--passphrase", "file:word")
    entries = key_entry("dora", "root") + key_entry("notary-a", "notary", "epochs = [1]")
    (draft_folder / "more.toml").write_text(SPEC.replace("root = 2", "root = 1") + entries)
    pvdm("keys", "root", "new", "more.toml", "--out", "sealed.draft")
    assert sign(pvdm, "sealed.draft", "dora", "a").error == "passphrase_missing"
    (draft_folder / "other").write_text("open barley")
    wrong = sign(pvdm, "sealed.draft", "dora", "a", "--passphrase", "file:other")
    assert (wrong.code, wrong.error) == (5, "passphrase_wrong")
    assert "dora.pem" in wrong.json["error"]["message"]
    assert sign(pvdm, "sealed.draft", "dora", "a", "--passphrase", "file:word").code == 0


def test_an_unpinned_root_is_reported_as_not_verified(pvdm: Run, root_sha256: str) -> None:
    checked = pvdm("keys", "root", "check", "root-1.json")
    assert checked.code == 0
    assert "not verified" in checked.err
    assert "NOT pinned" in checked.out


def test_another_root_than_the_pinned_one_is_refused(pvdm: Run, root_sha256: str) -> None:
    checked = pvdm("keys", "root", "check", "root-1.json", "--root-sha256", "0" * 64, "--json")
    assert (checked.code, checked.error) == (3, "trust_root_not_pinned")


def test_a_successor_follows_and_the_chain_becomes_one_file(pvdm: Run, root_sha256: str) -> None:
    make_successor(pvdm, "--expires", "2099-01-01")
    words = ("keys", "root", "check", "root-1.json", "root-2.json", "--root-sha256", root_sha256)
    assert pvdm(*words, "--out", "roots.json", "--json").json["version"] == 2
    assert pvdm("keys", "root", "check", "roots.json", "--root-sha256", root_sha256, "--json").json["version"] == 2


def test_the_chain_does_not_overwrite_another_file(pvdm: Run, root_sha256: str, tmp_path: Path) -> None:
    (tmp_path / "roots.json").write_text("mine")
    words = ("keys", "root", "check", "root-1.json", "--root-sha256", root_sha256, "--out", "roots.json", "--json")
    refused = pvdm(*words)
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (tmp_path / "roots.json").read_text() == "mine"


def test_a_successor_that_the_old_signers_did_not_sign_is_refused(pvdm: Run, root_sha256: str, tmp_path: Path) -> None:
    (tmp_path / "carol.toml").write_text(key_entry("carol", "root"))
    bob = keys_of(pvdm, "root-1.json")["bob"]["key_id"]
    pvdm("keys", "root", "next", "root-1.json", "--add", "carol.toml", "--remove", bob, "--out", "root-2.draft")
    sign(pvdm, "root-2.draft", "alice", "root-2.alice")
    sign(pvdm, "root-2.alice", "carol", "root-2.json")
    checked = pvdm("keys", "root", "check", "root-1.json", "root-2.json", "--root-sha256", root_sha256, "--json")
    assert (checked.code, checked.error) == (3, "trust_root_unsigned")
    assert "`pvdm keys root sign FILE --key KEY --out NEXT`" in checked.json["error"]["hint"]


def test_a_leaving_signer_signs_the_root_that_no_longer_names_them(pvdm: Run, root_sha256: str, tmp_path: Path) -> None:
    (tmp_path / "carol.toml").write_text(key_entry("carol", "root"))
    bob = keys_of(pvdm, "root-1.json")["bob"]["key_id"]
    pvdm("keys", "root", "next", "root-1.json", "--add", "carol.toml", "--remove", bob, "--out", "root-2.draft")
    sign(pvdm, "root-2.draft", "alice", "a")
    sign(pvdm, "a", "carol", "b")
    assert sign(pvdm, "b", "bob", "c").error == "root_signer_unknown"
    assert sign(pvdm, "b", "bob", "root-2.json", "--previous", "root-1.json").code == 0
    checked = pvdm("keys", "root", "check", "root-1.json", "root-2.json", "--root-sha256", root_sha256, "--json")
    assert (checked.code, checked.json["version"]) == (0, 2)


def test_a_key_is_revoked_by_the_first_digits_of_its_id(pvdm: Run, root_sha256: str) -> None:
    notary = keys_of(pvdm, "root-1.json")["notary-a"]
    assert notary["revoked_at"] is None
    make_successor(pvdm, "--revoke", notary["key_id"][:8])
    assert keys_of(pvdm, "root-2.json")["notary-a"]["revoked_at"] is not None


def test_a_key_may_be_removed_by_two_of_its_names(pvdm: Run, root_sha256: str) -> None:
    key_id = keys_of(pvdm, "root-1.json")["log.example"]["key_id"]
    make_successor(pvdm, "--remove", key_id, "--remove", key_id[:8])
    assert "log.example" not in keys_of(pvdm, "root-2.json")


def test_the_validity_of_a_key_is_extended_to_the_given_time(pvdm: Run, root_sha256: str) -> None:
    notary = keys_of(pvdm, "root-1.json")["notary-a"]["key_id"]
    make_successor(pvdm, "--extend", f"{notary}=2099-01-01")
    assert keys_of(pvdm, "root-2.json")["notary-a"]["valid_until"] == 4_070_908_800_000_000


@pytest.mark.parametrize("digits", [0, 7, 65])
def test_an_unknown_or_too_short_key_id_is_refused(pvdm: Run, root_sha256: str, digits: int) -> None:
    name = (keys_of(pvdm, "root-1.json")["notary-a"]["key_id"] + "0")[:digits]
    refused = pvdm("keys", "root", "next", "root-1.json", "--revoke", name, "--out", "d", "--json")
    assert (refused.code, refused.error) == (2, "root_key_unknown")


def test_a_beginning_that_two_key_ids_share_is_refused() -> None:
    two: Any = SimpleNamespace(version=1, keys=[SimpleNamespace(key_id="ab" * 31 + end) for end in ("cd", "ef")])
    with pytest.raises(InputError) as refused:
        _find_key(two, "ab" * 8)
    assert refused.value.got == "2 keys that begin with abababababababab"


def test_a_successor_of_an_expired_root_is_accepted(
    pvdm: Run, draft_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = 'valid_until = "900d"'
    signers = key_entry("alice", "root", until) + key_entry("bob", "root", until)
    keys = signers + key_entry("notary-a", "notary", f"{until}\nepochs = [1]")
    (draft_folder / "short.toml").write_text(SPEC.replace("365d", "1d") + keys)
    own_sha256 = pvdm("keys", "root", "new", "short.toml", "--out", "d", "--json").json["sha256"]
    sign(pvdm, "d", "alice", "a")
    sign(pvdm, "a", "bob", "root-1.json")
    later = now_micros() + 48 * 3_600 * 1_000_000
    monkeypatch.setattr("pvdm.cli.common.times._nanos", lambda: later * 1_000)
    assert pvdm("keys", "root", "check", "root-1.json", "--json").error == "trust_root_expired"
    make_successor(pvdm, "--expires", "2099-01-01")
    checked = pvdm("keys", "root", "check", "root-1.json", "root-2.json", "--root-sha256", own_sha256, "--json")
    assert (checked.code, checked.json["version"]) == (0, 2)


@pytest.mark.parametrize(
    "spec",
    [
        "not toml",
        'expires = "365d"',
        'expires = "365d"\nsurprise = 1' + key_entry("alice", "root"),
        'expires = "soon"' + key_entry("alice", "root"),
        'expires = "365d"' + key_entry("alice", "king"),
        'expires = "365d"' + key_entry("alice", "root", "epochs = [true]"),
        'expires = "365d"' + key_entry("alice", "root", "valid_until = 2027-01-01T00:00:00"),
        'expires = "365d"' + key_entry("alice", "root", "surprise = 1"),
        'expires = "365d"\nthresholds = { root = "two" }' + key_entry("alice", "root"),
        'expires = "365d"\nthresholds = { notary = 0 }' + key_entry("alice", "root"),
        key_entry("alice", "root"),
    ],
    ids=[
        "syntax",
        "no-keys",
        "unknown",
        "end",
        "role",
        "epochs",
        "no-zone",
        "unknown-in-key",
        "threshold",
        "zero",
        "no-end",
    ],
)
def test_an_invalid_file_of_keys_is_refused(pvdm: Run, draft_folder: Path, spec: str) -> None:
    (draft_folder / "bad.toml").write_text(spec)
    refused = pvdm("keys", "root", "new", "bad.toml", "--out", "bad.draft", "--json")
    assert (refused.code, refused.error) == (2, "root_spec_invalid")
    assert not (draft_folder / "bad.draft").exists()


def test_a_threshold_that_nobody_can_meet_is_refused(pvdm: Run, draft_folder: Path) -> None:
    entries = key_entry("alice", "root") + key_entry("notary-a", "notary", "epochs = [1]")
    (draft_folder / "bad.toml").write_text(SPEC + entries)
    assert pvdm("keys", "root", "new", "bad.toml", "--out", "d", "--json").error == "trust_root_threshold"


@pytest.mark.parametrize("role", ["notary", "log"])
@pytest.mark.parametrize("more", ["", "epochs = []"])
def test_a_key_of_a_steward_without_its_epochs_is_refused(pvdm: Run, draft_folder: Path, role: str, more: str) -> None:
    (draft_folder / "bad.toml").write_text(SPEC + key_entry("alice", "root") + key_entry("notary-a", role, more))
    refused = pvdm("keys", "root", "new", "bad.toml", "--out", "bad.draft", "--json")
    assert (refused.code, refused.error) == (2, "root_spec_epochs_missing")
    assert "bad.toml: keys[1].epochs" in refused.json["error"]["message"]
    assert not (draft_folder / "bad.draft").exists()


def test_the_error_names_a_file_that_holds_no_public_key(pvdm: Run, draft_folder: Path) -> None:
    (draft_folder / "alice.pem.pub").write_text("hello")
    refused = pvdm("keys", "root", "new", "keys.toml", "--out", "bad.draft", "--json")
    assert (refused.code, refused.error) == (2, "public_key_malformed")
    assert "alice.pem.pub" in refused.json["error"]["message"]


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_file_of_keys_in_place_of_a_trust_root_is_bad_input(pvdm: Run, draft_folder: Path, command: str) -> None:
    for content in (SPEC, "[thresholds]\nroot = 2\n", key_entry("alice", "root").lstrip()):
        (draft_folder / "keys.toml").write_text(content)
        refused = pvdm("keys", "root", command, "keys.toml", "--json")
        assert (refused.code, refused.error) == (2, "file_kind_wrong")
        assert "keys.toml" in refused.json["error"]["message"]


def test_a_draft_does_not_overwrite_another_file(pvdm: Run, draft_folder: Path) -> None:
    before = (draft_folder / "root-1.draft").read_bytes()
    refused = pvdm("keys", "root", "new", "keys.toml", "--out", "root-1.draft", "--json")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (draft_folder / "root-1.draft").read_bytes() == before


def test_a_root_that_was_changed_after_signing_is_refused(pvdm: Run, root_sha256: str, tmp_path: Path) -> None:
    envelope = json.loads((tmp_path / "root-1.json").read_text())
    data = (tmp_path / "root-1.json").read_bytes()
    signature = envelope["signatures"][0]["sig"].encode()
    other = envelope["signatures"][1]["sig"].encode()
    (tmp_path / "bad.json").write_bytes(data.replace(signature, other))
    checked = pvdm("keys", "root", "check", "bad.json", "--root-sha256", root_sha256, "--json")
    assert checked.code == 3
    assert "DOES NOT HOLD" in pvdm("keys", "root", "show", "bad.json").out


# --- the record of seen roots ---


def check_examples(pvdm: Run, file: str, *more: object) -> CommandResult:
    words = ("--root-sha256", ROOT.sha256, "--seen", "seen", "--at", AT, "--json")
    return pvdm("keys", "root", "check", *(EXAMPLES / name for name in file.split()), *words, *more)


def test_an_older_root_than_one_seen_is_refused(pvdm: Run) -> None:
    assert check_examples(pvdm, "trust-root-1.json trust-root-2.json").json["version"] == NEXT_ROOT.version
    again = check_examples(pvdm, "trust-root-1.json")
    assert (again.code, again.error) == (3, "trust_root_rolled_back")


def test_the_same_root_again_is_accepted(pvdm: Run) -> None:
    check_examples(pvdm, "trust-root-1.json")
    assert check_examples(pvdm, "trust-root-1.json").code == 0


def test_the_record_of_seen_roots_is_readable_by_its_owner_only(pvdm: Run, tmp_path: Path) -> None:
    check_examples(pvdm, "trust-root-1.json")
    assert (tmp_path / "seen").stat().st_mode & 0o777 == 0o600


def test_a_root_that_does_not_hold_is_not_remembered(pvdm: Run, tmp_path: Path) -> None:
    assert check_examples(pvdm, "trust-root-2.json").code == 3
    assert not (tmp_path / "seen").exists()


def test_remembering_an_unpinned_root_is_a_usage_error(pvdm: Run, tmp_path: Path) -> None:
    refused = pvdm("keys", "root", "check", EXAMPLES / "trust-root-1.json", "--seen", "seen", "--at", AT, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert not (tmp_path / "seen").exists()


def test_the_record_of_another_root_is_refused(pvdm: Run, root_sha256: str, tmp_path: Path) -> None:
    check_examples(pvdm, "trust-root-1.json")
    mixed = pvdm("keys", "root", "check", "root-1.json", "--root-sha256", root_sha256, "--seen", "seen", "--json")
    assert (mixed.code, mixed.error) == (2, "seen_file_other")


def test_a_trust_root_is_shown_in_words(pvdm: Run) -> None:
    shown = pvdm("keys", "root", "show", EXAMPLES / "trust-root-1.json").out
    assert f"sha256     {ROOT.sha256}" in shown
    assert "break-glass: operator-ruth" in shown
    assert "REVOKED" in shown
    assert "vkey       log.example/orders+" in shown


def test_the_signed_file_is_the_envelope_that_the_library_reads(pvdm: Run, root_sha256: str, tmp_path: Path) -> None:
    data = (tmp_path / "root-1.json").read_bytes()
    envelope = parse_envelope(data, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
    assert (envelope.payload_sha256, envelope.to_bytes()) == (root_sha256, data)
