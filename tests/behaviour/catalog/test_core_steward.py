"""The role `steward` in the catalog: it maintains staging branches of protected tables, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import NotAllowedError
from tests.support.catalog.core import FIRST, SALES, STEWARD, Core, core_in, ref_is, set_ref


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def test_the_steward_can_make_a_branch_write_to_it_and_remove_it(core: Core) -> None:
    base = core.table().metadata
    core.commit("orders", [set_ref("stage", FIRST)], requirements=[ref_is(base, "stage")], by=STEWARD)
    staged = core.staged(by=STEWARD).metadata
    assert staged.refs["stage"].snapshot_id != FIRST
    gone = core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": "stage"}], by=STEWARD)
    assert "stage" not in gone.metadata.refs


def test_the_steward_cannot_set_a_tag(core: Core) -> None:
    core.table()
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", [set_ref("v1", FIRST, "tag")], by=STEWARD)
    assert caught.value.reason == "tag_not_allowed"


def test_the_steward_cannot_write_to_an_unprotected_table(core: Core) -> None:
    core.table(protected=False)
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", [set_ref("stage", FIRST)], by=STEWARD)
    assert caught.value.reason == "role_wrong"


def test_the_steward_cannot_rename_or_drop_a_table(core: Core) -> None:
    row = core.table("other", levels=SALES, protected=False).row
    for what in ("its name would change", "it would be dropped"):
        with pytest.raises(NotAllowedError) as caught:
            core.access.require_may_rename_or_drop(STEWARD, row, what)
        assert caught.value.reason == "role_wrong"
