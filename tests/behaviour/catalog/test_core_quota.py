"""Each producer has a share of a protected table's branches and snapshots, also if other producers stage on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.catalog import sanity
from pvdm.errors import InputError
from pvdm.ledger.catalog import snapshots
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.catalog import StagedKind
from pvdm.model.role import Role
from tests.support.catalog.core import FIRST, OPERATOR, PRODUCER, STEWARD, Core, core_at, grant, ref_is, set_ref
from tests.support.ledger.rows import hex32

OTHER = replace(PRODUCER, name="another producer", token_id=hex32("another"))
RENEWED = replace(PRODUCER, token_id=hex32("renewed"))


@pytest.fixture
def core(tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    monkeypatch.setattr(sanity, "PRODUCER_BRANCHES_MAX", 2)
    monkeypatch.setattr(sanity, "PRODUCER_SNAPSHOTS_MAX", 3)
    with core_at(tmp_path, migrated_url) as made:
        made.table()
        yield made


def make_branch(core: Core, name: str, by: Grant = PRODUCER) -> None:
    base = core.get().metadata
    core.commit("orders", [set_ref(name, FIRST)], requirements=[ref_is(base, name)], by=by)


def commit_as_operator(core: Core, *updates: dict[str, object]) -> None:
    core.commit("orders", updates, by=OPERATOR)


def refuses_branch(core: Core, name: str, by: Grant = PRODUCER) -> bool:
    """Require that one more branch is refused and nothing changes; returns whether the error names the limit."""
    before = core.get().row
    with pytest.raises(InputError) as caught:
        make_branch(core, name, by)
    assert (caught.value.reason, core.get().row) == ("staging_not_sane", before)
    return "2" in (caught.value.expected or "")


def test_a_producer_cannot_make_more_branches_than_its_share(core: Core) -> None:
    make_branch(core, "a")
    make_branch(core, "b")
    assert refuses_branch(core, "c")


def test_one_producers_branches_do_not_use_up_anothers_quota(core: Core) -> None:
    for name, by in (("a", PRODUCER), ("b", PRODUCER), ("c", OTHER), ("d", OTHER)):
        make_branch(core, name, by)
    assert refuses_branch(core, "e", OTHER)


def test_a_new_token_of_the_same_name_and_one_for_an_attempt_give_no_second_share(core: Core) -> None:
    attempt = core.attempt(core.get().row)
    make_branch(core, "a")
    make_branch(core, "b", RENEWED)
    assert refuses_branch(core, attempt.branch, replace(PRODUCER, attempt_id=attempt.attempt_id))


def test_a_removed_branch_is_not_counted_even_if_another_producer_makes_it_again(core: Core) -> None:
    make_branch(core, "a")
    make_branch(core, "b")
    commit_as_operator(core, {"action": "remove-snapshot-ref", "ref-name": "a"})
    make_branch(core, "a", OTHER)
    commit_as_operator(core, {"action": "remove-snapshot-ref", "ref-name": "b"})
    make_branch(core, "c")
    make_branch(core, "d")
    assert refuses_branch(core, "e")


@pytest.mark.parametrize("by", [STEWARD, OPERATOR], ids=lambda by: by.role)
def test_other_roles_have_only_the_tables_limit(core: Core, by: Grant) -> None:
    for name in "abcd":
        make_branch(core, name, by)
    assert len(core.get().metadata.refs) == 5


def test_a_producer_cannot_stage_more_snapshots_than_its_share_and_main_is_not_counted(core: Core) -> None:
    for _ in range(3):
        core.staged()
    with pytest.raises(InputError) as caught:
        core.staged()
    assert (caught.value.expected, caught.value.got) == ("at most 3", "4")
    core.staged(by=OTHER)


def test_several_branches_of_one_commit_are_all_counted(core: Core) -> None:
    with pytest.raises(InputError) as caught:
        core.commit("orders", [set_ref(name, FIRST) for name in "abc"])
    assert (caught.value.expected, caught.value.got) == ("at most 2", "3")


def test_the_ledger_stores_the_owner_of_each_branch_and_snapshot(core: Core) -> None:
    core.staged(by=OTHER)
    row, snapshot = core.get().row, core.get().metadata.refs["stage"].snapshot_id
    with core.ledger.read() as unit:
        for kind, name in ((StagedKind.BRANCH, "stage"), (StagedKind.SNAPSHOT, str(snapshot))):
            owners = ['["sales","another producer"]', '["sales","a producer"]']
            assert [snapshots.count_owned(unit, row.table_id, owner, kind, {name}) for owner in owners] == [1, 0]


def test_another_role_of_the_same_name_is_another_owner(core: Core) -> None:
    namesake = replace(grant(Role.STEWARD), name=PRODUCER.name)
    for name in "ab":
        make_branch(core, name, namesake)
    make_branch(core, "c")
    make_branch(core, "d")
    assert refuses_branch(core, "e")


def test_names_are_counted_over_several_queries(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.ledger.unit._VALUES_AT_ONCE", 1)
    make_branch(core, "a")
    make_branch(core, "b")
    assert refuses_branch(core, "c")
