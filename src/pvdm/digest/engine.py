"""The one interface behind which the readable reference and the native kernel stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import pyarrow as pa

from pvdm.digest.plan import Plan
from pvdm.model.projection import ProjectionName


class Accumulator(Protocol):
    """Adds rows to the digests of every projection of a plan."""

    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row of the batch, or raise; after an error the accumulator is void."""

    def totals(self) -> Mapping[ProjectionName, tuple[int, int]]:
        """Rows and sum so far, by projection."""


@runtime_checkable
class ParquetAccumulator(Accumulator, Protocol):
    """One that reads files by itself."""

    def read_parquet(self, data: bytes, request: str) -> str:
        """Add every row of a Parquet file in memory; gives its facts as JSON."""

    def rewrite_parquet(self, data: bytes, request: str) -> tuple[str, bytes]:
        """The same; gives the recipe of the file to publish as well."""


class Engine(Protocol):
    """One implementation of spec/canonical.md and spec/digest.md."""

    @property
    def name(self) -> str:
        """`reference` or `kernel`."""

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        """The canonical rows of one projection, for vectors and tests."""

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> Accumulator:
        """An accumulator at zero, under these element keys."""
