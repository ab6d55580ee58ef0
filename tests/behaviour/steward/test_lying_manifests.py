"""Manifests that lie, on real tables: each lie alone fails verification, or the published manifest corrects it."""

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
from tests.support.steward.leases import abort_attempt
from tests.support.steward.pipeline import RAW
from tests.support.steward.staged_by_hand import LONG_TOWN, OLD, Goods, Staging, goods_at
from tests.support.stores.places import ON_S3, file_at, location_of, stores

pytest.importorskip("pvdm_kernel")
# PyIceberg's own code causes these warnings.
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
    """A table with one old row in `main`."""
    return goods.target()


def int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def int32(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def with_value(ids: IdMap[Any] | None, field_id: int, value: object) -> IdMap[Any]:
    """A map of an entry, with another value for one field."""
    return IdMap(sorted({**dict(ids or {}), field_id: value}.items()))


def claiming(**facts: Any) -> Lie:
    """Stages an entry that is true except for these facts; a pair is field id and value in one of its maps."""

    def stage(staging: Staging) -> None:
        file = staging.file(row_group_size=2)
        changed: dict[str, Any] = {}
        for name, value in facts.items():
            is_pair = isinstance(value, tuple) and name != "split_offsets"
            changed[name] = with_value(getattr(file, name), *value) if is_pair else value
        staging.add(replace(file, **changed))

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
        replace(staging.file(), file_path=location_of(path), file_size_in_bytes=path.stat().st_size, split_offsets=None)
    )


def outside_the_prefix(staging: Staging) -> None:
    """The file is in the table's own folder, beside the live files."""
    file = staging.file()
    path = file_at(staging.metadata.location) / "data" / "mine.parquet"
    path.write_bytes(file_at(file.file_path).read_bytes())
    file_at(file.file_path).unlink()
    staging.add(replace(file, file_path=location_of(path)))


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


def with_delete_file(content: FileContent) -> Lie:
    def stage(staging: Staging) -> None:
        ids = (1,) if content is FileContent.EQUALITY_DELETES else None
        delete_file = replace(staging.file(), content=content, equality_ids=ids, split_offsets=None)
        header = replace(staging.header, content=ManifestContent.DELETES)
        staging.commit((staging.header, [staging.file()]), (header, [delete_file]))

    return stage


def manifest_of_another_schema(staging: Staging) -> None:
    text = staging.header.schema_text.replace('"schema-id":0', '"schema-id":4')
    staging.commit((replace(staging.header, schema_text=text, schema_id=4), [staging.file()]))


def with_column_id(field_id: int) -> Lie:
    """One more column in the file, under this id."""

    def add_column(table: pa.Table) -> pa.Table:
        more = pa.field("more", pa.int64(), metadata={FIELD: str(field_id)})
        return table.append_column(more, pa.array([7] * len(table), pa.int64()))

    return lambda staging: staging.add(replace(staging.file(spoil=add_column), split_offsets=None))


def with_column_without_id(staging: Staging) -> None:
    def add_column(table: pa.Table) -> pa.Table:
        return table.append_column(pa.field("more", pa.int64()), pa.array([7] * len(table), pa.int64()))

    staging.add(replace(staging.file(spoil=add_column), split_offsets=None))


def another_format_inside(staging: Staging) -> None:
    file = staging.file()
    path = file_at(file.file_path)
    path.write_bytes((b"Obj\x01" + bytes(file.file_size_in_bytes))[: file.file_size_in_bytes])
    staging.add(file)


