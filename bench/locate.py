"""Compares the time for locating wrong rows with the verification that finds them, and measures the peak memory."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.memory import own_peak_memory_mb
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import parse_location
from pvdm.model.located import WrongRows
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.job import Tools, VerificationResult, verify
from pvdm.verify.locate import LocateLimits
from tests.support import fault
from tests.support.gate.approvals import scene_at
from tests.support.verify.attempts import RAW, SALES, Bench, contract
from tools.proof_kit import SECOND

RATIO_MAX = 2.0  # seconds for locating, divided by those of the verification
MEMORY_MAX_MB = 1_500
ROWS_OF_A_FILE = 500_000
COLUMNS: tuple[tuple[str, Any, str], ...] = (
    ("id", pa.int64(), "long"),
    ("customer", pa.int64(), "long"),
    ("amount", pa.decimal128(12, 2), "decimal(12, 2)"),
    ("tax", pa.float64(), "double"),
    ("day", pa.date32(), "date"),
    ("at", pa.timestamp("us", "UTC"), "timestamptz"),
    ("state", pa.string(), "string"),
    ("note", pa.string(), "string"),
)


@dataclass(frozen=True, slots=True)
class Faults:
    """How many rows there are, and how many of them are left out, written twice and changed."""

    rows: int = 6_000_000
    missing: int = 2_000
    doubled: int = 50
    modified: int = 20
    seed: int = 7

    def choose_keys(self) -> dict[str, np.ndarray[Any, Any]]:
        """The keys of the rows with each kind of fault; no row has two."""
        count = self.missing + self.doubled + self.modified
        keys = np.random.default_rng(self.seed).choice(self.rows, size=count, replace=False)
        return {
            "missing": np.sort(keys[: self.missing]),
            "doubled": np.sort(keys[self.missing : self.missing + self.doubled]),
            "modified": np.sort(keys[self.missing + self.doubled :]),
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run; `verify_seconds` is the whole verification of both sides, without the locating."""

    rows: int
    verify_seconds: float
    locate_seconds: float
    ratio: float
    peak_memory_mb: float


