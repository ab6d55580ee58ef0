"""`pvdm init` and `pvdm validate`: a contract to start from, and where another one is wrong."""

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
    made = pvdm("init", "--table", "curated.orders", "--source", "raw.orders", "--out", "orders.yaml")
    assert made.code == 0
    told = pvdm("validate", "orders.yaml")
    assert told.code == 0
    assert "curated/orders: a valid contract" in told.out
    assert "source     raw.orders, where true" in told.out


def test_init_shows_the_contract_where_no_file_is_named(pvdm: Run) -> None:
    assert pvdm("init", "--table", "a.b").out == fill_template("a.b", "raw.TABLE", "FILE")


def test_init_overwrites_nothing(pvdm: Run) -> None:
    Path("c.yaml").write_text("mine")
    made = pvdm("init", "--out", "c.yaml", "--json")
    assert (made.code, made.error) == (2, "output_exists")
    assert Path("c.yaml").read_text() == "mine"


@pytest.mark.parametrize("table", ["orders", "a b.c", "a.b\nkind: Other", "{a.b", "a..b", ""])
def test_init_refuses_what_is_no_table(pvdm: Run, table: str) -> None:
    made = pvdm("init", "--table", table, "--out", "c.yaml")
    assert made.code == 2
    assert not Path("c.yaml").exists()


def test_init_speaks_json(pvdm: Run) -> None:
    shown = pvdm("init", "--table", "a.b", "--out", "c.yaml", "--json").json
    assert shown["contract"] == Path("c.yaml").read_text()
    assert shown["sha256"] == hashlib.sha256(Path("c.yaml").read_bytes()).hexdigest()
    assert (shown["file"], shown["written"]) == ("c.yaml", True)


def test_every_line_that_init_comments_out_is_good_when_it_is_taken_in() -> None:
    text = fill_template("curated.orders", "raw.orders", "c.yaml")
    keys = [line for line in text.splitlines()[2:] if not line.startswith("# A value")]
    taken = "\n".join(re.sub(r"^(\s*)# ", r"\1", line) for line in keys).replace("KEY_COLUMN", "order_id")
    contract = parse_contract(taken.encode())
    assert [each.name for each in contract.parameters] == ["date"]
    assert all(word in text for word in ("copied", "sealed", "extraction", "sample-keys"))


def test_validate_tells_what_the_contract_says(pvdm: Run) -> None:
    told = pvdm("validate", EXAMPLE, "--param", "date=2026-11-14")
    assert told.code == 0
    assert "target     curated.orders, append, visible by workload" in told.out
    assert "  storage    copied, extraction direct\n" in told.out
    assert "  date = 2026-11-14\n" in told.out


def test_validate_speaks_json(pvdm: Run) -> None:
    shown = pvdm("validate", EXAMPLE, "--param", "date=2026-11-14", "--json").json
    assert shown["sha256"] == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert (shown["storage"], shown["extraction"]) == ("copied", "direct")
    assert shown["declared"] == {"date": "date"}
    assert shown["parameters"] == {"date": "2026-11-14"}
    assert shown["partition"] == {"order_date": "2026-11-14"}
    assert pvdm("validate", EXAMPLE, "--json").json["parameters"] is None


def test_a_mistyped_key_is_named_and_not_the_one_that_is_missing_for_it(pvdm: Run) -> None:
    text = EXAMPLE.read_text("utf-8")
    at = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith("  identity:"))
    Path("c.yaml").write_text(text.replace("  identity:", "  identty:"), "utf-8")
    told = pvdm("validate", "c.yaml", "--json").json["error"]
    assert told["message"].startswith(f"c.yaml:{at}:3: projections.identty cannot be accepted")
    assert told["expected"] == "one of identity, content"


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


def claiming(where: str, **changes: str) -> Path:
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
def test_validate_tells_the_claim_of_a_workload(pvdm: Run, where: str, claimed: str) -> None:
    path = claiming(where)
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
def test_validate_tells_a_claim_that_every_workload_has(pvdm: Run, where: str, claimed: str) -> None:
    claiming(where).write_text(re.sub(r"parameters:\n(  .*\n)*", "", claiming(where).read_text()))
    assert f"  claim      {claimed}: the same for every workload, so" in pvdm("validate", "claiming.yaml").out


def test_a_claim_of_a_type_that_only_the_source_knows_is_told_by_its_column(pvdm: Run) -> None:
    claiming("ts = 1.5").write_text(re.sub(r"parameters:\n(  .*\n)*", "", claiming("ts = 1.5").read_text()))
    assert "  claim      ts: for each workload the part" in pvdm("validate", "claiming.yaml").out


