"""`pvdm keys root`: makes, signs, shows, checks, fetches and submits trust roots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pvdm.cli.common import trust_roots
from pvdm.cli.common.commands import command_group
from pvdm.cli.common.files import require_new, write_new
from pvdm.cli.common.options import Service, out_option, path_argument, path_option, service_options
from pvdm.cli.common.passphrases import open_key, open_passphrase_option
from pvdm.cli.common.screen import Line, require_yes, say_result
from pvdm.cli.common.times import TIME_TYPE, now_micros, utc
from pvdm.cli.keys.root_file import RootAndEnvelope, read_root_file, read_single_root, root_lines, root_to_json
from pvdm.cli.keys.root_spec import read_spec
from pvdm.errors import Code, PvdmError
from pvdm.trust.envelope import TRUST_ROOT_TYPE, Envelope, Signature, sign_envelope
from pvdm.trust.root import RootRole, Thresholds, TrustedKey, TrustRoot, advance_root, pin_root


@command_group("root", short_help="Make, sign, show and check trust roots.")
def root_group() -> None:
    """Make, sign, show and check trust roots: which keys are trusted for what, and until when.

    A root is made as a draft, goes from signer to signer, and is valid when enough of them have signed.

    \b
    Examples:
      pvdm keys root new keys.toml --out root-1.draft
      pvdm keys root sign root-1.draft --key alice.pem --out root-1.alice
      pvdm keys root sign root-1.alice --key bob.pem --out root-1.json
      pvdm keys root check root-1.json --root-sha256 HEX
    """


@root_group.command("new", short_help="Make the first trust root from public keys.")
@path_argument("spec", metavar="KEYS.toml")
@out_option()
def root_new(*, spec: Path, out: Path) -> None:
    """Make the draft of trust root 1 from the public keys that KEYS.toml names.

    The command prints the hash that readers pin; signatures do not change this hash.

    \b
    KEYS.toml:
      expires = "365d"                 # or a date
      thresholds = { notary = 1, root = 2 }
      [[keys]]
      file = "notary-a.signing.pub"    # beside KEYS.toml
      identity = "notary-a"
      roles = ["notary"]
      epochs = [1]
      valid_from = 2026-11-14          # default: a day ago, since clocks differ
      valid_until = 2027-11-14         # default: the end of the root

    \b
    Examples:
      pvdm keys root new keys.toml --out root-1.draft
    """
    require_new(out)
    now = now_micros()
    parsed = read_spec(spec, now=now)
    if parsed.expires_at is None:
        raise Code.INPUT_FILE_INVALID(f"{spec}: the root has no end", reason="root_spec_invalid", got="none")
    thresholds = Thresholds(notary=parsed.notary_threshold or 1, root=parsed.root_threshold or 1)
    keys = _sort_keys(parsed.keys)
    _write_draft(TrustRoot(1, None, issued_at=now, expires_at=parsed.expires_at, keys=keys, thresholds=thresholds), out)


@root_group.command("next", short_help="Make the successor of a trust root.")
@path_argument("current", metavar="ROOT")
@path_option("--add", metavar="KEYS.toml", help="Keys to add; thresholds in this file are ignored.")
@click.option("--revoke", multiple=True, metavar="KEY_ID", help="A key that is no longer trusted from now on.")
@click.option("--remove", multiple=True, metavar="KEY_ID", help="A key that the successor no longer names.")
@click.option("--extend", multiple=True, metavar="KEY_ID=TIME", help="A key that stays valid until then.")
@click.option(
    "--expires",
    type=TIME_TYPE,
    metavar="TIME",
    help="The end of the successor.  [default: after the same lifetime as ROOT]",
)
@click.option("--notary-threshold", type=click.IntRange(1), metavar="K", help="Notaries that a proof needs.")
@click.option("--root-threshold", type=click.IntRange(1), metavar="K", help="Signers that a root needs.")
@out_option()
def root_next(*, current: Path, out: Path, **changes: Any) -> None:
    """Make the draft of the trust root that follows the newest one of ROOT.

    A key is named by its id, or by the first eight digits or more of it. The successor must be signed by the root
    signers of both versions.

    \b
    Examples:
      pvdm keys root next root-1.json --add bob.toml --out root-2.draft
      pvdm keys root next root-1.json --revoke 3f9ac0de --out root-2.draft
      pvdm keys root next root-1.json --expires 2028-01-01 --out root-2.draft
    """
    require_new(out)
    now = now_micros()
    _write_draft(_make_successor(_verify_newest(current, now), now, **changes), out)


def _verify_newest(path: Path, now: int) -> TrustRoot:
    """Verify every step of the chain after its first root. Returns the newest root, which may have expired."""
    chain = trust_roots.read_chain(path)
    root = pin_root(chain[0], sha256=trust_roots.first_sha256(chain), now=now)
    for data in chain[1:]:
        root = advance_root(root, data, now=now)
    return root


def _make_successor(
    root: TrustRoot,
    now: int,
    *,
    add: Path | None,
    revoke: tuple[str, ...],
    remove: tuple[str, ...],
    extend: tuple[str, ...],
    expires: int | None,
    notary_threshold: int | None,
    root_threshold: int | None,
) -> TrustRoot:
    keys = {key.key_id: key for key in root.keys}
    for prefix in revoke:
        key = _find_key(root, prefix)
        keys[key.key_id] = key if key.revoked_at is not None else replace(key, revoked_at=now)
    for text in extend:
        prefix, _, when = text.partition("=")
        key = _find_key(root, prefix)
        keys[key.key_id] = replace(keys[key.key_id], valid_until=TIME_TYPE.convert(when, None, None))
    for prefix in remove:
        keys.pop(_find_key(root, prefix).key_id, None)  # one key may be named twice
    end = expires if expires is not None else now + (root.expires_at - root.issued_at)
    spec = None if add is None else read_spec(add, now=now, expires_at=end)
    thresholds = Thresholds(notary_threshold or root.thresholds.notary, root_threshold or root.thresholds.root)
    all_keys = _sort_keys([*keys.values(), *(() if spec is None else spec.keys)])
    return TrustRoot(root.version + 1, root.sha256, now, end, all_keys, thresholds)


def _find_key(root: TrustRoot, prefix: str) -> TrustedKey:
    found = [key for key in root.keys if len(prefix) >= 8 and key.key_id.startswith(prefix)]
    if len(found) != 1:
        got = prefix[:80] if not found else f"{len(found)} keys that begin with {prefix[:80]}"
        raise Code.USAGE(f"version {root.version} has no such key", reason="root_key_unknown", got=got)
    return found[0]


def _sort_keys(keys: Iterable[TrustedKey]) -> tuple[TrustedKey, ...]:
    return tuple(sorted(keys, key=lambda key: key.key_id))


def _write_draft(root: TrustRoot, out: Path) -> None:
    write_new(out, root.to_bytes())
    draft = RootAndEnvelope(root, None)
    hint = f"hint: `pvdm keys root sign {out} --key FILE --out FILE`, once for each signer"
    lines = [*root_lines(draft, now=now_micros()), "", f"draft: {out}", hint]
    say_result({"draft": out, **root_to_json(draft)}, lines)


@root_group.command("sign", short_help="Add one signature to a trust root.")
@path_argument("file")
@path_option("--key", "key_file", required=True, help="The signer's private key.")
@open_passphrase_option
@path_option("--previous", metavar="ROOT", help="The root before this one, if only that root names the signer.")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@out_option()
def root_sign(
    *, file: Path, key_file: Path, passphrase_source: str | None, previous: Path | None, yes: bool, out: Path
) -> None:
    """Show a draft, or a root that others have signed, and add your signature.

    Read it first: with your signature others will trust these keys. The same command again changes nothing.

    \b
    Examples:
      pvdm keys root sign root-1.draft --key alice.pem --out root-1.alice
      pvdm keys root sign root-2.draft --key carol.pem --previous root-1.json --out root-2.carol
    """
    given = read_single_root(file)
    signer = open_key(key_file, passphrase_source)
    key_id = signer.public.key_id
    _require_root_signer(key_id, given.root, previous)
    existing = () if given.envelope is None else given.envelope.signatures
    signatures: dict[str, Signature] = {each.key_id: each for each in existing}
    if _is_signed_by(out, given.root, {*signatures, key_id}):
        _show_signed(read_single_root(out), out)
        return
    require_new(out)
    if not yes:
        require_yes("sign this trust root?", [(line, None) for line in root_lines(given, now=now_micros())])
    if key_id not in signatures:
        signatures[key_id] = sign_envelope(given.root.to_bytes(), signer, payload_type=TRUST_ROOT_TYPE).signature
    ordered: tuple[Signature, ...] = tuple(signatures[each] for each in sorted(signatures))
    envelope = Envelope(TRUST_ROOT_TYPE, given.root.to_bytes(), ordered)
    write_new(out, envelope.to_bytes())
    _show_signed(RootAndEnvelope(given.root, envelope), out)


def _require_root_signer(key_id: str, root: TrustRoot, previous: Path | None) -> None:
    roots = [root, *(() if previous is None else [each.root for each in read_root_file(previous)])]
    keys = [each.find(key_id) for each in roots]
    if not any(key is not None and RootRole.ROOT in key.roles for key in keys):
        expected = f"a root signer of version {root.version}, or of the one before (--previous)"
        raise Code.ROOT_SIGNER_UNKNOWN(expected=expected, got=key_id)


def _is_signed_by(out: Path, root: TrustRoot, key_ids: set[str]) -> bool:
    """Whether the file already has the root with signatures of exactly these keys, as after an earlier run."""
    if not out.exists():
        return False
    try:
        stored = read_single_root(out)
    except PvdmError:
        return False  # another file, which is not overwritten
    signatures = stored.signatures()
    is_same = stored.root == root and {each["key_id"] for each in signatures} == key_ids
    # None: the previous root names the key, so the signature cannot be checked here.
    return is_same and all(each["holds"] in (True, None) for each in signatures)


def _show_signed(signed: RootAndEnvelope, out: Path) -> None:
    root = signed.root
    missing = root.thresholds.root - len(signed.signers())
    if missing > 0:
        hint = f"hint: {missing} more of its own root signers must sign"
    elif root.version == 1:
        hint = f"hint: complete; readers pin it with --root-sha256 {root.sha256}"
    else:
        hint = "hint: complete by its own signers; `pvdm keys root check OLD NEW` shows whether the old ones agree"
    lines = [f"signed: {out}, trust root version {root.version}", f"sha256: {root.sha256}", hint]
    say_result({"signed": out, **root_to_json(signed)}, lines)


@root_group.command("show", short_help="Show a trust root as text.")
@path_argument("file")
def root_show(*, file: Path) -> None:
    """Show a draft, a root or a chain of roots as text, with its own signers' signatures. `check` checks the chain.

    \b
    Examples:
      pvdm keys root show root-1.draft
      pvdm keys root show roots.json --json | jq '.roots[-1].keys[].identity'
    """
    found = read_root_file(file)
    lines = [line for each in found for line in ("", *root_lines(each, now=now_micros()))]
    say_result({"roots": [root_to_json(each) for each in found]}, lines[1:])  # without the first empty line


@root_group.command("check", short_help="Check a chain of trust roots against a pinned hash.")
@path_argument("files", nargs=-1, required=True, metavar="FILE...")
@trust_roots.pin_option
@trust_roots.seen_option
@trust_roots.at_option
@path_option("--out", help="Write the whole chain as one file.")
def root_check(
    *, files: tuple[Path, ...], pin: str | None, seen: Path | None, at: int | None, out: Path | None
) -> None:
    """Check that each root follows the one before, from the pinned first to the newest.

    \b
    Examples:
      pvdm keys root check root-1.json --root-sha256 HEX
      pvdm keys root check root-1.json root-2.json --root-sha256 HEX --out roots.json
    """
    chain = tuple(envelope for path in files for envelope in trust_roots.read_chain(path))
    root = trust_roots.verify_trust(chain, pin=pin, at=at, seen=seen).root
    if out is not None:
        write_new(out, trust_roots.chain_to_bytes(chain))
    document = {
        "version": root.version,
        "sha256": root.sha256,
        "first_sha256": trust_roots.first_sha256(chain),
        "pinned": pin is not None,
        "expires_at": root.expires_at,
        "roots": len(chain),
    }
    count = "one trust root" if len(chain) == 1 else f"{len(chain)} trust roots"
    lines: list[Line | str] = [
        (f"holds: {count}, the newest is version {root.version}", "green"),
        f"  first    {trust_roots.first_sha256(chain)}{' (pinned)' if pin else ' (NOT pinned: not verified)'}",
        f"  newest   {root.sha256}",
        f"  expires  {utc(root.expires_at)}",
    ]
    say_result(document, lines)


@root_group.command("fetch", short_help="Get the chain of trust roots from a Steward.")
@service_options
@trust_roots.pin_option
@out_option("Where the chain goes.")
def root_fetch(*, service: Service, pin: str | None, out: Path) -> None:
    """Get every version of the Steward's trust root, check the chain, and write it to a file for `proof check`.

    The Steward could send any trust root, so get the hash for --root-sha256 through another channel.

    \b
    Examples:
      pvdm keys root fetch --url https://steward.example:8181 --root-sha256 HEX --out roots.json
    """
    with service.connect() as client:
        chain = client.trust_root().chain
    root, first = trust_roots.verify_trust(chain, pin=pin, at=None).root, trust_roots.first_sha256(chain)
    write_new(out, trust_roots.chain_to_bytes(chain))
    facts = {"version": root.version, "sha256": root.sha256, "first_sha256": first}
    unpinned = [] if pin is not None else [f"  if the operator confirms this hash: --root-sha256 {first}"]
    document = {**facts, "pinned": pin is not None, "out": out}
    say_result(document, [f"trust roots 1 to {root.version}: {out}", *unpinned])


@root_group.command("submit", short_help="Submit a trust root to a Steward.")
@path_argument("file", metavar="ROOT")
@service_options
def root_submit(*, file: Path, service: Service) -> None:
    """Submit the next trust root, or a chain of them. Needs an operator's token. A repeated submission changes nothing.

    The first one is accepted if the Steward's configuration has its hash (`trust_root_sha256`).

    \b
    Examples:
      pvdm keys root submit root-2.json --url https://steward.example:8181
    """
    with service.connect() as client:
        newest = [client.submit_trust_root(envelope) for envelope in trust_roots.read_chain(file)][-1]
    document = {"version": newest.version, "sha256": newest.sha256}
    say_result(document, [f"the Steward uses trust root {newest.version}, {newest.sha256}"])
