"""`pvdm proof open` writes an attempt's keys to a file of mode 0600; `recompute` digests the data again with them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.digest import Plan, digest
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.role import Role
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.model.statements.core import AddedFile, FileSet, ProofCore, ProvedProjection, RowCounts
from pvdm.model.statements.proof import Commitments, Storage
from pvdm.trust.commitment import commit
from pvdm.trust.keys.service import AttemptKeys, release_keys
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.steward.notary import context_of
from tools.proof_kit import SECOND

ROWS = pa.table({"order_id": pa.array([1, 2, 3], pa.int64()), "amount": pa.array([10, 20, 30], pa.int64())})
LONG = PrimitiveType(Kind.LONG)
SCHEMA = Schema((Field("order_id", LONG, required=True, field_id=1), Field("amount", LONG, field_id=2)))
PLAN = Plan(SCHEMA, (content(SCHEMA), identity(SCHEMA, ["order_id"])))
REASON = ("--reason", "yearly audit")


@dataclass(frozen=True)
class ProofWithKeys:
    """The id of a proof over real rows, and the keys of its attempt."""

    proof_id: str
    keys: AttemptKeys

    def secrets(self) -> list[bytes]:
        return [key.reveal() for pair in (self.keys.row_hash, self.keys.commitment) for _, key in pair]


@pytest.fixture
def proof(steward: ServedSteward, tmp_path: Path) -> ProofWithKeys:
    """A proof in `b.json`, with `rows.parquet` and `schema.json`; the attempt has ended; commands run as auditor."""
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    core = _core_over_file(steward.stand.verifying("one"), tmp_path / "rows.parquet")
    notary = steward.stand.notary
    context = context_of(core, notary.keys.epoch_for(None))
    keys = release_keys(notary.keys, context, ended=True)
    digests = digest(ROWS, PLAN, dict(keys.row_hash))
    commitments = tuple(
        Commitments(name, commit(key, digests[name]), commit(key, digests[name]))
        for name, key in sorted(keys.commitment, key=lambda pair: pair[0].value)
    )
    recorded = notary.proofs.record(
        core, commitments, storage=Storage.OPEN, lifetime_micros=3_600 * SECOND, context=context
    )
    (tmp_path / "b.json").write_bytes(recorded.envelope)
    steward.stand.give_up(core)
    steward.use_token(Role.AUDITOR)
    return ProofWithKeys(recorded.statement_id, keys)


def _core_over_file(core: ProofCore, file: Path) -> ProofCore:
    """The core with this file as its only added one, and the projections of `PLAN`."""
    data = file.read_bytes()
    projections = tuple(
        ProvedProjection(projection, PLAN.fingerprint(projection.name).hex())
        for projection in sorted(PLAN.projections, key=lambda projection: projection.name.value)
    )
    facts = (len(data), hashlib.sha256(data).hexdigest())
    added = AddedFile("s3://staged/0", *facts, "s3://published/0", *facts)
    return replace(core, projections=projections, rows=RowCounts(3, 3), files=FileSet((added,), core.files.removed))


def open_proof(pvdm: Run, proof: ProofWithKeys, *more: object) -> CommandResult:
    return pvdm("proof", "open", proof.proof_id, *REASON, "--out", "attempt.keys", *more)


def recompute(pvdm: Run, *more: object, parquet: str = "rows.parquet") -> CommandResult:
    words = ("--opened", "attempt.keys", "--parquet", parquet, "--engine", "reference", "--json")
    return pvdm("proof", "recompute", "b.json", *words, *more)


SCHEMA_FILE = ("--schema", "schema.json")


def test_the_rows_that_the_notary_saw_are_found_equal(pvdm: Run, proof: ProofWithKeys) -> None:
    assert open_proof(pvdm, proof).code == 0
    found = recompute(pvdm, *SCHEMA_FILE)
    assert found.code == 0, found.out
    assert (found.json["rows"], found.json["projections"]) == ("3", ["content", "identity"])
    assert found.json["files_are_the_proofs"] is True


ICEBERG = {
    "type": "struct",
    "schema-id": 3,
    "fields": [
        {"id": 1, "name": "order_id", "required": True, "type": "long"},
        {"id": 2, "name": "amount", "required": False, "type": "long"},
    ],
}
OLDER = {**ICEBERG, "schema-id": 2, "fields": []}
METADATA = {"format-version": 2, "current-schema-id": 3, "schemas": [OLDER, ICEBERG]}


@pytest.mark.parametrize("given", [ICEBERG, METADATA], ids=["Iceberg's schema", "a table's metadata"])
def test_the_schema_may_be_icebergs_own(
    pvdm: Run, proof: ProofWithKeys, tmp_path: Path, given: dict[str, object]
) -> None:
    open_proof(pvdm, proof)
    (tmp_path / "iceberg.json").write_text(json.dumps(given))
    found = recompute(pvdm, "--schema", "iceberg.json")
    assert found.code == 0, found.out
    assert found.json["rows"] == "3"


def test_a_schema_file_without_a_schema_is_refused(pvdm: Run, proof: ProofWithKeys, tmp_path: Path) -> None:
    open_proof(pvdm, proof)
    (tmp_path / "other.json").write_text('{"columns": []}')
    assert recompute(pvdm, "--schema", "other.json").error == "schema_file_invalid"


def test_other_files_with_the_same_rows_are_equal_and_shown_as_not_the_proofs(
    pvdm: Run, proof: ProofWithKeys, tmp_path: Path
) -> None:
    open_proof(pvdm, proof)
    pq.write_table(ROWS.take([2, 0, 1]), tmp_path / "again.parquet")
    found = recompute(pvdm, *SCHEMA_FILE, parquet="again.parquet")
    assert (found.code, found.json["files_are_the_proofs"]) == (0, False)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS.slice(1),
        pa.concat_tables([ROWS, ROWS.slice(0, 1)]),
        ROWS.set_column(1, "amount", pa.array([10, 20, 31], pa.int64())),
        ROWS.slice(0, 0),
    ],
    ids=["dropped", "doubled", "changed", "empty"],
)
@pytest.mark.parametrize("side", ["staged", "intent"])
def test_other_rows_than_the_proofs_are_reported_as_different(
    pvdm: Run, proof: ProofWithKeys, tmp_path: Path, rows: pa.Table, side: str
) -> None:
    open_proof(pvdm, proof)
    pq.write_table(rows, tmp_path / "other.parquet")
    found = recompute(pvdm, *SCHEMA_FILE, "--side", side, parquet="other.parquet")
    assert (found.code, found.error) == (3, "recomputed_differs")


def test_the_keys_are_written_for_their_owner_only_and_not_shown(
    pvdm: Run, proof: ProofWithKeys, tmp_path: Path
) -> None:
    shown = open_proof(pvdm, proof)
    assert (tmp_path / "attempt.keys").stat().st_mode & 0o777 == 0o600
    written = (tmp_path / "attempt.keys").read_text()
    for secret in proof.secrets():
        assert secret.hex() in written
        assert secret.hex() not in shown.out + shown.err


def test_the_json_of_opening_has_no_key(pvdm: Run, proof: ProofWithKeys) -> None:
    shown = open_proof(pvdm, proof, "--json")
    assert set(shown.json) == {"proof_id", "attempt_id", "projections", "out"}


def test_recomputing_shows_no_key_and_no_digest(pvdm: Run, proof: ProofWithKeys) -> None:
    open_proof(pvdm, proof)
    digests = digest(ROWS, PLAN, dict(proof.keys.row_hash))
    shown = recompute(pvdm, *SCHEMA_FILE).out
    for text in (*(secret.hex() for secret in proof.secrets()), *(f"{each.total:064x}" for each in digests.values())):
        assert text not in shown


def test_keys_are_not_written_over_another_file(pvdm: Run, proof: ProofWithKeys, tmp_path: Path) -> None:
    (tmp_path / "attempt.keys").write_text("mine")
    refused = open_proof(pvdm, proof, "--json")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (tmp_path / "attempt.keys").read_text() == "mine"


def test_only_an_auditor_gets_keys(pvdm: Run, proof: ProofWithKeys, steward: ServedSteward, tmp_path: Path) -> None:
    steward.use_token(Role.OPERATOR)
    assert open_proof(pvdm, proof, "--json").code == 5
    assert not (tmp_path / "attempt.keys").exists()


def test_an_attempt_that_may_still_be_published_is_not_opened(pvdm: Run, steward: ServedSteward) -> None:
    running = steward.stand.proved("running")
    steward.use_token(Role.AUDITOR)
    refused = pvdm("proof", "open", running.statement_id, *REASON, "--out", "k", "--json")
    assert (refused.code, refused.error) == (5, "attempt_not_closed")


def test_a_keys_file_that_others_can_read_is_refused(pvdm: Run, proof: ProofWithKeys, tmp_path: Path) -> None:
    open_proof(pvdm, proof)
    (tmp_path / "attempt.keys").chmod(0o644)
    assert recompute(pvdm, *SCHEMA_FILE).error == "key_file_mode"


@pytest.mark.parametrize("text", ["", "{}", "secret words"])
def test_a_keys_file_of_another_form_is_refused_and_not_shown(
    pvdm: Run, proof: ProofWithKeys, tmp_path: Path, text: str
) -> None:
    open_proof(pvdm, proof)
    (tmp_path / "attempt.keys").write_text(text)
    refused = recompute(pvdm, *SCHEMA_FILE)
    assert (refused.code, refused.error) == (2, "opened_file_invalid")
    assert "secret words" not in refused.out


def test_keys_of_another_proof_are_refused(pvdm: Run, proof: ProofWithKeys, tmp_path: Path) -> None:
    open_proof(pvdm, proof)
    text = (tmp_path / "attempt.keys").read_text()
    (tmp_path / "attempt.keys").write_text(text.replace(proof.proof_id, "0" * 64))
    refused = recompute(pvdm, *SCHEMA_FILE)
    assert (refused.code, refused.error) == (2, "opened_keys_other")


@pytest.mark.parametrize("field", ["workload_id", "epoch"])
def test_a_context_that_is_not_the_proofs_is_refused(
    pvdm: Run, proof: ProofWithKeys, tmp_path: Path, field: str
) -> None:
    open_proof(pvdm, proof)
    value = json.loads((tmp_path / "attempt.keys").read_text())
    value["context"][field] = "9"
    (tmp_path / "attempt.keys").write_text(json.dumps(value, separators=(",", ":"), sort_keys=True))
    assert recompute(pvdm, *SCHEMA_FILE).error == "opened_keys_other"


def test_with_one_changed_bit_of_a_key_the_rows_differ(pvdm: Run, proof: ProofWithKeys, tmp_path: Path) -> None:
    open_proof(pvdm, proof)
    text = (tmp_path / "attempt.keys").read_text()
    key = dict(proof.keys.commitment)[ProjectionName.CONTENT].reveal().hex()
    (tmp_path / "attempt.keys").write_text(text.replace(key, f"{int(key, 16) ^ 1:064x}"))
    assert recompute(pvdm, *SCHEMA_FILE).error == "recomputed_differs"


def test_recomputing_without_the_tables_schema_is_refused(pvdm: Run, proof: ProofWithKeys) -> None:
    """A Parquet file does not say which columns the table requires, so its schema has another fingerprint."""
    open_proof(pvdm, proof)
    refused = recompute(pvdm)
    assert (refused.code, refused.error) == (2, "schema_fingerprint_differs")
