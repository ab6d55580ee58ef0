"""Attacks by staging on main's row ids, history and bytes, and what a publisher learns of hidden refs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.catalog.responses import published_view
from pvdm.catalog.sanity import COMMIT_ROWS_MAX, ROW_IDS_OF_A_DAY_MAX
from pvdm.errors import InputError, NotAllowedError, PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.core import (
    FIRST,
    OPERATOR,
    PRODUCER,
    RISK,
    SALES,
    Core,
    Doc,
    core_in,
    grant,
    set_ref,
    to_ref,
)
from tests.support.lake.metadata import document_of, statistics

DAY_MICROS = 86_400_000_000
PUBLISHER = grant(Role.PUBLISHER)


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def remove(*snapshot_ids: int) -> Doc:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def use_up_row_ids(core: Core, rows: int) -> None:
    """Stage a snapshot and remove it at once; its row ids stay used up."""
    made = core.snapshot(core.get().metadata, **{"added-rows": rows})
    core.commit("orders", to_ref("burn", made))
    core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": "burn"}, remove(made["snapshot-id"])])


def test_staging_cannot_use_up_the_row_ids_of_main_or_of_the_next_day(core: Core) -> None:
    core.table(version=3)
    allowed = ROW_IDS_OF_A_DAY_MAX * core.micros // DAY_MICROS
    core.plant("orders", TableMetadata.from_json(document_of(core.get().metadata) | {"next-row-id": allowed - 2**41}))
    use_up_row_ids(core, COMMIT_ROWS_MAX)
    use_up_row_ids(core, COMMIT_ROWS_MAX)
    with pytest.raises(InputError) as caught:
        use_up_row_ids(core, 1)
    assert (caught.value.reason, core.get().metadata.next_row_id) == ("staging_not_sane", allowed)
    publish = to_ref("main", core.snapshot(core.get().metadata, **{"parent-snapshot-id": FIRST}))
    core.commit("orders", publish, permit=core.permit_for("orders", publish))
    core.micros += DAY_MICROS
    use_up_row_ids(core, COMMIT_ROWS_MAX)


def roll_back_and_protect(core: Core) -> int:
    """Roll main back and protect the table; returns the snapshot that main showed before, which a tag names."""
    core.table(protected=False)
    made = core.snapshot(core.get().metadata, **{"parent-snapshot-id": FIRST})
    core.commit("orders", to_ref("main", made), by=OPERATOR)
    core.commit("orders", [set_ref("old", made["snapshot-id"], "tag"), set_ref("main", FIRST)], by=OPERATOR)
    core.protect()
    return int(made["snapshot-id"])


@pytest.mark.parametrize("by", [PRODUCER, OPERATOR], ids=["producer", "operator"])
def test_a_snapshot_that_the_snapshot_log_and_a_tag_name_cannot_be_forged(core: Core, by: Grant) -> None:
    once = roll_back_and_protect(core)
    before = core.get()
    place = f"{core.place('orders')}/metadata/forged.avro"
    forged = core.snapshot(before.metadata, snapshot_id=once, **{"parent-snapshot-id": FIRST, "manifest-list": place})
    updates = [remove(once), *to_ref("stage", forged), set_ref("old", once, "tag")]
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", updates, by=by)
    assert (caught.value.reason, core.get()) == ("main_gated", before)


def test_a_token_for_one_attempt_cannot_forge_such_a_snapshot_either(core: Core) -> None:
    once = roll_back_and_protect(core)
    attempt = core.attempt(core.get().row)
    place = f"{attempt.prefix}/metadata/forged.avro"
    forged = core.snapshot(core.get().metadata, snapshot_id=once, **{"manifest-list": place})
    updates = [remove(once), *to_ref(attempt.branch, forged), set_ref("old", once, "tag")]
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", updates, by=grant(attempt_id=attempt.attempt_id))
    assert caught.value.reason == "main_gated"


def test_updates_that_only_reorder_the_consumers_document_are_refused(core: Core) -> None:
    core.table(protected=False)
    core.commit("orders", [{"action": "set-properties", "updates": {"z": "1"}}])
    core.commit("orders", [{"action": "set-statistics", "statistics": statistics(FIRST)}])
    core.protect()
    before = core.get()
    rewrites: list[list[Doc]] = [
        [
            {"action": "remove-properties", "removals": ["owner"]},
            {"action": "set-properties", "updates": {"owner": "sales"}},
        ],
        [{"action": "set-statistics", "statistics": dict(reversed(statistics(FIRST).items()))}],
    ]
    for by in (PRODUCER, OPERATOR, PUBLISHER):
        for updates in rewrites:
            with pytest.raises(NotAllowedError) as caught:
                core.commit("orders", updates, by=by)
            assert (caught.value.reason, core.get()) == ("main_gated", before)


TAG = set_ref("v9", FIRST, "tag")


def stage_hidden_branch(core: Core) -> int:
    """Make a branch that a publisher does not see, and a tag on its head; returns this snapshot."""
    core.table(protected=False)
    head = core.staged(branch="secretwork").metadata.refs["secretwork"].snapshot_id
    core.commit("orders", [set_ref("secretpin", head, "tag")], by=OPERATOR)
    core.protect()
    return head


def error_for_publisher(core: Core, *updates: Doc) -> tuple[str, ...] | None:
    """The parts of the error that a publisher gets for these updates; None if they are committed."""
    try:
        core.commit("orders", updates, by=PUBLISHER)
    except PvdmError as error:
        return type(error).__name__, error.reason, str(error), str(error.expected), str(error.got), str(error.hint)
    return None


def test_a_tag_that_conflicts_with_a_hidden_ref_gets_the_same_error(core: Core) -> None:
    head = stage_hidden_branch(core)
    errors = [error_for_publisher(core, set_ref(name, FIRST, "tag")) for name in ("secretwork", "secretpin", str(head))]
    assert (set(map(type, errors)), len(set(errors))) == ({tuple}, 1)
    words = errors[0] or ()
    assert words[1] == "tag_unavailable"
    assert not any(word in " ".join(words) for word in ("secret", "branch", str(head)))


def test_updates_of_hidden_refs_by_a_publisher_have_neither_effect_nor_error(core: Core) -> None:
    head = stage_hidden_branch(core)
    before = core.get().metadata
    guesses: list[Doc] = [
        {"action": "remove-snapshot-ref", "ref-name": "secretwork"},
        {"action": "remove-snapshot-ref", "ref-name": "secretpin"},
        remove(head),
        {"action": "remove-statistics", "snapshot-id": head},
    ]
    for number, guess in enumerate(guesses):
        assert error_for_publisher(core, set_ref(f"v{number}", FIRST, "tag"), guess) is None
    now = core.get().metadata
    assert now.snapshots == before.snapshots
    assert {name: ref for name, ref in now.refs.items() if not name.startswith("v")} == before.refs
    assert sorted(published_view(now).refs) == ["main", "v0", "v1", "v2", "v3"]


def test_a_publisher_can_change_and_remove_its_tags_beside_hidden_refs(core: Core) -> None:
    stage_hidden_branch(core)
    assert error_for_publisher(core, TAG | {"x-word": "y", "max-ref-age-ms": 7}) is None
    assert core.get().metadata.refs["v9"].raw["x-word"] == "y"
    assert error_for_publisher(core, TAG | {"max-ref-age-ms": 9}) is None
    assert core.get().metadata.refs["v9"].max_ref_age_ms == 9
    assert error_for_publisher(core, {"action": "remove-snapshot-ref", "ref-name": "v9"}) is None
    assert sorted(core.get().metadata.refs) == ["main", "secretpin", "secretwork"]


@pytest.mark.parametrize(
    ("by", "refusal"), [(grant(domain="risk"), "domain_wrong"), (grant(Role.CONSUMER), "role_wrong")]
)
def test_a_caller_without_write_access_does_not_wait_for_a_turn(core: Core, by: Grant, refusal: str) -> None:
    core.table()
    core.table("own", levels=RISK, protected=False)
    seconds: list[float] = []

    def commit_meanwhile() -> None:
        """Commits while `core.staged` below has the turn at the table."""
        start = time.monotonic()
        changes = [Change(SALES, "orders", (), [set_ref("b", FIRST)])]
        with pytest.raises(NotAllowedError) as caught:
            core.commits.commit(by, changes)
        assert caught.value.reason == refusal
        seconds.append(time.monotonic() - start)

    with fault.armed("catalog.after_metadata_file", fault.Call(commit_meanwhile)):
        core.staged()
    assert seconds
    assert max(seconds) < 5
