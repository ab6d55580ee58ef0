"""Compares the commit latency of the Steward's catalog, PyIceberg's SqlCatalog and Iceberg's Java reference server."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from random import Random

import pytest

from bench import steward_ledger
from bench.catalog_systems import JAVA_JAR, JAVA_VERSION, RestSystem, SqlSystem, java, steward
from bench.catalog_work import Figure, Run, Shape, System, run
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from tests.support.ledger.databases import running_postgresql

SEED = 0
PACKAGES = ("pyiceberg", "SQLAlchemy", "psycopg", "fastapi", "uvicorn")
OURS = ("steward_sqlite", "steward_postgresql")
# The catalogs that ours is compared with: on the same kind of database, and none that is in memory only.
COMPARED_WITH = {
    "steward_sqlite": ("pyiceberg_sqlite", "java_sqlite"),
    "steward_postgresql": ("pyiceberg_postgresql", "java_sqlite"),
}
DURABILITY = {
    "steward_sqlite": "metadata file and its folder synced; SQLite synced, rollback journal and its folder too (EXTRA)",
    "steward_postgresql": "metadata file and its folder synced; PostgreSQL fsync on, synchronous_commit on",
    "pyiceberg_sqlite": "metadata file not synced; SQLite's defaults: rollback journal, synchronous FULL",
    "pyiceberg_postgresql": "metadata file not synced; PostgreSQL fsync on, synchronous_commit on",
    "java_sqlite": "metadata file not synced; a SQLite file by its driver's defaults: journal DELETE, synchronous FULL",
    "java_memory": "nothing survives the server: its own default, SQLite in memory, with one connection",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done; the writers of one repetition make `commits` commits in all."""

    repetitions: int
    commits: int = 64
    writers: tuple[int, ...] = (1, 4, 16)
    warm_ups: int = 2
    warm_ups_java: int = 25


TINY = Sizes(repetitions=2, commits=2, writers=(1, 2), warm_ups=1, warm_ups_java=1)


def shapes(sizes: Sizes) -> list[Shape]:
    """Every combination of a number of writers with one table for all, or a table for each."""
    return [
        Shape(f"{'one_table' if shared else 'own_tables'}_{writers}", shared, writers)
        for shared in (False, True)
        for writers in sizes.writers
    ]


@contextlib.contextmanager
def systems(folder: Path, jar: Path | None, parent: Path | None, left_out: dict[str, str]) -> Iterator[list[System]]:
    """Start every catalog that can run here, with all its files in the folder; `left_out` gets the others, with why."""
    with contextlib.ExitStack() as stack:
        found: list[System] = [
            stack.enter_context(steward("steward_sqlite", folder / "steward", None)),
            SqlSystem("pyiceberg_sqlite", f"sqlite:///{folder}/pyiceberg.db", f"file://{folder}/pyiceberg"),
        ]
        try:
            database = stack.enter_context(running_postgresql(parent=parent))
        except pytest.skip.Exception as error:
            left_out["postgresql"] = str(error)
        except (OSError, subprocess.CalledProcessError) as error:
            left_out["postgresql"] = f"the server did not start: {error}"
        else:
            url = database.create_database()
            found.append(stack.enter_context(steward("steward_postgresql", folder / "steward-pg", url)))
            url = database.create_database().replace("postgresql:", "postgresql+psycopg:")
            found.append(SqlSystem("pyiceberg_postgresql", url, f"file://{folder}/pyiceberg-pg"))
        if jar is None:
            left_out["java"] = f"{JAVA_JAR} is not there, or java is not"
        else:
            found += _java(stack, folder, jar, left_out)
        yield found


def _java(stack: contextlib.ExitStack, folder: Path, jar: Path, left_out: dict[str, str]) -> list[RestSystem]:
    """The Java server twice: with a database in a file, and with its default, a database in memory."""
    try:
        return [
            stack.enter_context(java("java_sqlite", folder / "java", jar, f"jdbc:sqlite:{folder}/java.db")),
            stack.enter_context(java("java_memory", folder / "java-memory", jar, None)),
        ]
    except OSError as error:
        left_out["java"] = str(error)
        return []


def measure(found: Sequence[System], sizes: Sizes, random: Random) -> dict[str, Figure]:
    """Run every shape on all systems in turn, as often as `sizes` says, after warm-ups that do not count."""
    number = 0
    for system in found:
        warm_ups = sizes.warm_ups_java if system.name.startswith("java") else sizes.warm_ups
        for _ in range(warm_ups):
            number += 1
            run(system, Shape("warm-up", False, sizes.writers[-1]), sizes.commits, f"w{number}", random)
    figures: dict[str, Figure] = {}
    for shape in shapes(sizes):
        runs: dict[str, list[Run]] = {system.name: [] for system in found}
        for _ in range(sizes.repetitions):
            for system in found:
                number += 1
                runs[system.name].append(run(system, shape, sizes.commits, f"t{number}", random))
        figures |= {f"{name}_{shape.name}": Figure.of(shape.writers, each) for name, each in runs.items()}
    return figures


def ratios(figures: Mapping[str, Figure], sizes: Sizes) -> dict[str, dict[str, object]]:
    """Our figures divided by those of the better of the two others: median, mean, and commits a second.

    The mean is compared too, since it counts writers that waited long.
    """
    compared: dict[str, dict[str, object]] = {}
    for ours in OURS:
        for shape in shapes(sizes):
            own = figures.get(f"{ours}_{shape.name}")
            named = {name: figures.get(f"{name}_{shape.name}") for name in COMPARED_WITH[ours]}
            others = {name: figure for name, figure in named.items() if figure is not None}
            if own is None or not others:
                continue
            median = min(others, key=lambda name: others[name].median_ms)
            mean = min(others, key=lambda name: others[name].mean_ms)
            fastest = max(others, key=lambda name: others[name].per_second)
            compared[f"{ours}_{shape.name}"] = {
                "better_median": median,
                "median": own.median_ms / others[median].median_ms,
                "better_mean": mean,
                "mean": own.mean_ms / others[mean].mean_ms,
                "better_per_second": fastest,
                "per_second": own.per_second / others[fastest].per_second,
            }
    return compared


