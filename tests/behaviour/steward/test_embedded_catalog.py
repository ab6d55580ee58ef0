"""The catalog of an embedded Steward: served on loopback from files in the folder, to engines that borrow tokens."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import pvdm
from pvdm.api.service import Identity, ServedCatalog
from pvdm.client import AccessToken, LentToken
from pvdm.errors import InputError, NotAllowedError, PvdmError
from pvdm.model.role import Role
from pvdm.steward import access
from pvdm.steward.embedded.embedded import EmbeddedSteward
from pvdm.steward.logs import LOGGER

DAY = 86_400


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[EmbeddedSteward]:
    with pvdm.Steward.embedded(tmp_path / "steward") as made:
        yield made


def reason_of(work: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        work()
    return caught.value.reason


def send(steward: EmbeddedSteward, token: AccessToken, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token.text}"}
    return httpx.request(method, f"{steward.url}/catalog/v1{path}", headers=headers, trust_env=False, **options)


def identity_of(steward: EmbeddedSteward, token: AccessToken) -> Identity:
    with steward.with_token(token) as client:
        return client.identity()


def create_table(steward: EmbeddedSteward) -> str:
    """Create a table; returns the path of its folder."""
    token = steward.token_for(Role.PRODUCER, "sales")
    assert send(steward, token, "POST", "/namespaces", json={"namespace": ["sales"]}).status_code == 200
    column = {"id": 1, "name": "id", "required": True, "type": "long"}
    body = {"name": "t", "schema": {"type": "struct", "schema-id": 0, "fields": [column]}}
    answer = send(steward, token, "POST", "/namespaces/sales/tables", json=body).json()
    location: str = answer["metadata"]["location"]
    assert Path(answer["metadata-location"].removeprefix("file://")).is_relative_to(steward.folder / "catalog")
    return location.removeprefix("file://")


def test_tables_are_in_the_warehouse_folder_and_metadata_files_in_the_catalog_folder(steward: EmbeddedSteward) -> None:
    assert Path(create_table(steward)).is_relative_to(steward.folder / "warehouse")


def test_the_catalog_refuses_a_request_without_a_token(steward: EmbeddedSteward) -> None:
    answer = httpx.get(f"{steward.url}/catalog/v1/namespaces", trust_env=False)
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "NotAuthorizedException")


def test_info_names_the_catalog_that_is_served(steward: EmbeddedSteward) -> None:
    assert steward.info().catalog == ServedCatalog(name="lake", warehouse=f"file://{steward.folder}/warehouse")


def test_the_log_line_of_the_start_names_the_catalog_that_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER.name), pvdm.Steward.embedded(tmp_path / "steward") as steward:
        (started,) = [json.loads(record.getMessage()) for record in caplog.records if "started" in record.getMessage()]
    assert (started["catalog"], started["warehouse"]) == ("lake", f"file://{steward.folder}/warehouse")


def test_a_session_in_an_unknown_role_is_refused_and_the_roles_listed(steward: EmbeddedSteward) -> None:
    with pytest.raises(InputError, match=r"expected .*producer.* got 'reader'") as caught:
        pvdm.spark_session(steward, "reader", "sales")
    assert caught.value.reason == "role_invalid"


def test_a_folder_without_a_catalog_in_its_configuration_serves_one_and_keeps_its_tables(tmp_path: Path) -> None:
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        assert "[catalog]" not in steward.config.read_text()
        create_table(steward)
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        token = steward.token_for(Role.CONSUMER, "sales")
        assert send(steward, token, "GET", "/namespaces/sales/tables/t").status_code == 200


def test_a_folder_that_would_serve_other_machines_is_not_opened(tmp_path: Path) -> None:
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        config = steward.config
    text = config.read_text().replace('host = "127.0.0.1"', 'host = "0.0.0.0"\ntls_certificate = "c"\ntls_key = "k"')
    config.write_text(text)
    assert reason_of(lambda: pvdm.Steward.embedded(tmp_path / "steward")) == "embedded_not_loopback"


def test_a_lent_token_has_the_wanted_role_and_is_lent_again_for_the_same_role(steward: EmbeddedSteward) -> None:
    lent = steward.lend(Role.CONSUMER, "sales")
    assert steward.lend(Role.CONSUMER, "sales") is lent
    assert steward.lend(Role.CONSUMER, "risk") is not lent
    found = identity_of(steward, lent.token)
    assert (found.role, found.domain, found.token_id) == (Role.CONSUMER, "sales", lent.token_id)


def test_a_token_that_is_lent_without_a_role_is_an_operators(steward: EmbeddedSteward) -> None:
    found = identity_of(steward, steward.lend().token)
    assert (found.role, found.domain) == (Role.OPERATOR, "*")


def test_a_lent_token_outlasts_a_day_and_ends_with_the_steward(tmp_path: Path) -> None:
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        lent = steward.lend(Role.PRODUCER, "sales")
        now = steward._notary.clock.now_micros()
        assert identity_of(steward, lent.token).expires_at - now > 300 * DAY * 1_000_000
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        assert reason_of(lambda: identity_of(steward, lent.token)) == "token_revoked"


def lend_from_client(steward: EmbeddedSteward, token: AccessToken) -> LentToken:
    """What a client with this token lends to an engine."""
    with pvdm.Steward.connect(steward.url, token) as client:
        return client.lend()


def test_a_client_lends_its_own_token_with_its_id(steward: EmbeddedSteward) -> None:
    token = steward.token_for(Role.PRODUCER, "sales")
    lent = lend_from_client(steward, token)
    assert (lent.token.text, lent.token_id) == (token.text, identity_of(steward, token).token_id)


def test_a_short_lived_token_is_lent_without_its_id_because_it_cannot_be_exchanged(steward: EmbeddedSteward) -> None:
    parent = steward.lend(Role.PRODUCER, "sales")
    assert parent.token_id is not None
    short = steward.exchange(parent.token_id, parent.token).access_token
    assert lend_from_client(steward, short).token_id is None


def test_a_client_lends_no_role_and_no_domain_but_its_own(steward: EmbeddedSteward) -> None:
    with pvdm.Steward.connect(steward.url, steward.token_for(Role.CONSUMER, "sales")) as client:
        assert client.lend(Role.CONSUMER, "sales").token_id is not None
        assert reason_of(lambda: client.lend(Role.PRODUCER)) == "lent_role_wrong"
        assert reason_of(lambda: client.lend(domain="risk")) == "lent_role_wrong"


def test_a_failed_token_exchange_is_reported(steward: EmbeddedSteward, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise NotAllowedError("token_revoked", "the token was revoked, or replaced by a rotation")

    token = steward.token_for(Role.CONSUMER)
    monkeypatch.setattr(access.Access, "exchange", refuse)
    assert reason_of(lambda: lend_from_client(steward, token)) == "token_exchange_refused"
