"""Located wrong rows: how they are stored, which role sees which part, and their description as text."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError
from pvdm.model import canonical_json
from pvdm.model.located import (
    LocatedClass,
    SampleKey,
    WrongRowCount,
    WrongRows,
    describe,
    describe_counts,
    explain_hidden_keys,
    explain_more_keys,
    first_keys,
    select_largest,
)
from pvdm.model.role import Role
from pvdm.model.schema import Field, Kind, PrimitiveType
from pvdm.model.statements.core import Profile
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.locate import LOCATED_MAX_BYTES, partition_value_text, read_keys_at, scalar_text, shorten
from tests.support.for_each import for_each

MISSING = LocatedClass(
    FailureClass.MISSING,
    6,
    (WrongRowCount("file:///raw/a.parquet", 6),),
    partitions=(WrongRowCount("shop=berlin", 6),),
    samples=tuple(
        SampleKey((("id", str(at)), ("shop", "berlin")), 1, "file:///raw/a.parquet", None) for at in range(8)
    ),
)
MODIFIED = LocatedClass(
    FailureClass.MODIFIED,
    1_200,
    tuple(WrongRowCount(f"file:///b{at}.parquet", 300) for at in range(4)),
    files_more=2,
    samples=(SampleKey((("id", None),), 2, "file:///b0.parquet", "day=2026-11-14", ("amount", "note")),),
)
LOCATED = WrongRows((MISSING, MODIFIED), (WrongRowCount("amount", 1_200), WrongRowCount("note", 3)), 1_000)
PROBLEM = WrongRows.not_located("locate_too_slow", "it took too long: 'Trier'")


@pytest.mark.parametrize("located", [LOCATED, PROBLEM])
def test_stored_wrong_rows_are_read_back(located: WrongRows) -> None:
    assert WrongRows.from_json(json.loads(canonical_json.dump(located.to_json()))) == located


def test_without_values_only_counts_and_staged_files_are_left() -> None:
    view = LOCATED.without_values()
    assert [(each.failure, each.rows) for each in view.classes] == [
        (each.failure, each.rows) for each in LOCATED.classes
    ]
    text = json.dumps(view.to_json())
    assert not [word for word in ("berlin", "amount", "note", "day=", "file:///raw", '"id"') if word in text]
    assert "file:///b0.parquet" in text
    assert PROBLEM.without_values() == WrongRows(problem_code="locate_too_slow")


def test_each_role_sees_what_the_contract_allows_and_a_producer_under_profile_t_nothing() -> None:
    keys = (Role.OPERATOR, Role.AUDITOR)
    named = (Role.AUDITOR, Role.OPERATOR)
    counts = replace(LOCATED.without_values(), withheld=True, keys_for=named)
    assert LOCATED.view_for(Role.OPERATOR, keys, Profile.A) == replace(LOCATED, keys_for=named)
    assert LOCATED.view_for(Role.STEWARD, (), Profile.T) == LOCATED
    assert LOCATED.view_for(Role.PRODUCER, keys, Profile.A) == counts
    assert LOCATED.view_for(Role.PRODUCER, (Role.PRODUCER,), Profile.A) == replace(LOCATED, keys_for=(Role.PRODUCER,))
    assert LOCATED.view_for(Role.PRODUCER, keys, Profile.T) is None
    assert LOCATED.view_for(Role.CONSUMER, keys, Profile.T) == counts


def test_empty_or_contradictory_wrong_rows_are_refused() -> None:
    for classes, code in (((), None), ((MISSING,), "locate_failed")):
        with pytest.raises(InputError):
            WrongRows(classes, problem_code=code)
    with pytest.raises(InputError):
        LocatedClass(FailureClass.SCHEMA, 1)
    with pytest.raises(InputError):
        LocatedClass(FailureClass.MISSING, 0)


def test_the_description_names_counts_keys_files_and_fields() -> None:
    assert describe_counts(LOCATED) == "6 rows missing, 1,200 rows modified"
    first_two = "first missing (id, shop): (0, berlin), (1, berlin), … (2 of 8 sample keys)"
    assert first_keys(MISSING, named=2) == first_two
    assert list(describe(LOCATED)) == [
        "6 rows missing",
        "  first missing (id, shop): (0, berlin), (1, berlin), (2, berlin), (3, berlin), (4, berlin), (5, berlin), …"
        " (6 of 8 sample keys)",
        "  source files: file:///raw/a.parquet (6)",
        "  partitions: shop=berlin (6)",
        "1,200 rows modified",
        "  first modified id: null 2 times (amount, note)",
        "  files:",
        "    file:///b0.parquet (300)",
        "    file:///b1.parquet (300)",
        "    file:///b2.parquet (300)",
        "    and 3 more",
        "fields that differ (1,000 of 1,200 modified rows were compared): amount (1,200), note (3)",
    ]
    assert list(describe(PROBLEM)) == ["rows were not located (locate_too_slow): it took too long: 'Trier'"]
    assert explain_more_keys(LOCATED, "orders-1") == "all sample keys: `pvdm status --workload-id orders-1 --json`"
    assert explain_more_keys(WrongRows((MODIFIED,)), "orders-1") is None


def test_the_description_without_keys_says_which_roles_see_them() -> None:
    named = LOCATED.view_for(Role.PRODUCER, (Role.OPERATOR, Role.AUDITOR), Profile.A)
    assert named is not None
    last = list(describe(named))[-1]
    expected = "keys, partitions and fields that differ are for the auditor and operator"
    assert last == f"{expected}, by the contract's governance.sample-keys"
    hidden = LOCATED.view_for(Role.PRODUCER, (), Profile.A)
    assert hidden is not None
    assert list(describe(hidden))[-1] == "no role may see keys: the contract's governance.sample-keys is empty"
    assert explain_hidden_keys(LOCATED) is None


def test_keys_are_quoted_so_that_none_is_ambiguous_or_has_control_characters() -> None:
    keys: list[tuple[str | None, ...]] = [
        (None, "1"),
        ("null", "1"),
        ("a), (b", "1"),
        ("\x1b[2J", "1"),
        ("a", "b), (1"),
    ]
    samples = tuple(SampleKey(tuple(zip(("s\nx", "n"), key, strict=True)), 1, "f", None) for key in keys)
    text = first_keys(replace(MISSING, samples=samples))
    texts = "(null, 1), ('null', 1), ('a), (b', 1), ('\\x1b[2J', 1), (a, 'b), (1')"
    assert text == f"first missing ('s\\nx', n): {texts}"
    unusual = WrongRows(
        (replace(MODIFIED, samples=(), files=(WrongRowCount("file:///a (1), b\x1b", 3),), files_more=0),)
    )
    assert "  files: 'file:///a (1), b\\x1b' (3)" in list(describe(unusual))


def test_the_names_with_the_most_rows_are_listed_and_the_others_counted() -> None:
    assert select_largest([("a", 1), ("b", 3), ("c", 3)], 2) == ((WrongRowCount("b", 3), WrongRowCount("c", 3)), 1)


@for_each(
    ("value", "kind", "text"),
    [
        (7, pa.int64(), "7"),
        (None, pa.int64(), None),
        (decimal.Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (datetime.date(2026, 11, 14), pa.date32(), "2026-11-14"),
        (b"\x00\xff", pa.binary(), "00ff"),
        ("a\0b", pa.string(), "a\0b"),
        ("x" * 900, pa.string(), "x" * 200),
        ([1, None], pa.list_(pa.int32()), "[1, None]"),
    ],
)
def test_a_value_is_converted_to_text(value: Any, kind: Any, text: str | None) -> None:
    assert scalar_text(pa.scalar(value, kind)) == text


def test_a_value_without_a_python_equivalent_is_converted_to_text() -> None:
    assert scalar_text(pa.scalar(10_000_000, pa.int32()).cast(pa.date32())) is not None
    value = uuid.UUID(int=5)
    assert scalar_text(pa.scalar(value.bytes, pa.binary(16)), PrimitiveType(Kind.UUID)) == str(value)


@for_each(
    ("kind", "value", "text"),
    [
        (Kind.DATE, 20_000, "2024-10-04"),
        (Kind.DATE, 2**31 - 1, "2147483647"),
        (Kind.TIMESTAMP, 1_000_000, "1970-01-01 00:00:01"),
        (Kind.LONG, 20_000, "20000"),
        (Kind.STRING, "berlin", "berlin"),
        (Kind.BINARY, b"\x01", "01"),
        (Kind.DATE, None, None),
    ],
)
def test_a_partition_value_is_converted_to_readable_text(kind: Kind, value: Any, text: str | None) -> None:
    assert partition_value_text(PrimitiveType(kind), value) == text


def test_stored_wrong_rows_are_shortened_to_the_limit() -> None:
    long = tuple((f"column {at:04}", "x" * 200) for at in range(2_000))
    samples = tuple(SampleKey(long, 1, "file:///raw/a.parquet", None) for _ in range(20))
    shortened = shorten(WrongRows((replace(MISSING, samples=samples),)))
    assert 0 < len(shortened.classes[0].samples) < 20
    assert len(canonical_json.dump(shortened.to_json())) <= LOCATED_MAX_BYTES
    named = WrongRows((MISSING,), tuple(WrongRowCount("y" * 200_000, 1) for _ in range(20)), 1)
    assert shorten(named) == named.without_values()
    assert shorten(LOCATED) == LOCATED


def test_only_the_keys_of_the_requested_rows_are_read() -> None:
    columns = (Field("id", PrimitiveType(Kind.LONG), False, 1), Field("gone", PrimitiveType(Kind.STRING), False, 2))
    batches = pa.table({"id": pa.array(range(10), pa.int64())}).to_batches(max_chunksize=3)
    read = []

    def read_batches() -> Any:
        for batch in batches:
            read.append(batch)
            yield batch

    found = read_keys_at(read_batches(), [4, 0, 4], columns)
    assert found == {0: (("id", "0"), ("gone", None)), 4: (("id", "4"), ("gone", None))}
    assert len(read) == 2
