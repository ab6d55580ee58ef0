"""`pvdm steward`: from an empty folder to a served, restored Steward, and no token where it can be kept by accident."""

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
from tests.behaviour.cli.support import Ran, Run

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
def made(pvdm: Run, tmp_path: Path) -> Path:
    """A Steward without a trust root."""
    (tmp_path / "steward.toml").write_text(CONFIG)
    (tmp_path / "outside").mkdir()
    done = init(pvdm)
    assert done.code == 0, done.out + done.err
    return tmp_path


def init(pvdm: Run) -> Ran:
    return pvdm("steward", "init", *CONFIGURED, "--reason", "first start", "--public", "public", "--json")


def make_root(pvdm: Run, folder: Path) -> str:
    """A signed trust root that names the Steward, in `root-1.json`; gives its hash."""
    pvdm("keys", "pair", "alice.pem")
    (folder / "keys.toml").write_text(ROOT)
    pvdm("keys", "root", "new", "keys.toml", "--out", "root-1.draft")
    words = ("--key", "alice.pem", "--yes", "--out", "root-1.json", "--json")
    return str(pvdm("keys", "root", "sign", "root-1.draft", *words).json["sha256"])


def test_a_new_steward_has_keys_a_log_and_its_public_keys_as_files(pvdm: Run, made: Path) -> None:
    assert sorted(path.name for path in (made / "public").iterdir()) == ["epoch-1.log.pub", "epoch-1.signing.pub"]
    assert (made / "keystore").stat().st_mode & 0o777 == 0o600
    assert (made / "outside" / "checkpoint").read_text().startswith("steward-one/log\n")


def test_making_it_again_changes_nothing(pvdm: Run, made: Path) -> None:
    before = (made / "keystore").read_bytes()
    again = init(pvdm)
    assert (again.code, len(again.json["keys"])) == (0, 2)
    assert (made / "keystore").read_bytes() == before


def test_public_keys_are_written_again_without_harm(pvdm: Run, made: Path) -> None:
    assert pvdm("steward", "public", "public", *CONFIGURED).code == 0
    shown = pvdm("steward", "public", "elsewhere", *CONFIGURED, "--json").json
    assert [key["role"] for key in shown["keys"]] == ["signing", "log"]
    assert (made / "elsewhere" / "epoch-1.log.pub").read_bytes() == (made / "public" / "epoch-1.log.pub").read_bytes()


def test_a_configuration_that_is_wrong_is_bad_input(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "steward.toml").write_text(CONFIG.replace('notary = "steward-one"', ""))
    refused = init(pvdm)
    assert (refused.code, refused.error) == (2, "config_invalid")


def test_a_first_start_without_its_passphrase_file_says_to_make_one(pvdm: Run, tmp_path: Path) -> None:
    sealed = CONFIG.replace('path = "keystore"', 'path = "keystore"\npassphrase_file = "keystore.pass"')
    (tmp_path / "steward.toml").write_text(sealed)
    (tmp_path / "outside").mkdir()
    refused = init(pvdm)
    assert (refused.code, refused.error) == (7, "key_file_missing")
    assert "create it with one line and mode 0600" in refused.json["error"]["hint"]


def test_a_trust_root_is_handed_in_under_its_pin(pvdm: Run, made: Path) -> None:
    pin = make_root(pvdm, made)
    refused = pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (2, "trust_root_pin_missing")
    words = ("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin, "--json")
    assert (pvdm(*words).json["version"], pvdm(*words).json["version"]) == (1, 1)


def test_a_log_is_exported_and_checks(pvdm: Run, made: Path) -> None:
    pin = make_root(pvdm, made)
    pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin)
    first = pvdm("log", "export", "archive", *CONFIGURED, "--json").json
    assert first["size"] > 0
    assert pvdm("log", "export", "archive", *CONFIGURED, "--json").json["statements_written"] == 0
    trust = ("--trust-root", "root-1.json", "--root-sha256", pin)
    checked = pvdm("log", "fsck", "archive", *trust, "--json")
    assert (checked.code, checked.json["size"]) == (0, first["size"])
    assert checked.json["statements"] == {"checked": str(first["size"]), "entries_without": "0"}
    assert pvdm("log", "prove", "--envelope", "root-1.json", "--folder", "archive", *trust, "--json").code == 0


