"""Table properties that PyIceberg obeys to connect or to load code: no protected table can have one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyiceberg.io
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from pvdm.lake.format.table.protectable import is_reader_setting
from pvdm.model.role import Role
from tests.support.catalog.core import request
from tests.support.gate.approvals import SALES, reason_of
from tests.support.gate.protected_tables import House
from tests.support.oracles.engines import consumer_catalog
from tests.support.steward.shop import shop_at

Doc = dict[str, Any]
REFUSED = (
    "py-io-impl",
    "s3.endpoint",
    "s3.proxy-uri",
    "S3.Endpoint",
    "gcs.service.host",
    "warehouse",
    "DEFAULT_SCHEME",
)
HONEST = {"owner": "shop", "write.parquet.compression-codec": "zstd", "read.split.target-size": "1000", "s3": "x"}


class ProducersFileIO(PyArrowFileIO):
    """A class that a producer wants consumers to load."""


def create_table(house: House, properties: dict[str, str], role: Role = Role.OPERATOR) -> None:
    asked: Doc = {"name": "orders", **request(2), "properties": {"format-version": "2", **properties}}
    house.notary.catalog.tables.create(house.scene.grant(role, "sales"), SALES, asked)


def test_pyiceberg_uses_the_class_and_endpoint_that_a_table_names(tmp_path: Path) -> None:
    with shop_at(tmp_path) as shop:
        shop.make("sales.t", py__io__impl=f"{__name__}.ProducersFileIO", s3_endpoint="http://elsewhere")
        found = consumer_catalog(shop.steward.url, shop.steward.token_for(Role.CONSUMER).text).load_table("sales.t")
        assert isinstance(found.io, ProducersFileIO)
        assert found.io.properties["s3.endpoint"] == "http://elsewhere"


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_with_a_reader_setting_is_not_protected(house: House, name: str) -> None:
    create_table(house, {name: "x"})
    assert reason_of(house.protect) == "reader_setting_refused"
    assert house.scene.contract_of() is None


def test_a_table_with_other_properties_is_protected(house: House) -> None:
    create_table(house, HONEST)
    house.protect()
    assert house.scene.contract_of() is not None


def test_no_table_with_a_reader_setting_is_created_in_a_protected_namespace(house: House) -> None:
    house.source()
    house.scene.protect(house.scene.namespace_protection())
    assert reason_of(lambda: create_table(house, {"py-io-impl": "x"}, Role.PRODUCER)) == "reader_setting_refused"
    create_table(house, HONEST, Role.PRODUCER)


def test_a_migration_that_adds_a_reader_setting_is_refused(house: House) -> None:
    create_table(house, HONEST)
    house.protect()
    updates: list[Doc] = [{"action": "set-properties", "updates": {"s3.endpoint": "http://elsewhere"}}]
    assert reason_of(lambda: house.scene.migrate(house.scene.migration(updates))) == "reader_setting_refused"
    updates[0]["updates"] = {"owner": "risk"}
    house.scene.migrate(house.scene.migration(updates))


def test_every_file_setting_of_pyiceberg_is_known_as_a_reader_setting() -> None:
    known = {value for name, value in vars(pyiceberg.io).items() if name.isupper() and isinstance(value, str)}
    settings = {value for value in known if "." in value and "/" not in value and "FileIO" not in value}
    assert len(settings) > 40
    assert {each for each in settings | {"py-io-impl", "warehouse"} if not is_reader_setting(each)} == set()
    assert not any(is_reader_setting(each) for each in HONEST)
