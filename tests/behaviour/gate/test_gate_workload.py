"""Atomicity `workload`: every chunk of the plan at once, bound by one signed statement, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pvdm.errors import PvdmError, VerificationError
from pvdm.ledger.record import statements
from pvdm.ledger.work import workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.proposal import LoggedEnvelope, Proposal
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import WorkloadStatement
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.record.recorder import Document
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.statement import read_unchecked
from pvdm.trust.verify import sign_statement
from tests.support.gate.attacks import code_and_check
from tests.support.gate.protected_tables import HOUR, House, Row, contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.stores.places import file_at
from tools.proof_kit import SIGNERS, fixed

BEFORE: Sequence[Row] = [(1, 1, "Ulm"), (2, 2, "Bonn")]
WHOLE = "atomicity: workload\n"


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        made.table(rows=BEFORE, text=contract(more=WHOLE))
        made.open("w", ["a", "b", "c"])
        yield made


def prove_chunk(house: House, chunk_id: str, number: int) -> Attempt:
    return house.proved("w", [(number, 3, "Ulm")], chunk_id=chunk_id, opened=False)


def prove_all(house: House) -> list[Attempt]:
    return [prove_chunk(house, chunk_id, 10 + at) for at, chunk_id in enumerate("abc")]


def refusal_of(house: House, proposal: Proposal) -> PvdmError:
    with pytest.raises(VerificationError) as caught:
        validate_then_commit(proposal, house.gate())
    assert house.rows() == [1, 2]
    return caught.value


def test_all_chunks_show_at_once_by_one_snapshot(house: House) -> None:
    found = prove_all(house)
    done = validate_then_commit(house.proposal(*found), house.gate())
    assert house.rows() == [1, 2, 10, 11, 12]
    head = house.table_state().metadata.current_snapshot
    assert head is not None
    assert (head.snapshot_id, head.parent_id) == (done.shown.new_snapshot_id, done.shown.old_snapshot_id)
    assert {house.state_of(attempt) for attempt in found} == {"COMMITTED"}
    with house.notary.ledger.read() as unit:
        assert workloads.get(unit, "w").state == "COMPLETE"
    assert len(done.shown.proof_ids) == 3


def test_the_statement_is_an_entry_of_the_log_and_is_signed_once(house: House) -> None:
    found = prove_all(house)
    first, second = house.proposal(*found), house.proposal(*found)
    assert first.workload_statement == second.workload_statement
    with house.notary.ledger.read() as unit:
        (stored,) = statements.list_by_kind(unit, StatementKind.WORKLOAD)
    statement = read_unchecked(stored.envelope, WorkloadStatement)
    assert [each.chunk_id for each in statement.chunks] == ["a", "b", "c"]


def test_a_part_of_the_plan_is_not_published(house: House) -> None:
    found = prove_all(house)
    assert code_and_check(refusal_of(house, house.proposal(*found[:2]))) == ("publication_not_whole", 1)


def test_one_chunk_twice_in_place_of_another_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    first, second, _ = proposal.parts
    error = refusal_of(house, replace(proposal, parts=(first, first, second)))
    assert code_and_check(error) == ("publication_not_whole", 1)


def test_a_workload_without_its_statement_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    without = replace(proposal, workload_statement=None)
    assert code_and_check(refusal_of(house, without)) == ("workload_statement_missing", 1)


def with_first_chunk(statement: WorkloadStatement, **changes: Any) -> WorkloadStatement:
    """The statement with its first chunk changed."""
    first, *others = statement.chunks
    return replace(statement, chunks=(replace(first, **changes), *others))


def with_statement(
    house: House, proposal: Proposal, change: Callable[[WorkloadStatement], WorkloadStatement], by: str | None = None
) -> Proposal:
    """The proposal with a changed workload statement, which is signed and logged."""
    assert proposal.workload_statement is not None
    statement = change(read_unchecked(proposal.workload_statement.envelope, WorkloadStatement))
    signer = SIGNERS[by] if by else house.notary.keys.signer(KeyRole.SIGNING, house.notary.keys.epoch_for(None))
    envelope = sign_statement(statement, signer).to_bytes()
    places: list[int] = []
    document = Document(StatementKind.WORKLOAD, fixed("any"), envelope)
    house.notary.recorder.record([document], lambda _, found: places.extend(found))
    logged = LoggedEnvelope(StatementKind.WORKLOAD, envelope, places[0], house.scene.now)
    return replace(proposal, workload_statement=logged)


@pytest.mark.parametrize(
    "change",
    [
        lambda statement: replace(statement, workload_id="another"),
        lambda statement: replace(statement, contract_sha256=fixed("another")),
        lambda statement: replace(statement, plan_sha256=fixed("another")),
        lambda statement: replace(statement, chunks=statement.chunks[:2]),
        lambda statement: with_first_chunk(statement, nonce=fixed("x", 16)),
        lambda statement: with_first_chunk(statement, proof_ids=(fixed("x"),)),
    ],
)
def test_a_workload_statement_about_something_else_is_refused(
    house: House, change: Callable[[WorkloadStatement], WorkloadStatement]
) -> None:
    proposal = house.proposal(*prove_all(house))
    error = refusal_of(house, with_statement(house, proposal, change))
    assert code_and_check(error) == ("workload_statement_differs", 5)


def test_a_workload_statement_by_an_unknown_key_is_refused(house: House) -> None:
    proposal = with_statement(house, house.proposal(*prove_all(house)), lambda statement: statement, by="rogue")
    assert code_and_check(refusal_of(house, proposal)) == ("key_unknown", 2)


def test_a_workload_statement_in_another_notarys_name_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    renamed = with_statement(house, proposal, lambda statement: replace(statement, notary="notary-b"))
    assert code_and_check(refusal_of(house, renamed)) == ("signer_name_wrong", 2)


def test_a_workload_statement_that_has_expired_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    expired = with_statement(house, proposal, lambda statement: replace(statement, expires_at=statement.issued_at + 1))
    house.stand.time.pass_by(1)
    assert code_and_check(refusal_of(house, expired)) == ("proof_expired", 6)


def test_a_workload_statement_of_another_form_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    assert proposal.workload_statement is not None
    spaced = replace(proposal.workload_statement, envelope=proposal.workload_statement.envelope + b"\n")
    assert code_and_check(refusal_of(house, replace(proposal, workload_statement=spaced))) == ("json_trailing_bytes", 1)


def test_a_proof_in_place_of_the_workload_statement_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    proof = proposal.parts[0].proofs[0]
    assert code_and_check(refusal_of(house, replace(proposal, workload_statement=proof))) == ("predicate_type_wrong", 3)


def test_a_workload_statement_that_is_not_in_the_log_is_refused(house: House) -> None:
    proposal = house.proposal(*prove_all(house))
    assert proposal.workload_statement is not None
    elsewhere = replace(proposal, workload_statement=replace(proposal.workload_statement, index=0))
    assert code_and_check(refusal_of(house, elsewhere)) == ("statement_not_logged", 11)


def test_one_bad_chunk_keeps_all_back_and_is_named(house: House) -> None:
    found = prove_all(house)
    house.stand.time.pass_by(HOUR // 2)
    bad = found[1]
    proposal = house.proposal(*found)
    for path in file_at(bad.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    error = refusal_of(house, proposal)
    assert (error.check, error.details["attempt_id"]) == (10, bad.attempt_id)


def test_one_file_is_not_published_by_two_chunks(house: House) -> None:
    """The second chunk's branch adds the first one's file, and its proof says so."""
    base = house.table_state().metadata.current_snapshot_id
    first = house.attempt("w", "a")
    files = house.stage(first, [(10, 3, "Ulm")])
    house.prove(first, files, base)
    second = house.attempt("w", "b")
    house.commit(files, second.branch, by=STEWARD_GRANT)
    house.prove(second, files, base)
    third = prove_chunk(house, "c", 12)
    error = refusal_of(house, house.proposal(first, second, third))
    assert code_and_check(error) == ("published_path_outside", 9)
    assert error.details["attempt_id"] == second.attempt_id


def test_an_overwrite_by_chunks_removes_the_union_of_their_boundaries(house: House) -> None:
    house.table(
        "returns", rows=[*BEFORE, (3, 3, "Ulm")], text=contract("returns", operation="overwrite-partitions", more=WHOLE)
    )
    house.open("v", ["a", "b"], name="returns")
    found = [
        house.proved(
            "v",
            [(20 + number, number, "Ulm")],
            chunk_id=chunk_id,
            name="returns",
            opened=False,
            removed=house.paths("returns", of_day=number),
        )
        for chunk_id, number in (("a", 1), ("b", 2))
    ]
    validate_then_commit(house.proposal(*found), house.gate("returns"))
    assert house.rows("returns") == [3, 21, 22]


def test_a_workload_statement_for_a_single_chunk_is_refused(house: House) -> None:
    house.table("returns", rows=BEFORE)
    other = house.proposal(*prove_all(house)).workload_statement
    alone = house.proposal(house.proved("v", [(5, 5, "Ulm")], name="returns"))
    with pytest.raises(VerificationError) as caught:
        validate_then_commit(replace(alone, workload_statement=other), house.gate("returns"))
    assert code_and_check(caught.value) == ("workload_statement_needless", 1)
