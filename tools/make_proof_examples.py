"""Writes spec/examples: a real envelope of every kind, trust roots and bundles, signed with published test keys.

Run it from the root of the repository: `python -m tools.make_proof_examples`; `--check` compares only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pvdm.model.statements.proof import Proof
from pvdm.trust.envelope import Envelope
from pvdm.trust.root import sign_root
from pvdm.trust.verify import sign_statement
from tools.hostile_others import BUNDLE, FAIL_BUNDLE
from tools.proof_kit import (
    ATTESTATION,
    CLAIM_RELEASE,
    CORE,
    EPOCH_STATEMENT,
    FAIL_PROOF,
    MIGRATION,
    NAMESPACE_PROTECTION,
    NEXT_ROOT,
    OVERRIDE,
    PROOF,
    PROTECTION,
    RECEIPT,
    RESTORE,
    ROOT,
    SIGNERS,
    WORKLOAD,
    notary_part,
)

EXAMPLES: Final = Path(__file__).parents[1] / "spec" / "examples"


def envelopes() -> dict[str, Envelope]:
    """The envelopes by the name of their file."""
    a, tom = SIGNERS["notary-a"], SIGNERS["operator-tom"]
    root_signers = [SIGNERS["root-one"], SIGNERS["root-two"]]
    return {
        "proof.json": sign_statement(PROOF, a),
        "proof-second-notary.json": sign_statement(Proof(CORE, notary_part("notary-b")), SIGNERS["notary-b"]),
        "proof-fail.json": sign_statement(FAIL_PROOF, a),
        "receipt.json": sign_statement(RECEIPT, a),
        "workload.json": sign_statement(WORKLOAD, a),
        "migration.json": sign_statement(MIGRATION, tom),
        "protection.json": sign_statement(PROTECTION, tom),
        "protection-namespace.json": sign_statement(NAMESPACE_PROTECTION, tom),
        "claim-release.json": sign_statement(CLAIM_RELEASE, tom),
        "break-glass.json": sign_statement(OVERRIDE, SIGNERS["operator-ruth"]),
        "source-attestation.json": sign_statement(ATTESTATION, SIGNERS["source-payments"]),
        "epoch.json": sign_statement(EPOCH_STATEMENT, a),
        "restore.json": sign_statement(RESTORE, a),
        "trust-root-1.json": sign_root(ROOT, root_signers),
        "trust-root-2.json": sign_root(NEXT_ROOT, root_signers),
    }


def files() -> dict[str, bytes]:
    """The bytes of each file by its name; `payloads/` has the envelopes' payloads as indented JSON."""
    made: dict[str, bytes] = {}
    for name, envelope in envelopes().items():
        made[name] = envelope.to_bytes()
        shown = json.dumps(json.loads(envelope.payload), indent=2, ensure_ascii=False)
        made[f"payloads/{name}"] = f"{shown}\n".encode()
    made["bundle.json"] = BUNDLE
    made["bundle-fail.json"] = FAIL_BUNDLE
    keys = {name: signer.public.to_pem().decode() for name, signer in SIGNERS.items()}
    note = "Public halves of the test keys; the private ones follow from their names, see tools/proof_kit.py."
    made["test-keys.json"] = json.dumps({"note": note, "pin": ROOT.sha256, "keys": keys}, indent=2).encode() + b"\n"
    return made


def stale() -> Iterator[str]:
    """A sentence for each committed file that is missing, differs, or is not made by this tool."""
    made = files()
    for name, data in made.items():
        if not (EXAMPLES / name).exists():
            yield f"{name} is not there"
        elif (EXAMPLES / name).read_bytes() != data:
            yield f"{name} is not what this tool writes"
    for path in sorted(EXAMPLES.rglob("*.json")):
        if str(path.relative_to(EXAMPLES)) not in made:
            yield f"{path.name} is not made by this tool"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the examples, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    if parser.parse_args(arguments).check:
        wrong = list(stale())
        print("\n".join(wrong) or f"{len(files())} files are as this tool writes them")
        return 1 if wrong else 0
    for name, data in files().items():
        path = EXAMPLES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    print(f"{len(files())} files in {EXAMPLES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
