"""Proofs hold for every index and every pair of sizes, and a changed proof is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pvdm.errors import VerificationError
from pvdm.trust.log.merkle import prove_consistency, prove_inclusion, root_at
from pvdm.trust.log.proof import verify_consistency, verify_inclusion
from tests.support.ledger.log_storage import MemoryStorage, entries, open_log, root_by_definition, tree_of

pytestmark = pytest.mark.property

SIZE_MAX = 300
LEAVES = [b"leaf %d" % number for number in range(SIZE_MAX)]
TREE = tree_of(LEAVES)
ROOTS = [root_at(TREE, size) for size in range(SIZE_MAX + 1)]
sizes = st.integers(1, SIZE_MAX)


def flipped(value: bytes, bit: int) -> bytes:
    return (int.from_bytes(value, "big") ^ (1 << bit % (8 * len(value)))).to_bytes(len(value), "big")


@given(sizes)
def test_the_root_from_stored_hashes_is_the_root_by_definition(size: int) -> None:
    assert ROOTS[size] == root_by_definition(LEAVES[:size])


@given(sizes)
def test_every_entry_of_a_tree_has_an_inclusion_proof_that_holds(size: int) -> None:
    for index in range(size):
        proof = prove_inclusion(TREE, index=index, size=size)
        verify_inclusion(proof, entry=LEAVES[index], size=size, root=ROOTS[size])


@given(sizes)
def test_a_tree_is_consistent_with_every_smaller_one(size: int) -> None:
    for old in range(size + 1):
        proof = prove_consistency(TREE, old_size=old, new_size=size)
        verify_consistency(proof, old_size=old, old_root=ROOTS[old], new_size=size, new_root=ROOTS[size])


@given(sizes, st.data())
def test_a_changed_hash_in_an_inclusion_proof_is_refused(size: int, data: st.DataObject) -> None:
    proof = prove_inclusion(TREE, index=data.draw(st.integers(0, size - 1)), size=size)
    assume(proof.hashes)
    at = data.draw(st.integers(0, len(proof.hashes) - 1))
    hashes = list(proof.hashes)
    hashes[at] = flipped(hashes[at], data.draw(st.integers(0, 255)))
    with pytest.raises(VerificationError, match="not in the tree"):
        verify_inclusion(replace(proof, hashes=tuple(hashes)), entry=LEAVES[proof.index], size=size, root=ROOTS[size])


@given(sizes, st.data())
def test_an_inclusion_proof_holds_for_no_other_entry_index_size_or_root(size: int, data: st.DataObject) -> None:
    index, other = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, SIZE_MAX - 1))
    proof = prove_inclusion(TREE, index=index, size=size)
    changes = [(proof, LEAVES[index], size, flipped(ROOTS[size], other))]
    if other != index:
        changes += [
            (proof, LEAVES[other], size, ROOTS[size]),
            (replace(proof, index=other), LEAVES[index], size, ROOTS[size]),
        ]
    if other + 1 != size:
        resized = replace(proof, size=other + 1)
        changes += [
            (resized, LEAVES[index], other + 1, ROOTS[other + 1]),
            (proof, LEAVES[index], other + 1, ROOTS[size]),
        ]
    for changed, leaf, changed_size, root in changes:
        with pytest.raises(VerificationError):
            verify_inclusion(changed, entry=leaf, size=changed_size, root=root)


@given(sizes, sizes, st.data())
def test_a_changed_hash_in_a_consistency_proof_is_refused(first: int, second: int, data: st.DataObject) -> None:
    old, new = sorted((first, second))
    proof = prove_consistency(TREE, old_size=old, new_size=new)
    assume(proof.hashes)
    at = data.draw(st.integers(0, len(proof.hashes) - 1))
    hashes = list(proof.hashes)
    hashes[at] = flipped(hashes[at], data.draw(st.integers(0, 255)))
    with pytest.raises(VerificationError):
        verify_consistency(
            replace(proof, hashes=tuple(hashes)), old_size=old, old_root=ROOTS[old], new_size=new, new_root=ROOTS[new]
        )


@given(sizes, sizes, st.integers(0, 255), st.booleans())
def test_a_changed_root_breaks_consistency(first: int, second: int, bit: int, older: bool) -> None:
    old, new = sorted((first, second))
    proof = prove_consistency(TREE, old_size=old, new_size=new)
    old_root, new_root = ROOTS[old], ROOTS[new]
    old_root, new_root = (flipped(old_root, bit), new_root) if older else (old_root, flipped(new_root, bit))
    with pytest.raises(VerificationError):
        verify_consistency(proof, old_size=old, old_root=old_root, new_size=new, new_root=new_root)


@given(sizes, sizes, sizes, st.booleans())
def test_a_consistency_proof_is_refused_between_other_trees(first: int, second: int, third: int, renamed: bool) -> None:
    old, new = sorted((first, second))
    assume(third not in (old, new))
    proof = prove_consistency(TREE, old_size=old, new_size=new)
    for other_old, other_new in ((third, new), (old, third)):
        claimed = replace(proof, old_size=other_old, new_size=other_new) if renamed else proof
        with pytest.raises(VerificationError):
            verify_consistency(
                claimed,
                old_size=other_old,
                old_root=ROOTS[other_old],
                new_size=other_new,
                new_root=ROOTS[other_new],
            )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_how_entries_are_grouped_into_appends_does_not_matter(groups: list[int]) -> None:
    grouped, at = MemoryStorage(), 0
    for group in groups:
        open_log(grouped).append(entries(at, at + group))
        at += group
    whole = MemoryStorage()
    open_log(whole).append(entries(0, at))
    assert (grouped.hashes, grouped.note) == (whole.hashes, whole.note)
