"""Tables of an upstream in the Steward's catalog: checked, shown and refused as its own, and read at each request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger.work import claims, workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.report import Standing
from pvdm.model.contract import parse_contract
from pvdm.model.role import Role
from pvdm.steward.work.sources import Sources
from pvdm.verify.fetch import Files
from tests.support import fault
from tests.support.audit.crafted_history import Local, codes, standings
from tests.support.audit.published_history import gather_evidence
from tests.support.catalog.upstream import NEW, Upstream, new_snapshot_on, publish, reason_of
from tests.support.gate.approvals import COLUMN, OTHER_CONTRACT, SALES
from tests.support.gate.protected_tables import House, contract
from tests.support.servers.fault_proxy import ProxiedRequest, after_doing, lose_answer
from tests.support.steward.notary import LOG_ORIGIN
from tools.proof_kit import SECOND

Doc = dict[str, Any]


def refusal_reason(work: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        work()
    return caught.value.reason


def commit(house: House, updates: list[Any], *, role: Role = Role.PRODUCER, name: str = "orders", **more: Any) -> Any:
    grant = replace(house.scene.grant(role, "sales"), **more)
    return house.notary.catalog.tables.commit(grant, [Change(SALES, name, (), updates)])


def set_main(snapshot_id: int) -> Doc:
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}


def load_as(house: House, role: Role, name: str = "orders") -> Doc:
    """The catalog's answer to a caller of this role that loads the table."""
    grant = house.scene.grant(role, "sales")
    catalog = house.notary.catalog
    found: Doc = json.loads(catalog.responses.table(grant, catalog.tables.load(grant, SALES, name)).body)
    return found


def test_a_producer_stages_through_the_steward_and_cannot_move_main(house: House, upstream: Upstream) -> None:
    house.open("w")
    attempt = house.attempt("w")
    house.stage(attempt, NEW)
    staged = upstream.table_state().metadata.refs[attempt.branch].snapshot_id
    own = {"attempt_id": attempt.attempt_id}
    for updates, more, code in (
        ([set_main(staged)], {}, "main_gated"),
        ([set_main(staged)], own, "main_gated"),
        ([{**set_main(staged), "ref-name": "other"}], own, "branch_of_other_attempt"),
        ([{"action": "set-properties", "updates": {"a": "b"}}], {}, "main_gated"),
        (list(COLUMN), {}, "main_gated"),
        ([{"action": "set-location", "location": "file:///elsewhere"}], {}, "location_outside"),
    ):
        before = upstream.table_state().row.pointer
        got = refusal_reason(lambda updates=updates, more=more: commit(house, updates, **more))  # type: ignore[misc]
        assert got == code, updates
        assert upstream.table_state().row.pointer == before
    assert house.rows() == [1, 2]


def test_a_consumer_sees_nothing_that_is_staged(house: House, upstream: Upstream) -> None:
    house.open("w")
    attempt = house.attempt("w")
    house.stage(attempt, NEW)
    whole, seen = load_as(house, Role.PRODUCER), load_as(house, Role.CONSUMER)
    assert attempt.branch in whole["metadata"]["refs"]
    assert whole["metadata-location"] == upstream.table_state().row.pointer.location
    assert (list(seen["metadata"]["refs"]), len(seen["metadata"]["snapshots"])) == (["main"], 1)
    assert seen["metadata-location"].startswith(f"file://{house.stand.folder}")


def test_a_snapshot_that_was_committed_past_the_steward_is_not_shown_to_consumers_and_an_audit_finds_it(
    house: House, upstream: Upstream
) -> None:
    house.stand.time.pass_by(SECOND)
    upstream.steward.stand.time.pass_by(SECOND)
    publish(house, house.proved("w", NEW))
    house.stand.time.pass_by(SECOND)
    grant = house.scene.grant(Role.AUDITOR, "sales")
    judge = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    report = audit(gather_evidence(house.notary, grant, "orders"), Local(), judge, data_files=Files())
    assert (codes(report), standings(report)) == (set(), [Standing.BEFORE, Standing.OK])
    slipped = upstream.append_directly(house, [(8, 1, "Ulm")])
    report = audit(gather_evidence(house.notary, grant, "orders"), Local(), judge, data_files=Files())
    assert not report.holds
    assert [each.snapshot_id for each in report.snapshots if each.standing is Standing.UNPROVED] == [slipped]
    assert refusal_reason(lambda: load_as(house, Role.CONSUMER)) == "main_unproved"
    assert load_as(house, Role.OPERATOR)["metadata"]["current-snapshot-id"] == slipped


