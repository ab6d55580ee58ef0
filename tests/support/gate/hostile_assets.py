"""Hostile assets (forged proofs and the like), and the production code that must refuse each, named by its `door`."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.migration import Migration, Protection
from pvdm.trust.approval import verify_approval, verify_override
from pvdm.trust.attestation import verify_attestation
from pvdm.trust.bundle import check_bundle
from pvdm.trust.refusal import refused
from pvdm.trust.root import SeenRoot, follow_roots
from pvdm.trust.verify import VerifiedProof, sign_statement, verify_threshold
from tests.support.gate.example_gate import submit
from tools.proof_kit import FAIL_PROOF, NEXT_ROOT, NOW, PROOF, ROOT, SIGNERS, WANTED

ASSETS: Final = Path(__file__).parents[2] / "assets" / "proofs"


@dataclass(frozen=True, slots=True)
class Asset:
    """One asset, with the manifest's facts: the door that checks it, the expected code, and the circumstances."""

    name: str
    door: str
    code: str
    now: int = NOW
    used: bool = False
    seen: bool = False
    of_pass: bool = False

    @property
    def data(self) -> bytes:
        raw = (ASSETS / self.name).read_bytes()
        return gzip.decompress(raw) if self.name.endswith(".gz") else raw


def manifest() -> list[Asset]:
    """All assets that the manifest lists."""
    entries = json.loads((ASSETS / "manifest.json").read_text())["assets"]
    unused = ("spoils", "sha256")
    return [
        Asset(name, **{key: value for key, value in entry.items() if key not in unused})
        for name, entry in entries.items()
    ]


class EveryLeaf:
    """A log that accepts every inclusion proof, because the tests of the log have their own hostile assets."""

    def require_included(self, entry: bytes, proof_file: bytes) -> None:
        if not entry or not proof_file:
            raise refused("log_proof_malformed", "one", "none")


def verified_fail() -> VerifiedProof:
    return verify_threshold([sign_statement(FAIL_PROOF, SIGNERS["notary-a"]).to_bytes()], ROOT, threshold=1, now=NOW)


def verified_pass() -> VerifiedProof:
    return verify_threshold([sign_statement(PROOF, SIGNERS["notary-a"]).to_bytes()], ROOT, threshold=1, now=NOW)


# Verified once, at import: tests that remove a check do not change the verification of these good proofs.
_FAIL: Final = verified_fail()
_PASS: Final = verified_pass()
_SEEN: Final = SeenRoot(NEXT_ROOT.version, NEXT_ROOT.sha256)


def submit_asset(asset: Asset, data: bytes) -> None:
    """Submit the bytes to the asset's door. Returns if the door accepts them, raises if it refuses them."""
    now = asset.now
    match asset.door:
        case "publish":
            submit([data], now=now, nonce_used=asset.used)
        case "quorum":
            submit(data.splitlines(), now=now, nonce_used=asset.used, notaries=2)
        case "root":
            follow_roots(data.splitlines(), sha256=ROOT.sha256, now=now, seen=_SEEN if asset.seen else None)
        case "override":
            failed = _PASS if asset.of_pass else _FAIL
            verify_override(data, ROOT, failed=failed, now=now, used=lambda _: asset.used)
        case "protection":
            verify_approval(data, ROOT, Protection, now=now)
        case "migration":
            verify_approval(data, ROOT, Migration, now=now)
        case "release":
            verify_approval(data, ROOT, ClaimRelease, now=now)
        case "attestation":
            verify_attestation(data, ROOT, WANTED, now=now)
        case "bundle":
            check_bundle(data, ROOT, EveryLeaf(), threshold=1, now=now)
        case _:
            raise AssertionError(asset.door)
