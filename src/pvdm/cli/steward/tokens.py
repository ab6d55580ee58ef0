"""`pvdm steward token`: issues, lists, rotates and revokes tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import command_group, wants_json
from pvdm.cli.common.files import require_new
from pvdm.cli.common.options import path_option
from pvdm.cli.common.screen import Line, is_terminal, say_result
from pvdm.cli.common.times import DURATION_TYPE, duration_option, duration_text, now_micros, utc
from pvdm.cli.steward.steward import config_option, opened_notary, steward
from pvdm.errors import Code, InputError, PvdmError, StateUnknownError
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import counted
from pvdm.model.role import Role
from pvdm.model.secret import Secret
from pvdm.trust.keys import disk

if TYPE_CHECKING:
    from pvdm.ledger.record.tokens import BearerToken, Grant
    from pvdm.steward.notary import Notary

_out_option = path_option("--out", help="The new file of mode 0600 for the token's text.")


@command_group("token", short_help="Issue, list, rotate and revoke tokens.")
def token_group() -> None:
    """Issue, list, rotate and revoke tokens. The Steward stores their hashes only.

    \b
    Examples:
      pvdm steward token issue --config steward.toml --role producer --domain sales --name spark --out spark.token
      pvdm steward token list --config steward.toml
      pvdm steward token revoke TOKEN_ID --config steward.toml
    """


steward.add_command(token_group)


@token_group.command("issue", short_help="Issue a token.")
@config_option
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What its bearer may do.")
@click.option("--domain", default="*", show_default=True, metavar="NAME", help="Its domain; * is every domain.")
@click.option("--name", required=True, metavar="NAME", help="Its bearer, for an attestor as in the trust root.")
@duration_option("--lifetime", default="90d", help_text="How long it is valid: 12h, 90d; at most 365d.")
@_out_option
def token_issue(*, config: Path, role: str, domain: str, name: str, lifetime: int, out: Path | None) -> None:
    """Issue a token. Its text is written to a file of mode 0600, or shown once on a terminal.

    \b
    Examples:
      pvdm steward token issue --config steward.toml --role operator --name ruth --out ruth.token
      pvdm steward token issue --config steward.toml --role attestor --domain payments --name source-payments
    """
    _require_visible(out)
    for what, text in (("name", name), ("domain", domain)):
        # Text that is not printable could control a terminal, or look like another line of a list.
        if not text.strip() or not text.isprintable():
            message = f"the {what} cannot be accepted"
            raise Code.TOKEN_REQUEST_INVALID(message, reason="token_name_invalid", got=ascii(text[:80]))

    def issue(notary: Notary, token: BearerToken) -> Grant:
        seconds = lifetime // MICROS_PER_SECOND
        _, grant = notary.access.issue(Role(role), domain=domain, name=name, lifetime_seconds=seconds, drawn=token)
        return grant

    _deliver_token(config, issue, out)


@token_group.command("rotate", short_help="Replace a token by a new one.")
@click.argument("token_id", metavar="TOKEN_ID")
@config_option
@click.option(
    "--lifetime", type=DURATION_TYPE, metavar="TIME", help="How long the new one is valid. [default: as the old one]"
)
@duration_option("--overlap", default="10m", help_text="How long the old one stays valid.")
@_out_option
def token_rotate(*, token_id: str, config: Path, lifetime: int | None, overlap: int, out: Path | None) -> None:
    """Issue a successor with the same rights; the old token ends after the overlap.

    Short-lived tokens that were derived from the old one, such as those of running attempts, stay valid until they
    expire, or the successor expires or is revoked. Revoking the old token ends them at once.

    \b
    Examples:
      pvdm steward token rotate TOKEN_ID --config steward.toml --out spark.token.new
    """
    _require_visible(out)

    def rotate(notary: Notary, token: BearerToken) -> Grant:
        lifetime_seconds = None if lifetime is None else lifetime // MICROS_PER_SECOND
        overlap_seconds = overlap // MICROS_PER_SECOND
        _, grant = notary.access.rotate(
            token_id, lifetime_seconds=lifetime_seconds, overlap_seconds=overlap_seconds, drawn=token
        )
        return grant

    _deliver_token(config, rotate, out)


def _require_visible(out: Path | None) -> None:
    """Raise unless the token's text can be shown or written. Called first: a token whose text is lost stays valid."""
    if out is not None:
        require_new(out)
    elif wants_json() or not is_terminal(sys.stdout):
        message, expected = "a token is shown on a terminal only", "--out, or a terminal without --json"
        got = "--json without --out" if wants_json() else "no terminal and no --out"
        hint = "name a file with --out; pipes and logs may store what they get"
        raise Code.USAGE(message, reason="terminal_missing", expected=expected, got=got, hint=hint)


