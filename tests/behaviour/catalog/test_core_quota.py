"""Each producer has a share of a protected table's branches and snapshots, whoever else stages on it."""

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


def branch(core: Core, name: str, by: Grant = PRODUCER) -> None:
    base = core.get().metadata
    core.commit("orders", [set_ref(name, FIRST)], requirements=[ref_is(base, name)], by=by)


def removed(core: Core, *updates: dict[str, object]) -> None:
    core.commit("orders", updates, by=OPERATOR)


def refused(core: Core, name: str, by: Grant = PRODUCER) -> bool:
    """Whether one branch more is refused, and with nothing changed."""
    before = core.get().row
    with pytest.raises(InputError) as caught:
        branch(core, name, by)
    assert (caught.value.reason, core.get().row) == ("staging_not_sane", before)
    return "2" in (caught.value.expected or "")


def test_a_producer_keeps_no_more_branches_than_its_share(core: Core) -> None:
    branch(core, "a")
    branch(core, "b")
    assert refused(core, "c")


def test_one_producers_branches_do_not_use_up_anothers_quota(core: Core) -> None:
    for name, by in (("a", PRODUCER), ("b", PRODUCER), ("c", OTHER), ("d", OTHER)):
        branch(core, name, by)
    assert refused(core, "e", OTHER)


def test_a_new_token_of_the_same_name_and_one_for_an_attempt_give_no_second_share(core: Core) -> None:
    attempt = core.attempt(core.get().row)
    branch(core, "a")
    branch(core, "b", RENEWED)
    assert refused(core, attempt.branch, replace(PRODUCER, attempt_id=attempt.attempt_id))


def test_a_branch_that_is_gone_is_not_counted_nor_one_that_another_made_since(core: Core) -> None:
    branch(core, "a")
    branch(core, "b")
    removed(core, {"action": "remove-snapshot-ref", "ref-name": "a"})
    branch(core, "a", OTHER)
    removed(core, {"action": "remove-snapshot-ref", "ref-name": "b"})
    branch(core, "c")
    branch(core, "d")
    assert refused(core, "e")


@pytest.mark.parametrize("by", [STEWARD, OPERATOR], ids=lambda by: by.role)
def test_other_roles_have_only_the_tables_limit(core: Core, by: Grant) -> None:
    for name in "abcd":
        branch(core, name, by)
    assert len(core.get().metadata.refs) == 5


def test_a_producer_keeps_no_more_snapshots_than_its_share_and_main_takes_none_of_it(core: Core) -> None:
    for _ in range(3):
        core.staged()
    with pytest.raises(InputError) as caught:
        core.staged()
    assert (caught.value.expected, caught.value.got) == ("at most 3", "4")
    core.staged(by=OTHER)


def test_several_at_once_are_counted_too(core: Core) -> None:
    with pytest.raises(InputError) as caught:
        core.commit("orders", [set_ref(name, FIRST) for name in "abc"])
    assert (caught.value.expected, caught.value.got) == ("at most 2", "3")


def test_the_ledger_stores_the_owner_of_each_branch_and_snapshot(core: Core) -> None:
    core.staged(by=OTHER)
    row, snapshot = core.get().row, core.get().metadata.refs["stage"].snapshot_id
    with core.ledger.read() as unit:
        for kind, name in ((StagedKind.BRANCH, "stage"), (StagedKind.SNAPSHOT, str(snapshot))):
            known = ['["sales","another producer"]', '["sales","a producer"]']
            assert [snapshots.count_owned(unit, row.table_id, maker, kind, {name}) for maker in known] == [1, 0]


def test_another_role_of_the_same_name_is_another_owner(core: Core) -> None:
    namesake = replace(grant(Role.STEWARD), name=PRODUCER.name)
    for name in "ab":
        branch(core, name, namesake)
    branch(core, "c")
    branch(core, "d")
    assert refused(core, "e")


def test_more_than_one_round_of_names_is_counted(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.ledger.unit._VALUES_AT_ONCE", 1)
    branch(core, "a")
    branch(core, "b")
    assert refused(core, "c")
