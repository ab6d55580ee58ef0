"""Manifests of an upstream's table from before its protection: none of them changes what is proved later."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.entry import ManifestContent
from pvdm.lake.read.entries import listed_manifests
from pvdm.model.statements.migration import ProtectionAction
from tests.support.catalog.upstream import NEW, Upstream, publish, reason_of
from tests.support.gate.protected_tables import House, contract
from tests.support.lake.found_manifests import (
    LIST_FIELDS,
    Planted,
    added,
    data_file,
    equality_deletes,
    overwrite,
    plant,
)


def plant_at_upstream(house: House, upstream: Upstream, *manifests: Planted, **more: Any) -> list[str]:
    """Unprotect the table, and commit a snapshot of these manifests at the upstream. Returns the planted paths."""

    def commit(updates: list[Any]) -> None:
        upstream.catalog.commits.commit(upstream.grant(), [Change(upstream.levels, "orders", (), updates)])

    house.scene.protect(
        house.scene.protection("orders", action=ProtectionAction.UNPROTECT, contract=house.contracts["orders"])
    )
    return plant(house, manifests, commit=commit, **more)


def try_to_protect(house: House) -> str:
    """The reason of the refusal, or "protected"."""
    try:
        house.scene.protect(house.scene.protection("orders", contract=contract()))
    except PvdmError as error:
        return error.reason
    return "protected"


@pytest.mark.parametrize("by_list", [False, True], ids=["entry", "list"])
def test_a_table_with_a_delete_of_a_future_sequence_number_is_not_protected(
    house: House, upstream: Upstream, by_list: bool
) -> None:
    number = upstream.table_state().metadata.next_sequence_number
    listed = {LIST_FIELDS["sequence"]: 1_000, LIST_FIELDS["minimum"]: 1_000 if by_list else number}
    entry = added(equality_deletes(house), **({} if by_list else {"sequence_number": 1_000}))
    plant_at_upstream(
        house,
        upstream,
        Planted([added(data_file(house, 1))]),
        Planted([entry], ManifestContent.DELETES, listed=listed if by_list else {LIST_FIELDS["minimum"]: number}),
        silent=by_list,
    )
    assert try_to_protect(house) == ("found_sequence_ahead" if by_list else "manifest_sequence_ahead")


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "open"])
def test_manifests_from_before_the_protection_are_written_anew_into_the_vault(
    house: House, upstream: Upstream, copied: bool
) -> None:
    manifest, _ = plant_at_upstream(house, upstream, Planted([added(data_file(house, 1)), added(data_file(house, 2))]))
    assert try_to_protect(house) == "protected"
    publish(house, house.proved("w", NEW, copied=copied))
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    assert house.rows() == [1, 2, 3, 4]
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    shown = [each.manifest_path for each in listed_manifests(metadata, metadata.current_snapshot, house.files)]
    assert all(
        each.startswith(f"{house.vault.root}/") for each in (str(metadata.current_snapshot.manifest_list), *shown)
    )


def test_nothing_is_published_on_a_manifest_that_changed_after_the_protection(house: House, upstream: Upstream) -> None:
    manifest, _ = plant_at_upstream(house, upstream, Planted([added(data_file(house, 1)), added(data_file(house, 2))]))
    assert try_to_protect(house) == "protected"
    attempt = house.proved("w", NEW)
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    assert reason_of(house, attempt) == "table_in_doubt"
