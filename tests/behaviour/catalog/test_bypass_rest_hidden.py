"""Attempts to see what is not published: refs, snapshots, logs, files, counters, ETags, other domains."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm.catalog.responses import PUBLISHED_FILES_KEPT_MAX
from tests.support.catalog.bypass import (
    FIRST,
    HEAD,
    HIDDEN,
    IN_EMPTY,
    SECRET_WORDS,
    Ask,
    Attack,
    Scene,
    T,
    commit,
    require_no_trace,
    require_same,
    rows,
    run,
    scene_at,
)
from tests.support.catalog.http import Caller, metadata_document, set_ref
from tests.support.for_each import for_each
from tests.support.lake.metadata import statistics

TABLES = "/namespaces/sales/tables"
EMPTY = f"{TABLES}/empty"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_at(tmp_path_factory.mktemp("bypass")) as found:
        before = found.main()
        yield found
        require_same(before, found.main())


def send(method: str, path: str, body: Any = None, **options: Any) -> Ask:
    def ask(_: Scene, caller: Caller) -> httpx.Response:
        return caller.ask(method, path, **({} if body is None else {"json": body}), **options)

    return ask


def send_outside_catalog(method: str, path: str, **options: Any) -> Ask:
    """A request to a route of the Steward that is not the catalog's."""

    def ask(_: Scene, caller: Caller) -> httpx.Response:
        return caller.http.request(method, path, headers=caller.headers, **options)

    return ask


def load_with_etag_of(other: str, form: str = "{}") -> Ask:
    """A load with `if-none-match`: the ETag of the answer that another role got."""

    def ask(scene: Scene, caller: Caller) -> httpx.Response:
        tag = scene.callers[other].ask("GET", T).headers["etag"]
        return caller.ask("GET", T, headers={"if-none-match": form.format(tag)})

    return ask


GUESS = {"type": "assert-ref-snapshot-id", "ref": "secretwork", "snapshot-id": 1}
READERS = ("consumer", "publisher")
ATTACKS = [
    Attack(name, by, ask, status) for by in READERS for name, (ask, status) in {
        "a load": (send("GET", T), 200),
        "a load with all snapshots": (send("GET", T, params={"snapshots": "all"}), 200),
        "a load with the snapshots of refs": (send("GET", T, params={"snapshots": "refs"}), 200),
        "a load with the snapshots of staging": (send("GET", T, params={"snapshots": "secretwork"}), 400),
        "a load at a snapshot": (send("GET", T, params={"snapshot-id": str(HIDDEN)}), 400),
        "a load at a ref": (send("GET", T, params={"ref": "secretwork"}), 400),
        "a load through a view": (send("GET", T, params={"referenced-by": "sales.x"}), 200),
        "a load of what shows nothing yet": (send("GET", EMPTY), 200),
        "the producer's tag of the answer": (load_with_etag_of("producer"), 200),
        "the producer's tag, weak": (load_with_etag_of("producer", "W/{}"), 200),
        "any tag": (load_with_etag_of("producer", "*"), 200),
        "whether it is there": (send("HEAD", T), 204),
        "the list of tables": (send("GET", TABLES), 200),
        "the list of namespaces": (send("GET", "/namespaces"), 200),
        "the list inside another domain": (send("GET", "/namespaces", params={"parent": "risk"}), 403),
        "another domain's tables by a page token": (
            send("GET", "/namespaces/risk/tables", params={
                "pageToken": base64.urlsafe_b64encode(b'"a"').decode().rstrip("="), "pageSize": "5"}), 403),
        "another domain's namespace by a page token": (
            send("GET", "/namespaces", params={
                "pageToken": base64.urlsafe_b64encode(b'["r"]').decode().rstrip("="), "pageSize": "5"}), 200),
        "a report about a hidden snapshot": (
            send("POST", f"{T}/metrics", {"report-type": "scan-report", "snapshot-id": HIDDEN}), 204),
        "a scan planned by the server": (send("POST", f"{T}/plan", {"snapshot-id": HIDDEN}), 404),
        "credentials for the table": (send("GET", f"{T}/credentials"), 200),
        "the configuration": (send("GET", "/config"), 200),
        "the Steward's counters": (send_outside_catalog("GET", "/metrics"), 403),
        "the Steward's events": (send_outside_catalog("GET", "/v1/events"), 403),
        "an attempt": (send_outside_catalog("GET", "/v1/attempts/" + "00" * 16), 404 if by == "publisher" else 403),
        "a commit that guesses a ref": (commit(requirements=[GUESS]), 403 if by == "consumer" else 409),
        "a commit that guesses a snapshot": (commit(set_ref("v9", HIDDEN, "tag")), 403 if by == "consumer" else 400),
    }.items()
] + [
    Attack("workloads", "consumer", send_outside_catalog("GET", "/v1/workloads"), 403),
    Attack("another domain's list of namespaces", "risk consumer", send("GET", "/namespaces"), 200),
    Attack("nobody's load", "nobody", send("GET", T), 401),
    Attack("nobody's configuration", "nobody", send("GET", "/config"), 401),
]  # fmt: skip


