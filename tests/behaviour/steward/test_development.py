"""A development Steward: it creates its own operator, reads and writes small tables, and is never served."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pvdm
from pvdm.cli import main
from pvdm.errors import ConflictError, DevelopmentWarning, InputError, NotAllowedError, PvdmError
from pvdm.model.statements.proof import Isolation, Proof
from pvdm.steward.config.steward import load_config
from pvdm.steward.embedded.development import OPERATOR, DevelopmentSteward
from pvdm.trust.root import RootRole, follow_roots

CONTRACT = """\
apiVersion: pvdm/v1
kind: DataProduct
metadata: {domain: sales, product: orders, owner: you@example.com}
boundary:
  source: {table: raw.orders}
  target: sales.orders
  operation: append
projections: {identity: [order_id]}
"""
ORDERS: Any = pa.table({"order_id": pa.array([1, 2, 3], pa.int64()), "town": pa.array(["Ulm", None, "Kiel"])})


def start_development(folder: Path) -> DevelopmentSteward:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DevelopmentWarning)
        return pvdm.Steward.development(folder)


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[DevelopmentSteward]:
    with start_development(tmp_path / "steward") as made:
        yield made


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevelopmentSteward]:
    """A Steward with a source of three rows and a protected target, to which nothing is published yet."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "orders.yaml").write_text(CONTRACT, "utf-8")
    with start_development(folder / "steward") as made:
        made.create_table("raw.orders", ORDERS.schema)
        made.append("raw.orders", ORDERS)
        made.create_table("sales.orders", ORDERS.schema, partition_by=["town"])
        made.protect(folder / "orders.yaml")
        yield made


def refusal(work: Callable[[], object]) -> tuple[type[PvdmError], str]:
    with pytest.raises(PvdmError) as caught:
        work()
    return type(caught.value), caught.value.reason


def test_the_first_start_warns_once_about_what_it_created(tmp_path: Path) -> None:
    with pytest.warns(DevelopmentWarning) as warned, pvdm.Steward.development(tmp_path / "s") as steward:
        assert steward.readiness().ready
    assert len(warned) == 1
    assert "operator.pem" in str(warned[0].message)
    assert "isolation: embedded" in str(warned[0].message)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pvdm.Steward.development(tmp_path / "s").close()


def test_only_their_owner_can_read_operator_key_and_folder(steward: DevelopmentSteward) -> None:
    assert (steward.folder / "operator.pem").stat().st_mode & 0o777 == 0o600
    assert steward.folder.stat().st_mode & 0o777 == 0o700


