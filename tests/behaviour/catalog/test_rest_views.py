"""Views over the Iceberg REST protocol: create, load, list, replace, register, rename and drop, and their refusals."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm.ledger import Unit
from pvdm.ledger.catalog import views
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.http import SCHEMA, Caller, Lake, lake_at, metadata_document, namespace_path, refusal
from tests.support.catalog.views import document, query, replaced, request
from tests.support.lake.metadata import UUID

V = "/namespaces/sales/views/v"
VIEWS = "/namespaces/sales/views"
REGISTER = "/namespaces/sales/register-view"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_at(tmp_path) as made:
        made.caller().done("POST", "/namespaces", json={"namespace": ["risk"], "properties": {"pvdm.domain": "risk"}})
        yield made


def producer(lake: Lake, domain: str = "sales") -> Caller:
    return lake.caller(Role.PRODUCER, domain)


def make(caller: Caller, name: str = "v", namespace: str = "sales", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = caller.done("POST", f"/namespaces/{namespace}/views", json=request(name, **more))
    return made


def replace(caller: Caller, *updates: Any, name: str = "v", **more: Any) -> httpx.Response:
    options = {key: more.pop(key) for key in ("headers",) if key in more}
    body = {"updates": list(updates) or replaced(), **more}
    return caller.ask("POST", f"{VIEWS}/{name}", json=body, **options)


def rename(caller: Caller, source: str, target: str, *, to: str = "sales") -> httpx.Response:
    body = {
        "source": {"namespace": ["sales"], "name": source},
        "destination": {"namespace": [to], "name": target},
    }
    return caller.ask("POST", "/views/rename", json=body)


def message(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


def test_a_new_view_is_loaded_as_it_was_created(lake: Lake) -> None:
    made = make(producer(lake), properties={"comment": "by week"})
    assert lake.caller(Role.CONSUMER, "sales").done("GET", V) == made
    assert made["metadata"]["properties"] == {"comment": "by week"}
    assert made["metadata"]["versions"] == [request()["view-version"]]


def test_the_file_that_the_answer_names_holds_the_document_of_the_answer(lake: Lake) -> None:
    made = make(producer(lake))
    assert metadata_document(made) == made["metadata"]
    assert Path(made["metadata-location"].removeprefix("file://")).is_relative_to(lake.folder / "catalog")


def test_a_view_lies_in_its_namespaces_folder_or_at_the_given_location(lake: Lake) -> None:
    assert make(producer(lake))["metadata"]["location"].startswith(f"file://{lake.folder}/warehouse/sales/v-")
    place = f"file://{lake.folder}/warehouse/sales/mine"
    assert make(producer(lake), "w", location=place)["metadata"]["location"] == place
    elsewhere = request("x", location=f"file://{lake.folder}/warehouse/risk/mine")
    assert refusal(producer(lake).ask("POST", VIEWS, json=elsewhere)) == (403, "ForbiddenException")


def test_a_missing_view_is_reported_as_unknown(lake: Lake) -> None:
    response = lake.caller().ask("GET", V)
    assert refusal(response) == (404, "NoSuchViewException")
    assert message(response) == "View does not exist: sales.v"
    assert [lake.caller().ask(method, V).status_code for method in ("HEAD", "DELETE")] == [404, 404]
    assert refusal(replace(lake.caller())) == (404, "NoSuchViewException")
    assert refusal(rename(lake.caller(), "v", "w")) == (404, "NoSuchViewException")


def test_a_view_of_a_missing_namespace_is_unknown_and_cannot_be_created(lake: Lake) -> None:
    assert refusal(lake.caller().ask("GET", "/namespaces/none/views/v")) == (404, "NoSuchViewException")
    response = lake.caller().ask("POST", "/namespaces/none/views", json=request())
    assert refusal(response) == (404, "NoSuchNamespaceException")
    assert refusal(lake.caller().ask("GET", "/namespaces/none/views")) == (404, "NoSuchNamespaceException")


def test_an_existing_view_is_reported_as_existing(lake: Lake) -> None:
    make(producer(lake))
    assert lake.caller(Role.CONSUMER, "sales").ask("HEAD", V).status_code == 204


def test_pages_of_views_show_each_once_and_no_table(lake: Lake) -> None:
    names = [f"v{number}" for number in range(5)]
    for name in names:
        make(producer(lake), name)
    lake.caller().make("v2-table")
    seen, token = [], ""
    while token is not None:
        page = lake.caller().done("GET", VIEWS, params={"pageToken": token, "pageSize": "2"})
        seen += [each["name"] for each in page["identifiers"]]
        token = page.get("next-page-token")
    assert seen == names
    assert len(lake.caller().done("GET", VIEWS)["identifiers"]) == 5
    assert [each["name"] for each in lake.caller().done("GET", "/namespaces/sales/tables")["identifiers"]] == [
        "v2-table"
    ]


def test_a_name_with_slashes_and_dots_is_allowed_and_stays_in_its_folder(lake: Lake) -> None:
    make(producer(lake), "../a/b.c?d")
    found = lake.caller().done("GET", f"{VIEWS}/{namespace_path('../a/b.c?d')}")
    assert found["metadata"]["location"].startswith(f"file://{lake.folder}/warehouse/sales/")


def test_creating_a_view_again_is_a_conflict(lake: Lake) -> None:
    make(producer(lake))
    response = lake.caller().ask("POST", VIEWS, json=request())
    assert refusal(response) == (409, "AlreadyExistsException")
    assert message(response) == "View already exists: sales.v"


def test_creating_a_view_under_a_tables_name_is_a_conflict(lake: Lake) -> None:
    lake.caller().make("v")
    response = lake.caller().ask("POST", VIEWS, json=request())
    assert refusal(response) == (409, "AlreadyExistsException")
    assert message(response) == "Table with same name already exists: sales.v"


def test_creating_a_table_under_a_views_name_is_a_conflict(lake: Lake) -> None:
    make(producer(lake))
    response = lake.caller().ask("POST", "/namespaces/sales/tables", json={"name": "v", "schema": SCHEMA})
    assert refusal(response) == (409, "AlreadyExistsException")
    assert message(response) == "View with same name already exists: sales.v"
    assert lake.caller().ask("HEAD", "/namespaces/sales/tables/v").status_code == 404


def test_committing_a_staged_table_under_a_views_name_is_a_conflict(lake: Lake) -> None:
    asked = {"name": "v", "schema": SCHEMA, "stage-create": True}
    staged = lake.caller().done("POST", "/namespaces/sales/tables", json=asked)["metadata"]
    make(producer(lake))
    updates = [
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    response = lake.caller().commit("v", updates, [{"type": "assert-create"}])
    assert refusal(response) == (409, "AlreadyExistsException")
    assert message(response).startswith("View with same name already exists: sales.v")


def test_a_table_is_not_a_view_and_a_view_not_a_table(lake: Lake) -> None:
    make(producer(lake))
    lake.caller().make("t")
    assert refusal(lake.caller().ask("GET", "/namespaces/sales/tables/v")) == (404, "NoSuchTableException")
    assert refusal(lake.caller().ask("GET", f"{VIEWS}/t")) == (404, "NoSuchViewException")


def test_a_namespace_with_a_view_is_not_dropped(lake: Lake) -> None:
    make(producer(lake))
    assert refusal(lake.caller().ask("DELETE", "/namespaces/sales")) == (409, "NamespaceNotEmptyException")
    lake.caller().done("DELETE", V)
    lake.caller().done("DELETE", "/namespaces/sales")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (request("v", query("a"), query("b")), "IllegalArgumentException"),
        (request("v", {"type": "graph"}), "ValidationException"),
        (request(""), "BadRequestException"),
        ({"name": "v"}, "BadRequestException"),
        (request(location="file:///../x"), "BadRequestException"),
    ],
)
def test_an_invalid_view_is_not_created(lake: Lake, body: Any, kind: str) -> None:
    assert refusal(lake.caller().ask("POST", VIEWS, json=body)) == (400, kind)
    assert lake.caller().ask("HEAD", V).status_code == 404


def test_a_replaced_view_is_loaded_as_it_was_answered(lake: Lake) -> None:
    made = make(producer(lake))
    asserted = [{"type": "assert-view-uuid", "uuid": made["metadata"]["view-uuid"]}]
    response = replace(producer(lake), requirements=asserted, identifier={"namespace": ["sales"], "name": "v"})
    assert response.json()["metadata"]["current-version-id"] == 3
    assert lake.caller(Role.CONSUMER, "sales").done("GET", V) == response.json()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"requirements": [{"type": "assert-view-uuid", "uuid": UUID}]}, (409, "CommitFailedException")),
        ({"requirements": [{"type": "assert-create"}]}, (400, "BadRequestException")),
        ({"updates": [{"action": "add-snapshot"}]}, (400, "BadRequestException")),
        ({"updates": replaced(3, query("x", "trino"))}, (400, "ValidationException")),
        ({"updates": [{"action": "assign-uuid", "uuid": UUID}]}, (400, "ValidationException")),
        ({"identifier": {"namespace": ["sales"], "name": "w"}}, (400, "BadRequestException")),
        ({"updates": None}, (400, "BadRequestException")),
    ],
)
def test_a_replacement_that_is_refused_changes_nothing(lake: Lake, body: Any, expected: tuple[int, str]) -> None:
    made = make(producer(lake))
    files = set((lake.folder / "catalog").rglob("*.json"))
    response = producer(lake).ask("POST", V, json={"updates": replaced(), **body})
    assert refusal(response) == expected
    assert lake.caller().done("GET", V) == made
    assert set((lake.folder / "catalog").rglob("*.json")) == files


def test_a_replacement_that_changes_nothing_writes_nothing(lake: Lake) -> None:
    made = make(producer(lake))
    assert replace(producer(lake), {"action": "set-current-view-version", "view-version-id": 1}).json() == made


def test_a_dropped_view_is_gone_and_its_name_is_free(lake: Lake) -> None:
    make(producer(lake))
    assert producer(lake).ask("DELETE", V).status_code == 204
    assert lake.caller().ask("HEAD", V).status_code == 404
    lake.caller().make("v")


def test_a_view_is_renamed(lake: Lake) -> None:
    made = make(producer(lake))
    assert rename(producer(lake), "v", "w").status_code == 204
    assert lake.caller().done("GET", f"{VIEWS}/w") == made
    assert lake.caller().ask("HEAD", V).status_code == 404


def test_a_view_moves_to_another_namespace_of_its_domain(lake: Lake) -> None:
    producer(lake).done("POST", "/namespaces", json={"namespace": ["more"]})
    made = make(producer(lake))
    assert rename(producer(lake), "v", "v", to="more").status_code == 204
    assert lake.caller().done("GET", "/namespaces/more/views/v") == made


def test_renaming_a_view_to_a_taken_name_is_a_conflict(lake: Lake) -> None:
    make(producer(lake))
    make(producer(lake), "w")
    lake.caller().make("t")
    for target, what in (("w", "View"), ("t", "Table")):
        response = rename(producer(lake), "v", target)
        assert refusal(response) == (409, "AlreadyExistsException")
        assert message(response) == f"Cannot rename sales.v to sales.{target}. {what} already exists"


def test_renaming_a_table_to_a_views_name_is_a_conflict(lake: Lake) -> None:
    make(producer(lake))
    lake.caller().make("t")
    body = {"source": {"namespace": ["sales"], "name": "t"}, "destination": {"namespace": ["sales"], "name": "v"}}
    response = lake.caller().ask("POST", "/tables/rename", json=body)
    assert refusal(response) == (409, "AlreadyExistsException")
    assert message(response) == "Cannot rename sales.t to sales.v. View already exists"


def test_renaming_a_view_into_a_missing_namespace_is_refused(lake: Lake) -> None:
    make(producer(lake))
    assert refusal(rename(producer(lake), "v", "v", to="none")) == (404, "NoSuchNamespaceException")


def test_a_view_that_was_dropped_is_registered_again(lake: Lake) -> None:
    made = make(producer(lake))
    producer(lake).done("DELETE", V)
    body = {"name": "v", "metadata-location": made["metadata-location"]}
    again = producer(lake).done("POST", REGISTER, json=body)
    assert again["metadata"] == made["metadata"]
    assert again["metadata-location"] != made["metadata-location"]
    assert lake.caller().done("GET", V) == again


def test_registering_a_view_under_a_taken_name_or_uuid_is_a_conflict(lake: Lake) -> None:
    made = make(producer(lake))
    lake.caller().make("t")
    for name, start in (("v", "View already exists: sales.v"), ("t", "Table with same name"), ("w", "a view with")):
        body = {"name": name, "metadata-location": made["metadata-location"]}
        response = lake.caller().ask("POST", REGISTER, json=body)
        assert refusal(response) == (409, "AlreadyExistsException")
        assert message(response).startswith(start)


def write_view_file(lake: Lake, place: str, location: str, **more: str) -> str:
    path = lake.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(location=location, **more)))
    return f"file://{path}"


def test_a_producer_can_register_a_file_in_the_views_own_place(lake: Lake) -> None:
    place = write_view_file(lake, "warehouse/sales/own/metadata/v.json", f"file://{lake.folder}/warehouse/sales/own")
    made = producer(lake).done("POST", REGISTER, json={"name": "v", "metadata-location": place})
    assert made["metadata"] == document(location=f"file://{lake.folder}/warehouse/sales/own")


def test_a_view_with_a_tables_uuid_shares_no_folder_with_it(lake: Lake) -> None:
    """A sweep of the table's folder knows only the files of the table."""
    table = lake.caller().make("t")
    own, table_uuid = f"file://{lake.folder}/warehouse/sales/own", table["metadata"]["table-uuid"]
    place = write_view_file(lake, "warehouse/sales/own/v.json", own, **{"view-uuid": table_uuid})
    made = producer(lake).done("POST", REGISTER, json={"name": "v", "metadata-location": place})
    assert made["metadata"]["view-uuid"] == table_uuid
    assert Path(made["metadata-location"]).parent != Path(table["metadata-location"]).parent


