"""The live files that an operation replaces: of whole tables, of declared partitions, of the staged files' own."""

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


def live(path: str, *values: Any) -> DataFile:
    partition = IdMap((1000 + at, value) for at, value in enumerate(values))
    return DataFile(file_path=path, file_format="PARQUET", record_count=1, file_size_in_bytes=1, partition=partition)


def yard_of(folder: Path, *files: DataFile, spec: Sequence[Doc] = (BY_TOWN,), **more: Any) -> Yard:
    yard = Yard(folder / "t", spec=spec, **more)
    yard.add(*files)
    return yard


def replaced(yard: Yard, operation: Operation, partition: Any = (), added: Sequence[DataFile] = ()) -> set[str]:
    return set(replaced_files(yard.metadata, 1, operation, partition, added, Files()))


def test_an_append_replaces_nothing(tmp_path: Path) -> None:
    assert replaced(yard_of(tmp_path, live("a", "Rome")), Operation.APPEND) == set()


def test_an_overwrite_replaces_every_live_file(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, live("a", "Rome"), live("b", None))
    assert replaced(yard, Operation.OVERWRITE) == {"a", "b"}


def test_an_empty_table_has_nothing_to_replace(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    assert replaced_files(yard.metadata, None, Operation.OVERWRITE, (), (), Files()) == frozenset()


def test_a_file_that_the_base_took_away_is_not_live(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", spec=(BY_TOWN,))
    numbers = {"snapshot_id": 1, "sequence_number": 1, "file_sequence_number": 1}
    gone = ManifestEntry(status=EntryStatus.DELETED, data_file=live("a", "Rome"), **numbers)
    kept = ManifestEntry(status=EntryStatus.ADDED, data_file=live("b", "Rome"), snapshot_id=1)
    yard.snapshot([yard.manifest([gone, kept])])
    assert replaced(yard, Operation.OVERWRITE) == {"b"}


@pytest.mark.parametrize(("value", "paths"), [("Rome", {"a", "c"}), ("Oslo", {"b"}), (None, {"n"}), ("Bonn", set())])
def test_a_declared_partition_replaces_its_files_even_by_nothing(
    tmp_path: Path, value: str | None, paths: set[str]
) -> None:
    yard = yard_of(tmp_path, live("a", "Rome"), live("b", "Oslo"), live("c", "Rome"), live("n", None))
    assert replaced(yard, PARTITIONS, (("town", value),)) == paths


def test_a_declared_value_is_read_by_the_type_of_its_partition(tmp_path: Path) -> None:
    stamp: Doc = {"id": 4, "name": "at", "required": False, "type": "timestamp"}
    fields = [*Yard(tmp_path).fields, stamp]
    yard = yard_of(tmp_path, live("a", "x", 0), live("b", "x", 1), spec=(BY_TOWN, BY_DAY), fields=fields)
    assert replaced(yard, PARTITIONS, (("day", "1970-01-02"),)) == {"b"}


def test_a_copied_column_may_be_declared_by_its_own_name(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, live("a", "Rome"), spec=({**BY_TOWN, "name": "place"},))
    assert replaced(yard, PARTITIONS, (("town", "Rome"),)) == replaced(yard, PARTITIONS, (("place", "Rome"),)) == {"a"}


def test_a_partition_that_the_table_does_not_have_is_an_error(tmp_path: Path) -> None:
    with refused("partition_unknown"):
        replaced(yard_of(tmp_path, live("a", "Rome")), PARTITIONS, (("country", "x"),))


def test_without_declared_values_the_staged_files_tell_the_partitions(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, live("a", "Rome"), live("b", "Oslo"), live("n", None))
    assert replaced(yard, PARTITIONS, (), [live("x", "Rome"), live("y", None)]) == {"a", "n"}
    assert replaced(yard, PARTITIONS) == set()


def test_a_table_without_partitions_is_one(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, live("a"), spec=())
    assert replaced(yard, PARTITIONS, (), [live("x")]) == {"a"}
    assert replaced(yard, PARTITIONS) == set()


def test_nan_is_a_partition_and_a_negative_zero_is_another_than_zero(tmp_path: Path) -> None:
    by_amount = {**BY_TOWN, "name": "amount", "source-id": 3}
    yard = yard_of(tmp_path, live("n", math.nan), live("z", 0.0), spec=(by_amount,))
    assert replaced(yard, PARTITIONS, (), [live("x", math.nan), live("y", -0.0)]) == {"n"}


def test_files_of_another_spec_stay_where_partitions_are_told_by_the_staged_files(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", specs={0: [], 1: [BY_TOWN]})
    old = ManifestEntry(status=EntryStatus.ADDED, data_file=live("old"), snapshot_id=1)
    new = ManifestEntry(status=EntryStatus.ADDED, data_file=live("new", "Rome"), snapshot_id=1)
    yard.snapshot([yard.manifest([old], yard.header(spec_id=0)), yard.manifest([new])])
    assert replaced(yard, PARTITIONS, (), [live("x", "Rome")]) == {"new"}


def test_files_of_another_spec_stay_even_where_their_values_are_the_same(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", specs={0: [{**BY_TOWN, "name": "place"}], 1: [BY_TOWN]})
    old = ManifestEntry(status=EntryStatus.ADDED, data_file=live("old", "Rome"), snapshot_id=1)
    yard.snapshot([yard.manifest([old], yard.header(spec_id=0))])
    assert replaced(yard, PARTITIONS, (), [live("x", "Rome")]) == set()
    assert replaced(yard, PARTITIONS, (("town", "Rome"),)) == {"old"}


def test_delete_files_are_no_part_of_a_boundary(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    deletes = replace(live("d"), content=FileContent.POSITION_DELETES)
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=deletes, snapshot_id=1)
    yard.snapshot([yard.manifest([entry], yard.header(ManifestContent.DELETES))])
    assert replaced(yard, Operation.OVERWRITE) == set()


def test_a_live_file_whose_spec_does_not_tell_makes_a_declared_partition_unclear(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", specs={0: [], 1: [BY_TOWN]})
    old = ManifestEntry(status=EntryStatus.ADDED, data_file=live("old"), snapshot_id=1)
    yard.snapshot([yard.manifest([old], yard.header(spec_id=0))])
    with refused("boundary_unclear"):
        replaced(yard, PARTITIONS, (("town", "Rome"),))


def test_a_base_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such snapshot"):
        replaced_files(Yard(tmp_path).metadata, 9, Operation.OVERWRITE, (), (), Files())
