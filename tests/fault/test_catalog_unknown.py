"""A commit that may have happened is never answered as refused, but as unknown; PyIceberg takes it as unknown."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.types import StringType

from pvdm.errors import ConflictError, InputError, NotAllowedError
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.http import Lake, lake_at, refusal
from tests.support.ledger.databases import memory_folder

# Errors whose usual answers would tell the client that nothing has happened.
ERRORS = (
    NotAllowedError("role_wrong", "no"),
    ConflictError("table_moved", "no"),
    InputError("table_unknown", "no"),
    ValueError("a bug"),
)
UPDATE = [{"action": "set-properties", "updates": {"a": "b"}}]
UNKNOWN = (500, "CommitStateUnknownException")
# Points that a commit passes after its pointer has moved.
POINTS_AFTER_SWAP = ("catalog.after_swap", "catalog.before_answer")


@pytest.fixture
def lake() -> Iterator[Lake]:
    with memory_folder() as folder, lake_at(folder) as made:
        made.caller().make("t")
        yield made


def client(lake: Lake) -> RestCatalog:
    """Unmodified PyIceberg with a producer's token."""
    token = lake.steward.headers(Role.PRODUCER, "sales", "pyiceberg")["authorization"].removeprefix("Bearer ")
    return RestCatalog("lake", uri=f"{lake.steward.server.url}/catalog", token=token)


def has_update(lake: Lake) -> bool:
    document = lake.caller().done("GET", "/namespaces/sales/tables/t")["metadata"]
    return bool(document.get("properties", {}).get("a") == "b")


@pytest.mark.parametrize("point", POINTS_AFTER_SWAP)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_failure_after_the_swap_is_answered_as_unknown(lake: Lake, point: str, error: Exception) -> None:
    with fault.armed(point, fault.Raise(error)):
        answer = lake.caller().commit("t", UPDATE)
    assert refusal(answer) == UNKNOWN
    assert has_update(lake)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("method", ["create", "drop", "rename", "transaction"])
def test_a_failure_before_the_answer_to_any_change_is_answered_as_unknown(
    lake: Lake, method: str, error: Exception
) -> None:
    source, target = ({"namespace": ["sales"], "name": name} for name in ("t", "new"))
    requests = {
        "create": ("POST", "/namespaces/sales/tables", {"name": "made", "schema": {"type": "struct", "fields": []}}),
        "drop": ("DELETE", "/namespaces/sales/tables/t", None),
        "rename": ("POST", "/tables/rename", {"source": source, "destination": target}),
        "transaction": (
            "POST",
            "/transactions/commit",
            {"table-changes": [{"identifier": source, "requirements": [], "updates": UPDATE}]},
        ),
    }
    verb, path, body = requests[method]
    with fault.armed("catalog.before_answer", fault.Raise(error)):
        answer = lake.caller().ask(verb, path, json=body)
    assert refusal(answer) == UNKNOWN


@pytest.mark.parametrize("point", [*POINTS_AFTER_SWAP, "ledger.after_commit"])
def test_pyiceberg_gets_state_unknown_and_a_reload_shows_the_commit(lake: Lake, point: str) -> None:
    table = client(lake).load_table(("sales", "t"))
    with fault.armed(point, fault.Raise(ValueError())), pytest.raises(CommitStateUnknownException):
        table.transaction().set_properties({"a": "b"}).commit_transaction()
    assert client(lake).load_table(("sales", "t")).properties["a"] == "b"


def test_a_gated_commit_of_pyiceberg_is_forbidden_and_changes_nothing(lake: Lake) -> None:
    lake.protect("t")
    table = client(lake).load_table(("sales", "t"))
    with pytest.raises(ForbiddenError):
        table.transaction().set_properties({"a": "b"}).commit_transaction()
    assert not has_update(lake)


def test_a_conflicting_commit_of_pyiceberg_fails_and_changes_nothing(lake: Lake) -> None:
    table = client(lake).load_table(("sales", "t"))
    schema = [
        {"action": "add-schema", "schema": {"type": "struct", "fields": []}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    assert lake.caller().commit("t", schema).status_code == 200
    with pytest.raises(CommitFailedException), table.update_schema() as change:
        change.add_column("more", StringType())
    assert client(lake).load_table(("sales", "t")).schema().fields == ()


def test_a_repeated_key_after_an_unknown_answer_gives_the_first_answer_and_no_second_commit(lake: Lake) -> None:
    caller, key = lake.caller(), {"idempotency-key": str(uuid.uuid4())}
    with fault.armed("catalog.before_answer", fault.Raise(ValueError())):
        assert refusal(caller.commit("t", UPDATE, headers=key)) == UNKNOWN
    answers = [caller.commit("t", UPDATE, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert len(answers[0].json()["metadata"]["metadata-log"]) == 1


def test_a_commit_under_way_when_the_service_stops_is_answered_as_unknown_or_done(lake: Lake) -> None:
    caller, reached, go = lake.caller(), threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(20)

    statuses: list[int] = []
    sending = threading.Thread(target=lambda: statuses.append(caller.commit("t", UPDATE).status_code))
    with fault.armed("ledger.after_commit", fault.Call(wait)):
        sending.start()
        assert reached.wait(20)
        stopping = threading.Thread(target=lake.steward.server.stop)
        stopping.start()
        go.set()
        sending.join()
        stopping.join()
    assert statuses[0] in (200, 500)
