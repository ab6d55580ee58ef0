"""A log of a million entries: it is built, proved and exported, and the cost of a proof is logarithmic."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.proof import verify_consistency, verify_inclusion
from tests.support.ledger.log_storage import KEY, Log, MemoryStorage, entries, open_log

SIZE = 1_000_000
STEP = 50_000
SAMPLE_STEP = 9_973  # a prime, so that the sampled indexes lie differently in the tree
PROOF_HASHES_MAX = math.ceil(math.log2(SIZE))  # 20

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built() -> tuple[MemoryStorage, Log]:
    storage = MemoryStorage()
    log = open_log(storage)
    for start in range(0, SIZE, STEP):
        log.append(entries(start, start + STEP))
    return storage, log


def test_an_entry_among_a_million_is_proved_with_at_most_twenty_hashes(built: tuple[MemoryStorage, Log]) -> None:
    storage, log = built
    newest = log.checkpoint().checkpoint
    for index in range(0, SIZE, SAMPLE_STEP):
        storage.hashes_read = 0
        proof = log.prove_inclusion(index, SIZE)
        verify_inclusion(proof, entry=storage.entries[index], size=newest.size, root=newest.root)
        assert len(proof.hashes) <= PROOF_HASHES_MAX
        assert storage.hashes_read <= 2 * PROOF_HASHES_MAX


def test_a_log_of_a_million_entries_is_consistent_with_its_earlier_sizes(built: tuple[MemoryStorage, Log]) -> None:
    _, log = built
    newest = log.checkpoint().checkpoint
    for old in range(1, SIZE, SAMPLE_STEP):
        proof = log.prove_consistency(old, SIZE)
        verify_consistency(proof, old_size=old, old_root=log.root(old), new_size=newest.size, new_root=newest.root)


def test_an_export_of_a_million_entries_passes_fsck(built: tuple[MemoryStorage, Log], tmp_path: Path) -> None:
    storage, log = built
    export(storage, tmp_path)
    assert fsck(tmp_path, [KEY.to_vkey()]).root == log.root(SIZE).hex()
