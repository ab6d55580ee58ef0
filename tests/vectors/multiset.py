"""Reads the multisets of vectors/multisets.json, as vectors/README.md says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pvdm.digest import Construction, Digester, Engine, Mode, Partial, Plan
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import Schema
from pvdm.model.secret import DigestKey
from tests.vectors.loader import batch_of, build, default_layout, load, projection_of


@dataclass(frozen=True, slots=True)
class Multiset:
    """One entry of the file."""

    entry: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def projection(self) -> ProjectionName:
        return ProjectionName.IDENTITY if "identity" in self.entry["projection"] else ProjectionName.CONTENT

    @property
    def key(self) -> DigestKey:
        """The test key."""
        return DigestKey(bytes.fromhex(self.entry["key"]), epoch=int(self.entry["epoch"]))

    def plan(self) -> Plan:
        """The plan of the one projection."""
        schema = Schema.from_json(self.entry["schema"])
        projection = projection_of(schema, self.entry["projection"])
        return Plan(schema, (projection,), Mode(self.entry["mode"]), Construction(self.entry["construction"]))

    def batch(self, indices: Iterable[int] | None = None) -> pa.RecordBatch:
        """The rows with these indices, or all of them, with the columns in the order of the schema."""
        rows = self.entry["rows"]
        chosen = rows if indices is None else [rows[index] for index in indices]
        columns = Schema.from_json(self.entry["schema"]).fields
        arrays = [build(default_layout(column.type), [row[column.name] for row in chosen]) for column in columns]
        return batch_of([column.name for column in columns], arrays)

    def digest(self, engine: Engine, *batches: pa.RecordBatch) -> Partial:
        """What a worker that saw these batches reports."""
        digester = Digester(self.plan(), {self.projection: self.key}, engine=engine)
        for batch in batches:
            digester.update(batch)
        return digester.partials()[self.projection]


def load_multisets() -> list[Multiset]:
    """Every entry of the file."""
    return [Multiset(vector.entry) for vector in load("multisets.json")]
