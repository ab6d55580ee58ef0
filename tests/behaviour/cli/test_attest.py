"""`pvdm attest`: a source's signed statement about its rows, with keys of the Steward that the command never writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.cli.evidence import attest as attesting
from pvdm.cli.evidence.parquet import digest_files
from pvdm.digest import Plan, digest, schema_from_arrow
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.role import Role
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.trust.commitment import require_commitment_to
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.context import SourceContext
from pvdm.trust.statement import read_statement
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import CommandResult, Run
from tools.proof_kit import SOURCE

ROWS = pa.table({"payment_id": pa.array([1, 2, 3], pa.int64()), "note": pa.array(["a", None, "c"], pa.string())})
SNAPSHOT = 1_206_533_119_840_177_310


@pytest.fixture(autouse=True)
def files(tmp_path: Path, example_key: Callable[[str], Path]) -> None:
    pq.write_table(ROWS.slice(0, 1), tmp_path / "0.parquet")
    pq.write_table(ROWS.slice(1), tmp_path / "1.parquet")
    example_key("source-payments")
    example_key("source-other")


def attest(pvdm: Run, *more: object, key: str = "source-payments") -> CommandResult:
    table = ("--catalog", SOURCE.catalog, "--table", SOURCE.name, "--table-uuid", SOURCE.uuid, "--snapshot", SNAPSHOT)
    parquet = ("--parquet", "0.parquet", "--parquet", "1.parquet")
    return pvdm("attest", "make", "--key", f"{key}.pem", *table, *parquet, "--engine", "reference", *more)


def require_stewards_count_and_commitment(steward: ServedSteward, attestation: SourceAttestation, plan: Plan) -> None:
    """Require that the Steward, with its own keys, finds the attested count and commitment in the same rows."""
    name = attestation.projection
    context = SourceContext(
        attestation.epoch,
        attestation.table.catalog,
        attestation.table.uuid,
        attestation.snapshot_id,
        attestation.attestor,
        attestation.nonce,
        plan.mode,
        ((name, plan.fingerprint(name)),),
    )
    keys = steward.stand.notary.keys
    counted = digest(ROWS, plan, {name: keys.row_hash_key(context, name)})[name]
    assert attestation.row_count == counted.rows
    require_commitment_to(attestation.commitment, keys.commitment_key(context, name), counted)


def test_an_attestation_has_the_count_and_commitment_that_the_steward_finds(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    result = attest(pvdm, "--json")
    assert result.code == 0, result.out
    attestation = SourceAttestation.from_json(result.json["attestation"])
    assert (attestation.attestor, attestation.row_count, attestation.projection) == (
        "source-payments",
        3,
        ProjectionName.CONTENT,
    )
    schema = schema_from_arrow(ROWS.schema)
    require_stewards_count_and_commitment(steward, attestation, Plan(schema, (content(schema),)))


def test_key_columns_alone_can_be_attested(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    attestation = SourceAttestation.from_json(attest(pvdm, "--identity", "payment_id", "--json").json["attestation"])
    schema = schema_from_arrow(ROWS.schema)
    require_stewards_count_and_commitment(steward, attestation, Plan(schema, (identity(schema, ["payment_id"]),)))


def test_a_column_is_left_out_only_with_a_reason(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    attestation = SourceAttestation.from_json(attest(pvdm, "--exclude", "note=free text", "--json").json["attestation"])
    schema = schema_from_arrow(ROWS.schema)
    without_note = content(schema, exclude={"note": "free text"})
    require_stewards_count_and_commitment(steward, attestation, Plan(schema, (without_note,)))
    assert attest(pvdm, "--exclude", "note", "--json").error == "exclusion_reason_missing"


def test_a_given_schema_of_the_table_is_used(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    schema = schema_from_arrow(
        pa.schema([pa.field("payment_id", pa.int64(), nullable=False), ROWS.schema.field("note")])
    )
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_json(), indent=1))
    steward.use_token(Role.ATTESTOR, "source-payments")
    attestation = SourceAttestation.from_json(attest(pvdm, "--schema", "schema.json", "--json").json["attestation"])
    require_stewards_count_and_commitment(steward, attestation, Plan(schema, (content(schema),)))


def test_an_attestation_can_be_written_and_submitted_later(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    assert attest(pvdm, "--out", "a.json").code == 0
    assert pvdm("attest", "list", "--json").json["attestations"] == []
    first, again = (pvdm("attest", "submit", "a.json", "--json") for _ in range(2))
    assert first.code == again.code == 0
    assert first.json == again.json
    listed = pvdm("attest", "list", "--table-uuid", SOURCE.uuid, "--snapshot", SNAPSHOT, "--json").json["attestations"]
    assert [each["row_count"] for each in listed] == ["3"]
    assert parse_envelope((tmp_path / "a.json").read_bytes()).payload_sha256 == listed[0]["statement_id"]


def test_an_attestation_is_shown_with_its_id_and_its_schemas_fingerprint(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    shown = attest(pvdm, "--out", "a.json").out
    envelope = parse_envelope(Path("a.json").read_bytes())
    fingerprint = read_statement(envelope.payload, SourceAttestation).schema_fingerprint
    assert f"schema fingerprint {fingerprint[:16]}…, attestation {envelope.payload_sha256}" in shown
    assert envelope.payload_sha256 in pvdm("attest", "submit", "a.json").out
    assert envelope.payload_sha256 in pvdm("attest", "list").out


def test_the_list_says_that_it_is_empty_or_shows_each_attestation(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    assert pvdm("attest", "list").out == "no attestation\n"
    attest(pvdm)
    assert pvdm("attest", "list").out.startswith("source-payments: 3 rows of ")


def test_another_attestors_key_is_refused(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    refused = attest(pvdm, "--json", key="source-other")
    assert (refused.code, refused.error) == (3, "signer_name_wrong")


def test_an_unregistered_attestor_gets_no_keys(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.ATTESTOR, "source-nobody")
    assert attest(pvdm, "--json").code == 5


def test_a_producer_gets_no_keys_of_a_source(pvdm: Run, steward: ServedSteward) -> None:
    steward.use_token(Role.PRODUCER, "spark", "sales")
    assert attest(pvdm, "--json").code == 5


def test_no_key_of_the_challenge_is_printed_or_written(
    pvdm: Run, steward: ServedSteward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_used: list[Any] = []
    real = digest_files

    def note_keys(files: Any, plan: Any, keys: Any, engine: Any) -> Any:
        keys_used.extend(key.reveal() for key in keys.values())
        return real(files, plan, keys, engine)

    monkeypatch.setattr(attesting, "digest_files", note_keys)
    steward.use_token(Role.ATTESTOR, "source-payments")
    shown = attest(pvdm, "--out", "a.json")
    assert len(keys_used) == 1
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for form in (keys_used[0], keys_used[0].hex().encode()):
        assert form not in written
        assert form not in (shown.out + shown.err).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("data", [b"no parquet", b""], ids=["text", "empty"])
def test_a_file_that_is_no_parquet_is_bad_input(pvdm: Run, steward: ServedSteward, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "1.parquet").write_bytes(data)
    steward.use_token(Role.ATTESTOR, "source-payments")
    refused = attest(pvdm, "--json")
    assert (refused.code, refused.error) == (2, "parquet_unreadable")


def test_a_schema_file_that_holds_no_schema_is_bad_input(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{")
    refused = attest(pvdm, "--schema", "schema.json", "--json")
    assert (refused.code, refused.error) == (2, "schema_file_invalid")


def test_exclusions_together_with_key_columns_are_a_usage_error(pvdm: Run, steward: ServedSteward) -> None:
    refused = attest(pvdm, "--identity", "payment_id", "--exclude", "note=x", "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_the_written_file_is_a_signed_attestation(pvdm: Run, steward: ServedSteward, tmp_path: Path) -> None:
    steward.use_token(Role.ATTESTOR, "source-payments")
    attest(pvdm, "--out", "a.json")
    attestation = read_statement(parse_envelope((tmp_path / "a.json").read_bytes()).payload, SourceAttestation)
    assert (attestation.table, attestation.snapshot_id) == (SOURCE, SNAPSHOT)
