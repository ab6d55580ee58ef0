"""`pvdm proof open` and `pvdm proof recompute`: an auditor gets a closed attempt's keys and counts the rows again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pvdm.cli.common.files import PRIVATE_MODE, require_new, sha256_of
from pvdm.cli.common.options import PlaceType, engine_option, json_option, pick_engine
from pvdm.cli.common.screen import notice, say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.trust_roots import Sha256Type
from pvdm.cli.proof.files import read_proofs
from pvdm.cli.proof.parquet import digest_files, schema_of
from pvdm.cli.proof.proof import proof
from pvdm.digest import Construction, Mode, Partial, Plan
from pvdm.errors import Code, InputError, VerificationError
from pvdm.model.canonical_json import Value, dump, parse
from pvdm.model.fields import Fields, require_sha256
from pvdm.model.printable import counted
from pvdm.model.projection import Projection, ProjectionName
from pvdm.model.schema import Schema
from pvdm.model.secret import CommitmentKey, DigestKey, Secret
from pvdm.model.statements.proof import Commitments, Proof
from pvdm.trust.commitment import require_opens
from pvdm.trust.keys import disk
from pvdm.trust.keys.context import AttemptContext

if TYPE_CHECKING:
    from pvdm.client import OpenedProof

OPENED_FILE_MAX_BYTES: Final = 65_536
_FORMAT: Final = "pvdm-opened/v1"
_CAUTION: Final = (
    "whoever has this file and sees the commitments can test guesses about the rows, and who learns digests under its"
    " keys can craft rows that collide: keep it as you keep the data, and delete it after the audit"
)


@proof.command("open", short_help="Get a closed attempt's keys, for an audit.")
@json_option
@click.argument("proof_id", type=Sha256Type(), metavar="PROOF_ID")
@service_options
@click.option("--reason", required=True, metavar="TEXT", help="Why; the Steward notes it in its step log.")
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help="The new file of mode 0600 for the keys.")
def proof_open(*, as_json: bool, proof_id: str, service: Service, reason: str, out: Path) -> None:
    """Ask the Steward for the keys of a closed attempt, so that its digests can be recomputed from the data.

    Needs an auditor's token. The keys go to a file that only you may read, never to the terminal; `recompute` takes it.

    \b
    Examples:
      pvdm proof open PROOF_ID --reason "yearly audit" --out attempt.keys
      pvdm proof recompute bundle.json --opened attempt.keys --parquet part-0.parquet
    """
    require_new(out)
    with service.connect() as client:
        opened = client.open_proof(proof_id, reason)
    disk.write(out, _written(proof_id, opened), mode=PRIVATE_MODE, fresh=True)
    names = [name.value for name in opened.keys]
    if as_json:
        say_json({"proof_id": proof_id, "attempt_id": opened.context.attempt_id, "projections": names, "out": str(out)})
        return
    say(f"the keys of attempt {opened.context.attempt_id} ({', '.join(names)}) are in {out}")
    notice(_CAUTION)


def _written(proof_id: str, opened: OpenedProof) -> Secret:
    context = opened.context
    keys: dict[str, Value] = {
        name.value: {"row_hash": each.row_hash.reveal().hex(), "commitment": each.commitment.reveal().hex()}
        for name, each in opened.keys.items()
    }
    return Secret(
        dump(
            {
                "format": _FORMAT,
                "proof_id": proof_id,
                "context": {
                    "epoch": str(context.epoch),
                    "workload_id": context.workload_id,
                    "chunk_id": context.chunk_id,
                    "attempt_id": context.attempt_id,
                    "nonce": context.nonce,
                    "mode": context.mode,
                    "fingerprints": {name.value: fingerprint for name, fingerprint in context.fingerprints.items()},
                    "intent_root": context.intent_root,
                    "staged_root": context.staged_root,
                },
                "keys": keys,
            }
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The keys of one attempt, from their file."""

    proof_id: str
    context: AttemptContext
    row_hash: Mapping[ProjectionName, DigestKey]
    commitment: Mapping[ProjectionName, CommitmentKey]


def read_opened(path: Path) -> Opened:
    """The file that `open` wrote; nobody else may be able to read it."""
    opened = _try_read(Secret(disk.read_private(path, size_max_bytes=OPENED_FILE_MAX_BYTES)))
    if opened is None:
        raise Code.OPENED_FILE_INVALID(f"{path} holds no opened keys", got="other")
    return opened


def _try_read(content: Secret) -> Opened | None:
    # No error leaves this function: its frames hold keys.
    try:
        value = parse(content.reveal(), size_max_bytes=OPENED_FILE_MAX_BYTES)
        fields = Fields(value, "the opened keys", ("format", "proof_id", "context", "keys"))
        if fields.text("format") != _FORMAT:
            return None
        require_sha256(fields.text("proof_id"), "the proof id")
        context = AttemptContext.from_json(fields.value("context"))
        keys = Fields(fields.value("keys"), "the keys", [name.value for name in context.projections])
        row_hash, commitment = {}, {}
        for name in context.projections:
            pair = Fields(keys.value(name.value), "a pair", ("row_hash", "commitment"))
            row_hash[name] = DigestKey(bytes.fromhex(pair.text("row_hash")), epoch=context.epoch)
            commitment[name] = CommitmentKey(bytes.fromhex(pair.text("commitment")), epoch=context.epoch)
        return Opened(fields.text("proof_id"), context, row_hash, commitment)
    except (InputError, ValueError):
        return None


