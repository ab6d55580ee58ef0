"""`pvdm keys root`: makes, signs, shows and checks trust roots, whose files travel between people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pvdm.cli.common.confirm import require_yes
from pvdm.cli.common.files import read_file, require_json, require_new, write_new
from pvdm.cli.common.options import PlaceType, json_option, require_command
from pvdm.cli.common.passphrases import OPENING, open_key, passphrase_option
from pvdm.cli.common.screen import notice, say, say_json
from pvdm.cli.common.times import TimeType, now_micros, utc
from pvdm.cli.common.trust_roots import (
    FAITH,
    ROOT_CHAIN_SIZE_MAX_BYTES,
    at_option,
    first_sha256,
    follow,
    pin_option,
    read_chain,
    seen_option,
    write_chain,
)
from pvdm.cli.keys.root_spec import read_spec
from pvdm.cli.keys.root_text import RootFile, root_lines, root_to_json
from pvdm.errors import Code, PvdmError
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, Envelope, Signature, parse_envelope, seal
from pvdm.trust.refusal import refusing
from pvdm.trust.root import ROOT_SIZE_MAX_BYTES, RootKey, RootRole, Thresholds, TrustRoot, advance_root, pin_root
from pvdm.trust.strict_json import read

_OUT_HELP = "Where the result goes; never over another file."


@click.group("root", short_help="Make, sign, show and check trust roots.", invoke_without_command=True)
@click.pass_context
def root_group(context: click.Context) -> None:
    """Make, sign, show and check trust roots: which keys are trusted for what, and until when.

    A root is made as a draft, travels from signer to signer, and counts when enough of them signed.

    \b
    Examples:
      pvdm keys root new keys.toml --out root-1.draft
      pvdm keys root sign root-1.draft --key alice.pem --out root-1.alice
      pvdm keys root sign root-1.alice --key bob.pem --out root-1.json
      pvdm keys root check root-1.json --root-sha256 HEX
    """
    require_command(context)


def read_root_file(path: Path) -> list[RootFile]:
    """The roots of a draft, of one envelope or of a chain; nothing is judged but their form."""
    data = read_file(path, size_max_bytes=ROOT_CHAIN_SIZE_MAX_BYTES)
    require_json(path, data, "a trust root, its draft, or a chain of them")
    if data.startswith(b'{"expires_at"'):
        return [RootFile(_parse_root(data), None)]
    return [_parse_envelope(envelope) for envelope in read_chain(path)]


def _parse_root(data: bytes) -> TrustRoot:
    value = read(data, "the trust root", size_max_bytes=ROOT_SIZE_MAX_BYTES)
    with refusing():
        return TrustRoot.from_json(value)


def _parse_envelope(data: bytes) -> RootFile:
    envelope = parse_envelope(data, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
    return RootFile(_parse_root(envelope.payload), envelope)


def one_root(path: Path) -> RootFile:
    """The only root of a file."""
    files = read_root_file(path)
    if len(files) != 1:
        raise Code.TRUST_ROOT_SEVERAL(f"{path} holds several trust roots", got=str(len(files)))
    return files[0]


@root_group.command("new", short_help="Make the first trust root from public keys.")
@json_option
@click.argument("spec", type=PlaceType(), metavar="KEYS.toml")
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help=_OUT_HELP)
def root_new(*, as_json: bool, spec: Path, out: Path) -> None:
    """Make the draft of trust root 1 from the public keys that KEYS.toml names.

    The hash it prints is what readers pin; signatures do not change it.

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
      valid_until = 2027-11-14         # default: with the root

    \b
    Examples:
      pvdm keys root new keys.toml --out root-1.draft
    """
    require_new(out)
    now = now_micros()
    found = read_spec(spec, now=now)
    if found.expires_at is None:
        raise Code.ROOT_SPEC_INVALID(f"{spec}: a root ends", got="none")
    keys = _ordered(found.keys)
    thresholds = Thresholds(found.notary_threshold or 1, found.root_threshold or 1)
    root = TrustRoot(1, None, now, found.expires_at, keys, thresholds)
    _write_draft(root, out, as_json=as_json)


@root_group.command("next", short_help="Make the successor of a trust root.")
@json_option
@click.argument("current", type=PlaceType(), metavar="ROOT")
@click.option("--add", type=PlaceType(), metavar="KEYS.toml", help="Keys that join.")
@click.option("--revoke", multiple=True, metavar="KEY_ID", help="A key that is trusted no more from now on.")
@click.option("--remove", multiple=True, metavar="KEY_ID", help="A key that the successor no longer names.")
@click.option("--extend", multiple=True, metavar="KEY_ID=TIME", help="A key that stays valid until then.")
@click.option("--expires", type=TimeType(), metavar="TIME", help="The end of the successor.  [default: as long again]")
@click.option("--notary-threshold", type=click.IntRange(1), metavar="K", help="Notaries that a proof needs.")
@click.option("--root-threshold", type=click.IntRange(1), metavar="K", help="Signers that a root needs.")
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help=_OUT_HELP)
def root_next(*, as_json: bool, current: Path, out: Path, **asked: Any) -> None:
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
    _write_draft(_successor(_newest(current, now), now, **asked), out, as_json=as_json)


def _newest(path: Path, now: int) -> TrustRoot:
    """The newest root of the chain, its steps checked; one that has expired can still be followed."""
    chain = read_chain(path)
    root = pin_root(chain[0], sha256=first_sha256(chain), now=now)
    for data in chain[1:]:
        root = advance_root(root, data, now=now)
    return root


def _successor(
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
    for name in revoke:
        key = _key_of(root, name)
        keys[key.key_id] = key if key.revoked_at is not None else replace(key, revoked_at=now)
    for text in extend:
        name, _, when = text.partition("=")
        key = _key_of(root, name)
        keys[key.key_id] = replace(keys[key.key_id], valid_until=TimeType().convert(when, None, None))
    for name in remove:
        del keys[_key_of(root, name).key_id]
    end = expires if expires is not None else now + (root.expires_at - root.issued_at)
    spec = None if add is None else read_spec(add, now=now, expires_at=end)
    joined = [*keys.values(), *(() if spec is None else spec.keys)]
    return TrustRoot(
        root.version + 1,
        root.sha256,
        now,
        end,
        _ordered(tuple(joined)),
        Thresholds(notary_threshold or root.notary_threshold, root_threshold or root.root_threshold),
    )


def _key_of(root: TrustRoot, name: str) -> RootKey:
    found = [key for key in root.keys if len(name) >= 8 and key.key_id.startswith(name)]
    if len(found) != 1:
        raise Code.ROOT_KEY_UNKNOWN(
            f"version {root.version} has no such key",
            got=name[:80] if not found else f"{len(found)} keys that begin with {name[:80]}",
        )
    return found[0]


def _ordered(keys: tuple[RootKey, ...]) -> tuple[RootKey, ...]:
    return tuple(sorted(keys, key=lambda key: key.key_id))


def _write_draft(root: TrustRoot, out: Path, *, as_json: bool) -> None:
    write_new(out, root.to_bytes())
    if as_json:
        say_json({"draft": str(out), **root_to_json(RootFile(root, None))})
        return
    for line in root_lines(RootFile(root, None), now=now_micros()):
        say(line)
    say()
    say(f"draft: {out}")
    say(f"hint: `pvdm keys root sign {out} --key FILE --out FILE`, once for each signer")


@root_group.command("sign", short_help="Add one signature to a trust root.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@click.option("--key", "key_file", type=PlaceType(), required=True, metavar="FILE", help="The signer's private key.")
@passphrase_option(OPENING)
@click.option("--previous", type=PlaceType(), metavar="ROOT", help="The root before, where it alone names the signer.")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help=_OUT_HELP)
def root_sign(
    *, as_json: bool, file: Path, key_file: Path, where: str | None, previous: Path | None, yes: bool, out: Path
) -> None:
    """Show a draft, or a root that others signed already, and add your signature.

    Read what is shown: with your signature others will trust these keys. A second run with the same key changes
    nothing.

    \b
    Examples:
      pvdm keys root sign root-1.draft --key alice.pem --out root-1.alice
      pvdm keys root sign root-2.draft --key carol.pem --previous root-1.json --out root-2.carol
    """
    found = one_root(file)
    signer = open_key(key_file, where)
    key_id = signer.public.key_id
    _require_root_signer(key_id, found.root, previous)
    before = () if found.envelope is None else found.envelope.signatures
    if _signed_before(out, found.root, {each.key_id for each in before} | {key_id}):
        _tell_signed(one_root(out), out, as_json=as_json)
        return
    require_new(out)
    if not yes:
        require_yes("sign this trust root?", [(line, None) for line in root_lines(found, now=now_micros())])
    signatures = {each.key_id: each for each in before}
    if key_id not in signatures:
        signatures[key_id] = seal(found.root.to_bytes(), signer, payload_type=TRUST_ROOT_TYPE).signature
    ordered: tuple[Signature, ...] = tuple(signatures[each] for each in sorted(signatures))
    envelope = Envelope(TRUST_ROOT_TYPE, found.root.to_bytes(), ordered)
    write_new(out, envelope.to_bytes())
    _tell_signed(RootFile(found.root, envelope), out, as_json=as_json)


def _require_root_signer(key_id: str, root: TrustRoot, previous: Path | None) -> None:
    roots = [root, *(() if previous is None else [file.root for file in read_root_file(previous)])]
    for each in roots:
        key = each.find(key_id)
        if key is not None and RootRole.ROOT in key.roles:
            return
    raise Code.ROOT_SIGNER_UNKNOWN(
        expected=f"a root signer of version {root.version}, or of the one before (--previous)", got=key_id
    )


def _signed_before(out: Path, root: TrustRoot, signers: set[str]) -> bool:
    """Whether the result of this very command is there already."""
    if not out.exists():
        return False
    try:
        found = one_root(out)
    except PvdmError:
        return False  # something else, which is not written over
    envelope = found.envelope
    same = envelope is not None and {each.key_id for each in envelope.signatures} == signers
    return found.root == root and same and all(each["holds"] is not False for each in found.signatures())


def _tell_signed(file: RootFile, out: Path, *, as_json: bool) -> None:
    if as_json:
        say_json({"signed": str(out), **root_to_json(file)})
        return
    say(f"signed: {out}, trust root version {file.root.version}")
    say(f"sha256: {file.root.sha256}")
    missing = file.root.root_threshold - len(file.signers())
    if missing > 0:
        say(f"hint: {missing} more of its own root signers must sign")
    elif file.root.version == 1:
        say(f"hint: complete; readers pin it with --root-sha256 {file.root.sha256}")
    else:
        say("hint: complete by its own signers; `pvdm keys root check OLD NEW` tells whether the old ones agree")


@root_group.command("show", short_help="Show a trust root in words.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
def root_show(*, as_json: bool, file: Path) -> None:
    """Show a draft, a root or a chain of roots in words. Shows, and judges nothing: `check` does.

    \b
    Examples:
      pvdm keys root show root-1.draft
      pvdm keys root show roots.json --json | jq '.roots[-1].keys[].identity'
    """
    files = read_root_file(file)
    if as_json:
        say_json({"roots": [root_to_json(each) for each in files]})
        return
    for number, each in enumerate(files):
        if number:
            say()
        for line in root_lines(each, now=now_micros()):
            say(line)


@root_group.command("check", short_help="Check a chain of trust roots against a pinned hash.")
@json_option
@click.argument("files", type=PlaceType(), nargs=-1, required=True, metavar="FILE...")
@pin_option
@seen_option
@at_option
@click.option("--out", type=PlaceType(), metavar="FILE", help="Write the whole chain as one file.")
def root_check(
    *, as_json: bool, files: tuple[Path, ...], pin: str | None, seen: Path | None, at: int | None, out: Path | None
) -> None:
    """Check that each root follows the one before, from the pinned first to the newest.

    \b
    Examples:
      pvdm keys root check root-1.json --root-sha256 HEX
      pvdm keys root check root-1.json root-2.json --root-sha256 HEX --out roots.json
    """
    if seen is not None and pin is None:
        raise click.UsageError("--seen needs --root-sha256: an unpinned root is not worth remembering")
    chain = tuple(envelope for path in files for envelope in read_chain(path))
    root = follow(chain, pin=pin, at=now_micros() if at is None else at, seen=seen)
    if out is not None:
        write_new(out, write_chain(chain))
    if pin is None:
        notice(FAITH)
    if as_json:
        say_json(
            {
                "version": root.version,
                "sha256": root.sha256,
                "first_sha256": first_sha256(chain),
                "pinned": pin is not None,
                "expires_at": root.expires_at,
                "roots": len(chain),
            }
        )
        return
    count = "one trust root" if len(chain) == 1 else f"{len(chain)} trust roots"
    say(f"holds: {count}, the newest is version {root.version}", style="green")
    say(f"  first    {first_sha256(chain)}{' (pinned)' if pin else ' (NOT pinned: not verified)'}")
    say(f"  newest   {root.sha256}")
    say(f"  expires  {utc(root.expires_at)}")
