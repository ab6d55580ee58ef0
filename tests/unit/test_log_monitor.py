"""Comparing checkpoints finds forks of the log, and proof files of an entry can be checked offline."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pvdm.errors import PvdmError, VerificationError
from pvdm.trust.log.checkpoint import Checkpoint, sign_checkpoint
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.proof import (
    KnownLog,
    LogProof,
    parse_log_proof,
    require_same_history,
    verify_log_proof,
)
from tests.support.for_each import for_each
from tests.support.ledger.log_storage import (
    KEY,
    ORIGIN,
    SIGNER,
    MemoryStorage,
    entries,
    entry,
    filled_log,
    log_grown_to,
    open_log,
)


def reason_of(one: int, other: int, storage: MemoryStorage) -> str:
    """The reason for a checkpoint of size `one`, one of a forked log of size `other`, and this storage as tiles."""
    with pytest.raises(PvdmError) as caught:
        require_same_history(filled_log(one)[1].checkpoint(), filled_log(other, salt="other")[1].checkpoint(), storage)
    return caught.value.reason


@for_each(("old", "new"), [(1, 9), (4, 9), (5, 9), (9, 9), (8, 8), (255, 300), (256, 300)])
def test_two_checkpoints_of_one_history_are_accepted_in_any_order(old: int, new: int) -> None:
    storage, _ = filled_log(new)
    older, newer = filled_log(old)[1].checkpoint(), filled_log(new)[1].checkpoint()
    require_same_history(older, newer, storage)
    require_same_history(newer, older, storage)


@pytest.mark.parametrize("size", [1, 8, 9])
def test_two_roots_at_one_size_are_a_fork(size: int) -> None:
    assert reason_of(size, size, filled_log(size)[0]) == "log_forked"


@for_each(("old", "new"), [(1, 9), (4, 9), (5, 9), (256, 300)])
def test_an_older_root_that_the_newer_tree_does_not_begin_with_is_a_fork(old: int, new: int) -> None:
    assert reason_of(old, new, filled_log(new, salt="other")[0]) == "log_forked"


def test_a_fork_after_a_common_beginning_is_found() -> None:
    storage, log = filled_log(5)
    other = storage.copy()
    seen = log.append([entry(5)]).checkpoint
    newer = open_log(other).append(entries(5, 9, salt="other")).checkpoint
    with pytest.raises(VerificationError) as caught:
        require_same_history(seen, newer, other)
    assert caught.value.reason == "log_forked"
    assert caught.value.details["older"] == seen.note.decode()
    assert caught.value.details["newer"] == newer.note.decode()


def test_tiles_of_the_other_fork_are_a_mismatch_and_no_fork() -> None:
    assert reason_of(5, 9, filled_log(9)[0]) == "tiles_mismatch"


class LyingStorage(MemoryStorage):
    """Tiles that hide the fork: for the older tree's root they return that of the older checkpoint."""

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        if list(nodes) == [Node(2, 0)]:
            return [filled_log(4)[0].hashes[Node(2, 0)]]
        return super().read_hashes(nodes)


def test_tiles_that_hide_the_fork_are_a_mismatch() -> None:
    forked = filled_log(9, salt="other")[0]
    assert reason_of(4, 9, LyingStorage(forked.entries, forked.hashes)) == "tiles_mismatch"


def test_the_error_about_tiles_of_another_root_names_both_roots() -> None:
    older, newer = filled_log(5)[1].checkpoint(), filled_log(9, salt="other")[1].checkpoint()
    tiles, log = filled_log(9)
    with pytest.raises(PvdmError) as caught:
        require_same_history(older, newer, tiles)
    expected, got = newer.checkpoint.root.hex(), log.checkpoint().checkpoint.root.hex()
    assert (caught.value.expected, caught.value.got) == (f"root {expected}", got)


def test_the_error_about_tiles_that_contradict_each_other_names_the_consistency_proof() -> None:
    older, (forked, log) = filled_log(4)[1].checkpoint(), filled_log(9, salt="other")
    tiles = LyingStorage(forked.entries, forked.hashes)
    with pytest.raises(PvdmError) as caught:
        require_same_history(older, log.checkpoint(), tiles)
    assert (caught.value.expected, caught.value.got) == (
        "a tree of 9 entries that begins with the tree of 4",
        "the right root, but a wrong consistency proof (consistency_new_root)",
    )


def test_comparing_checkpoints_of_two_logs_is_refused() -> None:
    foreign = sign_checkpoint(Checkpoint("log.example/other", 9, b"\x01" * 32), SIGNER)
    with pytest.raises(PvdmError) as caught:
        require_same_history(filled_log(5)[1].checkpoint(), foreign, filled_log(9)[0])
    assert caught.value.reason == "checkpoint_origin"


def log_proof(index: int, size: int) -> LogProof:
    _, log = filled_log(size)
    return LogProof(index, log.prove_inclusion(index, size).hashes, log.checkpoint().note)


@pytest.mark.parametrize(("index", "size"), [(0, 1), (3, 7), (299, 300)])
def test_a_log_proof_file_verifies_offline(index: int, size: int) -> None:
    proof = parse_log_proof(log_proof(index, size).to_bytes())
    found = verify_log_proof(proof, entry=entry(index).to_bytes(), origin=ORIGIN, keys=[KEY])
    assert found.checkpoint.size == size


def test_a_log_proof_of_another_entry_is_refused() -> None:
    with pytest.raises(VerificationError) as caught:
        verify_log_proof(log_proof(3, 7), entry=entry(4).to_bytes(), origin=ORIGIN, keys=[KEY])
    assert caught.value.reason == "inclusion_root"


def test_only_logged_entries_are_accepted_by_a_known_log() -> None:
    checker = KnownLog(ORIGIN, (KEY,))
    file = log_proof(3, 7).to_bytes()
    checker.require_included(entry(3).to_bytes(), file)
    with pytest.raises(VerificationError) as caught:
        checker.require_included(entry(4).to_bytes(), file)
    assert caught.value.reason == "inclusion_root"


def test_a_log_proof_has_the_published_form() -> None:
    text = log_proof(1, 2).to_bytes().decode().split("\n")
    assert (text[0], text[1], len(text[2]), text[3], text[4]) == ("c2sp.org/tlog-proof@v1", "index 1", 44, "", ORIGIN)


@for_each(
    ("old", "new"),
    [
        (b"tlog-proof@v1", b"tlog-proof@v2"),
        (b"index 1", b"index 01"),
        (b"index 1", b"index -1"),
        (b"index 1", b"index 9999999999999999999"),
        (b"index 1", b"extra AA==\nindex 1"),
        (b"index 1", b"index 1\nAA=="),
        (b"index 1", b"index 1\r"),
        (b"\n\n", b"\n"),
    ],
)
def test_a_log_proof_of_another_form_is_refused(old: bytes, new: bytes) -> None:
    with pytest.raises(VerificationError) as caught:
        parse_log_proof(log_proof(1, 2).to_bytes().replace(old, new))
    assert caught.value.reason == "log_proof_malformed"


def test_an_oversized_log_proof_is_refused() -> None:
    with pytest.raises(VerificationError) as caught:
        parse_log_proof(log_proof(1, 2).to_bytes() + b"x" * 200_000)
    assert caught.value.reason == "log_proof_malformed"


def test_every_checkpoint_of_a_growing_log_agrees_with_the_last() -> None:
    storage, _, checkpoints = log_grown_to([1, 5, 8, 200, 257])
    for checkpoint in checkpoints:
        require_same_history(checkpoint, checkpoints[-1], storage)
