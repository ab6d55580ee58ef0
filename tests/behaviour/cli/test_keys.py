"""`pvdm keys pair` and `id`: two files, the private one readable by its owner only, and no secret on the screen."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pvdm.trust.keys.pem import open_key_pair, read_public_key
from pvdm.trust.keys.seal import Passphrase
from tests.behaviour.cli.support import Run

PASSPHRASE = "correct horse battery staple"


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256"])
def test_a_pair_signs_what_its_public_file_verifies(pvdm: Run, tmp_path: Path, algorithm: str) -> None:
    assert pvdm("keys", "pair", "alice.pem", "--algorithm", algorithm).code == 0
    public = read_public_key(tmp_path / "alice.pem.pub")
    public.verify(open_key_pair(tmp_path / "alice.pem").sign(b"word"), b"word")
    assert public.algorithm.value == algorithm


def test_the_private_file_is_readable_by_its_owner_only(pvdm: Run, tmp_path: Path) -> None:
    pvdm("keys", "pair", "alice.pem")
    assert (tmp_path / "alice.pem").stat().st_mode & 0o777 == 0o600


def test_the_key_id_is_the_hash_of_the_public_key(pvdm: Run, tmp_path: Path) -> None:
    made = pvdm("keys", "pair", "alice.pem", "--json").json
    public = read_public_key(tmp_path / "alice.pem.pub")
    assert made["key_id"] == hashlib.sha256(public.der).hexdigest()
    assert pvdm("keys", "id", "alice.pem.pub", "--json").json == {
        "key_id": made["key_id"],
        "algorithm": "ed25519",
    }


def test_a_second_pair_under_one_name_is_refused_and_the_first_stays(pvdm: Run, tmp_path: Path) -> None:
    pvdm("keys", "pair", "alice.pem")
    before = (tmp_path / "alice.pem").read_bytes()
    again = pvdm("keys", "pair", "alice.pem", "--json")
    assert (again.code, again.error) == (5, "key_file_exists")
    assert (tmp_path / "alice.pem").read_bytes() == before


def test_no_part_of_the_private_key_is_printed(pvdm: Run, tmp_path: Path) -> None:
    shown = pvdm("keys", "pair", "alice.pem")
    body = "".join((tmp_path / "alice.pem").read_text().splitlines()[1:-1])
    assert body not in shown.out + shown.err


@pytest.mark.parametrize("where", ["file:word", "env:WORD"])
def test_a_passphrase_comes_from_a_file_or_a_variable(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / "word").write_text(f"{PASSPHRASE}\n")
    monkeypatch.setenv("WORD", PASSPHRASE)
    assert pvdm("keys", "pair", "alice.pem", "--passphrase", where, "--json").json["sealed"] is True
    assert b"ENCRYPTED" in (tmp_path / "alice.pem").read_bytes()
    open_key_pair(tmp_path / "alice.pem", Passphrase(PASSPHRASE))


def test_a_passphrase_is_asked_for_twice_on_a_terminal(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.cli.common.passphrases.is_terminal", lambda _: True)
    asked = []

    def prompt(text: str, **options: object) -> str:
        asked.append((text, options["hide_input"], options["confirmation_prompt"]))
        return PASSPHRASE

    monkeypatch.setattr("click.prompt", prompt)
    assert pvdm("keys", "pair", "alice.pem", "--passphrase", "prompt").code == 0
    assert asked == [("passphrase", True, "again")]
    open_key_pair(tmp_path / "alice.pem", Passphrase(PASSPHRASE))


def test_asking_for_a_passphrase_without_a_terminal_is_refused(pvdm: Run) -> None:
    refused = pvdm("keys", "pair", "alice.pem", "--passphrase", "prompt", "--json")
    assert (refused.code, refused.error) == (2, "terminal_missing")


def test_a_passphrase_on_the_command_line_is_refused_and_not_repeated(pvdm: Run, tmp_path: Path) -> None:
    refused = pvdm("keys", "pair", "alice.pem", "--passphrase", "hunter2", "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert "hunter2" not in refused.out + refused.err
    assert not (tmp_path / "alice.pem").exists()


def test_a_passphrase_from_a_variable_that_is_not_set_is_refused(pvdm: Run, tmp_path: Path) -> None:
    refused = pvdm("keys", "pair", "alice.pem", "--passphrase", "env:NOBODY_SET_THIS", "--json")
    assert (refused.code, refused.error) == (2, "passphrase_missing")
    assert not (tmp_path / "alice.pem").exists()


def test_a_passphrase_file_that_is_no_text_is_refused_without_showing_it(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "word").write_bytes(b"\xff\xfesecret")
    refused = pvdm("keys", "pair", "alice.pem", "--passphrase", "file:word", "--json")
    assert (refused.code, refused.error) == (2, "passphrase_invalid")
    assert "secret" not in refused.out + refused.err


def test_the_id_of_a_file_that_is_no_public_key_is_bad_input(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "note.pub").write_text("hello")
    assert pvdm("keys", "id", "note.pub", "--json").error == "public_key_malformed"


def test_a_private_key_in_place_of_a_public_one_is_refused_with_a_hint(pvdm: Run, tmp_path: Path) -> None:
    pvdm("keys", "pair", "alice.pem")
    refused = pvdm("keys", "id", "alice.pem", "--json")
    assert (refused.code, refused.error) == (2, "private_key_given")
    assert "alice.pem.pub" in refused.json["error"]["hint"]


def test_a_key_file_that_is_not_there_is_bad_input(pvdm: Run) -> None:
    refused = pvdm("keys", "id", "nobody.pub", "--json")
    assert (refused.code, refused.error) == (2, "input_not_readable")