@pytest.mark.parametrize(
    ("place", "location"),
    [
        ("elsewhere/v.json", "warehouse/sales/own"),
        ("warehouse/sales/other/v.json", "warehouse/sales/own"),
        ("warehouse/sales/own/v.json", "own"),
        ("warehouse/risk/own/v.json", "warehouse/risk/own"),
    ],
)
def test_a_producer_cannot_register_a_file_of_another_place(lake: Lake, place: str, location: str) -> None:
    body = {"name": "v", "metadata-location": write_view_file(lake, place, f"file://{lake.folder}/{location}")}
    assert refusal(producer(lake).ask("POST", REGISTER, json=body)) == (403, "ForbiddenException")
    assert lake.caller().done("POST", REGISTER, json=body)["metadata"]["view-uuid"] == UUID


def test_a_producer_learns_nothing_of_files_outside_the_warehouse(lake: Lake) -> None:
    (lake.folder / "secret").write_text("not JSON")
    for name in ("secret", "none"):
        body = {"name": "v", "metadata-location": f"file://{lake.folder}/{name}"}
        assert refusal(producer(lake).ask("POST", REGISTER, json=body)) == (403, "ForbiddenException")


def test_a_producer_cannot_register_a_view_that_another_domain_dropped(lake: Lake) -> None:
    made = make(producer(lake, "risk"), namespace="risk")
    producer(lake, "risk").done("DELETE", "/namespaces/risk/views/v")
    body = {"name": "v", "metadata-location": made["metadata-location"]}
    assert refusal(producer(lake).ask("POST", REGISTER, json=body)) == (403, "ForbiddenException")


