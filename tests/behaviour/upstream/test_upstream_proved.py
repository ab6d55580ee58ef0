"""Consumers see an upstream's protected table only if its head, history and structure are as they were proved."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pvdm.ledger.work import workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.report import Standing
from pvdm.model.contract import BoundContract, parse_contract
from pvdm.model.role import Role
from pvdm.model.statements.migration import ProtectionAction
from pvdm.steward.work.sources import Sources
from pvdm.verify.fetch import Files
from tests.behaviour.upstream.test_upstream_serving import change_answers, commit, load_as, refusal_reason, set_main
from tests.support.audit.crafted_history import Local
from tests.support.audit.published_history import gather_evidence
from tests.support.catalog.upstream import NEW, Upstream, publish, reason_of
from tests.support.gate.protected_tables import House, contract
from tests.support.lake.metadata import document_of
from tests.support.lake.sources import follow_target
from tests.support.steward.notary import LOG_ORIGIN
from tools.proof_kit import SECOND

Doc = dict[str, Any]
_NUMBERS = itertools.count()


@pytest.fixture
def published_house(house: House, upstream: Upstream) -> House:
    """A house whose table has one snapshot from before the protection, and a published one."""
    house.stand.time.pass_by(SECOND)
    upstream.steward.stand.time.pass_by(SECOND)
    house.open("w", source=house.source())
    publish(house, house.proved("w", NEW, opened=False))
    return house


def swap_names(schema: Doc) -> None:
    one, other = schema["fields"][0], schema["fields"][2]
    one["name"], other["name"] = other["name"], one["name"]


def newest(metadata: Doc) -> Doc:
    return next(each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"])


def oldest(metadata: Doc) -> Doc:
    return next(each for each in metadata["snapshots"] if each["snapshot-id"] != metadata["current-snapshot-id"])


def other_names(metadata: Doc) -> None:
    swap_names(metadata["schemas"][-1])


def other_schema(metadata: Doc) -> None:
    schema = copy.deepcopy(metadata["schemas"][-1])
    schema["schema-id"] = 77
    swap_names(schema)
    metadata["schemas"].append(schema)
    metadata["current-schema-id"] = 77


def other_mapping(metadata: Doc) -> None:
    metadata["properties"]["schema.name-mapping.default"] = "[]"


def other_list(metadata: Doc) -> None:
    oldest(metadata)["manifest-list"] += ".other"


def other_schema_of_an_ancestor(metadata: Doc) -> None:
    oldest(metadata).pop("schema-id")


def other_operation(metadata: Doc) -> None:
    newest(metadata)["summary"]["operation"] = "overwrite"


def other_count(metadata: Doc) -> None:
    newest(metadata)["summary"]["total-records"] = "7"


def other_count_of_an_ancestor(metadata: Doc) -> None:
    oldest(metadata)["summary"]["total-records"] = "7"


def remove_count(metadata: Doc) -> None:
    newest(metadata)["summary"].pop("total-records")


def another_parent(metadata: Doc) -> None:
    head = newest(metadata)
    slipped = {**oldest(metadata), "snapshot-id": 666, "parent-snapshot-id": head["parent-snapshot-id"]}
    head["parent-snapshot-id"] = 666
    metadata["snapshots"].append(slipped)
    metadata["refs"]["audited"] = {"snapshot-id": 666, "type": "tag"}


def add_statistics(metadata: Doc) -> None:
    file = {"snapshot-id": newest(metadata)["snapshot-id"], "statistics-path": "file:///x.puffin"}
    sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    metadata["statistics"] = [{**file, **sizes}]


CHANGES = (
    other_names,
    other_schema,
    other_mapping,
    other_list,
    other_schema_of_an_ancestor,
    other_operation,
    other_count,
    other_count_of_an_ancestor,
    remove_count,
    another_parent,
    add_statistics,
)


def change_metadata(upstream: Upstream, change: Callable[[Doc], None]) -> None:
    """Let the upstream answer with changed metadata, under the name of another metadata file."""

    def changed(answer: Doc) -> None:
        answer["metadata-location"] += f".{next(_NUMBERS)}"
        change(answer["metadata"])

    change_answers(upstream, changed)


def test_metadata_that_was_changed_after_its_proof_is_not_shown_to_consumers(
    published_house: House, upstream: Upstream
) -> None:
    waiting = published_house.proved("w2", [(9, 1, "Ulm")])
    for change in CHANGES:
        change_metadata(upstream, change)
        assert refusal_reason(lambda: load_as(published_house, Role.CONSUMER)) == "main_unproved", change
        assert reason_of(published_house, waiting) == "upstream_main_moved", change
        assert load_as(published_house, Role.OPERATOR)["metadata"], change
    change_metadata(upstream, lambda _: None)
    seen = load_as(published_house, Role.CONSUMER)["metadata"]
    assert len(seen["snapshots"]) == 2


def test_an_additional_field_in_a_summary_is_no_change(published_house: House, upstream: Upstream) -> None:
    def more_words(metadata: Doc) -> None:
        newest(metadata)["summary"]["catalog-note"] = "seen"

    change_metadata(upstream, more_words)
    assert len(load_as(published_house, Role.CONSUMER)["metadata"]["snapshots"]) == 2


def test_a_schema_that_was_changed_at_the_upstream_is_shown_after_a_new_protection(
    published_house: House, upstream: Upstream
) -> None:
    text = published_house.contracts["orders"]
    document: Any = document_of(upstream.table_state().metadata)
    schema = copy.deepcopy(document["schemas"][-1])
    swap_names(schema)
    upstream.commit([{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}])
    assert refusal_reason(lambda: load_as(published_house, Role.CONSUMER)) == "main_unproved"
    follow_target(published_house.notary, published_house.scene.grant(), text, upstream.table_state().metadata)
    published_house.scene.protect(published_house.scene.protection(contract=text, action=ProtectionAction.UNPROTECT))
    published_house.scene.protect(published_house.scene.protection(contract=text))
    assert len(load_as(published_house, Role.CONSUMER)["metadata"]["snapshots"]) == 2


def test_consumers_see_the_table_after_old_snapshots_expired_at_the_upstream(
    published_house: House, upstream: Upstream
) -> None:
    gone = oldest(document_of(upstream.table_state().metadata))["snapshot-id"]
    upstream.commit([{"action": "remove-snapshots", "snapshot-ids": [gone]}])
    assert len(load_as(published_house, Role.CONSUMER)["metadata"]["snapshots"]) == 1


def test_a_tag_is_refused_while_the_table_is_not_as_proved(published_house: House, upstream: Upstream) -> None:
    head = upstream.table_state().metadata.current_snapshot_id
    tag = {"action": "set-snapshot-ref", "ref-name": "good", "type": "tag", "snapshot-id": head}
    upstream.commit([{"action": "set-properties", "updates": {"a": "b"}}])
    assert refusal_reason(lambda: commit(published_house, [tag], role=Role.PUBLISHER)) == "main_unproved"
    upstream.commit([{"action": "remove-properties", "removals": ["a"]}])
    commit(published_house, [tag], role=Role.PUBLISHER)
    assert list(load_as(published_house, Role.CONSUMER)["metadata"]["refs"]) == ["main", "good"]


def test_a_table_that_was_protected_with_its_namespace_is_not_shown_if_its_structure_changes(
    house: House, upstream: Upstream
) -> None:
    text = house.contracts["returns"] = contract("returns")
    house.scene.protect(house.scene.namespace_protection(contract=text))
    house.scene.make("returns")
    publish(house, house.proved("w", NEW, name="returns"))
    assert len(load_as(house, Role.CONSUMER, "returns")["metadata"]["snapshots"]) == 1
    upstream.commit([{"action": "set-properties", "updates": {"a": "b"}}], "returns")
    assert refusal_reason(lambda: load_as(house, Role.CONSUMER, "returns")) == "main_unproved"


def test_an_audit_names_an_unproved_snapshot_even_if_the_table_was_protected_again_on_it(
    house: House, upstream: Upstream
) -> None:
    text = house.contracts["orders"]
    house.open("w", ["a", "b"])
    slipped = upstream.append_directly(house, [(8, 1, "Ulm")])
    house.scene.protect(house.scene.protection(contract=text, action=ProtectionAction.UNPROTECT))
    house.scene.protect(house.scene.protection(contract=text))
    done = publish(house, house.proved("w", [(9, 1, "Ulm")], chunk_id="a", opened=False))
    assert len(load_as(house, Role.CONSUMER)["metadata"]["snapshots"]) == 3
    grant = house.scene.grant(Role.AUDITOR, "sales")
    judge = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    report = audit(gather_evidence(house.notary, grant, "orders"), Local(), judge, data_files=Files())
    assert not report.holds
    standing = {each.snapshot_id: each.standing for each in report.snapshots}
    assert (standing[slipped], standing[done.shown.new_snapshot_id]) == (Standing.UNPROVED, Standing.OK)
    assert [each.kind for each in report.approvals] == ["protect", "unprotect", "protect"]


def sources_and_contract(house: House) -> tuple[Sources, BoundContract]:
    """The service that pins sources, and a contract whose source is `orders`."""
    text = contract("copy").replace("table: raw.copy", "table: sales.orders")
    sources = Sources(house.notary.ledger, house.notary.catalog, house.files)
    return sources, parse_contract(text.encode()).bind({})


def pin_orders(house: House) -> tuple[Sources, BoundContract, Workload]:
    """The same, and a workload that has pinned `orders`."""
    sources, bound = sources_and_contract(house)
    row = house.table_state().row
    pinned = sources.pin(bound, "5f0f1c9e-1111-4c55-8a1f-6a1c0a7d4e22").snapshot_id
    house.open("v")
    with house.notary.ledger.read() as unit:
        opened = workloads.get(unit, "v")
    opening = replace(opened.opening, source=row.table_uuid)
    return sources, bound, replace(opened, opening=opening, source_snapshot_id=str(pinned))


def test_a_table_that_is_not_shown_to_consumers_is_refused_as_a_source(
    published_house: House, upstream: Upstream
) -> None:
    sources, bound = sources_and_contract(published_house)
    target = "5f0f1c9e-1111-4c55-8a1f-6a1c0a7d4e22"
    shown = sources.pin(bound, target).snapshot_id
    slipped = upstream.append_directly(published_house, [(8, 1, "Ulm")])
    assert refusal_reason(lambda: sources.pin(bound, target)) == "main_unproved"
    upstream.commit([set_main(shown), {"action": "remove-snapshots", "snapshot-ids": [slipped]}])
    assert sources.pin(bound, target).snapshot_id == shown


def test_a_pinned_source_of_the_same_id_with_other_content_is_refused(
    published_house: House, upstream: Upstream
) -> None:
    sources, bound, workload = pin_orders(published_house)
    pinned = int(str(workload.source_snapshot_id))
    assert sources.pin_again(workload, bound).snapshot_id == pinned

    def swap_pinned(answer: Doc) -> None:
        """Set main back to the first snapshot, and give the pinned one another manifest list."""
        answer["metadata-location"] += ".other"
        metadata, first = answer["metadata"], oldest(answer["metadata"])
        newest(metadata)["manifest-list"] = first["manifest-list"]
        metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = first["snapshot-id"]

    change_answers(upstream, swap_pinned)
    assert refusal_reason(lambda: sources.pin_again(workload, bound)) == "source_changed"
    upstream.proxy.change_load = None
    assert sources.pin_again(workload, bound).snapshot_id == pinned
    upstream.append_directly(published_house, [(8, 1, "Ulm")])
    assert refusal_reason(lambda: sources.pin_again(workload, bound)) == "source_changed"


def test_a_pinned_snapshot_that_the_upstream_does_not_show_for_a_while_is_waited_for(
    published_house: House, upstream: Upstream
) -> None:
    sources, bound, workload = pin_orders(published_house)
    pinned = int(str(workload.source_snapshot_id))

    def hide_pinned(answer: Doc) -> None:
        """Answer as before the pinned snapshot was published."""
        answer["metadata-location"] += ".earlier"
        metadata, first = answer["metadata"], oldest(answer["metadata"])
        metadata["snapshots"] = [first]
        metadata["snapshot-log"] = [each for each in metadata["snapshot-log"] if each["snapshot-id"] != pinned]
        metadata["refs"] = {"main": {**metadata["refs"]["main"], "snapshot-id": first["snapshot-id"]}}
        metadata["current-snapshot-id"] = first["snapshot-id"]

    change_answers(upstream, hide_pinned)
    assert refusal_reason(lambda: sources.pin_again(workload, bound)) == "source_changed"
    upstream.proxy.change_load = None
    assert sources.pin_again(workload, bound).snapshot_id == pinned
