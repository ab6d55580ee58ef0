"""Hash trees by RFC 6962: roots and proofs equal known ones, and false proofs are refused."""

from __future__ import annotations

import math

import pytest

from pvdm.errors import InputError, VerificationError
from pvdm.trust.log.merkle import (
    EMPTY_ROOT,
    ConsistencyProof,
    InclusionProof,
    leaf_hash,
    prove_consistency,
    prove_inclusion,
    root_at,
)
from pvdm.trust.log.proof import verify_consistency, verify_inclusion
from tests.support.for_each import for_each
from tests.support.ledger.log_storage import filled_log, tree_of

# The eight leaves and their roots are those of the Certificate Transparency reference implementation's tests.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
INCLUSION = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (0, 1): [],
}
CONSISTENCY = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def root(size: int) -> bytes:
    return bytes.fromhex(ROOTS[size])


def test_the_empty_tree_has_the_hash_of_nothing() -> None:
    assert EMPTY_ROOT.hex() == ROOTS[0]


@for_each("size", range(9))
def test_roots_are_those_of_certificate_transparency(size: int) -> None:
    assert root_at(tree_of(LEAVES), size) == root(size)


@for_each(("index", "size"), INCLUSION)
def test_inclusion_proofs_are_those_of_certificate_transparency(index: int, size: int) -> None:
    proof = prove_inclusion(tree_of(LEAVES), index=index, size=size)
    assert [value.hex() for value in proof.hashes] == INCLUSION[index, size]


@for_each(("old", "new"), CONSISTENCY)
def test_consistency_proofs_are_those_of_certificate_transparency(old: int, new: int) -> None:
    proof = prove_consistency(tree_of(LEAVES), old_size=old, new_size=new)
    assert [value.hex() for value in proof.hashes] == CONSISTENCY[old, new]


def test_an_inner_node_in_place_of_a_leaf_is_refused() -> None:
    inner = b"\x01" + leaf_hash(LEAVES[0]) + leaf_hash(LEAVES[1])
    proof = InclusionProof(0, 1, ())
    with pytest.raises(VerificationError) as caught:
        verify_inclusion(proof, entry=inner[1:], size=1, root=root(2))
    assert caught.value.reason == "inclusion_root"


@for_each(
    ("proof", "size", "reason"),
    [
        (InclusionProof(5, 7, ()), 8, "inclusion_size"),
        (InclusionProof(8, 8, ()), 8, "inclusion_index"),
        (InclusionProof(-1, 8, ()), 8, "inclusion_index"),
        (InclusionProof(0, 2**63, ()), 2**63, "inclusion_index"),
        (InclusionProof(5, 8, (b"\x00" * 31,)), 8, "inclusion_malformed"),
        (InclusionProof(5, 8, (b"\x00" * 32,)), 8, "inclusion_length"),
        (InclusionProof(5, 8, (b"\x00" * 32,) * 4), 8, "inclusion_length"),
        (InclusionProof(5, 8, (b"\x00" * 32,) * 3), 8, "inclusion_root"),
    ],
)
def test_a_false_inclusion_proof_is_refused_with_its_reason(proof: InclusionProof, size: int, reason: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_inclusion(proof, entry=LEAVES[5], size=size, root=root(8))
    assert caught.value.reason == reason


GENUINE = tuple(bytes.fromhex(text) for text in CONSISTENCY[6, 8])


@for_each(
    ("proof", "sizes", "reason"),
    [
        (ConsistencyProof(6, 8, GENUINE), (6, 7), "consistency_size"),
        (ConsistencyProof(8, 6, GENUINE), (8, 6), "consistency_order"),
        (ConsistencyProof(-1, 8, GENUINE), (-1, 8), "consistency_order"),
        (ConsistencyProof(6, 8, (*GENUINE[:2], b"")), (6, 8), "consistency_malformed"),
        (ConsistencyProof(6, 8, GENUINE[:2]), (6, 8), "consistency_length"),
        (ConsistencyProof(6, 8, ()), (6, 8), "consistency_length"),
        (ConsistencyProof(6, 8, (*GENUINE, GENUINE[0])), (6, 8), "consistency_length"),
        (ConsistencyProof(6, 6, GENUINE), (6, 6), "consistency_length"),
        (ConsistencyProof(0, 8, GENUINE), (0, 8), "consistency_length"),
        (ConsistencyProof(6, 8, GENUINE[::-1]), (6, 8), "consistency_new_root"),
    ],
)
def test_a_false_consistency_proof_is_refused_with_its_reason(
    proof: ConsistencyProof, sizes: tuple[int, int], reason: str
) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_consistency(proof, old_size=sizes[0], old_root=root(6), new_size=sizes[1], new_root=root(8))
    assert caught.value.reason == reason


@pytest.mark.parametrize(("old", "new"), [(6, 8), (8, 8), (0, 8)])
def test_another_older_root_has_another_reason_than_a_false_proof(old: int, new: int) -> None:
    proof = prove_consistency(tree_of(LEAVES), old_size=old, new_size=new)
    with pytest.raises(VerificationError) as caught:
        verify_consistency(proof, old_size=old, old_root=root(5), new_size=new, new_root=root(8))
    assert caught.value.reason == "consistency_old_root"


@pytest.mark.parametrize(("index", "size"), [(8, 8), (-1, 8), (0, 0)])
def test_an_inclusion_proof_of_a_missing_entry_is_refused(index: int, size: int) -> None:
    with pytest.raises(InputError) as caught:
        prove_inclusion(tree_of(LEAVES), index=index, size=size)
    assert caught.value.reason == "log_index_invalid"


def test_a_consistency_proof_to_a_smaller_size_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        prove_consistency(tree_of(LEAVES), old_size=8, new_size=7)
    assert caught.value.reason == "log_sizes_invalid"


@pytest.mark.parametrize("size", [1_000, 10_000, 50_001])
def test_a_proof_reads_no_more_hashes_than_twice_the_height(size: int) -> None:
    storage, log = filled_log(size)
    for index in (0, size // 3, size - 1):
        storage.hashes_read = 0
        log.prove_inclusion(index, size)
        assert storage.hashes_read <= 2 * math.ceil(math.log2(size))
