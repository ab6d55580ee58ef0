"""`pvdm log fsck`, `compare` and `prove` on files: damage, forks and checkpoints under unknown keys are refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pvdm.model.statements.kind import StatementKind
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.export import export
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof import parse_log_proof, verify_log_proof
from tests.behaviour.cli.support import AT, EXAMPLES, CommandResult, Run
from tests.support.ledger.log_storage import KEY, ORIGIN, MemorySigner, entries, filled_log, log_grown_to, open_log
from tools.proof_kit import ROOT, SIGNERS

VKEY = ("--vkey", KEY.to_vkey())


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A log of 300 entries."""
    folder = tmp_path / "exported"
    export(filled_log(300)[0], folder)
    return folder


# --- fsck ---


def test_an_intact_log_passes(pvdm: Run, exported: Path) -> None:
    checked = pvdm("log", "fsck", exported, *VKEY, "--json")
    assert checked.code == 0
    assert (checked.json["origin"], checked.json["size"], checked.json["files"]) == (ORIGIN, 300, 6)


def test_the_keys_may_come_from_a_trust_root(pvdm: Run, tmp_path: Path) -> None:
    storage, _ = filled_log(0)
    open_log(storage, SIGNERS["log-keeper"]).append(entries(0, 5))
    export(storage, tmp_path / "log")
    root = ("--trust-root", EXAMPLES / "trust-root-1.json", "--root-sha256", ROOT.sha256, "--at", AT)
    assert pvdm("log", "fsck", tmp_path / "log", *root, "--json").json["size"] == 5


def test_a_changed_byte_is_reported_with_its_file(pvdm: Run, exported: Path) -> None:
    tile = exported / "tile" / "entries" / "000"
    data = bytearray(tile.read_bytes())
    data[40] ^= 1
    tile.write_bytes(data)
    refused = pvdm("log", "fsck", exported, *VKEY, "--json")
    assert (refused.code, refused.error) == (3, "fsck_entry_hash")
    assert refused.json["error"]["details"]["place"] == "tile/entries/000"


def test_checking_a_log_without_a_key_is_refused(pvdm: Run, exported: Path) -> None:
    refused = pvdm("log", "fsck", exported, "--json")
    assert (refused.code, refused.error) == (2, "log_keys_missing")


def test_a_log_under_an_unknown_key_is_refused(pvdm: Run, exported: Path) -> None:
    stranger = open_log(filled_log(0)[0], MemorySigner(99)).key.to_vkey()
    assert pvdm("log", "fsck", exported, "--vkey", stranger, "--json").error == "fsck_key"


