"""Tables of an upstream in our catalog: judged, shown and refused as our own are, and read anew each time."""

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
from tests.support.catalog.upstream import NEW, Upstream, code_of, new_snapshot_on, publish
from tests.support.gate.approvals import COLUMN, OTHER_CONTRACT, SALES
from tests.support.gate.protected_tables import House, contract
from tests.support.servers.fault_proxy import ProxiedRequest, after_doing, lose_answer
from tests.support.steward.notary import LOG_ORIGIN
from tools.proof_kit import SECOND

Doc = dict[str, Any]


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        work()
    return caught.value.reason


def commit(house: House, updates: list[Any], *, role: Role = Role.PRODUCER, name: str = "orders", **more: Any) -> Any:
    grant = replace(house.scene.grant(role, "sales"), **more)
    return house.notary.catalog.tables.commit(grant, [Change(SALES, name, (), updates)])


def to_main(snapshot_id: int) -> Doc:
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}


def shown_to(house: House, role: Role, name: str = "orders") -> Doc:
    grant = house.scene.grant(role, "sales")
    catalog = house.notary.catalog
    found: Doc = json.loads(catalog.responses.table(grant, catalog.tables.load(grant, SALES, name)).body)
    return found


def test_a_producer_stages_through_us_and_never_moves_main(house: House, there: Upstream) -> None:
    house.open("w")
    attempt = house.attempt("w")
    house.stage(attempt, NEW)
    staged = there.found().metadata.refs[attempt.branch].snapshot_id
    own = {"attempt_id": attempt.attempt_id}
    for updates, more, code in (
        ([to_main(staged)], {}, "main_gated"),
        ([to_main(staged)], own, "main_gated"),
        ([{**to_main(staged), "ref-name": "other"}], own, "branch_of_other_attempt"),
        ([{"action": "set-properties", "updates": {"a": "b"}}], {}, "main_gated"),
        (list(COLUMN), {}, "main_gated"),
        ([{"action": "set-location", "location": "file:///elsewhere"}], {}, "location_outside"),
    ):
        before = there.found().row.pointer
        got = refused(lambda updates=updates, more=more: commit(house, updates, **more))  # type: ignore[misc]
        assert got == code, updates
        assert there.found().row.pointer == before
    assert house.rows() == [1, 2]


def test_a_consumer_sees_nothing_that_is_staged(house: House, there: Upstream) -> None:
    house.open("w")
    attempt = house.attempt("w")
    house.stage(attempt, NEW)
    whole, seen = shown_to(house, Role.PRODUCER), shown_to(house, Role.CONSUMER)
    assert attempt.branch in whole["metadata"]["refs"]
    assert whole["metadata-location"] == there.found().row.pointer.location
    assert (list(seen["metadata"]["refs"]), len(seen["metadata"]["snapshots"])) == (["main"], 1)
    assert seen["metadata-location"].startswith(f"file://{house.stand.folder}")


def test_what_slips_past_us_is_not_shown_to_consumers_and_is_found_by_the_audit(house: House, there: Upstream) -> None:
    house.stand.time.pass_by(SECOND)
    there.steward.stand.time.pass_by(SECOND)
    publish(house, house.proved("w", NEW))
    house.stand.time.pass_by(SECOND)
    grant = house.scene.grant(Role.AUDITOR, "sales")
    judge = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    report = audit(gather_evidence(house.notary, grant, "orders"), Local(), judge, data_files=Files())
    assert (codes(report), standings(report)) == (set(), [Standing.BEFORE, Standing.OK])
    slipped = there.append_directly(house, [(8, 1, "Ulm")])
    report = audit(gather_evidence(house.notary, grant, "orders"), Local(), judge, data_files=Files())
    assert not report.holds
    assert [each.snapshot_id for each in report.snapshots if each.standing is Standing.UNPROVED] == [slipped]
    assert refused(lambda: shown_to(house, Role.CONSUMER)) == "main_unproved"
    assert shown_to(house, Role.OPERATOR)["metadata"]["current-snapshot-id"] == slipped


def test_tables_of_an_upstream_are_made_named_and_dropped_there(house: House, there: Upstream) -> None:
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
        assert refused(work) == "upstream_owned"
    assert tables.page(grant, SALES, after=None, count=None) == ["orders"]
    assert refused(lambda: tables.load(grant, SALES, "none")) == "table_unknown"
    change = Change(SALES, "orders", (), [{"action": "set-properties", "updates": {"a": "b"}}])
    house.scene.make("more")
    others = [change, replace(change, name="more")]
    assert refused(lambda: tables.commit(grant, others)) == "upstream_alone"


