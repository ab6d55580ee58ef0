"""`pvdm proof`: lists, fetches, shows and checks proofs and other signed statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.files import read_file, write_new
from pvdm.cli.common.options import Service, number_option, out_option, path_argument, service_options
from pvdm.cli.common.screen import Line, say_list, say_result
from pvdm.cli.common.times import utc
from pvdm.cli.common.trust_roots import SHA256_TYPE, TrustBasis, TrustOptions, trust_options
from pvdm.cli.evidence import statements
from pvdm.errors import Code, VerificationError
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.proof import Proof
from pvdm.trust.bundle import BUNDLE_SIZE_MAX_BYTES, CheckedBundle, check_bundle, log_checker, resolve_log_origin
from pvdm.trust.verify import verify_statement

# These texts, and `_WAIVED`, `_NOT_IN_LOG` and `_OVERRIDE_STATE`, follow the words "not proved:".
UNPINNED: Final = "that the trust root is the right one: it was not verified (no --root-sha256)"
_UNCHECKED: Final = "nothing was checked: neither signature nor log. "
_NEXT_STEP: Final = {
    "bundle": "`pvdm proof check` checks both, with a trust root",
    "proof": "`pvdm proof get` fetches its bundle, which `pvdm proof check` checks with a trust root",
    "other": "`pvdm proof check` checks who signed it, with a trust root; not its place in the log",
}
_OLD_ROOT: Final = "the trust root may be older than the key: fetch the newest (`pvdm keys root fetch`)"
_NOT_VALID: Final = "the {kind} does not hold: rely on nothing that it says"
_WAIVED: Final = (
    "whether an operator overrode this FAIL: that is a break-glass statement of its own (`pvdm break-glass list`)"
)
_NOT_IN_LOG: Final = (
    "that it is in the log, and since when: only signature and signer were checked (`pvdm log prove --envelope`)"
)
_OVERRIDE_STATE: Final = "that the override is still valid, or was used: `pvdm break-glass list` shows it"
_LISTED_ROWS: Final = 1_000
_DEFAULT_ROWS: Final = 100


@command_group("proof")
def proof() -> None:
    """Show proofs as text, check them offline, and open their keys for an audit.

    \b
    Examples:
      pvdm proof show proof.json
      pvdm proof check bundle.json --trust-root roots.json --root-sha256 HEX
    """


@proof.command("show", short_help="Show a signed statement as text.")
@path_argument("file")
def proof_show(*, file: Path) -> None:
    """Show an envelope or a bundle as text: verdict, table, rows, files, signer and the notary's isolation.

    It checks nothing: anyone can write such a file. `check` verifies it.

    \b
    Examples:
      pvdm proof show proof.json
      pvdm proof show bundle.json --json | jq '.statements[].predicate.core.verdict'
    """
    data, found = statements.read_statement_file(file)
    kind = "bundle" if statements.is_bundle(data) else found[0].kind
    hint = _UNCHECKED + _NEXT_STEP.get(kind, _NEXT_STEP["other"])
    document = {"checked": False, "statements": [_to_json(each) for each in found], "hint": hint}
    lines = (line for each in found for line in (*statements.statement_lines(each), ("", None)))
    say_result(document, [*lines, (hint, "yellow")])


def _to_json(statement: statements.Statement) -> dict[str, object]:
    return {
        "kind": statement.kind,
        "id": statement.statement_id,
        "key_id": statement.envelope.signature.key_id,
        "logged_at": statement.logged_at,
        "predicate": statement.predicate.to_json(),
    }


@proof.command("check", short_help="Check a bundle, or another signed statement, offline.")
@path_argument("file")
@trust_options(required=True)
@click.option(
    "--threshold", type=click.IntRange(1), metavar="K", help="Notaries that must agree.  [default: the trust root's]"
)
def proof_check(*, file: Path, trust: TrustOptions, threshold: int | None) -> None:
    """Check a bundle offline, and list what was proved and what was not. A bundle has proofs, each with its log proof:
    index, hashes and checkpoint.

    Ends with 0 if everything holds, also if the verdict is FAIL: a genuine FAIL is a valid proof of wrong rows. Ends
    with 3 if something does not hold.

    Of a receipt, override, attestation or another single envelope only signature and signer are checked, not its place
    in the log.

    \b
    Examples:
      pvdm proof check bundle.json --trust-root roots.json --root-sha256 HEX
      pvdm proof check bundle.json --trust-root roots.json --root-sha256 HEX --seen ~/.pvdm-seen
      pvdm proof check bundle.json --trust-root roots.json --at 2026-11-14T10:00:00Z --json
      pvdm proof check override.json --trust-root roots.json --root-sha256 HEX
    """
    data = read_file(file, size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    single = None if statements.is_bundle(data) else _read_single(file)
    if single is not None and (threshold is not None or trust.origin is not None):
        raise click.UsageError("--threshold and --origin are for bundles")
    basis = trust.resolve()
    try:
        if single is not None:
            _check_single(single, data, basis)
            return
        log = log_checker(basis.root, origin=resolve_log_origin(basis.root, trust.origin))
        needed = basis.root.thresholds.notary if threshold is None else threshold
        checked = check_bundle(data, basis.root, log, threshold=needed, now=basis.at)
    except VerificationError as error:
        kind = "proof" if single is None else "statement"
        # After a rotation an old trust root lacks the new keys: that is not a forgery.
        hint = _OLD_ROOT if error.code == Code.KEY_UNKNOWN else _NOT_VALID.format(kind=kind)
        error.hint = error.hint or hint
        raise
    document = _checked_json(checked, basis, origin=log.origin, threshold=needed)
    say_result(document, _checked_lines(checked, basis, origin=log.origin, threshold=needed))


def _read_single(file: Path) -> statements.Statement:
    """A single statement. Raises for a proof, whose check needs its log entry."""
    _, (found,) = statements.read_statement_file(file)
    if isinstance(found.predicate, Proof):
        raise Code.INPUT_FILE_INVALID(f"{file} is a proof alone", reason="bundle_expected", got="one envelope")
    return found


def _check_single(statement: statements.Statement, data: bytes, basis: TrustBasis) -> None:
    """Check signature, key, role and time, and show the signer and what was not checked."""
    verified = verify_statement(data, basis.root, type(statement.predicate), now=basis.at)
    roles = ", ".join(role.value for role in verified.key.roles)
    proved = (
        f"{verified.key.identity} signed this {statement.kind} statement;"
        f" trust root {basis.root.version} names the key as {roles}"
    )
    override_state = [_OVERRIDE_STATE] if isinstance(statement.predicate, BreakGlass) else []
    not_proved = [*_unpinned(basis), _NOT_IN_LOG, *override_state]
    document = {
        "holds": True,
        "kind": statement.kind,
        "id": verified.statement_id,
        "signer": verified.key.identity,
        "key_id": verified.key.key_id,
        "trust_root": basis.to_json(),
        "judged_at": basis.at,
        "proved": [proved],
        "not_proved": not_proved,
    }
    lines = (*statements.statement_lines(statement), ("", None), ("the signature holds", "bold green"))
    say_result(document, [*lines, *proved_lines([proved], not_proved)])


def _unpinned(basis: TrustBasis) -> list[str]:
    return [] if basis.pin is not None else [UNPINNED]


def _not_proved(checked: CheckedBundle, basis: TrustBasis) -> list[str]:
    waived = [] if checked.proof.core.verdict.passed else [_WAIVED]
    return [*_unpinned(basis), *checked.not_proved, *waived]


def _checked_json(checked: CheckedBundle, basis: TrustBasis, *, origin: str, threshold: int) -> dict[str, object]:
    return {
        "holds": True,
        "verdict": checked.proof.core.verdict.to_json(),
        "proof_ids": list(checked.proof.proof_ids),
        "notaries": [statement.key.identity for statement in checked.proof.statements],
        "threshold": threshold,
        "logged_at": list(checked.logged_at),
        "origin": origin,
        "trust_root": basis.to_json(),
        "judged_at": basis.at,
        "proved": list(checked.proved),
        "not_proved": _not_proved(checked, basis),
    }


def _checked_lines(checked: CheckedBundle, basis: TrustBasis, *, origin: str, threshold: int) -> Iterator[Line]:
    verdict = checked.proof.core.verdict
    line, style = statements.verdict_line(verdict)
    yield "the proof holds", "bold green"
    yield f"its verdict: {line}", style
    if not verdict.passed:
        yield "the proof is genuine, but the rows are not the intended ones: it allows no publication", "red"
    yield "", None
    times = ", ".join(utc(time) for time in checked.logged_at)
    logged = f"logged {times} in {origin}; keys were judged as of then"
    agreed = f"at least {threshold} of the notaries that trust root {basis.root.version} names agree"
    yield from proved_lines([*checked.proved, logged, agreed], _not_proved(checked, basis))


def proved_lines(proved: Iterable[str], not_proved: Iterable[str]) -> Iterator[Line]:
    """What a check proved, and what it did not."""
    yield "proved:", "bold"
    yield from ((f"  - {sentence}", None) for sentence in proved)
    yield "not proved:", "bold"
    for sentence in not_proved:
        yield f"  - {sentence}", "bold yellow" if sentence == UNPINNED else None


@proof.command("list", short_help="List a Steward's proofs.")
@service_options
@click.option("--workload", metavar="ID", help="Of this workload only.")
@click.option("--attempt", metavar="ID", help="Of this attempt only.")
@click.option("--after", type=click.IntRange(0), metavar="INDEX", help="Continue after this entry of the log.")
@number_option("--rows", _DEFAULT_ROWS, least=1, most=_LISTED_ROWS, help_text="Proofs to show.")
def proof_list(*, service: Service, workload: str | None, attempt: str | None, after: int | None, rows: int) -> None:
    """List the proofs of your domain, PASS and FAIL; a FAIL that was overridden is marked.

    \b
    Examples:
      pvdm proof list --workload orders-2026-11-14
      pvdm proof list --json | jq '.proofs[] | select(.overridden)'
    """
    with service.connect() as client:
        views = client.proofs(workload_id=workload, attempt_id=attempt, after=after, limit=rows)
    say_list("proofs", views, lambda view: [statements.proof_view_line(view)], "no proof")


@proof.command("get", short_help="Get one proof as a bundle.")
@click.argument("proof_id", type=SHA256_TYPE, metavar="PROOF_ID")
@service_options
@click.option("--envelope", is_flag=True, help="The signed envelope alone, without its log proof.")
@out_option()
def proof_get(*, proof_id: str, service: Service, envelope: bool, out: Path) -> None:
    """Get a proof with its log proof (index, hashes and checkpoint). With a trust root, `proof check` can check it.

    \b
    Examples:
      pvdm proof get PROOF_ID --out bundle.json
      pvdm proof check bundle.json --trust-root roots.json --root-sha256 HEX
    """
    with service.connect() as client:
        data = client.proof_envelope(proof_id) if envelope else client.proof_bundle(proof_id)
    write_new(out, data)
    document = {"proof_id": proof_id, "bytes": len(data), "out": out}
    say_result(document, [f"{'envelope' if envelope else 'bundle'}: {out}; nothing was checked yet"])
