"""Measures the speed of the digest: the kernel, the reference and two constructions of the paper, on one table."""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pvdm_kernel
import pyarrow as pa
import pyarrow.parquet as pq

from bench.memory import own_peak_memory_mb
from bench.tpch import ROWS_AT_SCALE_FACTOR, lineitem
from pvdm.digest import Engine, Plan, digest, reference_engine, schema_from_arrow
from pvdm.digest.kernel import KernelEngine, plan_json
from pvdm.evaluation.record import machine, versions, write_json
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.secret import DigestKey

IDENTITY = ("l_orderkey", "l_linenumber")
KEYS = {name: DigestKey(hashlib.sha256(name.value.encode()).digest(), epoch=1) for name in ProjectionName}
BATCH_ROWS = 65_536
PAPER_ROWS = 200_000
REFERENCE_ROWS = 20_000
SEED = 0


def plans(schema: pa.Schema) -> dict[str, Plan]:
    """Plans for the identity projection, the content projection, and both at once."""
    target = schema_from_arrow(schema)
    keys, everything = identity(target, IDENTITY), content(target)
    return {
        "identity": Plan(target, (keys,)),
        "content": Plan(target, (everything,)),
        "both": Plan(target, (keys, everything)),
    }


def run(plan: Plan, data: pa.Table, engine: Engine, threads: int = 1) -> None:
    """Digest the table once."""
    keys = {projection.name: KEYS[projection.name] for projection in plan.projections}
    batches = data.to_reader(max_chunksize=BATCH_ROWS)
    found = digest(batches, plan, keys, threads=threads, engine=engine)
    assert all(partial.rows == data.num_rows for partial in found.values())


def hash_only(plan: Plan, data: pa.Table) -> float:
    """Seconds that the plain sha2 crate needs to hash the encoded rows of both projections, without encoding them."""
    keys = [KEYS[projection.name].reveal() for projection in plan.projections]
    digester = pvdm_kernel.Digester(plan_json(plan), keys, "portable")
    for batch in data.to_batches(max_chunksize=BATCH_ROWS):
        digester.update(batch)
    return digester.hash_seconds


def paper_hmac_json(rows: list[tuple[object, ...]], names: list[str]) -> int:
    """The paper's reference: HMAC-SHA256 over a row's JSON, content projection only."""
    total = 0
    for row in rows:
        text = json.dumps(dict(zip(names, row, strict=True)), sort_keys=True, default=str)
        total += int.from_bytes(hmac.digest(bytes(32), text.encode(), hashlib.sha256), "big")
    return total % 2**256