def test_a_file_that_is_no_view_is_not_registered(lake: Lake) -> None:
    table = lake.caller().make("t")
    for place in (table["metadata-location"], f"file://{lake.folder}/warehouse/none.json"):
        response = lake.caller().ask("POST", REGISTER, json={"name": "v", "metadata-location": place})
        assert response.status_code == 400


def test_a_view_cannot_be_placed_outside_the_warehouse_or_in_a_tables_folder(lake: Lake) -> None:
    table = lake.caller().make("t")["metadata"]["location"]
    make(producer(lake))
    for place in (f"file://{lake.folder}/elsewhere", f"{table}/data", f"file://{lake.folder}/warehouse/sales"):
        asked = request("w", location=place)
        assert refusal(producer(lake).ask("POST", VIEWS, json=asked)) == (403, "ForbiddenException")
        moved = replace(producer(lake), {"action": "set-location", "location": place})
        assert refusal(moved) == (403, "ForbiddenException")


def test_reading_roles_cannot_change_views(lake: Lake) -> None:
    made = make(producer(lake))
    for role in (Role.CONSUMER, Role.AUDITOR, Role.PUBLISHER):
        reader = lake.caller(role, "sales")
        assert reader.done("GET", V) == made
        refused = [
            reader.ask("POST", VIEWS, json=request("w")),
            replace(reader),
            reader.ask("DELETE", V),
            rename(reader, "v", "w"),
            reader.ask("POST", REGISTER, json={"name": "w", "metadata-location": made["metadata-location"]}),
        ]
        assert {refusal(response) for response in refused} == {(403, "ForbiddenException")}
    assert lake.caller().done("GET", V) == made