@pytest.mark.parametrize("given", [(), TWO_DAYS])
def test_validate_refuses_a_claim_that_the_filter_does_not_bound(pvdm: Run, given: tuple[str, ...]) -> None:
    told = pvdm("validate", claiming(f"{BOTH} or site is null"), *given)
    assert told.code == 2
    assert told.err.startswith("error: claiming.yaml:9:10: boundary.where cannot be accepted (contract_invalid)\n")
    assert "ts = …, or ts >= … and ts < …" in told.err


def test_validate_refuses_parameters_that_leave_nothing_to_claim(pvdm: Run) -> None:
    path = claiming(BOTH)
    swapped = ("--param", "from=2026-03-31T00:00:00Z", "--param", "to=2026-03-29T00:00:00Z")
    told = pvdm("validate", path, *swapped)
    assert told.code == 2
    assert told.err.startswith("error: no row can pass the filter: it leaves no value of the claim column ts (claim_em")
    assert pvdm("validate", path, *swapped, "--json").error == "claim_empty"
    assert pvdm("validate", path).code == 0


def test_validate_says_that_an_append_without_a_claim_is_the_only_one(pvdm: Run) -> None:
    path = claiming(BOTH)
    path.write_text(path.read_text().replace("  claim: {column: ts}\n", ""))
    assert "  claim      everything: only one workload is possible\n" in pvdm("validate", path, *TWO_DAYS).out


@pytest.mark.parametrize("operation", ["overwrite", "overwrite-partitions"])
def test_validate_says_nothing_of_claims_for_an_overwrite(pvdm: Run, operation: str) -> None:
    path = claiming(BOTH, operation=operation)
    path.write_text(path.read_text().replace("  claim: {column: ts}\n", ""))
    assert "claim" not in pvdm("validate", path, *TWO_DAYS).out.replace("claiming", "")


def test_validate_says_file_line_and_column(pvdm: Run) -> None:
    Path("c.yaml").write_text(EXAMPLE.read_text().replace("operation: append", "operation: merge"))
    line = next(at for at, text in enumerate(Path("c.yaml").read_text().splitlines(), start=1) if "merge" in text)
    told = pvdm("validate", "c.yaml")
    assert told.code == 2
    assert told.err.startswith(f"error: c.yaml:{line}:14: boundary.operation cannot be accepted (contract_invalid)\n")
    assert "expected append, overwrite-partitions or overwrite, got 'merge'" in told.err
    envelope = pvdm("validate", "c.yaml", "--json").json["error"]
    assert envelope["reason"] == "contract_invalid"
    assert envelope["details"] == {"file": "c.yaml", "line": line, "column": 14}


def test_validate_refuses_what_is_not_served_yet(pvdm: Run) -> None:
    Path("c.yaml").write_text(EXAMPLE.read_text().replace("profile: A", "profile: T"))
    told = pvdm("validate", "c.yaml", "--json")
    assert (told.code, told.error) == (2, "contract_not_yet")


@pytest.mark.parametrize("given", ["date", "=2026-11-14", ""])
def test_a_parameter_is_a_name_and_a_value(pvdm: Run, given: str) -> None:
    told = pvdm("validate", EXAMPLE, "--param", given, "--json")
    assert (told.code, told.error) == (2, "usage")


def test_a_parameter_twice_is_refused(pvdm: Run) -> None:
    told = pvdm("validate", EXAMPLE, "--param", "date=2026-11-14", "--param", "date=2026-11-15", "--json")
    assert (told.code, told.error) == (2, "usage")


@pytest.mark.parametrize(
    ("given", "code"), [("date=tomorrow", "parameter_invalid"), ("day=2026-11-14", "parameters_differ")]
)
def test_parameters_are_judged_by_the_contract(pvdm: Run, given: str, code: str) -> None:
    told = pvdm("validate", EXAMPLE, "--param", given, "--json")
    assert (told.code, told.error) == (2, code)


def test_a_file_that_is_not_there_or_too_large_is_bad_input(pvdm: Run) -> None:
    assert pvdm("validate", "none.yaml", "--json").error == "input_not_readable"
    Path("big.yaml").write_bytes(b"#" * 300_000)
    assert pvdm("validate", "big.yaml", "--json").error == "input_too_large"


def test_what_a_contract_holds_steers_no_terminal(pvdm: Run) -> None:
    steering = "boundary:\n  where: \"a = '\\e[31m'\""
    text = fill_template("a.b", "raw.t", "c.yaml").replace("boundary:", steering)
    Path("c.yaml").write_text(text)
    told = pvdm("validate", "c.yaml")
    assert told.code == 0
    assert "\x1b" not in told.out
