"""Appending to the log: entries, checkpoints, and storage that was changed."""

from __future__ import annotations

import pytest

from pvdm.errors import InputError, PvdmError, VerificationError
from pvdm.model.statements.kind import StatementKind
from pvdm.trust.log.checkpoint import open_checkpoint
from pvdm.trust.log.entry import LogEntry, parse_entry
from pvdm.trust.log.log import APPEND_ENTRIES_MAX
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.proof import verify_consistency, verify_inclusion
from tests.support.for_each import for_each
from tests.support.ledger.log_storage import (
    KEY,
    ORIGIN,
    MemoryStorage,
    entries,
    entry,
    filled_log,
    log_grown_to,
    open_log,
)


def reason_of(caught: pytest.ExceptionInfo[PvdmError]) -> str:
    return caught.value.reason


def test_an_entry_is_canonical_json_with_a_hash_and_a_time() -> None:
    leaf = LogEntry(StatementKind.BREAK_GLASS, "ab" * 32, 5).to_bytes()
    assert leaf == b'{"kind":"break-glass","sha256":"' + b"ab" * 32 + b'","time":5}'


def test_an_entry_is_read_back() -> None:
    assert parse_entry(entry(7).to_bytes()) == entry(7)


@for_each(("sha256", "time"), [("AB" * 32, 0), ("ab", 0), ("ab" * 32, -1), ("ab" * 32, 2**53)])
def test_an_entry_that_is_no_hash_or_no_time_is_refused(sha256: str, time: int) -> None:
    with pytest.raises(InputError) as caught:
        LogEntry(StatementKind.PROOF, sha256, time)
    assert reason_of(caught) == "log_entry_invalid"


@for_each(
    "data",
    [
        b'{"kind":"gossip","sha256":"' + b"ab" * 32 + b'","time":5}',
        b'{"kind":"proof","partition":"2026","sha256":"' + b"ab" * 32 + b'","time":5}',
        b'{"kind":"proof","sha256":"' + b"ab" * 32 + b'","time":true}',
        b'{"kind":"proof","time":5}',
        b"[]",
    ],
)
def test_a_leaf_that_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        parse_entry(data)
    assert reason_of(caught) == "log_entry_invalid"


def test_an_append_returns_the_index_of_its_first_entry() -> None:
    _, log = filled_log(3)
    appended = log.append(entries(3, 5))
    assert (appended.index, appended.size, appended.checkpoint.checkpoint.size) == (3, 5, 5)


def test_the_checkpoint_of_an_append_proves_the_entries() -> None:
    _, log = filled_log(300)
    appended = log.append([entry(300)])
    newest = open_checkpoint(appended.checkpoint.note, origin=ORIGIN, keys=[KEY]).checkpoint
    proof = log.prove_inclusion(300, newest.size)
    verify_inclusion(proof, entry=entry(300).to_bytes(), size=newest.size, root=newest.root)


def test_every_checkpoint_is_consistent_with_every_later_one() -> None:
    _, log, checkpoints = log_grown_to([1, 2, 3, 7, 64, 65, 255, 256, 257, 600])
    for at, older in enumerate(checkpoints):
        for newer in checkpoints[at:]:
            old, new = older.checkpoint, newer.checkpoint
            proof = log.prove_consistency(old.size, new.size)
            verify_consistency(proof, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root)


def test_an_append_reads_only_the_right_edge() -> None:
    storage, log = filled_log(4_095)
    storage.hashes_read = 0
    log.append([entry(4_095)])
    assert storage.hashes_read <= 12


@pytest.mark.parametrize("count", [0, APPEND_ENTRIES_MAX + 1])
def test_an_append_of_no_or_too_many_entries_is_refused(count: int) -> None:
    with pytest.raises(InputError) as caught:
        open_log(MemoryStorage()).append([entry(0)] * count)
    assert reason_of(caught) == "log_append_invalid"


def test_appending_to_a_tree_with_a_changed_edge_is_refused() -> None:
    storage, log = filled_log(6)
    storage.hashes[Node(2, 0)] = b"\x00" * 32
    with pytest.raises(VerificationError) as caught:
        log.append([entry(6)])
    assert (reason_of(caught), storage.size()) == ("log_storage_broken", 6)


def test_appending_with_a_checkpoint_of_another_size_is_refused() -> None:
    storage, log = filled_log(6)
    storage.note = filled_log(5)[0].note
    with pytest.raises(VerificationError) as caught:
        log.append([entry(6)])
    assert reason_of(caught) == "log_storage_broken"


def test_a_log_with_entries_but_no_checkpoint_is_broken() -> None:
    storage, log = filled_log(6)
    storage.note = None
    with pytest.raises(VerificationError) as caught:
        log.checkpoint()
    assert reason_of(caught) == "log_storage_broken"


def test_storage_that_returns_a_short_hash_is_refused() -> None:
    storage, log = filled_log(6)
    storage.hashes[Node(1, 2)] = b"\x00" * 31
    with pytest.raises(VerificationError) as caught:
        log.prove_inclusion(0, 6)
    assert reason_of(caught) == "log_storage_broken"


def test_a_proof_beyond_the_log_is_refused() -> None:
    _, log = filled_log(6)
    with pytest.raises(InputError) as caught:
        log.prove_inclusion(6, 7)
    assert reason_of(caught) == "log_sizes_invalid"


def test_storing_an_append_after_another_one_is_refused() -> None:
    storage, log = filled_log(6)
    prepared = log.prepare([entry(7)])
    log.append([entry(6)])
    with pytest.raises(PvdmError) as caught:
        prepared.store(storage)
    assert (reason_of(caught), storage.size()) == ("log_moved", 7)


def test_a_prepared_append_is_not_in_the_log_until_it_is_stored() -> None:
    storage, log = filled_log(6)
    prepared = log.prepare([entry(6)])
    assert storage.size() == 6
    assert prepared.store(storage).size == storage.size() == 7
