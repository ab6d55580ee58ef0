"""Commit latency of the catalog beside PyIceberg's SqlCatalog and Iceberg's Java reference server, in one run."""

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
from tests.support.ledger.databases import server

SEED = 0
PACKAGES = ("pyiceberg", "SQLAlchemy", "psycopg", "fastapi", "uvicorn")
OURS = ("steward_sqlite", "steward_postgresql")
# What ours is held to: the same database, and none that keeps the catalog in memory only.
BETTER = {
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
    """How much is done; `commits` are those of one repetition, shared out to its writers."""

    repetitions: int
    commits: int = 64
    writers: tuple[int, ...] = (1, 4, 16)
    warm_ups: int = 2
    warm_ups_java: int = 25


TINY = Sizes(repetitions=2, commits=2, writers=(1, 2), warm_ups=1, warm_ups_java=1)


def shapes(sizes: Sizes) -> list[Shape]:
    """Every way in which writers meet."""
    return [
        Shape(f"{'one_table' if shared else 'own_tables'}_{writers}", shared, writers)
        for shared in (False, True)
        for writers in sizes.writers
    ]


@contextlib.contextmanager
def systems(folder: Path, jar: Path | None, parent: Path | None, left_out: dict[str, str]) -> Iterator[list[System]]:
    """Every catalog that can be started here, with all its files under the folder."""
    with contextlib.ExitStack() as stack:
        found: list[System] = [
            stack.enter_context(steward("steward_sqlite", folder / "steward", None)),
            SqlSystem("pyiceberg_sqlite", f"sqlite:///{folder}/pyiceberg.db", f"file://{folder}/pyiceberg"),
        ]
        try:
            database = stack.enter_context(server(parent=parent))
        except pytest.skip.Exception as error:
            left_out["postgresql"] = str(error)
        except (OSError, subprocess.CalledProcessError) as error:
            left_out["postgresql"] = f"the server did not start: {error}"
        else:
            found.append(stack.enter_context(steward("steward_postgresql", folder / "steward-pg", database.fresh())))
            url = database.fresh().replace("postgresql:", "postgresql+psycopg:")
            found.append(SqlSystem("pyiceberg_postgresql", url, f"file://{folder}/pyiceberg-pg"))
        if jar is None:
            left_out["java"] = f"{JAVA_JAR} is not there, or java is not"
        else:
            found += _java(stack, folder, jar, left_out)
        yield found


def _java(stack: contextlib.ExitStack, folder: Path, jar: Path, left_out: dict[str, str]) -> list[RestSystem]:
    """With a database in a file, and as it comes: with one in memory."""
    try:
        return [
            stack.enter_context(java("java_sqlite", folder / "java", jar, f"jdbc:sqlite:{folder}/java.db")),
            stack.enter_context(java("java_memory", folder / "java-memory", jar, None)),
        ]
    except OSError as error:
        left_out["java"] = str(error)
        return []


def measure(found: Sequence[System], sizes: Sizes, random: Random) -> dict[str, Figure]:
    """Every shape on every system in turn, as often as wanted, after a warm-up that does not count."""
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
    """Ours over the better of the two others: medians, means, which no lucky writer improves, and commits a second."""
    made: dict[str, dict[str, object]] = {}
    for ours in OURS:
        for shape in shapes(sizes):
            mine = figures.get(f"{ours}_{shape.name}")
            others = {name: figures.get(f"{name}_{shape.name}") for name in BETTER[ours]}
            there = {name: figure for name, figure in others.items() if figure is not None}
            if mine is None or not there:
                continue
            median = min(there, key=lambda name: there[name].median_ms)
            mean = min(there, key=lambda name: there[name].mean_ms)
            fastest = max(there, key=lambda name: there[name].per_second)
            made[f"{ours}_{shape.name}"] = {
                "better_median": median,
                "median": mine.median_ms / there[median].median_ms,
                "better_mean": mean,
                "mean": mine.mean_ms / there[mean].mean_ms,
                "better_per_second": fastest,
                "per_second": mine.per_second / there[fastest].per_second,
            }
    return made


def at(parent: Path | None, memory: Path | None, sizes: Sizes, jar: Path | None) -> dict[str, object]:
    """All figures of one place: a disk, or memory, where a sync costs nothing."""
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
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
        found |= {"iceberg-open-api": JAVA_VERSION, "java": said.splitlines()[0]}
    return found


def show(record: Mapping[str, object], places: Mapping[str, dict[str, object]]) -> None:
    """The figures for people."""
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
    """Measure, print, write."""
    require_writable(out)
    places = {"disk": at(out.parent, None, sizes, jar)}
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if memory and shared.is_dir() and os.access(shared, os.W_OK):
        places["memory"] = at(shared, shared, sizes, jar)
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


def fetched(folder: Path, *, fetch: bool) -> Path | None:
    """The reference server's jar, brought by Maven where it may be; None where there is no way to run it."""
    jar = folder / JAVA_JAR
    if shutil.which("java") is None:
        return None
    if not jar.is_file() and fetch and shutil.which("mvn") is not None:
        artifact = f"org.apache.iceberg:iceberg-open-api:{JAVA_VERSION}"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True)
    return jar if jar.is_file() else None


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/catalog.json"), help="where the figures go")
    parser.add_argument("--jars", type=Path, default=Path("build/bench-jars"), help="where the server's jar is kept")
    parser.add_argument("--repetitions", type=int, default=5, help="times each case is measured, all taking turns")
    parser.add_argument("--tiny", action="store_true", help="a few of everything: whether it runs, not how fast")
    parser.add_argument("--no-fetch", action="store_true", help="do not bring the jar if it is not there")
    options = parser.parse_args()
    jar = fetched(options.jars.resolve(), fetch=not options.no_fetch)
    sizes = TINY if options.tiny else Sizes(repetitions=options.repetitions)
    report(sizes, options.out, jar, memory=not options.tiny)


if __name__ == "__main__":
    main()