def test_another_domains_views_can_neither_be_seen_nor_changed(lake: Lake) -> None:
    made = make(producer(lake))
    other = producer(lake, "risk")
    asked = [
        other.ask("GET", V),
        other.ask("GET", VIEWS),
        other.ask("POST", VIEWS, json=request("w")),
        replace(other),
        other.ask("DELETE", V),
        rename(other, "v", "w"),
    ]
    assert {refusal(response) for response in asked} == {(403, "ForbiddenException")}
    assert refusal(rename(lake.caller(), "v", "v", to="risk")) == (403, "ForbiddenException")
    assert lake.caller().done("GET", V) == made


def test_a_token_for_one_attempt_cannot_create_a_view(lake: Lake) -> None:
    table = lake.caller().make("t")["metadata"]
    job = lake.attempt(table["table-uuid"], f"{table['location']}/a", "stage")
    assert refusal(job.ask("POST", VIEWS, json=request())) == (403, "ForbiddenException")


def test_in_a_protected_namespace_only_an_operator_can_change_views(lake: Lake) -> None:
    made = make(producer(lake))
    lake.caller().done("POST", "/namespaces", json={"namespace": ["free"], "properties": {"pvdm.domain": "sales"}})
    make(producer(lake), "guest", "free")
    lake.protect_namespace("sales")
    file = made["metadata-location"]
    into = {"source": {"namespace": ["free"], "name": "guest"}, "destination": {"namespace": ["sales"], "name": "g"}}
    refused = [
        producer(lake).ask("POST", VIEWS, json=request("w")),
        producer(lake).ask("POST", REGISTER, json={"name": "w", "metadata-location": file}),
        replace(producer(lake)),
        replace(producer(lake), {"action": "set-properties", "updates": {"comment": "checked"}}),
        producer(lake).ask("DELETE", V),
        rename(producer(lake), "v", "w"),
        rename(producer(lake), "v", "v", to="free"),
        producer(lake).ask("POST", "/views/rename", json=into),
    ]
    assert {refusal(response) for response in refused} == {(403, "ForbiddenException")}
    assert "protects its tables, and a view in it could pass for one" in message(refused[0])
    assert "Ask an operator" in message(refused[0])
    assert lake.caller(Role.CONSUMER, "sales").done("GET", V) == made
    assert replace(lake.caller()).status_code == 200
    assert rename(lake.caller(), "v", "w").status_code == 204
    make(lake.caller())
    lake.caller().done("DELETE", V)


