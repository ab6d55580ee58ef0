"""Compares storage `copied` with `open`: lineitem is verified and published with both in turn, and copied plainly."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench import tpch
from bench.spark_steward import seconds
from bench.steward_measure import Ratio
from bench.stolen import Moment
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import parse_location
from pvdm.model.role import Role
from tests.support.gate.approvals import scene_at
from tests.support.gate.protected_tables import House
from tests.support.verify.attempts import RAW, SALES, Bench
from tools.proof_kit import SECOND

RATIO_MAX: Final = 1.25
"""The bound for the time of a whole publication with `copied`, divided by that with `open`."""
STORAGES: Final = ("open", "copied")
PARTS: Final = ("verify", "gate", "dispose", "whole")
COPY: Final = "plain copy"
_ICEBERG_TYPES: Final = {"int64": "long", "int32": "int", "date32[day]": "date", "string": "string"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done; the first repetition warms up and does not count."""

    scale_factor: float = 1.0
    files: int = 2
    repetitions: int = 5


TINY: Final = Sizes(scale_factor=0.001, files=1, repetitions=1)


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of every repetition, by storage and part; and the bytes that were staged, and published with each."""

    seconds: dict[str, dict[str, list[float]]]
    bytes: dict[str, int]
    rows: int
    stolen: float | None

    def ratios(self) -> dict[str, Ratio]:
        """The seconds of `copied` divided by those of `open` in the same repetition."""
        ratios = {}
        for part in PARTS:
            pairs = zip(self.seconds["copied"][part], self.seconds["open"][part], strict=True)
            found = [copied / opened for copied, opened in pairs]
            ratios[part] = Ratio(statistics.median(found), min(found), max(found))
        return ratios


def contract(name: str, storage: str) -> str:
    """The contract of a target that gets the whole source."""
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        f"metadata:\n  domain: sales\n  product: {name}\n  owner: sales\n"
        f"boundary:\n  source:\n    table: raw.lineitem\n  target: sales.{name}\n  operation: append\n"
        f"projections:\n  identity: [l_orderkey, l_linenumber]\nstorage: {storage}\n"
    )


def source_files(sizes: Sizes, folder: Path) -> list[DataFile]:
    """Write lineitem with field ids, as a job would; returns the manifest entries of its files."""
    files = []
    for at, path in enumerate(tpch.lineitem(sizes.scale_factor, parts=sizes.files)):
        table = pq.read_table(path)
        fields = [
            pa.field(field.name, _without_views(field.type), metadata={"PARQUET:field_id": str(number)})
            for number, field in enumerate(table.schema, 1)
        ]
        place = folder / f"{at:05}.parquet"
        pq.write_table(table.cast(pa.schema(fields)), place, compression="zstd")
        files.append(
            DataFile(
                file_path=f"file://{place}",
                file_format="PARQUET",
                record_count=table.num_rows,
                file_size_in_bytes=place.stat().st_size,
            )
        )
    return files


def _without_views(kind: Any) -> Any:
    return pa.string() if kind in (pa.string_view(), pa.large_string()) else kind


def _iceberg_type(kind: Any) -> str:
    return f"decimal({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else _ICEBERG_TYPES[str(kind)]


class MeasuredSteward:
    """A Steward with the source, and a new target for every publication."""

    def __init__(self, bench: Bench, sizes: Sizes) -> None:
        self._bench = bench
        # `House` is the tests' Steward with protected tables; only its publishing service is used here.
        self._publishing = House(bench.scene.stand, bench.scene).publishing()
        folder = bench.folder / "lineitem"
        folder.mkdir()
        self.files = source_files(sizes, folder)
        schema = pq.read_schema(parse_location(self.files[0].file_path).local)
        listed = [
            {"id": at, "name": field.name, "required": False, "type": _iceberg_type(field.type)}
            for at, field in enumerate(schema, 1)
        ]
        self._body: dict[str, Any] = {
            "schema": {"type": "struct", "schema-id": 0, "fields": listed},
            "properties": {"format-version": "2"},
        }
        catalog, operator = bench.scene.notary.catalog, bench.scene.grant()
        catalog.tables.create(operator, RAW, {"name": "lineitem", **self._body})
        bench.write_snapshot("lineitem", RAW, "main", self.files)

    def publish(self, storage: str, number: int) -> tuple[dict[str, float], int]:
        """Publish the whole source to a new table; returns the seconds of each part, and the bytes published."""
        bench, name = self._bench, f"{storage}{number}"
        attempt_id, workload_id = self._stage(name, storage)
        took = {
            "verify": seconds(lambda: bench.verification.verify(attempt_id)),
            "gate": seconds(lambda: self._publishing.publish(workload_id, [attempt_id])),
            "dispose": seconds(lambda: bench.disposal.dispose(attempt_id)),
        }
        snapshot = bench.state(name).metadata.current_snapshot
        assert snapshot is not None
        size = int(snapshot.summary["total-files-size"])
        return took | {"whole": sum(took.values())}, size

    def _stage(self, name: str, storage: str) -> tuple[str, str]:
        """Stage the source's files by hard links; returns the ids of the attempt and of its workload."""
        bench, scene = self._bench, self._bench.scene
        scene.notary.catalog.tables.create(scene.grant(), SALES, {"name": name, **self._body})
        scene.protect(scene.protection(name, contract=contract(name, storage)))
        scene.stand.time.pass_by(SECOND)
        producer = scene.grant(Role.PRODUCER, "sales")
        bench.workloads.open(producer, name, f"sales.{name}", {})
        attempt = bench.workloads.next_attempt(producer, name, "all", "measured")
        prefix = parse_location(attempt.prefix).local
        (prefix / "data").mkdir(parents=True)
        staged = []
        for at, file in enumerate(self.files):
            place = prefix / "data" / f"{at:05}.parquet"
            os.link(parse_location(file.file_path).local, place)
            staged.append(replace(file, file_path=f"file://{place}"))
        bench.write_snapshot(name, SALES, attempt.branch, staged, home=prefix / "metadata", role=Role.PRODUCER)
        bench.workloads.end_staging(producer, attempt.attempt_id)
        return attempt.attempt_id, name

    def copy(self, number: int) -> None:
        """Read and write all files once, and sync them."""
        for file in self.files:
            place = self._bench.folder / f"copy-{number}.parquet"
            with place.open("wb") as out:
                out.write(parse_location(file.file_path).local.read_bytes())
                out.flush()
                os.fsync(out.fileno())
            place.unlink()