def test_namespaces_of_an_upstream_are_brought_in_by_an_operator(house: House, there: Upstream) -> None:
    spaces = house.notary.catalog.namespaces
    producer = house.scene.grant(Role.PRODUCER, "sales")
    assert refused(lambda: spaces.create(producer, (*SALES, "deep"), {})) == "role_wrong"
    assert refused(lambda: spaces.create(house.scene.grant(), (*SALES, "deep"), {})) == "upstream_namespace_unknown"


def test_an_unprotected_table_takes_commits_as_its_upstream_does(house: House, there: Upstream) -> None:
    house.scene.make("free")
    commit(house, [{"action": "set-properties", "updates": {"a": "b"}}], name="free")
    assert there.found("free").metadata.properties["a"] == "b"
    # Somebody drops it and makes another one: what is here is forgotten, and found anew.
    there.catalog.tables.drop(there.grant(), there.levels, "free")
    there.catalog.tables.create(
        there.grant(), there.levels, {"name": "free", "schema": {"type": "struct", "fields": []}}
    )
    assert refused(lambda: house.found("free")) == "upstream_table_replaced"
    assert house.found("free").row.table_uuid == there.found("free").row.table_uuid


def test_a_table_that_was_not_shown_for_a_while_is_served_again(house: House, there: Upstream) -> None:
    """Another one had its name meanwhile, or the upstream said so."""
    house.scene.make("free")
    own = house.found("free").row
    workload = replace(opened_on(house, own.table_uuid), source_snapshot_id="1")
    sources = Sources(house.notary.ledger, house.notary.catalog, house.files)
    bound = parse_contract(contract().encode()).bind({})
    lying(there, another_uuid)
    assert refused(lambda: house.found("free")) == "upstream_table_replaced"
    assert refused(lambda: sources.pin_again(workload, bound)) == "source_changed", "no word that it is gone for good"
    assert house.found("free").row.table_uuid != own.table_uuid
    there.proxy.change_load = None
    assert refused(lambda: house.found("free")) == "upstream_table_replaced"
    assert house.found("free").row.table_uuid == own.table_uuid


def opened_on(house: House, source: str) -> Workload:
    """A workload whose source is that table."""
    house.open("v")
    with house.notary.ledger.read() as unit:
        found = workloads.get(unit, "v")
    return replace(found, opening=replace(found.opening, source=source))


def test_a_forwarded_commit_whose_answer_is_lost_is_told_as_unknown(house: House, there: Upstream) -> None:
    house.scene.make("free")
    there.proxy.plan.append(lose_answer)
    with pytest.raises(StateUnknownError) as caught:
        commit(house, [{"action": "set-properties", "updates": {"a": "b"}}], name="free")
    assert caught.value.reason == "upstream_unknown"
    assert there.found("free").metadata.properties["a"] == "b"


def test_a_forwarded_commit_that_was_judged_on_a_state_that_moved_is_judged_again(
    house: House, there: Upstream
) -> None:
    house.open("w")
    attempt = house.attempt("w")

    def other() -> None:
        there.append_directly(house, [(8, 1, "Ulm")], branch="theirs")

    there.proxy.plan.append(after_doing(other))
    files = house.written(f"{attempt.prefix}/data", NEW)
    made = new_snapshot_on(house, house.found().metadata, files, attempt.branch)
    # Its sequence number was given to somebody else meanwhile: that is a conflict, and nothing happened.
    assert refused(lambda: commit(house, list(made.updates), role=Role.OPERATOR)) == "snapshot_sequence_stale"
    assert there.found().metadata.snapshot(made.snapshot_id) is None


