"""Staged branches: one violation of each rule, which alone is found, and branches that are accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.model.statements.core import Operation
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import Files
from pvdm.verify.staged import Rules, read_staged
from tests.support.lake.metadata import column
from tests.support.verify.staged import BY_TOWN, LIMITS, Yard, codes


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    """A table with one live file on its base."""
    table = Yard(tmp_path / "t")
    table.add(table.file())
    return table


def test_files_of_several_commits_are_all_staged(yard: Yard) -> None:
    one, two = yard.file(), yard.file()
    yard.add(one)
    found = yard.read(yard.add(two))
    assert [entry.data_file.file_path for entry in found.added] == [one.file_path, two.file_path]
    assert (found.snapshot_id, found.removed, found.findings) == (3, (), ())


def test_a_manifest_that_a_later_commit_lists_again_is_read_once(yard: Yard) -> None:
    class ManifestCountingFiles(Files):
        def __init__(self) -> None:
            super().__init__()
            self.manifests: list[str] = []

        def read(self, location: str, *, max_bytes: int) -> bytes:
            if "/m" in location.removeprefix(str(yard.prefix)).removeprefix("/metadata"):
                self.manifests.append(location)
            return super().read(location, max_bytes=max_bytes)

    first = yard.manifest([ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(), snapshot_id=2)])
    yard.snapshot([first])
    numbered = replace(first, sequence_number=2, min_sequence_number=2)
    second = yard.manifest([ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(), snapshot_id=3)])
    head = yard.snapshot([second, numbered])
    files = ManifestCountingFiles()
    found = read_staged(yard.rules(), head, files)
    assert (len(found.added), found.findings) == (2, ())
    assert sorted(files.manifests) == sorted([first.manifest_path, second.manifest_path])


def test_an_entry_that_names_another_snapshot_is_not_staged(yard: Yard) -> None:
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(), snapshot_id=1)
    assert yard.read(yard.snapshot([yard.manifest([entry])])).added == ()


def test_a_branch_of_an_empty_table_is_read_whole(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    head = yard.add(yard.file())
    found = yard.read(head, base_id=None)
    assert (len(found.added), found.findings) == (1, ())


def test_a_branch_without_a_head_stages_nothing(yard: Yard) -> None:
    found = yard.read(None)
    assert (found.snapshot_id, found.added, found.removed, found.findings) == (None, (), (), ())


def test_a_branch_whose_head_is_its_base_stages_nothing(yard: Yard) -> None:
    assert yard.read(yard.metadata.snapshot(1), base_id=1).snapshot_id is None


def test_a_file_that_the_branch_added_and_removed_is_not_staged(yard: Yard) -> None:
    file = yard.file()
    yard.add(file)
    found = yard.read(yard.remove(file))
    assert (found.added, found.removed, found.findings) == ((), (), ())


def test_a_branch_that_does_not_descend_from_its_base_is_refused(yard: Yard) -> None:
    assert yard.codes(yard.add(yard.file()), base_id=7) == ["branch_not_on_base"]


@pytest.mark.parametrize(
    ("change_path", "code"),
    [
        (lambda path: path.replace("/pvdm/attempt/", "/pvdm/other/"), "file_outside_prefix"),
        (lambda _: "file:///lake/other/data/a.parquet", "file_outside_prefix"),
        (lambda path: path.replace("/pvdm/attempt/", "/pvdm/attempt2/"), "file_outside_prefix"),
        (lambda path: f"s3://bucket{path[7:]}", "file_outside_prefix"),
        (lambda path: path.replace("/attempt/", "/attempt/../attempt/"), "location_invalid"),
        (lambda path: path.replace("/attempt/", "/attempt/%2e%2e/"), "location_invalid"),
        (lambda path: path.replace("/data/", "//data/"), "file_path_alias"),
        (lambda path: path.replace("file:///", "FILE:///"), "file_path_alias"),
        (lambda path: path.replace("file:///", "file://localhost/"), "file_path_alias"),
    ],
)
def test_a_path_outside_the_attempts_folder_or_spelled_another_way_is_refused(
    yard: Yard, change_path: Callable[[str], str], code: str
) -> None:
    file = yard.file()
    found = yard.read(yard.add(replace(file, file_path=change_path(file.file_path))))
    assert codes(found.findings) == [code]
    assert found.added == ()


def test_a_path_with_another_name_of_its_scheme_is_refused(yard: Yard) -> None:
    bucket_prefix = replace(yard.prefix, scheme="s3", authority="bucket")
    head = yard.add(replace(yard.file(), file_path=f"s3a://bucket{yard.prefix.local}/data/a.parquet"))
    assert "file_path_alias" in yard.codes(head, folders=(bucket_prefix, yard.prefix))


@pytest.mark.parametrize("spelling", ["file:{}", "{}"])
def test_the_two_short_spellings_of_a_local_path_are_accepted(yard: Yard, spelling: str) -> None:
    file = yard.file()
    assert yard.codes(yard.add(replace(file, file_path=spelling.format(file.file_path[7:])))) == []


def test_a_path_that_is_the_attempts_folder_itself_is_refused(yard: Yard) -> None:
    assert yard.codes(yard.add(replace(yard.file(), file_path=str(yard.prefix)))) == ["file_outside_prefix"]


def test_a_symbolic_link_is_refused(yard: Yard) -> None:
    target, link = yard.file(), yard.prefix.local / "data" / "link.parquet"
    link.symlink_to(target.file_path[7:])
    assert yard.codes(yard.add(replace(target, file_path=f"file://{link}"))) == ["file_behind_link"]


def test_a_folder_that_is_a_symbolic_link_is_refused(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (yard.place("x", "data").parent / "sub").symlink_to(tmp_path / "elsewhere")
    path = f"{yard.prefix}/data/sub/a.parquet"
    assert yard.codes(yard.add(replace(yard.file(), file_path=path))) == ["file_behind_link"]


def test_a_file_listed_twice_is_refused(yard: Yard) -> None:
    file = yard.file()
    assert yard.codes(yard.add(file, file)) == ["file_listed_twice"]


def test_a_file_listed_under_two_spellings_is_refused(yard: Yard) -> None:
    file = yard.file()
    assert yard.codes(yard.add(file, replace(file, file_path=file.file_path[7:]))) == ["file_listed_twice"]


@pytest.mark.parametrize("other", ["ORC", "avro"])
def test_another_format_is_refused(yard: Yard, other: str) -> None:
    assert yard.codes(yard.add(yard.file(file_format=other))) == ["file_format_other"]


def test_an_encrypted_file_is_refused(yard: Yard) -> None:
    assert yard.codes(yard.add(yard.file(key_metadata=b"key"))) == ["file_encrypted"]


@pytest.mark.parametrize("content", [FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES])
def test_a_staged_delete_file_is_refused(yard: Yard, content: FileContent) -> None:
    ids = (1,) if content is FileContent.EQUALITY_DELETES else None
    entry = ManifestEntry(
        status=EntryStatus.ADDED, data_file=yard.file(content=content, equality_ids=ids), snapshot_id=2
    )
    head = yard.snapshot([yard.manifest([entry], yard.header(ManifestContent.DELETES))])
    assert yard.codes(head) == ["delete_file_staged"]


def test_a_staged_deletion_vector_is_refused(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", version=3)
    live = yard.file()
    yard.add(live)
    vector = yard.file(
        content=FileContent.POSITION_DELETES,
        file_format="PUFFIN",
        referenced_data_file=live.file_path,
        content_offset=4,
        content_size_in_bytes=40,
    )
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=vector, snapshot_id=2)
    head = yard.snapshot([yard.manifest([entry], yard.header(ManifestContent.DELETES))])
    assert yard.codes(head) == ["delete_file_staged"]


def test_a_snapshot_of_another_schema_is_refused(yard: Yard) -> None:
    findings = yard.read(yard.add(yard.file(), **{"schema-id": 4})).findings
    assert [(each.failure, each.code) for each in findings] == [(FailureClass.SCHEMA, "schema_id_other")]


def test_a_manifest_of_another_schema_is_refused(yard: Yard) -> None:
    header = replace(yard.header(), schema_text=yard.header().schema_text.replace('"schema-id":0', '"schema-id":4'))
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(), snapshot_id=2)
    assert yard.codes(yard.snapshot([yard.manifest([entry], replace(header, schema_id=4))])) == ["schema_id_other"]


def yard_of_two_specs(tmp_path: Path) -> Yard:
    """A table with one live file; its default spec, 1, is by town."""
    yard = Yard(tmp_path / "t", specs={0: [], 1: [BY_TOWN]})
    yard.add(yard.file())
    return yard


def test_a_manifest_of_another_spec_is_refused(tmp_path: Path) -> None:
    yard = yard_of_two_specs(tmp_path)
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(partition=IdMap()), snapshot_id=2)
    head = yard.snapshot([yard.manifest([entry], yard.header(spec_id=0))])
    assert yard.codes(head) == ["spec_other"]


def test_a_file_of_a_spec_without_the_declared_partition_is_outside_of_it(tmp_path: Path) -> None:
    yard = yard_of_two_specs(tmp_path)
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(partition=IdMap()), snapshot_id=2)
    head = yard.snapshot([yard.manifest([entry], yard.header(spec_id=0))])
    assert yard.codes(head, partition=(("town", "Rome"),)) == ["spec_other", "file_outside_partition"]


def test_a_spec_with_the_tables_id_and_other_fields_is_refused(tmp_path: Path) -> None:
    yard = yard_of_two_specs(tmp_path)
    other = PartitionSpec.from_text(1, yard.header().spec.to_text().replace("identity", "truncate[1]"))
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(), snapshot_id=2)
    head = yard.snapshot([yard.manifest([entry], replace(yard.header(), spec=other))])
    assert yard.codes(head) == ["spec_other"]


def test_a_removal_under_append_is_refused(yard: Yard) -> None:
    live = DataFile(file_path="file:///lake/live", file_format="PARQUET", record_count=1, file_size_in_bytes=1)
    found = yard.read(yard.remove(live, add=[yard.file()]))
    assert codes(found.findings) == ["removal_under_append"]
    assert found.removed == ("file:///lake/live",)


def test_a_removed_delete_file_under_append_is_refused(yard: Yard) -> None:
    entry = ManifestEntry(
        status=EntryStatus.DELETED,
        data_file=yard.file(content=FileContent.POSITION_DELETES),
        snapshot_id=2,
        sequence_number=1,
        file_sequence_number=1,
    )
    head = yard.snapshot([yard.manifest([entry], yard.header(ManifestContent.DELETES))])
    assert yard.codes(head) == ["removal_under_append"]


def test_an_overwrite_that_removes_every_live_file_is_accepted(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    live = yard.file()
    yard.add(live)
    found = yard.read(yard.remove(live, add=[yard.file()]), operation=Operation.OVERWRITE)
    assert (found.removed, found.findings) == ((live.file_path,), ())


def test_an_overwrite_that_leaves_a_live_file_is_refused(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    live = yard.file()
    yard.add(live, yard.file())
    head = yard.remove(live, add=[yard.file()])
    assert yard.codes(head, operation=Operation.OVERWRITE) == ["removal_incomplete"]


def test_an_overwrite_that_stages_nothing_but_leaves_live_files_is_refused(yard: Yard) -> None:
    assert yard.codes(None, operation=Operation.OVERWRITE, base_id=1) == ["removal_incomplete"]


def test_an_overwrite_that_removes_what_is_not_live_is_refused(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t")
    live = yard.file()
    yard.add(live)
    other = replace(live, file_path="file:///lake/other/a.parquet")
    assert yard.codes(yard.remove(live, other), operation=Operation.OVERWRITE) == ["removal_outside_boundary"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"files": 1}, "staged_files_exceed"), ({"rows": 1}, "staged_rows_exceed"), ({"bytes": 1}, "staged_bytes_exceed")],
)
def test_more_than_the_limits_allow_is_refused_and_not_opened(yard: Yard, limits: dict[str, int], code: str) -> None:
    found = yard.read(yard.add(yard.file(), yard.file()), limits=replace(LIMITS, **limits))
    assert codes(found.findings) == [code]
    assert found.added == ()


def test_a_file_outside_the_declared_partition_is_refused(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", spec=[BY_TOWN])
    yard.add(yard.file())
    rome, oslo = (yard.file(partition=IdMap([(1000, town)])) for town in ("Rome", "Oslo"))
    found = yard.read(yard.add(rome, oslo), partition=(("town", "Rome"),))
    assert codes(found.findings) == ["file_outside_partition"]
    assert found.findings[0].file == oslo.file_path


def test_a_manifest_outside_the_attempts_folder_is_not_read(yard: Yard, tmp_path: Path) -> None:
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=yard.file(), snapshot_id=2)
    inside_manifest = yard.manifest([entry])
    outside = tmp_path / "m.avro"
    outside.write_bytes(Path(inside_manifest.manifest_path[7:]).read_bytes())
    head = yard.snapshot([replace(inside_manifest, manifest_path=f"file://{outside}")])
    assert yard.codes(head) == ["file_outside_prefix"]


def test_a_missing_manifest_is_a_finding(yard: Yard) -> None:
    head = yard.add(yard.file())
    for path in (yard.prefix.local / "metadata").glob("m*.avro"):
        path.unlink()
    assert yard.codes(head) == ["file_missing"]


def test_a_broken_manifest_is_a_finding(yard: Yard) -> None:
    head = yard.add(yard.file())
    for path in (yard.prefix.local / "metadata").glob("m*.avro"):
        path.write_bytes(b"x" * path.stat().st_size)
    assert yard.codes(head) == ["avro_magic_missing"]


def test_storage_that_cannot_be_reached_raises_instead_of_giving_a_finding(yard: Yard) -> None:
    class UnreachableFiles:
        def read(self, location: str, *, max_bytes: int) -> bytes:
            raise UnavailableError("file_unreadable", "away", got=f"{location} {max_bytes}")

    rules: Rules = yard.rules()
    head = yard.add(yard.file())
    with pytest.raises(UnavailableError):
        read_staged(replace(rules, metadata=yard.metadata, base_id=1), head, UnreachableFiles())


def test_a_removed_delete_file_under_overwrite_is_accepted(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "t", fields=[column(1, "id", required=True)])
    live = yard.file()
    yard.add(live)
    numbers = {"snapshot_id": 2, "sequence_number": 1, "file_sequence_number": 1}
    data = ManifestEntry(status=EntryStatus.DELETED, data_file=live, **numbers)
    deletes = ManifestEntry(
        status=EntryStatus.DELETED, data_file=yard.file(content=FileContent.POSITION_DELETES), **numbers
    )
    head = yard.snapshot([yard.manifest([data]), yard.manifest([deletes], yard.header(ManifestContent.DELETES))])
    assert yard.codes(head, operation=Operation.OVERWRITE) == []