def test_a_repeated_request_with_one_key_is_done_once(lake: Lake) -> None:
    caller, headers = producer(lake), {"idempotency-key": str(uuid.uuid4())}
    first = caller.ask("POST", VIEWS, json=request(), headers=headers)
    assert first.status_code == 200
    assert caller.ask("POST", VIEWS, json=request(), headers=headers).json() == first.json()
    other = caller.ask("POST", VIEWS, json=request("w"), headers=headers)
    assert refusal(other) == (400, "BadRequestException")


@pytest.mark.parametrize("update", [replaced()[0], {"action": "set-properties", "updates": {}}])
def test_a_repeated_replacement_is_answered_as_it_was_at_first(lake: Lake, update: Any) -> None:
    make(producer(lake))
    headers = {"idempotency-key": str(uuid.uuid4())}
    first = replace(producer(lake), update, headers=headers)
    assert first.status_code == 200
    assert replace(producer(lake), {"action": "set-properties", "updates": {"a": "b"}}).status_code == 200
    assert replace(producer(lake), update, headers=headers).json() == first.json()
    assert lake.caller().done("GET", V)["metadata"]["properties"] == {"a": "b"}


def test_a_repeated_drop_and_rename_are_done_once(lake: Lake) -> None:
    make(producer(lake))
    body = {"source": {"namespace": ["sales"], "name": "v"}, "destination": {"namespace": ["sales"], "name": "w"}}
    keys = [{"idempotency-key": str(uuid.uuid4())} for _ in range(2)]
    for _ in range(2):
        assert producer(lake).ask("POST", "/views/rename", json=body, headers=keys[0]).status_code == 204
    for _ in range(2):
        assert producer(lake).ask("DELETE", f"{VIEWS}/w", headers=keys[1]).status_code == 204


