"""What the kernel is asked about a Parquet file (`FileRequest`), and the facts that it finds (`ParquetFacts`)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pvdm.model.schema import Schema


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """Facts of one primitive column outside lists and maps. Bounds are in Iceberg's single-value form.

    A column that is not `present` in the file is null in every row. A bound is a value of the column or, with
    `lower_cut` or `upper_cut`, cut to a prefix.
    """

    values: int
    nulls: int
    nans: int | None
    lower: bytes | None
    upper: bytes | None
    lower_cut: bool = False
    upper_cut: bool = False
    present: bool = True


@dataclass(frozen=True, slots=True)
class PublishedFacts:
    """Facts of the file that the Steward makes of a staged file. `splice` makes its bytes from `recipe`."""

    size: int
    split_offsets: tuple[int, ...]
    column_sizes: Mapping[int, int]
    recipe: bytes


@dataclass(frozen=True, slots=True)
class ParquetFacts:
    """Facts of a file. Columns are named by field id. `buckets` has a set for each pair in the request's `buckets`."""

    rows: int
    split_offsets: tuple[int, ...]
    column_sizes: Mapping[int, int]
    leaves: Mapping[int, LeafFacts]
    buckets: tuple[frozenset[int | None], ...] = ()
    published: PublishedFacts | None = None


@dataclass(frozen=True, slots=True)
class FileRequest:
    """How the kernel reads a file.

    - `schema` has the columns by id, and `dropped` the ids of other columns that a file may have.
    - `needed` are ids of nullable columns with a default value. A file without one of these columns is refused.
    - `buckets` are pairs of a column's id and a number of buckets. The facts list at most two of the rows' buckets.
    - `named` are the columns that a file without field ids may have, by exact name. With None such a file is refused.
    - A file with more rows than `rows_max` is refused.
    - `stored` are ids of columns that batches may have with the file's dictionary, or as decimals of its width.
    - With `footer_published` a digester refuses a file with a footer that two engines could read differently.
    - `published_names` has the names of struct fields in a rewritten file, by id and in the table's order.
    - With `claims_checked` a file with wrong statistics, indexes or filters is refused.
    - `parts_from` is where the first split for engines begins. A file with a row group in no split is refused.
    """

    schema: Schema
    dropped: Collection[int] = ()
    needed: Collection[int] = ()
    buckets: Sequence[tuple[int, int]] = ()
    named: Schema | None = None
    rows_max: int | None = None
    stored: Collection[int] = ()
    footer_published: bool = True
    published_names: Mapping[int, str] = field(default_factory=dict)
    claims_checked: bool = False
    parts_from: int = 0

    def to_text(self) -> str:
        """The request as JSON for the kernel."""
        return json.dumps(
            {
                "schema": self.schema.to_json(),
                "dropped": sorted(self.dropped),
                "needed": sorted(self.needed),
                "buckets": [list(pair) for pair in self.buckets],
                "named": None if self.named is None else self.named.to_json(),
                "rows_max": self.rows_max,
                "stored": sorted(self.stored),
                "names": list(self.published_names.items()),
                "footer_published": self.footer_published,
                "claims_checked": self.claims_checked,
                "parts_from": self.parts_from,
            }
        )


def parse_facts(text: str, recipe: bytes | None = None) -> ParquetFacts:
    """The facts in the kernel's JSON, and those of the file to publish if there is a recipe for it."""
    found: dict[str, Any] = json.loads(text)
    published = None
    if recipe is not None:
        new = found["published"]
        published = PublishedFacts(new["size"], tuple(new["split_offsets"]), dict(new["column_sizes"]), recipe)
    leaves: dict[int, LeafFacts] = {}
    for leaf in found["leaves"]:
        bounds = {side: None if leaf[side] is None else bytes.fromhex(leaf[side]) for side in ("lower", "upper")}
        field_id = leaf.pop("id")
        leaves[field_id] = LeafFacts(**(leaf | bounds))
    return ParquetFacts(
        rows=found["rows"],
        split_offsets=tuple(found["split_offsets"]),
        column_sizes=dict(found["column_sizes"]),
        leaves=leaves,
        buckets=tuple(frozenset(distinct) for distinct in found["buckets"]),
        published=published,
    )