def measure_place(parent: Path | None, memory: Path | None, sizes: Sizes, jar: Path | None) -> dict[str, object]:
    """All figures with the files in `parent`: on a disk, or in memory, where a sync costs nothing.

    `memory` is the folder for PostgreSQL's files; None means its default.
    """
    left_out: dict[str, str] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="catalog-", dir=parent) as name:
        folder = Path(name).resolve()
        with systems(folder, jar, memory, left_out) as found:
            figures = measure(found, sizes, Random(SEED))
        syncs = 1e3 * statistics.median(
            steward_ledger.sync_case(folder, 100).run().seconds / 100 for _ in range(sizes.repetitions)
        )
        kind = steward_ledger.filesystem(folder)
    return {
        "file_system": kind,
        "sync_ms": syncs,
        "figures": {name: figure.to_json() for name, figure in figures.items()},
        "ratios": ratios(figures, sizes),
        "left_out": left_out,
        "load_before_and_after": [load, os.getloadavg()[0]],
    }


def _versions(jar: Path | None) -> dict[str, str | None]:
    found = versions() | {"sqlite": sqlite3.sqlite_version, "iceberg-open-api": None, "java": None}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    if jar is not None:
        output = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
        found |= {"iceberg-open-api": JAVA_VERSION, "java": output.splitlines()[0]}
    return found


def show(record: Mapping[str, object], places: Mapping[str, dict[str, object]]) -> None:
    """Print the figures as text."""
    print(f"commit latency in ms: median of {record['repetitions']} repetitions in turn, their range in brackets")
    for place, found in places.items():
        print(f"\n{place} ({found['file_system']}; one 4 KiB write and sync takes {found['sync_ms']:.2f} ms)")
        print(f"{'':<40} {'median':>8} {'':<17} {'mean':>8} {'p95':>8} {'a second':>9} {'conflicts':>10}")
        figures: Mapping[str, Mapping[str, float]] = found["figures"]  # type: ignore[assignment]
        for name, figure in figures.items():
            spread = f"[{figure['median_ms_min']:.1f} - {figure['median_ms_max']:.1f}]"
            print(
                f"{name:<40} {figure['median_ms']:>8.1f} {spread:<17} {figure['mean_ms']:>8.1f}"
                f" {figure['p95_ms']:>8.1f} {figure['per_second']:>9.0f} {figure['conflicts_per_commit']:>10.2f}"
            )
        print()
        for name, ratio in found["ratios"].items():  # type: ignore[attr-defined]
            print(
                f"{name:<40} {ratio['median']:.2f} x the median of {ratio['better_median']},"
                f" {ratio['mean']:.2f} x the mean of {ratio['better_mean']},"
                f" {ratio['per_second']:.2f} x the commits a second of {ratio['better_per_second']}"
            )
        for name, reason in found["left_out"].items():  # type: ignore[attr-defined]
            print(f"left out: {name}: {reason}")
    print("\n(conflicts: how often a writer had to load the table and begin again, for each commit that was made.)")
    for name, words in DURABILITY.items():
        print(f"{name}: {words}")
    for name in ("machine", "versions", "seed", "sizes"):
        print(f"{name}: {json.dumps(record[name])}")


def report(sizes: Sizes, out: Path, jar: Path | None, *, memory: bool) -> None:
    """Measure, then print and write the figures."""
    require_writable(out)
    places = {"disk": measure_place(out.parent, None, sizes, jar)}
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if memory and shared.is_dir() and os.access(shared, os.W_OK):
        places["memory"] = measure_place(shared, shared, sizes, jar)
    record: dict[str, object] = {
        "places": places,
        "durability": DURABILITY,
        "seed": SEED,
        "repetitions": sizes.repetitions,
        "sizes": asdict(sizes),
        "machine": machine(),
        "versions": _versions(jar),
    }
    write_json(out, record)
    show(record, places)
    print(f"written to {out}")


def fetch_jar(folder: Path, *, fetch: bool) -> Path | None:
    """The reference server's jar in the folder; with `fetch`, Maven gets a missing one. None if it cannot be run."""
    jar = folder / JAVA_JAR
    if shutil.which("java") is None:
        return None
    if not jar.is_file() and fetch and shutil.which("mvn") is not None:
        artifact = f"org.apache.iceberg:iceberg-open-api:{JAVA_VERSION}"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True)
    return jar if jar.is_file() else None


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/catalog.json"), help="where the figures go")
    parser.add_argument("--jars", type=Path, default=Path("build/bench-jars"), help="where the server's jar is kept")
    parser.add_argument("--repetitions", type=int, default=5, help="how often each case is measured, all in turn")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, to test whether the benchmark runs")
    fetching = parser.add_mutually_exclusive_group()
    fetching.add_argument("--no-fetch", action="store_true", help="do not fetch a missing jar")
    fetching.add_argument("--fetch-only", action="store_true", help="fetch a missing jar and measure nothing")
    options = parser.parse_args()
    jar = fetch_jar(options.jars.resolve(), fetch=not options.no_fetch)
    if options.fetch_only:
        return
    sizes = TINY if options.tiny else Sizes(repetitions=options.repetitions)
    report(sizes, options.out, jar, memory=not options.tiny)


if __name__ == "__main__":
    main()
