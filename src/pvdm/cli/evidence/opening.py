"""`pvdm proof open` and `recompute`: gets the keys of an ended attempt, and computes its digests again with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common import options
from pvdm.cli.common.commands import wants_json
from pvdm.cli.common.files import require_new, sha256_of
from pvdm.cli.common.screen import Line, notice, say_result
from pvdm.cli.common.trust_roots import SHA256_TYPE
from pvdm.cli.evidence.parquet import digest_files, parquet_option, read_schema, schema_option
from pvdm.cli.evidence.proof import proof
from pvdm.cli.evidence.statements import read_proofs
from pvdm.digest import Construction, Mode, Partial, Plan
from pvdm.errors import Code, InputError, VerificationError
from pvdm.model.canonical_json import dump, parse
from pvdm.model.fields import Fields, require_sha256
from pvdm.model.printable import counted
from pvdm.model.projection import Projection, ProjectionName
from pvdm.model.schema import Schema
from pvdm.model.secret import CommitmentKey, DigestKey, Secret
from pvdm.model.statements.proof import Commitments, Proof
from pvdm.trust.commitment import require_commitment_to
from pvdm.trust.keys import disk
from pvdm.trust.keys.context import AttemptContext

OPENED_FILE_MAX_BYTES: Final = 65_536
_FORMAT: Final = "pvdm-opened/v1"
_CAUTION: Final = (
    "with this file and the proof's commitments anyone can test guesses about the rows; with digests under these keys,"
    " anyone can construct colliding rows. Protect the file as you protect the data, and delete it after the audit"
)


@proof.command("open", short_help="Get an ended attempt's keys, for an audit.")
@click.argument("proof_id", type=SHA256_TYPE, metavar="PROOF_ID")
@options.service_options
@click.option("--reason", required=True, metavar="TEXT", help="Why; the Steward writes it to its step log.")
@options.out_option("The new file of mode 0600 for the keys.")
def proof_open(*, proof_id: str, service: options.Service, reason: str, out: Path) -> None:
    """Get the keys of an ended attempt from the Steward, so that its digests can be recomputed from the data.

    Needs an auditor's token. The keys are written to a file that only you can read, for `recompute`.

    \b
    Examples:
      pvdm proof open PROOF_ID --reason "yearly audit" --out attempt.keys
      pvdm proof recompute bundle.json --opened attempt.keys --parquet part-0.parquet
    """
    require_new(out)
    with service.connect() as client:
        opened = client.open_proof(proof_id, reason)
    content = dump({"format": _FORMAT, "proof_id": proof_id, **opened.model_dump(mode="json")})
    disk.write(out, Secret(content), mode=disk.PRIVATE_MODE, fresh=True)
    names, attempt_id = [name.value for name in opened.keys], opened.context.attempt_id
    document = {"proof_id": proof_id, "attempt_id": attempt_id, "projections": names, "out": out}
    say_result(document, [f"the keys of attempt {attempt_id} ({', '.join(names)}) are in {out}"])
    if not wants_json():
        notice(_CAUTION)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedKeys:
    """The opened keys of one attempt: for each projection the key of its row hashes, and the key of its commitments."""

    proof_id: str
    context: AttemptContext
    row_hash: Mapping[ProjectionName, DigestKey]
    commitment: Mapping[ProjectionName, CommitmentKey]


def read_opened(path: Path) -> OpenedKeys:
    """The keys in the file that `open` wrote. Raises if other users can read the file."""
    opened = _parse_opened(Secret(disk.read_own(path, size_max_bytes=OPENED_FILE_MAX_BYTES)))
    if opened is None:
        raise Code.INPUT_FILE_INVALID(f"{path} has no opened keys", reason="opened_file_invalid", got="another file")
    return opened


def _parse_opened(content: Secret) -> OpenedKeys | None:
    """The opened keys; None for another file. It raises no error: a frame of its traceback would hold keys."""
    try:
        value = parse(content.reveal(), size_max_bytes=OPENED_FILE_MAX_BYTES)
        fields = Fields(value, "the opened keys", ("format", "proof_id", "context", "keys"))
        if fields.text("format") != _FORMAT:
            return None
        require_sha256(fields.text("proof_id"), "the proof id")
        context = AttemptContext.parse(fields.value("context"))
        keys = Fields(fields.value("keys"), "the keys", [name.value for name in context.projections])
        row_hash, commitment = {}, {}
        for name in context.projections:
            pair = Fields(keys.value(name.value), "a pair", ("row_hash", "commitment"))
            row_hash[name] = DigestKey(bytes.fromhex(pair.text("row_hash")), epoch=context.epoch)
            commitment[name] = CommitmentKey(bytes.fromhex(pair.text("commitment")), epoch=context.epoch)
        return OpenedKeys(fields.text("proof_id"), context, row_hash, commitment)
    except (InputError, ValueError):
        return None


@proof.command("recompute", short_help="Recompute a proof's commitments from the data.")
@options.path_argument("file")
@options.path_option("--opened", "opened_file", required=True, help="What `open` wrote.")
@parquet_option
@options.choice_option(
    "--side",
    choices=["staged", "intent"],
    help_text="The data: the rows that were written, or those that were intended.",
)
@schema_option
@options.engine_option
def proof_recompute(
    *, file: Path, opened_file: Path, files: tuple[Path, ...], side: str, schema_file: Path | None, engine_name: str
) -> None:
    """Compute the digests of the data under the opened keys, and compare them with the proof's commitments.

    If they are equal, the data has the rows that the notary read, each as often. If not, the command ends with 3. It
    does not check the signature; `proof check` does.

    \b
    Examples:
      pvdm proof recompute bundle.json --opened attempt.keys --parquet part-0.parquet --parquet part-1.parquet
      pvdm proof recompute proof.json --opened attempt.keys --parquet source.parquet --side intent
    """
    opened = read_opened(opened_file)
    proved = _read_proof(file, opened)
    plan = _make_plan(proved, read_schema(schema_file, files))
    partials = digest_files(files, plan, dict(opened.row_hash), options.pick_engine(engine_name))
    committed = {each.projection: each for each in proved.notary.commitments}
    _require_equal(committed, opened, partials, proved, side)
    names = sorted(name.value for name in committed)
    rows = next(iter(partials.values())).rows
    lines: list[Line | str] = [
        (f"equal: {counted(rows, 'row')}; {' and '.join(names)} of the {side} rows as in the proof", "green")
    ]
    same_files = None
    if side == "staged":
        hashes, bound = tuple(sorted(sha256_of(path) for path in files)), proved.core.files
        same_files = hashes in (bound.published_hashes, bound.staged_hashes)
        same = "the files are the proof's, byte for byte"
        lines.append(same if same_files else "the files are not the proof's, but have the same rows")
    lines.append("hint: `pvdm proof check` shows who signed the proof")
    document = {
        "holds": True,
        "side": side,
        "projections": names,
        "rows": str(rows),
        "proof_id": opened.proof_id,
        "files_are_the_proofs": same_files,
    }
    say_result(document, lines)


def _read_proof(file: Path, opened: OpenedKeys) -> Proof:
    """The proof of the opened keys. Raises if they are bound to another attempt, epoch or mode."""
    _, proofs = read_proofs(file)
    proved = dict(proofs).get(opened.proof_id)
    if proved is None:
        raise Code.RECOMPUTE_REFUSED(reason="opened_keys_other", expected=f"a proof of {file}", got=opened.proof_id)
    attempt, context = proved.core.attempt, opened.context
    bound = (attempt.workload_id, attempt.chunk_id, attempt.attempt_id, attempt.nonce)
    if bound != (context.workload_id, context.chunk_id, context.attempt_id, context.nonce):
        expected = f"attempt {attempt.attempt_id}"
        raise Code.RECOMPUTE_REFUSED(reason="opened_keys_other", expected=expected, got=context.attempt_id)
    expected = f"epoch {proved.notary.epoch}, {proved.core.method.mode}"
    got = f"epoch {context.epoch}, {context.mode.value}"
    if expected != got:
        raise Code.RECOMPUTE_REFUSED(reason="opened_keys_other", expected=expected, got=got)
    return proved


def _make_plan(proved: Proof, schema: Schema) -> Plan:
    """The plan to digest rows of this schema by the proof's projections. Raises if a fingerprint is not the proof's."""
    method = proved.core.method
    projections = tuple(
        Projection(each.projection.name, tuple(sorted(each.projection.columns)), each.projection.excluded)
        for each in proved.core.projections
    )
    plan = Plan(schema, projections, Mode(method.mode), Construction(method.construction))
    for each in proved.core.projections:
        fingerprint = plan.fingerprint(each.projection.name).hex()
        if fingerprint != each.schema_fingerprint:
            raise Code.RECOMPUTE_REFUSED(
                f"the schema is not the one of the proof's {each.projection.name.value} projection",
                reason="schema_fingerprint_differs",
                expected=each.schema_fingerprint,
                got=fingerprint,
            )
    return plan


def _require_equal(
    committed: Mapping[ProjectionName, Commitments],
    opened: OpenedKeys,
    partials: Mapping[ProjectionName, Partial],
    proved: Proof,
    side: str,
) -> None:
    """Raise unless the digests match the proof's commitments of this side, `staged` or `intent`."""
    if not committed:
        raise Code.RECOMPUTE_REFUSED(reason="proof_not_committed", got="none")
    differing = []
    for name, commitments in committed.items():
        try:
            require_commitment_to(getattr(commitments, side), opened.commitment[name], partials[name])
        except VerificationError:
            differing.append(name.value)
    if differing:
        rows = proved.core.rows.staged if side == "staged" else proved.core.rows.intent
        raise Code.RECOMPUTED_DIFFERS(
            expected="the rows as committed" if rows is None else f"{rows} rows, as committed",
            got=f"{next(iter(partials.values())).rows} rows; {' and '.join(sorted(differing))} differs",
        )
