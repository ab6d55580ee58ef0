"""`pvdm attest`: signed statements of a source domain about its own snapshots."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from pvdm.cli.common.files import read_file, require_new, write_new
from pvdm.cli.common.options import (
    NonEmptyPath,
    Service,
    command_group,
    engine_option,
    json_option,
    pick_engine,
    service_options,
)
from pvdm.cli.common.passphrases import OPENING, open_key, passphrase_option
from pvdm.cli.common.screen import say_result
from pvdm.cli.common.times import now_micros, utc
from pvdm.cli.evidence.parquet import digest_files, parquet_option, schema_of, schema_option
from pvdm.digest import Construction, Engine, Mode, Plan
from pvdm.model.printable import counted, view_json
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import Schema
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.table import TableRef
from pvdm.trust.commitment import commit
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES, parse_envelope
from pvdm.trust.verify import sign_statement


@command_group("attest", short_help="Statements of a source about its rows.")
def attest() -> None:
    """Attest a source snapshot: its number of rows and a commitment to their digest, signed by the source.

    The Steward stores and logs the attestation; the gate does not use it yet. The source and the Steward know the
    digest's key, the producer does not.

    \b
    Examples:
      pvdm attest make --key source.pem --catalog payments --table raw.payments --table-uuid UUID \\
        --snapshot 1206533119840177310 --parquet part-0.parquet
      pvdm attest list --table-uuid UUID
    """


@attest.command("make", short_help="Make, sign and submit an attestation.")
@json_option
@service_options
@click.option(
    "--key", "key_file", type=NonEmptyPath(), required=True, metavar="FILE", help="The attestor's private key."
)
@passphrase_option(OPENING)
@click.option("--catalog", required=True, metavar="NAME", help="The source's catalog.")
@click.option("--table", required=True, metavar="NAME", help="The source table's name.")
@click.option("--table-uuid", required=True, metavar="UUID", help="The source table's UUID.")
@click.option("--snapshot", type=click.IntRange(0), required=True, metavar="ID", help="The attested snapshot.")
@parquet_option
@schema_option
@click.option("--identity", "id_columns", multiple=True, metavar="COLUMN", help="Attest these keys, not content.")
@click.option("--exclude", multiple=True, metavar="COLUMN=REASON", help="A column that content excludes, and why.")
@click.option(
    "--mode",
    type=click.Choice(["stored", "portable"]),
    default="stored",
    show_default=True,
    help="The contract's mode.",
)
@engine_option
@click.option("--out", type=NonEmptyPath(), metavar="FILE", help="Write the attestation here instead of submitting it.")
def attest_make(*, as_json: bool, service: Service, out: Path | None, engine_name: str, **asked: Any) -> None:
    """Digest the snapshot's rows under keys from the Steward, and sign the row count and the commitment.

    Needs an attestor's token, whose name is the attestor's. The keys stay in memory. The files must be exactly those of
    the snapshot.

    \b
    Examples:
      pvdm attest make --key source.pem --catalog payments --table raw.payments --table-uuid UUID \\
        --snapshot 1206533119840177310 --parquet part-0.parquet --parquet part-1.parquet
      pvdm attest make … --identity payment_id --out attestation.json
    """
    if out is not None:
        require_new(out)
    table = TableRef(asked["catalog"], asked["table_uuid"], asked["table"])
    signer = open_key(asked["key_file"], asked["where"])
    plan = _plan(schema_of(asked["schema_file"], asked["files"]), asked)
    said = _attest(table, asked["snapshot"], asked["files"], plan, service, pick_engine(engine_name))
    envelope = sign_statement(said, signer).to_bytes()
    facts: dict[str, object] = {"id": parse_envelope(envelope).payload_sha256, "attestation": said.to_json()}
    if out is not None:
        write_new(out, envelope)
        _show(said, {**facts, "out": str(out), "submitted": None}, f"written: {out}", as_json=as_json)
        return
    with service.connect() as client:
        view = client.submit_attestation(envelope)
    record = {**facts, "out": None, "submitted": view_json(view)}
    _show(said, record, f"accepted: log entry {view.log_index:,}", as_json=as_json)


def _plan(schema: Schema, asked: dict[str, Any]) -> Plan:
    if asked["id_columns"] and asked["exclude"]:
        raise click.UsageError("--exclude is for the content projection; --identity names its columns itself")
    exclude = {column: reason for column, _, reason in (text.partition("=") for text in asked["exclude"])}
    wanted = identity(schema, asked["id_columns"]) if asked["id_columns"] else content(schema, exclude=exclude)
    return Plan(schema, (wanted,), Mode(asked["mode"]), Construction.HMAC_SHA256)


def _attest(
    table: TableRef, snapshot_id: int, files: tuple[Path, ...], plan: Plan, service: Service, engine: Engine
) -> SourceAttestation:
    """The attestation of the snapshot's files. The client draws the nonce, so it may repeat the request."""
    name = plan.projections[0].name
    with service.connect() as client:
        attestor = client.identity().name
        challenge = client.challenge(
            nonce=secrets.token_hex(16),
            catalog=table.catalog,
            table_uuid=table.uuid,
            snapshot_id=snapshot_id,
            mode=plan.mode.value,
            fingerprints={name: plan.fingerprint(name).hex()},
        )
    keys = challenge.keys[name]
    seen = digest_files(files, plan, {name: keys.row_hash}, engine)[name]
    return SourceAttestation(
        attestor=attestor,
        table=table,
        snapshot_id=snapshot_id,
        row_count=seen.rows,
        projection=ProjectionName(name),
        schema_fingerprint=plan.fingerprint(name).hex(),
        mode=plan.mode.value,
        construction=plan.construction.value,
        epoch=challenge.epoch,
        nonce=challenge.nonce,
        commitment=commit(keys.commitment, seen),
        issued_at=now_micros(),
    )


