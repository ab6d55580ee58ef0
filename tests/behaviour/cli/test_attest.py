"""`pvdm attest`: the source's own word, under keys that it shares with the Steward and writes nowhere."""

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
from tests.behaviour.cli.served import Door
from tests.behaviour.cli.support import Ran, Run
from tools.proof_kit import SOURCE

ROWS = pa.table({"payment_id": pa.array([1, 2, 3], pa.int64()), "note": pa.array(["a", None, "c"], pa.string())})
SNAPSHOT = 1_206_533_119_840_177_310


@pytest.fixture(autouse=True)
def files(tmp_path: Path, example_key: Callable[[str], Path]) -> None:
    pq.write_table(ROWS.slice(0, 1), tmp_path / "0.parquet")
    pq.write_table(ROWS.slice(1), tmp_path / "1.parquet")
    example_key("source-payments")
    example_key("source-other")


def attest(pvdm: Run, *more: object, key: str = "source-payments") -> Ran:
    table = ("--catalog", SOURCE.catalog, "--table", SOURCE.name, "--table-uuid", SOURCE.uuid, "--snapshot", SNAPSHOT)
    parquet = ("--parquet", "0.parquet", "--parquet", "1.parquet")
    return pvdm("attest", "make", "--key", f"{key}.pem", *table, *parquet, "--engine", "reference", *more)


def require_stewards_own_count(door: Door, said: SourceAttestation, plan: Plan) -> None:
    """The Steward, which holds the root, reads the same rows and finds what was attested."""
    name = said.projection
    context = SourceContext(
        said.epoch,
        said.table.catalog,
        said.table.uuid,
        said.snapshot_id,
        said.attestor,
        said.nonce,
        plan.mode,
        ((name, plan.fingerprint(name)),),
    )
    keys = door.stand.notary.keys
    seen = digest(ROWS, plan, {name: keys.row_hash_key(context, name)})[name]
    assert said.row_count == seen.rows
    require_commitment_to(said.commitment, keys.commitment_key(context, name), seen)


