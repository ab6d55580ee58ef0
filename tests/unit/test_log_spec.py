"""spec/log.md agrees with the code: its example, its kinds of entries, its limits, and the codes of fsck."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pvdm.model.statements.kind import StatementKind
from pvdm.trust.log import checkpoint, fsck, note
from pvdm.trust.log.entry import ENTRY_SIZE_MAX_BYTES, LogEntry
from pvdm.trust.log.log import APPEND_ENTRIES_MAX
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.proof import LOG_PROOF_SIZE_MAX_BYTES, LogProof
from pvdm.trust.log.tiles import pack_bundle
from tests.support.for_each import for_each
from tests.support.ledger.log_storage import Log, MemoryStorage, open_log

SPEC = (Path(__file__).parents[2] / "spec" / "log.md").read_text()
ROW = re.compile(r"^\| ([^|]+?) \| `([0-9a-f]+)` \|$", re.MULTILINE)


@pytest.fixture
def example() -> tuple[MemoryStorage, Log]:
    storage = MemoryStorage()
    log = open_log(storage)
    kinds = (StatementKind.EPOCH, StatementKind.PROOF, StatementKind.RECEIPT)
    log.append([LogEntry(kind, f"{at + 1}" * 64, 1_700_000_000_000_000 + at) for at, kind in enumerate(kinds)])
    return storage, log


def test_the_hashes_of_the_example_equal_those_of_the_code(example: tuple[MemoryStorage, Log]) -> None:
    storage, log = example
    assert dict(ROW.findall(SPEC)) == {
        "leaf hash 0": storage.hashes[Node(0, 0)].hex(),
        "leaf hash 1": storage.hashes[Node(0, 1)].hex(),
        "leaf hash 2": storage.hashes[Node(0, 2)].hex(),
        "node over leaves 0 and 1": storage.hashes[Node(1, 0)].hex(),
        "root of size 3": log.root(3).hex(),
        "start of `tile/entries/000.p/3`": pack_bundle(storage.entries)[:20].hex(),
    }


def indent(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


def test_entries_key_and_proof_file_of_the_example_equal_those_of_the_code(example: tuple[MemoryStorage, Log]) -> None:
    storage, log = example
    proof = LogProof(2, log.prove_inclusion(2, 3).hashes, log.checkpoint().note)
    assert indent(log.key.to_vkey()) in SPEC
    assert indent("\n".join(entry.decode() for entry in storage.entries)) in SPEC
    assert indent(proof.to_bytes().decode()) in SPEC


def test_the_checkpoint_of_the_example_equals_that_of_the_code(example: tuple[MemoryStorage, Log]) -> None:
    found = re.search(r"first bytes of the checkpoint: `([0-9a-f]+)`, the last: `([0-9a-f]+)`", SPEC)
    assert found is not None
    note_hex = example[1].checkpoint().note.hex()
    assert note_hex.startswith(found[1])
    assert note_hex.endswith(found[2])


def test_every_kind_is_listed() -> None:
    row = next(line for line in SPEC.splitlines() if line.startswith("| `kind` |"))
    assert set(re.findall(r"`([a-z-]+)`", row)) - {"kind"} == set(StatementKind)


def test_every_code_of_the_checker_is_listed_and_no_other() -> None:
    text = Path(fsck.__file__).read_text()
    codes = {code.lower() for code in re.findall(r"Code\.(FSCK_[A-Z_]+)", text)} - {"fsck_failed"}
    raised = codes | set(re.findall(r'"(fsck_[a-z_]+)"', text))
    assert set(re.findall(r"`(fsck_[a-z_]+)`", SPEC)) == raised


@for_each(
    ("what", "value"),
    [
        ("one entry", ENTRY_SIZE_MAX_BYTES),
        ("entries in one append", APPEND_ENTRIES_MAX),
        ("a note", note.NOTE_SIZE_MAX_BYTES),
        ("extension lines", checkpoint.CHECKPOINT_EXTENSIONS_MAX),
        ("a key's name", note.KEY_NAME_MAX_BYTES),
    ],
)
def test_every_limit_of_the_table_equals_that_of_the_code(what: str, value: int) -> None:
    assert f"| {what} | {value:,}" in SPEC


def test_the_limits_in_the_text_equal_those_of_the_code() -> None:
    assert f"{LOG_PROOF_SIZE_MAX_BYTES:,} bytes" in SPEC
    assert f"{note.NOTE_SIGNATURES_MAX} signature lines" in SPEC
