"""The OAuth2 endpoint as Iceberg's Java and Python clients use it, and RFC 6749's words for what is refused."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pvdm.model.role import Role
from tests.support.steward.http import Served, bearer, limited, served

PATH = "/catalog/v1/oauth/tokens"
GRANT = {"grant_type": "client_credentials", "scope": "catalog"}


@pytest.fixture(scope="module")
def steward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("oauth"), changed=limited(body_max_bytes=5_000)) as made:
        yield made


@pytest.fixture(scope="module")
def credential(steward: Served) -> tuple[str, str]:
    text, grant = steward.stand.token(Role.PRODUCER, "sales", "job")
    return grant.token_id, text


def basic(client_id: str, secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()}


def identity(steward: Served, response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    told: dict[str, Any] = steward.http.get("/v1/identity", headers=bearer(response.json()["access_token"])).json()
    return told


def refused(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error", "error_description"}
    return response.status_code, response.json()["error"]


def test_client_id_and_secret_in_the_form_give_a_short_lived_token(
    steward: Served, credential: tuple[str, str]
) -> None:
    response = steward.http.post(PATH, data={**GRANT, "client_id": credential[0], "client_secret": credential[1]})
    told = response.json()
    assert {name: told[name] for name in ("token_type", "issued_token_type", "expires_in")} == {
        "token_type": "bearer",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "expires_in": 3_600,
    }
    assert told["access_token"] != credential[1]
    assert response.headers["cache-control"] == "no-store"


def test_client_id_and_secret_in_the_header_do_as_well(steward: Served, credential: tuple[str, str]) -> None:
    response = steward.http.post(PATH, data=GRANT, headers=basic(*credential))
    found = identity(steward, response)
    assert (found["role"], found["domain"], found["name"]) == ("producer", "sales", "job")


def test_a_secret_alone_is_enough_as_in_a_credential_without_a_colon(
    steward: Served, credential: tuple[str, str]
) -> None:
    response = steward.http.post(PATH, data={**GRANT, "client_secret": credential[1]})
    assert identity(steward, response)["domain"] == "sales"


def test_form_and_header_together_are_taken_if_they_agree(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": credential[1]}
    assert steward.http.post(PATH, data=form, headers=basic(*credential)).status_code == 200


def test_form_and_header_that_name_different_clients_are_refused(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": "pvdm_other"}
    assert refused(steward.http.post(PATH, data=form, headers=basic(*credential))) == (400, "invalid_request")


def test_an_old_bearer_token_beside_the_form_is_passed_over(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": credential[1]}
    assert steward.http.post(PATH, data=form, headers=bearer("pvdm_expired_long_ago")).status_code == 200


def test_fields_that_others_know_are_passed_over(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": credential[1], "audience": "x", "resource": "y"}
    assert steward.http.post(PATH, data=form).status_code == 200


def test_the_new_token_ends_with_the_one_it_came_from(steward: Served) -> None:
    text, grant = steward.stand.token(Role.PRODUCER, "sales", "job")
    made = steward.http.post(PATH, data={**GRANT, "client_id": grant.token_id, "client_secret": text}).json()
    steward.stand.notary.access.revoke(grant.token_id)
    answer = steward.http.get("/v1/identity", headers=bearer(made["access_token"]))
    assert answer.status_code == 401


def test_a_short_lived_token_makes_no_further_tokens(steward: Served, credential: tuple[str, str]) -> None:
    made = steward.http.post(PATH, data=GRANT, headers=basic(*credential)).json()["access_token"]
    assert refused(steward.http.post(PATH, data={**GRANT, "client_secret": made})) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    "given",
    [
        {"client_id": "right", "client_secret": "pvdm_wrong"},
        {"client_id": "wrong", "client_secret": "right"},
        {"client_id": "right"},
        {"client_id": "right", "client_secret": ""},
        {"client_id": "right", "client_secret": "x" * 1_000},
        {"client_id": "right", "client_secret": "é"},
        {"client_id": "right", "client_secret": "\x00"},
        {},
    ],
)
def test_a_client_that_does_not_prove_itself_is_refused(
    steward: Served, credential: tuple[str, str], given: dict[str, str]
) -> None:
    right = {"client_id": credential[0], "client_secret": credential[1]}
    form = {name: right[name] if value == "right" else value for name, value in given.items()}
    response = steward.http.post(PATH, data={**GRANT, **form})
    assert refused(response) == (401, "invalid_client")
    assert "www-authenticate" in response.headers


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic bm9jb2xvbg==", "Basic Og==", "Basic /w=="])
def test_a_header_that_proves_nothing_is_refused(steward: Served, header: str) -> None:
    response = steward.http.post(PATH, data=GRANT, headers={"authorization": header})
    assert refused(response) == (401, "invalid_client")


EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@pytest.mark.parametrize("grant_type", [EXCHANGE, "refresh_token", "password", "", "CLIENT_CREDENTIALS"])
def test_another_grant_type_is_refused_cleanly(steward: Served, credential: tuple[str, str], grant_type: str) -> None:
    form = {"grant_type": grant_type, "subject_token": "x", "subject_token_type": "y"}
    response = steward.http.post(PATH, data=form, headers=basic(*credential))
    assert refused(response) == (400, "unsupported_grant_type")


def test_the_refusal_of_a_token_exchange_names_the_clients_setting(steward: Served) -> None:
    response = steward.http.post(PATH, data={"grant_type": EXCHANGE})
    assert "token-exchange-enabled=false" in response.json()["error_description"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"scope=catalog",
        b"grant_type=client_credentials&grant_type=client_credentials",
        b"grant_type=client_credentials&client_secret=a&client_secret=b",
        b"grant_type=client_credentials&client_secret=%ff",
        b"grant_type=\xff",
        b"&".join([b"grant_type=client_credentials", *(b"a%d=1" % number for number in range(100))]),
    ],
)
def test_a_malformed_form_is_refused(steward: Served, body: bytes) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert refused(steward.http.post(PATH, content=body, headers=headers)) == (400, "invalid_request")


def test_json_instead_of_a_form_is_refused(steward: Served) -> None:
    assert refused(steward.http.post(PATH, json=GRANT)) == (415, "invalid_request")


def test_a_form_that_is_too_large_is_refused(steward: Served) -> None:
    assert refused(steward.http.post(PATH, data={**GRANT, "more": "x" * 5_000})) == (413, "invalid_request")


def test_another_method_is_refused_in_the_same_words(steward: Served) -> None:
    response = steward.http.get(PATH)
    assert refused(response) == (405, "invalid_request")
    assert response.headers["allow"] == "POST"


def test_no_token_is_made_while_the_clock_cannot_be_trusted(steward: Served, credential: tuple[str, str]) -> None:
    steward.stand.time.jump(400 * 86_400_000_000)
    try:
        response = steward.http.post(PATH, data=GRANT, headers=basic(*credential))
        assert refused(response) == (503, "temporarily_unavailable")
        assert "retry-after" in response.headers
    finally:
        steward.stand.time.jump(-400 * 86_400_000_000)
        steward.stand.notary.clock.confirm(operator="test", reason="back")


def test_no_secret_stands_in_a_refusal(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": "other", "client_secret": credential[1]}
    assert credential[1] not in steward.http.post(PATH, data=form).text