METADATA, SCHEMA, PHYSICAL = FailureClass.METADATA, FailureClass.SCHEMA, FailureClass.PHYSICAL
LIES: dict[str, tuple[Lie, str, FailureClass]] = {
    "fewer records": (claiming(record_count=2), "record_count_lies", METADATA),
    "more records": (claiming(record_count=4), "record_count_lies", METADATA),
    "values": (claiming(value_counts=(1, 2)), "value_count_lies", METADATA),
    "values, nested": (claiming(value_counts=(7, 2)), "value_count_lies", METADATA),
    "nulls": (claiming(null_value_counts=(3, 0)), "null_count_lies", METADATA),
    "nulls, nested": (claiming(null_value_counts=(6, 0)), "null_count_lies", METADATA),
    "nans": (claiming(nan_value_counts=(4, 0)), "nan_count_lies", METADATA),
    "half the size": (half_the_size, "file_size_lies", METADATA),
    "split offsets": (claiming(split_offsets=(4,)), "split_offsets_lie", METADATA),
    "lower, exact": (claiming(lower_bounds=(1, int64(2))), "lower_bound_lies", METADATA),
    "upper, exact": (claiming(upper_bounds=(1, int64(2))), "upper_bound_lies", METADATA),
    "lower of doubles": (claiming(lower_bounds=(4, double(0.0))), "lower_bound_lies", METADATA),
    "upper of doubles": (claiming(upper_bounds=(4, double(2.25))), "upper_bound_lies", METADATA),
    "lower, truncated": (claiming(lower_bounds=(3, b"Castrop-Rauxel b")), "lower_bound_lies", METADATA),
    "upper, not raised": (claiming(upper_bounds=(3, LONG_TOWN[:16].encode())), "upper_bound_lies", METADATA),
    "lower, nested": (claiming(lower_bounds=(6, int32(2))), "lower_bound_lies", METADATA),
    "upper, nested": (claiming(upper_bounds=(6, int32(0))), "upper_bound_lies", METADATA),
    "lower, nested text": (claiming(lower_bounds=(7, b"o")), "lower_bound_lies", METADATA),
    "upper, nested and not raised": (claiming(upper_bounds=(7, b"south of the riv")), "upper_bound_lies", METADATA),
    "partition": (claiming(partition=(1000, 20_000)), "partition_lies", METADATA),
    "partition null": (claiming(partition=(1000, None)), "partition_lies", METADATA),
    "listed twice": (listed_twice, "file_listed_twice", METADATA),
    "listed twice, spelled otherwise": (listed_twice_in_two_commits, "file_listed_twice", METADATA),
    "of another table": (of_another_table, "file_outside_prefix", METADATA),
    "outside the prefix": (outside_the_prefix, "file_outside_prefix", METADATA),
    "link": (behind_a_link, "file_behind_link", METADATA),
    "link to a folder": (in_a_linked_folder, "file_behind_link", METADATA),
    "position deletes": (with_delete_file(FileContent.POSITION_DELETES), "delete_file_staged", METADATA),
    "equality deletes": (with_delete_file(FileContent.EQUALITY_DELETES), "delete_file_staged", METADATA),
    "manifest of another schema": (manifest_of_another_schema, "schema_id_other", SCHEMA),
    "unknown id": (with_column_id(50), "field_id_unknown", SCHEMA),
    "reserved id": (with_column_id(2_147_483_540), "field_id_reserved", SCHEMA),
    "no id": (with_column_without_id, "field_id_missing", SCHEMA),
    "ORC": (claiming(file_format="ORC"), "file_format_other", METADATA),
    "Avro": (claiming(file_format="AVRO"), "file_format_other", METADATA),
    "no Parquet inside": (another_format_inside, "parquet_unreadable", PHYSICAL),
}


# An S3 bucket has no links, and only one way to write a location.
LOCAL = ("link", "link to a folder", "listed twice, spelled otherwise")


@pytest.mark.parametrize("name", [name for name in LIES if not (ON_S3 and name in LOCAL)])
def test_a_lie_fails_verification_and_nothing_of_it_is_left(
    goods: Goods, producer: StewardClient, target: str, name: str
) -> None:
    lie, reason, failure = LIES[name]
    before, files_before = goods.metadata(target).current_snapshot_id, files_of(goods, target)
    staging = Staging(goods, producer, target, goods.attempt(producer, target, f"lie-{list(LIES).index(name)}"))
    lie(staging)
    found = goods.settled(producer, staging.attempt)
    assert (found.state, found.verdict, found.classes) == (AttemptState.VERIFICATION_FAILED, Outcome.FAIL, (failure,))
    assert goods.codes(found) == [reason]
    # Consumers see the same rows as before, and the FAIL proof is stored.
    assert (goods.metadata(target).current_snapshot_id, goods.visible_rows(target)) == (before, list(OLD))
    (core,) = goods.cores(found)
    assert (core.verdict.passed, core.attempt.attempt_id) == (False, found.attempt_id)
    # Branch and staged files are gone, the data is in quarantine, and no live file was removed.
    assert found.branch not in goods.metadata(target).refs
    assert [path for path in staging.folder.rglob("*") if not path.is_dir()] == []
    assert {each.staged_sha256 for each in core.files.added} <= quarantined_hashes(goods, target, found.attempt_id)
    assert files_of(goods, target) >= files_before


def files_of(goods: Goods, name: str) -> set[str]:
    """The Parquet files of the table and of the source, without those of attempts."""
    folders = [file_at(each.location) for each in (goods.metadata(name), goods.metadata("goods", RAW))]
    return {str(path) for folder in folders for path in folder.rglob("*.parquet") if "/pvdm/" not in str(path)}