def test_a_crash_after_a_forwarded_commit_leaves_it_made_and_the_ledger_catches_up(
    house: House, there: Upstream
) -> None:
    house.scene.make("free")
    with fault.armed("upstream.after_commit", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        commit(house, [{"action": "set-properties", "updates": {"a": "b"}}], name="free")
    with fault.armed("upstream.before_commit", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        commit(house, [{"action": "set-properties", "updates": {"c": "d"}}], name="free")
    house.stand.reopen()
    assert house.found("free").metadata.properties == there.found("free").metadata.properties
    assert "c" not in there.found("free").metadata.properties


def test_its_structure_is_not_migrated_from_here_and_its_contract_is(house: House, there: Upstream) -> None:
    before = there.found().row.pointer
    house.scene.migrate(house.scene.migration([], contract=OTHER_CONTRACT))
    assert refused(lambda: house.scene.migrate(house.scene.migration(COLUMN))) == "upstream_migration_refused"
    assert there.found().row.pointer == before
    assert house.found().row.contract_hash == house.scene.contract_of()


# An upstream that does not tell the truth.


def lying(there: Upstream, change: Callable[[Doc], None]) -> None:
    def lie(_: ProxiedRequest, answer: Doc) -> Doc:
        change(answer)
        return answer

    there.proxy.change_load = lie


def another_uuid(answer: Doc) -> None:
    answer["metadata-location"] += ".other"
    answer["metadata"].update({"table-uuid": "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22"})


def test_another_table_under_the_name_of_a_protected_one_is_refused(house: House, there: Upstream) -> None:
    lying(there, another_uuid)
    assert refused(lambda: shown_to(house, Role.CONSUMER)) == "upstream_table_other"


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (another_uuid, "upstream_table_other"),
        (lambda answer: answer.pop("metadata-location"), "upstream_answer_wrong"),
        (lambda answer: answer["metadata"]["properties"].update({"owner": "x"}), "upstream_metadata_changed"),
    ],
    ids=["another table", "no file", "another content"],
)
def test_an_upstream_that_lies_for_a_while_ends_no_proved_attempt(
    house: House, there: Upstream, lie: Callable[[Doc], None], code: str
) -> None:
    attempt = house.proved("w", NEW)
    house.found()
    lying(there, lie)
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, (caught.value.got or "").partition(":")[0]) == ("table_in_doubt", code)
    there.proxy.change_load = None
    assert house.state_of(attempt) == "COMMITTING"
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_a_metadata_file_that_says_something_else_than_before_is_refused(house: House, there: Upstream) -> None:
    house.found()
    lying(there, lambda answer: answer["metadata"]["properties"].update({"owner": "somebody"}))
    assert refused(house.found) == "upstream_metadata_changed"


def test_a_published_snapshot_with_another_list_is_not_shown_to_consumers(house: House, there: Upstream) -> None:
    done = publish(house, house.proved("w", NEW))

    def change(answer: Doc) -> None:
        answer["metadata-location"] += ".other"
        for each in answer["metadata"]["snapshots"]:
            if each["snapshot-id"] == done.shown.new_snapshot_id:
                each["manifest-list"] += ".other"

    lying(there, change)
    assert refused(lambda: shown_to(house, Role.CONSUMER)) == "main_unproved"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda answer: answer.pop("metadata-location"), "upstream_answer_wrong"),
        (lambda answer: answer["metadata"].update(location="file:///elsewhere"), "upstream_location_changed"),
    ],
    ids=["no file", "another place"],
)
def test_an_answer_that_cannot_be_right_is_refused(
    house: House, there: Upstream, change: Callable[[Doc], None], code: str
) -> None:
    def changed(answer: Doc) -> None:
        change(answer)
        if "metadata-location" in answer:
            answer["metadata-location"] += ".other"

    lying(there, changed)
    assert refused(house.found) == code


def test_an_old_answer_misleads_nobody(house: House, there: Upstream) -> None:
    """A replica that is behind: what is judged on it loses against the upstream's own comparison."""
    attempt = house.proved("w", NEW)
    kept: list[Doc] = []
    lying(there, lambda answer: kept.append(json.loads(json.dumps(answer))))
    house.found()
    stale = kept[-1]

    def begin() -> None:
        lying(there, lambda answer: answer.update(stale))

    with fault.armed("upstream.after_swap", fault.Call(begin)), pytest.raises(StateUnknownError):
        publish(house, attempt)  # committed, but the replica says nothing of it: the fence is refused
    there.proxy.change_load = None
    house.publishing().settle()
    assert (house.rows(), code_of(house, attempt)) == ([1, 2, 3, 4], "published")


def test_a_chunk_without_rows_waits_for_a_table_that_shows_something(house: House, there: Upstream) -> None:
    house.table("empty", text=contract("empty"))
    attempt = house.proved("w", [], name="empty")
    assert code_of(house, attempt) == "upstream_nothing_staged"
    assert there.found("empty").metadata.current_snapshot_id is None


def test_a_replaced_table_of_an_upstream_is_refused_as_a_source(house: House, there: Upstream) -> None:
    house.scene.make("free")
    own = house.found("free").row
    bound = parse_contract(contract().replace("raw.orders", "sales.free").encode()).bind({})
    named, target = bound.contract.boundary.source, house.found().row.table_uuid
    house.transact(lambda unit: claims.note_source(unit, target, named, own.table_uuid, workload_id="w"))
    sources = Sources(house.notary.ledger, house.notary.catalog, house.files)
    assert refused(lambda: sources.pin(bound, target)) == "source_empty"
    lying(there, another_uuid)
    assert refused(lambda: house.found("free")) == "upstream_table_replaced"
    assert refused(lambda: sources.pin(bound, target)) == "source_replaced"
