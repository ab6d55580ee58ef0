"""`pvdm init` writes a contract to start from; `pvdm validate` shows what a contract says or where it is wrong."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from pvdm.cli.table.contract import fill_template
from pvdm.model.contract import parse_contract
from tests.behaviour.cli.support import Run

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders.yaml"


def test_what_init_writes_is_a_valid_contract(pvdm: Run) -> None:
    assert pvdm("init", "--table", "curated.orders", "--source", "raw.orders", "--out", "orders.yaml").code == 0
    result = pvdm("validate", "orders.yaml")
    assert result.code == 0
    assert "curated/orders: a valid contract; source and target were not looked at" in result.out
    assert "source     raw.orders, where true" in result.out


def test_init_without_a_file_name_prints_the_contract(pvdm: Run) -> None:
    assert pvdm("init", "--table", "a.b").out == fill_template("a.b", "raw.TABLE", "FILE")


def test_init_does_not_overwrite_a_file(pvdm: Run) -> None:
    Path("c.yaml").write_text("mine")
    refused = pvdm("init", "--out", "c.yaml", "--json")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert Path("c.yaml").read_text() == "mine"


@pytest.mark.parametrize("table", ["orders", "a b.c", "a.b\nkind: Other", "{a.b", "a..b", ""])
def test_init_refuses_an_invalid_table_name(pvdm: Run, table: str) -> None:
    refused = pvdm("init", "--table", table, "--out", "c.yaml")
    assert refused.code == 2
    assert not Path("c.yaml").exists()


def test_init_as_json_has_the_contract_and_its_hash(pvdm: Run) -> None:
    shown = pvdm("init", "--table", "a.b", "--out", "c.yaml", "--json").json
    assert shown["contract"] == Path("c.yaml").read_text()
    assert shown["sha256"] == hashlib.sha256(Path("c.yaml").read_bytes()).hexdigest()
    assert (shown["file"], shown["written"]) == ("c.yaml", True)


def test_the_lines_that_init_comments_out_are_valid_when_uncommented() -> None:
    text = fill_template("curated.orders", "raw.orders", "c.yaml")
    keys = [line for line in text.splitlines()[2:] if not line.startswith("# A value")]
    uncommented = "\n".join(re.sub(r"^(\s*)# ", r"\1", line) for line in keys).replace("KEY_COLUMN", "order_id")
    contract = parse_contract(uncommented.encode())
    assert [each.name for each in contract.parameters] == ["date"]
    assert all(word in text for word in ("copied", "sealed", "extraction", "sample-keys"))


def test_validate_shows_the_contract_in_words(pvdm: Run) -> None:
    result = pvdm("validate", EXAMPLE, "--param", "date=2026-11-14")
    assert result.code == 0
    assert "target     curated.orders, append, visible by workload" in result.out
    assert "  storage    copied, extraction direct\n" in result.out
    assert "  date = 2026-11-14\n" in result.out


def test_validate_as_json_has_the_parts_of_the_contract(pvdm: Run) -> None:
    shown = pvdm("validate", EXAMPLE, "--param", "date=2026-11-14", "--json").json
    assert shown["sha256"] == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert (shown["storage"], shown["extraction"]) == ("copied", "direct")
    assert shown["declared"] == {"date": "date"}
    assert shown["parameters"] == {"date": "2026-11-14"}
    assert shown["partition"] == {"order_date": "2026-11-14"}
    assert pvdm("validate", EXAMPLE, "--json").json["parameters"] is None


def test_the_error_names_a_mistyped_key_and_not_the_missing_one(pvdm: Run) -> None:
    text = EXAMPLE.read_text("utf-8")
    at = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith("  identity:"))
    Path("c.yaml").write_text(text.replace("  identity:", "  identty:"), "utf-8")
    error = pvdm("validate", "c.yaml", "--json").json["error"]
    assert error["message"].startswith(f"c.yaml:{at}:3: projections.identty cannot be accepted")
    assert error["expected"] == "one of identity, content"


CLAIMING = """apiVersion: pvdm/v1
kind: DataProduct
metadata: {domain: sales, product: readings, owner: me}
parameters:
  from: {type: timestamptz}
  to: {type: timestamptz}
