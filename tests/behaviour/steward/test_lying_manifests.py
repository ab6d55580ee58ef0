"""Manifests that lie, on real tables and the whole way: each lie alone is refused, or what is published corrects it."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.client import StewardClient
from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap, ManifestContent
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import Vault, VaultKind
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from tests.support.ledger.databases import memory_folder
from tests.support.steward.pipeline import RAW
from tests.support.steward.staged_by_hand import LONG_TOWN, OLD, Goods, Staging, goods_at
from tests.support.stores.places import ON_S3, file_at, stores, where

pytest.importorskip("pvdm_kernel")
# PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")

FIELD = "PARQUET:field_id"
Lie = Callable[[Staging], None]


@pytest.fixture(scope="module")
def goods() -> Iterator[Goods]:
    with memory_folder() as folder, goods_at(folder) as made:
        yield made


@pytest.fixture(scope="module")
def producer(goods: Goods) -> Iterator[StewardClient]:
    with goods.line.client() as client:
        yield client


@pytest.fixture
def target(goods: Goods) -> str:
    """A table that shows one old row."""
    return goods.target()


def long(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def said(ids: IdMap[Any] | None, field_id: int, value: object) -> IdMap[Any]:
    """What an entry says, with another value for one field."""
    return IdMap(sorted({**dict(ids or {}), field_id: value}.items()))


def saying(**facts: Any) -> Lie:
    """An entry that is true but for these facts; a pair is a field of one of its maps."""

    def stage(staging: Staging) -> None:
        file = staging.file(row_group_size=2)
        told: dict[str, Any] = {
            name: said(getattr(file, name), *value) if isinstance(value, tuple) and name != "split_offsets" else value
            for name, value in facts.items()
        }
        staging.add(replace(file, **told))

    return stage


def half_the_size(staging: Staging) -> None:
    file = staging.file()
    staging.add(replace(file, file_size_in_bytes=file.file_size_in_bytes // 2))


def listed_twice(staging: Staging) -> None:
    file = staging.file()
    staging.add(file, file)


def listed_twice_in_two_commits(staging: Staging) -> None:
    file = staging.file()
    staging.add(file)
    staging.commit((staging.header, [replace(file, file_path=file.file_path.removeprefix("file://"))]))


def of_another_table(staging: Staging) -> None:
    """The source's own file, whose rows are the right ones."""
    source = file_at(staging.goods.metadata("goods", RAW).location)
    (path,) = source.rglob("*.parquet")
    staging.add(
        replace(staging.file(), file_path=where(path), file_size_in_bytes=path.stat().st_size, split_offsets=None)
    )


def outside_the_prefix(staging: Staging) -> None:
    """In the table's own folder, where live files lie."""
    file = staging.file()
    path = file_at(staging.metadata.location) / "data" / "mine.parquet"
    path.write_bytes(file_at(file.file_path).read_bytes())
    file_at(file.file_path).unlink()
    staging.add(replace(file, file_path=where(path)))


def behind_a_link(staging: Staging) -> None:
    file = staging.file()
    path = parse_location(file.file_path).local
    moved = parse_location(staging.metadata.location).local / "data" / "linked.parquet"
    path.rename(moved)
    path.symlink_to(moved)
    staging.add(file)


def in_a_linked_folder(staging: Staging) -> None:
    file = staging.file()
    path = parse_location(file.file_path).local
    moved = parse_location(staging.metadata.location).local / "data" / "linked"
    path.parent.rename(moved)
    path.parent.symlink_to(moved)
    staging.add(file)


def deletes(content: FileContent) -> Lie:
    def stage(staging: Staging) -> None:
        ids = (1,) if content is FileContent.EQUALITY_DELETES else None
        gone = replace(staging.file(), content=content, equality_ids=ids, split_offsets=None)
        header = replace(staging.header, content=ManifestContent.DELETES)
        staging.commit((staging.header, [staging.file()]), (header, [gone]))

    return stage


def manifest_of_another_schema(staging: Staging) -> None:
    text = staging.header.schema_text.replace('"schema-id":0', '"schema-id":4')
    staging.commit((replace(staging.header, schema_text=text, schema_id=4), [staging.file()]))


def with_id(field_id: int) -> Lie:
    """One more column in the file, under this id."""

    def spoil(table: pa.Table) -> pa.Table:
        more = pa.field("more", pa.int64(), metadata={FIELD: str(field_id)})
        return table.append_column(more, pa.array([7] * len(table), pa.int64()))

    return lambda staging: staging.add(replace(staging.file(spoil=spoil), split_offsets=None))


def without_an_id(staging: Staging) -> None:
    def spoil(table: pa.Table) -> pa.Table:
        return table.append_column(pa.field("more", pa.int64()), pa.array([7] * len(table), pa.int64()))

    staging.add(replace(staging.file(spoil=spoil), split_offsets=None))