def test_a_changed_and_a_lost_statement_of_an_archive_are_noticed(pvdm: Run, made: Path) -> None:
    vkey = next(key["vkey"] for key in init(pvdm).json["keys"] if key["role"] == "log")
    pvdm("log", "export", "archive", *CONFIGURED)
    first, *_ = sorted((made / "archive" / "statements").glob("*/*.json"))
    kept = first.read_bytes()
    first.unlink()
    lost = pvdm("log", "fsck", "archive", "--vkey", vkey, "--json")
    assert (lost.code, lost.error) == (3, "archive_statements_missing")
    allowed = pvdm("log", "fsck", "archive", "--vkey", vkey, "--allow-missing-statements", "--json")
    assert (allowed.code, allowed.json["statements"]["entries_without"]) == (0, "1")
    first.write_bytes(kept + b" ")
    refused = pvdm("log", "fsck", "archive", "--vkey", vkey, "--json")
    assert (refused.code, refused.error) == (3, "archive_damaged")


def test_what_an_archive_has_lost_is_written_again_when_all_is_compared(pvdm: Run, made: Path) -> None:
    vkey = next(key["vkey"] for key in init(pvdm).json["keys"] if key["role"] == "log")
    first = pvdm("log", "export", "archive", *CONFIGURED, "--verify", "--json").json
    assert (first["verified"], first["mended"]) == (True, {"tiles": 0, "statements": 0})
    statement, *_ = sorted((made / "archive" / "statements").glob("*/*.json"))
    statement.unlink()
    assert pvdm("log", "export", "archive", *CONFIGURED, "--json").json["mended"] is None
    mended = pvdm("log", "export", "archive", *CONFIGURED, "--verify", "--json").json["mended"]
    assert mended == {"tiles": 0, "statements": 1}
    assert pvdm("log", "fsck", "archive", "--vkey", vkey).code == 0
    assert "written again: 0 tiles, 0 statements" in pvdm("log", "export", "archive", *CONFIGURED, "--verify").out


def test_a_changed_statement_is_refused_when_all_is_compared(pvdm: Run, made: Path) -> None:
    pvdm("log", "export", "archive", *CONFIGURED)
    statement, *_ = sorted((made / "archive" / "statements").glob("*/*.json"))
    statement.write_bytes(statement.read_bytes() + b" ")
    assert pvdm("log", "export", "archive", *CONFIGURED, "--json").code == 0
    refused = pvdm("log", "export", "archive", *CONFIGURED, "--verify", "--json")
    assert (refused.code, refused.error) == (3, "archive_damaged")


