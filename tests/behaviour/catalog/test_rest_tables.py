"""Tables over the Iceberg REST protocol: create, stage, load, list, register, rename, drop and commit."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pvdm.catalog.responses import TableResponses
from pvdm.errors import UnavailableError
from pvdm.model.role import Role
from tests.support.catalog.http import (
    SCHEMA,
    Lake,
    lake_at,
    metadata_document,
    namespace_path,
    refusal,
    set_ref,
    snapshot,
)
from tests.support.catalog.views import request as view_request

T = "/namespaces/sales/tables/t"
STAGED = {"name": "t", "schema": SCHEMA, "stage-create": True}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_at(tmp_path) as made:
        yield made


def test_a_new_table_is_loaded_as_it_was_created(lake: Lake) -> None:
    made = lake.caller().make("t", properties={"a": "b"})
    assert lake.caller().done("GET", T) == made
    assert made["metadata"]["properties"]["a"] == "b"


def test_the_file_that_the_answer_names_holds_the_document_of_the_answer(lake: Lake) -> None:
    made = lake.caller().make("t")
    assert metadata_document(made) == made["metadata"]
    assert Path(made["metadata-location"].removeprefix("file://")).is_relative_to(lake.folder / "catalog")


def test_creating_a_table_again_is_a_conflict(lake: Lake) -> None:
    lake.caller().make("t")
    response = lake.caller().ask("POST", "/namespaces/sales/tables", json={"name": "t", "schema": SCHEMA})
    assert refusal(response) == (409, "AlreadyExistsException")
    assert response.json()["error"]["message"].startswith("Table already exists: sales.t")


def test_creating_a_table_in_a_missing_namespace_is_refused(lake: Lake) -> None:
    response = lake.caller().ask("POST", "/namespaces/none/tables", json={"name": "t", "schema": SCHEMA})
    assert refusal(response) == (404, "NoSuchNamespaceException")


def test_a_missing_table_is_reported_as_unknown(lake: Lake) -> None:
    response = lake.caller().ask("GET", T)
    assert refusal(response) == (404, "NoSuchTableException")
    assert response.json()["error"]["message"] == "Table does not exist: sales.t"
    assert [lake.caller().ask(method, T).status_code for method in ("HEAD", "DELETE")] == [404, 404]


def test_a_staged_table_does_not_exist_until_it_is_committed(lake: Lake) -> None:
    caller = lake.caller()
    staged = caller.done("POST", "/namespaces/sales/tables", json=STAGED)
    assert "metadata-location" not in staged
    assert caller.ask("HEAD", T).status_code == 404
    assert caller.commit("t", first_updates(staged), [{"type": "assert-create"}]).status_code == 200
    assert caller.done("GET", T)["metadata"]["table-uuid"] == staged["metadata"]["table-uuid"]


def first_updates(staged: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = staged["metadata"]
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]


def test_committing_a_staged_table_that_was_created_meanwhile_is_a_conflict(lake: Lake) -> None:
    staged = lake.caller().done("POST", "/namespaces/sales/tables", json=STAGED)
    lake.caller().make("t")
    response = lake.caller().commit("t", first_updates(staged), [{"type": "assert-create"}])
    assert refusal(response) == (409, "AlreadyExistsException")


def test_pages_of_tables_show_each_once(lake: Lake) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        lake.caller().make(name)
    seen, token = [], ""
    while token is not None:
        query = {"pageToken": token, "pageSize": "2"}
        page = lake.caller().done("GET", "/namespaces/sales/tables", params=query)
        seen += [each["name"] for each in page["identifiers"]]
        token = page.get("next-page-token")
    assert seen == names
    assert len(lake.caller().done("GET", "/namespaces/sales/tables")["identifiers"]) == 5


def test_a_name_with_slashes_and_dots_is_allowed_and_stays_in_its_folder(lake: Lake) -> None:
    lake.caller().make("../a/b.c?d#e%2F")
    found = lake.caller().done("GET", f"/namespaces/sales/tables/{namespace_path('../a/b.c?d#e%2F')}")
    assert found["metadata"]["location"].startswith(f"file://{lake.folder}/warehouse/sales/")


def test_two_tables_of_one_name_never_share_a_place(lake: Lake) -> None:
    first = lake.caller().make("t")
    lake.caller().done("DELETE", T)
    assert lake.caller().make("t")["metadata"]["location"] != first["metadata"]["location"]


def test_a_commit_answers_the_new_state_and_the_next_load_the_same(lake: Lake) -> None:
    made = lake.caller().make("t")
    response = lake.caller().commit("t", [snapshot(made, 7), set_ref("main", 7)])
    assert response.json()["metadata"]["current-snapshot-id"] == 7
    assert lake.caller().done("GET", T) == response.json()


def test_a_requirement_that_does_not_hold_is_a_failed_commit(lake: Lake) -> None:
    made = lake.caller().make("t")
    stale = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 5}]
    assert refusal(lake.caller().commit("t", [snapshot(made, 7)], stale)) == (409, "CommitFailedException")
    assert lake.caller().done("GET", T) == made


@pytest.mark.parametrize("part", ["updates", "requirements"])
def test_an_unknown_update_or_requirement_is_a_bad_request(lake: Lake, part: str) -> None:
    lake.caller().make("t")
    body: dict[str, Any] = {"updates": [], "requirements": []} | {part: [{"action": "publish", "type": "assert-luck"}]}
    assert refusal(lake.caller().ask("POST", T, json=body)) == (400, "BadRequestException")


def test_a_commit_whose_body_names_another_table_is_refused(lake: Lake) -> None:
    lake.caller().make("t")
    body = {"identifier": {"namespace": ["sales"], "name": "u"}, "updates": [], "requirements": []}
    assert refusal(lake.caller().ask("POST", T, json=body)) == (400, "BadRequestException")


def test_a_body_with_a_key_twice_is_refused(lake: Lake) -> None:
    lake.caller().make("t")
    body = b'{"requirements": [], "updates": [], "updates": []}'
    response = lake.caller().ask("POST", T, content=body, headers={"content-type": "application/json"})
    assert refusal(response) == (400, "BadRequestException")


def table_with_column(name: str, kind: object) -> str:
    fields = [{"id": 1, "name": name, "required": False, "type": kind}]
    return json.dumps({"name": "t", "schema": {"type": "struct", "fields": fields}})


MANY = [{"id": each, "name": f"c{each}", "required": False, "type": "int"} for each in range(2, 5_000)]
SLOW = {
    "lake_json_malformed": '"' + '\\"' * 500_000,
    "lake_json_key_duplicate": "{" + ",".join(f'"k{each}":1' for each in range(100_000)) + ',"k99999":1}',
    "iceberg_type_unknown": table_with_column("a", "geography(" + " " * 9_999),
    "schema_name_too_long": table_with_column("n" * 900_000, {"type": "struct", "fields": MANY}),
}


@pytest.mark.parametrize("code", SLOW)
def test_a_body_that_is_made_to_be_slow_to_read_is_refused_before_the_caller_gives_up(lake: Lake, code: str) -> None:
    caller = lake.caller(Role.PRODUCER, "sales", "p")
    caller.http.timeout = 30
    sent = {"content": SLOW[code], "headers": {"content-type": "application/json"}}
    response = caller.ask("POST", "/namespaces/sales/tables", **sent)
    assert (response.status_code, response.json()["error"]["pvdm-code"]) == (400, code)


def test_creating_a_table_with_a_default_that_cannot_be_compared_is_refused(lake: Lake) -> None:
    body = json.dumps({"name": "t", "schema": SCHEMA, "properties": {"format-version": "3"}})
    column = '{"id":9,"name":"d","required":false,"type":"double","write-default":0e99999999999999999999},{"id"'
    sent = {"content": body.replace('{"id"', column, 1), "headers": {"content-type": "application/json"}}
    response = lake.caller().ask("POST", "/namespaces/sales/tables", **sent)
    assert (response.status_code, response.json()["error"]["pvdm-code"]) == (400, "schema_default_invalid")


def test_a_commit_with_unknown_outcome_is_reported_as_unknown(lake: Lake) -> None:
    from pvdm.errors import StateUnknownError
    from tests.support import fault

    caller = lake.caller()
    caller.make("t")
    lost = StateUnknownError("ledger_commit_unknown", "the answer was lost")
    with fault.armed("ledger.before_commit", fault.Raise(lost)):
        response = caller.commit("t", [{"action": "set-properties", "updates": {"a": "b"}}])
    assert refusal(response) == (500, "CommitStateUnknownException")


@pytest.mark.parametrize("way", ["create", "register", "commit"])
def test_a_change_without_a_response_is_never_reported_as_undone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    caller = lake.caller()
    made = caller.make("t")
    body: dict[str, Any] = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    method, path, sent = ("POST", T, body)
    if way != "commit":
        caller.done("DELETE", T)
        place = "/namespaces/sales/register" if way == "register" else "/namespaces/sales/tables"
        path, sent = place, {"name": "t", "schema": SCHEMA, "metadata-location": made["metadata-location"]}
    with monkeypatch.context() as patch:
        patch.setattr(TableResponses, "table", unavailable)
        response = caller.ask(method, path, json=sent)
    assert refusal(response) == (500, "CommitStateUnknownException")
    assert caller.ask("HEAD", T).status_code == 204


def unavailable(*_: object) -> None:
    raise UnavailableError("metadata_files_unavailable", "the disk is full")


def test_a_transaction_changes_all_tables_or_none(lake: Lake) -> None:
    caller = lake.caller()
    before = {name: caller.make(name) for name in ("t", "u")}
    changes = [
        change("t", "a"),
        change("u", "b", [{"type": "assert-table-uuid", "uuid": "0" * 8 + "-0000" * 3 + "-" + "0" * 12}]),
    ]
    response = caller.ask("POST", "/transactions/commit", json={"table-changes": changes})
    assert refusal(response) == (409, "CommitFailedException")
    assert caller.done("GET", T) == before["t"]
    changes = [change("t", "a"), change("u", "b")]
    assert caller.ask("POST", "/transactions/commit", json={"table-changes": changes}).status_code == 204
    assert caller.done("GET", T)["metadata"]["properties"]["set"] == "a"
    assert caller.done("GET", "/namespaces/sales/tables/u")["metadata"]["properties"]["set"] == "b"


def change(name: str, value: str, requirements: list[Any] | None = None) -> dict[str, Any]:
    return {
        "identifier": {"namespace": ["sales"], "name": name},
        "requirements": requirements or [],
        "updates": [{"action": "set-properties", "updates": {"set": value}}],
    }


def test_a_transaction_that_names_a_table_twice_is_refused(lake: Lake) -> None:
    lake.caller().make("t")
    changes = {"table-changes": [change("t", "a"), change("t", "b")]}
    assert refusal(lake.caller().ask("POST", "/transactions/commit", json=changes)) == (400, "BadRequestException")


def test_a_table_is_renamed_into_another_namespace_of_its_domain(lake: Lake) -> None:
    caller = lake.caller()
    made = caller.make("t")
    caller.done("POST", "/namespaces", json={"namespace": ["sales", "eu"]})
    assert rename(lake, ["sales"], "t", ["sales", "eu"], "u").status_code == 204
    assert caller.done("GET", f"/namespaces/{namespace_path('sales', 'eu')}/tables/u") == made
    assert caller.ask("HEAD", T).status_code == 404


def rename(lake: Lake, source: list[str], name: str, target: list[str], new: str) -> Any:
    body = {"source": {"namespace": source, "name": name}, "destination": {"namespace": target, "name": new}}
    return lake.caller().ask("POST", "/tables/rename", json=body)


def test_a_table_is_not_renamed_onto_another_nor_into_nothing_nor_across_domains(lake: Lake) -> None:
    lake.caller().make("t")
    lake.caller().make("u")
    lake.caller().done("POST", "/namespaces", json={"namespace": ["hr"], "properties": {"pvdm.domain": "hr"}})
    assert refusal(rename(lake, ["sales"], "t", ["sales"], "u")) == (409, "AlreadyExistsException")
    assert refusal(rename(lake, ["sales"], "t", ["none"], "u")) == (404, "NoSuchNamespaceException")
    assert refusal(rename(lake, ["sales"], "none", ["sales"], "v")) == (404, "NoSuchTableException")
    assert refusal(rename(lake, ["sales"], "t", ["hr"], "t")) == (403, "ForbiddenException")


def test_a_purge_removes_the_tables_own_files_and_a_drop_none(lake: Lake) -> None:
    dropped_place, purged_place = (place_of(lake.caller().make(name)) for name in ("t", "u"))
    for place in (dropped_place, purged_place):
        place.mkdir(parents=True)
        (place / "file").write_text("x")
    lake.caller().done("DELETE", T)
    lake.caller().done("DELETE", "/namespaces/sales/tables/u", params={"purgeRequested": "true"})
    assert (dropped_place.exists(), purged_place.exists()) == (True, False)


def place_of(answer: dict[str, Any]) -> Path:
    return Path(answer["metadata"]["location"].removeprefix("file://"))


def test_a_purge_that_would_leave_files_is_refused_and_the_table_stays(lake: Lake) -> None:
    place = lake.folder / "elsewhere"
    place.mkdir()
    lake.caller().make("t", location=f"file://{place}")
    response = lake.caller().ask("DELETE", T, params={"purgeRequested": "true"})
    error = response.json()["error"]
    assert (response.status_code, error["pvdm-code"]) == (403, "purge_refused")
    assert "it is not in the warehouse" in error["message"]
    lake.caller().done("GET", T)
    lake.caller().done("DELETE", T)
    assert place.is_dir()


def test_a_purge_that_leaves_files_says_which_place_and_why(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(lake.caller().make("t"))
    place.mkdir(parents=True)
    (place / "file").write_text("x")
    monkeypatch.setattr("pvdm.catalog.purge.shutil.rmtree", lambda *_, **__: None)
    headers = {"idempotency-key": str(uuid.uuid4())}
    for _ in range(2):
        with caplog.at_level("INFO", "pvdm.steward"):
            response = lake.caller().ask("DELETE", T, params={"purgeRequested": "true"}, headers=headers)
        error = response.json()["error"]
        assert (response.status_code, error["pvdm-code"]) == (403, "purge_incomplete")
        assert f"{place.parent}/.pvdm-purged-" in error["message"]
    assert lake.caller().ask("GET", T).status_code == 404
    lines = [json.loads(each) for each in caplog.messages if "purge_left" in each]
    assert lines[0]["place"] == f"file://{place}"


@pytest.mark.parametrize("where", ["warehouse", "warehouse/fin", "warehouse/fin/x", "warehouse/sales"])
def test_a_producer_cannot_create_a_table_in_a_place_of_another_domain(lake: Lake, where: str) -> None:
    """Otherwise that domain could not create tables there, and a purge would remove its files."""
    lake.caller().done("POST", "/namespaces", json={"namespace": ["fin"], "properties": {"pvdm.domain": "fin"}})
    body = {"name": "t", "schema": SCHEMA, "location": f"file://{lake.folder}/{where}"}
    for more in ({}, {"stage-create": True}):
        response = lake.caller(Role.PRODUCER, "sales").ask("POST", "/namespaces/sales/tables", json=body | more)
        refused = (403, "ForbiddenException", "location_outside")
        assert (*refusal(response), response.json()["error"]["pvdm-code"]) == refused
    lake.caller(Role.PRODUCER, "fin").make("x", namespace="fin")


def test_a_table_under_a_views_name_is_refused_before_anything_is_written(lake: Lake) -> None:
    producer = lake.caller(Role.PRODUCER, "sales")
    producer.done("POST", "/namespaces/sales/views", json=view_request("v"))
    before = sorted(lake.folder.joinpath("catalog").iterdir())
    for more in ({}, {"stage-create": True}):
        body = {"name": "v", "schema": SCHEMA, **more}
        response = producer.ask("POST", "/namespaces/sales/tables", json=body)
        assert response.json()["error"]["message"] == "View with same name already exists: sales.v"
    assert sorted(lake.folder.joinpath("catalog").iterdir()) == before


@pytest.mark.parametrize("kind", ["tables", "views"])
def test_a_page_token_with_a_name_that_no_table_has_is_refused(lake: Lake, kind: str) -> None:
    """PostgreSQL cannot even be asked for a name with U+0000 in it."""
    token = base64.urlsafe_b64encode(b'"\\u0000"').decode().rstrip("=")
    response = lake.caller().ask("GET", f"/namespaces/sales/{kind}", params={"pageToken": token})
    assert response.status_code == 400


def test_a_dropped_table_is_registered_again_from_its_metadata_file(lake: Lake) -> None:
    producer = lake.caller(Role.PRODUCER, "sales")
    made = producer.make("t")
    producer.done("DELETE", T)
    body = {"name": "again", "metadata-location": made["metadata-location"]}
    found = producer.done("POST", "/namespaces/sales/register", json=body)
    assert found["metadata"] == made["metadata"]


def test_a_table_that_was_protected_once_is_not_registered_again_not_even_by_an_operator(lake: Lake) -> None:
    made = lake.caller().make("t")
    lake.protect("t")
    lake.unprotect("t")
    lake.caller().done("DELETE", T)
    body = {"name": "t", "metadata-location": made["metadata-location"]}
    response = lake.caller().ask("POST", "/namespaces/sales/register", json=body)
    assert (refusal(response), response.json()["error"]["pvdm-code"]) == (
        (409, "AlreadyExistsException"),
        "table_uuid_taken",
    )


def test_a_live_tables_metadata_file_is_not_registered_under_another_name(lake: Lake) -> None:
    made = lake.caller().make("t")
    body = {"name": "again", "metadata-location": made["metadata-location"]}
    assert lake.caller().ask("POST", "/namespaces/sales/register", json=body).status_code in (403, 409)
    producer = lake.caller(Role.PRODUCER, "sales")
    response = producer.ask("POST", "/namespaces/sales/register", json=body)
    assert refusal(response) == (403, "ForbiddenException")


def test_register_refuses_a_taken_name_unless_it_may_overwrite(lake: Lake) -> None:
    caller = lake.caller()
    made = caller.make("t")
    caller.done("DELETE", T)
    caller.make("t")
    body = {"name": "t", "metadata-location": made["metadata-location"]}
    assert refusal(caller.ask("POST", "/namespaces/sales/register", json=body)) == (409, "AlreadyExistsException")
    caller.done("POST", "/namespaces/sales/register", json={**body, "overwrite": True})
    assert caller.done("GET", T)["metadata"]["table-uuid"] == made["metadata"]["table-uuid"]


def test_a_producer_cannot_register_a_file_outside_the_warehouse(lake: Lake) -> None:
    for place in ("/etc/passwd", f"file://{lake.folder}/warehouse/../keys", f"{lake.folder}/keys"):
        body = {"name": "x", "metadata-location": place}
        response = lake.caller(Role.PRODUCER, "sales").ask("POST", "/namespaces/sales/register", json=body)
        assert response.status_code in (400, 403), place
        assert "Traceback" not in response.text


def test_a_producer_cannot_register_a_file_behind_a_link(lake: Lake) -> None:
    made = lake.caller().make("t")
    (lake.folder / "warehouse").mkdir(exist_ok=True)
    (lake.folder / "warehouse" / "way").symlink_to(lake.folder / "catalog")
    place = made["metadata-location"].replace("/catalog/", "/warehouse/way/")
    body = {"name": "x", "metadata-location": place}
    response = lake.caller(Role.PRODUCER, "sales").ask("POST", "/namespaces/sales/register", json=body)
    assert refusal(response) == (403, "ForbiddenException")
    assert response.json()["error"]["pvdm-code"] == "location_outside"


def test_sixteen_writers_of_one_table_lose_no_commit(lake: Lake) -> None:
    caller = lake.caller()
    caller.make("t")
    with ThreadPoolExecutor(16) as pool:
        updates = [{"action": "set-properties", "updates": {f"p{number}": "x"}} for number in range(16)]
        answers = list(pool.map(lambda update: caller.commit("t", [update]), updates))
    assert {answer.status_code for answer in answers} == {200}
    properties = caller.done("GET", T)["metadata"]["properties"]
    assert {name for name in properties if name.startswith("p")} == {f"p{number}" for number in range(16)}


def test_one_key_sent_sixteen_times_at_once_makes_one_commit(lake: Lake) -> None:
    caller = lake.caller()
    made = caller.make("t")
    headers = {"idempotency-key": str(uuid.uuid4())}
    updates = [snapshot(made, 1), set_ref("main", 1)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: caller.commit("t", updates, headers=headers), range(16)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1


def test_a_metrics_report_is_accepted_from_every_role_that_sees_the_table(lake: Lake) -> None:
    lake.caller().make("t")
    report = {"report-type": "scan-report", "table-name": "sales.t", "metrics": {}}
    assert lake.caller(Role.CONSUMER, "sales").ask("POST", f"{T}/metrics", json=report).status_code == 204
    assert refusal(lake.caller(Role.CONSUMER, "hr").ask("POST", f"{T}/metrics", json=report)) == (
        403,
        "ForbiddenException",
    )
    assert refusal(lake.caller().ask("POST", f"{T}/metrics", json={})) == (400, "BadRequestException")


def test_a_metadata_file_changed_on_disk_is_not_served(lake: Lake) -> None:
    made = lake.caller().make("t")
    file = Path(made["metadata-location"].removeprefix("file://"))
    file.write_bytes(file.read_bytes().replace(b'"note"', b'"nope"'))
    response = lake.caller().ask("GET", T)
    assert refusal(response) == (500, "InternalServerError")


def test_a_missing_metadata_file_is_an_iceberg_error(lake: Lake) -> None:
    made = lake.caller().make("t")
    Path(made["metadata-location"].removeprefix("file://")).unlink()
    response = lake.caller().ask("GET", T)
    assert refusal(response) == (404, "NotFoundException")
    assert made["metadata-location"] in response.json()["error"]["message"]