def paper_blake2b(rows: list[tuple[object, ...]], names: list[str]) -> int:
    """The paper's fastest construction on one core: keyed BLAKE2b over delimited text, content projection only."""
    order = sorted(range(len(names)), key=names.__getitem__)
    total = 0
    for row in rows:
        text = "\x1f".join([str(row[at]) for at in order])
        total += int.from_bytes(hashlib.blake2b(text.encode(), key=bytes(32), digest_size=32).digest(), "big")
    return total % 2**256


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(table: pa.Table, repetitions: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Run every variant `repetitions` times in turn, after one warm-up; returns seconds and rows of each variant."""
    plan = plans(table.schema)
    kernel, reference = KernelEngine(), reference_engine()
    small = table.slice(0, PAPER_ROWS)
    rows, names = list(zip(*(column.to_pylist() for column in small.columns), strict=True)), small.schema.names
    smallest = table.slice(0, REFERENCE_ROWS)
    work: dict[str, tuple[int, Callable[[], float]]] = {
        "identity": (table.num_rows, lambda: seconds(lambda: run(plan["identity"], table, kernel))),
        "content": (table.num_rows, lambda: seconds(lambda: run(plan["content"], table, kernel))),
        "both": (table.num_rows, lambda: seconds(lambda: run(plan["both"], table, kernel))),
        "hash_only": (table.num_rows, lambda: hash_only(plan["both"], table)),
        "both_two_threads": (table.num_rows, lambda: seconds(lambda: run(plan["both"], table, kernel, 2))),
        "paper_hmac_json": (PAPER_ROWS, lambda: seconds(lambda: paper_hmac_json(rows, names))),
        "paper_blake2b": (PAPER_ROWS, lambda: seconds(lambda: paper_blake2b(rows, names))),
        "reference": (REFERENCE_ROWS, lambda: seconds(lambda: run(plan["both"], smallest, reference))),
    }
    run(plan["both"], table, kernel)
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repetitions):
        for name, (_, once) in work.items():
            times[name].append(once())
    return times, {name: count for name, (count, _) in work.items()}


def peak_memory_mb(scale_factor: int) -> float:
    """Peak memory of a separate process that digests lineitem as a stream."""
    command = [sys.executable, "-m", "bench.kernel", "--stream", str(scale_factor)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def stream(scale_factor: int) -> None:
    """Digest lineitem from its files, with two threads, and print this process's peak memory in MB."""
    files = lineitem(scale_factor, parts=1 if scale_factor == 1 else 10)

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from pq.ParquetFile(file).iter_batches(BATCH_ROWS)

    schema = pq.read_schema(files[0])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    found = digest(reader, plans(schema)["both"], KEYS, threads=2, engine=KernelEngine())
    assert found[ProjectionName.CONTENT].rows == ROWS_AT_SCALE_FACTOR[scale_factor]
    print(own_peak_memory_mb())


def report(repetitions: int, out: Path) -> None:
    """Measure, then print and write the figures."""
    memory = {scale: peak_memory_mb(scale) for scale in (1, 10)}
    table = pq.read_table(lineitem(1)[0])
    times, counts = measure(table, repetitions)
    rates = {name: counts[name] / statistics.median(found) for name, found in times.items()}
    figures: dict[str, object] = {
        "identity_rows_per_second": rates["identity"],
        "content_rows_per_second": rates["content"],
        "both_rows_per_second": rates["both"],
        "both_rows_per_second_two_threads": rates["both_two_threads"],
        "paper_hmac_json_rows_per_second": rates["paper_hmac_json"],
        "paper_blake2b_rows_per_second": rates["paper_blake2b"],
        "reference_rows_per_second": rates["reference"],
        "hash_only_rows_per_second": rates["hash_only"],
        "peak_memory_growth_mb": memory[10] - memory[1],
        "peak_memory_mb": {str(scale): peak for scale, peak in memory.items()},
        "both_over_faster_paper_construction": rates["both"] / max(rates["paper_hmac_json"], rates["paper_blake2b"]),
        "both_time_over_hash_only": rates["hash_only"] / rates["both"],
        "two_threads_over_one": rates["both_two_threads"] / rates["both"],
        "table": f"TPC-H lineitem, scale factor 1, {table.num_rows} rows, {table.num_columns} columns",
        "layout": {field.name: str(field.type) for field in table.schema},
        "repetitions": repetitions,
        "seconds": times,
        "seed": SEED,
        "hash_paths": pvdm_kernel.hash_paths(),
        "machine": machine(),
        "versions": versions(),
    }
    write_json(out, figures)
    show(figures, rates, times)
    print(f"written to {out}")


def show(figures: dict[str, object], rates: dict[str, float], times: dict[str, list[float]]) -> None:
    """Print the figures as text."""
    print(f"{figures['table']}; median of {figures['repetitions']}, spread in brackets\n")
    for name, rate in rates.items():
        spread = (max(times[name]) - min(times[name])) / statistics.median(times[name])
        print(f"{name:<20} {rate:>12,.0f} rows/s  {1e9 / rate:>9,.0f} ns/row  [{spread:.0%}]")
    print()
    for name in ("both_over_faster_paper_construction", "both_time_over_hash_only", "two_threads_over_one"):
        print(f"{name:<36} {figures[name]:.2f}")
    print(f"{'peak_memory_growth_mb':<36} {figures['peak_memory_growth_mb']:.1f}\n")
    for name in ("machine", "versions", "hash_paths"):
        print(f"{name}: {json.dumps(figures[name])}")


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="The first run generates TPC-H lineitem into build/tpch (2.6 GB). CONTRIBUTING.md explains the figures.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench/kernel.json"), help="where the figures go")
    parser.add_argument("--repetitions", type=int, default=5, help="how often each variant is measured, all in turn")
    parser.add_argument("--stream", type=int, choices=sorted(ROWS_AT_SCALE_FACTOR), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream is not None:
        stream(options.stream)
    else:
        report(options.repetitions, options.out)


if __name__ == "__main__":
    main()
