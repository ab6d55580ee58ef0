"""What each caller sees of a table over the REST protocol, and requests that an idempotency key makes happen once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm.model.role import Role
from tests.support.catalog.http import SCHEMA, Lake, lake_at, metadata_document, refusal, set_ref, snapshot

T = "/namespaces/sales/tables/t"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lake_at(tmp_path) as made:
        yield made


@pytest.fixture
def staged(lake: Lake) -> dict[str, Any]:
    """A protected table whose main shows snapshot 1, with snapshot 2 staged on a branch; as the operator sees it."""
    caller = lake.caller()
    first = caller.commit("t", [snapshot(caller.make("t"), 1), set_ref("main", 1)]).json()
    lake.protect("t")
    found = lake.caller(Role.PRODUCER, "sales").commit("t", [snapshot(first, 2, parent=1), set_ref("work", 2)])
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def test_a_consumer_sees_main_and_nothing_that_is_staged(lake: Lake, staged: dict[str, Any]) -> None:
    found = lake.caller(Role.CONSUMER, "sales").done("GET", T)
    assert [each["snapshot-id"] for each in found["metadata"]["snapshots"]] == [1]
    assert set(found["metadata"]["refs"]) == {"main"}
    assert set(staged["metadata"]["refs"]) == {"main", "work"}


def test_the_file_that_a_consumer_is_pointed_to_is_filtered_as_well(lake: Lake, staged: dict[str, Any]) -> None:
    found = lake.caller(Role.CONSUMER, "sales").done("GET", T)
    assert found["metadata-location"] != staged["metadata-location"]
    assert metadata_document(found) == found["metadata"]
    assert "work" not in json.dumps(metadata_document(found))


def test_an_auditor_sees_everything(lake: Lake, staged: dict[str, Any]) -> None:
    assert lake.caller(Role.AUDITOR, "sales").done("GET", T) == staged


def test_a_load_with_the_snapshots_of_refs_leaves_out_the_others(lake: Lake) -> None:
    caller = lake.caller()
    made = caller.make("t")
    updates = [snapshot(made, 1), snapshot(made, 2, parent=1, step=2), set_ref("main", 2)]
    assert caller.commit("t", updates).status_code == 200
    found = caller.done("GET", T, params={"snapshots": "refs"})
    assert [each["snapshot-id"] for each in found["metadata"]["snapshots"]] == [2]
    assert len(caller.done("GET", T, params={"snapshots": "all"})["metadata"]["snapshots"]) == 2
    assert refusal(caller.ask("GET", T, params={"snapshots": "some"})) == (400, "BadRequestException")


def test_an_unchanged_table_is_answered_by_304(lake: Lake) -> None:
    caller = lake.caller()
    caller.make("t")
    tag = caller.ask("GET", T).headers["etag"]
    again = caller.ask("GET", T, headers={"if-none-match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)


def test_a_commit_changes_the_etag_and_answers_with_it(lake: Lake) -> None:
    caller = lake.caller()
    caller.make("t")
    old = caller.ask("GET", T).headers["etag"]
    committed = caller.commit("t", [{"action": "set-properties", "updates": {"a": "b"}}]).headers["etag"]
    assert caller.ask("GET", T, headers={"if-none-match": old}).status_code == 200
    assert caller.ask("GET", T, headers={"if-none-match": committed}).status_code == 304


def test_etags_differ_by_role_and_by_snapshot_mode(lake: Lake) -> None:
    lake.caller().make("t")
    consumer = lake.caller(Role.CONSUMER, "sales")
    tags = [lake.caller().ask("GET", T).headers["etag"], consumer.ask("GET", T).headers["etag"]]
    tags.append(consumer.ask("GET", T, params={"snapshots": "refs"}).headers["etag"])
    assert len(set(tags)) == 3
    assert consumer.ask("GET", T, headers={"if-none-match": tags[0]}).status_code == 200


def test_an_attempts_token_gets_its_write_paths_and_the_table_does_not_store_them(
    lake: Lake, staged: dict[str, Any]
) -> None:
    prefix = f"{staged['metadata']['location']}/attempts/one"
    attempt = lake.attempt(staged["metadata"]["table-uuid"], prefix, "pvdm-one")
    properties = attempt.done("GET", T)["metadata"]["properties"]
    assert properties["write.data.path"] == f"{prefix}/data"
    assert properties["write.metadata.path"] == f"{prefix}/metadata"
    assert properties["write.object-storage.partitioned-paths"] == "false"
    assert lake.caller().done("GET", T) == staged


def test_the_answer_to_an_attempts_commit_has_its_write_paths(lake: Lake, staged: dict[str, Any]) -> None:
    prefix = f"{staged['metadata']['location']}/attempts/one"
    attempt = lake.attempt(staged["metadata"]["table-uuid"], prefix, "pvdm-one")
    update = snapshot(staged, 3, parent=1)
    update["snapshot"]["manifest-list"] = f"{prefix}/metadata/snap-3.avro"
    response = attempt.commit("t", [update, set_ref("pvdm-one", 3)])
    assert response.status_code == 200, response.text
    assert response.json()["metadata"]["properties"]["write.data.path"] == f"{prefix}/data"
    assert "write.data.path" not in lake.caller().done("GET", T)["metadata"]["properties"]


def test_a_refusal_says_what_is_gated_and_what_to_do(lake: Lake, staged: dict[str, Any]) -> None:
    response = lake.caller(Role.PRODUCER, "sales").commit("t", [snapshot(staged, 9, parent=1), set_ref("main", 9)])
    assert refusal(response) == (403, "ForbiddenException")
    message = response.json()["error"]["message"]
    assert message.startswith("t is protected: current snapshot, ancestry")
    assert message.endswith(
        "; write to a branch (spark.wap.branch; needs write.wap.enabled=true), then run `pvdm publish`"
    )


@pytest.mark.parametrize("way", ["drop", "purge", "rename", "register"])
def test_a_protected_table_can_be_neither_dropped_renamed_nor_replaced(
    lake: Lake, staged: dict[str, Any], way: str
) -> None:
    for caller in (lake.caller(Role.PRODUCER, "sales"), lake.caller()):
        match way:
            case "drop":
                response = caller.ask("DELETE", T)
            case "purge":
                response = caller.ask("DELETE", T, params={"purgeRequested": "true"})
            case "rename":
                names = [{"namespace": ["sales"], "name": name} for name in ("t", "u")]
                response = caller.ask("POST", "/tables/rename", json={"source": names[0], "destination": names[1]})
            case _:
                body = {"name": "t", "metadata-location": staged["metadata-location"], "overwrite": True}
                response = caller.ask("POST", "/namespaces/sales/register", json=body)
        assert refusal(response) == (403, "ForbiddenException")
    assert lake.caller().done("GET", T) == staged


def test_a_table_cannot_be_renamed_into_a_protected_namespace(lake: Lake) -> None:
    caller = lake.caller()
    caller.done("POST", "/namespaces", json={"namespace": ["sales", "gated"]})
    lake.protect_namespace("sales", "gated")
    caller.make("t")
    source, target = {"namespace": ["sales"], "name": "t"}, {"namespace": ["sales", "gated"], "name": "t"}
    response = caller.ask("POST", "/tables/rename", json={"source": source, "destination": target})
    assert refusal(response) == (403, "ForbiddenException")


def idempotency_key() -> dict[str, str]:
    return {"idempotency-key": str(uuid.uuid4())}


def test_a_commit_with_a_key_happens_once_and_is_answered_alike(lake: Lake) -> None:
    caller = lake.caller()
    made = caller.make("t")
    headers = idempotency_key()
    updates = [snapshot(made, 1), set_ref("main", 1)]
    first = caller.commit("t", updates, headers=headers)
    caller.done("POST", T, json={"updates": [{"action": "set-properties", "updates": {"a": "b"}}]})
    again = caller.commit("t", updates, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    assert len(caller.done("GET", T)["metadata"]["snapshots"]) == 1


def test_a_repeated_create_is_answered_again_with_a_key_and_conflicts_without_one(lake: Lake) -> None:
    headers, body = idempotency_key(), {"name": "t", "schema": SCHEMA}
    answers = [lake.caller().done("POST", "/namespaces/sales/tables", json=body, headers=headers) for _ in range(2)]
    assert answers[0] == answers[1]
    assert refusal(lake.caller().ask("POST", "/namespaces/sales/tables", json=body))[0] == 409


@pytest.mark.parametrize("what", ["namespace", "drop", "properties", "rename", "transaction", "drop namespace"])
def test_every_change_with_a_key_is_answered_again(lake: Lake, what: str) -> None:
    caller = lake.caller()
    caller.make("t")
    caller.done("POST", "/namespaces", json={"namespace": ["empty"]})
    names = [{"namespace": ["sales"], "name": name} for name in ("t", "u")]
    update = {"action": "set-properties", "updates": {"a": "b"}}
    method, path, body = {
        "namespace": ("POST", "/namespaces", {"namespace": ["hr"], "properties": {"a": "b"}}),
        "drop": ("DELETE", T, None),
        "drop namespace": ("DELETE", "/namespaces/empty", None),
        "properties": ("POST", "/namespaces/sales/properties", {"removals": ["none"], "updates": {"a": "b"}}),
        "rename": ("POST", "/tables/rename", {"source": names[0], "destination": names[1]}),
        "transaction": (
            "POST",
            "/transactions/commit",
            {"table-changes": [{"identifier": names[0], "requirements": [], "updates": [update]}]},
        ),
    }[what]
    headers = idempotency_key()
    answers = [caller.ask(method, path, json=body, headers=headers) for _ in range(2)]
    assert answers[0].status_code in (200, 204), answers[0].text
    assert [answer.content for answer in answers] == [answers[0].content] * 2
    assert answers[0].status_code == answers[1].status_code


def test_a_key_is_for_one_request_of_one_caller(lake: Lake) -> None:
    caller, headers = lake.caller(), idempotency_key()
    caller.done("POST", "/namespaces", json={"namespace": ["hr"]}, headers=headers)
    other = caller.ask("POST", "/namespaces", json={"namespace": ["it"]}, headers=headers)
    assert refusal(other) == (400, "BadRequestException")
    somebody = lake.caller(name="somebody-else")
    assert refusal(somebody.ask("POST", "/namespaces", json={"namespace": ["hr"]}, headers=headers))[0] == 409
    bad = caller.ask("POST", "/namespaces", json={"namespace": ["it"]}, headers={"idempotency-key": "1"})
    assert refusal(bad) == (400, "BadRequestException")


def test_a_request_that_failed_may_be_sent_again_with_its_key(lake: Lake) -> None:
    caller, headers = lake.caller(), idempotency_key()
    body = {"name": "t", "schema": SCHEMA}
    assert refusal(caller.ask("POST", "/namespaces/hr/tables", json=body, headers=headers))[0] == 404
    caller.done("POST", "/namespaces", json={"namespace": ["hr"]})
    caller.done("POST", "/namespaces/hr/tables", json=body, headers=headers)


def test_a_table_that_is_created_in_a_protected_namespace_is_protected(lake: Lake) -> None:
    lake.protect_namespace("sales")
    made = lake.caller(Role.PRODUCER, "sales").make("t")
    response = lake.caller().commit("t", [snapshot(made, 1), set_ref("main", 1)])
    assert refusal(response) == (403, "ForbiddenException")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"snapshots": "some"}, "query.snapshots cannot be accepted"),
        ({"referenced-by": "v" * 16_385}, "query.referenced-by cannot be accepted"),
        ({"snapshot": "all"}, "the query cannot be accepted"),
    ],
)
def test_a_load_with_a_query_that_is_not_known_is_refused(lake: Lake, query: dict[str, str], expected: str) -> None:
    caller = lake.caller()
    caller.make()
    refused = caller.ask("GET", T, params=query)
    assert (refused.status_code, expected in refused.json()["error"]["message"]) == (400, True), refused.text
