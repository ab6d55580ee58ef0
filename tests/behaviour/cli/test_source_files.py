"""`pvdm source-files`: what it lists, what it refuses, and that a workload reads what it wrote."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.cli import main
from pvdm.model.role import Role
from pvdm.verify.source import pin_files
from tests.support.steward.shop import ROWS, contract, shop_at, table_of

pytest.importorskip("pvdm_kernel")

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def write(path: Path, columns: dict[str, Any], ids: Sequence[int | None] = (), **options: Any) -> Path:
    table = pa.table(columns)
    for at, number in enumerate(ids):
        if number is not None:
            field = table.schema.field(at).with_metadata({"PARQUET:field_id": str(number)})
            table = table.set_column(at, field, table.column(at))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def run_source_files(*words: object) -> tuple[int, dict[str, Any]]:
    """Run `pvdm source-files`; returns its exit code and its JSON."""
    output = io.StringIO()
    with redirect_stdout(output):
        code = main(["source-files", *map(str, words), "--json"])
    return code, json.loads(output.getvalue())


def refusal_of(*words: object) -> tuple[int, str]:
    code, document = run_source_files(*words)
    return code, document["error"]["reason"]


def test_files_are_listed_in_order_with_size_hash_and_their_own_schema(tmp_path: Path) -> None:
    nested = pa.array([{"town": "Ulm", "marks": [("a", 1)]}], pa.struct([("town", pa.string()), ("marks", MARKS)]))
    late = write(tmp_path / "in" / "b" / "2.parquet", {"id": [1], "at": [NOON], "place": nested})
    early = write(tmp_path / "in" / "a.parquet", {"id": [2], "at": [NOON], "place": nested})
    for name in ("_SUCCESS.parquet", ".hidden.parquet"):
        (tmp_path / "in" / name).write_bytes(b"")
    out = tmp_path / "m.json"
    code, summary = run_source_files(tmp_path / "in", early, "--out", out)
    assert code == 0, summary
    assert (code, summary["files"], summary["columns"]) == (0, 2, ["id", "at", "place"])
    found = json.loads(out.read_bytes())
    assert [each["path"] for each in found["files"]] == [str(early), str(late)]
    data = early.read_bytes()
    assert found["files"][0] == {"path": str(early), "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    names = [(each["id"], each["name"], each["required"]) for each in found["schema"]["fields"]]
    assert names == [(1, "id", False), (2, "at", False), (3, "place", False)]
    assert found["schema"]["fields"][1]["type"] == "timestamptz"
    inside = found["schema"]["fields"][2]["type"]["fields"]
    assert [(each["id"], each["name"]) for each in inside] == [(4, "town"), (5, "marks")]
    assert (inside[1]["type"]["key-id"], inside[1]["type"]["value-id"]) == (6, 7)
    assert str(pin_files(str(out), out.read_bytes()).snapshot_id) == summary["snapshot_id"]


MARKS: Any = pa.map_(pa.string(), pa.int32())


def test_the_same_files_give_the_same_manifest_and_an_existing_one_is_overwritten_only_with_replace(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "a.parquet", {"id": [1]})
    out = tmp_path / "m.json"
    assert run_source_files(file, "--out", out)[0] == 0
    first = out.read_bytes()
    assert refusal_of(file, "--out", out) == (2, "output_exists")
    assert "--replace" in run_source_files(file, "--out", out)[1]["error"]["hint"]
    assert run_source_files(file, "--out", out, "--replace")[0] == 0
    assert out.read_bytes() == first
    write(tmp_path / "a.parquet", {"id": [2]})
    assert run_source_files(file, "--out", out, "--replace")[0] == 0
    assert out.read_bytes() != first
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_the_schema_has_the_field_ids_of_the_files(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    assert run_source_files(write(tmp_path / "a.parquet", {"id": [1], "n": [2]}, (7, 3)), "--out", out)[0] == 0
    assert [each["id"] for each in json.loads(out.read_bytes())["schema"]["fields"]] == [7, 3]


def test_files_that_no_workload_could_read_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.parquet", {"id": [1]})
    old = write(tmp_path / "old.parquet", {"at": [NOON]}, use_deprecated_int96_timestamps=True)
    some = write(tmp_path / "some.parquet", {"id": [1], "n": [2]}, (1, None))
    text = write(tmp_path / "text.parquet", {"id": ["x"]})
    hive = write(tmp_path / "hive" / "day=2026-11-15" / "a.parquet", {"id": [1]})
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    link = tmp_path / "link.parquet"
    link.symlink_to(plain)
    (tmp_path / "empty").mkdir()
    out = tmp_path / "m.json"
    assert refusal_of(old, "--out", out) == (2, "source_int96")
    assert refusal_of(some, "--out", out) == (2, "source_file_unusable")
    assert refusal_of(plain, text, "--out", out) == (2, "source_schemas_differ")
    assert refusal_of(hive.parents[1], "--out", out) == (2, "source_files_partitioned")
    assert refusal_of(broken, "--out", out) == (2, "source_file_unusable")
    assert refusal_of(link, "--out", out) == (2, "source_file_unusable")
    assert refusal_of(tmp_path / "gone", "--out", out) == (2, "input_not_readable")
    assert refusal_of(tmp_path / "empty", "--out", out) == (2, "source_files_count")
    assert not out.exists()


def test_files_are_listed_with_a_given_schema_if_they_fit_it(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet", {"id": pa.array([1], pa.int32()), "n": ["x"]})
    less = write(tmp_path / "b.parquet", {"id": [1]})
    fields = [{"id": at, "name": name, "required": False, "type": kind} for at, name, kind in SCHEMA]
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}))
    out = tmp_path / "m.json"
    assert run_source_files(whole, less, "--out", out, "--schema-from", schema)[0] == 0
    assert [each["id"] for each in json.loads(out.read_bytes())["schema"]["fields"]] == [11, 12]
    again = tmp_path / "n.json"
    assert run_source_files(less, "--out", again, "--schema-from", out)[0] == 0
    other = write(tmp_path / "c.parquet", {"id": [1], "more": [2]})
    assert refusal_of(other, "--out", tmp_path / "o.json", "--schema-from", schema) == (2, "source_unusable")
    schema.write_text("{}")
    assert refusal_of(less, "--out", tmp_path / "o.json", "--schema-from", schema) == (2, "schema_file_invalid")


SCHEMA = ((11, "id", "long"), (12, "n", "string"))


def test_a_workload_reads_what_the_manifest_lists_with_the_schema_of_a_table(tmp_path: Path) -> None:
    table = table_of(ROWS)
    files = [tmp_path / f"{at}.parquet" for at in (1, 2)]
    pq.write_table(table.slice(0, 3), files[0])
    pq.write_table(table.slice(3), files[1])
    manifest = tmp_path / "orders.json"
    with shop_at(tmp_path) as shop:
        words = ["source-files", *map(str, files), "--out", str(manifest), "--schema-from", "raw.orders"]
        code, output = shop.command(words)
        assert code == 0, output
        shop.make("sales.listed")
        text = contract("sales.listed").replace("table: raw.orders", f"files: {{manifest: {manifest}}}")
        shop.protect(text)
        shop.write(ROWS, "sales.listed", "etl")
        code, output = shop.command(["publish", "sales.listed", "etl", "--workload-id", "listed-1"], Role.PRODUCER)
        assert code == 0, output
        assert shop.visible_rows("sales.listed") == sorted(ROWS, key=repr)
