"""Files that verification accepts although something in them was changed: found kind by kind, one and two at a time."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from pvdm.digest.parquet import read_batches
from pvdm.errors import PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from tests.readers.mutations import Mutation, column_of, mutations
from tests.readers.rows import ROWS, model, table_metadata
from tests.readers.writers import Writer
from tests.support.verify.staged import observe_file

PAIR_SHARE: float = 0.3
"""The share of files with two changes."""
ANY_SECOND_SHARE: float = 0.2
"""The share of second changes that are any change, and not one that is accepted alone."""
GOOD_BEFORE_PAIRS = 10
GOOD_BEFORE_REPEATS = 20
"""So many accepted changes must be known before pairs are made, and before accepted kinds are tried again."""
NEW_KIND_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Change:
    """An honest file's writer and what was changed in it; `column` is the one that it is about, if it is one."""

    writer: Writer
    mutations: tuple[Mutation, ...]
    column: str | None

    def __str__(self) -> str:
        return f"{self.writer.name}: " + (" and ".join(map(str, self.mutations)) or "honest")

    def apply(self, honest: bytes) -> bytes:
        for each in sorted(self.mutations, reverse=True):  # page headers first: they move everything else
            honest = each.apply(honest)
        return honest


@dataclass(frozen=True, slots=True)
class Case:
    """A file with its number, and the kernel's rows of it."""

    number: int
    change: Change
    data: bytes
    rows: pa.Table


def accepted(data: bytes, table: TableMetadata, storage: str) -> bool:
    """Whether verification has no finding in the file, for a contract with this storage."""
    copied = storage == "copied"
    try:
        return observe_file(data, table, rewrite=copied, footer_published=not copied, record_count=ROWS).findings == ()
    except PvdmError:
        return False


@dataclass
class Source:
    """One writer's changes: kinds that were not tried yet, and changes of kinds that were accepted."""

    writer: Writer
    without: Collection[str]
    storage: str
    rnd: random.Random
    tried: Counter[str] = field(default_factory=Counter)
    good: list[Mutation] = field(default_factory=list)

    @cached_property
    def honest(self) -> bytes:
        return self.writer.file(0, self.without)

    @cached_property
    def table(self) -> TableMetadata:
        return table_metadata(self.without)

    @cached_property
    def kinds(self) -> dict[tuple[str, str], list[Mutation]]:
        found: defaultdict[tuple[str, str], list[Mutation]] = defaultdict(list)
        for each in mutations(self.honest):
            found[each.kind].append(each)
        for listed in found.values():
            self.rnd.shuffle(listed)
        return found

    @cached_property
    def _untried_kinds(self) -> list[tuple[str, str]]:
        found = sorted(self.kinds)
        self.rnd.shuffle(found)
        return found

    def changes(self) -> Iterator[Change]:
        """Changes that verification accepts, for ever: every kind in turn, then accepted kinds at other places."""
        while True:
            found = self._next()
            if found is not None:
                yield found

    def _next(self) -> Change | None:
        if len(self.good) > GOOD_BEFORE_PAIRS and self.rnd.random() < PAIR_SHARE:
            return self._pair()
        if self._untried_kinds and (len(self.good) < GOOD_BEFORE_REPEATS or self.rnd.random() < NEW_KIND_SHARE):
            chosen = self.kinds[self._untried_kinds.pop()]
        elif self.good:
            chosen = self.kinds[self.rnd.choice(self.good).kind]
        else:
            raise AssertionError(f"nothing of {self.writer.name} is accepted")
        return None if not chosen else self._try_change((chosen.pop(),))

    def _pair(self) -> Change | None:
        first = self.rnd.choice(self.good)
        second = (
            self.rnd.choice(self.kinds[self.rnd.choice(sorted(self.kinds))] or [first])
            if self.rnd.random() < ANY_SECOND_SHARE
            else self.rnd.choice(self.good)
        )
        return None if first == second else self._try_change((first, second))

    def _try_change(self, chosen: tuple[Mutation, ...]) -> Change | None:
        columns = {column_of(each, self.honest) for each in chosen}
        change = Change(self.writer, chosen, columns.pop() if len(columns) == 1 else None)
        self.tried["made"] += 1
        try:
            data = change.apply(self.honest)
        except (AssertionError, IndexError, KeyError, ValueError, StopIteration, TypeError):
            self.tried["impossible"] += 1  # the first change has removed what the second one needs
            return None
        if data == self.honest or not accepted(data, self.table, self.storage):
            return None
        if len(chosen) == 1:
            self.good.append(chosen[0])
        return change


def generate(
    writers: Sequence[Writer], count: int, without: Collection[str], storage: str, seed: str
) -> tuple[list[Change], int]:
    """`count` accepted changes, equally many of each writer, and the number of files that were tried to find them."""
    sources = [Source(each, without, storage, random.Random(f"{seed} {each.name}")) for each in writers]
    runs = [each.changes() for each in sources]
    found = [next(runs[number % len(runs)]) for number in range(count)]
    return found, sum(each.tried["made"] for each in sources)


def numbered(changes: Sequence[Change], without: Collection[str], storage: str, first: int = 0) -> list[Case]:
    """The files, each with rows of its own number; those about one column have numbers in a row."""
    table, schema = table_metadata(without), model(without)
    cases: list[Case] = []
    for change in sorted(changes, key=lambda each: (each.column or "", each.writer.name)):
        number = first + len(cases)
        data = change.apply(change.writer.file(number, without))
        if not accepted(data, table, storage):
            continue  # a change can hold for the rows of one number and not for those of another
        cases.append(Case(number, change, data, pa.Table.from_batches(list(read_batches(data, schema)))))
    return cases
