"""`fsck`, the checker of an exported log: it accepts exports, and finds every damage with its reason and place."""

from __future__ import annotations

import ast
import base64
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from pvdm.errors import InputError, PvdmError
from pvdm.trust.log import fsck as fsck_module
from pvdm.trust.log.checkpoint import Checkpoint, sign_checkpoint
from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.note import NoteKey
from tests.support.ledger.log_storage import (
    KEY,
    ORIGIN,
    SIGNER,
    EcdsaSigner,
    MemorySigner,
    MemoryStorage,
    entries,
    filled_log,
    log_grown_to,
    open_log,
    tree_of,
)

VKEY = KEY.to_vkey()
SIZE = 1_000


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was exported at two sizes."""
    folder = tmp_path_factory.mktemp("log")
    storage, log, _ = log_grown_to([900])
    export(storage, folder)
    log.append(entries(900, SIZE))
    export(storage, folder)
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    shutil.copytree(exported, tmp_path / "log")
    return tmp_path / "log"


def reason_and_place(folder: Path, vkey: str = VKEY, since: bytes | None = None) -> tuple[str, object]:
    with pytest.raises(PvdmError) as caught:
        fsck(folder, [vkey], since=since)
    return caught.value.reason, caught.value.details.get("place")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_an_exported_log_is_accepted(folder: Path) -> None:
    report = fsck(folder, [VKEY])
    assert (report.origin, report.size, report.files, report.files_beyond_checkpoint) == (ORIGIN, SIZE, 12, 0)


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 511, 512, 513])
def test_a_log_of_any_size_is_accepted(tmp_path: Path, size: int) -> None:
    storage, log = filled_log(size)
    export(storage, tmp_path)
    assert fsck(tmp_path, [VKEY]).root == log.checkpoint().checkpoint.root.hex()


def test_a_log_under_an_ecdsa_key_is_accepted_and_a_changed_checkpoint_refused(tmp_path: Path) -> None:
    storage, signer = MemoryStorage(), EcdsaSigner(1)
    log = open_log(storage, signer)
    log.append(entries(0, 300))
    export(storage, tmp_path)
    assert fsck(tmp_path, [log.key.to_vkey()]).size == 300
    flip(tmp_path / "checkpoint", 20)
    assert reason_and_place(tmp_path, log.key.to_vkey()) == ("fsck_signature", "checkpoint")


def test_a_log_whose_key_changed_is_accepted_with_both_keys_only(tmp_path: Path) -> None:
    storage, log = filled_log(300)
    before = log.checkpoint().note
    newer = open_log(storage, MemorySigner(8))
    newer.append(entries(300, 310))
    export(storage, tmp_path)
    assert fsck(tmp_path, [VKEY, newer.key.to_vkey()], since=before).size == 310
    assert reason_and_place(tmp_path, newer.key.to_vkey(), since=before) == ("fsck_key", "since")


def test_three_levels_of_tiles_are_accepted(tmp_path: Path) -> None:
    export(filled_log(65_536)[0], tmp_path)
    assert fsck(tmp_path, [VKEY]).files == 1 + 256 + 256 + 1 + 1


@pytest.mark.parametrize(
    ("place", "at", "reason", "reported"),
    [
        ("tile/entries/000", 40, "fsck_entry_hash", "tile/entries/000"),
        ("tile/entries/003.p/232", -10, "fsck_entry_hash", "tile/entries/003.p/232"),
        ("tile/entries/001", 1, "fsck_bundle_malformed", "tile/entries/001"),
        ("tile/entries/003.p/132", 40, "fsck_partial", "tile/entries/003.p/132"),
        ("tile/0/000", 8_191, "fsck_entry_hash", "tile/entries/000"),
        ("tile/0/003.p/232", 6_400, "fsck_entry_hash", "tile/entries/003.p/232"),
        ("tile/0/003.p/132", 5, "fsck_partial", "tile/0/003.p/132"),
        ("tile/1/000.p/3", 64, "fsck_node_hash", "tile/1/000.p/3"),
        ("checkpoint", 0, "fsck_signature", "checkpoint"),
        ("checkpoint", 20, "fsck_signature", "checkpoint"),
        ("checkpoint", -12, "fsck_signature", "checkpoint"),
        ("checkpoint", -1, "fsck_checkpoint_malformed", "checkpoint"),
    ],
)
def test_one_flipped_bit_in_any_kind_of_file_is_found(
    folder: Path, place: str, at: int, reason: str, reported: str
) -> None:
    flip(folder / place, at)
    assert reason_and_place(folder) == (reason, reported)


def test_a_file_without_its_last_byte_is_found(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert reason_and_place(folder)[1] == path.relative_to(folder).as_posix()
        path.write_bytes(data)
    assert fsck(folder, [VKEY]).size == SIZE


def test_a_file_with_another_byte_is_found(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.write_bytes(data + b"\n")
        assert reason_and_place(folder)[1] == path.relative_to(folder).as_posix()
        path.write_bytes(data)
    assert fsck(folder, [VKEY]).size == SIZE


@pytest.mark.parametrize(
    "place", ["checkpoint", "tile/entries/000", "tile/entries/003.p/232", "tile/0/001", "tile/1/000.p/3"]
)
def test_a_missing_file_is_found(folder: Path, place: str) -> None:
    (folder / place).unlink()
    assert reason_and_place(folder) == ("fsck_file_missing", place)


@pytest.mark.parametrize(
    "place", ["notes.txt", "tile/0/0", "tile/0/000.p/300", "tile/0/x000/000", "tile/64/000", "tile/0/000.p/05"]
)
def test_a_file_that_no_log_has_is_found(folder: Path, place: str) -> None:
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(b"x")
    assert reason_and_place(folder) == ("fsck_file_unexpected", place)


def test_a_symbolic_link_is_found(folder: Path, tmp_path: Path) -> None:
    (folder / "tile/0/001").rename(tmp_path / "elsewhere")
    (folder / "tile/0/001").symlink_to(tmp_path / "elsewhere")
    assert reason_and_place(folder) == ("fsck_file_unexpected", "tile/0/001")


def test_an_oversized_file_is_refused_by_its_size(folder: Path) -> None:
    with (folder / "tile/0/001").open("r+b") as file:
        file.truncate(1 << 30)
    assert reason_and_place(folder) == ("fsck_file_too_large", "tile/0/001")


def export_with_checkpoint(storage: MemoryStorage, folder: Path, size: int, root: bytes | None = None) -> None:
    """Export this storage with a checkpoint of this size and root, or a false root, that the log key signed."""
    checkpoint = sign_checkpoint(Checkpoint(ORIGIN, size, root or b"\x07" * 32), SIGNER)
    storage.note = checkpoint.note
    export(storage, folder)


def test_a_signed_root_that_the_entries_do_not_have_is_found(tmp_path: Path) -> None:
    export_with_checkpoint(filled_log(300)[0], tmp_path, 300)
    assert reason_and_place(tmp_path) == ("fsck_root", "checkpoint")


def test_an_entry_that_carries_more_than_a_hash_is_found(tmp_path: Path) -> None:
    leaf = b'{"kind":"proof","partition":"2026-11-14","sha256":"' + b"ab" * 32 + b'","time":1}'
    export_with_checkpoint(tree_of([leaf]), tmp_path, 1, sha256(b"\x00" + leaf).digest())
    assert reason_and_place(tmp_path) == ("fsck_entry_form", "tile/entries/000.p/1")


def test_a_checkpoint_that_another_key_signed_is_found(folder: Path) -> None:
    assert reason_and_place(folder, NoteKey(ORIGIN, MemorySigner(5).public.der).to_vkey()) == ("fsck_key", "checkpoint")


def test_a_checkpoint_of_another_origin_under_this_key_is_found(folder: Path) -> None:
    text = f"other.example/log\n{SIZE}\n{base64.b64encode(b'x' * 32).decode()}\n"
    line = base64.b64encode(KEY.key_id + SIGNER.sign(text.encode())).decode()
    (folder / "checkpoint").write_text(f"{text}\n— {ORIGIN} {line}\n")
    assert reason_and_place(folder) == ("fsck_origin", "checkpoint")


@pytest.mark.parametrize(
    "text",
    [
        f"{ORIGIN}\n01000\n{'A' * 43}=\n",
        f"{ORIGIN}\n1000\n{'A' * 42}B=\n",
        f"{ORIGIN}\n1000\n{'A' * 40}\n",
        f"{ORIGIN}\n1000\n",
        f"{ORIGIN}\n{2**63}\n{'A' * 43}=\n",
        f"{ORIGIN}\n1000\n{'A' * 43}=\n\nmore\n",
        f"{ORIGIN}\r\n1000\r\n{'A' * 43}=\r\n",
    ],
)
def test_a_signed_but_malformed_checkpoint_is_found(folder: Path, text: str) -> None:
    line = base64.b64encode(KEY.key_id + SIGNER.sign(text.encode())).decode()
    (folder / "checkpoint").write_bytes(f"{text}\n— {ORIGIN} {line}\n".encode())
    assert reason_and_place(folder) == ("fsck_checkpoint_malformed", "checkpoint")


def test_a_checkpoint_that_one_key_signed_twice_is_found(folder: Path) -> None:
    note = (folder / "checkpoint").read_bytes()
    (folder / "checkpoint").write_bytes(note + note.rpartition(b"\n\n")[2])
    assert reason_and_place(folder) == ("fsck_checkpoint_malformed", "checkpoint")


def test_a_checkpoint_may_have_64_signature_lines_and_no_more(folder: Path) -> None:
    line = f"— witness.example {base64.b64encode(b'x' * 68).decode()}\n".encode()
    note = (folder / "checkpoint").read_bytes()
    (folder / "checkpoint").write_bytes(note + 63 * line)
    assert fsck(folder, [VKEY]).size == SIZE
    (folder / "checkpoint").write_bytes(note + 64 * line)
    assert reason_and_place(folder) == ("fsck_checkpoint_malformed", "checkpoint")


def test_a_checkpoint_may_have_16_extension_lines_and_no_more(folder: Path) -> None:
    text = (folder / "checkpoint").read_text("utf-8").partition("\n\n")[0] + "\n"

    def write(extended: str) -> None:
        line = base64.b64encode(KEY.key_id + SIGNER.sign(extended.encode())).decode()
        (folder / "checkpoint").write_text(f"{extended}\n— {ORIGIN} {line}\n", "utf-8")

    write(text + 16 * "more\n")
    assert fsck(folder, [VKEY]).size == SIZE
    write(text + 17 * "more\n")
    assert reason_and_place(folder) == ("fsck_checkpoint_malformed", "checkpoint")


def test_a_verifier_key_that_is_given_twice_is_accepted(folder: Path) -> None:
    assert fsck(folder, [VKEY, VKEY]).size == SIZE


@pytest.mark.parametrize(
    "damage", [lambda vkey: vkey[:-1], lambda vkey: vkey.replace("+", "+0", 1), lambda vkey: "x" + vkey]
)
def test_a_damaged_verifier_key_is_a_usage_error(folder: Path, damage: Callable[[str], str]) -> None:
    with pytest.raises(InputError) as caught:
        fsck(folder, [damage(VKEY)])
    assert caught.value.reason == "fsck_vkey"


def test_a_log_that_continues_an_earlier_checkpoint_is_accepted(folder: Path) -> None:
    assert fsck(folder, [VKEY], since=filled_log(700)[1].checkpoint().note).size == SIZE


def test_a_log_that_was_rolled_back_is_found(folder: Path) -> None:
    assert reason_and_place(folder, since=filled_log(SIZE + 1)[1].checkpoint().note) == ("fsck_behind", "checkpoint")


def test_a_log_that_forked_since_is_found(folder: Path) -> None:
    assert reason_and_place(folder, since=filled_log(700, salt="other")[1].checkpoint().note) == (
        "fsck_forked",
        "since",
    )


def test_fsck_imports_no_other_module_of_the_log() -> None:
    parsed = ast.parse(Path(fsck_module.__file__).read_text())
    imported = {node.module or "" for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(parsed) if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in imported if name.startswith("pvdm")} == {"pvdm.errors"}


def test_fsck_runs_without_loading_the_writer(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pvdm.trust.log.fsck import fsck;"
        "print(fsck(Path(sys.argv[1]), [sys.argv[2]]).size);"
        "print(sorted(name for name in sys.modules if name.startswith('pvdm.trust.log.')))"
    )
    run = [sys.executable, "-c", program, str(folder), VKEY]
    result = subprocess.run(run, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [str(SIZE), "['pvdm.trust.log.fsck']"]
