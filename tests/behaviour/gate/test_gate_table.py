"""Gate checks 5 and 7 to 9: for each an attack with a valid proof of something else that only this check stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import VerificationError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import Pointer
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.model.projection import Projection
from pvdm.model.statements.core import ExtractionPath, Operation, Profile, ProofCore
from pvdm.model.statements.proof import Storage
from pvdm.steward.access import STEWARD_GRANT
from tests.support import fault
from tests.support.gate.approvals import COLUMN, SALES
from tests.support.gate.attacks import (
    BEFORE,
    NEW,
    code_and_check,
    publish,
    refusal,
    with_attempt,
    with_method,
    with_target,
)
from tests.support.gate.protected_tables import Doc, House, contract
from tests.support.stores.places import ON_S3, file_at
from tools.proof_kit import fixed

# 5: the target


def in_other_catalog(core: ProofCore) -> ProofCore:
    return replace(core, target=replace(core.target, table=replace(core.target.table, catalog="other")))


def without_keys(core: ProofCore) -> ProofCore:
    keys = replace(core.projections[1], projection=replace(core.projections[1].projection, columns=("town",)))
    return replace(core, projections=(core.projections[0], keys))


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (in_other_catalog, "proof_wrong_catalog"),
        (with_target(branch="audit"), "proof_wrong_branch"),
        (with_target(operation=Operation.OVERWRITE), "proof_wrong_operation"),
        (with_target(partition=(("day", "2026-11-01"),)), "proof_wrong_partition"),
        (with_attempt(contract_sha256=fixed("another contract")), "proof_wrong_contract"),
        (with_attempt(parameters=(("day", "1"),)), "proof_wrong_parameters"),
        (with_attempt(plan_sha256=fixed("another plan")), "proof_wrong_plan"),
        (with_method(profile=Profile.O), "proof_wrong_method"),
        (with_method(extraction=ExtractionPath.SPARK), "proof_wrong_method"),
        (without_keys, "proof_wrong_projection"),
    ],
)
def test_a_proof_about_something_else_publishes_nothing(
    orders: House, changed: Callable[[ProofCore], ProofCore], code: str
) -> None:
    attempt = orders.proved("w", NEW, changed=changed)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == (code, 5)


def test_a_proof_is_not_replayed_on_another_table(orders: House) -> None:
    orders.table("returns", rows=BEFORE)
    proposal = orders.proposal(orders.proved("w", NEW))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate("returns")))) == (
        "proof_wrong_table",
        5,
    )


def test_a_proof_under_an_older_contract_publishes_nothing(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    proposal = orders.proposal(attempt)
    orders.scene.migrate(orders.scene.migration(contract=contract() + "limits:\n  chunks: 7\n"))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))) == (
        "proof_wrong_contract",
        5,
    )


def test_a_proof_about_other_storage_than_the_contracts_publishes_nothing(house: House) -> None:
    house.table(rows=BEFORE, text=contract(more="storage: copied\n"))
    attempt = house.proved("w", NEW)
    assert code_and_check(refusal(house, lambda: publish(house, attempt))) == ("proof_wrong_storage", 5)


def test_the_contract_is_checked_again_in_the_transaction(orders: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap compares the whole row. Without this comparison the gate must still notice another contract."""
    attempt = orders.proved("w", NEW)
    row = orders.table_state().row

    def migrate() -> None:
        orders.transact(lambda unit: tables.protect(unit, row, fixed("another contract")))

    def swap_without_comparing(unit: Unit, judged: TableRow, to: Pointer, *, location: str | None = None) -> TableRow:
        return swap(unit, tables.get_by_id(unit, judged.table_id), to, location=location)

    swap = tables.swap
    monkeypatch.setattr(tables, "swap", swap_without_comparing)
    with fault.armed("gate.after_files", fault.Call(migrate)), pytest.raises(VerificationError) as caught:
        publish(orders, attempt)
    assert code_and_check(caught.value) == ("proof_wrong_contract", 5)
    assert orders.table_state().row.pointer == row.pointer


# 7: the table's structure


def test_rows_that_were_verified_for_another_schema_are_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    orders.scene.migrate(orders.scene.migration(COLUMN))
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_wrong_schema", 7)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (with_target(schema_fingerprint=fixed("another schema")), "proof_wrong_schema"),
        (with_target(spec_id=5), "proof_wrong_spec"),
        (with_target(format_version=3), "proof_wrong_format"),
    ],
)
def test_files_that_were_verified_for_another_structure_are_not_published(
    orders: House, changed: Callable[[ProofCore], ProofCore], code: str
) -> None:
    attempt = orders.proved("w", NEW, changed=changed)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == (code, 7)


def test_a_projection_that_leaves_a_column_out_publishes_nothing(orders: House) -> None:
    def without_town(core: ProofCore) -> ProofCore:
        first, keys = core.projections
        few = Projection(first.projection.name, ("day", "id"))
        return replace(core, projections=(replace(first, projection=few), keys))

    attempt = orders.proved("w", NEW, changed=without_town)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_wrong_projection", 7)


def test_a_table_of_format_1_is_not_published_to(house: House) -> None:
    house.table(version=1)
    attempt = house.proved("w", [])
    assert code_and_check(refusal(house, lambda: publish(house, attempt))) == ("format_not_published", 7)


# 8: the branch


