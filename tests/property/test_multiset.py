"""The digest of a multiset: order and layout do not matter, multiplicity does, parts add up, unlike digests never mix.

Each property is a function that raises AssertionError when it does not hold. It is checked on both engines, and then on
a mutant in which the property is broken on purpose, where it has to raise.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.digest import Accumulator, Construction, Engine, Mode, Partial, Plan, combine, digest, reference_engine
from pvdm.digest.probe import arrow_schema
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import DecimalType, Field, Inner, Kind, ListType, PrimitiveType, Schema
from pvdm.model.secret import DigestKey

pytestmark = pytest.mark.property

SCHEMA: Final = Schema(
    (
        Field("id", PrimitiveType(Kind.LONG), required=True),
        Field("amount", DecimalType(9, 2)),
        Field("note", PrimitiveType(Kind.STRING)),
        Field("tags", ListType(Inner(PrimitiveType(Kind.INT)))),
    )
)
ARROW: Final = arrow_schema(SCHEMA)
PLAN: Final = Plan(SCHEMA, (identity(SCHEMA, ["id"]), content(SCHEMA)))

# Few values, so that equal rows are common: that is where sets and multisets part.
row = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5),
        "amount": st.none() | st.decimals(0, 9, places=2),
        "note": st.none() | st.text(alphabet="aé\0", max_size=2),
        "tags": st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2),
    }
)
rows = st.lists(row, min_size=1, max_size=12)
Rows = Sequence[dict[str, Any]]


def key(number: int = 1, *, epoch: int = 1) -> dict[ProjectionName, DigestKey]:
    return {name: DigestKey(bytes([number]) * 32, epoch=epoch) for name in ProjectionName}


def table(some: Rows) -> pa.Table:
    return pa.Table.from_pylist(list(some), schema=ARROW)


def digest_of(data: pa.Table | pa.RecordBatchReader, engine: Engine, threads: int = 1) -> dict[ProjectionName, Partial]:
    return digest(data, PLAN, key(), threads=threads, engine=engine)


def all_match(left: Mapping[ProjectionName, Partial], right: Mapping[ProjectionName, Partial]) -> bool:
    return all(left[name].matches(right[name]) for name in ProjectionName)


def all_sums_differ(left: Mapping[ProjectionName, Partial], right: Mapping[ProjectionName, Partial]) -> bool:
    """Whether the sums of every projection differ; row counts, which differ anyway, are not compared."""
    return all(left[name].total != right[name].total for name in ProjectionName)


# --- the properties ---


def check_order(engine: Engine, some: Rows, shuffled: Rows) -> None:
    assert all_match(digest_of(table(some), engine), digest_of(table(shuffled), engine))


def check_file_layout(engine: Engine, some: Rows, cut: int, row_group: int, plain: bool) -> None:
    """Two Parquet files with other row groups, compression and encodings, read back in reverse."""
    parts = [table(some[:cut]), table(some[cut:])]
    files = [io.BytesIO() for _ in parts]
    for part, file in zip(parts, files, strict=True):
        pq.write_table(
            part, file, row_group_size=row_group, use_dictionary=not plain, compression="zstd" if plain else "snappy"
        )
    read = [pq.read_table(file, read_dictionary=[] if plain else ["note"]) for file in reversed(files)]
    seen = [digest_of(each, engine) for each in read]
    whole = {name: combine(each[name] for each in seen) for name in ProjectionName}
    assert all_match(digest_of(table(some), engine), whole)


def check_batch_size(engine: Engine, some: Rows, size: int) -> None:
    whole = pa.Table.from_batches(table(some).combine_chunks().to_batches(max_chunksize=max(len(some), 1)), ARROW)
    cut = pa.RecordBatchReader.from_batches(ARROW, whole.to_batches(max_chunksize=size))
    assert all_match(digest_of(whole, engine), digest_of(cut, engine))


def check_duplicate(engine: Engine, some: Rows, at: int) -> None:
    assert all_sums_differ(digest_of(table(some), engine), digest_of(table([*some, some[at]]), engine))


def check_drop(engine: Engine, some: Rows, at: int) -> None:
    assert all_sums_differ(digest_of(table(some), engine), digest_of(table([*some[:at], *some[at + 1 :]]), engine))


def check_partials(engine: Engine, some: Rows, cut: int) -> None:
    parts = [digest_of(table(part), engine) for part in (some[:cut], some[cut:], [])]
    whole = {name: combine(part[name] for part in parts) for name in ProjectionName}
    assert all_match(digest_of(table(some), engine), whole)


def check_threads(engine: Engine, some: Rows, threads: int) -> None:
    batches = pa.RecordBatchReader.from_batches(ARROW, table(some).to_batches(max_chunksize=1))
    assert all_match(digest_of(table(some), engine), digest_of(batches, engine, threads))


def check_mixing_is_refused(plain: Partial, other: Partial, code: str) -> None:
    for pair in ((plain, other), (other, plain)):
        assert refusal(pair) == code


def refusal(pair: tuple[Partial, Partial]) -> str | None:
    try:
        combine(pair)
    except InputError as error:
        return error.reason
    return None


# --- on both engines ---


@given(data=st.data())
def test_the_order_of_rows_does_not_matter(engine: Engine, data: st.DataObject) -> None:
    some = data.draw(rows)
    check_order(engine, some, data.draw(st.permutations(some)))


@given(some=rows, cut=st.integers(0, 12), row_group=st.integers(1, 5), plain=st.booleans())
def test_the_layout_of_files_does_not_matter(engine: Engine, some: Rows, cut: int, row_group: int, plain: bool) -> None:
    check_file_layout(engine, some, cut, row_group, plain)


@given(some=rows, size=st.integers(1, 6))
def test_the_size_of_batches_does_not_matter(engine: Engine, some: Rows, size: int) -> None:
    check_batch_size(engine, some, size)


@given(some=rows, at=st.integers(0, 11))
def test_a_row_that_occurs_once_more_changes_the_sums(engine: Engine, some: Rows, at: int) -> None:
    check_duplicate(engine, some, at % len(some))


@given(some=rows, at=st.integers(0, 11))
def test_a_row_that_occurs_once_less_changes_the_sums(engine: Engine, some: Rows, at: int) -> None:
    check_drop(engine, some, at % len(some))


@given(some=rows, cut=st.integers(0, 12))
def test_partials_combined_equal_the_whole(engine: Engine, some: Rows, cut: int) -> None:
    check_partials(engine, some, cut)


@given(some=rows, threads=st.integers(2, 4))
def test_several_threads_equal_one(engine: Engine, some: Rows, threads: int) -> None:
    check_threads(engine, some, threads)


TEXT: Final = Schema((Field("note", PrimitiveType(Kind.STRING)),))
NOTES: Final = pa.table({"note": pa.array(["a", "b"], pa.string())})


def text_digest(engine: Engine, *, plan: Plan | None = None, number: int = 1, epoch: int = 1) -> Partial:
    plan = plan or Plan(TEXT, (content(TEXT),))
    keys = {ProjectionName.CONTENT: DigestKey(bytes([number]) * 32, epoch=epoch)}
    return digest(NOTES, plan, keys, engine=engine)[ProjectionName.CONTENT]


def mixtures(engine: Engine) -> Iterator[tuple[str, Partial, Partial]]:
    plain = text_digest(engine)
    required = Schema((Field("note", PrimitiveType(Kind.STRING), required=True),))
    yield "partial_epoch_mismatch", plain, text_digest(engine, epoch=2)
    yield "partial_key_mismatch", plain, text_digest(engine, number=2)
    yield "partial_schema_mismatch", plain, text_digest(engine, plan=Plan(required, (content(required),)))
    yield "partial_mode_mismatch", plain, text_digest(engine, plan=Plan(TEXT, (content(TEXT),), Mode.PORTABLE))
    yield (
        "partial_construction_mismatch",
        plain,
        text_digest(engine, plan=Plan(TEXT, (content(TEXT),), construction=Construction.BLAKE3)),
    )
    both = digest(NOTES, Plan(TEXT, (identity(TEXT, ["note"]), content(TEXT))), key(), engine=engine)
    yield "partial_projection_mismatch", both[ProjectionName.CONTENT], both[ProjectionName.IDENTITY]


CODES: Final = [
    "partial_epoch_mismatch",
    "partial_key_mismatch",
    "partial_schema_mismatch",
    "partial_mode_mismatch",
    "partial_construction_mismatch",
    "partial_projection_mismatch",
]


def mixture(engine: Engine, code: str) -> tuple[Partial, Partial]:
    return next((plain, other) for each, plain, other in mixtures(engine) if each == code)


@pytest.mark.parametrize("code", CODES)
def test_digests_that_do_not_belong_together_are_not_combined(engine: Engine, code: str) -> None:
    check_mixing_is_refused(*mixture(engine, code), code)


# --- mutants: each property must go red when the code breaks it ---


Rule = Callable[[int, int, int], int]  # (sum, what the row adds, its place in the batch) -> the new sum


@dataclass
class MutantAccumulator:
    """The reference's sums, with a rule in place of addition."""

    inner: Accumulator
    rule: Rule
    sums: dict[ProjectionName, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(ProjectionName, 0))
    before: dict[ProjectionName, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(ProjectionName, 0))
    seen: int = 0

    def update(self, batch: pa.RecordBatch) -> None:
        for index in range(batch.num_rows):
            self.inner.update(batch.slice(index, 1))
            for name, (_, total) in self.inner.totals().items():
                added = (total - self.before[name]) % 2**256
                self.before[name] = total
                self.sums[name] = self.rule(self.sums[name], added, index) % 2**256
            self.seen += 1

    def totals(self) -> Mapping[ProjectionName, tuple[int, int]]:
        return {name: (self.seen, total) for name, total in self.sums.items()}


