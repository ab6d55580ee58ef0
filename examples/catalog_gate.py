"""The catalog is the gate: a protected table takes staged rows on a branch, and refuses writes to what readers see.

Usage: python examples/catalog_gate.py [FOLDER]
It needs Java 17 and pvdm[spark]. FOLDER is made, with a Steward, its keys, its ledger and its warehouse in it, and
stays; without one a temporary folder is used, which is gone afterwards.
"""

# ruff: noqa: S603, T201 - an example prints, and runs the command as its reader would
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pvdm
from pvdm.model.role import Role
from pvdm.steward.embedded import EmbeddedSteward, Person
from pvdm.trust.keys.operator import create_key_pair
from pvdm.trust.root import RootRole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def protect(steward: EmbeddedSteward, table: str, key: Path, contract: Path) -> None:
    """What an operator does on a machine of their own: sign with their key that the table goes behind the gate."""
    asked = ["protect", table, "--contract", str(contract), "--key", str(key), "--operator", "tom", "--reason", "live"]
    told = {"PVDM_URL": steward.url, "PVDM_TOKEN": steward.token_for(Role.OPERATOR).text}
    subprocess.run([sys.executable, "-m", "pvdm.cli", *asked], env={**os.environ, **told}, check=True)


def show(spark: SparkSession) -> None:
    """Stage two rows, see who sees them, and try to write past the gate."""
    spark.sql("alter table lake.sales.orders create branch stage")
    spark.sql("insert into lake.sales.orders.branch_stage values (1, 'a'), (2, 'b')")
    print("the producer's branch has", spark.table("lake.sales.orders.branch_stage").count(), "rows")
    print("main has", spark.table("lake.sales.orders").count(), "rows")
    print("the consumer sees", spark.table("shop.sales.orders").count(), "rows")
    for statement in ("insert into lake.sales.orders values (3, 'c')", "select * from shop.sales.orders.branch_stage"):
        try:
            spark.sql(statement)
        except Exception as error:
            # The first lines of a Java error: what called it, then what it says.
            said = next(line for line in str(error).splitlines() if "Exception" in line)
            print("refused:", statement, "->", said.partition("Exception: ")[2])


def main(folder: Path) -> None:
    """Make everything in that folder, show it, and close it again."""
    key, contract = folder / "tom.pem", folder / "orders.yaml"
    create_key_pair(key)
    contract.write_text("product: orders\n", "utf-8")
    tom = Person.from_file("tom", RootRole.OPERATOR, key.with_name("tom.pem.pub"))
    with pvdm.Steward.embedded(folder / "steward", people=[tom]) as steward:
        spark = pvdm.spark_session(steward, "producer", "sales", name="lake", master="local[2]")
        pvdm.spark_session(steward, "consumer", "sales", name="shop")
        spark.sql("create namespace lake.sales")
        spark.sql("create table lake.sales.orders (id bigint, note string) using iceberg")
        protect(steward, "sales.orders", key, contract)
        show(spark)
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory(prefix="pvdm-") as made:
            main(Path(made))
    else:
        chosen = Path(sys.argv[1])
        try:
            chosen.mkdir(parents=True)
        except FileExistsError:
            sys.exit(f"{chosen} is there already: name a folder that is not, or none")
        main(chosen)