boundary:
  source: {table: raw.readings}
  where: WHERE
  target: sales.readings
  operation: append
  claim: {column: ts}
projections: {identity: [id]}
"""
BOTH = "ts >= ${from} and ts < ${to}"
TWO_DAYS = ("--param", "from=2026-03-29T02:00:00+02:00", "--param", "to=2026-03-31T00:00:00Z")


def write_claiming_contract(where: str, **changes: str) -> Path:
    """Write a contract that appends with a claim on `ts`, with these values of its keys changed."""
    text = CLAIMING.replace("WHERE", where)
    for old, new in changes.items():
        assert f"{old}: " in text
        text = re.sub(rf"{old}: .*", f"{old}: {new}", text)
    path = Path("claiming.yaml")
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("where", "claimed"),
    [
        (BOTH, "2026-03-29T00:00:00Z <= ts < 2026-03-31T00:00:00Z"),
        (f"{BOTH} and a = 1 or b is null and {BOTH}", "2026-03-29T00:00:00Z <= ts < 2026-03-31T00:00:00Z"),
        ("ts in (${from}, ${to})", "2026-03-29T00:00:00Z <= ts < 2026-03-31T00:00:00.000001Z"),
        (
            "ts > '2026-01-01T00:00:00Z' and ts < ${from} and ts != ${to}",
            "2026-01-01T00:00:00.000001Z <= ts < 2026-03-29T00:00:00Z",
        ),
    ],
)
def test_validate_shows_the_claim_of_a_workload(pvdm: Run, where: str, claimed: str) -> None:
    path = write_claiming_contract(where)
    assert f"  claim      {claimed}\n" in pvdm("validate", path, *TWO_DAYS).out
    assert pvdm("validate", path, *TWO_DAYS, "--json").json["claimed"] == claimed
    assert "  claim      ts: for each workload the part" in pvdm("validate", path).out


@pytest.mark.parametrize(
    ("where", "claimed"),
    [
        ("ts = '2026-11-16'", "ts = '2026-11-16'"),
        ("ts >= 5 and ts <= 9", "5 <= ts < 10"),
        ("ts = true", "ts = true"),
        ("ts is null", "ts = null"),
    ],
)
def test_validate_shows_a_claim_that_is_the_same_for_every_workload(pvdm: Run, where: str, claimed: str) -> None:
    path = write_claiming_contract(where)
    path.write_text(re.sub(r"parameters:\n(  .*\n)*", "", path.read_text()))
    assert f"  claim      {claimed}: the same for every workload, so" in pvdm("validate", "claiming.yaml").out


def test_a_claim_whose_type_only_the_source_knows_is_shown_by_its_column(pvdm: Run) -> None:
    path = write_claiming_contract("ts = 1.5")
    path.write_text(re.sub(r"parameters:\n(  .*\n)*", "", path.read_text()))
    assert "  claim      ts: for each workload the part" in pvdm("validate", "claiming.yaml").out


@pytest.mark.parametrize("given", [(), TWO_DAYS])
def test_validate_refuses_a_claim_that_the_filter_does_not_bound(pvdm: Run, given: tuple[str, ...]) -> None:
    result = pvdm("validate", write_claiming_contract(f"{BOTH} or site is null"), *given)
    assert result.code == 2
    assert result.err.startswith("error: claiming.yaml:9:10: boundary.where cannot be accepted (contract_invalid)\n")
    assert "ts = …, or ts >= … and ts < …" in result.err


def test_validate_refuses_parameters_that_leave_nothing_to_claim(pvdm: Run) -> None:
    path = write_claiming_contract(BOTH)
    swapped = ("--param", "from=2026-03-31T00:00:00Z", "--param", "to=2026-03-29T00:00:00Z")
    refused = pvdm("validate", path, *swapped)
    assert refused.code == 2
    assert refused.err.startswith(
        "error: no row can pass the filter: it leaves no value of the claim column ts (claim_em"
    )
    assert pvdm("validate", path, *swapped, "--json").error == "claim_empty"
    assert pvdm("validate", path).code == 0


def test_validate_says_that_an_append_without_a_claim_allows_one_workload(pvdm: Run) -> None:
    path = write_claiming_contract(BOTH)
    path.write_text(path.read_text().replace("  claim: {column: ts}\n", ""))
    assert "  claim      everything: only one workload is possible\n" in pvdm("validate", path, *TWO_DAYS).out


@pytest.mark.parametrize("operation", ["overwrite", "overwrite-partitions"])
def test_validate_shows_no_claim_for_an_overwrite(pvdm: Run, operation: str) -> None:
    path = write_claiming_contract(BOTH, operation=operation)
    path.write_text(path.read_text().replace("  claim: {column: ts}\n", ""))
    assert "claim" not in pvdm("validate", path, *TWO_DAYS).out.replace("claiming", "")


def test_validate_shows_file_line_and_column_of_an_error(pvdm: Run) -> None:
    Path("c.yaml").write_text(EXAMPLE.read_text().replace("operation: append", "operation: merge"))
    line = next(at for at, text in enumerate(Path("c.yaml").read_text().splitlines(), start=1) if "merge" in text)
    result = pvdm("validate", "c.yaml")
    assert result.code == 2
    assert result.err.startswith(f"error: c.yaml:{line}:14: boundary.operation cannot be accepted (contract_invalid)\n")
    assert "expected append, overwrite-partitions or overwrite, got 'merge'" in result.err
    envelope = pvdm("validate", "c.yaml", "--json").json["error"]
    assert envelope["reason"] == "contract_invalid"
    assert envelope["details"] == {"file": "c.yaml", "line": line, "column": 14}


def test_validate_refuses_a_profile_that_is_not_supported_yet(pvdm: Run) -> None:
    Path("c.yaml").write_text(EXAMPLE.read_text().replace("profile: A", "profile: T"))
    result = pvdm("validate", "c.yaml", "--json")
    assert (result.code, result.error) == (2, "contract_not_yet")


@pytest.mark.parametrize("given", ["date", "=2026-11-14", ""])
def test_a_parameter_without_a_name_or_without_a_value_is_a_usage_error(pvdm: Run, given: str) -> None:
    result = pvdm("validate", EXAMPLE, "--param", given, "--json")
    assert (result.code, result.error) == (2, "usage")


def test_a_parameter_that_is_given_twice_is_refused(pvdm: Run) -> None:
    result = pvdm("validate", EXAMPLE, "--param", "date=2026-11-14", "--param", "date=2026-11-15", "--json")
    assert (result.code, result.error) == (2, "usage")


@pytest.mark.parametrize(
    ("given", "code"), [("date=tomorrow", "parameter_invalid"), ("day=2026-11-14", "parameters_differ")]
)
def test_parameters_that_do_not_fit_the_contract_are_refused(pvdm: Run, given: str, code: str) -> None:
    result = pvdm("validate", EXAMPLE, "--param", given, "--json")
    assert (result.code, result.error) == (2, code)


def test_a_file_that_is_not_there_or_too_large_is_bad_input(pvdm: Run) -> None:
    assert pvdm("validate", "none.yaml", "--json").error == "input_not_readable"
    Path("big.yaml").write_bytes(b"#" * 300_000)
    assert pvdm("validate", "big.yaml", "--json").error == "input_too_large"


def test_control_characters_in_a_contract_are_not_printed(pvdm: Run) -> None:
    steering = "boundary:\n  where: \"a = '\\e[31m'\""
    text = fill_template("a.b", "raw.t", "c.yaml").replace("boundary:", steering)
    Path("c.yaml").write_text(text)
    result = pvdm("validate", "c.yaml")
    assert result.code == 0
    assert "\x1b" not in result.out