@dataclass(frozen=True)
class Mutant:
    """The reference with a broken accumulator; the rule is made anew for each."""

    make_rule: Callable[[], Rule]
    name: str = "mutant"

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        return reference_engine().encode(plan, projection, batch)

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> Accumulator:
        return MutantAccumulator(reference_engine().start(plan, element_keys), self.make_rule())


def set_rule() -> Rule:
    """Counts a row once, however often it occurs."""
    known: set[int] = set()

    def once(total: int, added: int, _place: int) -> int:
        if added in known:
            return total
        known.add(added)
        return total + added

    return once


FAITHFUL: Final = Mutant(lambda: lambda total, added, _: total + added)
CHAINED: Final = Mutant(lambda: lambda total, added, _: 3 * total + added)
BY_POSITION: Final = Mutant(lambda: lambda total, added, place: total + added * (place + 1))
EXCLUSIVE_OR: Final = Mutant(lambda: lambda total, added, _: total ^ added)
LAST_ONLY: Final = Mutant(lambda: lambda _total, added, _: added)
SET_SEMANTICS: Final = Mutant(set_rule)
THREE: Final = [{"id": number, "amount": None, "note": "x", "tags": [number]} for number in (1, 2, 3)]
TWICE: Final = [THREE[0], THREE[0], THREE[1]]


