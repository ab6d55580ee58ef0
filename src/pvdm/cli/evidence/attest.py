"""`pvdm attest`: signed statements of a source domain about its own snapshots."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from pvdm.cli.common import options
from pvdm.cli.common.commands import command_group
from pvdm.cli.common.files import read_file, require_new, write_new
from pvdm.cli.common.passphrases import open_key, open_passphrase_option
from pvdm.cli.common.screen import say_result
from pvdm.cli.common.times import now_micros, utc
from pvdm.cli.evidence.parquet import digest_files, parquet_option, read_schema, schema_option
from pvdm.digest import Construction, Engine, Mode, Plan
from pvdm.model.printable import counted, view_json
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import Schema
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.table import TableRef
from pvdm.trust.commitment import commit
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES, parse_envelope
from pvdm.trust.verify import sign_statement


@command_group("attest")
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
@options.service_options
@options.path_option("--key", "key_file", required=True, help="The attestor's private key.")
@open_passphrase_option
@click.option("--catalog", required=True, metavar="NAME", help="The source's catalog.")
@click.option("--table", required=True, metavar="NAME", help="The source table's name.")
@click.option("--table-uuid", required=True, metavar="UUID", help="The source table's UUID.")
@click.option("--snapshot", type=click.IntRange(0), required=True, metavar="ID", help="The attested snapshot.")
@parquet_option
@schema_option
@click.option(
    "--identity", "id_columns", multiple=True, metavar="COLUMN", help="A key column: attest identity, not content."
)
@click.option("--exclude", multiple=True, metavar="COLUMN=REASON", help="A column that content excludes, and why.")
@options.choice_option("--mode", choices=["stored", "portable"], help_text="The contract's mode.")
@options.engine_option
@options.path_option("--out", help="Write the attestation here instead of submitting it.")
def attest_make(*, service: options.Service, out: Path | None, engine_name: str, **values: Any) -> None:
    """Digest the snapshot's rows under keys from the Steward, and sign the row count and the commitment.

    Needs an attestor's token, whose name is the attestor's identity in the trust root. The keys stay in memory. The
    files must be exactly those of the snapshot.

    \b
    Examples:
      pvdm attest make --key source.pem --catalog payments --table raw.payments --table-uuid UUID \\
        --snapshot 1206533119840177310 --parquet part-0.parquet --parquet part-1.parquet
      pvdm attest make … --identity payment_id --out attestation.json
    """
    if out is not None:
        require_new(out)
    table = TableRef(values["catalog"], values["table_uuid"], values["table"])
    signer = open_key(values["key_file"], values["passphrase_source"])
    plan = _make_plan(read_schema(values["schema_file"], values["files"]), values)
    engine = options.pick_engine(engine_name)
    attestation = _make_attestation(table, values["snapshot"], values["files"], plan, service, engine)
    envelope = sign_statement(attestation, signer).to_bytes()
    submitted: dict[str, object] | None = None
    if out is not None:
        write_new(out, envelope)
        result = f"written: {out}"
    else:
        with service.connect() as client:
            view = client.submit_attestation(envelope)
        submitted, result = view_json(view), f"accepted: log entry {view.log_index:,}"
    attestation_id, rows = parse_envelope(envelope).payload_sha256, counted(attestation.row_count, "row")
    projection = f"{attestation.projection.value} projection, {attestation.mode}, epoch {attestation.epoch}"
    document = {"id": attestation_id, "attestation": attestation.to_json(), "out": out, "submitted": submitted}
    lines = [
        f"attested by {attestation.attestor}: {rows} of {table.name}, snapshot {attestation.snapshot_id}",
        f"  {projection}; the digest itself is not disclosed",
        f"  schema fingerprint {attestation.schema_fingerprint[:16]}…, attestation {attestation_id}",
        f"  {result}",
    ]
    say_result(document, lines)


def _make_plan(schema: Schema, values: dict[str, Any]) -> Plan:
    """What is digested: the columns of --identity if given, else the content projection without excluded columns."""
    id_columns = values["id_columns"]
    if id_columns and values["exclude"]:
        raise click.UsageError("--exclude is for the content projection; --identity names its columns itself")
    pairs = [text.partition("=") for text in values["exclude"]]
    exclude = {column: reason for column, _, reason in pairs}
    projection = identity(schema, id_columns) if id_columns else content(schema, exclude=exclude)
    return Plan(schema, (projection,), Mode(values["mode"]), Construction.HMAC_SHA256)


def _make_attestation(
    table: TableRef, snapshot_id: int, files: tuple[Path, ...], plan: Plan, service: options.Service, engine: Engine
) -> SourceAttestation:
    """The attestation of the snapshot's files, digested under keys from the Steward."""
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
    digest = digest_files(files, plan, {name: keys.row_hash}, engine)[name]
    return SourceAttestation(
        attestor=attestor,
        table=table,
        snapshot_id=snapshot_id,
        row_count=digest.rows,
        projection=ProjectionName(name),
        schema_fingerprint=plan.fingerprint(name).hex(),
        mode=plan.mode.value,
        construction=plan.construction.value,
        epoch=challenge.epoch,
        nonce=challenge.nonce,
        commitment=commit(keys.commitment, digest),
        issued_at=now_micros(),
    )


@attest.command("submit", short_help="Submit an attestation from a file.")
@options.path_argument("file")
@options.service_options
def attest_submit(*, file: Path, service: options.Service) -> None:
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
    say_result({"attestation": view_json(view)}, [accepted, f"  attestation {view.statement_id}"])


@attest.command("list", short_help="List attestations.")
@options.service_options
@click.option("--table-uuid", metavar="UUID", help="Of this source table only.")
@click.option("--snapshot", type=click.IntRange(0), metavar="ID", help="Of this snapshot only.")
def attest_list(*, service: options.Service, table_uuid: str | None, snapshot: int | None) -> None:
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
    say_result({"attestations": [view_json(view) for view in views]}, lines or ["no attestation"])
