"""Manifests of an upstream's table from before its protection: none of them changes what is proved later."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.entry import ManifestContent
from pvdm.lake.read.entries import listed_manifests
from pvdm.model.statements.migration import ProtectionAction
from tests.support.catalog.upstream import NEW, Upstream, code_of, publish
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


def fresh(house: House, there: Upstream, *manifests: Planted, **more: Any) -> list[str]:
    """Another snapshot of `main` at the upstream, while nothing protects the table."""

    def commit(updates: list[Any]) -> None:
        there.catalog.commits.commit(there.grant(), [Change(there.levels, "orders", (), updates)])

    house.scene.protect(
        house.scene.protection("orders", action=ProtectionAction.UNPROTECT, contract=house.contracts["orders"])
    )
    return plant(house, manifests, commit=commit, **more)


def protect(house: House) -> str:
    try:
        house.scene.protect(house.scene.protection("orders", contract=contract()))
    except PvdmError as error:
        return error.reason
    return "protected"


@pytest.mark.parametrize("by_list", [False, True], ids=["entry", "list"])
def test_an_upstreams_table_with_a_delete_ahead_is_not_protected(house: House, there: Upstream, by_list: bool) -> None:
    number = there.found().metadata.next_sequence_number
    listed = {LIST_FIELDS["sequence"]: 1_000, LIST_FIELDS["minimum"]: 1_000 if by_list else number}
    entry = added(equality_deletes(house), **({} if by_list else {"sequence_number": 1_000}))
    fresh(
        house,
        there,
        Planted([added(data_file(house, 1))]),
        Planted([entry], ManifestContent.DELETES, listed=listed if by_list else {LIST_FIELDS["minimum"]: number}),
        silent=by_list,
    )
    assert protect(house) == ("found_sequence_ahead" if by_list else "manifest_sequence_ahead")


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "open"])
def test_a_manifest_of_an_upstreams_new_base_is_taken_over(house: House, there: Upstream, copied: bool) -> None:
    manifest, _ = fresh(house, there, Planted([added(data_file(house, 1)), added(data_file(house, 2))]))
    assert protect(house) == "protected"
    publish(house, house.proved("w", NEW, copied=copied))
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    assert house.rows() == [1, 2, 3, 4]
    metadata = house.found().metadata
    assert metadata.current_snapshot is not None
    shown = [each.manifest_path for each in listed_manifests(metadata, metadata.current_snapshot, house.files)]
    assert all(
        each.startswith(f"{house.vault.root}/") for each in (str(metadata.current_snapshot.manifest_list), *shown)
    )


def test_a_manifest_of_an_upstreams_table_that_changed_since_its_protection_is_not_published_on(
    house: House, there: Upstream
) -> None:
    manifest, _ = fresh(house, there, Planted([added(data_file(house, 1)), added(data_file(house, 2))]))
    assert protect(house) == "protected"
    attempt = house.proved("w", NEW)
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    assert code_of(house, attempt) == "table_in_doubt"
