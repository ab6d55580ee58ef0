"""Atomicity `workload`: every chunk of the plan at once, bound by one signed statement, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

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


def chunk(house: House, chunk_id: str, number: int) -> Attempt:
    return house.proved("w", [(number, 3, "Ulm")], chunk_id=chunk_id, opened=False)


def all_of(house: House) -> list[Attempt]:
    return [chunk(house, chunk_id, 10 + at) for at, chunk_id in enumerate("abc")]


def refused(house: House, proposal: Proposal) -> PvdmError:
    with pytest.raises(VerificationError) as caught:
        validate_then_commit(proposal, house.gate())
    assert house.rows() == [1, 2]
    return caught.value


def test_all_chunks_show_at_once_by_one_snapshot(house: House) -> None:
    found = all_of(house)
    done = validate_then_commit(house.proposal(*found), house.gate())
    assert house.rows() == [1, 2, 10, 11, 12]
    head = house.found().metadata.current_snapshot
    assert head is not None
    assert (head.snapshot_id, head.parent_id) == (done.shown.new_snapshot_id, done.shown.old_snapshot_id)
    assert {house.state_of(attempt) for attempt in found} == {"COMMITTED"}
    with house.notary.ledger.read() as unit:
        assert workloads.get(unit, "w").state == "COMPLETE"
    assert len(done.shown.proof_ids) == 3


def test_the_statement_is_an_entry_of_the_log_and_is_signed_once(house: House) -> None:
    found = all_of(house)
    first, second = house.proposal(*found), house.proposal(*found)
    assert first.statement == second.statement
    with house.notary.ledger.read() as unit:
        (stored,) = statements.of_kind(unit, StatementKind.WORKLOAD)
    said = read_unchecked(stored.envelope, WorkloadStatement)
    assert [each.chunk_id for each in said.chunks] == ["a", "b", "c"]


def test_a_part_of_the_plan_is_not_published(house: House) -> None:
    found = all_of(house)
    assert code_and_check(refused(house, house.proposal(*found[:2]))) == ("publication_not_whole", 1)


def test_a_chunk_does_not_stand_for_another(house: House) -> None:
    proposal = house.proposal(*all_of(house))
    first, second, _ = proposal.parts
    error = refused(house, replace(proposal, parts=(first, first, second)))
    assert code_and_check(error) == ("publication_not_whole", 1)


def test_without_its_statement_nothing_is_published(house: House) -> None:
    proposal = house.proposal(*all_of(house))
    assert code_and_check(refused(house, replace(proposal, statement=None))) == ("workload_statement_missing", 1)


def restated(
    house: House, proposal: Proposal, change: Callable[[WorkloadStatement], WorkloadStatement], by: str | None = None
) -> Proposal:
    """The proposal with other words in its statement, signed and logged."""
    assert proposal.statement is not None
    said = change(read_unchecked(proposal.statement.envelope, WorkloadStatement))
    signer = SIGNERS[by] if by else house.notary.keys.signer(KeyRole.SIGNING, house.notary.keys.epoch_for(None))
    envelope = sign_statement(said, signer).to_bytes()
    places: list[int] = []
    document = Document(StatementKind.WORKLOAD, fixed("any"), envelope)
    house.notary.recorder.record([document], lambda _, found: places.extend(found))
    return replace(proposal, statement=LoggedEnvelope(StatementKind.WORKLOAD, envelope, places[0], house.scene.now))


@pytest.mark.parametrize(
    "change",
    [
        lambda said: replace(said, workload_id="another"),
        lambda said: replace(said, contract_sha256=fixed("another")),
        lambda said: replace(said, plan_sha256=fixed("another")),
        lambda said: replace(said, chunks=said.chunks[:2]),
        lambda said: replace(said, chunks=(replace(said.chunks[0], nonce=fixed("x", 16)), *said.chunks[1:])),
        lambda said: replace(said, chunks=(replace(said.chunks[0], proof_ids=(fixed("x"),)), *said.chunks[1:])),
    ],
)
def test_a_statement_about_something_else_binds_nothing(
    house: House, change: Callable[[WorkloadStatement], WorkloadStatement]
) -> None:
    proposal = house.proposal(*all_of(house))
    assert code_and_check(refused(house, restated(house, proposal, change))) == ("workload_statement_differs", 5)


def test_a_workload_statement_by_an_unknown_key_is_refused(house: House) -> None:
    proposal = restated(house, house.proposal(*all_of(house)), lambda said: said, by="rogue")
    assert code_and_check(refused(house, proposal)) == ("key_unknown", 2)


def test_a_workload_statement_in_another_notarys_name_is_refused(house: House) -> None:
    proposal = restated(house, house.proposal(*all_of(house)), lambda said: replace(said, notary="notary-b"))
    assert code_and_check(refused(house, proposal)) == ("signer_name_wrong", 2)


def test_a_workload_statement_that_has_expired_is_refused(house: House) -> None:
    proposal = house.proposal(*all_of(house))
    expired = restated(house, proposal, lambda said: replace(said, expires_at=said.issued_at + 1))
    house.stand.time.pass_by(1)
    assert code_and_check(refused(house, expired)) == ("proof_expired", 6)


def test_a_workload_statement_in_another_spelling_is_refused(house: House) -> None:
    proposal = house.proposal(*all_of(house))
    assert proposal.statement is not None
    spaced = replace(proposal.statement, envelope=proposal.statement.envelope + b"\n")
    assert code_and_check(refused(house, replace(proposal, statement=spaced))) == ("json_trailing_bytes", 1)


def test_a_proof_is_not_taken_for_the_workload_statement(house: House) -> None:
    proposal = house.proposal(*all_of(house))
    proof = proposal.parts[0].proofs[0]
    assert code_and_check(refused(house, replace(proposal, statement=proof))) == ("predicate_type_wrong", 3)


def test_a_workload_statement_that_is_not_in_the_log_is_refused(house: House) -> None:
    proposal = house.proposal(*all_of(house))
    assert proposal.statement is not None
    elsewhere = replace(proposal.statement, index=0)
    assert code_and_check(refused(house, replace(proposal, statement=elsewhere))) == ("statement_not_logged", 11)


def test_one_bad_chunk_keeps_all_back_and_is_named(house: House) -> None:
    found = all_of(house)
    house.stand.time.pass_by(HOUR // 2)
    bad = found[1]
    proposal = house.proposal(*found)
    for path in file_at(bad.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    error = refused(house, proposal)
    assert (error.check, error.details["attempt_id"]) == (10, bad.attempt_id)


def test_one_file_is_not_published_by_two_chunks(house: House) -> None:
    """The second chunk's branch adds the first one's file, and its proof says so."""
    base = house.found().metadata.current_snapshot_id
    first = house.attempt("w", "a")
    files = house.stage(first, [(10, 3, "Ulm")])
    house.prove(first, files, base)
    second = house.attempt("w", "b")
    house.commit(files, second.branch, by=STEWARD_GRANT)
    house.prove(second, files, base)
    third = chunk(house, "c", 12)
    error = refused(house, house.proposal(first, second, third))
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


def test_a_lone_chunk_needs_no_statement(house: House) -> None:
    house.table("returns", rows=BEFORE)
    other = house.proposal(*all_of(house)).statement
    alone = house.proposal(house.proved("v", [(5, 5, "Ulm")], name="returns"))
    with pytest.raises(VerificationError) as caught:
        validate_then_commit(replace(alone, statement=other), house.gate("returns"))
    assert code_and_check(caught.value) == ("workload_statement_needless", 1)
