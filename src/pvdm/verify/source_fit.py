"""What can be told of a source before anything is staged: whether its columns can become the target's at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pvdm.digest import Engine, Plan, kernel_engine
from pvdm.digest.parquet import read_batches
from pvdm.errors import Code, InputError, PvdmError, VerificationError
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.scan import Scan, scan_batches
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.projection import content
from pvdm.model.schema import Schema
from pvdm.verify.fetch import Files
from pvdm.verify.fit import require_contract_fit, require_extraction_fit
from pvdm.verify.footers import Footer, read_footer
from pvdm.verify.intent import Intent, digest_plan
from pvdm.verify.source import PinnedSource
from pvdm.verify.usable import INT96_HINT, source_readable, unusable

_WHOLE: Final = ChunkDefinition("all", "true", None)
_MEND: Final = "mend the file, or the manifest's schema, and write the manifest again"


def require_usable(bound: BoundContract, source: PinnedSource, target: Schema, files: Files) -> None:
    """Refuse a source whose columns can never become the target's; of a set of files every footer is read.

    The files of a table are its catalog's matter, and may be many: of it the schema alone is judged here.
    """
    kernel_engine()  # nothing is verified without it
    try:
        require_contract_fit(bound.contract, source.scan.schema, target)
        plan = digest_plan(bound.contract, target)
        intent = Intent(bound, source, _WHOLE, plan)
    except InputError as error:
        raise unusable(error, _newer_column(error, source)) from None
    require_extraction_fit(bound.contract, source.scan.schema, target)
    if source.scan.named is None:
        return
    known: set[bytes] = set()
    for file in source.scan.files:
        with source_readable():
            footer = read_footer(file.location, files)
        if footer.key not in known:
            _require_columns(intent, plan, file, footer)
            known.add(footer.key)


def _newer_column(error: InputError, source: PinnedSource) -> str | None:
    """What to do where the table has the column by now, and the snapshot that is pinned was written before it came."""
    if source.metadata is None:
        return None
    pinned = set(source.scan.schema.names)
    newer = [name for name in to_model(source.metadata.current_schema).names if name not in pinned]
    named = next((name for name in newer if ascii(name) in f"{error.expected} {error.got}"), None)
    if named is None:
        return None
    return (
        f"{source.ref.name} has a column {named!a} now, but its pinned snapshot {source.snapshot_id} has an older "
        "schema without it: write to the source once more, so that a snapshot has the column, and open a workload then"
    )


def _require_columns(intent: Intent, plan: Plan, file: ScanFile, footer: Footer) -> None:
    """A file of these columns goes the way that the file itself will go, and is found fit, or never will be."""
    try:
        data = footer.twin()
    except pa.ArrowException:
        return  # Arrow cannot write such columns; the kernel judges them when it reads them
    stand_in = replace(file, size=len(data), sha256=None, record_count=None)
    _require_taken(plan, intent.rows(stand_in, lambda _: data), file.location, footer, intent.source_of)


def require_schema(schema: Schema, location: str, footer: Footer) -> None:
    """Refuse a file whose columns can never be read as the schema says, whatever a contract takes of them."""
    plan = Plan(schema, (content(schema),))
    try:
        data = footer.twin()
    except pa.ArrowException as error:
        raise unusable(_unwritable(location, error), _MEND) from None
    file = ScanFile(location, len(data), None, 0, 0, IdMap(), IdMap())
    scan = Scan(schema, frozenset(), (file,), {}, named=schema)
    _require_taken(plan, scan_batches(scan, file, lambda _: data, read_batches), location, footer, lambda name: name)


def _require_taken(
    plan: Plan, batches: Iterator[pa.RecordBatch], location: str, footer: Footer, source_of: Callable[[str], str]
) -> None:
    """Whether the batches can be read, and rows of their types are taken; `source_of` gives a column's own name."""
    engine = kernel_engine()
    try:
        for batch in batches:
            _judge(engine, plan, batch.slice(0, 0))
    except (VerificationError, InputError) as error:
        column = source_of(str(error.details.get("column", "")).partition(".")[0])
        raise _refused(error, column, location, footer) from None


def _unwritable(location: str, error: Exception) -> InputError:
    return InputError(
        Code.ARROW_TYPE_UNSUPPORTED,
        f"{location}: a column has a type that cannot be judged",
        expected="types that Iceberg has",
        got=str(error).partition("\n")[0][:200],
    )


def _judge(engine: Engine, plan: Plan, batch: pa.RecordBatch) -> None:
    """Whether rows of these types are taken, without any row."""
    for projection in plan.projections:
        engine.encode(plan, projection.name, batch)


def _refused(error: PvdmError, column: str, location: str, footer: Footer) -> InputError:
    top = column.partition(".")[0]
    if top in footer.int96:
        return int96(location, top)
    found = unusable(error, error.hint or _MEND)
    if location not in found.message:
        found.message = f"{location}: {found.message}"
    found.details["file"] = location
    return found


def int96(location: str, column: str) -> InputError:
    """Timestamps of the kind that Spark writes where nobody tells it otherwise."""
    return InputError(
        "source_int96",
        f"{location}: column {column[:80]!a} has timestamps of the old kind INT96, which have no exact type",
        expected="timestamps in microseconds (INT64)",
        got="INT96",
        hint=INT96_HINT,
        file=location,
        column=column,
    )
