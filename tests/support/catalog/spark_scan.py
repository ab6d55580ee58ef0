"""Scans every ref of an example's tables with Spark, and compares the rows with those of the model."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pvdm.model.role import Role
from tests.support.catalog.compared import Stage, World, pyiceberg_reads
from tests.support.catalog.http import lake_at
from tests.support.catalog.random_steps import CatalogMachine, play
from tests.support.oracles.catalog_model import Doc
from tests.support.oracles.java_parser import JavaParser
from tests.support.spark.session import as_role
from tests.support.steward.notary import Time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Scanner:
    """Spark with two catalogs: of a producer, who sees every ref, and of a consumer, who sees what is published."""

    spark: SparkSession
    producer: str
    consumer: str
    rows_seen: int = field(default=0)

    def require(self, world: World) -> None:
        """A scan of every ref returns exactly the rows of the model. It is one query, because each query costs time."""
        wanted: dict[str, list[str]] = {}
        queries: list[str] = []
        for place, (relation, rows) in enumerate(self._refs(world)):
            wanted[str(place)] = sorted(json.dumps(row, sort_keys=True) for row in rows)
            line = "to_json(struct(*), map('ignoreNullFields', 'false'))"
            queries.append(f"select '{place}' as place, {line} as line from {relation}")
        got: dict[str, list[str]] = defaultdict(list)
        for place_name, line in self.spark.sql(" union all ".join(queries)).collect():
            got[place_name].append(json.dumps(json.loads(line), sort_keys=True))
        assert {place: sorted(lines) for place, lines in got.items()} == {
            place: lines for place, lines in wanted.items() if lines
        }
        self.rows_seen += sum(len(lines) for lines in wanted.values())

    def _refs(self, world: World) -> Iterator[tuple[str, list[Doc]]]:
        """Every ref that a role can read, as a relation of SQL, and its rows in the model."""
        for name, table in world.tables.items():
            place, model = f"{table.levels[0]}.{name}", table.model
            for catalog in (self.producer, self.consumer):
                yield f"{catalog}.{place}", model.scan("main")
            for ref in model.refs:
                if model.is_tag(ref):
                    published = model.head(ref) in model.ancestry()
                    catalogs = (self.producer, self.consumer) if published else (self.producer,)
                    for catalog in catalogs:
                        yield f"{catalog}.{place} version as of '{ref}'", model.scan(ref)
                elif ref != "main":
                    yield f"{self.producer}.{place}.branch_{ref}", model.scan(ref)


class ScannedMachine(CatalogMachine):
    """An example that ends with a scan."""

    def __init__(self, stage: Stage, scanner: Scanner) -> None:
        super().__init__(stage)
        self.scanner = scanner

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and self.world.tables:
            self.scanner.require(self.world)


def play_and_scan(spark: SparkSession, folder: Path, *, examples: int, steps: int) -> None:
    """Run random examples: Java and PyIceberg parse every document, and Spark scans the tables at the end of each."""
    time = Time()
    with lake_at(folder, clock=time) as lake:
        notary = lake.steward.stand.notary
        scanner = Scanner(spark, as_role(spark, lake, Role.PRODUCER), as_role(spark, lake, Role.CONSUMER))
        java_reads = JavaParser(spark).require_unchanged
        stage = Stage.open_in(lake.folder, notary.ledger, notary.clock, time, java_reads, pyiceberg_reads)
        play(lambda: ScannedMachine(stage, scanner), examples=examples, steps=steps)
    assert scanner.rows_seen > examples, "scans that see no rows prove nothing"
