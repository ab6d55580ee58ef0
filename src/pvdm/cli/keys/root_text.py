"""A trust root in words: who is trusted for what, until when, and who signed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pvdm.cli.common.times import utc
from pvdm.errors import PvdmError
from pvdm.trust.envelope import TRUST_ROOT_TYPE, Envelope, pae, require_signature
from pvdm.trust.log.note import NoteKey
from pvdm.trust.root import RootKey, RootRole, TrustRoot


@dataclass(frozen=True, slots=True)
class RootFile:
    """A root as it travels: the document, and the signatures it has so far."""

    root: TrustRoot
    envelope: Envelope | None

    def signatures(self) -> list[dict[str, object]]:
        """Each signature with its signer, where the root itself names one, and whether it holds."""
        return (
            []
            if self.envelope is None
            else [self._signature(each.key_id, each.value) for each in self.envelope.signatures]
        )

    def _signature(self, key_id: str, value: bytes) -> dict[str, object]:
        key = self.root.find(key_id)
        if key is None or RootRole.ROOT not in key.roles:
            return {"key_id": key_id, "identity": None, "holds": None}
        try:
            require_signature(key.public, value, pae(TRUST_ROOT_TYPE, self.root.to_bytes()))
        except PvdmError:
            return {"key_id": key_id, "identity": key.identity, "holds": False}
        return {"key_id": key_id, "identity": key.identity, "holds": True}

    def signers(self) -> set[str]:
        """The distinct root signers of this very root whose signatures hold."""
        return {str(each["identity"]) for each in self.signatures() if each["holds"]}


def root_to_json(file: RootFile) -> dict[str, object]:
    """The root for programs."""
    root = file.root
    return {
        "version": root.version,
        "sha256": root.sha256,
        "previous_sha256": root.previous_sha256,
        "issued_at": root.issued_at,
        "expires_at": root.expires_at,
        "thresholds": {"notary": root.notary_threshold, "root": root.root_threshold},
        "keys": [{**key.to_json(), **_vkey(key)} for key in root.keys],
        "signatures": file.signatures(),
        "complete": len(file.signers()) >= root.root_threshold,
    }


def _vkey(key: RootKey) -> dict[str, object]:
    return {"vkey": NoteKey(key.identity, key.public.der).to_vkey()} if RootRole.LOG in key.roles else {}


def root_lines(file: RootFile, *, now: int) -> Iterator[str]:
    """The root for people."""
    root = file.root
    yield f"trust root, version {root.version}"
    yield f"  sha256     {root.sha256}"
    yield f"  follows    {root.previous_sha256 or 'nothing: it is the first'}"
    yield f"  issued     {utc(root.issued_at)}"
    yield f"  expires    {utc(root.expires_at)}{'  EXPIRED' if root.expires_at <= now else ''}"
    yield f"  a proof    needs {root.notary_threshold} of its notaries"
    yield f"  a root     needs {root.root_threshold} of its root signers"
    for key in sorted(root.keys, key=lambda key: (key.roles[0].value, key.identity, key.key_id)):
        yield ""
        yield from _key_lines(key, now)
    yield ""
    yield from _signature_lines(file)


def _key_lines(key: RootKey, now: int) -> Iterator[str]:
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
        yield f"  vkey       {NoteKey(key.identity, key.public.der).to_vkey()}"


def _signature_lines(file: RootFile) -> Iterator[str]:
    for each in file.signatures():
        words = {True: "holds", False: "DOES NOT HOLD", None: "by a key that this root does not name as a root signer"}
        holds = each["holds"]
        yield f"signature of {each['identity'] or each['key_id']}: {words[holds if isinstance(holds, bool) else None]}"
    missing = file.root.root_threshold - len(file.signers())
    if missing > 0:
        yield f"NOT COMPLETE: {missing} more of its own root signers must sign (`pvdm keys root sign`)"
