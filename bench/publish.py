"""Measures the CPU time of publishing one chunk, part by part, on a table with few files and on one with many.

`many` is a table as Iceberg's writers leave it, with thousands of files in a manifest. `scattered` has a manifest for
each file. The gate keeps these manifests, and reads and writes the whole manifest list, so a long list costs time.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.many_files import commit_first_snapshot, link_files
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from pvdm.lake.paths import parse_location
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.steward.pipeline.publishing import Publishing
from tests.support.gate.approvals import SALES
from tests.support.gate.protected_tables import House
from tests.support.verify.attempts import SCHEMA, Bench, Row, write
from tests.support.verify.attempts import bench_at as verify_bench
from tools.proof_kit import SECOND

ROWS_OF_A_CHUNK = 100
PARTS = ("verify", "gate", "dispose", "whole")
RATIO_MAX = 1.2  # the gate's time with many files, divided by that with few


@dataclass(frozen=True, slots=True)
class Shape:
    """A table before the measurement: its number of files, and how many of them are in each manifest."""

    name: str
    files: int
    files_per_manifest: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done. Each shape has its own Steward, and takes turns with `FEW`; the first turn does not count."""

    repetitions: int
    shapes: tuple[Shape, ...]


FEW = Shape("few", 10, 10)
WHOLE = Sizes(15, (Shape("many", 10_000, 1_000), Shape("scattered", 10_000, 1)))
TINY = Sizes(2, (Shape("many", 20, 10), Shape("scattered", 20, 1)))


@dataclass(frozen=True, slots=True)
class Figure:
    """CPU time of one part, in milliseconds, of this process with all its threads."""

    median_ms: float
    times_ms: tuple[float, ...]


def contract(name: str) -> str:
    """The contract of a target: each workload publishes its own range of ids, so that there can be many."""
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        f"metadata:\n  domain: sales\n  product: {name}\n  owner: sales\n"
        "parameters:\n  least:\n    type: long\n  most:\n    type: long\n"
        "boundary:\n  source:\n    table: raw.orders\n"
        "  where: id >= ${least} and id < ${most}\n"
        f"  target: sales.{name}\n  operation: append\n  claim:\n    column: id\n"
        "projections:\n  identity: [id]\n"
    )


def chunk_rows(number: int) -> list[Row]:
    """The rows of one repetition."""
    first = number * ROWS_OF_A_CHUNK
    return [(at, f"town {at % 3}", at / 4) for at in range(first, first + ROWS_OF_A_CHUNK)]


class MeasuredSteward:
    """One Steward with a protected table of each shape."""

    def __init__(self, bench: Bench, shapes: Sequence[Shape]) -> None:
        self._bench = bench
        self._scene = bench.scene
        # `House` is the tests' Steward with protected tables; only its publishing service is used here.
        self._publishing: Publishing = House(bench.scene.stand, bench.scene).publishing()
        for shape in shapes:
            self._create_table(shape)

    def _create_table(self, shape: Shape) -> None:
        scene, bench = self._scene, self._bench
        body: dict[str, Any] = {"name": shape.name, "schema": SCHEMA, "properties": {"format-version": "2"}}
        scene.notary.catalog.tables.create(scene.grant(), SALES, body)
        place = Path(parse_location(bench.state(shape.name).metadata.location).local)
        files = link_files(write(place / "data" / "0.parquet", [(-1, "old", None)]), shape.files)
        table, now_ms = (SALES, shape.name), scene.now // 1_000
        commit_first_snapshot(scene.notary.catalog, scene.grant(), table, files, shape.files_per_manifest, now_ms)
        scene.protect(scene.protection(shape.name, contract=contract(shape.name)))
        scene.stand.time.pass_by(SECOND)

    def publish(self, name: str, number: int) -> dict[str, float]:
        """Stage, verify and publish one chunk; returns the milliseconds of each part."""
        bench, scene = self._bench, self._scene
        attempt = self._stage(name, number)
        took: dict[str, float] = {}
        with _timed(took, "verify"):
            bench.verification.verify(attempt.attempt_id)
        with _timed(took, "gate"):
            self._publishing.publish(attempt.workload_id, [attempt.attempt_id])
        with _timed(took, "dispose"):
            bench.disposal.dispose(attempt.attempt_id)
        scene.stand.time.pass_by(SECOND)
        return took | {"whole": sum(took.values())}

    def _stage(self, name: str, number: int) -> Attempt:
        bench, scene = self._bench, self._scene
        producer = scene.grant(Role.PRODUCER, "sales")
        first = number * ROWS_OF_A_CHUNK
        bounds = {"least": str(first), "most": str(first + ROWS_OF_A_CHUNK)}
        bench.workloads.open(producer, f"{name}-{number}", f"sales.{name}", bounds)
        attempt = bench.workloads.next_attempt(producer, f"{name}-{number}", "all", "measured")
        prefix = parse_location(attempt.prefix).local
        file = write(prefix / "data" / "part.parquet", chunk_rows(number))
        bench.write_snapshot(name, SALES, attempt.branch, [file], home=prefix / "metadata", role=Role.PRODUCER)
        return bench.workloads.end_staging(producer, attempt.attempt_id)


