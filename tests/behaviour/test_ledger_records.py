"""The ledger's records: events, proofs, receipts, log, tokens and restores; which changes the database refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import LargeBinary, Table, select, text

from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.lake.paths import Pointer
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, requests, snapshots, tables, views
from pvdm.ledger.record import (
    events,
    outbox,
    proofs,
    protections,
    receipts,
    restores,
    shared_settings,
    statements,
    tokens,
)
from pvdm.ledger.record.events import LedgerLog
from pvdm.ledger.record.outbox import Channel
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.record.protections import MigrationRecord, ProtectionRecord
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.record.restores import Restore
from pvdm.ledger.record.shared_settings import SharedSettings
from pvdm.ledger.record.tokens import BearerToken
from pvdm.ledger.schema import metadata
from pvdm.ledger.schema.catalog import StagedKind
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.work import announced, attempts, claims, deadlines, disposals, leases, plannings, verified
from pvdm.ledger.work.announced import NewAnnouncement
from pvdm.ledger.work.disposals import DisposalRecord, Removal
from pvdm.ledger.work.leases import Runner
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.verified import VerifiedRecord
from pvdm.model.contract import Source
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import AnnouncedState, AttemptState, HandleState
from pvdm.trust.log.log import LogStorage
from tests.support.for_each import for_each
from tests.support.ledger.databases import NOW
from tests.support.ledger.log_storage import ORIGIN, SIGNER, Log, entries, filled_log
from tests.support.ledger.rows import (
    ATTESTATION,
    CHALLENGE,
    HANDLE,
    append_entry,
    attempt_in_state,
    hex64,
    nonce_of,
    open_workload,
    override_of,
    receipts_of,
    workload_opening,
)

PROOF = ProofRecord(hex64("proof"), "", nonce_of(1, 1), Outcome.PASS, "notary-1", NOW + 60)


@pytest.fixture
def unit(scratch: Unit) -> Unit:
    """A unit for writing, with one workload of the chunks a and b. It is rolled back after the test."""
    open_workload(scratch)
    return scratch


def put_proof(unit: Unit, **changes: Any) -> ProofRecord:
    attempt_id = attempt_in_state(unit, AttemptState.VERIFYING).attempt_id
    record = ProofRecord(**{**{n: getattr(PROOF, n) for n in PROOF.__slots__}, "attempt_id": attempt_id, **changes})
    proofs.put(unit, record, b"envelope", log_index=append_entry(unit))
    return record


def fill_every_table(unit: Unit) -> None:
    """Write at least one row to every table of the ledger."""
    record = put_proof(unit)
    attempts.begin_committing(unit, record.attempt_id, reason="PASS")
    attempt_nonces = ((record.attempt_id, record.nonce),)
    new = NewAnnouncement(nonce_of(8, 1), "t-9", "orders-1", "899", attempt_nonces, None, "steward-one", "{}")
    announcement = announced.announce(unit, new)
    announced.settle(unit, announcement.announced_id, AnnouncedState.RELEASED, reason="main can never show it")
    snapshots.add_known(unit, "t-9", {"899": hex64("facts")}, structure_sha256=hex64("structure"))
    attempts.publish(unit, record.attempt_id, nonce=record.nonce, snapshot_id="900")
    receipt = ReceiptRecord(hex64("receipt"), "orders-1", "t-1", "900")
    receipts.put(unit, receipt, b"receipt", log_index=append_entry(unit))
    unit.execute(
        text("INSERT INTO claims VALUES ('orders-1', 't-1', NULL, NULL, :low, NULL, 'everything', 5)"),
        {"low": b""},
    )
    for source in ("s-1", "s-2"):
        claims.note_source(unit, "t-1", Source("raw.orders", None), source, workload_id="orders-1")
    _, grant = issue_token(unit)
    tokens.replace(unit, grant.token_id, issue_token(unit)[1].token_id, from_micros=NOW)
    tokens.revoke(unit, grant.token_id)
    proofs.put_override(unit, override_of(record), b"override", log_index=append_entry(unit))
    statements.add_challenge(unit, CHALLENGE)
    statements.put_attestation(unit, ATTESTATION, b"attestation", log_index=append_entry(unit))
    restores.put_used_chunk(unit, "lost-1", "a", snapshot_id="800", receipt_id=hex64("receipt"))
    restores.put_lost_claim(unit, hex64("receipt"), "lost-1", target="t-1")
    restores.release_lost_claim(unit, restores.lock_lost_claim(unit, hex64("receipt")), hex64("receipt"))
    restores.begin(unit, Restore(1, "operator-tom", "disk", 3, b"note", 1, (b"key",), {"lost": 0}))
    restores.finish(unit, 1)
    for origin in ("log-one", "log-two"):
        shared_settings.put_settings(unit, SharedSettings("notary", origin, "lake"))
    shared_settings.add_epoch_book(unit, 1, b"book")
    shared_settings.add_handle(unit, HANDLE)
    shared_settings.change_handle(
        unit, HANDLE, replace(HANDLE, state=HandleState.FROZEN, context="{}", workers=frozenset({"worker"}))
    )
    put_lease_and_deadline(unit)
    put_planning(unit)
    fill_catalog(unit)
    put_approvals(unit)
    put_verified_and_disposal(unit, record.nonce, record.attempt_id)


def put_verified_and_disposal(unit: Unit, nonce: str, attempt_id: str) -> None:
    """Write a verified record, the attempt's disposal, and a removal of its files from quarantine."""
    verified.put(unit, VerifiedRecord(nonce, attempt_id, hex64("core"), "file:///m.avro", hex64("m"), 1, 3))
    disposals.put_disposal(unit, DisposalRecord(attempt_id, DisposalOutcome.PUBLISHED, 2, 1, ""))
    disposals.begin_removal(unit, Removal(attempt_id, "1" * 32, "operator-tom", "90 days are over", 2, 70, done=False))


