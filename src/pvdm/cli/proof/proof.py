"""`pvdm proof`: shows a signed statement in words, and checks a bundle without asking anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.files import read_file
from pvdm.cli.common.options import PlaceType, json_option, require_command
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.times import utc
from pvdm.cli.common.trust_roots import Judge, at_option, judge_by, origin_option, pin_option, root_option, seen_option
from pvdm.cli.proof.files import Statement, is_bundle, read_statement_file
from pvdm.cli.proof.single_statement import UNPINNED, check_single, hint_of
from pvdm.cli.proof.text import statement_lines, verdict_line
from pvdm.errors import Code, VerificationError
from pvdm.model.statements.proof import Proof
from pvdm.trust.bundle import BUNDLE_SIZE_MAX_BYTES, CheckedBundle, check_bundle, log_checker, origin_of

UNCHECKED: Final = "nothing was checked: neither signature nor log. "
NEXT: Final = {
    "bundle": "`pvdm proof check` does, with a trust root",
    "proof": "`pvdm proof get` fetches its bundle, which `pvdm proof check` checks with a trust root",
    "other": "`pvdm proof check` checks whose signature it is, with a trust root; not its place in the log",
}
REFUSED: Final = "the proof does not hold: rely on nothing that it says"
WAIVED: Final = "whether an operator broke the glass for this FAIL is a statement of its own (`pvdm break-glass list`)"


@click.group("proof", short_help="Show, check and open proofs.", invoke_without_command=True)
@click.pass_context
def proof(context: click.Context) -> None:
    """Show proofs in words, check them offline, and have their keys opened for an audit.

    \b
    Examples:
      pvdm proof show proof.json
      pvdm proof check bundle.json --trust-root roots.json --root-sha256 HEX
    """
    require_command(context)


@proof.command("show", short_help="Show a signed statement in words.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
def proof_show(*, as_json: bool, file: Path) -> None:
    """Show an envelope or a bundle in words: verdict, table, rows, files, who signed and how far apart the notary was.

    Shows, and checks nothing: anybody can write such a file. `check` judges it.

    \b
    Examples:
      pvdm proof show proof.json
      pvdm proof show bundle.json --json | jq '.statements[].predicate.core.verdict'
    """
    data, statements = read_statement_file(file)
    hint = UNCHECKED + NEXT["bundle" if is_bundle(data) else "proof" if statements[0].kind == "proof" else "other"]
    if as_json:
        say_json({"checked": False, "statements": [_to_json(each) for each in statements], "hint": hint})
        return
    for each in statements:
        for line, style in statement_lines(each):
            say(line, style=style)
        say()
    say(hint, style="yellow")


def _to_json(statement: Statement) -> dict[str, object]:
    return {
        "kind": statement.kind,
        "id": statement.statement_id,
        "key_id": statement.envelope.signature.key_id,
        "logged_at": statement.logged_at,
        "predicate": statement.predicate.to_json(),
    }


@proof.command("check", short_help="Check a bundle, or another signed statement, offline.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@root_option(required=True)
@pin_option
@click.option(
    "--threshold", type=click.IntRange(1), metavar="K", help="Notaries that must agree.  [default: the trust root's]"
)
@origin_option
@at_option
@seen_option
def proof_check(
    *,
    as_json: bool,
    file: Path,
    root_file: Path,
    pin: str | None,
    threshold: int | None,
    origin: str | None,
    at: int | None,
    seen: Path | None,
) -> None:
    """Check a bundle (proofs, log proofs, checkpoint) and say what was proved and what was not. Asks nobody.

    Ends with 0 if everything holds, also where the verdict is FAIL: a genuine FAIL is a good proof of bad rows. Ends
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
    single = None if is_bundle(data) else _single(file)
    if single is not None and (threshold is not None or origin is not None):
        raise click.UsageError("--threshold and --origin are for bundles")
    judge = judge_by(root_file, pin=pin, at=at, seen=seen)
    if single is not None:
        check_single(single, data, judge, as_json=as_json)
        return
    log = log_checker(judge.root, origin=origin_of(judge.root, origin))
    needed = judge.root.notary_threshold if threshold is None else threshold
    try:
        checked = check_bundle(data, judge.root, log, threshold=needed, now=judge.at)
    except VerificationError as error:
        error.hint = error.hint or hint_of(error, REFUSED)
        raise
    if as_json:
        say_json(_checked_json(checked, judge, origin=log.origin, threshold=needed))
    else:
        _tell(checked, judge, origin=log.origin, threshold=needed)


def _single(file: Path) -> Statement:
    """A statement alone. A proof is not judged so: nothing says when it was logged, or that it was."""
    _, (found,) = read_statement_file(file)
    if isinstance(found.predicate, Proof):
        raise Code.BUNDLE_EXPECTED(f"{file} is a proof alone", got="one envelope")
    return found


def _not_shown(checked: CheckedBundle, judge: Judge) -> tuple[str, ...]:
    said = checked.not_shown
    if not checked.proof.core.verdict.passed:
        said = (*said, WAIVED)
    return said if judge.pin is not None else (UNPINNED, *said)


def _checked_json(checked: CheckedBundle, judge: Judge, *, origin: str, threshold: int) -> dict[str, object]:
    return {
        "holds": True,
        "verdict": checked.proof.core.verdict.to_json(),
        "proof_ids": list(checked.proof.proof_ids),
        "notaries": [statement.key.identity for statement in checked.proof.statements],
        "threshold": threshold,
        "logged_at": list(checked.logged_at),
        "origin": origin,
        "trust_root": judge.to_json(),
        "judged_at": judge.at,
        "proved": list(checked.shown),
        "not_proved": list(_not_shown(checked, judge)),
    }


def _tell(checked: CheckedBundle, judge: Judge, *, origin: str, threshold: int) -> None:
    verdict = checked.proof.core.verdict
    say("the proof holds", style="bold green")
    line, style = verdict_line(verdict)
    say(f"its verdict: {line}", style=style)
    if not verdict.passed:
        say("the proof is genuine, the rows are not what was intended: nothing may be published with it", style="red")
    say()
    say("proved:", style="bold")
    for sentence in checked.shown:
        say(f"  - {sentence}")
    times = ", ".join(utc(time) for time in checked.logged_at)
    say(f"  - logged {times} in {origin}; keys were judged as of then")
    say(f"  - at least {threshold} of the notaries that trust root {judge.root.version} names agree")
    say()
    say("not proved:", style="bold")
    for sentence in _not_shown(checked, judge):
        say(f"  - {sentence}", style="bold yellow" if sentence is UNPINNED else None)