def another_format_inside(staging: Staging) -> None:
    file = staging.file()
    path = file_at(file.file_path)
    path.write_bytes((b"Obj\x01" + bytes(file.file_size_in_bytes))[: file.file_size_in_bytes])
    staging.add(file)


M, S, P = FailureClass.METADATA, FailureClass.SCHEMA, FailureClass.PHYSICAL
LIES: dict[str, tuple[Lie, str, FailureClass]] = {
    "fewer records": (saying(record_count=2), "record_count_lies", M),
    "more records": (saying(record_count=4), "record_count_lies", M),
    "values": (saying(value_counts=(1, 2)), "value_count_lies", M),
    "values, nested": (saying(value_counts=(7, 2)), "value_count_lies", M),
    "nulls": (saying(null_value_counts=(3, 0)), "null_count_lies", M),
    "nulls, nested": (saying(null_value_counts=(6, 0)), "null_count_lies", M),
    "nans": (saying(nan_value_counts=(4, 0)), "nan_count_lies", M),
    "half the size": (half_the_size, "file_size_lies", M),
    "split offsets": (saying(split_offsets=(4,)), "split_offsets_lie", M),
    "lower, exact": (saying(lower_bounds=(1, long(2))), "lower_bound_lies", M),
    "upper, exact": (saying(upper_bounds=(1, long(2))), "upper_bound_lies", M),
    "lower of doubles": (saying(lower_bounds=(4, double(0.0))), "lower_bound_lies", M),
    "upper of doubles": (saying(upper_bounds=(4, double(2.25))), "upper_bound_lies", M),
    "lower, truncated": (saying(lower_bounds=(3, b"Castrop-Rauxel b")), "lower_bound_lies", M),
    "upper, not raised": (saying(upper_bounds=(3, LONG_TOWN[:16].encode())), "upper_bound_lies", M),
    "lower, nested": (saying(lower_bounds=(6, number(2))), "lower_bound_lies", M),
    "upper, nested": (saying(upper_bounds=(6, number(0))), "upper_bound_lies", M),
    "lower, nested text": (saying(lower_bounds=(7, b"o")), "lower_bound_lies", M),
    "upper, nested and not raised": (saying(upper_bounds=(7, b"south of the riv")), "upper_bound_lies", M),
    "partition": (saying(partition=(1000, 20_000)), "partition_lies", M),
    "partition null": (saying(partition=(1000, None)), "partition_lies", M),
    "listed twice": (listed_twice, "file_listed_twice", M),
    "listed twice, spelled otherwise": (listed_twice_in_two_commits, "file_listed_twice", M),
    "of another table": (of_another_table, "file_outside_prefix", M),
    "outside the prefix": (outside_the_prefix, "file_outside_prefix", M),
    "link": (behind_a_link, "file_behind_link", M),
    "link to a folder": (in_a_linked_folder, "file_behind_link", M),
    "position deletes": (deletes(FileContent.POSITION_DELETES), "delete_file_staged", M),
    "equality deletes": (deletes(FileContent.EQUALITY_DELETES), "delete_file_staged", M),
    "manifest of another schema": (manifest_of_another_schema, "schema_id_other", S),
    "unknown id": (with_id(50), "field_id_unknown", S),
    "reserved id": (with_id(2_147_483_540), "field_id_reserved", S),
    "no id": (without_an_id, "field_id_missing", S),
    "ORC": (saying(file_format="ORC"), "file_format_other", M),
    "Avro": (saying(file_format="AVRO"), "file_format_other", M),
    "no Parquet inside": (another_format_inside, "parquet_unreadable", P),
}


# A bucket has neither links nor a second way to spell a place.
LOCAL = ("link", "link to a folder", "listed twice, spelled otherwise")


@pytest.mark.parametrize("name", [name for name in LIES if not (ON_S3 and name in LOCAL)])
def test_a_lie_is_refused_and_nothing_of_it_is_left(
    goods: Goods, producer: StewardClient, target: str, name: str
) -> None:
    lie, code, failure = LIES[name]
    before, shown = goods.metadata(target).current_snapshot_id, files_of(goods, target)
    staging = Staging(goods, producer, target, goods.attempt(producer, target, f"lie-{list(LIES).index(name)}"))
    lie(staging)
    found = goods.settled(producer, staging.attempt)
    assert (found.state, found.verdict, found.classes) == (AttemptState.VERIFICATION_FAILED, Outcome.FAIL, (failure,))
    assert goods.codes(found) == [code]
    # A consumer sees what it saw, and the proof stays.
    assert (goods.metadata(target).current_snapshot_id, goods.seen(target)) == (before, list(OLD))
    (core,) = goods.cores(found)
    assert (core.verdict.passed, core.attempt.attempt_id) == (False, found.attempt_id)
    # Branch and staged files are gone; the data is kept outside the table, and no live file was touched.
    assert found.branch not in goods.metadata(target).refs
    assert [path for path in staging.folder.rglob("*") if not path.is_dir()] == []
    assert {each.staged_sha256 for each in core.files.added} <= quarantined(goods, target, found.attempt_id)
    assert files_of(goods, target) >= shown


