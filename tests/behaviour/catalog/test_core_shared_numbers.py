"""Attempts that stage on one table at the same time: none gets a conflict because another was first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from tests.support.catalog.core import FIRST, PRODUCER, Core, Doc, core_in, grant, ref_is, to_ref


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def token_of(attempt: Attempt) -> Grant:
    return grant(Role.PRODUCER, attempt_id=attempt.attempt_id)


def snapshot(core: Core, base: TableMetadata, attempt: Attempt, **more: object) -> Doc:
    place = f"{attempt.prefix}/metadata/snap.avro"
    return core.snapshot(base, **{"manifest-list": place, "parent-snapshot-id": FIRST, **more})


def stage(core: Core, base: TableMetadata, attempt: Attempt, **more: object) -> TableMetadata:
    """Commit a snapshot to the attempt's branch, as a client that loaded the table as `base`."""
    updates = to_ref(attempt.branch, snapshot(core, base, attempt, **more))
    return core.commit("orders", updates, requirements=[ref_is(base, attempt.branch)], by=token_of(attempt)).metadata


@pytest.mark.parametrize("version", [2, 3])
def test_attempts_that_loaded_the_same_state_all_commit(core: Core, version: int) -> None:
    table = core.table(version=version)
    staging_attempts = [core.attempt(table.row, name) for name in range(3)]
    for attempt in staging_attempts:
        after = stage(core, table.metadata, attempt)
    staged = [after.snapshot(after.refs[each.branch].snapshot_id) for each in staging_attempts]
    assert [each.sequence_number for each in staged if each] == [2, 2, 2]
    assert after.last_sequence_number == 2
    assert after.next_row_id == (6 if version == 3 else 0)
    assert TableMetadata.parse(after.to_bytes()) == after


def test_sequence_numbers_that_another_attempt_used_meanwhile_are_no_conflict(core: Core) -> None:
    table = core.table()
    one, two = core.attempt(table.row, 1), core.attempt(table.row, 2)
    base = core.get().metadata
    for _ in range(3):
        latest = core.get().metadata
        stage(
            core,
            latest,
            two,
            **{"parent-snapshot-id": (latest.refs.get(two.branch) or latest.refs["main"]).snapshot_id},
        )
    after = stage(core, base, one)
    assert (base.last_sequence_number, after.last_sequence_number) == (1, 4)


def test_a_sequence_number_that_is_not_above_its_parents_is_a_conflict(core: Core) -> None:
    table = core.table()
    attempt = core.attempt(table.row)
    with pytest.raises(ConflictError) as caught:
        stage(core, table.metadata, attempt, **{"sequence-number": 1})
    assert caught.value.reason == "snapshot_sequence_stale"


@pytest.mark.parametrize("number", [3, 2**63 - 1], ids=["skipped", "the last there is"])
def test_a_sequence_number_ahead_is_refused(core: Core, number: int) -> None:
    table = core.table()
    attempt = core.attempt(table.row)
    with pytest.raises(InputError) as caught:
        stage(core, table.metadata, attempt, **{"sequence-number": number})
    assert caught.value.reason == "staging_not_sane"


def test_row_ids_ahead_are_refused(core: Core) -> None:
    table = core.table(version=3)
    attempt = core.attempt(table.row)
    with pytest.raises(InputError) as caught:
        stage(core, table.metadata, attempt, **{"first-row-id": 4})
    assert caught.value.reason == "snapshot_row_ids_skipped"


def test_a_client_without_an_attempt_gets_icebergs_usual_conflict(core: Core) -> None:
    table = core.table()
    stage(core, table.metadata, core.attempt(table.row))
    late = core.snapshot(table.metadata, **{"parent-snapshot-id": FIRST})
    with pytest.raises(ConflictError) as caught:
        core.commit("orders", to_ref("stage", late), by=PRODUCER)
    assert caught.value.reason == "snapshot_sequence_stale"
