"""What consumers are shown of an upstream's protected table is proved as a whole: head, history and structure."""

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
from tests.behaviour.upstream.test_upstream_serving import commit, lying, refused, shown_to, to_main
from tests.support.audit.crafted_history import Local
from tests.support.audit.published_history import gather_evidence
from tests.support.catalog.upstream import NEW, Upstream, code_of, publish
from tests.support.gate.protected_tables import House, contract
from tests.support.lake.metadata import document_of
from tests.support.lake.sources import follow_target
from tests.support.steward.notary import LOG_ORIGIN
from tools.proof_kit import SECOND

Doc = dict[str, Any]
_NUMBERS = itertools.count()


@pytest.fixture
def published(house: House, there: Upstream) -> House:
    """One snapshot from before the protection, and one that was published."""
    house.stand.time.pass_by(SECOND)
    there.steward.stand.time.pass_by(SECOND)
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


def no_count(metadata: Doc) -> None:
    newest(metadata)["summary"].pop("total-records")


def another_parent(metadata: Doc) -> None:
    head = newest(metadata)
    slipped = {**oldest(metadata), "snapshot-id": 666, "parent-snapshot-id": head["parent-snapshot-id"]}
    head["parent-snapshot-id"] = 666
    metadata["snapshots"].append(slipped)
    metadata["refs"]["audited"] = {"snapshot-id": 666, "type": "tag"}


def statistics(metadata: Doc) -> None:
    file = {"snapshot-id": newest(metadata)["snapshot-id"], "statistics-path": "file:///x.puffin"}
    sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    metadata["statistics"] = [{**file, **sizes}]


LIES = (
    other_names,
    other_schema,
    other_mapping,
    other_list,
    other_schema_of_an_ancestor,
    other_operation,
    other_count,
    other_count_of_an_ancestor,
    no_count,
    another_parent,
    statistics,
)


def told(there: Upstream, change: Callable[[Doc], None]) -> None:
    """The upstream tells it so, by a metadata file of its own."""

    def changed(answer: Doc) -> None:
        answer["metadata-location"] += f".{next(_NUMBERS)}"
        change(answer["metadata"])

    lying(there, changed)


def test_nothing_is_shown_to_consumers_that_was_not_so_when_it_was_proved(published: House, there: Upstream) -> None:
    waiting = published.proved("w2", [(9, 1, "Ulm")])
    for lie in LIES:
        told(there, lie)
        assert refused(lambda: shown_to(published, Role.CONSUMER)) == "main_unproved", lie
        assert code_of(published, waiting) == "upstream_main_moved", lie
        assert shown_to(published, Role.OPERATOR)["metadata"], lie
    told(there, lambda _: None)
    seen = shown_to(published, Role.CONSUMER)["metadata"]
    assert len(seen["snapshots"]) == 2


def test_words_in_a_summary_that_count_nothing_take_nothing_away(published: House, there: Upstream) -> None:
    def more_words(metadata: Doc) -> None:
        newest(metadata)["summary"]["catalog-note"] = "seen"

    told(there, more_words)
    assert len(shown_to(published, Role.CONSUMER)["metadata"]["snapshots"]) == 2


def test_a_schema_that_was_changed_at_the_upstream_is_shown_once_it_is_signed_for(
    published: House, there: Upstream
) -> None:
    text = published.contracts["orders"]
    document: Any = document_of(there.found().metadata)
    schema = copy.deepcopy(document["schemas"][-1])
    swap_names(schema)
    there.commit([{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}])
    assert refused(lambda: shown_to(published, Role.CONSUMER)) == "main_unproved"
    follow_target(published.notary, published.scene.grant(), text, there.found().metadata)
    published.scene.protect(published.scene.protection(contract=text, action=ProtectionAction.UNPROTECT))
    published.scene.protect(published.scene.protection(contract=text))
    assert len(shown_to(published, Role.CONSUMER)["metadata"]["snapshots"]) == 2


def test_old_snapshots_that_expire_at_the_upstream_take_nothing_away_from_what_was_proved(
    published: House, there: Upstream
) -> None:
    gone = oldest(document_of(there.found().metadata))["snapshot-id"]
    there.commit([{"action": "remove-snapshots", "snapshot-ids": [gone]}])
    assert len(shown_to(published, Role.CONSUMER)["metadata"]["snapshots"]) == 1


def test_nobody_marks_what_is_not_proved(published: House, there: Upstream) -> None:
    head = there.found().metadata.current_snapshot_id
    tag = {"action": "set-snapshot-ref", "ref-name": "good", "type": "tag", "snapshot-id": head}
    there.commit([{"action": "set-properties", "updates": {"a": "b"}}])
    assert refused(lambda: commit(published, [tag], role=Role.PUBLISHER)) == "main_unproved"
    there.commit([{"action": "remove-properties", "removals": ["a"]}])
    commit(published, [tag], role=Role.PUBLISHER)
    assert list(shown_to(published, Role.CONSUMER)["metadata"]["refs"]) == ["main", "good"]