def files_of(goods: Goods, name: str) -> set[str]:
    """What lies in the folders of the table and of the source, but for attempts."""
    places = [file_at(each.location) for each in (goods.metadata(name), goods.metadata("goods", RAW))]
    return {str(path) for place in places for path in place.rglob("*.parquet") if "/pvdm/" not in str(path)}


def quarantined(goods: Goods, name: str, attempt_id: str) -> set[str]:
    config = goods.line.notary.config.catalog
    assert config is not None
    uuid = goods.line.scene.found(name).row.table_uuid
    listed = Vault(config.vault, stores()).finished(uuid, VaultKind.QUARANTINE, attempt_id)
    return {each.rpartition("/")[2] for each in listed}


EXACT: dict[str, dict[int, object]] = {
    "value_counts": {1: 3, 2: 3, 3: 3, 4: 3, 6: 3, 7: 3},
    "null_value_counts": {1: 0, 2: 0, 3: 1, 4: 0, 6: 2, 7: 1},
    "nan_value_counts": {4: 1},
    "lower_bounds": {
        1: long(1),
        2: number(20_771),
        3: b"Castrop-Rauxel a",
        4: double(-1.0),
        6: number(1),
        7: b"north of the riv",
    },
    "upper_bounds": {
        1: long(3),
        2: number(20_771),
        3: b"Ulm",
        4: double(2.5),
        6: number(1),
        7: b"south of the riw",
    },
}
NOTHING: dict[str, Any] = dict.fromkeys((*EXACT, "column_sizes", "split_offsets"))
CORRECTED: dict[str, Lie] = {
    "the truth": saying(),
    "nothing said": saying(**NOTHING),
    "wide": saying(lower_bounds=(1, long(-(10**9))), upper_bounds=(1, long(10**9))),
    "wide doubles": saying(lower_bounds=(4, double(-math.inf)), upper_bounds=(4, double(math.inf))),
    "wide text": saying(lower_bounds=(3, b"A"), upper_bounds=(3, b"Z")),
    "wide and nested": saying(lower_bounds=(7, b"a"), upper_bounds=(6, number(99))),
    "sizes of columns": saying(column_sizes=(1, 1)),
    "a column that is not there": saying(value_counts=(99, 5), lower_bounds=(99, b"x"), upper_bounds=(99, b"y")),
    "sort order": saying(sort_order_id=0),
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", CORRECTED)
def test_what_is_only_loose_absent_or_unproved_is_published_with_the_exact_facts(
    goods: Goods, producer: StewardClient, name: str, version: int
) -> None:
    target = goods.target(version=version)
    staging = Staging(goods, producer, target, goods.attempt(producer, target, f"told-{target}"))
    CORRECTED[name](staging)
    found = goods.settled(producer, staging.attempt)
    assert (found.state, found.classes, goods.codes(found)) == (AttemptState.COMMITTED, (), [])
    file = goods.published(target)
    path = file_at(file.file_path)
    assert {fact: dict(getattr(file, fact) or {}) for fact in EXACT} == EXACT
    assert (file.record_count, file.file_size_in_bytes, dict(file.partition)) == (
        3,
        path.stat().st_size,
        {1000: 20_771},
    )
    assert (file.sort_order_id, file.split_offsets) == (None, offsets_of(file))
    assert [row["id"] for row in goods.seen(target)] == [1, 2, 3, 9]
    scan = consumer(goods).load_table(("sales", target)).scan(row_filter="id = 3 and town = 'Ulm'")
    assert scan.to_arrow()["id"].to_pylist() == [3]


def offsets_of(file: DataFile) -> tuple[int, ...]:
    footer = pq.read_metadata(io.BytesIO(file_at(file.file_path).read_bytes()))
    groups = [footer.row_group(at).column(0) for at in range(footer.num_row_groups)]
    return tuple(min(each.data_page_offset, each.dictionary_page_offset or 2**62) for each in groups)


def consumer(goods: Goods) -> RestCatalog:
    token = goods.line.token(Role.CONSUMER).text
    return RestCatalog("lake", uri=f"{goods.line.url}/catalog", token=token)


def test_a_snapshot_of_another_schema_does_not_even_reach_the_branch(
    goods: Goods, producer: StewardClient, target: str
) -> None:
    staging = Staging(goods, producer, target, goods.attempt(producer, target, "snapshot-schema"))
    with pytest.raises(Exception, match="schema"):
        staging.commit((staging.header, [staging.file()]), **{"schema-id": 4})
    producer.abort_attempt(staging.attempt.attempt_id, "refused")
