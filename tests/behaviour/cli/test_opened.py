"""`pvdm proof open` and `recompute`: keys in a file of mode 0600, and rows counted again from the data."""

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
from tests.behaviour.cli.served import Door
from tests.behaviour.cli.support import Ran, Run
from tests.support.steward.notary import context_of
from tools.proof_kit import SECOND

ROWS = pa.table({"order_id": pa.array([1, 2, 3], pa.int64()), "amount": pa.array([10, 20, 30], pa.int64())})
LONG = PrimitiveType(Kind.LONG)
SCHEMA = Schema((Field("order_id", LONG, required=True, field_id=1), Field("amount", LONG, field_id=2)))
PLAN = Plan(SCHEMA, (content(SCHEMA), identity(SCHEMA, ["order_id"])))
REASON = ("--reason", "yearly audit")


@dataclass(frozen=True)
class Proved:
    """A real proof over real rows, and the keys behind it."""

    proof_id: str
    keys: AttemptKeys

    def secrets(self) -> list[bytes]:
        return [key.reveal() for pair in (self.keys.row_hash, self.keys.commitment) for _, key in pair]


@pytest.fixture
def proved(door: Door, tmp_path: Path) -> Proved:
    """`b.json`, `rows.parquet` and `schema.json`; the attempt has ended, and commands come as an auditor."""
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    core = _core(door.stand.verifying("one"), tmp_path / "rows.parquet")
    notary = door.stand.notary
    context = context_of(core, notary.keys.epoch_for(None))
    keys = release_keys(notary.keys, context, ended=True)
    seen = digest(ROWS, PLAN, dict(keys.row_hash))
    made = tuple(
        Commitments(name, commit(key, seen[name]), commit(key, seen[name]))
        for name, key in sorted(keys.commitment, key=lambda pair: pair[0].value)
    )
    recorded = notary.proofs.record(core, made, storage=Storage.OPEN, lifetime_micros=3_600 * SECOND, context=context)
    (tmp_path / "b.json").write_bytes(recorded.envelope)
    door.stand.give_up(core)
    door.come_as(Role.AUDITOR)
    return Proved(recorded.statement_id, keys)


def _core(core: ProofCore, file: Path) -> ProofCore:
    data = file.read_bytes()
    projections = tuple(
        ProvedProjection(projection, PLAN.fingerprint(projection.name).hex())
        for projection in sorted(PLAN.projections, key=lambda projection: projection.name.value)
    )
    facts = (len(data), hashlib.sha256(data).hexdigest())
    added = AddedFile("s3://staged/0", *facts, "s3://published/0", *facts)
    return replace(core, projections=projections, rows=RowCounts(3, 3), files=FileSet((added,), core.files.removed))


def opened(pvdm: Run, proved: Proved, *more: object) -> Ran:
    return pvdm("proof", "open", proved.proof_id, *REASON, "--out", "attempt.keys", *more)


def recompute(pvdm: Run, *more: object, parquet: str = "rows.parquet") -> Ran:
    words = ("--opened", "attempt.keys", "--parquet", parquet, "--engine", "reference", "--json")
    return pvdm("proof", "recompute", "b.json", *words, *more)


SCHEMA_FILE = ("--schema", "schema.json")


def test_the_rows_that_the_notary_saw_are_found_equal(pvdm: Run, proved: Proved) -> None:
    assert opened(pvdm, proved).code == 0
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
def test_the_schema_may_be_icebergs_own(pvdm: Run, proved: Proved, tmp_path: Path, given: dict[str, object]) -> None:
    opened(pvdm, proved)
    (tmp_path / "iceberg.json").write_text(json.dumps(given))
    found = recompute(pvdm, "--schema", "iceberg.json")
    assert found.code == 0, found.out
    assert found.json["rows"] == "3"


