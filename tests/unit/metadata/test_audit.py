"""The audit of a table: its protection, the proofs of its snapshots, the keys and the log, overrides, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import PvdmError, VerificationError
from pvdm.lake.format.avro.container import read_avro, write_avro
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.metadata.audit.report import Standing
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import NamespaceTarget, Protection, ProtectionAction
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.table import NamespaceRef
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.trust.log.checkpoint import Checkpoint, sign_checkpoint
from pvdm.trust.verify import sign_statement
from tests.support.audit.crafted_history import CONTRACT, History, change_statements, codes, local, standings
from tests.support.gate.approvals import COLUMN, WORD
from tests.support.lake.manifests import extra_of
from tools.proof_kit import KEYS, NOW, ORIGIN, SECOND, SIGNERS, fixed, root_of

FAILED = Verdict.failed(FailureClass.MODIFIED)
OK, BEFORE, UNPROVED, CHANGED = Standing.OK, Standing.BEFORE, Standing.UNPROVED, Standing.CHANGED


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One snapshot from before the protection, and one that was published."""
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.protect()
    history.publish(history.data_file("first"))
    return history


# Histories without a finding, and proofs of several chunks and notaries
@pytest.mark.parametrize("version", [1, 2, 3])
def test_appends_and_overwrites_of_every_format_hold(tmp_path: Path, version: int) -> None:
    history = History(tmp_path, version=version)
    history.snapshot([history.data_file("old"), history.data_file("older")])
    history.protect()
    first, second = history.data_file("first"), history.data_file("second")
    history.publish(first, second)
    history.publish(history.data_file("third"), removed=[first.file_path, history.data_file("old").file_path])
    history.publish(history.data_file("fourth"), removed=[second.file_path])
    history.publish()
    report = history.audit(again=True)
    assert codes(report) == set()
    assert standings(report) == [BEFORE, OK, OK, OK, OK]
    assert [(each.rows_added, each.rows_removed) for each in report.snapshots] == [
        (20, 0),
        (20, 0),
        (10, 20),
        (10, 10),
        (0, 0),
    ]


def test_the_line_of_a_snapshot_names_workload_and_proofs(history: History) -> None:
    line = history.audit().snapshots[-1]
    assert (line.workload_id, line.files_added, line.files_removed) == ("work-3", 1, 0)
    assert len(line.proof_ids) == 1


def test_a_publication_of_several_chunks_with_all_their_proofs_holds(history: History) -> None:
    files = [history.data_file(name) for name in "abc"]
    cores = [history.core([file], chunk=file.file_path[-9:]) for file in files]
    proofs = [history.prove(core) for core in cores]
    snapshot = history.snapshot(files, by_steward=True)
    history.say(history.receipt(snapshot, cores[0], proofs), "notary-a")
    assert standings(history.audit()) == [BEFORE, OK, OK]


def publish_chunks_and_audit(history: History, chunks: Sequence[str], files: Sequence[DataFile]) -> set[str]:
    """Publish one proof for each chunk and its file in one snapshot; return the codes of the audit's findings."""
    cores = [history.core([file], chunk=chunk) for file, chunk in zip(files, chunks, strict=True)]
    attempts = [replace(core.attempt, nonce=fixed(f"own {at}", 16)) for at, core in enumerate(cores)]
    cores = [replace(core, attempt=attempt) for core, attempt in zip(cores, attempts, strict=True)]
    proofs = [history.prove(core) for core in cores]
    snapshot = history.snapshot(list(dict.fromkeys(files)), by_steward=True)
    history.say(history.receipt(snapshot, cores[0], proofs), "notary-a")
    return codes(history.audit())


def test_two_proofs_of_one_chunk_are_found(history: History) -> None:
    files = [history.data_file("x"), history.data_file("y")]
    assert publish_chunks_and_audit(history, ["a", "a"], files) == {"audit_chunk_twice"}


def test_two_chunks_that_bind_one_file_are_found(history: History) -> None:
    file = history.data_file("x")
    found = publish_chunks_and_audit(history, ["a", "b"], [file, file])
    assert found == {"audit_file_proved_twice", "audit_rows_differ"}


