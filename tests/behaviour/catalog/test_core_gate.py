"""Rules of the catalog for protected tables: nobody changes main without a permit, and roles keep to their own refs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.catalog import sanity
from pvdm.catalog.commit import Change
from pvdm.catalog.responses import published_view
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError
from pvdm.lake.format.table.commit_request import UPDATES
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.catalog.core import (
    FIRST,
    NOW_MS,
    OPERATOR,
    PRODUCER,
    RISK,
    SALES,
    STEWARD,
    Core,
    Doc,
    always_permit,
    core_in,
    grant,
    ref_is,
    set_ref,
    to_ref,
)
from tests.support.lake.metadata import column, document_of, partition_statistics, schema, statistics
from tests.support.ledger.rows import hex32, hex64, nonce_of

LONGEST = 2**63 - 1
GATED = {"main_gated", "structure_gated", "encryption_keys_gated", "table_uuid_changed", "role_wrong"}


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def attacks(core: Core, base: TableMetadata) -> dict[str, list[Doc]]:
    """Every kind of update against main of a protected table, with the updates that it needs before it."""
    wide = schema(1, *[column(each, name) for each, name in ((1, "id"), (2, "day"), (3, "town"), (4, "extra"))])
    wide["fields"][1]["type"], wide["fields"][2]["type"] = "date", "string"
    order = {"order-id": 1, "fields": [_sort_field(1)]}
    spec = {"spec-id": 2, "fields": [{"name": "town", "transform": "identity", "source-id": 3}]}
    key = {"key-id": "k", "encrypted-key-metadata": "AAEC"}
    staged = base.refs["stage"].snapshot_id
    return {
        "add-snapshot": to_ref("main", core.snapshot(base, **{"parent-snapshot-id": FIRST})),
        "set-snapshot-ref": [set_ref("main", staged)],
        "set-snapshot-ref with retention": [set_ref("main", FIRST, **{"max-snapshot-age-ms": 1})],
        "remove-snapshot-ref": [{"action": "remove-snapshot-ref", "ref-name": "main"}],
        "remove-snapshots": [{"action": "remove-snapshots", "snapshot-ids": [FIRST]}],
        "add-schema": [{"action": "add-schema", "schema": wide}],
        "set-current-schema": [
            {"action": "add-schema", "schema": wide},
            {"action": "set-current-schema", "schema-id": -1},
        ],
        "add-spec": [{"action": "add-spec", "spec": spec}],
        "set-default-spec": [
            {"action": "add-spec", "spec": spec},
            {"action": "set-default-spec", "spec-id": -1},
        ],
        "remove-partition-specs": [{"action": "remove-partition-specs", "spec-ids": [1]}],
        "add-sort-order": [{"action": "add-sort-order", "sort-order": order}],
        "set-default-sort-order": [
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ],
        "set-location": [{"action": "set-location", "location": core.place("elsewhere")}],
        "set-properties": [{"action": "set-properties", "updates": {"write.data.path": "/tmp/x"}}],
        "remove-properties": [{"action": "remove-properties", "removals": ["owner"]}],
        "set-statistics": [{"action": "set-statistics", "statistics": statistics(FIRST)}],
        "remove-statistics": [{"action": "remove-statistics", "snapshot-id": FIRST}],
        "set-partition-statistics": [
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(FIRST)}
        ],
        "remove-partition-statistics": [{"action": "remove-partition-statistics", "snapshot-id": FIRST}],
        "add-encryption-key": [{"action": "add-encryption-key", "encryption-key": key}],
        "remove-encryption-key": [{"action": "remove-encryption-key", "key-id": "k0"}],
        "upgrade-format-version": [{"action": "upgrade-format-version", "format-version": 3}],
        "assign-uuid": [{"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}],
        "remove-schemas": [{"action": "remove-schemas", "schema-ids": [7]}],
    }


def _sort_field(source: int) -> Doc:
    return {"transform": "identity", "source-id": source, "direction": "asc", "null-order": "nulls-first"}


def protected_table(core: Core) -> TableMetadata:
    """A protected table with something of every kind to attack, and a staged snapshot."""
    core.table(protected=False)
    doc = document_of(core.get().metadata)
    doc["schemas"] = [*doc["schemas"], schema(7, column(2, "day", "date"))]  # type: ignore[misc]
    doc["partition-specs"] = [*doc["partition-specs"], {"spec-id": 1, "fields": []}]  # type: ignore[misc]
    doc["statistics"] = [statistics(FIRST) | {"file-size-in-bytes": 7}]
    doc["partition-statistics"] = [partition_statistics(FIRST) | {"file-size-in-bytes": 7}]
    doc["encryption-keys"] = [{"key-id": "k0", "encrypted-key-metadata": "AAEC"}]
    doc["x-unknown"] = {"kept": True}
    core.plant("orders", TableMetadata.from_json(doc))
    core.protect()
    return core.staged().metadata


def main_of(core: Core) -> tuple[bytes, MainState]:
    metadata = core.fresh().get().metadata
    return published_view(metadata).to_bytes(), MainState.of(metadata)


@pytest.mark.parametrize("by", [PRODUCER, OPERATOR, grant(Role.PUBLISHER), STEWARD], ids=lambda by: by.role)
def test_no_update_of_any_kind_changes_main(core: Core, by: Grant) -> None:
    base = protected_table(core)
    before, files, row = main_of(core), core.on_disk(), core.get().row
    found = attacks(core, base)
    assert {name.split()[0] for name in found} == set(UPDATES)
    if by.role is Role.PUBLISHER:
        # A publisher does not see this schema, so its removal is no change and no error.
        core.commit("orders", found.pop("remove-schemas"), by=by)
    for name, updates in found.items():
        with pytest.raises((NotAllowedError, InputError)) as caught:
            core.commit("orders", updates, by=by)
        # A publisher does not see staged snapshots, so they are unknown to it.
        unseen = by.role is Role.PUBLISHER and caught.value.reason == "ref_snapshot_unknown"
        assert caught.value.reason in GATED or unseen, name
    assert (main_of(core), core.on_disk(), core.get().row) == (before, files, row)


@pytest.mark.parametrize("role", [Role.CONSUMER, Role.AUDITOR, Role.ATTESTOR])
@pytest.mark.parametrize("protected", [True, False])
def test_a_reading_role_cannot_write(core: Core, role: Role, protected: bool) -> None:
    core.table(protected=protected)
    for updates in ([], [set_ref("b", FIRST)], [set_ref("v1", FIRST, "tag")]):
        with pytest.raises(NotAllowedError) as caught:
            core.commit("orders", updates, by=grant(role))
        assert caught.value.reason == "role_wrong"


@pytest.mark.parametrize(
    ("role", "refusal"), [(Role.CONSUMER, "role_wrong"), (Role.PUBLISHER, "requirement_ref_missing")]
)
def test_a_requirement_discloses_no_hidden_part(core: Core, role: Role, refusal: str) -> None:
    core.table()
    hidden = core.staged().metadata.refs["stage"].snapshot_id
    guess = {"type": "assert-ref-snapshot-id", "ref": "stage", "snapshot-id": 1}
    with pytest.raises(PvdmError) as caught:
        core.commit("orders", [set_ref("v1", FIRST, "tag")], requirements=[guess], by=grant(role))
    assert (caught.value.reason, str(hidden) in f"{caught.value} {caught.value.got}") == (refusal, False)


def test_a_publishers_requirements_are_checked_on_the_published_view(core: Core) -> None:
    core.table()
    seen = published_view(core.staged().metadata)
    column_id = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": seen.last_column_id}
    requirements = [ref_is(seen, "main"), ref_is(seen, "stage"), column_id]
    core.commit("orders", [set_ref("v1", FIRST, "tag")], requirements=requirements, by=grant(Role.PUBLISHER))
    assert "v1" in core.get().metadata.refs


@pytest.mark.parametrize("by", [grant(domain="risk"), grant(Role.OPERATOR, "risk"), grant(Role.PUBLISHER, "risk")])
@pytest.mark.parametrize("name", ["orders", "not there"])
def test_a_token_of_another_domain_is_refused(core: Core, by: Grant, name: str) -> None:
    core.table()
    with pytest.raises(NotAllowedError) as caught:
        core.commit(name, [set_ref("b", FIRST)], by=by)
    assert caught.value.reason == "domain_wrong"


def test_a_publisher_can_tag_a_snapshot_of_main(core: Core) -> None:
    core.table()
    core.staged()
    state = core.commit("orders", [set_ref("v1", FIRST, "tag")], by=grant(Role.PUBLISHER))
    assert "v1" in published_view(state.metadata).refs


@pytest.mark.parametrize(
    ("by", "refusal"), [(grant(Role.PUBLISHER), "ref_snapshot_unknown"), (OPERATOR, "tag_outside_main")]
)
def test_a_staged_snapshot_cannot_be_tagged(core: Core, by: Grant, refusal: str) -> None:
    core.table()
    staged = core.staged().metadata.refs["stage"].snapshot_id
    with pytest.raises((NotAllowedError, InputError)) as caught:
        core.commit("orders", [set_ref("v1", staged, "tag")], by=by)
    assert caught.value.reason == refusal


def test_a_write_without_a_branch_is_refused(core: Core) -> None:
    base = core.table().metadata
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", to_ref("b", core.snapshot(base))[:1])
    assert caught.value.reason == "snapshot_without_branch"


INSANE: dict[str, Doc] = {
    "the last sequence number": {"sequence-number": LONGEST},
    "a skipped sequence number": {"sequence-number": 3},
    "a time far ahead": {"timestamp-ms": NOW_MS + 10**9},
    "a time long ago": {"timestamp-ms": 0},
    "another schema": {"schema-id": 5},
    "row ids": {"first-row-id": 0, "added-rows": 1},
    "a huge summary": {"summary": {"operation": "append", "x": "y" * 70_000}},
    "another table's files": {"manifest-list": "file:///other/x.avro"},
    "a parent from nowhere": {"parent-snapshot-id": 4242},
}


@pytest.mark.parametrize("what", INSANE)
def test_a_branch_commit_that_is_not_sane_is_refused(core: Core, what: str) -> None:
    base, files = core.table().metadata, core.on_disk()
    with pytest.raises(InputError) as caught:
        core.commit("orders", to_ref("stage", core.snapshot(base, **INSANE[what])))
    assert (caught.value.reason, core.on_disk()) == ("staging_not_sane", files)


def test_main_can_be_written_after_attempts_to_use_up_its_sequence_numbers(core: Core) -> None:
    base = core.table().metadata
    far_ahead = to_ref("stage", core.snapshot(base, **{"sequence-number": LONGEST}))
    for updates in (far_ahead, [far_ahead[0], {"action": "remove-snapshots", "snapshot-ids": [core.counter]}]):
        with pytest.raises(InputError):
            core.commit("orders", updates)
    core.staged()
    publish = to_ref("main", core.snapshot(core.get().metadata))
    state = core.commit("orders", publish, permit=core.permit_for("orders", publish))
    assert state.metadata.current_snapshot_id == core.counter


def test_a_manifest_list_behind_a_link_is_refused(core: Core) -> None:
    base = core.table().metadata
    home, other = Path(core.place("orders").removeprefix("file://")), core.folder / "other"
    home.mkdir(parents=True)
    other.mkdir()
    (home / "metadata").symlink_to(other)
    with pytest.raises(InputError) as caught:
        core.commit("orders", to_ref("stage", core.snapshot(base)))
    assert "symbolic link" in (caught.value.expected or "")


def publication(core: Core) -> list[Doc]:
    return to_ref("main", core.snapshot(core.get().metadata, **{"parent-snapshot-id": FIRST}))


def test_a_commit_with_its_permit_changes_main(core: Core) -> None:
    core.table()
    updates = publication(core)
    state = core.commit("orders", updates, permit=core.permit_for("orders", updates))
    assert state.metadata.current_snapshot_id == core.counter


@pytest.mark.parametrize("what", ["table_uuid", "base_sha256", "new_sha256"])
def test_a_permit_for_another_table_base_or_document_does_not_allow_the_commit(core: Core, what: str) -> None:
    core.table()
    updates = publication(core)
    permit = replace(core.permit_for("orders", updates), **{what: hex64("other")})
    files = core.on_disk()
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", updates, permit=permit)
    assert (caught.value.reason, core.on_disk()) == ("permit_for_other_commit", files)


def test_a_permit_does_not_allow_a_commit_once_the_base_has_moved(core: Core) -> None:
    core.table()
    updates = publication(core)
    permit = core.permit_for("orders", updates)
    core.commit("orders", [set_ref("its", FIRST)])
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", updates, permit=permit)
    assert caught.value.reason == "permit_for_other_commit"


def test_a_permit_cannot_be_used_twice(core: Core) -> None:
    core.table()
    updates = publication(core)
    permit = core.permit_for("orders", updates)
    core.commit("orders", updates, permit=permit)
    with pytest.raises((NotAllowedError, ConflictError, InputError)):
        core.commit("orders", updates, permit=permit)
    assert core.get().metadata.current_snapshot_id == core.counter


def test_a_permit_for_one_table_allows_no_other_in_the_same_transaction(core: Core) -> None:
    core.table(), core.table("other")
    updates = publication(core)
    permit = core.permit_for("orders", updates)
    changes = [Change(SALES, "orders", (), updates), Change(SALES, "other", (), updates)]
    with pytest.raises(NotAllowedError) as caught:
        core.commits.commit(PRODUCER, changes, make_permit=always_permit(permit))
    assert (caught.value.reason, core.get().metadata.current_snapshot_id) == ("permit_for_other_commit", FIRST)


def test_a_permit_does_not_let_a_reader_write(core: Core) -> None:
    core.table()
    updates = publication(core)
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", updates, by=grant(Role.CONSUMER), permit=core.permit_for("orders", updates))
    assert caught.value.reason == "role_wrong"


def attempt_write(core: Core, attempt: Attempt, **more: object) -> list[Doc]:
    """The updates of a write by the attempt, to its branch and below its prefix."""
    place = f"{attempt.prefix}/metadata/snap.avro"
    return to_ref(attempt.branch, core.snapshot(core.get().metadata, **{"manifest-list": place, **more}))


def grant_of(attempt: Attempt) -> Grant:
    return grant(attempt_id=attempt.attempt_id)


def test_a_token_for_one_attempt_stages_on_its_branch_under_its_prefix(core: Core) -> None:
    attempt = core.attempt(core.table().row)
    state = core.commit("orders", attempt_write(core, attempt), by=grant_of(attempt))
    assert attempt.branch in state.metadata.refs


def test_a_token_for_one_attempt_cannot_write_outside_its_prefix(core: Core) -> None:
    attempt, other = core.attempt(core.table().row), core.attempt(core.get().row, 2)
    for place in (f"{core.place('orders')}/metadata/x.avro", f"{other.prefix}/x.avro"):
        with pytest.raises(InputError) as caught:
            core.commit("orders", attempt_write(core, attempt, **{"manifest-list": place}), by=grant_of(attempt))
        assert caught.value.reason == "staging_not_sane"


def test_a_token_for_one_attempt_cannot_change_other_refs_and_snapshots(core: Core) -> None:
    attempt, other = core.attempt(core.table().row), core.attempt(core.get().row, 2)
    core.commit("orders", attempt_write(core, other), by=grant_of(other))
    staged = core.counter
    core.commit("orders", attempt_write(core, other, **{"parent-snapshot-id": staged}), by=grant_of(other))
    for updates, refusal in (
        ([set_ref(other.branch, FIRST)], "branch_of_other_attempt"),
        ([{"action": "remove-snapshot-ref", "ref-name": other.branch}], "branch_of_other_attempt"),
        ([{"action": "remove-snapshots", "snapshot-ids": [core.counter]}], "branch_of_other_attempt"),
        ([{"action": "remove-snapshots", "snapshot-ids": [staged]}], "snapshot_not_own"),
        ([set_ref("main", core.counter)], "main_gated"),
        ([set_ref("v1", FIRST, "tag")], "tag_not_allowed"),
    ):
        with pytest.raises(NotAllowedError) as caught:
            core.commit("orders", updates, by=grant_of(attempt))
        assert caught.value.reason == refusal


def test_a_token_for_one_attempt_cannot_write_to_another_table(core: Core) -> None:
    attempt = core.attempt(core.table().row)
    core.table("other")
    with pytest.raises(NotAllowedError) as caught:
        core.commit("other", [set_ref(attempt.branch, FIRST)], by=grant_of(attempt))
    assert caught.value.reason == "attempt_of_other_table"


def test_a_token_for_one_attempt_cannot_write_to_an_unprotected_table(core: Core) -> None:
    attempt = core.attempt(core.table(protected=False).row)
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", attempt_write(core, attempt), by=grant_of(attempt))
    assert caught.value.reason == "role_wrong"


@pytest.mark.parametrize("state", [AttemptState.VERIFYING, AttemptState.ROLLED_BACK])
def test_an_attempt_that_no_longer_stages_takes_no_more_writes(core: Core, state: AttemptState) -> None:
    attempt = core.attempt(core.table().row)
    if state is AttemptState.VERIFYING:
        core.ledger.transact(
            lambda unit: attempts.begin_verifying(
                unit, attempt.attempt_id, nonce=nonce_of(1, 1), staged_snapshot_id="5", reason="staged"
            ),
            at_micros=core.micros,
        )
    else:
        core.ledger.transact(
            lambda unit: attempts.end(unit, attempt.attempt_id, state, reason="stopped"), at_micros=core.micros
        )
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", attempt_write(core, attempt), by=grant_of(attempt))
    assert caught.value.reason == "attempt_not_staging"


def test_a_token_for_an_unknown_attempt_is_refused(core: Core) -> None:
    core.table()
    with pytest.raises(InputError) as caught:
        core.commit("orders", [set_ref("b", FIRST)], by=grant(attempt_id=hex32("nobody")))
    assert caught.value.reason == "attempt_unknown"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_kind_of_staging_is_allowed_and_leaves_main_unchanged(core: Core, version: int) -> None:
    core.table(version=version)
    before = main_of(core)
    core.staged()
    core.staged()
    staged = core.get().metadata
    core.commit("orders", [set_ref("copy", staged.refs["stage"].snapshot_id)], requirements=[ref_is(staged, "copy")])
    core.commit("orders", [set_ref("stage", FIRST, **{"max-ref-age-ms": 5})])
    core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": "copy"}])
    core.commit("orders", [{"action": "remove-snapshots", "snapshot-ids": [core.counter, core.counter - 1]}])
    core.commit("orders", [set_ref("v1", FIRST, "tag")], by=OPERATOR)
    core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": "v1"}], by=OPERATOR)
    assert main_of(core) == before


def test_staging_that_would_make_the_metadata_file_too_large_is_refused(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.table()
    monkeypatch.setattr(sanity, "STAGED_DOCUMENT_MAX_BYTES", 100)
    with pytest.raises(InputError, match="metadata file"):
        core.staged()


def test_files_of_another_domain_cannot_be_committed(core: Core) -> None:
    base = core.table().metadata
    core.table("theirs", levels=RISK)
    theirs = f"{core.place('theirs', RISK)}/metadata/snap.avro"
    with pytest.raises(InputError) as caught:
        core.commit("orders", to_ref("stage", core.snapshot(base, **{"manifest-list": theirs})))
    assert caught.value.reason == "staging_not_sane"


def test_a_permit_has_three_fields() -> None:
    assert Permit.__slots__ == ("table_uuid", "base_sha256", "new_sha256")


def remove(*snapshot_ids: int) -> Doc:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


@pytest.mark.parametrize("by", [PRODUCER, OPERATOR], ids=["producer", "operator"])
def test_expiring_a_snapshot_between_main_and_a_branchs_head_is_refused(core: Core, by: Grant) -> None:
    core.table()
    first = core.staged().metadata.refs["stage"].snapshot_id
    before = core.staged().row.pointer
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", [remove(first)], by=by)
    assert (caught.value.reason, core.get().row.pointer) == ("branch_cut", before)


def test_a_branch_can_be_removed_with_all_of_its_snapshots(core: Core) -> None:
    core.table()
    first = core.staged().metadata.refs["stage"].snapshot_id
    second = core.staged().metadata.refs["stage"].snapshot_id
    gone = core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": "stage"}, remove(first, second)])
    assert [each.snapshot_id for each in gone.metadata.snapshots] == [FIRST]
