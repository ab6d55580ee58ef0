"""`pvdm quickstart`: a folder with a protected table, one published day of rows and one refused day."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pvdm.cli.common.commands import command
from pvdm.cli.common.files import write_new
from pvdm.cli.common.options import path_argument
from pvdm.cli.common.screen import Line, notice, say_result
from pvdm.errors import Code, DevelopmentWarning
from pvdm.model.printable import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from pvdm.durable.chunk import Chunk
    from pvdm.durable.outcome import Outcome
    from pvdm.steward.embedded.development import DevelopmentSteward

FILES: Final = {
    name: (resources.files("pvdm.cli.demo").joinpath("quickstart_files", stored).read_text("utf-8"), purpose)
    for name, stored, purpose in (
        ("orders.yaml", "orders.yaml", "the contract: which rows of raw.orders belong in sales.orders"),
        ("job.py", "job.txt", "a job that publishes one day"),
        ("notebook.ipynb", "notebook.json", "the same steps in a notebook"),
    )
}
"""Key: file name. Value: the file's text, and what the file is for."""

SOURCE: Final = "raw.orders"
TARGET: Final = "sales.orders"
FOLDER: Final = Path("pvdm-quickstart")
PUBLISHED_DAY: Final = "2026-11-14"
REFUSED_DAY: Final = "2026-11-15"
_ROWS: Final = (
    (1, "2026-11-14", "19.90"),
    (2, "2026-11-14", "5.00"),
    (3, "2026-11-14", "12.00"),
    (4, "2026-11-15", "7.50"),
    (5, "2026-11-15", "30.00"),
    (6, "2026-11-15", "8.25"),
    (7, "2026-11-16", "2.00"),
    (8, "2026-11-16", "41.10"),
    (9, "2026-11-17", "6.00"),
    (10, "2026-11-17", "15.75"),
)


@dataclass(frozen=True, slots=True)
class QuickstartResult:
    """What the quickstart did: the state of each file, both outcomes, and how many rows consumers see.

    `unpublished` are the days of the source that are not in the target.
    """

    folder: Path
    files: dict[str, str]
    published: Outcome
    refused: Outcome
    rows: int
    unpublished: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The result as JSON."""
        return {
            "folder": str(self.folder),
            "files": self.files,
            "published": self.published.to_json(),
            "refused": self.refused.to_json(),
            "rows": self.rows,
            "unpublished": list(self.unpublished),
        }


@command()
@path_argument("folder", folder=True, default=FOLDER, metavar="[FOLDER]")
def quickstart(*, folder: Path) -> None:
    """Create a folder (default: pvdm-quickstart) with a development Steward, a contract, a job and a notebook.

    The Steward creates its own keys, tokens and operator in FOLDER/steward. The command creates the tables raw.orders
    and sales.orders, protects sales.orders, publishes one day, and shows how a job that drops a row is refused. It
    needs neither Spark nor a second terminal.

    Run again in the same folder, it publishes nothing twice and keeps every file that exists.

    \b
    Examples:
      pvdm quickstart
      pvdm quickstart my-first-table
      pvdm quickstart --json | jq .refused.error
    """
    result = run_quickstart(folder)
    say_result(result.to_json(), _lines(result))


def run_quickstart(folder: Path) -> QuickstartResult:
    """Set the folder up, publish one day and have another refused."""
    # Imported late: the Steward is slow to load, and most commands work without it.
    import pyarrow.compute as pc

    import pvdm
    from pvdm.digest import kernel_engine

    kernel_engine()  # only the kernel reads staged files; without it, stop before anything is written
    files = _write_files(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DevelopmentWarning)
        steward = pvdm.Steward.development(folder / "steward")
    for each in caught:
        notice(str(each.message))
    with steward, pvdm.Coordinator(steward) as coordinator:
        _create_tables(steward)
        if not steward.protected("table", name=TARGET):
            steward.protect(folder / "orders.yaml")

        def build(_spark: object, chunk: Chunk) -> pa.Table:
            orders = steward.read(SOURCE, chunk.source_snapshot_id)
            return orders.filter(pc.field("day") == date.fromisoformat(chunk.parameters["day"]))

        def drop_a_row(_spark: object, chunk: Chunk) -> pa.Table:
            return build(_spark, chunk).slice(1)

        published = coordinator.run(f"orders-{PUBLISHED_DAY}", TARGET, {"day": PUBLISHED_DAY}, build)
        refused = coordinator.run(f"orders-{REFUSED_DAY}", TARGET, {"day": REFUSED_DAY}, drop_a_row)
        rows = steward.read(TARGET)
        seen = {str(each) for each in rows["day"].to_pylist()}
        unpublished = tuple(sorted({day for _, day, _ in _ROWS} - seen))
        return QuickstartResult(folder, files, published, refused, rows.num_rows, unpublished)


def _write_files(folder: Path) -> dict[str, str]:
    """Write the files that are missing, and keep those that exist; returns the state of each."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        states = {}
        for name, (text, _) in FILES.items():
            path = folder / name
            if not path.exists():
                write_new(path, text.encode())
                states[name] = "written"
            else:
                states[name] = "unchanged" if path.read_bytes() == text.encode() else "edited"
    except OSError as error:
        message = f"{folder} cannot be used"
        raise Code.OUTPUT_REFUSED(message, reason="folder_not_writable", got=error.strerror or str(error)) from error
    return states


