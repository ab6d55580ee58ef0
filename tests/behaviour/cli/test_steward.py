"""`pvdm steward` and `pvdm log export`: first start, archive, tokens that are not printed by accident, and restore."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest

from pvdm.cli.common.times import now_micros
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.steward.access import Access
from pvdm.steward.config.steward import load_config
from pvdm.steward.notary import open_notary
from pvdm.steward.restore import restore
from tests.behaviour.cli.support import CommandResult, Run

CONFIG = """
notary = "steward-one"
origin = "steward-one/log"
ledger = "sqlite:///ledger.db"
outside = "outside/checkpoint"

[keys]
home = "file"
path = "keystore"

[service]
port = 0
"""
ROOT = """
expires = "365d"
thresholds = { notary = 1, root = 1 }
[[keys]]
file = "alice.pem.pub"
identity = "alice"
roles = ["root"]
[[keys]]
file = "public/epoch-1.signing.pub"
identity = "steward-one"
roles = ["notary"]
epochs = [1]
[[keys]]
file = "public/epoch-1.log.pub"
identity = "steward-one/log"
roles = ["log"]
epochs = [1]
"""
CONFIGURED = ("--config", "steward.toml")


@pytest.fixture
def steward_folder(pvdm: Run, tmp_path: Path) -> Path:
    """The folder of a new Steward that has no trust root yet; commands run in it."""
    (tmp_path / "steward.toml").write_text(CONFIG)
    (tmp_path / "outside").mkdir()
    result = init(pvdm)
    assert result.code == 0, result.out + result.err
    return tmp_path


def init(pvdm: Run) -> CommandResult:
    return pvdm("steward", "init", *CONFIGURED, "--reason", "first start", "--public", "public", "--json")


def make_root(pvdm: Run, folder: Path) -> str:
    """Make a signed trust root that names the Steward, in `root-1.json`; returns its hash."""
    pvdm("keys", "pair", "alice.pem")
    (folder / "keys.toml").write_text(ROOT)
    pvdm("keys", "root", "new", "keys.toml", "--out", "root-1.draft")
    words = ("--key", "alice.pem", "--yes", "--out", "root-1.json", "--json")
    return str(pvdm("keys", "root", "sign", "root-1.draft", *words).json["sha256"])


def test_a_new_steward_has_keys_a_log_and_its_public_keys_as_files(pvdm: Run, steward_folder: Path) -> None:
    public_keys = sorted(path.name for path in (steward_folder / "public").iterdir())
    assert public_keys == ["epoch-1.log.pub", "epoch-1.signing.pub"]
    assert (steward_folder / "keystore").stat().st_mode & 0o777 == 0o600
    assert (steward_folder / "outside" / "checkpoint").read_text().startswith("steward-one/log\n")


def test_a_second_init_changes_nothing(pvdm: Run, steward_folder: Path) -> None:
    before = (steward_folder / "keystore").read_bytes()
    again = init(pvdm)
    assert (again.code, len(again.json["keys"])) == (0, 2)
    assert (steward_folder / "keystore").read_bytes() == before


def test_public_keys_can_be_written_again_there_and_elsewhere(pvdm: Run, steward_folder: Path) -> None:
    assert pvdm("steward", "public", "public", *CONFIGURED).code == 0
    shown = pvdm("steward", "public", "elsewhere", *CONFIGURED, "--json").json
    assert [key["role"] for key in shown["keys"]] == ["signing", "log"]
    first, again = (steward_folder / folder / "epoch-1.log.pub" for folder in ("public", "elsewhere"))
    assert again.read_bytes() == first.read_bytes()


def test_an_incomplete_configuration_is_bad_input(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "steward.toml").write_text(CONFIG.replace('notary = "steward-one"', ""))
    refused = init(pvdm)
    assert (refused.code, refused.error) == (2, "config_invalid")


def test_a_first_start_without_its_passphrase_file_is_refused_with_a_hint_to_create_it(
    pvdm: Run, tmp_path: Path
) -> None:
    sealed = CONFIG.replace('path = "keystore"', 'path = "keystore"\npassphrase_file = "keystore.pass"')
    (tmp_path / "steward.toml").write_text(sealed)
    (tmp_path / "outside").mkdir()
    refused = init(pvdm)
    assert (refused.code, refused.error) == (7, "key_file_missing")
    assert "create it with one line and mode 0600" in refused.json["error"]["hint"]


def test_the_first_trust_root_needs_its_pin(pvdm: Run, steward_folder: Path) -> None:
    pin = make_root(pvdm, steward_folder)
    refused = pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (2, "trust_root_pin_missing")
    words = ("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin, "--json")
    assert (pvdm(*words).json["version"], pvdm(*words).json["version"]) == (1, 1)


def test_an_exported_log_passes_fsck(pvdm: Run, steward_folder: Path) -> None:
    pin = make_root(pvdm, steward_folder)
    pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin)
    first = pvdm("log", "export", "archive", *CONFIGURED, "--json").json
    assert first["size"] > 0
    assert pvdm("log", "export", "archive", *CONFIGURED, "--json").json["statements_written"] == 0
    trust = ("--trust-root", "root-1.json", "--root-sha256", pin)
    checked = pvdm("log", "fsck", "archive", *trust, "--json")
    assert (checked.code, checked.json["size"]) == (0, first["size"])
    assert checked.json["statements"] == {"checked": str(first["size"]), "entries_without": "0"}
    assert pvdm("log", "prove", "--envelope", "root-1.json", "--folder", "archive", *trust, "--json").code == 0


def test_fsck_refuses_an_archive_with_a_lost_or_changed_statement(pvdm: Run, steward_folder: Path) -> None:
    vkey = next(key["vkey"] for key in init(pvdm).json["keys"] if key["role"] == "log")
    pvdm("log", "export", "archive", *CONFIGURED)
    first, *_ = sorted((steward_folder / "archive" / "statements").glob("*/*.json"))
    kept = first.read_bytes()
    first.unlink()
    lost = pvdm("log", "fsck", "archive", "--vkey", vkey, "--json")
    assert (lost.code, lost.error) == (3, "archive_statements_missing")
    allowed = pvdm("log", "fsck", "archive", "--vkey", vkey, "--allow-missing-statements", "--json")
    assert (allowed.code, allowed.json["statements"]["entries_without"]) == (0, "1")
    first.write_bytes(kept + b" ")
    refused = pvdm("log", "fsck", "archive", "--vkey", vkey, "--json")
    assert (refused.code, refused.error) == (3, "archive_damaged")


def test_an_export_with_verify_writes_a_lost_statement_again(pvdm: Run, steward_folder: Path) -> None:
    vkey = next(key["vkey"] for key in init(pvdm).json["keys"] if key["role"] == "log")
    first = pvdm("log", "export", "archive", *CONFIGURED, "--verify", "--json").json
    assert (first["verified"], first["mended"]) == (True, {"tiles": 0, "statements": 0})
    statement, *_ = sorted((steward_folder / "archive" / "statements").glob("*/*.json"))
    statement.unlink()
    assert pvdm("log", "export", "archive", *CONFIGURED, "--json").json["mended"] is None
    mended = pvdm("log", "export", "archive", *CONFIGURED, "--verify", "--json").json["mended"]
    assert mended == {"tiles": 0, "statements": 1}
    assert pvdm("log", "fsck", "archive", "--vkey", vkey).code == 0
    assert "written again: 0 tiles, 0 statements" in pvdm("log", "export", "archive", *CONFIGURED, "--verify").out


def test_an_export_with_verify_refuses_a_changed_statement(pvdm: Run, steward_folder: Path) -> None:
    pvdm("log", "export", "archive", *CONFIGURED)
    statement, *_ = sorted((steward_folder / "archive" / "statements").glob("*/*.json"))
    statement.write_bytes(statement.read_bytes() + b" ")
    assert pvdm("log", "export", "archive", *CONFIGURED, "--json").code == 0
    refused = pvdm("log", "export", "archive", *CONFIGURED, "--verify", "--json")
    assert (refused.code, refused.error) == (3, "archive_damaged")


def test_a_damaged_tile_is_refused_by_the_next_export(pvdm: Run, steward_folder: Path) -> None:
    pvdm("log", "export", "archive", *CONFIGURED)
    tile, *_ = (steward_folder / "archive" / "log" / "tile" / "0" / "000.p").iterdir()
    tile.write_bytes(b"x" * tile.stat().st_size)
    refused = pvdm("log", "export", "archive", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (3, "export_conflict")


# --- a lost keystore ---


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("gone", ["nothing", "ledger", "outside"])
def test_a_steward_that_lost_its_keystore_gets_no_new_keys(pvdm: Run, steward_folder: Path, gone: str) -> None:
    (steward_folder / "keystore").unlink()
    files: dict[str, list[Path]] = {
        "nothing": [],
        "ledger": [*steward_folder.glob("ledger.db*")],
        "outside": [steward_folder / "outside" / "checkpoint"],
    }
    for path in files[gone]:
        path.unlink()
    before = files_below(steward_folder)
    refused = init(pvdm)
    assert (refused.code, refused.error) == (7, "keystore_lost")
    after = files_below(steward_folder)
    assert {name: after.get(name) for name in before if "ledger.db-" not in name} == {
        name: data for name, data in before.items() if "ledger.db-" not in name
    }
    assert not (steward_folder / "keystore").exists()
    assert (steward_folder / "ledger.db").exists() is (gone != "ledger")


RESTORE = ("restore", "--operator", "ruth", "--reason", "disk failed", "--archive", "archive", "--yes")


@pytest.mark.parametrize("words", [("init", "--reason", "again"), ("token", "list"), RESTORE], ids=lambda each: each[0])
def test_a_steward_whose_ledger_is_misspelled_creates_none(
    pvdm: Run, steward_folder: Path, words: tuple[str, ...]
) -> None:
    (steward_folder / "steward.toml").write_text(CONFIG.replace("ledger.db", "leger.db"))
    before = files_below(steward_folder)
    refused = pvdm("steward", *words, *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (7, "ledger_lost")
    error = refused.json["error"]
    assert error["expected"] == f"the ledger {steward_folder / 'leger.db'}"
    assert error["hint"].index("spelling") < error["hint"].index("pvdm steward restore")
    assert files_below(steward_folder) == before


def test_a_keystore_that_is_put_back_is_used(pvdm: Run, steward_folder: Path) -> None:
    (steward_folder / "keystore").rename(steward_folder / "away")
    assert init(pvdm).error == "keystore_lost"
    (steward_folder / "away").rename(steward_folder / "keystore")
    assert init(pvdm).code == 0


# --- tokens ---


def issue(pvdm: Run, *more: object, out: str = "ruth.token") -> CommandResult:
    words = ("--role", "operator", "--name", "ruth", "--out", out, "--json")
    return pvdm("steward", "token", "issue", *CONFIGURED, *words, *more)


def test_a_token_is_written_for_its_bearer_only_and_not_shown(pvdm: Run, steward_folder: Path) -> None:
    issued = issue(pvdm)
    text = (steward_folder / "ruth.token").read_text()
    assert (steward_folder / "ruth.token").stat().st_mode & 0o777 == 0o600
    assert text.startswith("pvdm_")
    assert text not in issued.out + issued.err


def test_a_token_is_stored_as_its_hash_only(pvdm: Run, steward_folder: Path) -> None:
    issue(pvdm)
    text = (steward_folder / "ruth.token").read_text().encode()
    assert all(text not in path.read_bytes() for path in steward_folder.glob("ledger.db*"))


def test_an_issued_token_authenticates_its_bearer(pvdm: Run, steward_folder: Path) -> None:
    issued = issue(pvdm, "--domain", "sales").json
    notary = open_notary(load_config(steward_folder / "steward.toml"))
    try:
        grant = notary.access.authenticate((steward_folder / "ruth.token").read_text())
    finally:
        notary.close()
    assert (grant.token_id, grant.role, grant.domain, grant.name) == (
        issued["token_id"],
        Role.OPERATOR,
        "sales",
        "ruth",
    )


def test_without_a_file_a_token_needs_a_terminal(pvdm: Run, steward_folder: Path) -> None:
    words = ("steward", "token", "issue", *CONFIGURED, "--role", "operator", "--name", "ruth")
    assert pvdm(*words).code == 2
    assert pvdm(*words, "--json").error == "terminal_missing"
    assert pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"] == []


def test_on_a_terminal_a_token_is_shown_once(pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.cli.steward.tokens.is_terminal", lambda _: True)
    shown = pvdm("steward", "token", "issue", *CONFIGURED, "--role", "operator", "--name", "ruth").out
    assert sum(line.startswith("pvdm_") for line in shown.splitlines()) == 1


def test_a_token_whose_file_cannot_be_written_is_not_issued(pvdm: Run, steward_folder: Path) -> None:
    (steward_folder / "ruth.token").write_text("mine")
    assert issue(pvdm).error == "output_exists"
    assert issue(pvdm, out="nowhere/ruth.token").error == "output_not_writable"
    assert pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"] == []


def test_a_token_whose_file_fails_at_the_last_moment_is_not_issued(
    pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (steward_folder / "ruth.token").write_text("mine")
    monkeypatch.setattr("pvdm.cli.steward.tokens.require_new", lambda _: None)
    assert issue(pvdm).code == 5
    assert pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"] == []
    assert (steward_folder / "ruth.token").read_text() == "mine"


def test_a_token_that_is_not_issued_leaves_no_file(pvdm: Run, steward_folder: Path) -> None:
    refused = pvdm("steward", "token", "rotate", "ab" * 16, *CONFIGURED, "--out", "new.token", "--json")
    assert (refused.code, refused.error) == (2, "token_unknown")
    assert not (steward_folder / "new.token").exists()


def test_a_rotation_whose_file_fails_leaves_the_old_token_as_it_was(
    pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = issue(pvdm).json["token_id"]
    monkeypatch.setattr("pvdm.cli.steward.tokens.require_new", lambda _: None)
    assert pvdm("steward", "token", "rotate", old, *CONFIGURED, "--out", "ruth.token", "--json").code == 5
    (token,) = pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"]
    assert (token["token_id"], token["replaced_at"], token["revoked_at"]) == (old, None, None)


def test_a_revoked_token_is_shown_as_such(pvdm: Run, steward_folder: Path) -> None:
    token_id = issue(pvdm).json["token_id"]
    for _ in range(2):
        assert pvdm("steward", "token", "revoke", token_id, *CONFIGURED, "--json").json["revoked_at"] is not None
    assert f"{token_id}  operator  ruth, every domain  revoked" in pvdm("steward", "token", "list", *CONFIGURED).out


def test_a_rotated_token_stays_valid_for_the_overlap(pvdm: Run, steward_folder: Path) -> None:
    old = issue(pvdm).json["token_id"]
    words = ("--overlap", "1h", "--out", "new.token", "--json")
    new = pvdm("steward", "token", "rotate", old, *CONFIGURED, *words).json["token_id"]
    tokens = {
        token["token_id"]: token for token in pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"]
    }
    assert tokens[old]["replaced_at"] > now_micros()
    assert (tokens[old]["successor_id"], tokens[old]["revoked_at"]) == (new, None)
    assert (tokens[new]["replaced_at"], tokens[new]["revoked_at"]) == (None, None)
    assert (steward_folder / "new.token").read_text() != (steward_folder / "ruth.token").read_text()


def test_the_successor_of_a_token_has_the_same_lifetime_unless_another_is_given(
    pvdm: Run, steward_folder: Path
) -> None:
    old = issue(pvdm, "--lifetime", "7d").json
    rotate = ("steward", "token", "rotate", old["token_id"], *CONFIGURED, "--json")
    same = pvdm(*rotate, "--out", "same.token").json
    other = pvdm(*rotate, "--lifetime", "1d", "--out", "other.token").json
    assert 0 <= same["expires_at"] - old["expires_at"] < 3_600 * 10**6
    assert other["expires_at"] < old["expires_at"] - 5 * 86_400 * 10**6


def test_a_replaced_token_is_shown_with_its_successor(
    pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = issue(pvdm).json["token_id"]
    words = ("--overlap", "1s", "--out", "new.token", "--json")
    new = pvdm("steward", "token", "rotate", old, *CONFIGURED, *words).json["token_id"]
    later = now_micros() + 2 * 10**6
    monkeypatch.setattr("pvdm.cli.steward.tokens.now_micros", lambda: later)
    shown = pvdm("steward", "token", "list", *CONFIGURED).out
    assert f"{old}  operator  ruth, every domain  replaced by {new}" in shown


@pytest.mark.parametrize("text", ["ru\x1b[2Jth", "ruth\nroot", "\u202eruth", " ", ""])
@pytest.mark.parametrize("option", ["--name", "--domain"])
def test_a_name_or_domain_with_control_characters_or_blank_gets_no_token(
    pvdm: Run, steward_folder: Path, option: str, text: str
) -> None:
    refused = issue(pvdm, option, text)
    assert (refused.code, refused.error) == (2, "token_name_invalid")
    assert not (steward_folder / "ruth.token").exists()


def test_control_characters_in_stored_names_are_escaped_in_the_output(
    pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = Grant("ab" * 16, Role.OPERATOR, "sa\x1bles", "ru\nth", 2**52)
    monkeypatch.setattr(Access, "list_tokens", lambda _: [grant])
    monkeypatch.setattr(Access, "revoke", lambda _, __: grant)
    shown = pvdm("steward", "token", "list", *CONFIGURED).out
    assert "operator  ru\\nth, domain sa\\x1bles  valid until" in shown
    assert pvdm("steward", "token", "revoke", "ab" * 16, *CONFIGURED).out == f"revoked: token {'ab' * 16} of ru\\nth\n"


def test_derived_tokens_are_listed_only_with_all(
    pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruth = Grant("ab" * 16, Role.OPERATOR, "*", "ruth", 2**52)
    job = Grant("cd" * 16, Role.PRODUCER, "sales", "nightly", 2**52)
    derived = Grant("ef" * 16, Role.PRODUCER, "sales", "nightly", 2**52, "12" * 16, parent_id="cd" * 16)
    monkeypatch.setattr(Access, "list_tokens", lambda _: [ruth, job, derived])
    words = ("steward", "token", "list", *CONFIGURED)

    def ids(*more: str) -> list[str]:
        return [each["token_id"] for each in pvdm(*words, *more, "--json").json["tokens"]]

    assert ids() == [ruth.token_id, job.token_id]
    assert ids("--all") == [ruth.token_id, job.token_id, derived.token_id]
    assert ids("--name", "nightly") == [job.token_id]
    assert ids("--name", "nightly", "--all") == [job.token_id, derived.token_id]
    assert "1 derived token not shown; --all shows them\n" in pvdm(*words).out
    assert "not shown" not in pvdm(*words, "--all").out


def test_too_long_a_lifetime_is_refused_in_the_units_that_were_typed(pvdm: Run, steward_folder: Path) -> None:
    refused = issue(pvdm, "--lifetime", "366d")
    assert (refused.code, refused.error) == (2, "token_lifetime_invalid")
    assert refused.json["error"]["message"].endswith("expected at most 365d, got 366d")
    assert not (steward_folder / "ruth.token").exists()


def test_an_unknown_token_cannot_be_revoked(pvdm: Run, steward_folder: Path) -> None:
    assert pvdm("steward", "token", "revoke", "nobody", *CONFIGURED, "--json").code == 2


# --- restore ---


def put_back_old_backup(pvdm: Run, folder: Path) -> str:
    """Submit a trust root, export the archive, and put back a backup from before; returns the root's hash."""
    pin = make_root(pvdm, folder)
    shutil.copy(folder / "ledger.db", folder / "backup.db")
    pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin)
    pvdm("log", "export", "archive", *CONFIGURED)
    for left in folder.glob("ledger.db*"):
        left.unlink()
    shutil.copy(folder / "backup.db", folder / "ledger.db")
    return pin


