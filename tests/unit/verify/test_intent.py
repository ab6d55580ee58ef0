"""The intent of a chunk (the rows that should be published): files, filter, mapping and digest of the pinned source."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pvdm.digest import digest
from pvdm.errors import InputError, VerificationError
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema
from pvdm.verify.chunk_files import files_of_chunk
from pvdm.verify.intent import digest_plan, require_mapping
from tests.support.lake.scans import KEYS, Lake, fetch, identity_spec, pinned, table_of, to_doc
from tests.support.verify.intents import digest_intent
from tests.support.verify.plans import plan_with_rows
from tests.unit.contract.examples import contract_with

LONG, INT, STRING = (PrimitiveType(kind) for kind in (Kind.LONG, Kind.INT, Kind.STRING))
SOURCE = Schema(
    (Field("id", INT, field_id=1), Field("s", STRING, field_id=2), Field("p", DecimalType(5, 2), field_id=3))
)
TARGET = Schema((Field("amount", DecimalType(9, 2), field_id=7), Field("key", LONG, True, field_id=8)))
MAPPING = [
    {"from": "p", "to": "amount", "type": "decimal(9, 2)"},
    {"from": "id", "to": "key", "type": "long"},
]
ALL = ChunkDefinition("all", "true", None)


def bound_contract(*changes: tuple[str, Any], identity: tuple[str, ...] = ("id",)) -> BoundContract:
    return contract_with(("projections/identity", list(identity)), *changes).bind({})


def lake_at(folder: Path, *files: list[dict[str, Any]]) -> Lake:
    lake = Lake(folder, (to_doc(SOURCE),), specs={0: [], 1: identity_spec(2, "s")})
    for rows in files:
        lake.data(table_of(SOURCE, rows))
    return lake


@pytest.mark.usefixtures("kernel")
def test_rows_are_filtered_renamed_dropped_and_widened(tmp_path: Path) -> None:
    lake = lake_at(
        tmp_path,
        [{"id": 1, "s": "a", "p": Decimal("1.50")}, {"id": 2, "s": "b", "p": Decimal("2.50")}],
        [{"id": 3, "s": "a", "p": None}],
    )
    contract = bound_contract(("boundary/columns", MAPPING), ("boundary/where", "s = 'a'"), identity=("key",))
    plan = digest_plan(contract.contract, TARGET)
    found = digest_intent(contract, pinned(lake), ALL, plan, KEYS, fetch, threads=2)
    wanted = digest(table_of(TARGET, [{"key": 1, "amount": Decimal("1.50")}, {"key": 3}]), plan, KEYS)
    assert {name: part.rows for name, part in found.items()} == dict.fromkeys(ProjectionName, 2)
    assert all(found[name].matches(wanted[name]) for name in ProjectionName)


@pytest.mark.usefixtures("kernel")
def test_a_chunk_without_files_has_no_rows_and_its_casts_are_checked(tmp_path: Path) -> None:
    source = pinned(lake_at(tmp_path))
    contract = bound_contract()
    plan = digest_plan(contract.contract, SOURCE)
    assert digest_intent(contract, source, ALL, plan, KEYS, fetch)[ProjectionName.CONTENT].rows == 0
    narrow = Schema((SOURCE.fields[0], SOURCE.fields[1], Field("p", DecimalType(5, 3), field_id=3)))
    with pytest.raises(InputError) as caught:
        digest_intent(contract, source, ALL, digest_plan(contract.contract, narrow), KEYS, fetch)
    assert caught.value.reason == "cast_refused"


@pytest.mark.parametrize(
    ("target", "columns"),
    [
        (Schema((*TARGET.fields, Field("more", LONG, field_id=9))), MAPPING),
        (Schema(TARGET.fields[1:]), MAPPING),
        (TARGET, MAPPING[1:]),
    ],
)
def test_a_mapping_that_differs_from_the_targets_columns_is_refused(
    target: Schema, columns: list[dict[str, str]]
) -> None:
    contract = bound_contract(("boundary/columns", columns), identity=("key",))
    with pytest.raises(InputError) as caught:
        require_mapping(contract.contract, SOURCE, digest_plan(contract.contract, target))
    assert caught.value.reason == "mapping_target_differs"


def test_an_excluded_column_needs_no_source() -> None:
    target = Schema((*SOURCE.fields, Field("loaded", LONG, field_id=9)))
    excluded = {"exclude": [{"column": "loaded", "reason": "the time of the load"}]}
    contract = bound_contract(("projections/content", excluded))
    found = require_mapping(contract.contract, SOURCE, digest_plan(contract.contract, target))
    assert [each.target for each in found] == ["id", "s", "p"]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("true", "ab~"),
        ("s = 'a'", "a~"),
        ("s = 'a' and id = 1", "a~"),
        ("s = 'a' or id = 1", "ab~"),
        ("s = 'a' or s = 'b'", "ab~"),
        ("not s = 'a'", "b~"),
        ("not (s = 'a' and id = 1)", "ab~"),
        ("s is null", "~"),
        ("s > 'a'", "b~"),
    ],
)
def test_only_files_that_their_partition_rules_out_are_left_out(tmp_path: Path, where: str, wanted: str) -> None:
    lake = lake_at(tmp_path)
    names: dict[str, str] = {}
    for name in "ab":
        names[lake.data(table_of(SOURCE, [{"id": 1, "s": name}]), spec=1, partition={1000: name})] = name
    names[lake.data(table_of(SOURCE, [{"id": 1, "s": "c"}]))] = "~"
    found = files_of_chunk(bound_contract(), pinned(lake), ChunkDefinition("c", where, None))
    assert "".join(sorted(names[file.location] for file in found)) == wanted


def test_files_are_left_out_by_partition_values_of_dates(tmp_path: Path) -> None:
    columns = Schema((Field("id", INT, field_id=1), Field("d", PrimitiveType(Kind.DATE), field_id=2)))
    lake = Lake(tmp_path, (to_doc(columns),), specs={0: identity_spec(2, "d")})
    for day in (0, 1, None):
        lake.data(table_of(columns, [{"id": 1, "d": day}]), partition={1000: day})
    found = files_of_chunk(bound_contract(), pinned(lake), ChunkDefinition("c", "d = '1970-01-02'", None))
    assert [file.constants[2] for file in found] == [1]


def test_a_chunk_of_files_has_these_files(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, [{"id": 1}], [{"id": 2}])
    source = pinned(lake)
    contract = bound_contract(("chunking", {"by": "files", "max-size": 1}))
    first, second = plan_with_rows(contract, source, fetch)
    locations = [[file.location for file in files_of_chunk(contract, source, each)] for each in (first, second)]
    assert sorted(locations) == [[file.location] for file in source.scan.files]
    with pytest.raises(InputError) as caught:
        files_of_chunk(contract, source, ChunkDefinition("c", None, ("file:///elsewhere",)))
    assert caught.value.reason == "chunk_file_unknown"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("threads", [1, 3])
def test_every_file_is_fetched_once_by_the_given_number_of_threads(tmp_path: Path, threads: int) -> None:
    lake = lake_at(tmp_path, *([{"id": at}] for at in range(12)))
    thread_ids: set[int] = set()
    thread_counts: list[int] = []
    lock = threading.Lock()

    def fetch_counted(location: str) -> bytes:
        with lock:
            thread_ids.add(threading.get_ident())
            thread_counts.append(len(thread_ids))
        return fetch(location)

    contract = bound_contract()
    found = digest_intent(
        contract, pinned(lake), ALL, digest_plan(contract.contract, SOURCE), KEYS, fetch_counted, threads=threads
    )
    assert found[ProjectionName.IDENTITY].rows == 12
    assert len(thread_counts) == 12
    assert max(thread_counts) <= threads


@pytest.mark.usefixtures("kernel")
def test_an_error_in_one_thread_is_raised_and_the_others_stop(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, *([{"id": at}] for at in range(30)))
    source = pinned(lake)
    Path(source.scan.files[0].location.removeprefix("file://")).unlink()
    fetched: list[str] = []

    def fetch_recorded(location: str) -> bytes:
        fetched.append(location)
        return fetch(location)

    contract = bound_contract()
    with pytest.raises(VerificationError) as caught:
        digest_intent(contract, source, ALL, digest_plan(contract.contract, SOURCE), KEYS, fetch_recorded, threads=2)
    assert caught.value.reason == "file_missing"
    assert len(fetched) < 30


@pytest.mark.usefixtures("kernel")
def test_a_null_for_a_required_column_is_refused(tmp_path: Path) -> None:
    contract = bound_contract(("boundary/columns", MAPPING), identity=("key",))
    with pytest.raises(InputError) as caught:
        digest_intent(
            contract,
            pinned(lake_at(tmp_path, [{"id": None}])),
            ALL,
            digest_plan(contract.contract, TARGET),
            KEYS,
            fetch,
        )
    assert caught.value.reason == "null_in_required"