def _create_tables(steward: DevelopmentSteward) -> None:
    import pyarrow as pa

    fields: Any = {"order_id": pa.int64(), "day": pa.date32(), "amount": pa.decimal128(10, 2)}
    schema = pa.schema(fields)
    for table in (SOURCE, TARGET):
        steward.create_table(table, schema, partition_by=["day"] if table == TARGET else [], exist_ok=True)
    if not steward.read(SOURCE).num_rows:
        rows = [
            {"order_id": number, "day": date.fromisoformat(day), "amount": Decimal(amount)}
            for number, day, amount in _ROWS
        ]
        steward.append(SOURCE, pa.Table.from_pylist(rows, schema=schema))


def _lines(result: QuickstartResult) -> Iterator[Line]:
    width = max(len(str(result.folder / name)) for name in FILES)
    for name, (_, purpose) in FILES.items():
        state = result.files[name]
        yield f"{result.folder / name!s:<{width}}  {state:<9}  {purpose}", "yellow" if state == "edited" else None
    yield "", None
    yield f"1. a job copies {PUBLISHED_DAY} from {SOURCE} to {TARGET}", "bold"
    yield from _outcome_lines(result.published)
    if result.refused.exit_code:
        yield f"2. a job loses a row of {REFUSED_DAY} and ends without an error", "bold"
    else:
        yield f"2. {REFUSED_DAY} was refused before and is repaired", "bold"
    yield from _outcome_lines(result.refused)
    yield f"consumers of {TARGET} see {counted(result.rows, 'row')}", "cyan"
    yield "", None
    yield "next:", "bold"
    yield f"  cd {result.folder}", None
    if REFUSED_DAY in result.unpublished:
        yield f"  python job.py {REFUSED_DAY}    the correct job repairs the refused day", None
    elif result.unpublished:
        yield f"  python job.py {result.unpublished[0]}    publishes another day", None
    yield "  jupyter notebook             opens notebook.ipynb (first: pip install notebook)", None
    yield "  edit orders.yaml             then run the job again: it signs the change of the contract", None


def _outcome_lines(outcome: Outcome) -> Iterator[Line]:
    """The outcome without its hint: the last lines of the quickstart say what to do next."""
    first, *others = str(outcome).splitlines()
    yield f"   {first}", "bold red" if outcome.exit_code else "green"
    yield from ((f"   {line}", None) for line in others if not line.startswith("hint: "))