def quarantined_hashes(goods: Goods, name: str, attempt_id: str) -> set[str]:
    config = goods.line.notary.config.catalog
    assert config is not None
    uuid = goods.line.scene.table_state(name).row.table_uuid
    listed = Vault(config.vault, stores()).finished(uuid, VaultKind.QUARANTINE, attempt_id)
    return {each.rpartition("/")[2] for each in listed}


EXACT_FACTS: dict[str, dict[int, object]] = {
    "value_counts": {1: 3, 2: 3, 3: 3, 4: 3, 6: 3, 7: 3},
    "null_value_counts": {1: 0, 2: 0, 3: 1, 4: 0, 6: 2, 7: 1},
    "nan_value_counts": {4: 1},
    "lower_bounds": {
        1: int64(1),
        2: int32(20_771),
        3: b"Castrop-Rauxel a",
        4: double(-1.0),
        6: int32(1),
        7: b"north of the riv",
    },
    "upper_bounds": {
        1: int64(3),
        2: int32(20_771),
        3: b"Ulm",
        4: double(2.5),
        6: int32(1),
        7: b"south of the riw",
    },
}
NO_FACTS: dict[str, Any] = dict.fromkeys((*EXACT_FACTS, "column_sizes", "split_offsets"))
ACCEPTED: dict[str, Lie] = {
    "the truth": claiming(),
    "nothing said": claiming(**NO_FACTS),
    "wide": claiming(lower_bounds=(1, int64(-(10**9))), upper_bounds=(1, int64(10**9))),
    "wide doubles": claiming(lower_bounds=(4, double(-math.inf)), upper_bounds=(4, double(math.inf))),
    "wide text": claiming(lower_bounds=(3, b"A"), upper_bounds=(3, b"Z")),
    "wide and nested": claiming(lower_bounds=(7, b"a"), upper_bounds=(6, int32(99))),
    "sizes of columns": claiming(column_sizes=(1, 1)),
    "a column that is not there": claiming(value_counts=(99, 5), lower_bounds=(99, b"x"), upper_bounds=(99, b"y")),
    "sort order": claiming(sort_order_id=0),
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ACCEPTED)
def test_loose_or_missing_facts_are_accepted_and_published_as_exact_ones(
    goods: Goods, producer: StewardClient, name: str, version: int
) -> None:
    target = goods.target(version=version)
    staging = Staging(goods, producer, target, goods.attempt(producer, target, f"accepted-{target}"))
    ACCEPTED[name](staging)
    found = goods.settled(producer, staging.attempt)
    assert (found.state, found.classes, goods.codes(found)) == (AttemptState.COMMITTED, (), [])
    file = goods.published(target)
    path = file_at(file.file_path)
    assert {fact: dict(getattr(file, fact) or {}) for fact in EXACT_FACTS} == EXACT_FACTS
    assert (file.record_count, file.file_size_in_bytes, dict(file.partition)) == (
        3,
        path.stat().st_size,
        {1000: 20_771},
    )
    assert (file.sort_order_id, file.split_offsets) == (None, offsets_of(file))
    assert [row["id"] for row in goods.visible_rows(target)] == [1, 2, 3, 9]
    scan = consumers_catalog(goods).load_table(("sales", target)).scan(row_filter="id = 3 and town = 'Ulm'")
    assert scan.to_arrow()["id"].to_pylist() == [3]


def offsets_of(file: DataFile) -> tuple[int, ...]:
    footer = pq.read_metadata(io.BytesIO(file_at(file.file_path).read_bytes()))
    groups = [footer.row_group(at).column(0) for at in range(footer.num_row_groups)]
    return tuple(min(each.data_page_offset, each.dictionary_page_offset or 2**62) for each in groups)


def consumers_catalog(goods: Goods) -> RestCatalog:
    token = goods.line.token(Role.CONSUMER).text
    return RestCatalog("lake", uri=f"{goods.line.url}/catalog", token=token)


def test_a_snapshot_of_another_schema_is_refused_at_the_commit_to_the_branch(
    goods: Goods, producer: StewardClient, target: str
) -> None:
    staging = Staging(goods, producer, target, goods.attempt(producer, target, "snapshot-schema"))
    with pytest.raises(Exception, match="schema"):
        staging.commit((staging.header, [staging.file()]), **{"schema-id": 4})
    abort_attempt(producer, staging.attempt, "refused")