def test_a_schema_file_that_holds_none_is_refused(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    opened(pvdm, proved)
    (tmp_path / "other.json").write_text('{"columns": []}')
    assert recompute(pvdm, "--schema", "other.json").error == "schema_file_invalid"


def test_other_files_with_the_same_rows_are_told_apart(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    opened(pvdm, proved)
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
def test_other_rows_differ(pvdm: Run, proved: Proved, tmp_path: Path, rows: pa.Table, side: str) -> None:
    opened(pvdm, proved)
    pq.write_table(rows, tmp_path / "other.parquet")
    found = recompute(pvdm, *SCHEMA_FILE, "--side", side, parquet="other.parquet")
    assert (found.code, found.error) == (3, "recomputed_differs")


def test_the_keys_are_written_for_their_owner_only_and_never_shown(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    shown = opened(pvdm, proved)
    assert (tmp_path / "attempt.keys").stat().st_mode & 0o777 == 0o600
    written = (tmp_path / "attempt.keys").read_text()
    for secret in proved.secrets():
        assert secret.hex() in written
        assert secret.hex() not in shown.out + shown.err


def test_the_json_of_opening_has_no_key(pvdm: Run, proved: Proved) -> None:
    shown = opened(pvdm, proved, "--json")
    assert set(shown.json) == {"proof_id", "attempt_id", "projections", "out"}


def test_recomputing_shows_no_key_and_no_digest(pvdm: Run, proved: Proved) -> None:
    opened(pvdm, proved)
    seen = digest(ROWS, PLAN, dict(proved.keys.row_hash))
    shown = recompute(pvdm, *SCHEMA_FILE).out
    for text in (*(secret.hex() for secret in proved.secrets()), *(f"{each.total:064x}" for each in seen.values())):
        assert text not in shown


def test_keys_are_not_written_over_another_file(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    (tmp_path / "attempt.keys").write_text("mine")
    refused = opened(pvdm, proved, "--json")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (tmp_path / "attempt.keys").read_text() == "mine"


def test_only_an_auditor_gets_keys(pvdm: Run, proved: Proved, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.OPERATOR)
    assert opened(pvdm, proved, "--json").code == 5
    assert not (tmp_path / "attempt.keys").exists()


def test_an_attempt_that_may_still_be_published_is_not_opened(pvdm: Run, door: Door) -> None:
    running = door.stand.proved("running")
    door.come_as(Role.AUDITOR)
    refused = pvdm("proof", "open", running.statement_id, *REASON, "--out", "k", "--json")
    assert (refused.code, refused.error) == (5, "attempt_not_closed")


def test_a_keys_file_that_others_can_read_is_refused(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    opened(pvdm, proved)
    (tmp_path / "attempt.keys").chmod(0o644)
    assert recompute(pvdm, *SCHEMA_FILE).error == "key_file_mode"


@pytest.mark.parametrize("text", ["", "{}", "secret words"])
def test_a_keys_file_that_is_none_is_refused_without_showing_it(
    pvdm: Run, proved: Proved, tmp_path: Path, text: str
) -> None:
    opened(pvdm, proved)
    (tmp_path / "attempt.keys").write_text(text)
    refused = recompute(pvdm, *SCHEMA_FILE)
    assert (refused.code, refused.error) == (2, "opened_file_invalid")
    assert "secret words" not in refused.out


def test_keys_of_another_proof_are_refused(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    opened(pvdm, proved)
    text = (tmp_path / "attempt.keys").read_text()
    (tmp_path / "attempt.keys").write_text(text.replace(proved.proof_id, "0" * 64))
    refused = recompute(pvdm, *SCHEMA_FILE)
    assert (refused.code, refused.error) == (2, "opened_keys_other")


@pytest.mark.parametrize("field", ["workload_id", "epoch"])
def test_a_context_that_is_not_the_proofs_is_refused(pvdm: Run, proved: Proved, tmp_path: Path, field: str) -> None:
    opened(pvdm, proved)
    value = json.loads((tmp_path / "attempt.keys").read_text())
    value["context"][field] = "9"
    (tmp_path / "attempt.keys").write_text(json.dumps(value, separators=(",", ":"), sort_keys=True))
    assert recompute(pvdm, *SCHEMA_FILE).error == "opened_keys_other"


def test_one_changed_bit_of_a_key_differs(pvdm: Run, proved: Proved, tmp_path: Path) -> None:
    opened(pvdm, proved)
    text = (tmp_path / "attempt.keys").read_text()
    key = dict(proved.keys.commitment)[ProjectionName.CONTENT].reveal().hex()
    (tmp_path / "attempt.keys").write_text(text.replace(key, f"{int(key, 16) ^ 1:064x}"))
    assert recompute(pvdm, *SCHEMA_FILE).error == "recomputed_differs"


def test_without_the_tables_schema_it_is_asked_for(pvdm: Run, proved: Proved) -> None:
    """The file cannot say that a column is required."""
    opened(pvdm, proved)
    refused = recompute(pvdm)
    assert (refused.code, refused.error) == (2, "schema_fingerprint_differs")