@for_each("attack", ATTACKS, ids=lambda attack: attack.named)
def test_a_consumer_gets_no_hidden_part(scene: Scene, attack: Attack) -> None:
    response = run(scene, attack)
    if response.status_code == 200 and "metadata-location" in response.text:
        answer = response.json()
        assert not [trace for trace in SECRET_WORDS if trace in json.dumps(metadata_document(answer))]


@pytest.mark.parametrize("mode", ["all", "refs"])
def test_a_consumer_gets_main_its_ancestors_and_published_tags_only(scene: Scene, mode: str) -> None:
    metadata = scene.callers["consumer"].done("GET", T, params={"snapshots": mode})["metadata"]
    assert {name: ref["snapshot-id"] for name, ref in metadata["refs"].items()} == {"main": HEAD, "v1": FIRST}
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [FIRST, HEAD]
    assert [each["snapshot-id"] for each in metadata["snapshot-log"]] == [FIRST, HEAD]
    assert (metadata["metadata-log"], metadata["last-sequence-number"]) == ([], 2)


def stage_step_by_step(scene: Scene) -> Iterator[None]:
    """Stages in every way, one step after the other; yields after each step."""
    producer, clock = scene.callers["producer"], scene.lake.steward.stand.time
    steps: list[Callable[[], list[Any]]] = [
        lambda: [scene.next(51, parent=HEAD), set_ref("more", 51)],
        lambda: [scene.next(52, parent=51), set_ref("more", 52)],
        lambda: [{"action": "set-statistics", "statistics": statistics(52)}],
        lambda: [{"action": "remove-snapshot-ref", "ref-name": "more"}],
        lambda: [{"action": "remove-snapshots", "snapshot-ids": [51, 52]}],
    ]
    for updates in steps:
        clock.pass_by(1_000_000)
        response = producer.commit("t", updates())
        assert response.status_code == 200, response.text
        yield


def test_staging_changes_not_one_byte_of_what_a_consumer_gets(scene: Scene) -> None:
    scene.known, consumer = None, scene.callers["consumer"]
    before = {mode: consumer.ask("GET", T, params={"snapshots": mode}) for mode in ("all", "refs")}
    folder = Path(before["all"].json()["metadata-location"].removeprefix("file://")).parent
    files = sorted(folder.iterdir())
    for _ in stage_step_by_step(scene):
        for mode, first in before.items():
            again = consumer.ask("GET", T, params={"snapshots": mode})
            assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
            tag = {"if-none-match": first.headers["etag"]}
            assert consumer.ask("GET", T, params={"snapshots": mode}, headers=tag).status_code == 304
        assert sorted(folder.iterdir()) == files


def test_staging_on_an_empty_table_is_not_disclosed(scene: Scene) -> None:
    scene.known, consumer = None, scene.callers["consumer"]
    before = consumer.ask("GET", EMPTY)
    scene.lake.steward.stand.time.pass_by(1_000_000)
    update = scene.next(61, parent=IN_EMPTY, name="empty", **rows(3))
    assert scene.callers["producer"].commit("empty", [update, set_ref("secretstage", 61)]).status_code == 200
    after = consumer.ask("GET", EMPTY)
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    assert after.json()["metadata"]["last-updated-ms"] == 0


def test_a_readers_folder_holds_no_trace_of_staging(scene: Scene) -> None:
    answer = scene.callers["consumer"].done("GET", T)
    folder = Path(answer["metadata-location"].removeprefix("file://")).parent
    assert folder.parent == scene.lake.folder / "catalog" / "published"
    for path in folder.iterdir():
        assert not [trace for trace in SECRET_WORDS if trace in path.read_text()]
    assert folder.parent not in Path(scene.row().pointer.location.removeprefix("file://")).parents


def test_a_readers_file_that_was_edited_or_removed_on_disk_is_written_again(scene: Scene) -> None:
    answer = scene.callers["consumer"].done("GET", T)
    path = Path(answer["metadata-location"].removeprefix("file://"))
    original = path.read_bytes()
    for damage in (lambda: path.write_bytes(original.replace(b"sales", b"eve")), path.unlink):
        damage()
        assert scene.callers["consumer"].done("GET", T) == answer
        assert path.read_bytes() == original


def test_only_the_newest_files_for_readers_are_kept(scene: Scene) -> None:
    scene.known, consumer, operator = None, scene.callers["consumer"], scene.callers["operator"]
    path = f"{TABLES}/open"
    for number in range(PUBLISHED_FILES_KEPT_MAX + 5):
        update = {"action": "set-properties", "updates": {"n": str(number)}}
        assert operator.commit("open", [update]).status_code == 200
        last = consumer.done("GET", path)
    folder = Path(last["metadata-location"].removeprefix("file://")).parent
    assert len(list(folder.iterdir())) == PUBLISHED_FILES_KEPT_MAX + 1
    assert metadata_document(last)["properties"]["n"] == str(PUBLISHED_FILES_KEPT_MAX + 4)


def test_another_domain_gets_the_same_answer_for_existing_and_missing_tables(scene: Scene) -> None:
    stranger = scene.callers["risk consumer"]
    there, not_there = (stranger.ask("GET", f"{TABLES}/{name}") for name in ("t", "none"))
    assert (there.status_code, there.content) == (not_there.status_code, not_there.content)
    require_no_trace("risk consumer", there)