def test_proofs_of_several_notaries_over_one_core_hold(history: History) -> None:
    file = history.data_file("x")
    core = history.core([file])
    proofs = [history.prove(core, signer) for signer in ("notary-a", "notary-b")]
    snapshot = history.snapshot([file], by_steward=True)
    history.say(history.receipt(snapshot, core, proofs), "notary-a")
    assert standings(history.audit()) == [BEFORE, OK, OK]


def test_too_few_notaries_are_found(history: History) -> None:
    report = history.audit(root=root_of(list(KEYS.values()), notaries=2))
    assert codes(report) == {"threshold_not_met"}


# Since when the table is protected


def test_a_table_that_was_never_protected_does_not_hold(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.prove(history.core([]))
    evidence = replace(history.evidence(), contract_sha256=None)
    report = history.audit(evidence=evidence)
    assert codes(report) == {"audit_not_protected"}
    assert standings(report) == [BEFORE]


def test_a_missing_protection_is_found(history: History) -> None:
    evidence = change_statements(
        history.evidence(), lambda each: None if each.kind is StatementKind.PROTECTION else each
    )
    assert "audit_protection_missing" in codes(history.audit(evidence=evidence))


def test_a_snapshot_of_an_unprotected_time_is_in_a_gap(history: History) -> None:
    history.protect(ProtectionAction.UNPROTECT)
    history.snapshot([history.data_file("free")])
    history.protect()
    history.publish(history.data_file("again"))
    history.snapshot([history.data_file("unseen")])
    assert standings(history.audit()) == [BEFORE, OK, Standing.IN_GAP, OK, UNPROVED]


def test_a_backdated_snapshot_under_protection_is_unproved(history: History) -> None:
    """Between two receipts the log alone says whether the table was protected."""
    history.snapshot(
        [history.data_file("hidden")], said=lambda snapshot: {**snapshot, "timestamp-ms": (NOW - 999 * SECOND) // 1_000}
    )
    history.publish(history.data_file("next"))
    report = history.audit()
    assert standings(report) == [BEFORE, OK, UNPROVED, OK]
    assert codes(report) == {"audit_receipt_missing"}


def namespace_protection(history: History, *, name: str = "sales", contract: str = CONTRACT) -> Protection:
    target = NamespaceTarget(
        NamespaceRef("lake", fixed("space", 16), name), history.protection().target.contract_sha256
    )
    if contract != CONTRACT:
        target = replace(target, contract_sha256=fixed("other"))
    protection = history.protection()
    return replace(protection, target=target, contract=contract if contract == CONTRACT else None)


def test_a_table_in_a_protected_namespace_must_be_proved_from_its_first_snapshot(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.say(namespace_protection(history), "operator-tom")
    history.publish(history.data_file("first"))
    assert standings(history.audit()) == [OK]
    history.snapshot([history.data_file("unseen")])
    assert standings(history.audit()) == [OK, UNPROVED]


def test_a_protection_of_a_namespace_that_no_operator_signed_is_found(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.say(namespace_protection(history), "operator-ruth")
    history.publish(history.data_file("first"))
    assert codes(history.audit()) == {"key_is_break_glass"}


def test_a_protection_of_another_namespace_does_not_protect_the_table(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.say(namespace_protection(history, name="risk"), "operator-tom")
    history.publish(history.data_file("first"))
    assert codes(history.audit()) == {"audit_protection_missing"}


def test_a_protection_that_no_operator_signed_is_found(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.say(history.protection(), "operator-ruth")
    history.publish(history.data_file("first"))
    assert {"key_is_break_glass", "audit_protection_missing"} <= codes(history.audit())


# Which statements explain the table's state


def test_a_migration_is_reported_and_publications_after_it_hold(history: History) -> None:
    history.migrate(COLUMN)
    history.publish(history.data_file("next"))
    report = history.audit()
    assert standings(report) == [BEFORE, OK, OK]
    assert [each.kind for each in report.approvals] == ["protect", "migration"]
    assert any(change.startswith("schema ") for change in report.approvals[1].changes)


def test_an_unsigned_change_of_structure_is_found(history: History) -> None:
    history.commit(WORD)
    assert codes(history.audit()) == {"audit_structure_unexplained"}


def test_an_unsigned_change_between_two_approvals_is_found(history: History) -> None:
    history.commit(WORD)
    history.migrate(COLUMN)
    assert codes(history.audit()) == {"audit_state_gap"}


def test_a_publication_that_was_taken_back_is_found(history: History) -> None:
    before = history.evidence().metadata
    history.publish(history.data_file("gone"))
    evidence = replace(history.evidence(), metadata=before)
    assert codes(history.audit(evidence=evidence)) == {"audit_receipt_without_snapshot"}


def test_a_stray_receipt_that_is_not_in_the_log_is_only_a_finding_of_the_log(history: History) -> None:
    before = history.evidence().metadata
    history.publish(history.data_file("gone"))
    last = history.statements[-1].index
    evidence = change_statements(
        replace(history.evidence(), metadata=before),
        lambda each: replace(each, logged_at=each.logged_at + 1) if each.index == last else each,
    )
    assert codes(history.audit(evidence=evidence)) == {"inclusion_root"}


def test_expired_snapshots_are_no_finding(history: History) -> None:
    history.publish(history.data_file("second"))
    first = history.metadata.snapshots[:2]
    history.publish(history.data_file("third"))
    history.commit([{"action": "remove-snapshots", "snapshot-ids": [each.snapshot_id for each in first]}])
    report = history.audit()
    assert codes(report) == set()
    assert standings(report) == [OK, OK]


# The log and the keys


def test_a_wrong_inclusion_proof_is_found(history: History) -> None:
    evidence = change_statements(
        history.evidence(),
        lambda each: (
            replace(each, hashes=(bytes(32), *each.hashes[1:])) if each.kind is StatementKind.RECEIPT else each
        ),
    )
    report = history.audit(evidence=evidence)
    assert codes(report) == {"inclusion_root"}
    assert standings(report) == [BEFORE, UNPROVED]


def test_a_protection_that_is_not_in_the_log_is_found(history: History) -> None:
    evidence = change_statements(
        history.evidence(),
        lambda each: replace(each, logged_at=each.logged_at + 1) if each.kind is StatementKind.PROTECTION else each,
    )
    assert codes(history.audit(evidence=evidence)) >= {"inclusion_root", "audit_protection_missing"}


def test_a_proof_that_is_not_in_the_log_is_found(history: History) -> None:
    evidence = change_statements(
        history.evidence(),
        lambda each: replace(each, logged_at=each.logged_at + 1) if each.kind is StatementKind.PROOF else each,
    )
    assert codes(history.audit(evidence=evidence)) == {"inclusion_root"}


def test_a_checkpoint_that_another_key_signed_ends_the_audit(history: History) -> None:
    evidence = history.evidence()
    forged = sign_checkpoint(Checkpoint(ORIGIN, history.storage.size(), bytes(32)), SIGNERS["rogue"])
    with pytest.raises(VerificationError, match="sign"):
        history.audit(evidence=replace(evidence, checkpoint=forged.note))


def test_a_proof_that_was_logged_after_its_receipt_is_found(history: History) -> None:
    file = history.data_file("x")
    core = history.core([file])
    snapshot = history.snapshot([file], by_steward=True)
    proof = Proof(core, history.part(core))
    proof_id = sign_statement(proof, SIGNERS["notary-a"]).payload_sha256
    history.say(history.receipt(snapshot, core, [proof_id]), "notary-a")
    history.say(proof, "notary-a")
    assert codes(history.audit()) == {"audit_logged_too_late"}


def test_a_notary_that_the_trust_root_lacks_is_found(history: History) -> None:
    root = root_of([key for name, key in KEYS.items() if not name.startswith("notary-a")])
    report = history.audit(root=root)
    assert codes(report) == {"key_unknown"}
    assert standings(report) == [BEFORE, UNPROVED]


def test_a_signature_after_the_revocation_of_its_key_is_found(history: History) -> None:
    history.publish(history.data_file("x"), signer="notary-revoked")
    report = history.audit()
    assert codes(report) == {"key_revoked"}
    assert standings(report) == [BEFORE, OK, UNPROVED]


def test_a_signature_before_the_revocation_of_its_key_holds(history: History) -> None:
    keys = {**KEYS, "notary-a": replace(KEYS["notary-a"], revoked_at=NOW)}
    assert history.audit(root=root_of(list(keys.values()))).holds


def test_a_repeated_statement_is_found(history: History) -> None:
    evidence = history.evidence()
    assert codes(
        history.audit(evidence=replace(evidence, statements=(*evidence.statements, evidence.statements[-1])))
    ) == {"audit_statement_repeated"}


def test_a_statement_of_an_unexpected_kind_is_found(history: History) -> None:
    evidence = history.evidence()
    other = replace(evidence.statements[0], kind=StatementKind.EPOCH)
    found = history.audit(evidence=replace(evidence, statements=(other, *evidence.statements[1:])))
    assert "audit_statement_unexpected" in codes(found)


def test_unreadable_metadata_ends_the_audit(history: History) -> None:
    evidence = history.evidence()
    with pytest.raises(VerificationError) as caught:
        history.audit(evidence=replace(evidence, metadata=replace(evidence.metadata, data=b"{}")))
    assert caught.value.reason == "audit_metadata_unreadable"


def test_an_unreadable_envelope_is_found(history: History) -> None:
    evidence = change_statements(
        history.evidence(), lambda each: replace(each, envelope=b"{}") if each.kind is StatementKind.RECEIPT else each
    )
    assert codes(history.audit(evidence=evidence)) == {"document_key_missing", "audit_receipt_missing"}


def test_metadata_of_another_table_ends_the_audit(history: History) -> None:
    evidence = history.evidence()
    other = replace(evidence.table, uuid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(PvdmError) as caught:
        history.audit(evidence=replace(evidence, table=other))
    assert caught.value.reason == "audit_metadata_of_other_table"


def test_statements_or_snapshots_above_the_limit_end_the_audit(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("pvdm.metadata.audit.statements.AUDIT_STATEMENTS_MAX", 1)
        with pytest.raises(VerificationError, match="too many statements"):
            history.audit()
    monkeypatch.setattr("pvdm.metadata.audit.walk.AUDIT_SNAPSHOTS_MAX", 1)
    with pytest.raises(VerificationError, match="too many snapshots"):
        history.audit()


# Break-glass


def test_a_manifest_list_changed_on_disk_is_found_at_its_snapshot_only(history: History) -> None:
    history.publish(history.data_file("next"))
    head = history.metadata.snapshots[-2]
    assert head.manifest_list is not None
    path = local(head.manifest_list)
    path.write_bytes(path.read_bytes() + b"x")
    report = history.audit()
    assert codes(report) == {"audit_list_changed"}
    assert standings(report) == [BEFORE, CHANGED, OK]


def test_a_missing_manifest_list_is_found(history: History) -> None:
    head = history.metadata.snapshots[-1]
    assert head.manifest_list is not None
    local(head.manifest_list).unlink()
    assert standings(history.audit()) == [BEFORE, CHANGED]


def test_a_manifest_that_was_changed_on_disk_is_found(history: History) -> None:
    """It has the same length and lists the same files, so only its hash differs. False bounds could hide rows."""
    path = history.folder / "vault" / "1005-m0.avro"
    file = read_avro(path.read_bytes())
    path.write_bytes(write_avro(file.schema_text, extra_of(file), file.records, codec=file.codec, sync=bytes(16)))
    report = history.audit()
    assert codes(report) == {"audit_manifests_changed"}
    assert standings(report) == [BEFORE, CHANGED]


def test_changed_data_is_found_only_if_it_is_read_again(history: History) -> None:
    file = history.data_file("next")
    history.publish(file)
    data = local(file.file_path).read_bytes()
    local(file.file_path).write_bytes(data[::-1])
    assert history.audit().holds
    report = history.audit(again=True)
    assert codes(report) == {"audit_bytes_changed"}
    assert standings(report) == [BEFORE, OK, CHANGED]


def test_missing_data_is_found_if_it_is_read_again(history: History) -> None:
    local(history.data_file("first").file_path).unlink()
    report = history.audit(again=True)
    assert (codes(report), standings(report)) == ({"file_missing"}, [BEFORE, CHANGED])


def test_data_that_main_no_longer_shows_is_not_read(history: History) -> None:
    file = history.data_file("first")
    history.publish(history.data_file("next"), removed=[file.file_path])
    local(file.file_path).unlink()
    report = history.audit(again=True)
    assert report.holds
    assert report.rehashed is not None
    assert report.rehashed.data_files == 1


def test_the_report_says_that_data_was_not_read_unless_it_was(history: History) -> None:
    assert any("--rehash" in sentence for sentence in history.audit().not_proved)
    assert not any("--rehash" in sentence for sentence in history.audit(again=True).not_proved)