def test_the_mutants_frame_itself_breaks_nothing() -> None:
    check_order(FAITHFUL, THREE, THREE[::-1])
    check_file_layout(FAITHFUL, THREE, 1, 1, plain=True)
    check_batch_size(FAITHFUL, THREE, 1)
    check_duplicate(FAITHFUL, THREE, 0)
    check_drop(FAITHFUL, TWICE, 0)
    check_partials(FAITHFUL, THREE, 1)
    check_threads(FAITHFUL, THREE, 2)


@pytest.mark.parametrize("mutant", [CHAINED, BY_POSITION, LAST_ONLY], ids=["chained", "by position", "last only"])
def test_the_order_property_goes_red_when_sums_depend_on_order(mutant: Engine) -> None:
    with pytest.raises(AssertionError):
        check_order(mutant, THREE, THREE[::-1])


def test_the_layout_property_goes_red_when_sums_depend_on_order() -> None:
    with pytest.raises(AssertionError):
        check_file_layout(CHAINED, THREE, 1, 1, plain=True)


def test_the_batch_property_goes_red_when_sums_depend_on_the_place_in_the_batch() -> None:
    with pytest.raises(AssertionError):
        check_batch_size(BY_POSITION, THREE, 1)


def test_the_duplicate_property_goes_red_under_set_semantics() -> None:
    with pytest.raises(AssertionError):
        check_duplicate(SET_SEMANTICS, THREE, 0)


def test_the_drop_property_goes_red_under_set_semantics() -> None:
    with pytest.raises(AssertionError):
        check_drop(SET_SEMANTICS, TWICE, 0)


def test_the_partials_property_goes_red_when_sums_are_no_sums() -> None:
    with pytest.raises(AssertionError):
        check_partials(EXCLUSIVE_OR, THREE, 1)


def test_the_partials_property_goes_red_when_combining_forgets_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.combine", first_only)
    with pytest.raises(AssertionError):
        check_partials(FAITHFUL, THREE, 1)


def first_only(partials: Iterator[Partial]) -> Partial:
    return next(iter(partials))


def test_the_threads_property_goes_red_when_a_worker_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_busiest(partials: Iterator[Partial]) -> Partial:
        found = sorted(partials, key=lambda partial: partial.rows)
        return combine(found[:-1] or found)

    monkeypatch.setattr("pvdm.digest.partial.combine", without_the_busiest)
    with pytest.raises(AssertionError):
        check_threads(FAITHFUL, THREE, 2)


@pytest.mark.parametrize("code", CODES)
def test_the_mixing_property_goes_red_when_agreement_is_not_checked(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other = mixture(reference_engine(), code)
    monkeypatch.setattr(Partial, "require_alike", lambda _self, _other: None)
    with pytest.raises(AssertionError):
        check_mixing_is_refused(plain, other, code)