def test_a_branch_that_moved_after_the_verdict_publishes_nothing(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    orders.commit((), attempt.branch, by=STEWARD_GRANT)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("branch_moved", 8)


def test_a_branch_that_moves_before_the_swap_publishes_nothing(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    moving = fault.Call(lambda: _move_branch(orders, attempt))
    with fault.armed("gate.after_rehash", moving), pytest.raises(VerificationError) as caught:
        publish(orders, attempt)
    assert (code_and_check(caught.value), orders.rows()) == (("branch_moved", 8), [1, 2])


def _move_branch(house: House, attempt: Attempt) -> None:
    house.commit((), attempt.branch, by=STEWARD_GRANT)


def test_a_branch_that_is_gone_publishes_nothing(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    update: Doc = {"action": "remove-snapshot-ref", "ref-name": attempt.branch}
    removal: Doc = {"action": "remove-snapshots", "snapshot-ids": [int(str(attempt.staged_snapshot_id))]}
    orders.notary.catalog.commits.commit(STEWARD_GRANT, [Change(SALES, "orders", (), [update, removal])])
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("branch_moved", 8)


def test_a_proof_on_a_base_that_main_never_showed_publishes_nothing(orders: House) -> None:
    """The base is a staged snapshot of another attempt."""
    other = orders.proved("v", [(9, 9, "Ulm")])
    staged = int(str(other.staged_snapshot_id))
    attempt = orders.proved("w", NEW, changed=with_target(base_snapshot_id=staged))
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("base_left_main", 8)


# 9: the files


def test_a_file_that_no_proof_names_is_not_published(orders: House) -> None:
    """The branch has two files, the proof names one of them."""

    def with_one_file(core: ProofCore) -> ProofCore:
        kept = replace(core.files, added=core.files.added[:1])
        return replace(core, files=kept)

    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    files = orders.stage(attempt, NEW)
    orders.prove(attempt, files, base, changed=with_one_file, listed=[_first_of(files)])
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_wrong_files", 9)


def _first_of(files: Sequence[DataFile]) -> DataFile:
    return min(files, key=lambda file: file.file_path)


def test_a_verified_manifest_with_a_file_that_no_proof_names_is_refused(orders: House) -> None:
    """The manifest lists a file that was never staged, beside the verified ones."""
    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    files = orders.stage(attempt, NEW)
    more = orders.write_files(f"{attempt.prefix}/data", [(66, 6, "Ulm")])
    orders.prove(attempt, files, base, listed=[*files, *more])
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_wrong_files", 9)


def test_a_verified_manifest_with_another_row_count_is_refused(orders: House) -> None:
    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    files = orders.stage(attempt, NEW)
    orders.prove(attempt, files, base, listed=[replace(file, record_count=file.record_count + 1) for file in files])
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_wrong_rows", 9)


def test_a_file_outside_the_attempts_folder_is_not_published(orders: House) -> None:
    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    files = orders.write_files(f"{orders.table_state().metadata.location}/data/others", NEW)
    orders.commit(files, attempt.branch, by=STEWARD_GRANT)
    orders.prove(attempt, files, base)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("published_path_outside", 9)


def test_a_producers_own_file_is_not_published_where_the_proof_says_copied(orders: House) -> None:
    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    orders.prove(attempt, orders.stage(attempt, NEW), base, storage=Storage.COPIED)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("published_path_outside", 9)


@pytest.mark.skipif(ON_S3, reason="an object store has no links")
def test_a_file_behind_a_link_is_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    folder = file_at(attempt.prefix) / "data"
    folder.rename(folder.parent / "moved")
    folder.symlink_to(folder.parent / "moved")
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("published_path_outside", 9)


@pytest.mark.skipif(ON_S3, reason="an object has one name")
def test_one_file_under_two_names_is_not_published_twice(orders: House) -> None:
    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    (file,) = orders.write_files(f"{attempt.prefix}/data", NEW[:1])
    both = (file, replace(file, file_path=file.file_path.replace("file:///", "file:/")))
    orders.commit(both, attempt.branch, by=STEWARD_GRANT)
    orders.prove(attempt, both, base)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("file_listed_twice", 9)


def test_an_append_that_removes_files_is_refused(orders: House) -> None:
    gone = orders.paths(of_day=1)
    orders.open("w")
    attempt = orders.attempt("w")
    base = orders.table_state().metadata.current_snapshot_id
    files = orders.stage(attempt, NEW, removed=gone)
    orders.prove(attempt, files, base)
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("proof_wrong_removals", 9)


@pytest.mark.parametrize("what", ["too little", "too much"])
def test_an_overwrite_that_removes_less_or_more_than_its_boundary_is_refused(house: House, what: str) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite-partitions", partition={"day": "2026-11-01"}))
    gone = [] if what == "too little" else house.paths()
    attempt = house.proved("w", [(3, 1, "Ulm")], removed=gone)
    assert code_and_check(refusal(house, lambda: publish(house, attempt))) == ("proof_wrong_removals", 9)


def test_a_verified_manifest_of_another_proof_is_refused(orders: House) -> None:
    proposal = orders.proposal(orders.proved("w", NEW))
    other = replace(proposal.parts[0], core_sha256=fixed("another core"))
    error = refusal(orders, lambda: validate_then_commit(replace(proposal, parts=(other,)), orders.gate()))
    assert error.reason == "verified_of_other_proof"
