"""Namespaces over the Iceberg REST protocol: answers, and errors with their status, type and message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm.model.role import Role
from tests.support.catalog.http import Lake, lake_at, namespace_path, refusal


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_at(tmp_path) as made:
        yield made


def test_the_configuration_lists_every_route_that_is_served_and_no_other(lake: Lake) -> None:
    from pvdm.steward.http.roles import RULES

    answer = lake.caller().done("GET", "/config")
    served = {
        f"{method} {path.removeprefix('/catalog').replace('/v1/', '/v1/{prefix}/')}"
        for method, path in RULES
        if path.startswith("/catalog/v1/") and "oauth" not in path and not path.endswith("/config")
    }
    assert set(answer["endpoints"]) == served


def test_the_configuration_turns_off_the_token_exchange_of_javas_client(lake: Lake) -> None:
    assert lake.caller().done("GET", "/config")["overrides"] == {"token-exchange-enabled": "false"}


def test_the_configuration_of_another_warehouse_is_refused(lake: Lake) -> None:
    assert refusal(lake.caller().ask("GET", "/config", params={"warehouse": "other"})) == (404, "NotFoundException")
    lake.caller().done("GET", "/config", params={"warehouse": "lake"})


def test_a_new_namespace_is_found_with_its_properties(lake: Lake) -> None:
    caller = lake.caller()
    caller.done("POST", "/namespaces", json={"namespace": ["hr"], "properties": {"owner": "ruth"}})
    properties = {"owner": "ruth", "pvdm.domain": "*"}
    assert caller.done("GET", "/namespaces/hr") == {"namespace": ["hr"], "properties": properties}


def test_creating_a_namespace_again_is_a_conflict(lake: Lake) -> None:
    response = lake.caller().ask("POST", "/namespaces", json={"namespace": ["sales"]})
    assert refusal(response) == (409, "AlreadyExistsException")
    assert response.json()["error"]["message"].startswith("Namespace already exists: sales")


def test_a_missing_namespace_is_reported_as_unknown(lake: Lake) -> None:
    response = lake.caller().ask("GET", "/namespaces/none")
    assert refusal(response) == (404, "NoSuchNamespaceException")
    assert response.json()["error"]["message"] == "Namespace does not exist: none"


def test_exists_answers_without_a_body(lake: Lake) -> None:
    found, missing = lake.caller().ask("HEAD", "/namespaces/sales"), lake.caller().ask("HEAD", "/namespaces/none")
    assert (found.status_code, missing.status_code, found.content, missing.content) == (204, 404, b"", b"")


def test_names_with_dots_slashes_and_percent_signs_do_not_collide(lake: Lake) -> None:
    caller = lake.caller()
    caller.done("POST", "/namespaces", json={"namespace": ["a"]})
    for levels in (["a.b"], ["a/b"], ["a%2Fb"], ["a b"], ["a+b"], ["a", "b"]):
        caller.done("POST", "/namespaces", json={"namespace": levels})
    for levels in (["a.b"], ["a/b"], ["a%2Fb"], ["a b"], ["a+b"], ["a", "b"]):
        assert caller.done("GET", f"/namespaces/{namespace_path(*levels)}")["namespace"] == levels


def test_a_plus_sign_in_a_path_is_a_space_as_java_sends_it(lake: Lake) -> None:
    lake.caller().done("POST", "/namespaces", json={"namespace": ["a b"]})
    assert lake.caller().done("GET", "/namespaces/a+b")["namespace"] == ["a b"]


def test_a_nested_namespace_is_listed_under_its_parent_only(lake: Lake) -> None:
    caller = lake.caller()
    caller.done("POST", "/namespaces", json={"namespace": ["sales", "eu"]})
    assert caller.done("GET", "/namespaces")["namespaces"] == [["sales"]]
    inside = caller.done("GET", "/namespaces", params={"parent": "sales"})
    assert inside["namespaces"] == [["sales", "eu"]]


def test_a_nested_namespace_needs_its_parent(lake: Lake) -> None:
    response = lake.caller().ask("POST", "/namespaces", json={"namespace": ["none", "eu"]})
    assert refusal(response) == (404, "NoSuchNamespaceException")


def test_pages_of_namespaces_show_each_once(lake: Lake) -> None:
    caller = lake.caller()
    for number in range(7):
        caller.done("POST", "/namespaces", json={"namespace": [f"n{number}"]})
    seen, token, pages = [], "", 0
    while token is not None:
        page = caller.done("GET", "/namespaces", params={"pageToken": token, "pageSize": "3"})
        assert len(page["namespaces"]) <= 3
        seen += page["namespaces"]
        token, pages = page.get("next-page-token"), pages + 1
    assert (sorted(seen), pages) == ([*([f"n{number}"] for number in range(7)), ["sales"]], 3)


def test_an_unknown_page_token_is_refused(lake: Lake) -> None:
    for token in ("%%%", "e30", "MTI", "WzFd" * 5000):
        response = lake.caller().ask("GET", "/namespaces", params={"pageToken": token, "pageSize": "3"})
        assert refusal(response) == (400, "BadRequestException"), token[:8]


def test_properties_are_set_and_removed_and_missing_ones_reported(lake: Lake) -> None:
    caller = lake.caller()
    caller.done("POST", "/namespaces", json={"namespace": ["hr"], "properties": {"a": "1", "b": "2"}})
    body = {"updates": {"c": "3"}, "removals": ["a", "z"]}
    assert caller.done("POST", "/namespaces/hr/properties", json=body) == {
        "updated": ["c"],
        "removed": ["a"],
        "missing": ["z"],
    }
    assert caller.done("GET", "/namespaces/hr")["properties"] == {"b": "2", "c": "3", "pvdm.domain": "*"}


def test_a_property_in_updates_and_removals_is_unprocessable(lake: Lake) -> None:
    body = {"updates": {"c": "3"}, "removals": ["c"]}
    response = lake.caller().ask("POST", "/namespaces/sales/properties", json=body)
    assert refusal(response) == (422, "UnprocessableEntityException")


def test_a_namespace_that_is_not_empty_is_not_dropped(lake: Lake) -> None:
    caller = lake.caller()
    caller.make("t")
    assert refusal(caller.ask("DELETE", "/namespaces/sales")) == (409, "NamespaceNotEmptyException")
    caller.done("DELETE", "/namespaces/sales/tables/t")
    assert caller.ask("DELETE", "/namespaces/sales").status_code == 204


def test_another_domains_namespace_is_neither_listed_nor_shown_nor_changed(lake: Lake) -> None:
    other = lake.caller(Role.PRODUCER, "risk")
    assert other.done("GET", "/namespaces")["namespaces"] == []
    assert refusal(other.ask("GET", "/namespaces/sales")) == (403, "ForbiddenException")
    assert refusal(other.ask("DELETE", "/namespaces/sales")) == (403, "ForbiddenException")
    response = other.ask("POST", "/namespaces/sales/properties", json={"updates": {"a": "b"}})
    assert refusal(response) == (403, "ForbiddenException")


@pytest.mark.parametrize(
    ("body", "got"), [({"updates": {"pvdm.domain": "risk"}}, "'risk'"), ({"removals": ["pvdm.domain"]}, "its removal")]
)
def test_the_domain_of_a_namespace_cannot_change(lake: Lake, body: dict[str, Any], got: str) -> None:
    response = lake.caller().ask("POST", "/namespaces/sales/properties", json=body)
    assert refusal(response) == (403, "ForbiddenException")
    assert f"the domain of a namespace cannot change: expected sales, got {got}" in response.json()["error"]["message"]
    assert lake.caller().done("GET", "/namespaces/sales")["properties"] == {"pvdm.domain": "sales"}


def test_a_namespaces_own_domain_may_be_set_again(lake: Lake) -> None:
    body = {"updates": {"pvdm.domain": "sales"}}
    assert lake.caller().done("POST", "/namespaces/sales/properties", json=body)["updated"] == ["pvdm.domain"]


@pytest.mark.parametrize("levels", [["mine"], ["sales", "eu"]])
def test_a_namespace_shows_its_domain_if_none_was_given(lake: Lake, levels: list[str]) -> None:
    producer = lake.caller(Role.PRODUCER, "sales")
    made = producer.done("POST", "/namespaces", json={"namespace": levels, "properties": {"a": "1"}})
    found = lake.caller(Role.CONSUMER, "sales").done("GET", f"/namespaces/{namespace_path(*levels)}")
    assert made["properties"] == found["properties"] == {"a": "1", "pvdm.domain": "sales"}


def test_a_producer_can_create_namespaces_in_its_own_domain_only(lake: Lake) -> None:
    producer = lake.caller(Role.PRODUCER, "risk")
    body = {"namespace": ["mine"], "properties": {"pvdm.domain": "sales"}}
    response = producer.ask("POST", "/namespaces", json=body)
    assert refusal(response) == (403, "ForbiddenException")
    assert "expected risk, got 'sales'" in response.json()["error"]["message"]
    response = producer.ask("POST", "/namespaces", json={"namespace": ["sales", "x"]})
    assert refusal(response) == (403, "ForbiddenException")
    producer.done("POST", "/namespaces", json={"namespace": ["mine"]})
    assert refusal(lake.caller(Role.AUDITOR, "sales").ask("GET", "/namespaces/mine")) == (403, "ForbiddenException")


def view_named(name: str) -> dict[str, Any]:
    schema = {"type": "struct", "schema-id": 0, "fields": []}
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["sales"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    }
    return {"name": name, "schema": schema, "view-version": version, "properties": {}}


@pytest.mark.parametrize("kind", ["tables", "views"])
def test_no_namespace_has_the_name_of_a_table_or_view(lake: Lake, kind: str) -> None:
    """Spark would read `sales.t.branch_main` as a table of that namespace, and not as the branch of the table."""
    producer = lake.caller(Role.PRODUCER, "sales")
    if kind == "tables":
        producer.make("t")
    else:
        producer.done("POST", "/namespaces/sales/views", json=view_named("t"))
    response = producer.ask("POST", "/namespaces", json={"namespace": ["sales", "t"]})
    assert refusal(response) == (409, "AlreadyExistsException")
    assert "with same name already exists" in response.json()["error"]["message"]
    producer.done("DELETE", f"/namespaces/sales/{kind}/t")
    producer.done("POST", "/namespaces", json={"namespace": ["sales", "t"]})


def test_no_table_or_view_gets_the_name_of_a_namespace(lake: Lake) -> None:
    producer = lake.caller(Role.PRODUCER, "sales")
    producer.make("t")
    producer.done("POST", "/namespaces/sales/views", json=view_named("v"))
    producer.done("POST", "/namespaces", json={"namespace": ["sales", "eu"]})
    schema = {"type": "struct", "fields": []}
    target = {"namespace": ["sales"], "name": "eu"}
    for path, body in (
        ("/namespaces/sales/tables", {"name": "eu", "schema": schema}),
        ("/namespaces/sales/views", view_named("eu")),
        ("/tables/rename", {"source": {"namespace": ["sales"], "name": "t"}, "destination": target}),
        ("/views/rename", {"source": {"namespace": ["sales"], "name": "v"}, "destination": target}),
    ):
        response = producer.ask("POST", path, json=body)
        assert refusal(response) == (409, "AlreadyExistsException"), path
        assert response.json()["error"]["message"].startswith("Namespace with same name already exists"), path


def test_only_an_operator_can_drop_a_protected_namespace(lake: Lake) -> None:
    lake.protect_namespace("sales")
    producer = lake.caller(Role.PRODUCER, "sales")
    assert refusal(producer.ask("DELETE", "/namespaces/sales")) == (403, "ForbiddenException")
    assert lake.caller().ask("DELETE", "/namespaces/sales").status_code == 204


def test_a_namespace_inside_a_protected_one_is_protected_too(lake: Lake) -> None:
    lake.protect_namespace("sales")
    producer = lake.caller(Role.PRODUCER, "sales")
    producer.done("POST", "/namespaces", json={"namespace": ["sales", "eu"]})
    place = f"/namespaces/{namespace_path('sales', 'eu')}/tables"
    producer.done("POST", place, json={"name": "t", "schema": {"type": "struct", "fields": []}})
    assert refusal(producer.ask("DELETE", f"{place}/t")) == (403, "ForbiddenException")


def test_an_unknown_path_of_the_catalog_is_refused_with_icebergs_error_types(lake: Lake) -> None:
    assert refusal(lake.caller().ask("GET", "/nothing")) == (404, "NotFoundException")
    assert refusal(lake.caller().ask("PATCH", "/namespaces/sales")) == (405, "UnsupportedOperationException")
    assert refusal(lake.steward.http.get("/catalog/v1/config")) == (401, "NotAuthorizedException")