def test_a_damaged_tile_is_refused_by_the_next_export(pvdm: Run, made: Path) -> None:
    pvdm("log", "export", "archive", *CONFIGURED)
    tile, *_ = (made / "archive" / "log" / "tile" / "0" / "000.p").iterdir()
    tile.write_bytes(b"x" * tile.stat().st_size)
    refused = pvdm("log", "export", "archive", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (3, "export_conflict")


# --- a lost keystore ---


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("gone", ["nothing", "ledger", "outside"])
def test_a_steward_that_lost_its_keystore_gets_no_new_keys(pvdm: Run, made: Path, gone: str) -> None:
    (made / "keystore").unlink()
    for path in [*made.glob("ledger.db*")] if gone == "ledger" else [made / "outside" / "checkpoint"]:
        if gone != "nothing":
            path.unlink()
    before = everything(made)
    refused = init(pvdm)
    assert (refused.code, refused.error) == (7, "keystore_lost")
    after = everything(made)
    assert {name: after.get(name) for name in before if "ledger.db-" not in name} == {
        name: data for name, data in before.items() if "ledger.db-" not in name
    }
    assert not (made / "keystore").exists()
    assert (made / "ledger.db").exists() is (gone != "ledger")


def test_a_keystore_that_came_back_is_used(pvdm: Run, made: Path) -> None:
    (made / "keystore").rename(made / "away")
    assert init(pvdm).error == "keystore_lost"
    (made / "away").rename(made / "keystore")
    assert init(pvdm).code == 0


# --- tokens ---


def issue(pvdm: Run, *more: object, out: str = "ruth.token") -> Ran:
    words = ("--role", "operator", "--name", "ruth", "--out", out, "--json")
    return pvdm("steward", "token", "issue", *CONFIGURED, *words, *more)


def test_a_token_is_written_for_its_bearer_only_and_not_shown(pvdm: Run, made: Path) -> None:
    issued = issue(pvdm)
    text = (made / "ruth.token").read_text()
    assert (made / "ruth.token").stat().st_mode & 0o777 == 0o600
    assert text.startswith("pvdm_")
    assert text not in issued.out + issued.err


def test_a_token_is_stored_as_its_hash_only(pvdm: Run, made: Path) -> None:
    issue(pvdm)
    text = (made / "ruth.token").read_text().encode()
    assert all(text not in path.read_bytes() for path in made.glob("ledger.db*"))


def test_an_issued_token_opens_the_door(pvdm: Run, made: Path) -> None:
    issued = issue(pvdm, "--domain", "sales").json
    notary = open_notary(load_config(made / "steward.toml"))
    try:
        grant = notary.access.authenticate((made / "ruth.token").read_text())
    finally:
        notary.close()
    assert (grant.token_id, grant.role, grant.domain, grant.name) == (
        issued["token_id"],
        Role.OPERATOR,
        "sales",
        "ruth",
    )


def test_without_a_file_a_token_needs_a_terminal(pvdm: Run, made: Path) -> None:
    words = ("steward", "token", "issue", *CONFIGURED, "--role", "operator", "--name", "ruth")
    assert pvdm(*words).code == 2
    assert pvdm(*words, "--json").error == "terminal_missing"
    assert pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"] == []


def test_on_a_terminal_a_token_is_shown_once(pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.cli.steward.tokens.is_terminal", lambda _: True)
    shown = pvdm("steward", "token", "issue", *CONFIGURED, "--role", "operator", "--name", "ruth").out
    assert sum(line.startswith("pvdm_") for line in shown.splitlines()) == 1


def test_a_token_is_not_issued_where_its_file_cannot_be_written(pvdm: Run, made: Path) -> None:
    (made / "ruth.token").write_text("mine")
    assert issue(pvdm).error == "output_exists"
    assert issue(pvdm, out="nowhere/ruth.token").error == "output_not_writable"
    assert pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"] == []


def test_a_token_whose_file_fails_at_the_last_moment_is_not_issued(
    pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made / "ruth.token").write_text("mine")
    monkeypatch.setattr("pvdm.cli.steward.tokens.require_new", lambda _: None)
    assert issue(pvdm).code == 5
    assert pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"] == []
    assert (made / "ruth.token").read_text() == "mine"


def test_a_token_that_is_not_issued_leaves_no_file(pvdm: Run, made: Path) -> None:
    refused = pvdm("steward", "token", "rotate", "ab" * 16, *CONFIGURED, "--out", "new.token", "--json")
    assert (refused.code, refused.error) == (2, "token_unknown")
    assert not (made / "new.token").exists()


def test_a_rotation_whose_file_fails_leaves_the_old_token_as_it_was(
    pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = issue(pvdm).json["token_id"]
    monkeypatch.setattr("pvdm.cli.steward.tokens.require_new", lambda _: None)
    assert pvdm("steward", "token", "rotate", old, *CONFIGURED, "--out", "ruth.token", "--json").code == 5
    (token,) = pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"]
    assert (token["token_id"], token["replaced_at"], token["revoked_at"]) == (old, None, None)


def test_a_revoked_token_is_shown_as_such(pvdm: Run, made: Path) -> None:
    token_id = issue(pvdm).json["token_id"]
    for _ in range(2):
        assert pvdm("steward", "token", "revoke", token_id, *CONFIGURED, "--json").json["revoked_at"] is not None
    assert f"{token_id}  operator  ruth, every domain  revoked" in pvdm("steward", "token", "list", *CONFIGURED).out


def test_a_rotated_token_stays_good_for_the_overlap(pvdm: Run, made: Path) -> None:
    old = issue(pvdm).json["token_id"]
    words = ("--overlap", "1h", "--out", "new.token", "--json")
    new = pvdm("steward", "token", "rotate", old, *CONFIGURED, *words).json["token_id"]
    tokens = {
        token["token_id"]: token for token in pvdm("steward", "token", "list", *CONFIGURED, "--json").json["tokens"]
    }
    assert tokens[old]["replaced_at"] > now_micros()
    assert (tokens[old]["successor_id"], tokens[old]["revoked_at"]) == (new, None)
    assert (tokens[new]["replaced_at"], tokens[new]["revoked_at"]) == (None, None)
    assert (made / "new.token").read_text() != (made / "ruth.token").read_text()


def test_a_token_rotates_into_one_of_the_same_life_unless_another_is_asked_for(pvdm: Run, made: Path) -> None:
    old = issue(pvdm, "--lifetime", "7d").json
    rotate = ("steward", "token", "rotate", old["token_id"], *CONFIGURED, "--json")
    same = pvdm(*rotate, "--out", "same.token").json
    other = pvdm(*rotate, "--lifetime", "1d", "--out", "other.token").json
    assert 0 <= same["expires_at"] - old["expires_at"] < 3_600 * 10**6
    assert other["expires_at"] < old["expires_at"] - 5 * 86_400 * 10**6


def test_a_replaced_token_is_shown_with_its_successor(pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = issue(pvdm).json["token_id"]
    words = ("--overlap", "1s", "--out", "new.token", "--json")
    new = pvdm("steward", "token", "rotate", old, *CONFIGURED, *words).json["token_id"]
    later = now_micros() + 2 * 10**6
    monkeypatch.setattr("pvdm.cli.steward.tokens.now_micros", lambda: later)
    shown = pvdm("steward", "token", "list", *CONFIGURED).out
    assert f"{old}  operator  ruth, every domain  replaced by {new}" in shown


@pytest.mark.parametrize("text", ["ru\x1b[2Jth", "ruth\nroot", "\u202eruth", " ", ""])
@pytest.mark.parametrize("option", ["--name", "--domain"])
def test_a_name_that_could_steer_a_terminal_gets_no_token(pvdm: Run, made: Path, option: str, text: str) -> None:
    refused = issue(pvdm, option, text)
    assert (refused.code, refused.error) == (2, "token_name_invalid")
    assert not (made / "ruth.token").exists()


def test_a_name_that_was_stored_otherwise_is_listed_without_its_control_characters(
    pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = Grant("ab" * 16, Role.OPERATOR, "sa\x1bles", "ru\nth", 2**52)
    monkeypatch.setattr(Access, "list_tokens", lambda _: [grant])
    monkeypatch.setattr(Access, "revoke", lambda _, __: grant)
    shown = pvdm("steward", "token", "list", *CONFIGURED).out
    assert "operator  ru\\nth, domain sa\\x1bles  valid until" in shown
    assert pvdm("steward", "token", "revoke", "ab" * 16, *CONFIGURED).out == f"revoked: token {'ab' * 16} of ru\\nth\n"


def test_derived_tokens_are_listed_only_where_all_are_asked_for(
    pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch
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


def test_a_token_for_too_long_is_refused_in_the_units_that_were_typed(pvdm: Run, made: Path) -> None:
    refused = issue(pvdm, "--lifetime", "366d")
    assert (refused.code, refused.error) == (2, "token_lifetime_invalid")
    assert refused.json["error"]["message"].endswith("expected at most 365d, got 366d")
    assert not (made / "ruth.token").exists()


def test_an_unknown_token_cannot_be_revoked(pvdm: Run, made: Path) -> None:
    assert pvdm("steward", "token", "revoke", "nobody", *CONFIGURED, "--json").code == 2


# --- restore ---


def backed_up(pvdm: Run, folder: Path) -> str:
    """A Steward with a trust root, an old backup of its ledger in place, and an archive of all that came after it."""
    pin = make_root(pvdm, folder)
    shutil.copy(folder / "ledger.db", folder / "backup.db")
    pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin)
    pvdm("log", "export", "archive", *CONFIGURED)
    for left in folder.glob("ledger.db*"):
        left.unlink()
    shutil.copy(folder / "backup.db", folder / "ledger.db")
    return pin


BY = ("--operator", "ruth", "--reason", "disk failed")


def test_a_backup_does_not_start_until_it_is_restored(pvdm: Run, made: Path) -> None:
    backed_up(pvdm, made)
    refused = pvdm("steward", "token", "list", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (3, "log_behind_checkpoint")
    done = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive", "--json")
    assert done.code == 0, done.out
    assert (done.json["refilled"], done.json["lost"], done.json["new_epoch"]) == ("1", "0", "2")
    assert pvdm("steward", "token", "list", *CONFIGURED).code == 0


def test_a_backup_without_its_archive_is_refused(pvdm: Run, made: Path) -> None:
    backed_up(pvdm, made)
    refused = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--json")
    assert (refused.code, refused.error) == (3, "restore_entries_missing")


def test_what_is_lost_is_given_up_under_a_new_name_and_said_loudly(pvdm: Run, made: Path) -> None:
    backed_up(pvdm, made)
    (made / "steward.toml").write_text(CONFIG.replace('origin = "steward-one/log"', 'origin = "steward-one/log-2"'))
    done = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--lost-origin", "steward-one/log")
    assert done.code == 0, done.err
    assert "*** LOST *** 1 entry" in done.out


def test_a_restore_says_that_tokens_have_to_be_issued_anew(pvdm: Run, made: Path) -> None:
    issue(pvdm)
    backed_up(pvdm, made)
    done = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive")
    assert "revoked    1 token" in done.out
    assert "pvdm steward token issue" in done.out
    assert issue(pvdm, out="ruth-2.token").code == 0


def test_envelopes_that_an_archive_lacks_are_missed_only_by_saying_so(pvdm: Run, made: Path) -> None:
    backed_up(pvdm, made)
    for path in (made / "archive" / "statements").glob("*/*.json"):
        path.unlink()
    words = ("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive", "--json")
    refused = pvdm(*words)
    assert (refused.code, refused.error) == (3, "restore_envelopes_missing")
    done = pvdm(*words, "--accept-missing")
    assert (done.code, done.json["missing"]) == (0, "1")


def test_a_restore_does_not_confirm_the_clock_unless_it_is_told_to(
    pvdm: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(pvdm, made)
    later = functools.partial(restore.restore, wall=lambda: now_micros() + 100 * 86_400 * 1_000_000)
    monkeypatch.setattr(restore, "restore", later)
    words = ("steward", "restore", "--yes", *CONFIGURED, *BY, "--archive", "archive", "--json")
    refused = pvdm(*words)
    assert (refused.code, refused.error) == (7, "clock_jumped")
    assert pvdm(*words, "--confirm-clock").code == 0


def test_a_restore_without_a_yes_does_nothing(pvdm: Run, made: Path) -> None:
    before = (made / "ledger.db").read_bytes()
    refused = pvdm("steward", "restore", *CONFIGURED, *BY, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert (made / "ledger.db").read_bytes() == before
