"""Parsing contracts: values, defaults, claims and refused combinations; binding parameters and mapping columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

import pvdm
from pvdm.errors import InputError
from pvdm.model.contract import (
    Atomicity,
    BoundContract,
    Chunking,
    ChunkingBy,
    OnFail,
    Operation,
    ParameterRef,
    document,
    map_columns,
    parse_contract,
)
from pvdm.model.contract.types import Column, Limits
from pvdm.model.role import Role
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema, type_from_json
from pvdm.model.statements.core import ExtractionPath, Profile
from pvdm.model.statements.proof import Storage
from tests.support.for_each import for_each
from tests.unit.contract.examples import SMALL, contract_with, document_with, refusal_of, to_yaml

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "orders.yaml"
DAY = ("parameters/day", {"type": "date"})
BY_DAY = ("boundary/where", "day = ${day}")
UUID = "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22"


def test_the_example_contract_is_read_with_these_values() -> None:
    contract = pvdm.load_contract(EXAMPLE)
    boundary = contract.boundary
    assert (contract.product.domain, contract.product.product) == ("sales", "orders")
    assert [(each.name, each.type) for each in contract.parameters] == [("date", Kind.DATE)]
    assert (boundary.source.table, boundary.source.manifest) == ("raw.orders", None)
    assert str(boundary.where) == "order_date = ${date} and status in ('paid', 'shipped') and not test_order = true"
    assert boundary.columns is not None
    assert boundary.columns[1] == Column("cust", "customer_id", PrimitiveType(Kind.LONG))
    assert boundary.columns[4] == Column("amt", "amount", DecimalType(18, 2))
    assert (boundary.target, boundary.operation) == ("curated.orders", Operation.APPEND)
    assert boundary.partition == (("order_date", ParameterRef("date")),)
    assert boundary.claim == "order_date"
    assert contract.chunking == Chunking(ChunkingBy.PARTITION, ("region",), None, None, ())
    assert contract.projections.identity == ("order_id",)
    assert [column for column, _ in contract.projections.excluded] == ["loaded_at"]
    assert (contract.atomicity, contract.storage) == (Atomicity.WORKLOAD, Storage.COPIED)
    assert contract.limits == Limits(100, 10_000, 10**9, 2**40)


def test_keys_that_are_left_out_have_their_documented_defaults() -> None:
    contract = contract_with()
    assert str(contract.boundary.where) == "true"
    assert contract_with(("boundary/where", True)).boundary.where == contract.boundary.where
    assert contract.boundary.columns is None
    assert (contract.boundary.partition, contract.boundary.claim) == ((), None)
    assert contract.chunking == Chunking(ChunkingBy.NONE, (), None, None, ())
    assert (contract.profile, contract.extraction) == (Profile.A, ExtractionPath.DIRECT)
    assert (contract.atomicity, contract.storage) == (Atomicity.CHUNK, Storage.COPIED)
    governance = contract.governance
    assert (governance.on_fail, governance.attempts_max) == (OnFail.QUARANTINE, 5)
    assert governance.sample_keys == (Role.AUDITOR, Role.OPERATOR)
    assert (governance.threshold, governance.automatic_repairs) == (1, 0)
    assert governance.proof_lifetime_seconds == 86_400
    assert contract.limits == Limits(10_000, 100_000, 10**12, 10 * 2**40)


def test_the_hash_covers_every_byte_of_the_file() -> None:
    data = to_yaml(SMALL)
    assert parse_contract(data).sha256 != parse_contract(data + b"# a comment\n").sha256
    assert parse_contract(data) == parse_contract(data)


@for_each(("size", "wanted"), [("1", 1), (7, 7), ("2KiB", 2048), ("3MiB", 3 * 2**20), ("1GiB", 2**30), ("1TiB", 2**40)])
def test_sizes_are_counted_in_powers_of_two(size: str | int, wanted: int) -> None:
    assert contract_with(("limits/size", size)).limits.bytes == wanted
    assert contract_with(("chunking", {"by": "files", "max-size": size})).chunking.max_bytes == wanted


@for_each(("text", "seconds"), [("1s", 1), ("90m", 5400), ("4h", 14_400), ("7d", 604_800)])
def test_lifetimes_are_counted_in_seconds(text: str, seconds: int) -> None:
    assert contract_with(("governance/proof-lifetime", text)).governance.proof_lifetime_seconds == seconds


@for_each(
    ("path", "value", "served"),
    [
        ("profile", "T", "A"),
        ("profile", "O", "A"),
        ("governance/attestation", "required", "none"),
        ("governance/threshold", 2, "1"),
    ],
)
def test_a_value_that_is_not_served_yet_is_refused(path: str, value: Any, served: str) -> None:
    error = refusal_of(to_yaml(document_with((path, value))))
    assert error.reason == "contract_not_yet"
    assert "is not served yet" in error.message
    assert (error.expected, error.got) == (served, str(value))
    assert error.message.startswith(f"c.yaml:{error.details['line']}:")


def yaml_with_claim(where: str | None) -> bytes:
    wanted = [] if where is None else [("boundary/where", where)]
    return to_yaml(document_with(*wanted, ("boundary/claim", {"column": "day"})))


@for_each(
    "where",
    [
        "true",
        "a = 1",
        "day != 1",
        "not day = 1",
        "day not in (1)",
        "day is not null",
        "day starts with 'a'",
        "day >= 1",
        "day < 1 and day < 2",
        "day = 1 or a = 1",
        "day = 1 or day is null",
        "day = 1 or day >= 2",
        "day >= 1 or day < 2",
        "(day = 1 and a = 1) or (a = 2 and day is not null)",
    ],
)
def test_a_claim_column_that_the_filter_does_not_bound_is_refused(where: str) -> None:
    error = refusal_of(yaml_with_claim(where))
    assert error.reason == "contract_invalid"
    line = yaml_with_claim(where).decode().splitlines()[int(error.details["line"]) - 1]
    assert error.message.startswith(f"c.yaml:{error.details['line']}:{line.index('where') + 8}: boundary.where cannot")
    assert error.expected is not None
    assert "day = …, or day >= … and day < …" in error.expected
    assert error.got == ascii(where)
    assert error.hint is not None
    assert "leave boundary.claim out" in error.hint


@for_each(
    ("where", "hint"),
    [
        ("dya = 1", "the filter names dya, not day: correct a misspelled name, or bound day in "),
        ("b = 1 and a = 1", "the filter names a, b, not day: correct a misspelled name, or bound day in "),
        ("day >= 1 and a = 1", "bound day in boundary.where "),
        ("true", "bound day in boundary.where "),
    ],
)
def test_the_columns_of_a_filter_are_named_if_the_claim_column_is_not_among_them(where: str, hint: str) -> None:
    assert str(refusal_of(yaml_with_claim(where)).hint).startswith(hint)


@for_each(
    "where",
    [
        "day >= '2026-02-01' and day < '2026-01-01'",
        "day >= 2 and day < 2 and a = 1",
        "day = 'a' and day = 'b' or day > 'd' and day <= 'c'",
        "day = true and day = false",
        "day > 1.5 and day < 1.25",
    ],
)
def test_a_filter_whose_literals_leave_no_value_of_the_claim_column_is_refused(where: str) -> None:
    error = refusal_of(yaml_with_claim(where))
    assert error.reason == "contract_invalid"
    assert "boundary.where cannot be accepted" in error.message
    assert (error.expected, error.got) == ("a range that has a value in it", ascii(where))


@pytest.mark.parametrize(
    "where",
    [
        "day > 1 and day < 2",  # a decimal column has values there
        "day > '2026-01-01' and day < '2026-01-02'",  # a string column has values there
        "day >= '2026-01-01T00:00:00+05:00' and day < '2025-12-31T23:00:00Z'",  # empty as text, not as time
    ],
)
def test_a_range_that_has_values_for_some_type_of_the_claim_column_is_accepted(where: str) -> None:
    assert parse_contract(yaml_with_claim(where)).boundary.claim == "day"


def test_without_a_filter_the_error_points_to_the_claim() -> None:
    error = refusal_of(yaml_with_claim(None))
    assert "boundary.claim.column cannot be accepted" in error.message
    assert "claim" in yaml_with_claim(None).decode().splitlines()[int(error.details["line"]) - 2]


def test_an_invalid_filter_is_reported_before_its_claim() -> None:
    assert "bounds" not in str(refusal_of(yaml_with_claim("day = ")).expected)


@for_each(
    "where",
    [
        "day = 1",
        "a = 1 and (b = 2 or c = 3) and (day = 1)",
        "day >= 1 and day < 2",
        "day > 1 and day <= 2",
        "day in (1, 2)",
        "day is null",
        "(day >= 1 and day < 2 and a is null) or (a = 1 and day in (7, 8))",
        "(day >= 1 or day > 2) and day < 2",
        "`day` = 1",
    ],
)
def test_a_claim_column_that_the_filter_bounds_is_accepted(where: str) -> None:
    assert parse_contract(yaml_with_claim(where)).boundary.claim == "day"


REFUSED_COMBINATIONS: list[tuple[list[tuple[str, Any]], str, str]] = [
    ([("boundary/source", {})], "boundary.source", "a table or files"),
    ([("boundary/source/files", {"manifest": "m"})], "boundary.source", "a table or files"),
    ([("boundary/source", {"files": {"manifest": "m"}, "uuid": UUID})], "boundary.source.uuid", "the UUID of a table"),
    ([("boundary/source/uuid", UUID.upper())], "boundary.source.uuid", "a UUID of lower-case"),
    ([("boundary/claim", {"column": "a"}), ("boundary/operation", "overwrite")], "boundary.claim", "a claim only"),
    ([("boundary/partition", {"a": 1}), ("boundary/operation", "overwrite")], "boundary.partition", "no partition"),
    ([("boundary/where", "a = ")], "boundary.where", "a literal"),
    ([("boundary/where", "a.b = 1")], "boundary.where", "a column of the table itself"),
    ([BY_DAY], "boundary.where", "a parameter day under parameters"),
    ([("boundary/partition", {"d": "${day}"})], "boundary.partition.d", "a parameter day under parameters"),
    ([DAY], "parameters.day", "a parameter that the boundary uses"),
    ([DAY, ("boundary/where", "day == ${day}")], "boundary.where", ""),
    ([DAY, ("boundary/where", "day = ${dya}")], "boundary.where", "a parameter dya under parameters"),
    ([DAY, BY_DAY, ("boundary/partition", {"d": "x-${day}"})], "boundary.partition.d", "a value, or one parameter"),
    ([DAY, BY_DAY, ("boundary/partition", {"d": "${day"})], "boundary.partition.d", "a value, or one parameter"),
    ([("boundary/columns", ["id", "id"])], "boundary.columns.1", "each column of the target once"),
    ([("boundary/columns", ["id", {"from": "a", "to": "id"}])], "boundary.columns.1", "each column of the target"),
    ([("boundary/columns", ["id", {"from": "a", "type": "int"}])], "boundary.columns.1.type", "long (from int)"),
    ([("boundary/columns", ["id", {"from": "a", "type": "string"}])], "boundary.columns.1.type", "long (from int)"),
    ([("boundary/columns", ["x"])], "projections.identity.0", "a column of the target"),
    ([("chunking", {"by": "partition"})], "chunking.columns", "columns with chunking by partition"),
    ([("chunking", {"by": "files"})], "chunking.max-size", "max-size with chunking by files"),
    ([("chunking", {"by": "range", "column": "a"})], "chunking.bounds", "bounds with chunking by range"),
    ([("chunking", {"by": "range", "bounds": [1]})], "chunking.column", "column with chunking by range"),
    ([("chunking", {"by": "none", "columns": ["a"]})], "chunking.columns", "no columns with chunking by none"),
    ([("chunking", {"by": "files", "max-size": 1, "column": "a"})], "chunking.column", "no column with"),
    ([("chunking", {"by": "partition", "columns": ["a", "a"]})], "chunking.columns.1", "each column once"),
    ([("chunking", {"by": "range", "column": "a", "bounds": [1, "1"]})], "chunking.bounds.1", "each bound once"),
    ([("projections/identity", ["a", "b", "a"])], "projections.identity.2", "each column once"),
    ([("governance/proof-lifetime", "8d")], "governance.proof-lifetime", "at most 7d"),
    (
        [("governance/repair", {"automatic": 5}), ("governance/attempts", 5)],
        "governance.repair.automatic",
        "fewer repairs than governance.attempts",
    ),
    ([("metadata/owner", " ")], "metadata.owner", "1 to 4096 bytes of text"),
    ([("metadata/owner", "a\tb")], "metadata.owner", "no control character"),
]


@for_each(("changes", "path", "expected"), REFUSED_COMBINATIONS, ids=lambda part: str(part)[:60])
def test_a_value_that_conflicts_with_another_key_or_rule_is_refused(
    changes: list[tuple[str, Any]], path: str, expected: str
) -> None:
    error = refusal_of(to_yaml(document_with(*changes)))
    assert error.reason == "contract_invalid"
    assert error.message.endswith(f": {path} cannot be accepted")
    assert (error.expected or "").startswith(expected)


@for_each(
    ("exclude", "path", "expected"),
    [
        ([{"column": "id", "reason": "r"}], "0.column", "a column that is no key"),
        ([{"column": "a", "reason": "r"}, {"column": "a", "reason": "s"}], "1.column", "each column once"),
        ([{"column": "a", "reason": "  "}], "0.reason", "1 to 4096 bytes of text"),
        ([{"column": "a", "reason": "two\nlines"}], "0.reason", "no control character"),
    ],
)
def test_an_invalid_exclusion_is_refused(exclude: Any, path: str, expected: str) -> None:
    error = refusal_of(to_yaml(document_with(("projections/content", {"exclude": exclude}))))
    assert error.message.endswith(f"projections.content.exclude.{path} cannot be accepted")
    assert (error.expected or "").startswith(expected)


def test_an_error_in_a_filter_is_reported_with_its_character() -> None:
    error = refusal_of(to_yaml(document_with(("boundary/where", "a = 1 and b"))))
    assert error.got == "the end at character 12 of the filter"
    assert "grammar is closed" in (error.hint or "")


def test_an_excluded_column_that_is_not_listed_is_refused() -> None:
    exclude = ("projections/content", {"exclude": [{"column": "x", "reason": "r"}]})
    contract_with(exclude)
    error = refusal_of(to_yaml(document_with(("boundary/columns", ["id"]), exclude)))
    assert error.message.endswith("projections.content.exclude.0.column cannot be accepted")


@pytest.mark.parametrize("operation", ["overwrite", "overwrite-partitions"])
@pytest.mark.parametrize(
    "chunking", [{"by": "partition", "columns": ["a"]}, {"by": "files", "max-size": 1},
                 {"by": "range", "column": "a", "bounds": [1]}], ids=lambda each: str(each["by"])
)  # fmt: skip
def test_an_overwrite_in_several_chunks_needs_atomicity_workload(operation: str, chunking: dict[str, Any]) -> None:
    changes = (("boundary/operation", operation), ("chunking", chunking))
    contract_with(*changes, ("atomicity", "workload"))
    assert refusal_of(to_yaml(document_with(*changes))).message.endswith("chunking cannot be accepted")
    error = refusal_of(to_yaml(document_with(*changes, ("atomicity", "chunk"))))
    assert error.message.endswith("atomicity cannot be accepted")


def test_an_overwrite_in_one_chunk_may_have_atomicity_chunk() -> None:
    assert contract_with(("boundary/operation", "overwrite")).atomicity is Atomicity.CHUNK


TEXT = """\
apiVersion: pvdm/v1
kind: DataProduct
metadata:
  domain: sales
  product: orders
  owner: me