def _with_duration_units(error: InputError) -> InputError:
    """The error with durations such as 365d in place of the Steward's numbers of seconds."""
    from pvdm.steward.access import TOKEN_LIFETIME_MAX_SECONDS, TOKEN_OVERLAP_MAX_SECONDS

    limits = {"token_lifetime_invalid": TOKEN_LIFETIME_MAX_SECONDS, "token_overlap_invalid": TOKEN_OVERLAP_MAX_SECONDS}
    if error.reason not in limits or error.got is None or not error.got.isdecimal():
        return error
    limit = duration_text(limits[error.reason] * MICROS_PER_SECOND)
    got = duration_text(int(error.got) * MICROS_PER_SECOND)
    return InputError(error.reason, error.message, expected=f"at most {limit}", got=got)


def _deliver_token(config: Path, grant_token: Callable[[Notary, BearerToken], Grant], out: Path | None) -> None:
    """Issue a token with `grant_token`. The file `out` is written before the ledger, so no valid token is lost."""
    from pvdm.ledger.record.tokens import BearerToken

    token = BearerToken.draw()
    with opened_notary(config) as notary:
        if out is not None:
            disk.write(out, Secret(token.reveal().encode()), mode=disk.PRIVATE_MODE, fresh=True)
        try:
            grant = grant_token(notary, token)
        except StateUnknownError:
            raise  # the token may be valid, so its file stays
        except PvdmError as error:
            if out is not None:
                out.unlink(missing_ok=True)
            raise (_with_duration_units(error) if isinstance(error, InputError) else error) from None
    bearer = f"{grant.role.value} {grant.name}, {_scope_text(grant)}"
    if out is not None:
        text_lines = [f"its text is in {out}; give it to its bearer only"]
    else:
        text_lines = ["its text, shown this once:", token.reveal()]
    lines = [f"token {grant.token_id}: {bearer}, until {utc(grant.expires_micros)}", *text_lines]
    say_result({**_grant_to_json(grant), "out": out}, lines)


@token_group.command("list", short_help="List tokens, without their texts.")
@config_option
@click.option("--name", metavar="NAME", help="Only tokens of this bearer.")
@click.option("--all", "with_derived", is_flag=True, help="Also tokens derived from others, such as those of attempts.")
def token_list(*, config: Path, name: str | None, with_derived: bool) -> None:
    """List every issued token: its bearer, role and domain, until when it is valid, and whether it was revoked.

    Without --all, tokens derived from others, such as an attempt's, are only counted: revoking the others ends them.

    \b
    Examples:
      pvdm steward token list --config steward.toml
      pvdm steward token list --config steward.toml --name ruth --all
    """
    with opened_notary(config) as notary:
        of_bearer = [grant for grant in notary.access.list_tokens() if name in (None, grant.name)]
    grants = [grant for grant in of_bearer if with_derived or grant.parent_id is None]
    not_shown = len(of_bearer) - len(grants)
    now = now_micros()
    lines: list[Line | str] = []
    for grant in grants:
        state, style = _state_line(grant, now)
        lines.append((f"{grant.token_id}  {grant.role.value:<9} {grant.name}, {_scope_text(grant)}  {state}", style))
    if not_shown:
        lines.append(f"{counted(not_shown, 'derived token')} not shown; --all shows them")
    document = {"tokens": [_grant_to_json(grant) for grant in grants], "derived_not_shown": str(not_shown)}
    say_result(document, lines)


@token_group.command("revoke", short_help="Revoke a token.")
@click.argument("token_id", metavar="TOKEN_ID")
@config_option
def token_revoke(*, token_id: str, config: Path) -> None:
    """Revoke a token and all that were derived from it. A second time changes nothing.

    \b
    Examples:
      pvdm steward token revoke TOKEN_ID --config steward.toml
    """
    with opened_notary(config) as notary:
        grant = notary.access.revoke(token_id)
    say_result(_grant_to_json(grant), [f"revoked: token {grant.token_id} of {grant.name}"])


def _grant_to_json(grant: Grant) -> dict[str, object]:
    """The token without its text, as JSON."""
    return {
        "token_id": grant.token_id,
        "role": grant.role.value,
        "domain": grant.domain,
        "name": grant.name,
        "expires_at": grant.expires_micros,
        "attempt_id": grant.attempt_id,
        "revoked_at": grant.revoked_micros,
        "replaced_at": grant.replaced_micros,
        "successor_id": grant.successor_id,
        "parent_id": grant.parent_id,
    }


def _scope_text(grant: Grant) -> str:
    domain = "every domain" if grant.domain == "*" else f"domain {grant.domain}"
    return domain if grant.attempt_id is None else f"attempt {grant.attempt_id} of {domain}"


def _state_line(grant: Grant, now: int) -> Line:
    if grant.revoked_micros is not None:
        return f"revoked {utc(grant.revoked_micros)}", "red"
    if grant.replaced_micros is not None and grant.replaced_micros <= now:
        return f"replaced by {grant.successor_id} {utc(grant.replaced_micros)}", "yellow"
    if grant.expires_micros <= now:
        return f"expired {utc(grant.expires_micros)}", "yellow"
    ends = min(grant.expires_micros, grant.replaced_micros or grant.expires_micros)
    return f"valid until {utc(ends)}", None