def put_lease_and_deadline(unit: Unit) -> None:
    """Open a workload with a deadline, take its lease, and change the deadline."""
    open_workload(unit, workload_id="orders-timed")
    deadlines.set_timeout(unit, "orders-timed", 60)
    runner = Runner("11" * 16, "job", "process 1", None)
    leases.acquire(unit, "orders-timed", runner, seconds=30)
    leases.set_timeout(unit, "orders-timed", 10)


def put_planning(unit: Unit) -> None:
    """Begin a plan, and store its progress."""
    opening = replace(workload_opening("orders-planned"), source="t-2")
    plannings.begin(unit, Planning(opening, "7", b"[]", timeout_seconds=None, files=2))
    plannings.note_progress(unit, "orders-planned", 1, b"values", b"hashes")


def put_approvals(unit: Unit) -> None:
    """Write a protection with its contract, and a migration."""
    name_domain_and_contract = ("orders", "sales", hex64("contract"))
    protection = ProtectionRecord(
        hex64("protection"),
        ProtectionAction.PROTECT,
        "t-1",
        None,
        *name_domain_and_contract,
        "operator-tom",
        nonce_of(7, 1),
    )
    protections.put(unit, protection, "product: orders", b"protection", log_index=append_entry(unit))
    migration = MigrationRecord(
        hex64("migration"), "t-1", *name_domain_and_contract, hex64("two"), "operator-tom", nonce_of(7, 2)
    )
    protections.put(unit, migration, None, b"migration", log_index=append_entry(unit))


