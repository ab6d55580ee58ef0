"""Manifests from before the protection, which producers can write: none of them changes what is proved later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.entry import FileContent, ManifestContent, ManifestEntry
from pvdm.lake.read.entries import listed_manifests, live_entries
from pvdm.lake.vault import VaultKind
from tests.support.audit.expiring_history import publish_attempt
from tests.support.gate.protected_tables import House, Row, contract
from tests.support.lake.found_manifests import (
    FIRST_ROW_ID,
    LIST_FIELDS,
    Planted,
    added,
    data_file,
    equality_deletes,
    existing,
    live,
    overwrite,
    plant,
)

NEW: Sequence[Row] = [(3, 1, "Ulm")]
Plant = Callable[[House], list[str]]


def publish_after_planting(house: House, plant_manifests: Plant, *, copied: bool, version: int) -> str:
    """Make a table, plant manifests, protect it, publish a row; returns "published", or why it is not protected."""
    house.scene.make("orders", version=version)
    plant_manifests(house)
    house.contracts["orders"] = contract()
    try:
        house.scene.protect(house.scene.protection("orders", contract=contract()))
    except PvdmError as error:
        assert house.scene.contract_of() is None
        return error.reason
    publish_attempt(house, house.proved("one", NEW, copied=copied))
    return "published"


def live_entries_of_main(house: House) -> list[ManifestEntry]:
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    return list(live_entries(metadata, metadata.current_snapshot, house.files))


def files_hidden_by_deletes(house: House) -> list[str]:
    """The data files to which an equality delete of `main` applies: those that are older than it."""
    found = live_entries_of_main(house)
    deletes = [each.sequence_number or 0 for each in found if each.data_file.content is FileContent.EQUALITY_DELETES]
    return [
        each.data_file.file_path
        for each in found
        if each.data_file.content is FileContent.DATA and any((each.sequence_number or 0) < least for least in deletes)
    ]


def deletes_ahead(house: House) -> list[str]:
    """A delete file that is in force until sequence number 1,000."""
    entry = added(equality_deletes(house), sequence_number=1_000, file_sequence_number=1)
    honest = added(data_file(house, 1))
    return plant(
        house,
        [
            Planted([honest]),
            Planted([entry], ManifestContent.DELETES, listed={LIST_FIELDS["minimum"]: 1}),
        ],
    )


def deletes_ahead_by_the_list(house: House) -> list[str]:
    """The same, inherited from a list whose header says nothing of the snapshot."""
    listed = {LIST_FIELDS["sequence"]: 1_000, LIST_FIELDS["minimum"]: 1_000}
    return plant(
        house,
        [
            Planted([added(data_file(house, 1))]),
            Planted([added(equality_deletes(house))], ManifestContent.DELETES, listed=listed),
        ],
        silent=True,
    )


def file_number_ahead(house: House) -> list[str]:
    """A data file whose file sequence number is ahead of the table's."""
    return plant(house, [Planted([added(data_file(house, 1), sequence_number=1, file_sequence_number=1_000)])])


def row_ids_ahead(house: House) -> list[str]:
    """A file whose rows have the ids that the next publication gives away."""
    return plant(house, [Planted([added(data_file(house, 1))], listed={FIRST_ROW_ID: 1})])


def row_ids_ahead_of_an_entry(house: House) -> list[str]:
    """The same, with the row ids in the entry itself."""
    house.commit(house.write_files(f"{house.table_state().metadata.location}/data/before", [(1, 1, "Ulm")]), "main")
    file = live(house)[0].data_file
    return plant(house, [Planted([existing(replace(file, first_row_id=50), 1)])])


def row_ids_twice(house: House) -> list[str]:
    """Two files with the same row ids."""
    house.commit(house.write_files(f"{house.table_state().metadata.location}/data/before", [(1, 1, "Ulm")]), "main")
    before = live(house)
    return plant(house, [Planted(before), Planted([added(data_file(house, 2))], listed={FIRST_ROW_ID: 0})])


ATTACKS: dict[str, tuple[Plant, int, str]] = {
    "a delete ahead": (deletes_ahead, 2, "manifest_sequence_ahead"),
    "a delete ahead, format 3": (deletes_ahead, 3, "manifest_sequence_ahead"),
    "a delete ahead by its list": (deletes_ahead_by_the_list, 2, "found_sequence_ahead"),
    "a file's number ahead": (file_number_ahead, 2, "found_sequence_ahead"),
    "row ids ahead": (row_ids_ahead, 3, "found_row_ids_ahead"),
    "row ids ahead, of an entry": (row_ids_ahead_of_an_entry, 3, "found_row_ids_ahead"),
    "row ids twice": (row_ids_twice, 3, "found_row_ids_overlap"),
}


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "open"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_table_whose_manifests_would_affect_later_publications_is_not_protected(
    house: House, name: str, copied: bool
) -> None:
    plant_manifests, version, code = ATTACKS[name]
    assert publish_after_planting(house, plant_manifests, copied=copied, version=version) == code


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "open"])
def test_deletes_from_before_the_protection_hide_nothing_that_is_published(house: House, copied: bool) -> None:
    """An honest delete file, whose sequence number is that of its snapshot."""

    def honest(house: House) -> list[str]:
        return plant(
            house,
            [Planted([added(data_file(house, 1))]), Planted([added(equality_deletes(house))], ManifestContent.DELETES)],
        )

    assert publish_after_planting(house, honest, copied=copied, version=2) == "published"
    assert files_hidden_by_deletes(house) == []


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "open"])
def test_overwriting_an_old_manifest_after_a_publication_does_not_change_main(
    house: House, copied: bool, version: int
) -> None:
    paths: list[str] = []

    def plant_manifests(house: House) -> list[str]:
        paths[:] = plant(house, [Planted([added(data_file(house, 1)), added(data_file(house, 2))])])
        return paths

    assert publish_after_planting(house, plant_manifests, copied=copied, version=version) == "published"
    overwrite(house, paths[0], [added(data_file(house, 98)), added(data_file(house, 99))])
    assert house.rows() == [1, 2, 3]
    metadata, vault = house.table_state().metadata, house.vault.root.child(house.table_state().row.table_uuid)
    head = metadata.current_snapshot
    assert head is not None
    shown = [str(head.manifest_list), *(each.manifest_path for each in listed_manifests(metadata, head, house.files))]
    assert all(each.startswith(f"{vault}/{VaultKind.METADATA.value}/") for each in shown), shown