def test_an_attestation_is_what_the_steward_finds_itself(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    made = attest(pvdm, "--json")
    assert made.code == 0, made.out
    said = SourceAttestation.from_json(made.json["attestation"])
    assert (said.attestor, said.row_count, said.projection) == ("source-payments", 3, ProjectionName.CONTENT)
    schema = schema_from_arrow(ROWS.schema)
    require_stewards_own_count(door, said, Plan(schema, (content(schema),)))


def test_key_columns_alone_can_be_attested(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    said = SourceAttestation.from_json(attest(pvdm, "--identity", "payment_id", "--json").json["attestation"])
    schema = schema_from_arrow(ROWS.schema)
    require_stewards_own_count(door, said, Plan(schema, (identity(schema, ["payment_id"]),)))


def test_a_column_is_left_out_with_a_reason_only(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    said = SourceAttestation.from_json(attest(pvdm, "--exclude", "note=free text", "--json").json["attestation"])
    schema = schema_from_arrow(ROWS.schema)
    require_stewards_own_count(door, said, Plan(schema, (content(schema, exclude={"note": "free text"}),)))
    assert attest(pvdm, "--exclude", "note", "--json").error == "exclusion_reason_missing"


def test_the_tables_schema_is_taken_where_it_is_given(pvdm: Run, door: Door, tmp_path: Path) -> None:
    schema = schema_from_arrow(
        pa.schema([pa.field("payment_id", pa.int64(), nullable=False), ROWS.schema.field("note")])
    )
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_json(), indent=1))
    door.come_as(Role.ATTESTOR, "source-payments")
    said = SourceAttestation.from_json(attest(pvdm, "--schema", "schema.json", "--json").json["attestation"])
    require_stewards_own_count(door, said, Plan(schema, (content(schema),)))


def test_an_attestation_can_be_written_and_handed_in_later(pvdm: Run, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    assert attest(pvdm, "--out", "a.json").code == 0
    assert pvdm("attest", "list", "--json").json["attestations"] == []
    first, again = (pvdm("attest", "submit", "a.json", "--json") for _ in range(2))
    assert first.code == again.code == 0
    assert first.json == again.json
    listed = pvdm("attest", "list", "--table-uuid", SOURCE.uuid, "--snapshot", SNAPSHOT, "--json").json["attestations"]
    assert [each["row_count"] for each in listed] == ["3"]
    assert parse_envelope((tmp_path / "a.json").read_bytes()).payload_sha256 == listed[0]["statement_id"]


def test_an_attestation_is_shown_with_its_id_and_its_schemas_fingerprint(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    shown = attest(pvdm, "--out", "a.json").out
    made = parse_envelope(Path("a.json").read_bytes())
    fingerprint = read_statement(made.payload, SourceAttestation).schema_fingerprint
    assert f"schema fingerprint {fingerprint[:16]}…, attestation {made.payload_sha256}" in shown
    assert made.payload_sha256 in pvdm("attest", "submit", "a.json").out
    assert made.payload_sha256 in pvdm("attest", "list").out


def test_the_list_is_readable(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    assert pvdm("attest", "list").out == "no attestation\n"
    attest(pvdm)
    assert pvdm("attest", "list").out.startswith("source-payments: 3 rows of ")


def test_another_attestors_key_is_refused(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    refused = attest(pvdm, "--json", key="source-other")
    assert (refused.code, refused.error) == (3, "signer_name_wrong")


def test_who_is_not_registered_gets_no_keys(pvdm: Run, door: Door) -> None:
    door.come_as(Role.ATTESTOR, "source-nobody")
    assert attest(pvdm, "--json").code == 5


def test_a_producer_gets_no_keys_of_a_source(pvdm: Run, door: Door) -> None:
    door.come_as(Role.PRODUCER, "spark", "sales")
    assert attest(pvdm, "--json").code == 5


def test_no_key_of_the_challenge_is_printed_or_written(
    pvdm: Run, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    real = digest_files

    def watched(files: Any, plan: Any, keys: Any, engine: Any) -> Any:
        given.extend(key.reveal() for key in keys.values())
        return real(files, plan, keys, engine)

    monkeypatch.setattr(attesting, "digest_files", watched)
    door.come_as(Role.ATTESTOR, "source-payments")
    shown = attest(pvdm, "--out", "a.json")
    assert len(given) == 1
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for form in (given[0], given[0].hex().encode()):
        assert form not in written
        assert form not in (shown.out + shown.err).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("content_of", [b"no parquet", b""], ids=["text", "empty"])
def test_a_file_that_is_no_parquet_is_bad_input(pvdm: Run, door: Door, tmp_path: Path, content_of: bytes) -> None:
    (tmp_path / "1.parquet").write_bytes(content_of)
    door.come_as(Role.ATTESTOR, "source-payments")
    refused = attest(pvdm, "--json")
    assert (refused.code, refused.error) == (2, "parquet_unreadable")


def test_a_schema_file_that_is_none_is_bad_input(pvdm: Run, door: Door, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{")
    refused = attest(pvdm, "--schema", "schema.json", "--json")
    assert (refused.code, refused.error) == (2, "schema_file_invalid")


def test_exclusions_have_no_place_beside_key_columns(pvdm: Run, door: Door) -> None:
    refused = attest(pvdm, "--identity", "payment_id", "--exclude", "note=x", "--json")
    assert (refused.code, refused.error) == (2, "usage")


def test_the_written_file_is_a_signed_attestation(pvdm: Run, door: Door, tmp_path: Path) -> None:
    door.come_as(Role.ATTESTOR, "source-payments")
    attest(pvdm, "--out", "a.json")
    said = read_statement(parse_envelope((tmp_path / "a.json").read_bytes()).payload, SourceAttestation)
    assert (said.table, said.snapshot_id) == (SOURCE, SNAPSHOT)