def fill_catalog(unit: Unit) -> None:
    """Write rows to the catalog's tables and to the outbox. A table is created, changed, protected and dropped."""
    namespace = namespaces.create(unit, ("sales",), domain="sales", properties={"owner": "ruth"})
    namespaces.protect(unit, namespace, hex64("contract"))
    pointer = Pointer("file:///metadata/1.json", hex64("one"))
    new = tables.NewTable(namespace.namespace_id, "orders", "sales", "t-1", "file:///orders", pointer, None)
    row = tables.swap(unit, tables.create(unit, new), Pointer("file:///metadata/2.json", hex64("two")))
    snapshots.set_owner(unit, row.table_id, "etl", [(StagedKind.BRANCH, "stage")])
    tables.drop(unit, tables.protect(unit, row, hex64("contract")))
    home = namespaces.get(unit, ("sales",))
    view = views.create(unit, home, views.NewView("weekly", "v-1", "file:///weekly", pointer))
    views.drop(unit, home, views.swap(unit, home, view, pointer, location="file:///weekly"))
    tables.schedule_deletes(unit, "t-1", ["1.json"])
    requests.add(unit, requests.Request("etl", "key-1", hex64("request"), 200, "{}"))
    outbox.add(unit, Channel.ALERTS, "expiring", hex64("event")[:32], {"kind": "expiring"})


def stored_rows(unit: Unit, table: Table) -> dict[str, dict[str, Any]]:
    """Every row of the table as an event would show it, by the row's key."""
    found = {}
    for row in unit.rows(select(table)):
        key = "/".join(str(row[column.name]) for column in table.primary_key.columns)
        shown = {c.name: row[c.name] for c in table.columns if c.name not in table.info["unlogged"]}
        for column in table.columns:
            if isinstance(column.type, LargeBinary) and column.name in shown and shown[column.name] is not None:
                shown[column.name] = shown[column.name].hex()
        found[key] = shown
    return found


LOGGED = [table for table in metadata.sorted_tables if table.info["unlogged"] is not None]


@pytest.fixture
def filled(unit: Unit) -> Unit:
    """The unit with at least one row in every table."""
    fill_every_table(unit)
    return unit


@for_each("table", LOGGED, ids=lambda table: table.name)
def test_every_row_can_be_rebuilt_from_the_events(filled: Unit, table: Table) -> None:
    rebuilt: dict[str, Any] = {}
    for event in events.page(filled):
        if event.subject == table.name:
            assert event.old == rebuilt.get(event.row_key), "an event's old row must be the last event's new row"
            rebuilt[event.row_key] = event.new
    assert rebuilt
    assert rebuilt == stored_rows(filled, table)


def test_an_update_by_hand_leaves_the_old_row_in_the_events(unit: Unit) -> None:
    unit.execute(text("UPDATE workloads SET state = 'ABANDONED', reason = 'by hand', at_micros = 7"))
    last = events.history(unit, "workloads", "orders-1")[-1]
    assert last.old is not None
    assert last.new is not None
    assert (last.old["reason"], last.new["reason"], last.at_micros) == ("opened", "by hand", 7)


@for_each("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_only_responses_to_requests_unfinished_plans_and_outbox_events_can_be_deleted(
    filled: Unit, table: Table
) -> None:
    with filled.dry_run():
        if table.name in {"catalog_requests", "outbox", "plannings"}:
            assert filled.execute(table.delete()).rowcount == 1
        else:
            with pytest.raises(NotAllowedError, match="never deleted"):
                filled.execute(table.delete())


