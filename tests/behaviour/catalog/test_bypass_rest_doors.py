"""Attempts to get around the gate by renames, places, registers, transactions, namespaces, views, tokens and paths."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm.model.role import Role
from tests.support.catalog.bypass import (
    FIRST,
    HEAD,
    HIDDEN,
    Ask,
    Attack,
    Scene,
    T,
    commit,
    require_no_trace,
    require_same,
    resolve_updates,
    run,
    scene_at,
)
from tests.support.catalog.http import SCHEMA, V1, Caller, namespace_path, set_ref
from tests.support.for_each import for_each
from tests.support.steward.http import bearer

Place = Callable[[Scene], str]

TABLES = "/namespaces/sales/tables"
GATED = f"/namespaces/{namespace_path('sales', 'gated')}"
WRITERS = ("producer", "operator")
OTHERS = ("publisher", "steward", "auditor", "consumer", "attempt one")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_at(tmp_path_factory.mktemp("bypass")) as found:
        before = found.main()
        yield found
        require_same(before, found.main())


def send(method: str, path: str, body: Any = None, **options: Any) -> Ask:
    """One request; a callable body is called with the scene."""

    def ask(scene: Scene, caller: Caller) -> httpx.Response:
        found = body(scene) if callable(body) else body
        return caller.ask(method, path, **({} if found is None else {"json": found}), **options)

    return ask


def rename(source: str, target: str, *, into: tuple[str, ...] = ("sales",)) -> Ask:
    names = {"source": {"namespace": ["sales"], "name": source}, "destination": {"namespace": into, "name": target}}
    return send("POST", "/tables/rename", names)


def register(
    name: str, place: Callable[[Scene], str], *, at: str = "/namespaces/sales", overwrite: bool = False
) -> Ask:
    return send(
        "POST",
        f"{at}/register",
        lambda scene: {"name": name, "metadata-location": place(scene), "overwrite": overwrite},
    )


def create(name: str, *, at: str = TABLES, **more: Any) -> Ask:
    def body(scene: Scene) -> Any:
        fields = {key.replace("_", "-"): value(scene) if callable(value) else value for key, value in more.items()}
        return {"name": name, "schema": SCHEMA, **fields}

    return send("POST", at, body)


def transaction(*changes: tuple[str, list[Any]], namespace: str = "sales") -> Ask:
    """A commit to several tables; `table@namespace` names a table of another namespace."""

    def body(scene: Scene) -> Any:
        found = []
        for name, updates in changes:
            table, _, where = name.partition("@")
            identifier = {"namespace": [where or namespace], "name": table}
            found.append({"identifier": identifier, "requirements": [], "updates": resolve_updates(scene, *updates)})
        return {"table-changes": found}

    return send("POST", "/transactions/commit", body)


def file_of_t(scene: Scene) -> str:
    """The location of the metadata file of the protected table `t`."""
    return scene.row().pointer.location


def forge(name: str, **changes: Any) -> Place:
    """A copy of the table's metadata file with these fields changed, in a folder that a producer can write."""

    def place(scene: Scene) -> str:
        document = json.loads(Path(file_of_t(scene).removeprefix("file://")).read_bytes())
        document |= {
            key.replace("_", "-"): value(scene) if callable(value) else value for key, value in changes.items()
        }
        path = Path(f"{scene.lake.folder}/warehouse/forged/{name}/v1.metadata.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
        return f"file://{path}"

    return place


def forged_folder(name: str) -> Place:
    return lambda scene: f"file://{scene.lake.folder}/warehouse/forged/{name}"


def link_to_metadata_file(scene: Scene) -> str:
    path = Path(f"{scene.lake.folder}/warehouse/forged/link.metadata.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(file_of_t(scene).removeprefix("file://"))
    return f"file://{path}"


def folder_behind_a_link(scene: Scene) -> str:
    link = Path(f"{scene.lake.folder}/warehouse/sales/own-link")
    if not link.is_symlink():
        link.symlink_to(scene.lake.folder / "catalog")
    return f"file://{link}/x"


NEW = {"table_uuid": lambda _: str(uuid.uuid4())}
EXISTENCE = [
    *(Attack(name, by, ask, 403, "main_gated") for by in WRITERS for name, ask in {
        "drop": send("DELETE", T),
        "purge": send("DELETE", T, params={"purgeRequested": "true"}),
        "rename": rename("t", "u"),
        "rename into another namespace": rename("t", "t", into=("sales", "gated")),
        "register with overwrite": register("t", file_of_t, overwrite=True),
    }.items()),
    *(Attack(name, by, ask, 403) for by in OTHERS for name, ask in {
        "drop": send("DELETE", T),
        "purge": send("DELETE", T, params={"purgeRequested": "true"}),
        "rename": rename("t", "u"),
        "register with overwrite": register("t", file_of_t, overwrite=True),
        "create": create("u"),
    }.items()),
    Attack("create over it", "producer", create("t"), 409, "table_exists"),
    Attack("staged create over it", "producer", create("t", stage_create=True), 409, "table_exists"),
    Attack("CTAS over it", "producer", commit(set_ref("main", HIDDEN), requirements=[{"type": "assert-create"}]), 409,
           "requirement_table_exists"),
    Attack("register over it", "producer", register("t", file_of_t), 409, "table_exists"),
    Attack("another table renamed over it", "producer", rename("open", "t"), 409, "table_exists"),
    Attack("a foreign table renamed into a protecting namespace", "producer",
           rename("open", "t", into=("sales", "gated")), 403, "namespace_gated"),
    Attack("a table renamed into another domain", "operator", rename("open", "t", into=("risk",)), 403,
           "domain_wrong"),
    Attack("a new name with a control character", "producer", rename("open", "t\u0000"), 400, "name_invalid"),
]  # fmt: skip
PLACES = [
    Attack("its own metadata file under another name", "producer", register("u", file_of_t), 403, "location_outside"),
    Attack("its own metadata file under another name", "operator", register("u", file_of_t), 403, "location_taken"),
    Attack("a link to its metadata file", "producer", register("u", link_to_metadata_file), 403, "location_outside"),
    Attack("a forged copy of its metadata file", "producer", register("u", forge("copy")), 403, "location_outside"),
    Attack("a forged copy under a new uuid", "producer", register("u", forge("new", **NEW)), 403, "location_outside"),
    Attack("a forged copy under a new uuid", "operator", register("u", forge("new", **NEW)), 403, "location_taken"),
    Attack("a forged copy in its own place with its manifests", "producer",
           register("u", forge("own", location=forged_folder("own"), **NEW)), 403, "location_outside"),
    Attack("a forged copy with rows in a protecting namespace", "operator",
           register("u", forge("gated", location=forged_folder("gated"), **NEW), at=GATED), 403, "main_gated"),
    Attack("a metadata file out of the warehouse", "producer", register("u", lambda _: "file:///etc/passwd"), 403,
           "location_outside"),
    Attack("a metadata file by a way out", "producer",
           register("u", lambda scene: f"file://{scene.lake.folder}/warehouse/../catalog/x"), 400, "location_invalid"),
    *(Attack(f"a table {name}", by, create("u", location=place), 403, "location_taken")
      for by in WRITERS for name, place in {
          "in its place": lambda scene: scene.location,
          "inside its place": lambda scene: f"{scene.location}/data",
          "in its place, spelled otherwise": lambda scene: scene.location.replace("file://", "file:"),
      }.items()),
    *(Attack("a table above its place", by, create("u", location=lambda scene: scene.location.rpartition("/")[0]), 403,
             refusal) for by, refusal in {"producer": "location_outside", "operator": "location_taken"}.items()),
    Attack("a table by a way out", "producer", create("u", location=lambda scene: f"{scene.location}/../../risk"), 400,
           "location_invalid"),
    Attack("a table outside the warehouse", "producer", create("u", location=lambda _: "file:///tmp/elsewhere"), 403,
           "location_outside"),
    Attack("a table where the Steward keeps its files", "operator",
           create("u", location=lambda scene: f"file://{scene.lake.folder}/catalog/x"), 403, "location_reserved"),
    Attack("a staged table in its place", "producer",
           create("u", stage_create=True, location=lambda scene: scene.location), 403, "location_taken"),
    Attack("an unprotected table moved into its place", "producer",
           commit(lambda scene: {"action": "set-location", "location": f"{scene.location}/x"}, table="open"), 403,
           "location_taken"),
    Attack("its manifest list in an unprotected table", "producer",
           commit(lambda scene: scene.next(21, parent=FIRST, name="open",
                                           **{"manifest-list": f"{scene.location}/metadata/snap-{HEAD}.avro"}),
                  set_ref("main", 21), table="open"), 400, "staging_not_sane"),
    Attack("an unprotected table moved out of the warehouse", "producer",
           commit({"action": "set-location", "location": "file:///tmp/elsewhere"}, table="open"), 403,
           "location_outside"),
    Attack("an unprotected table given its UUID", "producer",
           commit(lambda scene: {"action": "assign-uuid", "uuid": scene.row().table_uuid}, table="open"), 403,
           "table_uuid_changed"),
    Attack("a table behind a link to the Steward's files", "producer",
           create("u", location=folder_behind_a_link), 403, "location_reserved"),
    *(Attack("CTAS", by, send("POST", f"{TABLES}/new", lambda scene: {
        "requirements": [{"type": "assert-create"}], "updates": ctas(scene)}), 403, "role_wrong")
      for by in ("publisher", "steward", "attempt one")),
    Attack("CTAS of its manifest list", "producer", send("POST", f"{TABLES}/new", lambda scene: {
        "requirements": [{"type": "assert-create"}],
        "updates": ctas(scene, f"{scene.location}/metadata/snap-{HEAD}.avro")}), 400, "staging_not_sane"),
    Attack("CTAS into a protecting namespace", "producer",
           send("POST", f"{GATED}/tables/new", lambda scene: {
               "requirements": [{"type": "assert-create"}], "updates": ctas(scene, folder="sales/gated")}), 403,
           "main_gated"),
]  # fmt: skip
# An allowed change of a property, and a change that the gate must refuse.
QUIET = [{"action": "set-properties", "updates": {"quiet": "yes"}}]
TO_MAIN = [set_ref("main", HIDDEN)]
TRANSACTIONS = [
    Attack("an open table and main", "producer", transaction(("open", QUIET), ("t", TO_MAIN)), 403, "main_gated"),
    Attack("main and an open table", "operator", transaction(("t", TO_MAIN), ("open", QUIET)), 403, "main_gated"),
    Attack("a staging branch and another's main", "producer",
           transaction(("empty", [set_ref("b", 8_800_000_000_000_003)]), ("t", TO_MAIN)), 403, "main_gated"),
    Attack("an open table and another domain's", "producer", transaction(("open", QUIET), ("secrettable@risk", QUIET)),
           403, "domain_wrong"),
    Attack("an open table and one that is not there", "producer", transaction(("open", QUIET), ("none", QUIET)), 404,
           "table_unknown"),
    Attack("an open table and an unknown update", "producer", transaction(("open", QUIET), ("t", [{"action": "x"}])),
           400, "update_unknown"),
    Attack("one table twice", "producer", transaction(("t", [set_ref("b", HEAD)]), ("t", TO_MAIN)), 400,
           "commit_table_twice"),
    Attack("no table", "producer", transaction(), 400, "commit_tables_too_many"),
    Attack("an open table and main", "attempt one", transaction(("open", QUIET), ("t", TO_MAIN)), 403, "role_wrong"),
    Attack("an open table and main", "consumer", transaction(("open", QUIET), ("t", TO_MAIN)), 403, "role_wrong"),
    Attack("two protected tables", "attempt one",
           transaction(("t", [set_ref("pvdm-one", HEAD)]), ("empty", [set_ref("pvdm-one", 8_800_000_000_000_003)])),
           403, "attempt_of_other_table"),
]  # fmt: skip
VIEW = {
    "name": "t", "schema": SCHEMA, "properties": {},
    "view-version": {
        "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {"engine-name": "spark"},
        "default-namespace": ["sales"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    },
}  # fmt: skip
NAMESPACES = [
    Attack("a view over it", "producer", send("POST", "/namespaces/sales/views", VIEW), 409),
    Attack("the namespace dropped", "producer", send("DELETE", "/namespaces/sales"), 409, "namespace_not_empty"),
    Attack("a protecting namespace dropped", "producer", send("DELETE", GATED), 403, "namespace_gated"),
    Attack("a namespace given another domain", "producer",
           send("POST", f"{GATED}/properties", {"updates": {"pvdm.domain": "risk"}}), 403, "domain_wrong"),
    Attack("a namespace's domain taken away", "producer",
           send("POST", "/namespaces/sales/properties", {"removals": ["pvdm.domain"]}), 403, "domain_wrong"),
    Attack("a namespace renamed", "producer",
           send("POST", "/namespaces/rename", {"source": ["sales"], "destination": ["s"]}), 405),
    Attack("a namespace of another domain", "producer",
           send("POST", "/namespaces", {"namespace": ["risk", "mine"]}), 403, "domain_wrong"),
    Attack("a namespace for another domain", "producer",
           send("POST", "/namespaces", {"namespace": ["mine"], "properties": {"pvdm.domain": "risk"}}), 403,
           "domain_wrong"),
    Attack("a namespace", "consumer", send("POST", "/namespaces", {"namespace": ["mine"]}), 403, "role_wrong"),
    Attack("a namespace", "attempt one", send("POST", "/namespaces", {"namespace": ["mine"]}), 403),
]  # fmt: skip
FOREIGN = [
    Attack(name, by, ask, 403) for by in ("risk producer", "risk consumer") for name, ask in {
        "load": send("GET", T),
        "load what is not there": send("GET", f"{TABLES}/none"),
        "list": send("GET", TABLES),
        "describe": send("GET", "/namespaces/sales"),
        "list inside": send("GET", "/namespaces", params={"parent": "sales"}),
        "drop": send("DELETE", T),
        "commit": commit(set_ref("b", HEAD)),
        "rename to itself": rename("t", "mine", into=("risk",)),
        "register": register("u", file_of_t),
        "metrics": send("POST", f"{T}/metrics", {"report-type": "scan-report"}),
    }.items()
] + [
    Attack("another domain's table", "producer", send("GET", "/namespaces/risk/tables/secrettable"), 403),
    Attack("another domain's tables", "consumer", send("GET", "/namespaces/risk/tables"), 403),
    Attack("another domain's metadata file", "producer",
           register("u", lambda scene: scene.row("secrettable", ("risk",)).pointer.location), 403, "location_outside"),
]  # fmt: skip


def with_headers(**headers: str) -> Ask:
    """A write to main with these headers, which replace the caller's headers of the same name."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def ask(scene: Scene, caller: Caller) -> httpx.Response:
        body = {"updates": [set_ref("main", HIDDEN)]}
        return caller.http.post(f"{V1}{T}", json=body, headers={**caller.headers, **named})

    return ask


def token_in_query(scene: Scene, _: Caller) -> httpx.Response:
    token, _grant = scene.lake.steward.stand.token(Role.OPERATOR, "*", "a-query")
    return scene.lake.steward.http.get(f"{V1}{T}", params={"access_token": token})


def two_tokens(scene: Scene, caller: Caller) -> httpx.Response:
    token, _ = scene.lake.steward.stand.token(Role.OPERATOR, "*", "a-second")
    headers = [("authorization", caller.headers["authorization"]), ("authorization", f"Bearer {token}")]
    return caller.http.get(f"{V1}{T}", headers=headers)


def permit_in_header(scene: Scene, caller: Caller) -> httpx.Response:
    """A write to main with the fields of a permit in a header."""
    row = scene.row()
    permit = json.dumps({"table_uuid": row.table_uuid, "base_sha256": row.pointer.sha256, "new_sha256": "00" * 32})
    return with_headers(pvdm_permit=permit, x_pvdm_permit=permit)(scene, caller)


HEADERS_AND_PATHS = [
    *(Attack(f"the header {value!r}", "nobody", with_headers(authorization=value), 401)
      for value in ("Bearer None", "Bearer null", "Bearer", "bearer", "None", "Basic b3BlcmF0b3I6eA==",
                    "Bearer a b", "Token x")),
    Attack("no header", "nobody", with_headers(), 401, "token_missing"),
    Attack("a token in the query", "nobody", token_in_query, 400),
    Attack("two tokens", "consumer", two_tokens, 401),
    Attack("a revoked token", "revoked", send("GET", T), 401),
    Attack("a revoked token's commit", "revoked", commit(set_ref("b", HEAD)), 401),
    Attack("a permit in a header", "producer", permit_in_header, 403, "main_gated"),
    Attack("a role in a header", "producer", with_headers(x_pvdm_role="operator", x_user="operator"), 403,
           "main_gated"),
    Attack("another method in a header", "consumer",
           send("POST", f"{T}/metrics", {"report-type": "x"}, headers={"x-http-method-override": "DELETE"}), 204),
    Attack("credentials asked for", "consumer",
           send("GET", T, headers={"x-iceberg-access-delegation": "vended-credentials,remote-signing"}), 200),
    *(Attack(f"the path {path}", "producer", send("DELETE", path), status) for path, status in {
        "/other/namespaces/sales/tables/t": 404,
        "//namespaces/sales/tables/t": 404,
        "/namespaces/sales/tables/T": 404,
        "/namespaces/SALES/tables/t": 404,
        "/namespaces/sales/tables/t%00": 400,
        "/namespaces/sales/tables/t%20": 400,
        "/namespaces/sales/tables/t/": 404,
        "/namespaces/sales/tables/%EF%BD%94": 404,
        "/namespaces/sales/tables/t%2F": 404,
        "/namespaces/sales/tables/%2E%2E%2Ft": 404,
        "/namespaces/risk%2F..%2Fsales/tables/t": 404,
        "/namespaces/sales%1F/tables/t": 400,
        "/namespaces/sales%1F..%1Fsales/tables/t": 400,
        "/namespaces/sales.gated/tables/t": 404,
        "/namespaces/sales/tables/t%FF": 400,
        "/namespaces/sales/tables/t;x=1": 404,
    }.items()),
]  # fmt: skip
ALL = [*EXISTENCE, *PLACES, *TRANSACTIONS, *NAMESPACES, *FOREIGN, *HEADERS_AND_PATHS]


def ctas(scene: Scene, manifest_list: str | None = None, *, folder: str = "sales") -> list[Any]:
    location = f"file://{scene.lake.folder}/warehouse/{folder}/ctas"
    snapshot = scene.next(21, parent=None)["snapshot"]
    snapshot |= {"sequence-number": 1, "manifest-list": manifest_list or f"{location}/m.avro", "schema-id": 0}
    return [
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "set-location", "location": location},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "add-snapshot", "snapshot": snapshot},
        set_ref("main", 21),
    ]


@for_each("attack", ALL, ids=lambda attack: attack.named)
def test_no_other_request_gets_around_the_gate(scene: Scene, attack: Attack) -> None:
    run(scene, attack)


def test_an_expired_token_is_refused(scene: Scene) -> None:
    stand = scene.lake.steward.stand
    token, _ = stand.notary.access.issue(Role.OPERATOR, domain="*", name="a-short", lifetime_seconds=60)
    scene.callers["expired"] = Caller(scene.lake.steward.http, bearer(token.reveal()))
    stand.time.pass_by(61_000_000)
    run(scene, Attack("a token that has run out", "expired", send("GET", T), 401))


def test_a_metadata_file_that_was_edited_on_disk_is_not_served(scene: Scene) -> None:
    before, path = scene.main(), Path(file_of_t(scene).removeprefix("file://"))
    original = path.read_bytes()
    for edited in (original.replace(b'"owner":"sales"', b'"owner":"eve"'), original + b" ", b"", b"{}"):
        path.write_bytes(edited)
        for by, ask in (("consumer", send("GET", T)), ("producer", send("GET", T)), ("producer", commit())):
            response = ask(scene, scene.callers[by])
            error = response.json()["error"]
            assert (response.status_code, error["pvdm-code"]) == (500, "metadata_file_changed")
            assert "eve" not in response.text
            require_no_trace(by, response)
    path.write_bytes(original)
    require_same(before, scene.main())


def test_loading_a_table_whose_metadata_file_is_missing_is_an_error(scene: Scene) -> None:
    path = Path(file_of_t(scene).removeprefix("file://"))
    original = path.rename(path.with_suffix(".kept"))
    response = scene.callers["producer"].ask("GET", T)
    original.rename(path)
    assert (response.status_code, response.json()["error"]["pvdm-code"]) == (404, "metadata_file_missing")


def test_another_identity_cannot_use_an_idempotency_key_again(scene: Scene) -> None:
    scene.known, key = None, {"idempotency-key": str(uuid.uuid4())}
    body = {"updates": [scene.next(41), set_ref("keyed", 41)]}
    first = scene.callers["producer"].ask("POST", T, json=body, headers=key)
    assert first.status_code == 200, first.text
    for by, status in (("consumer", 403), ("risk producer", 403), ("publisher", 403), ("operator", 400)):
        response = scene.callers[by].ask("POST", T, json=body, headers=key)
        assert response.status_code == status, (by, response.text)
        require_no_trace(by, response)