def test_tables_of_an_upstream_cannot_be_created_renamed_or_dropped_through_the_steward(
    house: House, upstream: Upstream
) -> None:
    tables, grant = house.notary.catalog.tables, house.scene.grant()
    house.notary.catalog.namespaces.create(grant, ("own",), {"pvdm.domain": "sales"})
    body = {"name": "new", "schema": {"type": "struct", "fields": []}}
    for work in (
        lambda: tables.create(grant, SALES, body),
        lambda: tables.drop(grant, SALES, "orders"),
        lambda: tables.rename(grant, (SALES, "orders"), (SALES, "other")),
        lambda: tables.rename(grant, (SALES, "orders"), (("own",), "orders")),
        lambda: house.notary.catalog.views.create(grant, SALES, {"name": "view"}),
    ):
        assert refusal_reason(work) == "upstream_owned"
    assert tables.page(grant, SALES, after=None, count=None) == ["orders"]
    assert refusal_reason(lambda: tables.load(grant, SALES, "none")) == "table_unknown"
    change = Change(SALES, "orders", (), [{"action": "set-properties", "updates": {"a": "b"}}])
    house.scene.make("more")
    others = [change, replace(change, name="more")]
    assert refusal_reason(lambda: tables.commit(grant, others)) == "upstream_alone"


def test_a_namespace_of_an_upstream_is_added_only_by_an_operator_and_only_if_it_exists_there(
    house: House, upstream: Upstream
) -> None:
    spaces = house.notary.catalog.namespaces
    producer = house.scene.grant(Role.PRODUCER, "sales")
    assert refusal_reason(lambda: spaces.create(producer, (*SALES, "deep"), {})) == "role_wrong"
    operator = house.scene.grant()
    assert refusal_reason(lambda: spaces.create(operator, (*SALES, "deep"), {})) == "upstream_namespace_unknown"


def test_commits_to_an_unprotected_table_are_forwarded_and_its_replacement_is_served(
    house: House, upstream: Upstream
) -> None:
    house.scene.make("free")
    commit(house, [{"action": "set-properties", "updates": {"a": "b"}}], name="free")
    assert upstream.table_state("free").metadata.properties["a"] == "b"
    # Another table gets its name at the upstream: the next request drops the old row, the one after it serves the new.
    upstream.catalog.tables.drop(upstream.grant(), upstream.levels, "free")
    upstream.catalog.tables.create(
        upstream.grant(), upstream.levels, {"name": "free", "schema": {"type": "struct", "fields": []}}
    )
    assert refusal_reason(lambda: house.table_state("free")) == "upstream_table_replaced"
    assert house.table_state("free").row.table_uuid == upstream.table_state("free").row.table_uuid


def test_a_table_that_was_not_shown_for_a_while_is_served_again(house: House, upstream: Upstream) -> None:
    """Meanwhile another table had its name, or the upstream's answers were wrong."""
    house.scene.make("free")
    own = house.table_state("free").row
    workload = replace(open_on_source(house, own.table_uuid), source_snapshot_id="1")
    sources = Sources(house.notary.ledger, house.notary.catalog, house.files)
    bound = parse_contract(contract().encode()).bind({})
    change_answers(upstream, replace_uuid)
    assert refusal_reason(lambda: house.table_state("free")) == "upstream_table_replaced"
    assert refusal_reason(lambda: sources.pin_again(workload, bound)) == "source_changed", "it may be there again later"
    assert house.table_state("free").row.table_uuid != own.table_uuid
    upstream.proxy.change_load = None
    assert refusal_reason(lambda: house.table_state("free")) == "upstream_table_replaced"
    assert house.table_state("free").row.table_uuid == own.table_uuid