boundary:
  source: {table: raw.orders}
  where: "true"
  target: curated.orders
  operation: append
projections:
  identity: [id]
"""


@for_each(
    ("old", "new", "place"),
    [
        ("operation: append", "operation: merge", "11:14"),
        ("  owner: me\n", "  owner: me\n  team: x\n", "7:3"),
        ("  owner: me\n", "", "4:3"),
        ("{table: raw.orders}", "{table: orders}", "8:19"),
        ("{table: raw.orders}", "{tabel: raw.orders}", "8:12"),
        ('"true"', '"a ="', "9:10"),
        ("[id]", "[id, id]", "13:18"),
        ("kind: DataProduct\n", "", "1:1"),
        ("[id]", "[id]\nprofile: T", "14:10"),
        ("[id]", "[id]\nparameters:\n  day: {type: date}", "15:3"),
    ],
)
def test_an_error_has_the_position_of_the_value_or_unknown_key(old: str, new: str, place: str) -> None:
    parse_contract(TEXT.encode())
    assert TEXT.count(old) == 1
    error = refusal_of(TEXT.replace(old, new))
    assert error.message.startswith(f"c.yaml:{place}: ")
    assert error.details == {
        "file": "c.yaml",
        "line": int(place.split(":", maxsplit=1)[0]),
        "column": int(place.split(":")[1]),
    }


def test_of_several_errors_the_first_in_the_file_is_reported() -> None:
    both = TEXT.replace("domain: sales", "domain: SALES").replace("operation: append", "operation: merge")
    assert refusal_of(both).message.startswith("c.yaml:4:11: metadata.domain")
    storage_first = "storage: closed\n" + TEXT.replace("domain: sales", "domain: SALES")
    assert refusal_of(storage_first).message.startswith("c.yaml:1:10: storage")
    later = TEXT.replace('"true"', '"a ="').replace("[id]", "[id, id]\nprofile: T")
    assert refusal_of(later).message.startswith("c.yaml:9:10: boundary.where")
    not_yet = "profile: T\n" + TEXT.replace('"true"', '"a ="')
    assert refusal_of(not_yet).message.startswith("c.yaml:1:10: profile is not served yet")


def test_an_error_shows_no_words_of_pydantic() -> None:
    for old, new in (("owner: me", "owner: 5"), ("[id]", "id"), ("[id]", "[]"), ("  owner: me\n", "")):
        error = str(refusal_of(TEXT.replace(old, new)))
        assert not any(word in error for word in ("Input", "Field", "should", "valid ", "pydantic"))


PARAMETERS = (DAY, BY_DAY, ("boundary/partition", {"d": "${day}", "n": 5, "none": None}))


def test_parameters_are_bound_in_normal_form() -> None:
    contract = contract_with(("parameters", {"at": {"type": "timestamptz"}}), ("boundary/where", "t >= ${at}"))
    bound = contract.bind({"at": "2026-11-14T01:00:00+01:00"})
    assert bound == BoundContract(contract, (("at", "2026-11-14T00:00:00Z"),))
    schema = Schema((Field("t", type_from_json("timestamptz")),))
    assert str(bound.where(schema)) == "t >= '2026-11-14T00:00:00Z'"


def test_parameters_are_put_into_partition_values() -> None:
    bound = contract_with(*PARAMETERS).bind({"day": "2026-11-14"})
    assert bound.partition == (("d", "2026-11-14"), ("n", "5"), ("none", None))


@for_each(
    ("given", "reason"),
    [
        ({}, "parameters_differ"),
        ({"day": "2026-11-14", "more": "x"}, "parameters_differ"),
        ({"Day": "2026-11-14"}, "parameters_differ"),
        ({"day": "yesterday"}, "parameter_invalid"),
        ({"day": "2026-02-30"}, "parameter_invalid"),
    ],
)
def test_missing_unknown_and_invalid_parameters_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        contract_with(*PARAMETERS).bind(given)
    assert caught.value.reason == reason


@for_each("kind", get_args(document.Parameter.model_fields["type"].annotation))
def test_a_parameter_of_each_type_is_checked(kind: str) -> None:
    good = {
        "string": "x",
        "boolean": "true",
        "int": "5",
        "long": "5",
        "date": "2026-11-14",
        "timestamp": "2026-11-14T00:00:00",
        "timestamptz": "2026-11-14T00:00:00Z",
        "uuid": "00000000-0000-0000-0000-000000000000",
    }[kind]
    contract = contract_with(("parameters/p", {"type": kind}), ("boundary/where", "a = ${p}"))
    assert contract.bind({"p": good}).parameters == (("p", good),)
    if kind != "string":
        with pytest.raises(InputError):
            contract.bind({"p": "?"})


def test_a_parameter_above_4096_characters_is_refused() -> None:
    contract = contract_with(("parameters/p", {"type": "string"}), ("boundary/where", "a = ${p}"))
    contract.bind({"p": "x" * 4096})
    with pytest.raises(InputError):
        contract.bind({"p": "x" * 4097})


SOURCE = Schema(
    tuple(
        Field(name, type_from_json(kind))
        for name, kind in (("i", "int"), ("l", "long"), ("f", "float"), ("d", "double"), ("m", "decimal(9,2)"),
                           ("s", "string"), ("t", "date"))
    )
)  # fmt: skip


def test_without_a_mapping_every_column_is_taken_as_it_is() -> None:
    assert [(each.source, each.target) for each in map_columns(None, SOURCE)] == [(n, n) for n in SOURCE.names]


def test_a_mapping_renames_drops_reorders_and_widens() -> None:
    contract = contract_with(
        ("projections/identity", ["key"]),
        ("boundary/columns", [{"from": "m", "type": "decimal(38, 2)"}, {"from": "i", "to": "key", "type": "long"},
                              {"from": "f", "type": "double"}, {"from": "l", "type": "long"}]),
    )  # fmt: skip
    found = [(each.source, each.target, str(each.type)) for each in map_columns(contract.boundary.columns, SOURCE)]
    assert found == [
        ("m", "m", "decimal(38,2)"),
        ("i", "key", "long"),
        ("f", "f", "double"),
        ("l", "l", "long"),
    ]


@for_each(
    ("column", "kind"),
    [("i", "double"), ("l", "double"), ("f", "long"), ("d", "long"), ("m", "decimal(8,2)"), ("m", "decimal(10,3)"),
     ("m", "decimal(9,1)"), ("i", "decimal(12,0)"), ("s", "long"), ("t", "long")],
)  # fmt: skip
def test_a_widening_that_is_not_in_the_closed_list_is_refused(column: str, kind: str) -> None:
    contract = contract_with(
        ("projections/identity", ["i"]), ("boundary/columns", ["i", {"from": column, "to": "x", "type": kind}])
    )
    with pytest.raises(InputError) as caught:
        map_columns(contract.boundary.columns, SOURCE)
    assert caught.value.reason == "mapping_not_lossless"
    assert "Profile T" in (caught.value.hint or "")


@for_each("kind", ["int", "Long", "bigint", "decimal", "decimal(39,2)", "decimal(2,3)", "decimal(0,0)",
                                  "decimal(9,2)@1", "string", "timestamptz", ""])  # fmt: skip
def test_a_type_that_nothing_widens_to_is_refused_in_the_contract(kind: str) -> None:
    error = refusal_of(to_yaml(document_with(("boundary/columns", ["id", {"from": "a", "type": kind}]))))
    assert error.message.endswith("boundary.columns.1.type cannot be accepted")
    assert "Profile T" in (error.hint or "")


def test_a_mapped_column_that_the_source_does_not_have_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        map_columns((Column("x", "x", None),), SOURCE)
    assert caught.value.reason == "mapping_column_unknown"


def test_a_contract_is_loaded_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(to_yaml(SMALL))
    assert pvdm.load_contract(str(tmp_path / "c.yaml")) == parse_contract(to_yaml(SMALL))
    for missing in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(InputError) as caught:
            pvdm.load_contract(missing)
        assert caught.value.reason == "input_not_readable"
    (tmp_path / "big.yaml").write_bytes(b"#" * 1_000_000)
    with pytest.raises(InputError, match="too large"):
        pvdm.load_contract(tmp_path / "big.yaml")
