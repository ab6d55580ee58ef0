"""`pvdm source-files`: writes the manifest of a set of Parquet files, which a contract names as its source."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from pvdm.cli.common.commands import command
from pvdm.cli.common.files import read_file, require_json, require_new, write_new, write_over
from pvdm.cli.common.options import Service, out_option, service_options
from pvdm.cli.common.screen import progress_bars, say_result
from pvdm.errors import Code
from pvdm.model.printable import counted

SCHEMA_SOURCE_MAX_BYTES: Final = 67_108_864
_SUFFIX: Final = ".parquet"


@command("source-files")
@click.argument("paths", metavar="FILE_OR_FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@out_option("Where the manifest is written.")
@click.option(
    "--schema-from",
    metavar="FILE_OR_TABLE",
    help="Take the schema from a JSON file (Iceberg's schema, a table's metadata, another manifest) or from a table of"
    " the Steward's catalog.  [default: the files' own]",
)
@click.option("--replace", is_flag=True, help="Replace an existing manifest.")
@service_options
def source_files(
    *, paths: tuple[Path, ...], out: Path, schema_from: str | None, replace: bool, service: Service
) -> None:
    """Write the manifest of a set of Parquet files: their paths, sizes and SHA-256, and one schema for all of them.

    A folder means every .parquet file in it, at any depth, except names that begin with . or _. Files that no workload
    could read are refused: INT96 timestamps, other columns than the schema's, field ids on some columns only. The same
    files give the same manifest. A contract names it as source: {files: {manifest: FILE}}.

    \b
    Examples:
      pvdm source-files landing/2026-11-15 --out /data/manifests/orders.json
      pvdm source-files a.parquet b.parquet --out orders.json --schema-from raw.orders
      pvdm source-files landing --out orders.json --replace --json | jq .sha256
    """
    if not replace:
        require_new(out, next_step="--replace replaces it, --out names another file")
    # Imported late: the kernel and pyarrow are slow to load.
    from pvdm.verify.fetch import Files
    from pvdm.verify.source import manifest_snapshot_id
    from pvdm.verify.source_manifest import build_manifest

    locations = sorted(set(_find_files(paths)))
    schema = None if schema_from is None else _read_schema(schema_from, service)
    with progress_bars() as watch:
        manifest = build_manifest(locations, schema, Files(), watch)
    if replace:
        write_over(out, manifest.data)
    else:
        write_new(out, manifest.data)
    document = {
        "manifest": out.absolute(),
        "files": manifest.files,
        "bytes": str(manifest.size),
        "sha256": hashlib.sha256(manifest.data).hexdigest(),
        "snapshot_id": str(manifest_snapshot_id(manifest.data)),  # in place of an Iceberg snapshot id
        "columns": [field.name for field in manifest.schema.fields],
    }
    lines = [
        f"{out}: {counted(manifest.files, 'file')}, {counted(manifest.size, 'byte')}",
        f"  columns  {', '.join(f'{field.name} {field.type}' for field in manifest.schema.fields)}",
        f"  in a contract: source: {{files: {{manifest: {out.absolute()}}}}}",
    ]
    say_result(document, lines)


def _find_files(paths: Sequence[Path]) -> Iterator[str]:
    """Full paths of the given files, and of the Parquet files in the given folders at any depth."""
    for given in paths:
        # Links are not resolved: their targets may change.
        path = Path(os.path.abspath(given))  # noqa: PTH100 - Path.resolve follows links
        if path.is_dir():
            yield from _find_in_folder(path)
        elif path.is_file():
            yield str(path)
        else:
            message, expected = f"{given} cannot be read", "a Parquet file, or a folder of them"
            raise Code.INPUT_FILE_INVALID(message, reason="input_not_readable", expected=expected, got="no such file")


def _find_in_folder(folder: Path) -> Iterator[str]:
    """The folder's Parquet files without Spark's own (`.*`, `_*`). Raises for files in a partition folder (`day=1`)."""
    for path in sorted(folder.rglob(f"*{_SUFFIX}")):
        names = path.relative_to(folder).parts
        if path.is_dir() or any(each.startswith((".", "_")) for each in names):
            continue
        if partition := next((each for each in names[:-1] if "=" in each), None):
            message = f"{path} is in a folder that is named after a column's value"
            raise Code.SOURCE_REFUSED(message, reason="source_files_partitioned", got=ascii(partition)[1:-1][:80])
        yield str(path)


def _read_schema(file_or_table: str, service: Service) -> dict[str, Any]:
    """Iceberg's JSON of a schema, from a file or from a table."""
    path = Path(file_or_table)
    if not path.is_file():
        return iceberg_schema(_load_metadata(file_or_table, service), file_or_table)
    data = read_file(path, size_max_bytes=SCHEMA_SOURCE_MAX_BYTES)
    require_json(path, data, "an Iceberg schema, a table's metadata or a manifest of source files")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    return iceberg_schema(value, file_or_table)


def _load_metadata(name: str, service: Service) -> dict[str, Any]:
    from pvdm.client.table import TableClient, split_name
    from pvdm.lake.format.json_document import dump_json

    levels, last = split_name(name)
    with service.connect() as client:
        # `load` keeps numbers in their original spelling (`Number`); here plain JSON values are needed.
        found: dict[str, Any] = json.loads(dump_json(TableClient(client, levels, last).load()))
    return found


def iceberg_schema(value: Any, name: str) -> dict[str, Any]:
    """Iceberg's JSON of a schema: from a manifest of source files, a schema's own JSON, or a table's metadata."""
    match value:
        case {"kind": _, "schema": dict(found)}:
            return dict(found)
        case {"type": "struct", "fields": list()}:
            return dict(value)
        case {"schemas": list(schemas), "current-schema-id": wanted}:
            for each in schemas:
                if isinstance(each, dict) and each.get("schema-id") == wanted:
                    return dict(each)
    raise Code.INPUT_FILE_INVALID(f"{name} has no schema", reason="schema_file_invalid", got="something else")