def test_a_table_that_came_under_with_its_namespace_keeps_the_structure_that_it_was_published_on(
    house: House, there: Upstream
) -> None:
    text = house.contracts["returns"] = contract("returns")
    house.scene.protect(house.scene.namespace_protection(contract=text))
    house.scene.make("returns")
    publish(house, house.proved("w", NEW, name="returns"))
    assert len(shown_to(house, Role.CONSUMER, "returns")["metadata"]["snapshots"]) == 1
    there.commit([{"action": "set-properties", "updates": {"a": "b"}}], "returns")
    assert refused(lambda: shown_to(house, Role.CONSUMER, "returns")) == "main_unproved"


def test_audits_name_what_slipped_past_though_it_was_signed_for_afterwards(house: House, there: Upstream) -> None:
    text = house.contracts["orders"]
    house.open("w", ["a", "b"])
    slipped = there.append_directly(house, [(8, 1, "Ulm")])
    house.scene.protect(house.scene.protection(contract=text, action=ProtectionAction.UNPROTECT))
    house.scene.protect(house.scene.protection(contract=text))
    done = publish(house, house.proved("w", [(9, 1, "Ulm")], chunk_id="a", opened=False))
    assert len(shown_to(house, Role.CONSUMER)["metadata"]["snapshots"]) == 3
    grant = house.scene.grant(Role.AUDITOR, "sales")
    judge = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    report = audit(gather_evidence(house.notary, grant, "orders"), Local(), judge, data_files=Files())
    assert not report.holds
    standing = {each.snapshot_id: each.standing for each in report.snapshots}
    assert (standing[slipped], standing[done.shown.new_snapshot_id]) == (Standing.UNPROVED, Standing.OK)
    assert [each.kind for each in report.approvals] == ["protect", "unprotect", "protect"]


def copying(house: House) -> tuple[Sources, BoundContract]:
    """What pins `orders` for a table that is filled from it."""
    text = contract("copy").replace("table: raw.copy", "table: sales.orders")
    sources = Sources(house.notary.ledger, house.notary.catalog, house.files)
    return sources, parse_contract(text.encode()).bind({})


def pinning(house: House) -> tuple[Sources, BoundContract, Workload]:
    """The same, with a workload that has pinned it."""
    sources, bound = copying(house)
    row = house.found().row
    pinned = sources.pin(bound, "5f0f1c9e-1111-4c55-8a1f-6a1c0a7d4e22").snapshot_id
    house.open("v")
    with house.notary.ledger.read() as unit:
        opened = workloads.get(unit, "v")
    opening = replace(opened.opening, source=row.table_uuid)
    return sources, bound, replace(opened, opening=opening, source_snapshot_id=str(pinned))


def test_what_no_consumer_is_shown_is_no_source_either(published: House, there: Upstream) -> None:
    sources, bound = copying(published)
    target = "5f0f1c9e-1111-4c55-8a1f-6a1c0a7d4e22"
    shown = sources.pin(bound, target).snapshot_id
    slipped = there.append_directly(published, [(8, 1, "Ulm")])
    assert refused(lambda: sources.pin(bound, target)) == "main_unproved"
    there.commit([to_main(shown), {"action": "remove-snapshots", "snapshot-ids": [slipped]}])
    assert sources.pin(bound, target).snapshot_id == shown


def test_a_pinned_source_is_the_snapshot_that_was_proved_and_not_its_id(published: House, there: Upstream) -> None:
    sources, bound, workload = pinning(published)
    pinned = int(str(workload.source_snapshot_id))
    assert sources.pin_again(workload, bound).snapshot_id == pinned

    def swapped(answer: Doc) -> None:
        """Main is where it once was, and what was pinned is another one by now."""
        answer["metadata-location"] += ".other"
        metadata, first = answer["metadata"], oldest(answer["metadata"])
        newest(metadata)["manifest-list"] = first["manifest-list"]
        metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = first["snapshot-id"]

    lying(there, swapped)
    assert refused(lambda: sources.pin_again(workload, bound)) == "source_changed"
    there.proxy.change_load = None
    assert sources.pin_again(workload, bound).snapshot_id == pinned
    there.append_directly(published, [(8, 1, "Ulm")])
    assert refused(lambda: sources.pin_again(workload, bound)) == "source_changed"


def test_a_pinned_snapshot_that_the_upstream_does_not_show_for_a_while_is_waited_for(
    published: House, there: Upstream
) -> None:
    sources, bound, workload = pinning(published)
    pinned = int(str(workload.source_snapshot_id))

    def earlier(answer: Doc) -> None:
        """As it was before the snapshot was published."""
        answer["metadata-location"] += ".earlier"
        metadata, first = answer["metadata"], oldest(answer["metadata"])
        metadata["snapshots"] = [first]
        metadata["snapshot-log"] = [each for each in metadata["snapshot-log"] if each["snapshot-id"] != pinned]
        metadata["refs"] = {"main": {**metadata["refs"]["main"], "snapshot-id": first["snapshot-id"]}}
        metadata["current-snapshot-id"] = first["snapshot-id"]

    lying(there, earlier)
    assert refused(lambda: sources.pin_again(workload, bound)) == "source_changed"
    there.proxy.change_load = None
    assert sources.pin_again(workload, bound).snapshot_id == pinned