def test_a_metadata_file_that_was_edited_is_not_served(lake: Lake) -> None:
    made = make(producer(lake))
    path = Path(made["metadata-location"].removeprefix("file://"))
    path.write_text(path.read_text().replace("select 1", "select 2"))
    assert refusal(lake.caller().ask("GET", V)) == (500, "InternalServerError")


def test_the_ledger_keeps_dropped_views(lake: Lake) -> None:
    made = make(producer(lake))
    producer(lake).done("DELETE", V)
    found: list[Any] = []
    lake.change(lambda unit: found.append(_name_of_dropped_view(unit, made["metadata-location"])))
    assert found == ["v"]


def _name_of_dropped_view(unit: Unit, location: str) -> str | None:
    row = views.find_dropped(unit, location)
    return None if row is None else row.name


def test_a_failure_after_the_change_is_reported_as_unknown(lake: Lake) -> None:
    make(producer(lake))
    with fault.armed("catalog.after_swap", fault.Raise(RuntimeError("no memory"))):
        response = replace(producer(lake))
    assert refusal(response) == (500, "CommitStateUnknownException")
    assert lake.caller().done("GET", V)["metadata"]["current-version-id"] == 3


def test_the_configuration_names_every_endpoint_of_views(lake: Lake) -> None:
    found = [each for each in lake.caller().done("GET", "/config")["endpoints"] if "view" in each]
    list_path = "/v1/{prefix}/namespaces/{namespace}/views"
    view_path = "/v1/{prefix}/namespaces/{namespace}/views/{view}"
    assert sorted(found) == sorted(
        [
            *(f"{method} {view_path}" for method in ("GET", "HEAD", "POST", "DELETE")),
            *(f"{method} {list_path}" for method in ("GET", "POST")),
            "POST /v1/{prefix}/namespaces/{namespace}/register-view",
            "POST /v1/{prefix}/views/rename",
        ]
    )