def test_a_verifier_key_together_with_a_trust_root_is_a_usage_error(pvdm: Run, exported: Path) -> None:
    refused = pvdm("log", "fsck", exported, *VKEY, "--trust-root", EXAMPLES / "trust-root-1.json", "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_verifier_keys_of_another_origin_are_refused(pvdm: Run, exported: Path) -> None:
    refused = pvdm("log", "fsck", exported, *VKEY, "--origin", "log.example/other", "--json")
    assert (refused.code, refused.error) == (2, "origin_ambiguous")


def test_a_folder_that_is_not_there_is_bad_input_with_its_name(pvdm: Run) -> None:
    refused = pvdm("log", "fsck", "../nosuch", *VKEY, "--json")
    assert (refused.code, refused.error) == (2, "input_not_readable")
    assert "../nosuch" in refused.json["error"]["message"]


@pytest.mark.parametrize("words", [("compare", "at-7", "at-300"), ("prove", "1")])
def test_a_missing_folder_is_bad_input_for_compare_and_prove_too(
    pvdm: Run, checkpoints: Path, words: tuple[str, ...]
) -> None:
    refused = pvdm("log", *words, "--folder", "nosuch", *VKEY, "--json")
    assert (refused.code, refused.error) == (2, "input_not_readable")


def test_the_error_names_each_known_key_once_and_a_next_step(pvdm: Run, exported: Path) -> None:
    stranger = open_log(filled_log(0)[0], MemorySigner(99)).key
    refused = pvdm("log", "fsck", exported, "--vkey", stranger.to_vkey(), "--vkey", stranger.to_vkey(), "--json")
    error = refused.json["error"]
    assert (error["reason"], error["expected"]) == ("fsck_key", f"{ORIGIN}+{stranger.key_id.hex()}")
    assert error["got"] == f"{ORIGIN}+{KEY.key_id.hex()}"
    assert "`pvdm keys root fetch`" in error["hint"]


def test_the_error_for_a_log_of_another_name_has_its_name(pvdm: Run, exported: Path) -> None:
    other = NoteKey("log.example/renamed", KEY.der).to_vkey()
    error = pvdm("log", "fsck", exported, "--vkey", other, "--json").json["error"]
    assert ORIGIN in error["message"]
    assert "another name" in error["hint"]


def test_a_log_that_was_rewritten_since_a_checkpoint_is_refused(pvdm: Run, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(filled_log(100)[1].checkpoint().note)
    assert pvdm("log", "fsck", exported, *VKEY, "--since", tmp_path / "old").code == 0
    (tmp_path / "other").write_bytes(filled_log(100, salt="other")[1].checkpoint().note)
    refused = pvdm("log", "fsck", exported, *VKEY, "--since", tmp_path / "other", "--json")
    assert (refused.code, refused.error) == (3, "fsck_forked")


# --- compare ---


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """`at-7`, `at-100` and `at-300` of one history, exported to `log`; `fork-7` and `fork-300` of another."""
    storage, _, signed = log_grown_to([7, 100, 300])
    export(storage, tmp_path / "log")
    for one in signed:
        (tmp_path / f"at-{one.checkpoint.size}").write_bytes(one.note)
    for size in (7, 300):
        (tmp_path / f"fork-{size}").write_bytes(filled_log(size, salt="fork")[1].checkpoint().note)
    return tmp_path


def compare(pvdm: Run, folder: Path, *names: str) -> CommandResult:
    return pvdm("log", "compare", *(folder / name for name in names), "--folder", folder / "log", *VKEY, "--json")


def test_checkpoints_of_one_history_agree_in_any_order(pvdm: Run, checkpoints: Path) -> None:
    checked = compare(pvdm, checkpoints, "at-300", "at-7", "at-100")
    assert checked.code == 0
    assert [one["size"] for one in checked.json["checkpoints"]] == [7, 100, 300]


def test_checkpoints_at_sizes_that_were_never_exported_are_compared(pvdm: Run, tmp_path: Path) -> None:
    storage, _, signed = log_grown_to([7, 100, 120])
    export(storage, tmp_path / "log")
    for one in signed:
        (tmp_path / f"at-{one.checkpoint.size}").write_bytes(one.note)
    assert compare(pvdm, tmp_path, "at-7", "at-100", "at-120").code == 0


def test_a_folder_smaller_than_a_checkpoint_is_refused_with_a_next_step(pvdm: Run, checkpoints: Path) -> None:
    _, _, signed = log_grown_to([7, 310])
    (checkpoints / "at-310").write_bytes(signed[1].note)
    refused = compare(pvdm, checkpoints, "at-7", "at-310")
    assert (refused.code, refused.error) == (3, "tile_missing")
    assert "log export" in refused.json["error"]["hint"]


@pytest.mark.parametrize("names", [("at-300", "fork-300"), ("at-7", "fork-7"), ("fork-7", "at-300")])
def test_a_fork_is_reported_with_both_checkpoints(pvdm: Run, checkpoints: Path, names: tuple[str, str]) -> None:
    refused = compare(pvdm, checkpoints, *names)
    assert (refused.code, refused.error) == (3, "log_forked")
    evidence = refused.json["error"]["details"]
    assert {evidence["older"], evidence["newer"]} == {(checkpoints / name).read_text() for name in names}


def test_checkpoints_of_equal_size_are_compared_without_the_log(pvdm: Run, checkpoints: Path) -> None:
    names = (checkpoints / "at-7", checkpoints / "fork-7")
    assert pvdm("log", "compare", *names, *VKEY, "--json").error == "log_forked"
    assert pvdm("log", "compare", names[0], names[0], *VKEY).code == 0


def test_checkpoints_of_different_sizes_without_the_log_are_refused(pvdm: Run, checkpoints: Path) -> None:
    refused = pvdm("log", "compare", checkpoints / "at-7", checkpoints / "at-300", *VKEY, "--json")
    assert (refused.code, refused.error) == (2, "url_missing")


def test_comparing_a_single_checkpoint_is_a_usage_error(pvdm: Run, checkpoints: Path) -> None:
    assert pvdm("log", "compare", checkpoints / "at-7", *VKEY, "--json").error == "usage"


def test_a_checkpoint_under_an_unknown_key_is_refused(pvdm: Run, checkpoints: Path) -> None:
    storage, _ = filled_log(0)
    note = open_log(storage, MemorySigner(99)).append(entries(0, 7)).checkpoint.note
    (checkpoints / "strange").write_bytes(note)
    refused = compare(pvdm, checkpoints, "at-300", "strange")
    assert refused.error == "note_key_unknown"
    assert "`pvdm keys root fetch`" in refused.json["error"]["hint"]


def test_the_error_for_a_checkpoint_of_another_log_has_its_name(pvdm: Run, checkpoints: Path) -> None:
    other = NoteKey("log.example/renamed", KEY.der).to_vkey()
    words = ("log", "compare", checkpoints / "at-7", checkpoints / "at-300", "--vkey", other, "--json")
    error = pvdm(*words).json["error"]
    assert (error["reason"], error["message"].partition(":")[0]) == (
        "note_key_unknown",
        f"the note is of another log, {ORIGIN}",
    )
    assert "log.example/renamed" in error["hint"]


# --- prove ---


def test_a_proof_from_a_folder_is_valid(pvdm: Run, exported: Path, tmp_path: Path) -> None:
    assert pvdm("log", "prove", 41, "--folder", exported, *VKEY, "--out", tmp_path / "p").code == 0
    proof = parse_log_proof((tmp_path / "p").read_bytes())
    signed = verify_log_proof(proof, entry=entries(41, 42)[0].to_bytes(), origin=ORIGIN, keys=[KEY])
    assert (proof.index, signed.checkpoint.size) == (41, 300)


def test_a_proof_without_out_goes_to_standard_output(pvdm: Run, exported: Path) -> None:
    assert parse_log_proof(pvdm("log", "prove", 41, "--folder", exported, *VKEY).out.encode()).index == 41


def test_an_entry_is_found_by_its_envelope(pvdm: Run, tmp_path: Path) -> None:
    envelope = (EXAMPLES / "proof.json").read_bytes()
    storage, log = filled_log(10)
    log.append([LogEntry(StatementKind.PROOF, hashlib.sha256(envelope).hexdigest(), 5)])
    export(storage, tmp_path / "log")
    words = ("--folder", tmp_path / "log", *VKEY, "--json")
    assert pvdm("log", "prove", "--envelope", EXAMPLES / "proof.json", *words).json["index"] == 10
    refused = pvdm("log", "prove", "--envelope", EXAMPLES / "receipt.json", *words)
    assert (refused.code, refused.error) == (2, "log_entry_unknown")


def test_no_proof_is_written_from_damaged_tiles(pvdm: Run, exported: Path, tmp_path: Path) -> None:
    tile = exported / "tile" / "0" / "000"
    data = bytearray(tile.read_bytes())
    data[0] ^= 1
    tile.write_bytes(data)
    refused = pvdm("log", "prove", 41, "--folder", exported, *VKEY, "--out", tmp_path / "p", "--json")
    assert refused.code == 3
    assert not (tmp_path / "p").exists()


def test_a_proof_without_a_key_says_that_no_signature_was_checked(pvdm: Run, exported: Path) -> None:
    shown = pvdm("log", "prove", 41, "--folder", exported, "--json")
    assert shown.json["signature_checked"] is False
    assert "signature was not checked" in shown.err


def test_an_entry_beyond_the_log_is_bad_input(pvdm: Run, exported: Path) -> None:
    assert pvdm("log", "prove", 300, "--folder", exported, *VKEY, "--json").error == "log_index_invalid"


@pytest.mark.parametrize(
    "words", [(), (1, "--envelope", EXAMPLES / "proof.json"), ("--envelope", EXAMPLES / "proof.json")]
)
def test_no_entry_two_entries_or_an_envelope_without_a_folder_is_a_usage_error(
    pvdm: Run, words: tuple[object, ...]
) -> None:
    assert pvdm("log", "prove", *words, "--json").error == "usage"


def test_a_proof_does_not_overwrite_another_file(pvdm: Run, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("mine")
    refused = pvdm("log", "prove", 41, "--folder", exported, *VKEY, "--out", tmp_path / "p", "--json")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (tmp_path / "p").read_text() == "mine"


def test_writing_the_same_proof_again_is_no_error(pvdm: Run, exported: Path, tmp_path: Path) -> None:
    words = ("log", "prove", 41, "--folder", exported, *VKEY, "--out", tmp_path / "p")
    assert (pvdm(*words).code, pvdm(*words).code) == (0, 0)
