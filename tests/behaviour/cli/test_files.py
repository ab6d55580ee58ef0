"""Output files, times and options of commands: nothing is overwritten, and invalid or ambiguous input is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm.cli.common.files import require_new, write_new
from pvdm.cli.common.times import parse_duration, parse_time, utc
from pvdm.errors import InputError
from pvdm.model.printable import view_json
from pvdm.model.secret import Secret
from tests.behaviour.cli.support import AT, EXAMPLES, Run
from tests.support.for_each import for_each
from tools.proof_kit import NOW, ROOT


def reason_of(error: pytest.ExceptionInfo[InputError]) -> str:
    return error.value.reason


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    assert write_new(tmp_path / "a", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"data"


def test_writing_the_same_data_again_changes_nothing(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"data")
    assert write_new(tmp_path / "a", b"data") is False


def test_writing_other_data_over_a_file_is_refused_and_leaves_no_other_file(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"data")
    with pytest.raises(InputError) as refused:
        write_new(tmp_path / "a", b"other")
    assert reason_of(refused) == "output_exists"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError) as refused:
        require_new(tmp_path / "a")
    assert reason_of(refused) == "output_exists"
    with pytest.raises(InputError):
        write_new(tmp_path / "a", b"data")
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_folder_is_refused_and_not_created(tmp_path: Path) -> None:
    for call in (lambda: require_new(tmp_path / "no" / "a"), lambda: write_new(tmp_path / "no" / "a", b"x")):
        with pytest.raises(InputError) as refused:
            call()
        assert reason_of(refused) == "output_not_writable"
        assert "such" in str(refused.value.got)


def test_a_folder_that_is_not_writable_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests may run as the superuser, who can write everywhere.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError) as refused:
        require_new(tmp_path / "a")
    assert reason_of(refused) == "output_not_writable"


# --- times ---


@pytest.mark.parametrize("text", ["2026-11-14T10:00:00Z", "2026-11-14T11:00:00+01:00", str(NOW)])
def test_several_spellings_of_one_moment_are_equal(text: str) -> None:
    assert parse_time(text) == NOW


def test_a_date_is_its_first_moment_in_utc() -> None:
    assert utc(parse_time("2026-11-14")) == "2026-11-14 00:00:00Z"


@for_each("text", ["1969-12-31", "2300-01-01", "9" * 16, "2026-13-01", "now"])
def test_an_invalid_or_out_of_range_time_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_time(text)
    assert reason_of(refused) == "time_invalid"


@for_each(("text", "seconds"), [("90s", 90), ("30m", 1_800), ("4h", 14_400), ("2d", 172_800)])
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * 1_000_000


@for_each("text", ["", "4", "h", "0h", "-1h", "1w", "1.5h", "1h30m"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_duration(text)
    assert reason_of(refused) == "duration_invalid"


# --- ambiguous or invalid options and files ---

FSCK = ("log", "fsck", "nowhere")


def test_a_pin_that_is_no_hash_is_a_usage_error(pvdm: Run) -> None:
    root = ("--trust-root", EXAMPLES / "trust-root-1.json")
    assert pvdm(*FSCK, *root, "--root-sha256", ROOT.sha256[:-1], "--json").error == "usage"


def test_a_pin_without_a_trust_root_is_a_usage_error(pvdm: Run) -> None:
    assert pvdm(*FSCK, "--root-sha256", ROOT.sha256, "--json").error == "usage"


def test_an_empty_chain_of_roots_is_refused(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "roots.json").write_text("[]")
    refused = pvdm("keys", "root", "check", "roots.json", "--json")
    assert (refused.code, refused.error) == (3, "trust_root_missing")


def test_signing_a_chain_of_several_roots_is_refused(pvdm: Run, tmp_path: Path) -> None:
    data = (EXAMPLES / "trust-root-1.json").read_bytes()
    (tmp_path / "roots.json").write_bytes(b"[" + data + b"," + data + b"]")
    refused = pvdm("keys", "root", "sign", "roots.json", "--key", "k", "--out", "o", "--yes", "--json")
    assert (refused.code, refused.error) == (2, "trust_root_several")


def test_a_trust_root_without_a_log_needs_an_origin(pvdm: Run, tmp_path: Path) -> None:
    for name in ("alice", "notary-a"):
        pvdm("keys", "pair", f"{name}.pem")
    keys = "".join(
        f'[[keys]]\nfile = "{name}.pem.pub"\nidentity = "{name}"\nroles = ["{role}"]\nepochs = [1]\n'
        for name, role in (("alice", "root"), ("notary-a", "notary"))
    )
    (tmp_path / "keys.toml").write_text(f'expires = "9d"\n{keys}')
    pvdm("keys", "root", "new", "keys.toml", "--out", "d")
    pvdm("keys", "root", "sign", "d", "--key", "alice.pem", "--yes", "--out", "root.json")
    refused = pvdm(*FSCK, "--trust-root", "root.json", "--json")
    assert (refused.code, refused.error) == (2, "origin_ambiguous")


def test_a_file_that_is_no_record_of_seen_roots_is_refused(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("{}")
    (tmp_path / "seen").chmod(0o600)
    words = ("--root-sha256", ROOT.sha256, "--seen", "seen", "--at", AT, "--json")
    refused = pvdm("keys", "root", "check", EXAMPLES / "trust-root-1.json", *words)
    assert (refused.code, refused.error) == (2, "document_key_missing")


def test_a_secret_in_a_view_is_an_error() -> None:
    @dataclass(frozen=True)
    class View:
        token: Secret

    with pytest.raises(TypeError):
        view_json(View(Secret(b"secret")))
