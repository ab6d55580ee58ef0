"""Checks one signed statement that is no proof: whose signature it is, and no more."""

from __future__ import annotations

from typing import Final

from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.trust_roots import Judge
from pvdm.cli.proof.files import Statement
from pvdm.cli.proof.text import statement_lines
from pvdm.errors import Code, VerificationError
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.trust.verify import verify_statement

UNPINNED: Final = "that the trust root is the right one: it was not verified (no --root-sha256)"
REFUSED: Final = "the statement does not hold: rely on nothing that it says"
OLDER: Final = "perhaps the trust root is older than the key: fetch the newest (`pvdm keys root fetch`)"
_LOG: Final = (
    "that it is in the log, and since when: only signature and signer were checked (`pvdm log prove --envelope`)"
)
_GLASS: Final = "that the override is still good, or was used: that is for the Steward (`pvdm break-glass list`)"


def hint_of(error: VerificationError, otherwise: str) -> str:
    """The next step; after a rotation an old trust root lacks the new keys, and that is no forgery."""
    return OLDER if error.code == Code.KEY_UNKNOWN else otherwise


def check_single(statement: Statement, data: bytes, judge: Judge, *, as_json: bool) -> None:
    """Say whose word it is, once signature, key, role and time hold; what was not looked at is said too."""
    try:
        found = verify_statement(data, judge.root, type(statement.predicate), now=judge.at)
    except VerificationError as error:
        error.hint = error.hint or hint_of(error, REFUSED)
        raise
    named = f"trust root {judge.root.version} names the key as {', '.join(role.value for role in found.key.roles)}"
    proved = f"{found.key.identity} signed this {statement.kind} statement; {named}"
    open_questions = [_LOG]
    if isinstance(statement.predicate, BreakGlass):
        open_questions.append(_GLASS)
    if judge.pin is None:
        open_questions.insert(0, UNPINNED)
    if as_json:
        facts: dict[str, object] = {"holds": True, "kind": statement.kind, "id": found.statement_id}
        facts |= {"signer": found.key.identity, "key_id": found.key.key_id, "trust_root": judge.to_json()}
        say_json({**facts, "judged_at": judge.at, "proved": [proved], "not_proved": open_questions})
        return
    for line, style in statement_lines(statement):
        say(line, style=style)
    say()
    say("the signature holds", style="bold green")
    say("proved:", style="bold")
    say(f"  - {proved}")
    say("not proved:", style="bold")
    for sentence in open_questions:
        say(f"  - {sentence}", style="bold yellow" if sentence is UNPINNED else None)
