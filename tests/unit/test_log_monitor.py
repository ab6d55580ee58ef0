"""The monitor and the offline proof file: one history or two, and who can tell."""

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


def refusal(one: int, other: int, storage: MemoryStorage) -> str:
    """The code for a genuine checkpoint at `one` and a forked log's at `other`, with this storage as tiles."""
    with pytest.raises(PvdmError) as refused:
        require_same_history(filled_log(one)[1].checkpoint(), filled_log(other, salt="other")[1].checkpoint(), storage)
    return refused.value.reason


@pytest.mark.parametrize(("old", "new"), [(1, 9), (4, 9), (5, 9), (9, 9), (8, 8), (255, 300), (256, 300)])
def test_two_checkpoints_of_one_history_are_accepted_in_any_order(old: int, new: int) -> None:
    storage, _ = filled_log(new)
    older, newer = filled_log(old)[1].checkpoint(), filled_log(new)[1].checkpoint()
    require_same_history(older, newer, storage)
    require_same_history(newer, older, storage)


@pytest.mark.parametrize("size", [1, 8, 9])
def test_two_roots_at_one_size_are_a_fork(size: int) -> None:
    assert refusal(size, size, filled_log(size)[0]) == "log_forked"


@pytest.mark.parametrize(("old", "new"), [(1, 9), (4, 9), (5, 9), (256, 300)])
def test_an_older_root_that_the_newer_tree_does_not_begin_with_is_a_fork(old: int, new: int) -> None:
    assert refusal(old, new, filled_log(new, salt="other")[0]) == "log_forked"


def test_a_fork_after_a_common_beginning_is_found() -> None:
    storage, log = filled_log(5)
    other = storage.copy()
    seen = log.append([entry(5)]).checkpoint
    newer = open_log(other).append(entries(5, 9, salt="other")).checkpoint
    with pytest.raises(VerificationError) as refused:
        require_same_history(seen, newer, other)
    assert refused.value.reason == "log_forked"
    assert refused.value.details["older"] == seen.note.decode()
    assert refused.value.details["newer"] == newer.note.decode()


def test_tiles_of_the_wrong_branch_accuse_nobody() -> None:
    assert refusal(5, 9, filled_log(9)[0]) == "tiles_mismatch"


class Lying(MemoryStorage):
    """Tiles that hide the fork: asked for the older tree's root, they give what the older checkpoint says."""

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        if list(nodes) == [Node(2, 0)]:
            return [filled_log(4)[0].hashes[Node(2, 0)]]
        return super().read_hashes(nodes)


def test_tiles_that_lie_about_the_older_tree_are_found_out() -> None:
    forked = filled_log(9, salt="other")[0]
    assert refusal(4, 9, Lying(forked.entries, forked.hashes)) == "tiles_mismatch"


def test_checkpoints_of_two_logs_are_not_compared() -> None:
    foreign = sign_checkpoint(Checkpoint("log.example/other", 9, b"\x01" * 32), SIGNER)
    with pytest.raises(PvdmError) as refused:
        require_same_history(filled_log(5)[1].checkpoint(), foreign, filled_log(9)[0])
    assert refused.value.reason == "checkpoint_origin"


def log_proof(index: int, size: int) -> LogProof:
    _, log = filled_log(size)
    return LogProof(index, log.prove_inclusion(index, size).hashes, log.checkpoint().note)


@pytest.mark.parametrize(("index", "size"), [(0, 1), (3, 7), (299, 300)])
def test_a_log_proof_file_verifies_offline(index: int, size: int) -> None:
    proof = parse_log_proof(log_proof(index, size).to_bytes())
    found = verify_log_proof(proof, entry=entry(index).to_bytes(), origin=ORIGIN, keys=[KEY])
    assert found.checkpoint.size == size


def test_a_log_proof_is_for_its_entry_alone() -> None:
    with pytest.raises(VerificationError) as refused:
        verify_log_proof(log_proof(3, 7), entry=entry(4).to_bytes(), origin=ORIGIN, keys=[KEY])
    assert refused.value.reason == "inclusion_root"


def test_the_checker_of_proof_files_lets_only_logged_entries_pass() -> None:
    checker = KnownLog(ORIGIN, (KEY,))
    file = log_proof(3, 7).to_bytes()
    checker.require_included(entry(3).to_bytes(), file)
    with pytest.raises(VerificationError) as refused:
        checker.require_included(entry(4).to_bytes(), file)
    assert refused.value.reason == "inclusion_root"


def test_a_log_proof_has_the_published_form() -> None:
    text = log_proof(1, 2).to_bytes().decode().split("\n")
    assert (text[0], text[1], len(text[2]), text[3], text[4]) == ("c2sp.org/tlog-proof@v1", "index 1", 44, "", ORIGIN)


@pytest.mark.parametrize(
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
    with pytest.raises(VerificationError) as refused:
        parse_log_proof(log_proof(1, 2).to_bytes().replace(old, new))
    assert refused.value.reason == "log_proof_malformed"


def test_an_oversized_log_proof_is_refused() -> None:
    with pytest.raises(VerificationError) as refused:
        parse_log_proof(log_proof(1, 2).to_bytes() + b"x" * 200_000)
    assert refused.value.reason == "log_proof_malformed"


def test_every_checkpoint_of_a_growing_log_agrees_with_the_last() -> None:
    storage, _, checkpoints = log_grown_to([1, 5, 8, 200, 257])
    for checkpoint in checkpoints:
        require_same_history(checkpoint, checkpoints[-1], storage)