@for_each("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_a_fixed_column_cannot_be_changed(filled: Unit, table: Table) -> None:
    columns = sorted(table.columns, key=lambda column: column.primary_key)
    fixed = next(column.name for column in columns if column.name not in table.info["changes"])
    column = table.c[fixed]
    value: Any = b"\x00" * 32 if isinstance(column.type, LargeBinary) else 12345 if fixed.endswith("ordinal") else "x"
    if column.type.python_type is int:
        value = 12345
    with filled.dry_run(), pytest.raises(NotAllowedError, match="ledger refuses the change"):
        filled.execute(table.update().values({fixed: value}))


# SQLite has no TRUNCATE.
@pytest.mark.parametrize("shared_ledger", ["postgresql"], indirect=True, scope="module")
@for_each("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_no_table_can_be_truncated_on_postgresql(unit: Unit, table: Table) -> None:
    with unit.dry_run(), pytest.raises(NotAllowedError, match="never deleted"):
        unit.execute(text(f"TRUNCATE {table.name} CASCADE"))


def test_an_event_cannot_be_replaced_under_its_id(unit: Unit) -> None:
    verb = "INSERT OR REPLACE INTO" if unit.is_sqlite else "INSERT INTO"
    tail = "" if unit.is_sqlite else " ON CONFLICT (event_id) DO UPDATE SET kind = 'x'"
    override = "" if unit.is_sqlite else " OVERRIDING SYSTEM VALUE"
    first = events.page(unit)[0].event_id
    columns = "(event_id, at_micros, kind, subject, row_key)"
    with pytest.raises(NotAllowedError):
        unit.execute(text(f"{verb} events {columns}{override} VALUES ({first}, 1, 'x', 'x', 'x'){tail}"))


def test_code_cannot_write_an_event_of_a_kind_that_only_triggers_write(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        events.note(unit, "update", "workloads", "orders-1", {})
    assert caught.value.reason == "event_kind_reserved"


def test_events_are_read_in_pages(unit: Unit) -> None:
    fill_every_table(unit)
    whole = events.page(unit)
    assert events.page(unit, after=whole[1].event_id, count=3) == whole[2:5]


def test_an_event_is_found_by_a_value_that_is_not_ascii(unit: Unit) -> None:
    events.note(unit, "clock_confirmed", "clock", "1", {"operator": "Jürgen"})
    assert [each.row_key for each in events.page(unit, about="Jürgen")] == ["1"]


def test_a_proof_comes_back_as_it_was_stored(unit: Unit) -> None:
    record = put_proof(unit)
    assert (proofs.get(unit, record.proof_id), proofs.get_envelope(unit, record.proof_id)) == (record, b"envelope")


def test_storing_the_same_proof_again_changes_nothing(unit: Unit) -> None:
    record = put_proof(unit)
    proofs.put(unit, record, b"envelope", log_index=0)
    assert proofs.list_by_attempt(unit, record.attempt_id) == [record]


def test_another_envelope_under_the_same_proof_id_is_refused(unit: Unit) -> None:
    record = put_proof(unit)
    with pytest.raises(ConflictError) as caught:
        proofs.put(unit, record, b"other", log_index=0)
    assert caught.value.reason == "statement_differs"


def test_a_second_proof_of_a_notary_for_one_nonce_is_refused(unit: Unit) -> None:
    record = put_proof(unit)
    second = ProofRecord(hex64("second"), record.attempt_id, record.nonce, Outcome.FAIL, record.notary, NOW)
    with pytest.raises(ConflictError) as caught:
        proofs.put(unit, second, b"second", log_index=append_entry(unit))
    assert caught.value.reason == "ledger_constraint"


def test_a_proof_for_the_nonce_of_another_attempt_is_refused(unit: Unit) -> None:
    with pytest.raises(ConflictError) as caught:
        put_proof(unit, nonce=nonce_of("someone", 0))
    assert caught.value.reason == "ledger_constraint"


def test_a_statement_that_is_not_in_the_log_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ConflictError) as caught:
        ledger.transact(
            lambda unit: statements.put(unit, StatementKind.EPOCH, hex64(1), b"x", log_index=17), at_micros=NOW
        )
    assert caught.value.reason == "ledger_constraint"


def test_statements_of_a_kind_are_listed_in_the_order_of_the_log(unit: Unit) -> None:
    for name in ("x", "y"):
        statements.put(unit, StatementKind.BREAK_GLASS, hex64(name), name.encode(), log_index=append_entry(unit))
    assert [found.envelope for found in statements.list_by_kind(unit, StatementKind.BREAK_GLASS)] == [b"x", b"y"]


def test_a_second_receipt_of_a_snapshot_is_refused(unit: Unit) -> None:
    fill_every_table(unit)
    with pytest.raises(ConflictError) as caught:
        receipts.put(unit, ReceiptRecord(hex64("two"), "orders-1", "t-1", "900"), b"two", log_index=append_entry(unit))
    assert caught.value.reason == "ledger_constraint"


def test_a_receipt_is_found_by_its_snapshot(unit: Unit) -> None:
    fill_every_table(unit)
    found = receipts.find_by_snapshot(unit, "t-1", "900")
    assert found is not None
    assert (statements.get(unit, found.receipt_id).envelope, receipts_of(unit, "orders-1")) == (b"receipt", [found])


def test_lost_claims_are_listed_by_domain_with_unreleased_ones_first(unit: Unit) -> None:
    fill_every_table(unit)  # also writes a lost claim that is released, on a dropped table
    ids = [hex64(name) for name in ("one", "two")]
    for statement_id in ids:
        statements.put(unit, StatementKind.RECEIPT, statement_id, b"x", log_index=append_entry(unit))
    namespace = namespaces.create(unit, ("returns",), domain="sales", properties={})
    pointer = Pointer("file:///metadata/3.json", hex64("three"))
    row = tables.create(
        unit, tables.NewTable(namespace.namespace_id, "orders", "sales", "t-2", "file:///returns", pointer, None)
    )
    restores.put_lost_claim(unit, ids[0], "lost-1", target=row.table_uuid, release_id=ids[1])
    restores.put_lost_claim(unit, ids[1], "lost-2", target=row.table_uuid)
    found = restores.list_lost_claims(unit, count=10)
    assert (len(found), found[0].receipt_id) == (3, ids[1])
    in_domain = restores.list_lost_claims(unit, domain=row.domain, count=10)
    assert [each.receipt_id for each in in_domain] == [ids[1], ids[0]]
    assert restores.list_lost_claims(unit, domain="another", count=10) == []
    assert [each.workload_id for each in restores.list_lost_claims(unit, receipt_id=ids[0], count=10)] == ["lost-1"]
    assert restores.list_released(unit, target=row.table_uuid) == [ids[0]]


def test_a_log_in_the_ledger_has_the_same_checkpoint_and_proofs_as_a_log_in_memory(unit: Unit) -> None:
    storage: LogStorage = LedgerLog(unit)
    _, reference = filled_log(300)
    log = Log(storage, origin=ORIGIN, signer=SIGNER)
    for start, end in ((0, 1), (1, 130), (130, 300)):
        log.append(entries(start, end))
    assert log.checkpoint() == reference.checkpoint()
    assert log.prove_inclusion(129, 300) == reference.prove_inclusion(129, 300)
    assert list(storage.read_entries(5, 9)) == [entry.to_bytes() for entry in entries(5, 9)]


def test_an_append_at_another_size_stores_nothing(unit: Unit) -> None:
    log = LedgerLog(unit)
    with pytest.raises(ConflictError) as caught:
        log.append(at=1, entries=[b"x"], hashes={}, checkpoint=b"note")
    assert (caught.value.reason, log.size()) == ("log_moved", 0)


def test_the_database_refuses_a_gap_in_the_log(unit: Unit) -> None:
    with pytest.raises(NotAllowedError, match="log entries have no gap"):
        unit.insert(metadata.tables["log_entries"], entry_index=1, entry=b"x")


def test_reading_a_missing_hash_of_the_log_is_an_error(unit: Unit) -> None:
    append_entry(unit)
    with pytest.raises(VerificationError) as caught:
        LedgerLog(unit).read_hashes([(0, 0), (0, 1)])
    assert caught.value.reason == "log_incomplete"


def test_reading_a_missing_entry_of_the_log_is_an_error(unit: Unit) -> None:
    append_entry(unit)
    with pytest.raises(VerificationError) as caught:
        LedgerLog(unit).read_entries(0, 2)
    assert caught.value.reason == "log_incomplete"


def issue_token(unit: Unit) -> tuple[BearerToken, tokens.Grant]:
    token, owner = BearerToken.draw(), {"domain": "sales", "name": "etl"}
    return token, tokens.issue(unit, Role.PRODUCER, secret_sha256=token.sha256, **owner, expires_micros=NOW + 10)


def test_a_token_grants_its_role_and_domain(unit: Unit) -> None:
    token, grant = issue_token(unit)
    assert tokens.check(unit, token, now_micros=NOW) == grant


@pytest.mark.parametrize(("late", "code"), [(10, "token_expired"), (11, "token_expired")])
def test_a_token_ends_at_its_expiry(unit: Unit, late: int, code: str) -> None:
    token, _ = issue_token(unit)
    with pytest.raises(NotAllowedError) as caught:
        tokens.check(unit, token, now_micros=NOW + late)
    assert caught.value.reason == code


def test_a_revoked_token_is_refused(unit: Unit) -> None:
    token, grant = issue_token(unit)
    tokens.revoke(unit, grant.token_id)
    with pytest.raises(NotAllowedError) as caught:
        tokens.check(unit, token, now_micros=NOW)
    assert caught.value.reason == "token_revoked"


def test_the_database_refuses_to_take_back_a_revocation(unit: Unit) -> None:
    _, grant = issue_token(unit)
    tokens.revoke(unit, grant.token_id)
    with pytest.raises(NotAllowedError, match="stays revoked"):
        unit.execute(text("UPDATE tokens SET revoked_micros = NULL"))


def test_an_unknown_token_is_refused(unit: Unit) -> None:
    issue_token(unit)
    with pytest.raises(NotAllowedError) as caught:
        tokens.check(unit, BearerToken("pvdm_guess"), now_micros=NOW)
    assert caught.value.reason == "token_unknown"


def test_a_token_that_expires_at_once_is_not_issued(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        tokens.issue(unit, Role.OPERATOR, secret_sha256="ab" * 32, domain="sales", name="x", expires_micros=NOW)
    assert caught.value.reason == "token_expiry_invalid"


def test_the_text_of_a_token_is_in_no_table(unit: Unit) -> None:
    token, _ = issue_token(unit)
    dump = str([unit.rows(select(table)) for table in metadata.sorted_tables])
    assert token.reveal().removeprefix("pvdm_") not in dump


@for_each("use", [str, repr, lambda token: [token], lambda token: {"token": token}])
def test_the_text_of_a_token_is_not_in_its_string_forms(use: Any) -> None:
    assert "geheim" not in str(use(BearerToken("pvdm_geheim")))


def test_comparing_tokens_is_an_error() -> None:
    with pytest.raises(TypeError, match="not compared"):
        assert BearerToken("a") == BearerToken("a")


def test_the_ledger_refuses_a_value_of_another_type(unit: Unit) -> None:
    with pytest.raises(PvdmError):
        unit.execute(text("INSERT INTO chunks VALUES ('orders-1', 'c', 'not a number', '{}', 1)"))


def test_a_second_restore_cannot_begin_before_the_first_is_finished(unit: Unit) -> None:
    marker = Restore(1, "operator-tom", "disk", 3, b"note", 1, (), {})
    restores.begin(unit, marker)
    with pytest.raises(PvdmError) as caught:
        restores.begin(unit, replace(marker, restore_id=2))
    assert caught.value.reason == "restore_unfinished"
    restores.finish(unit, 1)
    restores.begin(unit, replace(marker, restore_id=restores.next_id(unit)))
    found = restores.find_unfinished(unit)
    assert found is not None
    assert found.restore_id == 2