def rows_from(first: int, count: int) -> pa.Table:
    """Orders with these keys; a row depends on its key alone."""
    keys = np.arange(first, first + count, dtype=np.int64)
    mixed = (keys * 2_654_435_761) % 1_000_003
    states = np.array(["open", "paid", "sent", "back"], dtype=object)
    arrays = [
        pa.array(keys),
        pa.array(mixed % 150_000),
        pa.array((mixed % 100_000).astype("int32")).cast(pa.decimal128(12, 2)),
        pa.array(mixed / 97.0),
        pa.array((18_000 + mixed % 2_500).astype("int32")).cast(pa.date32()),
        pa.array(keys * 1_000_003).cast(pa.timestamp("us", "UTC")),
        pa.array(states[mixed % 4]),
        pa.array(np.char.add("note ", (mixed % 5_000).astype(str))),
    ]
    fields = [
        pa.field(name, kind, nullable=at > 1, metadata={"PARQUET:field_id": str(at)})
        for at, (name, kind, _) in enumerate(COLUMNS, 1)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def apply_faults(table: pa.Table, chosen: dict[str, np.ndarray[Any, Any]]) -> pa.Table:
    """The rows as a wrong job writes them; a modified row has another note."""
    keys = table.column("id").to_numpy()
    notes = table.column("note").to_numpy(zero_copy_only=False).copy()
    notes[np.isin(keys, chosen["modified"])] = "changed"
    at = table.schema.get_field_index("note")
    table = table.set_column(at, table.schema.field(at), pa.array(notes, pa.string()))
    doubled = table.filter(np.isin(keys, chosen["doubled"]))
    return pa.concat_tables([table.filter(~np.isin(keys, chosen["missing"])), doubled])


def write_file(path: Path, table: pa.Table) -> DataFile:
    """Write the table to a file; returns its manifest entry, without statistics."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return DataFile(
        file_path=f"file://{path}",
        file_format="PARQUET",
        record_count=table.num_rows,
        file_size_in_bytes=path.stat().st_size,
    )


@contextlib.contextmanager
def start_steward(folder: Path) -> Iterator[Bench]:
    """Run a Steward with the source and target tables, both empty."""
    listed = [
        {"id": at, "name": name, "required": at == 1, "type": kind} for at, (name, _, kind) in enumerate(COLUMNS, 1)
    ]
    body: dict[str, Any] = {
        "schema": {"type": "struct", "schema-id": 0, "fields": listed},
        "properties": {"format-version": "2"},
    }
    with scene_at(folder) as scene:
        catalog, operator = scene.notary.catalog, scene.grant()
        catalog.tables.drop(operator, RAW, "orders")  # replaced by one with these columns
        catalog.tables.create(operator, RAW, {"name": "orders", **body})
        catalog.tables.create(operator, SALES, {"name": "sums", **body})
        yield Bench(scene, folder.resolve())


def stage(bench: Bench, faults: Faults) -> str:
    """Write the source's files, protect the target, and stage the files of an attempt; returns the attempt's id.

    A staged file without faults is a hard link to the source's file.
    """
    chosen = faults.choose_keys()
    wrong = np.concatenate(list(chosen.values()))
    home = parse_location(bench.state("orders", RAW).metadata.location).local
    firsts = range(0, faults.rows, ROWS_OF_A_FILE)
    source = []
    for at, first in enumerate(firsts):
        count = min(ROWS_OF_A_FILE, faults.rows - first)
        source.append(write_file(home / "data" / f"{at:05}.parquet", rows_from(first, count)))
    bench.write_snapshot("orders", RAW, "main", source)
    bench.scene.protect(bench.scene.protection("sums", contract=contract()))
    bench.scene.stand.time.pass_by(SECOND)
    attempt = bench.attempt()
    prefix = parse_location(attempt.prefix).local
    staged = []
    for at, (first, entry) in enumerate(zip(firsts, source, strict=True)):
        path = prefix / "data" / f"{at:05}.parquet"
        if not np.any((wrong >= first) & (wrong < first + ROWS_OF_A_FILE)):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(parse_location(entry.file_path).local, path)
            staged.append(dataclasses.replace(entry, file_path=f"file://{path}"))
            continue
        staged.append(write_file(path, apply_faults(rows_from(first, entry.record_count), chosen)))
    bench.write_snapshot("sums", SALES, attempt.branch, staged, home=prefix / "metadata", role=Role.PRODUCER)
    bench.hand_in(attempt)
    return attempt.attempt_id


def measure(bench: Bench, attempt_id: str, faults: Faults) -> Figures:
    """Verify both sides once; the locating in it is timed separately."""
    notary, times = bench.scene.notary, {}
    samples = max(1, faults.missing + faults.doubled + faults.modified)
    tools = Tools(
        bench.files, notary.handles, notary.keys, bench.vault, threads=2, locate_limits=LocateLimits(samples=samples)
    )
    job = bench.verification.load_job(attempt_id)
    _reset_peak_memory()
    with contextlib.ExitStack() as stack:
        for point in ("verify.after_digests", "verify.after_locate"):
            note_time = fault.Call(lambda name=point: times.update({name: time.perf_counter()}))  # type: ignore[misc]
            stack.enter_context(fault.armed(point, note_time))
        begun = time.perf_counter()
        found = verify(job, tools)
        whole = time.perf_counter() - begun
    peak = own_peak_memory_mb()
    require_exact(found, faults)
    locating = times["verify.after_locate"] - times["verify.after_digests"]
    return Figures(faults.rows, whole - locating, locating, locating / (whole - locating), peak)


def require_exact(found: VerificationResult, faults: Faults) -> None:
    """Raise unless exactly the wrong keys were located, with the field that differs. Otherwise figures mean nothing."""
    located, chosen = found.located, faults.choose_keys()
    assert located is not None
    assert located.problem_code is None, located
    for failure, kind in (
        (FailureClass.MISSING, "missing"),
        (FailureClass.DUPLICATED, "doubled"),
        (FailureClass.MODIFIED, "modified"),
    ):
        assert located.rows(failure) == len(chosen[kind]), (failure, located.rows(failure))
        assert keys_of(located, failure) == chosen[kind].tolist(), failure
    assert located.rows(FailureClass.ADDED) == 0
    wanted = [("note", faults.modified)] if faults.modified else []
    assert [(field.name, field.rows) for field in located.fields] == wanted


def keys_of(located: WrongRows, failure: FailureClass) -> list[int]:
    """The sampled keys of a class, in order."""
    samples = [sample for found in located.classes if found.failure is failure for sample in found.samples]
    return sorted(int(str(sample.key[0][1])) for sample in samples)  # a key has one column: its name and its value


def _reset_peak_memory() -> None:
    """Let Linux count this process's peak memory from here on, without the making of the rows."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure_in_new_process(faults: Faults, folder: Path) -> Figures:
    """Run the measurement in another process."""
    command = [sys.executable, "-m", "bench.locate", "--once", json.dumps(asdict(faults)), "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the figures of one run, and with --out write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=Faults().rows)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        faults = Faults(**json.loads(options.once))
        with start_steward(options.folder) as bench:
            print(json.dumps(asdict(measure(bench, stage(bench, faults), faults))))
        return
    if options.out is not None:
        require_writable(options.out)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = measure_in_new_process(Faults(rows=options.rows), Path(folder))
    print(f"{figures.rows:,} rows a side: verify of both sides {figures.verify_seconds:.1f} s")
    print(f"locate {figures.locate_seconds:.1f} s, {figures.ratio:.2f} times that (at most {RATIO_MAX})")
    print(f"peak memory {figures.peak_memory_mb:,.0f} MB (at most {MEMORY_MAX_MB:,})")
    if options.out is not None:
        record = {"machine": machine(), "versions": versions(), "seed": Faults().seed, **asdict(figures)}
        write_json(options.out, record)


if __name__ == "__main__":
    main()
