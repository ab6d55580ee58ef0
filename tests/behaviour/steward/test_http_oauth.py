"""The OAuth2 endpoint as Iceberg's Java and Python clients use it, with the error codes of RFC 6749."""

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


def basic_header(client_id: str, secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()}


def identity_of(steward: Served, response: httpx.Response) -> dict[str, Any]:
    """What the Steward says about the token in this response."""
    assert response.status_code == 200, response.text
    identity: dict[str, Any] = steward.http.get("/v1/identity", headers=bearer(response.json()["access_token"])).json()
    return identity


def refusal_of(response: httpx.Response) -> tuple[int, str]:
    """Status and OAuth error code."""
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error", "error_description"}
    return response.status_code, response.json()["error"]


def test_client_id_and_secret_in_the_form_give_a_short_lived_token(
    steward: Served, credential: tuple[str, str]
) -> None:
    response = steward.http.post(PATH, data={**GRANT, "client_id": credential[0], "client_secret": credential[1]})
    answer = response.json()
    assert {name: answer[name] for name in ("token_type", "issued_token_type", "expires_in")} == {
        "token_type": "bearer",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "expires_in": 3_600,
    }
    assert answer["access_token"] != credential[1]
    assert response.headers["cache-control"] == "no-store"


def test_client_id_and_secret_in_the_header_give_a_token_too(steward: Served, credential: tuple[str, str]) -> None:
    response = steward.http.post(PATH, data=GRANT, headers=basic_header(*credential))
    found = identity_of(steward, response)
    assert (found["role"], found["domain"], found["name"]) == ("producer", "sales", "job")


def test_a_secret_without_a_client_id_is_enough(steward: Served, credential: tuple[str, str]) -> None:
    response = steward.http.post(PATH, data={**GRANT, "client_secret": credential[1]})
    assert identity_of(steward, response)["domain"] == "sales"


def test_form_and_header_together_are_accepted_if_they_agree(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": credential[1]}
    assert steward.http.post(PATH, data=form, headers=basic_header(*credential)).status_code == 200


def test_form_and_header_that_name_different_clients_are_refused(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": "pvdm_other"}
    assert refusal_of(steward.http.post(PATH, data=form, headers=basic_header(*credential))) == (400, "invalid_request")


def test_an_old_bearer_token_beside_the_form_is_ignored(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": credential[1]}
    assert steward.http.post(PATH, data=form, headers=bearer("pvdm_expired_long_ago")).status_code == 200


def test_other_fields_of_the_form_are_ignored(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": credential[0], "client_secret": credential[1], "audience": "x", "resource": "y"}
    assert steward.http.post(PATH, data=form).status_code == 200


def test_the_new_token_ends_with_its_parent(steward: Served) -> None:
    text, grant = steward.stand.token(Role.PRODUCER, "sales", "job")
    issued = steward.http.post(PATH, data={**GRANT, "client_id": grant.token_id, "client_secret": text}).json()
    steward.stand.notary.access.revoke(grant.token_id)
    answer = steward.http.get("/v1/identity", headers=bearer(issued["access_token"]))
    assert answer.status_code == 401


def test_a_short_lived_token_cannot_be_exchanged(steward: Served, credential: tuple[str, str]) -> None:
    derived = steward.http.post(PATH, data=GRANT, headers=basic_header(*credential)).json()["access_token"]
    assert refusal_of(steward.http.post(PATH, data={**GRANT, "client_secret": derived})) == (400, "unauthorized_client")


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
def test_a_client_with_wrong_or_missing_credentials_is_refused(
    steward: Served, credential: tuple[str, str], given: dict[str, str]
) -> None:
    right = {"client_id": credential[0], "client_secret": credential[1]}
    form = {name: right[name] if value == "right" else value for name, value in given.items()}
    response = steward.http.post(PATH, data={**GRANT, **form})
    assert refusal_of(response) == (401, "invalid_client")
    assert "www-authenticate" in response.headers


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic bm9jb2xvbg==", "Basic Og==", "Basic /w=="])
def test_a_header_without_valid_credentials_is_refused(steward: Served, header: str) -> None:
    response = steward.http.post(PATH, data=GRANT, headers={"authorization": header})
    assert refusal_of(response) == (401, "invalid_client")


EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@pytest.mark.parametrize("grant_type", [EXCHANGE, "refresh_token", "password", "", "CLIENT_CREDENTIALS"])
def test_another_grant_type_is_refused(steward: Served, credential: tuple[str, str], grant_type: str) -> None:
    form = {"grant_type": grant_type, "subject_token": "x", "subject_token_type": "y"}
    response = steward.http.post(PATH, data=form, headers=basic_header(*credential))
    assert refusal_of(response) == (400, "unsupported_grant_type")


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
    assert refusal_of(steward.http.post(PATH, content=body, headers=headers)) == (400, "invalid_request")


def test_json_instead_of_a_form_is_refused(steward: Served) -> None:
    assert refusal_of(steward.http.post(PATH, json=GRANT)) == (415, "invalid_request")


def test_a_form_that_is_too_large_is_refused(steward: Served) -> None:
    assert refusal_of(steward.http.post(PATH, data={**GRANT, "more": "x" * 5_000})) == (413, "invalid_request")


def test_another_method_is_refused_in_the_form_of_oauth(steward: Served) -> None:
    response = steward.http.get(PATH)
    assert refusal_of(response) == (405, "invalid_request")
    assert response.headers["allow"] == "POST"


def test_no_token_is_issued_after_a_clock_jump(steward: Served, credential: tuple[str, str]) -> None:
    steward.stand.time.jump(400 * 86_400_000_000)
    try:
        response = steward.http.post(PATH, data=GRANT, headers=basic_header(*credential))
        assert refusal_of(response) == (503, "temporarily_unavailable")
        assert "retry-after" in response.headers
    finally:
        steward.stand.time.jump(-400 * 86_400_000_000)
        steward.stand.notary.clock.confirm(operator="test", reason="back")


def test_a_refusal_does_not_contain_the_secret(steward: Served, credential: tuple[str, str]) -> None:
    form = {**GRANT, "client_id": "other", "client_secret": credential[1]}
    assert credential[1] not in steward.http.post(PATH, data=form).text
