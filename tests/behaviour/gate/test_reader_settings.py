"""Properties by which readers connect or load code: PyIceberg obeys them, and no protected table has any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyiceberg.io
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from pvdm.lake.format.table.protectable import is_reader_setting
from pvdm.model.role import Role
from tests.support.catalog.core import request
from tests.support.gate.approvals import SALES, code_of
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


class Taken(PyArrowFileIO):
    """What a producer would like consumers to load."""


def make(house: House, properties: dict[str, str], role: Role = Role.OPERATOR) -> None:
    asked: Doc = {"name": "orders", **request(2), "properties": {"format-version": "2", **properties}}
    house.notary.catalog.tables.create(house.scene.grant(role, "sales"), SALES, asked)


def test_pyiceberg_loads_what_a_table_names_though_its_user_names_something_else(tmp_path: Path) -> None:
    with shop_at(tmp_path) as shop:
        shop.make("sales.t", py__io__impl=f"{__name__}.Taken", s3_endpoint="http://elsewhere")
        found = consumer_catalog(shop.steward.url, shop.steward.token_for(Role.CONSUMER).text).load_table("sales.t")
        assert isinstance(found.io, Taken)
        assert found.io.properties["s3.endpoint"] == "http://elsewhere"


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_with_a_reader_setting_is_not_protected(house: House, name: str) -> None:
    make(house, {name: "x"})
    assert code_of(house.protect) == "reader_setting_refused"
    assert house.scene.contract_of() is None


def test_a_table_with_other_properties_is_protected(house: House) -> None:
    make(house, HONEST)
    house.protect()
    assert house.scene.contract_of() is not None


def test_no_table_is_born_protected_with_a_reader_setting(house: House) -> None:
    house.source()
    house.scene.protect(house.scene.namespace_protection())
    assert code_of(lambda: make(house, {"py-io-impl": "x"}, Role.PRODUCER)) == "reader_setting_refused"
    make(house, HONEST, Role.PRODUCER)


def test_no_migration_leads_to_a_reader_setting(house: House) -> None:
    make(house, HONEST)
    house.protect()
    updates: list[Doc] = [{"action": "set-properties", "updates": {"s3.endpoint": "http://elsewhere"}}]
    assert code_of(lambda: house.scene.migrate(house.scene.migration(updates))) == "reader_setting_refused"
    updates[0]["updates"] = {"owner": "risk"}
    house.scene.migrate(house.scene.migration(updates))


def test_every_setting_that_pyiceberg_reads_files_by_is_known() -> None:
    known = {value for name, value in vars(pyiceberg.io).items() if name.isupper() and isinstance(value, str)}
    settings = {value for value in known if "." in value and "/" not in value and "FileIO" not in value}
    assert len(settings) > 40
    assert {each for each in settings | {"py-io-impl", "warehouse"} if not is_reader_setting(each)} == set()
    assert not any(is_reader_setting(each) for each in HONEST)