def open_on_source(house: House, source: str) -> Workload:
    """Open a workload, and return it with this table as its source."""
    house.open("v")
    with house.notary.ledger.read() as unit:
        found = workloads.get(unit, "v")
    return replace(found, opening=replace(found.opening, source=source))


def test_a_forwarded_commit_whose_answer_is_lost_is_reported_as_unknown(house: House, upstream: Upstream) -> None:
    house.scene.make("free")
    upstream.proxy.plan.append(lose_answer)
    with pytest.raises(StateUnknownError) as caught:
        commit(house, [{"action": "set-properties", "updates": {"a": "b"}}], name="free")
    assert caught.value.reason == "upstream_unknown"
    assert upstream.table_state("free").metadata.properties["a"] == "b"


def test_a_forwarded_commit_is_checked_again_if_the_table_has_moved(house: House, upstream: Upstream) -> None:
    house.open("w")
    attempt = house.attempt("w")

    def other() -> None:
        upstream.append_directly(house, [(8, 1, "Ulm")], branch="theirs")

    upstream.proxy.plan.append(after_doing(other))
    files = house.write_files(f"{attempt.prefix}/data", NEW)
    made = new_snapshot_on(house, house.table_state().metadata, files, attempt.branch)
    # Another commit took its sequence number meanwhile: a conflict, and nothing is committed.
    assert refusal_reason(lambda: commit(house, list(made.updates), role=Role.OPERATOR)) == "snapshot_sequence_stale"
    assert upstream.table_state().metadata.snapshot(made.snapshot_id) is None


def test_a_crash_after_a_forwarded_commit_leaves_it_made_and_the_ledger_catches_up(
    house: House, upstream: Upstream
) -> None:
    house.scene.make("free")
    with fault.armed("upstream.after_commit", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        commit(house, [{"action": "set-properties", "updates": {"a": "b"}}], name="free")
    with fault.armed("upstream.before_commit", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        commit(house, [{"action": "set-properties", "updates": {"c": "d"}}], name="free")
    house.stand.reopen()
    assert house.table_state("free").metadata.properties == upstream.table_state("free").metadata.properties
    assert "c" not in upstream.table_state("free").metadata.properties


def test_a_migration_can_change_the_contract_of_an_upstreams_table_but_not_its_structure(
    house: House, upstream: Upstream
) -> None:
    before = upstream.table_state().row.pointer
    house.scene.migrate(house.scene.migration([], contract=OTHER_CONTRACT))
    assert refusal_reason(lambda: house.scene.migrate(house.scene.migration(COLUMN))) == "upstream_migration_refused"
    assert upstream.table_state().row.pointer == before
    assert house.table_state().row.contract_hash == house.scene.contract_of()


# An upstream whose answers are wrong.


def change_answers(upstream: Upstream, change: Callable[[Doc], None]) -> None:
    """Let the upstream's answers pass through `change` until `proxy.told` is None again."""

    def change_answer(_: ProxiedRequest, answer: Doc) -> Doc:
        change(answer)
        return answer

    upstream.proxy.change_load = change_answer


def replace_uuid(answer: Doc) -> None:
    answer["metadata-location"] += ".other"
    answer["metadata"].update({"table-uuid": "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22"})


def test_another_table_under_the_name_of_a_protected_one_is_refused(house: House, upstream: Upstream) -> None:
    change_answers(upstream, replace_uuid)
    assert refusal_reason(lambda: load_as(house, Role.CONSUMER)) == "upstream_table_other"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (replace_uuid, "upstream_table_other"),
        (lambda answer: answer.pop("metadata-location"), "upstream_answer_wrong"),
        (lambda answer: answer["metadata"]["properties"].update({"owner": "x"}), "upstream_metadata_changed"),
    ],
    ids=["another table", "no file", "another content"],
)
def test_wrong_answers_of_an_upstream_end_no_proved_attempt(
    house: House, upstream: Upstream, change: Callable[[Doc], None], code: str
) -> None:
    attempt = house.proved("w", NEW)
    house.table_state()
    change_answers(upstream, change)
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, (caught.value.got or "").partition(":")[0]) == ("table_in_doubt", code)
    upstream.proxy.change_load = None
    assert house.state_of(attempt) == "COMMITTING"
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_a_metadata_file_whose_content_has_changed_is_refused(house: House, upstream: Upstream) -> None:
    house.table_state()
    change_answers(upstream, lambda answer: answer["metadata"]["properties"].update({"owner": "somebody"}))
    assert refusal_reason(house.table_state) == "upstream_metadata_changed"


