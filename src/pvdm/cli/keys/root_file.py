"""Reads files of trust roots, and shows them as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pvdm.cli.common.files import read_file, require_json
from pvdm.cli.common.times import utc
from pvdm.cli.common.trust_roots import ROOT_CHAIN_SIZE_MAX_BYTES, read_chain
from pvdm.errors import Code, PvdmError
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, Envelope, pae, parse_envelope, require_signature
from pvdm.trust.log.note import NoteKey
from pvdm.trust.refusal import refuse_input_errors
from pvdm.trust.root import ROOT_SIZE_MAX_BYTES, RootRole, TrustedKey, TrustRoot
from pvdm.trust.strict_json import parse_strict


@dataclass(frozen=True, slots=True)
class RootAndEnvelope:
    """A root, and its envelope with the signatures so far; a draft has no envelope."""

    root: TrustRoot
    envelope: Envelope | None

    def signatures(self) -> list[dict[str, object]]:
        """The `key_id`, `identity` and `holds` (is valid) of each signature.

        `identity` and `holds` are None if the key is no root signer of this root.
        """
        checked: list[dict[str, object]] = []
        for signature in () if self.envelope is None else self.envelope.signatures:
            key = self.root.find(signature.key_id)
            if key is None or RootRole.ROOT not in key.roles:
                checked.append({"key_id": signature.key_id, "identity": None, "holds": None})
            else:
                holds = _is_valid(signature.value, key, self.root)
                checked.append({"key_id": signature.key_id, "identity": key.identity, "holds": holds})
        return checked

    def signers(self) -> set[str]:
        """The identities of this root's root signers whose signatures are valid."""
        return {str(each["identity"]) for each in self.signatures() if each["holds"]}


def _is_valid(signature: bytes, key: TrustedKey, root: TrustRoot) -> bool:
    try:
        require_signature(key.public, signature, pae(TRUST_ROOT_TYPE, root.to_bytes()))
    except PvdmError:
        return False
    return True


def read_root_file(path: Path) -> list[RootAndEnvelope]:
    """The roots of a draft, of one envelope or of a chain; only their form is checked."""
    data = read_file(path, size_max_bytes=ROOT_CHAIN_SIZE_MAX_BYTES)
    require_json(path, data, "a trust root, its draft, or a chain of them")
    if data.startswith(b'{"expires_at"'):  # a draft is the canonical JSON of a root, with this first key
        return [RootAndEnvelope(_parse_root(data), None)]
    envelopes = [
        parse_envelope(each, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
        for each in read_chain(path)
    ]
    return [RootAndEnvelope(_parse_root(each.payload), each) for each in envelopes]


def _parse_root(data: bytes) -> TrustRoot:
    value = parse_strict(data, "the trust root", size_max_bytes=ROOT_SIZE_MAX_BYTES)
    with refuse_input_errors():
        return TrustRoot.from_json(value)


def read_single_root(path: Path) -> RootAndEnvelope:
    """The only root of a file. Raises if it has several."""
    found = read_root_file(path)
    if len(found) != 1:
        message = f"{path} holds several trust roots"
        raise Code.INPUT_FILE_INVALID(message, reason="trust_root_several", got=str(len(found)))
    return found[0]


def root_to_json(given: RootAndEnvelope) -> dict[str, object]:
    """The root as JSON. `complete` says whether enough of its own root signers have signed."""
    root = given.root
    return {
        "version": root.version,
        "sha256": root.sha256,
        "previous_sha256": root.previous_sha256,
        "issued_at": root.issued_at,
        "expires_at": root.expires_at,
        "thresholds": {"notary": root.thresholds.notary, "root": root.thresholds.root},
        "keys": [key.to_json() | ({"vkey": _vkey(key)} if RootRole.LOG in key.roles else {}) for key in root.keys],
        "signatures": given.signatures(),
        "complete": len(given.signers()) >= root.thresholds.root,
    }


def _vkey(key: TrustedKey) -> str:
    """The log's public key in the text form of C2SP's signed notes, for other tools that check the log."""
    return NoteKey(key.identity, key.public.der).to_vkey()


def root_lines(given: RootAndEnvelope, *, now: int) -> Iterator[str]:
    """The root as text."""
    root = given.root
    yield f"trust root, version {root.version}"
    yield f"  sha256     {root.sha256}"
    yield f"  follows    {root.previous_sha256 or 'none: it is the first'}"
    yield f"  issued     {utc(root.issued_at)}"
    yield f"  expires    {utc(root.expires_at)}{'  EXPIRED' if root.expires_at <= now else ''}"
    yield f"  a proof    needs {root.thresholds.notary} of its notaries"
    yield f"  a root     needs {root.thresholds.root} of its root signers"
    for key in sorted(root.keys, key=lambda key: (key.roles[0].value, key.identity, key.key_id)):
        yield ""
        yield from _key_lines(key, now)
    yield ""
    for each in given.signatures():
        result = "holds" if each["holds"] else "DOES NOT HOLD"
        if each["holds"] is None:
            result = "by a key that this root does not name as a root signer"
        yield f"signature of {each['identity'] or each['key_id']}: {result}"
    missing = root.thresholds.root - len(given.signers())
    if missing > 0:
        yield f"NOT COMPLETE: {missing} more of its own root signers must sign (`pvdm keys root sign`)"


def _key_lines(key: TrustedKey, now: int) -> Iterator[str]:
    yield f"{', '.join(role.value for role in key.roles)}: {key.identity}"
    yield f"  key id     {key.key_id}"
    yield f"  algorithm  {key.public.algorithm.value}"
    if key.epochs:
        yield f"  epochs     {', '.join(str(epoch) for epoch in key.epochs)}"
    ended = "  EXPIRED" if key.valid_until <= now else ""
    yield f"  valid      {utc(key.valid_from)} until {utc(key.valid_until)}{ended}"
    if key.revoked_at is not None:
        yield f"  REVOKED    {utc(key.revoked_at)}"
    if RootRole.LOG in key.roles:
        yield f"  vkey       {_vkey(key)}"