def _show(attestation: SourceAttestation, record: dict[str, object], done: str, *, as_json: bool) -> None:
    said, rows = attestation, counted(attestation.row_count, "row")
    lines = [
        f"attested by {said.attestor}: {rows} of {said.table.name}, snapshot {said.snapshot_id}",
        f"  {said.projection.value} projection, {said.mode}, epoch {said.epoch}; the digest itself is not disclosed",
        f"  schema fingerprint {said.schema_fingerprint[:16]}…, attestation {record['id']}",
        f"  {done}",
    ]
    say_result(as_json, record, lines)


@attest.command("submit", short_help="Submit an attestation from a file.")
@json_option
@click.argument("file", type=NonEmptyPath(), metavar="FILE")
@service_options
def attest_submit(*, as_json: bool, file: Path, service: Service) -> None:
    """Submit the file that `make --out` wrote. The same file again changes nothing.

    \b
    Examples:
      pvdm attest submit attestation.json --url https://steward.example:8181
    """
    envelope = read_file(file, size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    with service.connect() as client:
        view = client.submit_attestation(envelope)
    rows = counted(view.row_count, "row")
    accepted = f"accepted: {rows} of snapshot {view.snapshot_id}, log entry {view.log_index:,}"
    say_result(as_json, {"attestation": view_json(view)}, [accepted, f"  attestation {view.statement_id}"])


@attest.command("list", short_help="List attestations.")
@json_option
@service_options
@click.option("--table-uuid", metavar="UUID", help="Of this source table only.")
@click.option("--snapshot", type=click.IntRange(0), metavar="ID", help="Of this snapshot only.")
def attest_list(*, as_json: bool, service: Service, table_uuid: str | None, snapshot: int | None) -> None:
    """List the attestations that the Steward has accepted.

    \b
    Examples:
      pvdm attest list --table-uuid UUID
      pvdm attest list --json | jq '.attestations[] | {attestor, snapshot_id, row_count}'
    """
    with service.connect() as client:
        views = client.attestations(table_uuid=table_uuid, snapshot_id=snapshot)
    lines = []
    for view in views:
        what = f"{view.table_uuid} snapshot {view.snapshot_id}, {view.projection.value}"
        when = f"{utc(view.issued_at)}  log entry {view.log_index:,}  {view.statement_id}"
        lines.append(f"{view.attestor}: {counted(view.row_count, 'row')} of {what}  {when}")
    say_result(as_json, {"attestations": [view_json(view) for view in views]}, lines or ["no attestation"])