@contextmanager
def _timed(into: dict[str, float], name: str) -> Iterator[None]:
    """Add the CPU time of the block, in milliseconds, under this name."""
    gc.collect()  # so that garbage of earlier work does not count
    begun = time.process_time()
    yield
    into[name] = (time.process_time() - begun) * 1_000


def measure(shape: Shape, repetitions: int, folder: Path, say: Callable[[str], None]) -> dict[str, dict[str, Figure]]:
    """Publish to the shape's table and to the one with few files in turn, so that a busy machine slows both."""
    rows = [row for number in range(repetitions + 1) for row in chunk_rows(number)]
    tables = (FEW, shape)
    taken: dict[str, list[dict[str, float]]] = {table.name: [] for table in tables}
    with verify_bench(folder, source=[rows]) as bench:
        measured = MeasuredSteward(bench, tables)
        for number in range(repetitions + 1):
            for table in tables if number % 2 else reversed(tables):
                took = measured.publish(table.name, number)
                if number:  # the first repetition does not count
                    taken[table.name].append(took)
            say(f"{shape.name}: repetition {number} of {repetitions}")
    return {name: {part: _figure([run[part] for run in runs]) for part in PARTS} for name, runs in taken.items()}


def _figure(times: Sequence[float]) -> Figure:
    return Figure(statistics.median(times), tuple(times))


def ratios(figures: Mapping[str, Mapping[str, Mapping[str, Figure]]]) -> dict[str, dict[str, float]]:
    """The figures of each shape, divided by those of the table with few files that it took turns with."""
    return {
        name: {part: found[name][part].median_ms / found[FEW.name][part].median_ms for part in PARTS}
        for name, found in figures.items()
    }


def report(sizes: Sizes, out: Path) -> None:
    """Measure, print and write the record."""
    require_writable(out)
    figures: dict[str, dict[str, dict[str, Figure]]] = {}
    for shape in sizes.shapes:
        with tempfile.TemporaryDirectory(prefix="pvdm-bench-") as folder:
            figures[shape.name] = measure(shape, sizes.repetitions, Path(folder), lambda line: print(line, flush=True))
    compared = ratios(figures)
    for name, pair in figures.items():
        for table, found in pair.items():
            print(f"{table}: " + ", ".join(f"{part} {found[part].median_ms:.1f} ms" for part in PARTS))
        print(f"{name} / few: " + ", ".join(f"{part} {compared[name][part]:.2f}" for part in PARTS))
    verdict = "holds" if compared["many"]["gate"] <= RATIO_MAX else "does not hold"
    print(f"many / few of the gate at most {RATIO_MAX}: {verdict}")
    record: dict[str, object] = {
        "machine": machine(),
        "versions": versions(),
        "sizes": asdict(sizes),
        "few": asdict(FEW),
        "rows_of_a_chunk": ROWS_OF_A_CHUNK,
        "cpu_ms": {
            name: {table: {part: asdict(figure) for part, figure in found.items()} for table, found in pair.items()}
            for name, pair in figures.items()
        },
        "ratios": compared,
        "most": RATIO_MAX,
    }
    write_json(out, record)


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/publish.json"), help="where the figures go")
    parser.add_argument("--repetitions", type=int, default=WHOLE.repetitions, help="chunks published on each table")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, to test whether the benchmark runs")
    options = parser.parse_args()
    report(TINY if options.tiny else replace(WHOLE, repetitions=options.repetitions), options.out)


if __name__ == "__main__":
    main()