@contextlib.contextmanager
def start_steward(folder: Path, sizes: Sizes) -> Iterator[MeasuredSteward]:
    """Run a Steward in the folder."""
    with scene_at(folder) as scene:
        yield MeasuredSteward(Bench(scene, folder.resolve()), sizes)


def measure(sizes: Sizes, folder: Path) -> Figures:
    """Measure both storages and the plain copy in turn."""
    taken: dict[str, dict[str, list[float]]] = {storage: {part: [] for part in PARTS} for storage in STORAGES}
    taken[COPY] = {"whole": []}
    with start_steward(folder, sizes) as measured:
        sizes_published = {"staged": sum(file.file_size_in_bytes for file in measured.files)}
        moment = Moment.now()
        for number in range(sizes.repetitions + 1):
            for storage in STORAGES if number % 2 else STORAGES[::-1]:
                took, sizes_published[storage] = measured.publish(storage, number)
                if number:
                    for part, part_seconds in took.items():
                        taken[storage][part].append(part_seconds)
            copied = seconds(lambda number=number: measured.copy(number))  # type: ignore[misc]
            if number:
                taken[COPY]["whole"].append(copied)
        rows = sum(file.record_count for file in measured.files)
        return Figures(taken, sizes_published, rows, moment.share())


def report(sizes: Sizes, out: Path) -> None:
    """Measure, print and write the record."""
    require_writable(out)
    with tempfile.TemporaryDirectory(prefix="pvdm-bench-") as folder:
        figures = measure(sizes, Path(folder))
    print(f"lineitem at scale factor {sizes.scale_factor:g}: {figures.rows:,} rows, {sizes.repetitions} repetitions")
    for storage in STORAGES:
        parts = ", ".join(f"{part} {statistics.median(figures.seconds[storage][part]):.2f} s" for part in PARTS)
        print(f"{storage}: {parts}; {figures.bytes[storage]:,} bytes published of {figures.bytes['staged']:,} staged")
    print(f"{COPY}: {statistics.median(figures.seconds[COPY]['whole']):.2f} s")
    ratios = figures.ratios()
    for part, ratio in ratios.items():
        print(f"copied / open, {part}: {ratio.median:.2f} [{ratio.least:.2f}-{ratio.most:.2f}]")
    verdict = "holds" if ratios["whole"].median <= RATIO_MAX else "does not hold"
    print(f"copied / open of the whole publication at most {RATIO_MAX}: {verdict}")
    record = {
        "machine": machine(),
        "versions": versions(),
        "sizes": asdict(sizes),
        **asdict(figures),
        "ratios": {part: asdict(ratio) for part, ratio in ratios.items()},
        "most": RATIO_MAX,
    }
    write_json(out, record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/storage.json"), help="where the figures go")
    parser.add_argument("--repetitions", type=int, default=Sizes().repetitions, help="publications of each storage")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, to test whether the benchmark runs")
    options = parser.parse_args(arguments)
    report(TINY if options.tiny else replace(Sizes(), repetitions=options.repetitions), options.out)


if __name__ == "__main__":
    main()