BY = ("--operator", "ruth", "--reason", "disk failed")


def test_a_backup_does_not_start_until_it_is_restored(pvdm: Run, steward_folder: Path) -> None:
    put_back_old_backup(pvdm, steward_folder)
    refused = pvdm("steward", "token", "list", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (3, "log_behind_checkpoint")
    result = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive", "--json")
    assert result.code == 0, result.out
    assert (result.json["refilled"], result.json["lost"], result.json["new_epoch"]) == ("1", "0", "2")
    assert pvdm("steward", "token", "list", *CONFIGURED).code == 0


def test_a_backup_without_its_archive_is_refused(pvdm: Run, steward_folder: Path) -> None:
    put_back_old_backup(pvdm, steward_folder)
    refused = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--json")
    assert (refused.code, refused.error) == (3, "restore_entries_missing")


def test_a_restore_under_a_new_log_name_shows_lost_entries_loudly(pvdm: Run, steward_folder: Path) -> None:
    put_back_old_backup(pvdm, steward_folder)
    renamed = CONFIG.replace('origin = "steward-one/log"', 'origin = "steward-one/log-2"')
    (steward_folder / "steward.toml").write_text(renamed)
    result = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--lost-origin", "steward-one/log")
    assert result.code == 0, result.err
    assert "*** LOST *** 1 entry" in result.out


def test_a_restore_says_that_tokens_are_revoked_and_must_be_issued_again(pvdm: Run, steward_folder: Path) -> None:
    issue(pvdm)
    put_back_old_backup(pvdm, steward_folder)
    result = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive")
    assert "revoked    1 token" in result.out
    assert "pvdm steward token issue" in result.out
    assert issue(pvdm, out="ruth-2.token").code == 0


def test_a_restore_from_an_archive_without_envelopes_needs_accept_missing(pvdm: Run, steward_folder: Path) -> None:
    put_back_old_backup(pvdm, steward_folder)
    for path in (steward_folder / "archive" / "statements").glob("*/*.json"):
        path.unlink()
    words = ("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive", "--json")
    refused = pvdm(*words)
    assert (refused.code, refused.error) == (3, "restore_envelopes_missing")
    result = pvdm(*words, "--accept-missing")
    assert (result.code, result.json["missing"]) == (0, "1")


def test_a_restore_does_not_confirm_the_clock_without_confirm_clock(
    pvdm: Run, steward_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back_old_backup(pvdm, steward_folder)
    later = functools.partial(restore.restore, wall=lambda: now_micros() + 100 * 86_400 * 1_000_000)
    monkeypatch.setattr(restore, "restore", later)
    words = ("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive", "--json")
    refused = pvdm(*words)
    assert (refused.code, refused.error) == (7, "clock_jumped")
    assert pvdm(*words, "--confirm-clock").code == 0


def test_a_restore_without_yes_changes_nothing(pvdm: Run, steward_folder: Path) -> None:
    before = (steward_folder / "ledger.db").read_bytes()
    refused = pvdm("steward", "restore", *CONFIGURED, *BY, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert (steward_folder / "ledger.db").read_bytes() == before