def test_the_trust_root_names_the_operator_and_no_break_glass_key(steward: DevelopmentSteward) -> None:
    root = follow_roots(steward.trust_root().chain, sha256=steward.pin, now=time.time_ns() // 1_000)
    assert [key.identity for key in root.keys if RootRole.OPERATOR in key.roles] == [OPERATOR]
    assert not [key for key in root.keys if RootRole.BREAK_GLASS in key.roles]


def test_a_second_start_has_the_same_operator(tmp_path: Path) -> None:
    with start_development(tmp_path / "s") as steward:
        before = steward.trust_root().chain
    with start_development(tmp_path / "s") as steward:
        assert steward.trust_root().chain == before


def test_a_protection_is_signed_by_the_development_operator_and_logged(shop: DevelopmentSteward) -> None:
    (found,) = shop.protections()
    assert (found.name, found.operator) == ("sales.orders", OPERATOR)
    assert found.log_index < shop.info().log_size


def test_a_wrong_row_set_is_refused_a_right_one_published_and_its_proof_says_embedded(shop: DevelopmentSteward) -> None:
    def build(_spark: object, chunk: pvdm.Chunk) -> pa.Table:
        return shop.read("raw.orders", chunk.source_snapshot_id)

    with pvdm.Coordinator(shop) as coordinator:
        failed = coordinator.execute_workload("w-1", lambda *args: build(*args).slice(1), table="sales.orders")
        assert isinstance(failed, pvdm.VerificationFailed)
        assert shop.read("sales.orders").num_rows == 0
        published = coordinator.repair("w-1", build, reason="the slice is gone")
    assert str(failed).splitlines()[:2] == [
        "VERIFICATION_FAILED  w-1 of sales.orders",
        "error: nothing was published: the verdict is FAIL: 1 row missing (verification_failed)",
    ]
    assert str(published) == "COMMITTED  w-1: 1 chunk of sales.orders, +3 rows in 3 files"
    assert shop.read("sales.orders").sort_by("order_id").to_pylist() == ORDERS.to_pylist()
    proof = pvdm.check_proof(shop.proof_bundle(shop.proofs(limit=1)[0].proof_id), shop.trust_root().chain, pin=shop.pin)
    statement = proof.proof.statements[0].predicate
    assert isinstance(statement, Proof)
    assert statement.notary.isolation is Isolation.EMBEDDED


def test_rows_cannot_be_appended_directly_to_a_protected_table(shop: DevelopmentSteward) -> None:
    assert refusal(lambda: shop.append("sales.orders", ORDERS))[0] is NotAllowedError


def test_a_table_without_rows_has_its_columns(steward: DevelopmentSteward) -> None:
    steward.create_table("raw.orders", ORDERS.schema)
    assert (steward.read("raw.orders").column_names, steward.read("raw.orders").num_rows) == (["order_id", "town"], 0)


def test_an_older_snapshot_is_read_by_its_id_and_an_unknown_one_refused(steward: DevelopmentSteward) -> None:
    steward.create_table("raw.orders", ORDERS.schema)
    steward.append("raw.orders", ORDERS.slice(0, 1))
    first = json.loads(steward.target("table", "raw.orders").metadata or "")["current-snapshot-id"]
    steward.append("raw.orders", ORDERS.slice(1))
    assert steward.read("raw.orders").num_rows == 3
    assert steward.read("raw.orders", first).num_rows == 1
    assert refusal(lambda: steward.read("raw.orders", 7)) == (InputError, "snapshot_unknown")


def test_a_table_that_exists_is_refused_unless_that_is_expected(steward: DevelopmentSteward) -> None:
    steward.create_table("raw.orders", ORDERS.schema)
    steward.create_table("raw.orders", ORDERS.schema, exist_ok=True)
    assert refusal(lambda: steward.create_table("raw.orders", ORDERS.schema))[0] is ConflictError


def test_columns_of_every_known_type_come_back_as_they_were(steward: DevelopmentSteward) -> None:
    kinds: list[Any] = [
        pa.bool_(),
        pa.int32(),
        pa.float64(),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.decimal128(10, 2),
        pa.binary(),
    ]
    rows = pa.table({f"c{at}": pa.array([1 if at in (1, 2) else None], kind) for at, kind in enumerate(kinds)})
    steward.create_table("raw.types", rows.schema)
    steward.append("raw.types", rows)
    assert steward.read("raw.types").to_pylist() == rows.to_pylist()


def test_a_type_or_a_partition_column_that_is_not_known_is_refused(steward: DevelopmentSteward) -> None:
    nested = pa.schema([pa.field("tags", pa.list_(pa.string()))])
    assert refusal(lambda: steward.create_table("raw.t", nested)) == (InputError, "column_type_unsupported")
    by_day = lambda: steward.create_table("raw.t", ORDERS.schema, partition_by=["day"])  # noqa: E731
    assert refusal(by_day) == (InputError, "column_unknown")


def test_an_edited_contract_comes_into_force_by_a_signed_migration(steward: DevelopmentSteward, tmp_path: Path) -> None:
    steward.create_table("raw.orders", ORDERS.schema)
    steward.create_table("sales.orders", ORDERS.schema)
    path = tmp_path / "orders.yaml"
    path.write_text(CONTRACT, "utf-8")
    steward.protect(path)
    steward.protect(str(path))
    assert (len(steward.protections()), len(steward.migrations())) == (1, 0)
    path.write_text(CONTRACT.replace("you@example.com", "team@example.com"), "utf-8")
    steward.protect(path)
    (found,) = steward.migrations()
    assert found.operator == OPERATOR
    (protected,) = steward.protected("table", name="sales.orders")
    assert protected.contract_sha256 == pvdm.load_contract(path).sha256


def test_a_contract_that_appends_after_one_that_overwrote_warns_of_rows_twice(
    steward: DevelopmentSteward, tmp_path: Path
) -> None:
    steward.create_table("raw.orders", ORDERS.schema)
    steward.create_table("sales.orders", ORDERS.schema, partition_by="town")
    path = tmp_path / "orders.yaml"
    path.write_text(CONTRACT.replace("append", "overwrite-partitions"), "utf-8")
    steward.protect(path)
    path.write_text(CONTRACT, "utf-8")
    with pytest.warns(UserWarning, match="would then be in the table twice"):
        steward.protect(path)


def test_one_partition_column_can_be_given_as_a_text(steward: DevelopmentSteward) -> None:
    steward.create_table("sales.orders", ORDERS.schema, partition_by="town")
    (spec,) = json.loads(str(steward.target("table", "sales.orders").metadata))["partition-specs"]
    assert [field["name"] for field in spec["fields"]] == ["town"]


def test_a_contract_that_is_missing_or_wrong_protects_nothing(steward: DevelopmentSteward, tmp_path: Path) -> None:
    assert refusal(lambda: steward.protect(tmp_path / "none.yaml")) == (InputError, "input_not_readable")
    (tmp_path / "orders.yaml").write_text("kind: Wish\n", "utf-8")
    assert refusal(lambda: steward.protect(tmp_path / "orders.yaml"))[0] is InputError
    assert steward.protections() == ()


def test_a_development_folder_is_not_opened_as_embedded_and_an_embedded_one_not_as_development(tmp_path: Path) -> None:
    start_development(tmp_path / "dev").close()
    pvdm.Steward.embedded(tmp_path / "own").close()
    assert refusal(lambda: pvdm.Steward.embedded(tmp_path / "dev")) == (NotAllowedError, "development_differs")
    assert refusal(lambda: start_development(tmp_path / "own")) == (NotAllowedError, "development_differs")
    assert not (tmp_path / "own" / "operator.pem").exists()


def test_a_development_steward_is_never_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_development(tmp_path / "dev").close()
    config = tmp_path / "dev" / "steward.toml"
    assert main(["steward", "serve", "--config", str(config), "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "development_not_served"
    config.write_text(config.read_text("utf-8").replace('"embedded"', '"process"'), "utf-8")
    assert refusal(lambda: load_config(config)) == (InputError, "config_invalid")
