"""`pvdm break-glass`: signed and logged overrides of a FAIL verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.commands import command_group, wants_json
from pvdm.cli.common.files import read_file, require_new, write_new
from pvdm.cli.common.options import Service, out_option, path_argument, path_option, service_options
from pvdm.cli.common.passphrases import open_key, open_passphrase_option
from pvdm.cli.common.screen import ALERT, Line, notice, require_yes, say, say_list, say_result
from pvdm.cli.common.times import duration_option, now_micros, utc
from pvdm.cli.common.trust_roots import pin_option, root_option, verify_trust
from pvdm.cli.evidence.statements import is_bundle, override_lines, override_view_lines, proof_lines, read_proofs
from pvdm.cli.work.jobs import finish, watch_steps
from pvdm.errors import Code
from pvdm.model.printable import view_json
from pvdm.trust.approval import override_of, signer_fields, verify_override
from pvdm.trust.bundle import parse_bundle
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES
from pvdm.trust.verify import sign_statement, verify_threshold

_UNVERIFIED_PROOF: Final = "the FAIL proof was not verified here; the Steward verifies it (or give --trust-root)"


@command_group("break-glass")
def break_glass() -> None:
    """Override one FAIL verdict, with a key for this purpose only, in your name and with a logged reason.

    An override waives the verdict of one proof, for exactly its bytes, once, within hours. Every other check remains.

    \b
    Examples:
      pvdm break-glass sign --key glass.pem --proof fail.json --operator ruth --reason "…" --out override.json
      pvdm break-glass submit override.json --url https://steward.example:8181
      pvdm break-glass publish OVERRIDE_ID
      pvdm break-glass list
    """


@break_glass.command("sign", short_help="Sign an override for one FAIL proof.")
@path_option("--key", "key_file", required=True, help="Your break-glass key.")
@open_passphrase_option
@path_option("--proof", "proof_file", required=True, help="The FAIL proof, as envelope or bundle.")
@click.option("--operator", required=True, metavar="NAME", help="Your name, as the trust root has it.")
@click.option("--reason", required=True, metavar="TEXT", help="Why these rows are published although they failed.")
@duration_option("--expires", default="4h", help_text="How long it can be used: 90s, 30m, 4h; at most 24h.")
@root_option(required=False)
@pin_option
@click.option("--yes", is_flag=True, help="Sign without asking.")
@out_option()
def break_glass_sign(  # noqa: PLR0913 - every fact of an override is named
    *,
    key_file: Path,
    passphrase_source: str | None,
    proof_file: Path,
    operator: str,
    reason: str,
    expires: int,
    root_file: Path | None,
    pin: str | None,
    yes: bool,
    out: Path,
) -> None:
    """Sign the override of exactly one FAIL proof: its table, its base, its files, with a fresh nonce.

    The private key is not sent. With --trust-root the proof and the override are verified before the file is written.

    \b
    Examples:
      pvdm break-glass sign --key glass.pem --proof fail.json --operator ruth --reason "…" --out override.json
      pvdm break-glass sign --key glass.pem --proof fail.json --operator ruth --reason "…" \\
        --expires 30m --trust-root roots.json --root-sha256 HEX --out override.json
    """
    require_new(out)
    data, proofs = read_proofs(proof_file)
    proof_id, failed = proofs[0]  # of a bundle, the override names the first proof
    if failed.core.verdict.passed:
        raise Code.OVERRIDE_REFUSED(reason="override_of_pass", got="PASS")
    now, core = now_micros(), failed.core
    override = override_of(proof_id, core, signer_fields(operator, reason, now=now, lifetime_micros=expires))
    signer = open_key(key_file, passphrase_source)
    if not yes:
        lines = (*proof_lines(failed), *override_lines(override))
        require_yes("publish rows that failed verification, in your name?", lines)
    envelope = sign_statement(override, signer).to_bytes()
    if root_file is None:
        notice(_UNVERIFIED_PROOF)
    else:
        basis = verify_trust(root_file, pin=pin, at=None)
        envelopes = [logged.envelope for logged in parse_bundle(data).proofs] if is_bundle(data) else [data]
        verified = verify_threshold(envelopes, basis.root, threshold=basis.root.thresholds.notary, now=now)
        # Only the Steward knows whether the nonce is used; here it is fresh.
        verify_override(envelope, basis.root, failed=verified, now=now, used=lambda _: False)
    write_new(out, envelope)
    document = {"override": override.to_json(), "out": out, "verified": root_file is not None}
    hint = f"hint: `pvdm break-glass submit {out}` before {utc(override.expires_at)}"
    say_result(document, [*override_lines(override), "", f"signed: {out}; nothing is published yet", hint])


@break_glass.command("submit", short_help="Submit a signed override.")
@path_argument("file")
@service_options
def break_glass_submit(*, file: Path, service: Service) -> None:
    """Submit a signed override to the Steward, which verifies and logs it. The same file again changes nothing.

    It publishes nothing; `pvdm break-glass publish` does. Needs an operator's token. If the override is not valid, the
    command ends with 5 and the verdict remains.

    \b
    Examples:
      pvdm break-glass submit override.json --url https://steward.example:8181 --token-file token
    """
    envelope = read_file(file, size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    with service.connect() as client:
        view = client.submit_override(envelope)
    hint = f"hint: `pvdm break-glass publish {view.override_id}` before {utc(view.expires_at)}"
    lines: list[Line | str] = [*override_view_lines(view), "", "submitted; nothing is published yet", hint]
    say_result({"override": view_json(view)}, lines)


@break_glass.command("publish", short_help="Publish the bytes that an override names.")
@click.argument("override_id", metavar="OVERRIDE_ID")
@service_options
def break_glass_publish(*, override_id: str, service: Service) -> None:
    """Publish exactly the bytes that an accepted override names, from quarantine.

    The bytes are verified again and pass every check of the gate; only the verdict is waived. Audits always show the
    override. The same call again continues to wait, or shows the result. Needs an operator's token. Ends with 0 when
    the bytes are published, 3 when the gate refuses them or files are missing in quarantine, 4 when other chunks must
    be proved first, 5 when the override has expired, cannot be used any more, or main has moved since the FAIL.

    \b
    Examples:
      pvdm break-glass publish 5f0c…e1 --url https://steward.example:8181 --token-file token
      pvdm break-glass publish 5f0c…e1 --json | jq .outcome
    """
    from pvdm.durable.outcome import Committed, PublicationTime, ignore_progress
    from pvdm.durable.override import publish_override

    watch = ignore_progress if wants_json() else watch_steps()
    with service.connect() as client:
        outcome = publish_override(client, override_id, watch)
    if not wants_json() and isinstance(outcome, Committed):
        verb = "are" if outcome.published is PublicationTime.NOW else "have been"
        say(f"*** BREAK-GLASS: rows that failed {verb} published in {outcome.table} ***", style=ALERT)
    finish(outcome)


@break_glass.command("list", short_help="List all overrides.")
@service_options
def break_glass_list(*, service: Service) -> None:
    """List the overrides that the Steward has accepted: who, why, for which proof, and whether it was used.

    \b
    Examples:
      pvdm break-glass list --url https://steward.example:8181
      pvdm break-glass list --json | jq '.overrides[] | {operator, reason, state}'
    """
    with service.connect() as client:
        views = client.overrides()
    say_list("overrides", views, override_view_lines, "no verdict was ever overridden here")
