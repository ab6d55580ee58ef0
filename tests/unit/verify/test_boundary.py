"""The live files of the base that an operation replaces: all, those of declared partitions, or of the staged files'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.read.entries import replaced_files
from pvdm.model.statements.core import Operation
from pvdm.verify.fetch import Files
from tests.support.lake.manifests import refused
from tests.support.lake.metadata import Doc
from tests.support.verify.staged import BY_TOWN, Yard

PARTITIONS = Operation.OVERWRITE_PARTITIONS
BY_DAY: Doc = {"name": "day", "transform": "day", "source-id": 4, "field-id": 1001}


def live_file(path: str, *values: Any) -> DataFile:
    partition = IdMap((1000 + at, value) for at, value in enumerate(values))
    return DataFile(file_path=path, file_format="PARQUET", record_count=1, file_size_in_bytes=1, partition=partition)


def yard_with(folder: Path, *files: DataFile, spec: Sequence[Doc] = (BY_TOWN,), **more: Any) -> Yard:
    yard = Yard(folder / "t", spec=spec, **more)
    yard.add(*files)
    return yard


def paths_replaced(yard: Yard, operation: Operation, partition: Any = (), added: Sequence[DataFile] = ()) -> set[str]:
    return set(replaced_files(yard.metadata, 1, operation, partition, added, Files()))


def test_an_append_replaces_nothing(tmp_path: Path) -> None:
    assert paths_replaced(yard_with(tmp_path, live_file("a", "Rome")), Operation.APPEND) == set()


def test_an_overwrite_replaces_every_live_file(tmp_path: Path) -> None:
    yard = yard_with(tmp_path, live_file("a", "Rome"), live_file("b", None))
    assert paths_replaced(yard, Operation.OVERWRITE) == {"a", "b"}


def test_an_overwrite_of_an_empty_table_replaces_nothing(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    assert replaced_files(yard.metadata, None, Operation.OVERWRITE, (), (), Files()) == frozenset()


def test_a_file_that_the_base_removed_is_not_replaced(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", spec=(BY_TOWN,))
    numbers = {"snapshot_id": 1, "sequence_number": 1, "file_sequence_number": 1}
    removed = ManifestEntry(status=EntryStatus.DELETED, data_file=live_file("a", "Rome"), **numbers)
    added = ManifestEntry(status=EntryStatus.ADDED, data_file=live_file("b", "Rome"), snapshot_id=1)
    yard.snapshot([yard.manifest([removed, added])])
    assert paths_replaced(yard, Operation.OVERWRITE) == {"b"}


@pytest.mark.parametrize(("value", "paths"), [("Rome", {"a", "c"}), ("Oslo", {"b"}), (None, {"n"}), ("Bonn", set())])
def test_a_declared_partition_replaces_its_files_even_without_staged_files(
    tmp_path: Path, value: str | None, paths: set[str]
) -> None:
    towns = {"a": "Rome", "b": "Oslo", "c": "Rome", "n": None}
    yard = yard_with(tmp_path, *(live_file(path, town) for path, town in towns.items()))
    assert paths_replaced(yard, PARTITIONS, (("town", value),)) == paths


def test_a_declared_value_is_read_as_the_type_of_its_partition(tmp_path: Path) -> None:
    stamp: Doc = {"id": 4, "name": "at", "required": False, "type": "timestamp"}
    fields = [*Yard(tmp_path).fields, stamp]
    yard = yard_with(tmp_path, live_file("a", "x", 0), live_file("b", "x", 1), spec=(BY_TOWN, BY_DAY), fields=fields)
    assert paths_replaced(yard, PARTITIONS, (("day", "1970-01-02"),)) == {"b"}


def test_a_copied_column_may_be_declared_by_its_own_name(tmp_path: Path) -> None:
    yard = yard_with(tmp_path, live_file("a", "Rome"), spec=({**BY_TOWN, "name": "place"},))
    by_column, by_field = (paths_replaced(yard, PARTITIONS, ((name, "Rome"),)) for name in ("town", "place"))
    assert by_column == by_field == {"a"}


def test_an_unknown_partition_is_refused(tmp_path: Path) -> None:
    with refused("partition_unknown"):
        paths_replaced(yard_with(tmp_path, live_file("a", "Rome")), PARTITIONS, (("country", "x"),))


def test_without_declared_values_the_partitions_of_the_staged_files_are_replaced(tmp_path: Path) -> None:
    yard = yard_with(tmp_path, live_file("a", "Rome"), live_file("b", "Oslo"), live_file("n", None))
    assert paths_replaced(yard, PARTITIONS, (), [live_file("x", "Rome"), live_file("y", None)]) == {"a", "n"}
    assert paths_replaced(yard, PARTITIONS) == set()


def test_a_table_without_partitions_is_replaced_as_one_partition(tmp_path: Path) -> None:
    yard = yard_with(tmp_path, live_file("a"), spec=())
    assert paths_replaced(yard, PARTITIONS, (), [live_file("x")]) == {"a"}
    assert paths_replaced(yard, PARTITIONS) == set()


def test_nan_is_one_partition_and_zeros_of_either_sign_are_two(tmp_path: Path) -> None:
    by_amount = {**BY_TOWN, "name": "amount", "source-id": 3}
    yard = yard_with(tmp_path, live_file("n", math.nan), live_file("z", 0.0), spec=(by_amount,))
    assert paths_replaced(yard, PARTITIONS, (), [live_file("x", math.nan), live_file("y", -0.0)]) == {"n"}


def test_files_of_another_spec_stay_if_the_staged_files_name_the_partitions(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", specs={0: [], 1: [BY_TOWN]})
    old = ManifestEntry(status=EntryStatus.ADDED, data_file=live_file("old"), snapshot_id=1)
    new = ManifestEntry(status=EntryStatus.ADDED, data_file=live_file("new", "Rome"), snapshot_id=1)
    yard.snapshot([yard.manifest([old], yard.header(spec_id=0)), yard.manifest([new])])
    assert paths_replaced(yard, PARTITIONS, (), [live_file("x", "Rome")]) == {"new"}


def test_files_of_another_spec_with_equal_values_are_replaced_only_if_declared(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", specs={0: [{**BY_TOWN, "name": "place"}], 1: [BY_TOWN]})
    old = ManifestEntry(status=EntryStatus.ADDED, data_file=live_file("old", "Rome"), snapshot_id=1)
    yard.snapshot([yard.manifest([old], yard.header(spec_id=0))])
    assert paths_replaced(yard, PARTITIONS, (), [live_file("x", "Rome")]) == set()
    assert paths_replaced(yard, PARTITIONS, (("town", "Rome"),)) == {"old"}


def test_delete_files_are_not_replaced(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    deletes = replace(live_file("d"), content=FileContent.POSITION_DELETES)
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=deletes, snapshot_id=1)
    yard.snapshot([yard.manifest([entry], yard.header(ManifestContent.DELETES))])
    assert paths_replaced(yard, Operation.OVERWRITE) == set()


def test_a_live_file_of_a_spec_without_the_declared_column_is_refused(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", specs={0: [], 1: [BY_TOWN]})
    old = ManifestEntry(status=EntryStatus.ADDED, data_file=live_file("old"), snapshot_id=1)
    yard.snapshot([yard.manifest([old], yard.header(spec_id=0))])
    with refused("boundary_unclear"):
        paths_replaced(yard, PARTITIONS, (("town", "Rome"),))


def test_an_unknown_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such snapshot"):
        replaced_files(Yard(tmp_path).metadata, 9, Operation.OVERWRITE, (), (), Files())