@proof.command("recompute", short_help="Recompute a proof's commitments from the data.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@click.option("--opened", "opened_file", type=PlaceType(), required=True, metavar="FILE", help="What `open` wrote.")
@click.option(
    "--parquet",
    "files",
    type=PlaceType(),
    multiple=True,
    required=True,
    metavar="FILE",
    help="A file; may be repeated.",
)
@click.option(
    "--side",
    type=click.Choice(["staged", "intent"]),
    default="staged",
    show_default=True,
    help="What the data is: the rows that were written, or those that were intended.",
)
@click.option(
    "--schema",
    "schema_file",
    type=PlaceType(),
    metavar="FILE",
    help="The table's schema: Iceberg's JSON of it, or the table's metadata file.",
)
@engine_option
def proof_recompute(
    *,
    as_json: bool,
    file: Path,
    opened_file: Path,
    files: tuple[Path, ...],
    side: str,
    schema_file: Path | None,
    engine_name: str,
) -> None:
    """Digest the data under the opened keys and compare with what the proof committed to.

    Equal: these are the rows that the notary saw, each as often. Differs: ends with 3. The signature is not looked at
    here, that is `proof check`.

    \b
    Examples:
      pvdm proof recompute bundle.json --opened attempt.keys --parquet part-0.parquet --parquet part-1.parquet
      pvdm proof recompute proof.json --opened attempt.keys --parquet source.parquet --side intent
    """
    opened = read_opened(opened_file)
    found = _proof_of(file, opened)
    plan = _plan(found, schema_of(schema_file, files))
    partials = digest_files(files, plan, dict(opened.row_hash), pick_engine(engine_name))
    committed = {each.projection: each for each in found.notary.commitments}
    _require_equal(committed, opened, partials, found, side)
    same_files = _same_files(found, files) if side == "staged" else None
    names = sorted(name.value for name in committed)
    rows = next(iter(partials.values())).rows
    if as_json:
        facts: dict[str, object] = {"holds": True, "side": side, "projections": names, "rows": str(rows)}
        say_json({**facts, "proof_id": opened.proof_id, "files_are_the_proofs": same_files})
        return
    say(
        f"equal: {counted(rows, 'row')}, {' and '.join(names)} as the proof committed to on the {side} side",
        style="green",
    )
    if same_files is not None:
        say("the files are byte for byte the proof's" if same_files else "other files than the proof's, the same rows")
    say("hint: `pvdm proof check` tells whose word the proof is")


def _proof_of(file: Path, opened: Opened) -> Proof:
    """The proof that the keys belong to; the context is compared, since the Steward wrote both."""
    _, proofs = read_proofs(file)
    found = dict(proofs).get(opened.proof_id)
    if found is None:
        raise _other(f"a proof of {file}", opened.proof_id)
    core, context = found.core, opened.context
    bound = (core.attempt.workload_id, core.attempt.chunk_id, core.attempt.attempt_id, core.attempt.nonce)
    if bound != (context.workload_id, context.chunk_id, context.attempt_id, context.nonce):
        raise _other(f"attempt {core.attempt.attempt_id}", context.attempt_id)
    if (found.notary.epoch, core.method.mode) != (context.epoch, context.mode.value):
        raise _other(f"epoch {found.notary.epoch}, {core.method.mode}", f"epoch {context.epoch}, {context.mode.value}")
    return found


def _other(expected: str, got: str) -> InputError:
    return InputError(Code.OPENED_KEYS_OTHER, "the keys are not those of this proof", expected=expected, got=got)


def _plan(found: Proof, schema: Schema) -> Plan:
    """The proof's own projections over the table's schema, whose fingerprints must be the proof's."""
    method = found.core.method
    projections = tuple(_projection(proved.projection) for proved in found.core.projections)
    plan = Plan(schema, projections, Mode(method.mode), Construction(method.construction))
    for proved in found.core.projections:
        fingerprint = plan.fingerprint(proved.projection.name).hex()
        if fingerprint != proved.schema_fingerprint:
            raise Code.SCHEMA_FINGERPRINT_DIFFERS(
                f"the schema is not the one of the proof's {proved.projection.name.value} projection",
                expected=proved.schema_fingerprint,
                got=fingerprint,
            )
    return plan


def _projection(proved: Projection) -> Projection:
    return Projection(proved.name, tuple(sorted(proved.columns)), proved.excluded)


def _require_equal(
    committed: Mapping[ProjectionName, Commitments],
    opened: Opened,
    partials: Mapping[ProjectionName, Partial],
    found: Proof,
    side: str,
) -> None:
    if not committed:
        raise Code.PROOF_NOT_COMMITTED(got="none")
    differing = []
    for name, each in committed.items():
        try:
            require_opens(getattr(each, side), opened.commitment[name], partials[name])
        except VerificationError:
            differing.append(name.value)
    if differing:
        rows = found.core.rows.staged if side == "staged" else found.core.rows.intent
        raise Code.RECOMPUTED_DIFFERS(
            expected="the rows as committed" if rows is None else f"{rows} rows, as committed",
            got=f"{next(iter(partials.values())).rows} rows; {' and '.join(sorted(differing))} differs",
        )


def _same_files(found: Proof, files: tuple[Path, ...]) -> bool:
    bound = found.core.files
    return tuple(sorted(sha256_of(path) for path in files)) in (bound.published_hashes, bound.staged_hashes)