def test_a_published_snapshot_with_another_list_is_not_shown_to_consumers(house: House, upstream: Upstream) -> None:
    done = publish(house, house.proved("w", NEW))

    def change(answer: Doc) -> None:
        answer["metadata-location"] += ".other"
        for each in answer["metadata"]["snapshots"]:
            if each["snapshot-id"] == done.shown.new_snapshot_id:
                each["manifest-list"] += ".other"

    change_answers(upstream, change)
    assert refusal_reason(lambda: load_as(house, Role.CONSUMER)) == "main_unproved"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda answer: answer.pop("metadata-location"), "upstream_answer_wrong"),
        (lambda answer: answer["metadata"].update(location="file:///elsewhere"), "upstream_location_changed"),
    ],
    ids=["no file", "another place"],
)
def test_an_answer_without_a_metadata_file_or_with_another_location_is_refused(
    house: House, upstream: Upstream, change: Callable[[Doc], None], code: str
) -> None:
    def changed(answer: Doc) -> None:
        change(answer)
        if "metadata-location" in answer:
            answer["metadata-location"] += ".other"

    change_answers(upstream, changed)
    assert refusal_reason(house.table_state) == code


def test_a_publication_is_not_doubled_by_an_old_answer(house: House, upstream: Upstream) -> None:
    """As from a replica that is behind. The upstream compares each commit with its own, newest state."""
    attempt = house.proved("w", NEW)
    kept: list[Doc] = []
    change_answers(upstream, lambda answer: kept.append(json.loads(json.dumps(answer))))
    house.table_state()
    stale = kept[-1]

    def begin() -> None:
        change_answers(upstream, lambda answer: answer.update(stale))

    with fault.armed("upstream.after_swap", fault.Call(begin)), pytest.raises(StateUnknownError):
        publish(house, attempt)  # committed, but the replica does not show it, and the fence is refused
    upstream.proxy.change_load = None
    house.publishing().settle()
    assert (house.rows(), reason_of(house, attempt)) == ([1, 2, 3, 4], "published")


def test_a_chunk_without_rows_is_not_published_to_a_table_without_snapshots(house: House, upstream: Upstream) -> None:
    house.table("empty", text=contract("empty"))
    attempt = house.proved("w", [], name="empty")
    assert reason_of(house, attempt) == "upstream_nothing_staged"
    assert upstream.table_state("empty").metadata.current_snapshot_id is None


def test_a_replaced_table_of_an_upstream_is_refused_as_a_source(house: House, upstream: Upstream) -> None:
    house.scene.make("free")
    own = house.table_state("free").row
    bound = parse_contract(contract().replace("raw.orders", "sales.free").encode()).bind({})
    named, target = bound.contract.boundary.source, house.table_state().row.table_uuid
    house.transact(lambda unit: claims.note_source(unit, target, named, own.table_uuid, workload_id="w"))
    sources = Sources(house.notary.ledger, house.notary.catalog, house.files)
    assert refusal_reason(lambda: sources.pin(bound, target)) == "source_empty"
    change_answers(upstream, replace_uuid)
    assert refusal_reason(lambda: house.table_state("free")) == "upstream_table_replaced"
    assert refusal_reason(lambda: sources.pin(bound, target)) == "source_replaced"
