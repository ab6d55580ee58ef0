"""The package `pvdm` itself: what importing it loads, how it connects to a Steward, and its offline check of proofs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pvdm
from pvdm.client import StewardClient
from pvdm.errors import InputError, PvdmError, VerificationError
from pvdm.trust.bundle import CheckedBundle
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from pvdm.trust.root import RootRole, TrustedKey, follow_roots
from tools.proof_kit import DAY, NOW, SIGNERS, root_of

EXAMPLES = Path(__file__).parents[3] / "spec" / "examples"
HEAVY = (
    "httpx",
    "httpcore",
    "sqlalchemy",
    "cryptography",
    "pyarrow",
    "fastapi",
    "uvicorn",
    "pydantic",
    "click",
    "rich",
)


def loaded_after(code: str) -> set[str]:
    """The modules that a new process has loaded after it ran this code."""
    code = f"{code}\nimport sys\nprint(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(process.stdout.split())


def test_importing_the_package_loads_nothing_but_itself() -> None:
    found = loaded_after("import pvdm; pvdm.__version__; pvdm.Steward; pvdm.check_proof")
    assert {name for name in found if name.split(".")[0] in {*HEAVY, "pvdm"}} == {"pvdm", "pvdm.version"}


def test_connecting_loads_the_client_but_no_code_of_the_steward() -> None:
    found = loaded_after("import pvdm; pvdm.Steward.connect('https://steward.example', 'pvdm_x')")
    assert "httpx" in found
    packages = {name.split(".")[1] for name in found if name.startswith("pvdm.")}
    assert packages == {"api", "client", "errors", "fault", "model", "version"}


def test_creating_a_steward_directly_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Steward\.embedded"):
        pvdm.Steward()


def test_connect_returns_a_client() -> None:
    with pvdm.Steward.connect("https://steward.example", "pvdm_x") as steward:
        assert type(steward) is StewardClient


BUNDLE = (EXAMPLES / "bundle.json").read_bytes()
CHAIN = tuple((EXAMPLES / f"trust-root-{number}.json").read_bytes() for number in (1, 2))
PIN = parse_envelope(CHAIN[0], payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX).payload_sha256
ROOT = follow_roots(CHAIN, sha256=PIN, now=NOW)


def check_example(**changes: Any) -> CheckedBundle:
    return pvdm.check_proof(**{"bundle": BUNDLE, "trust_root": CHAIN, "pin": PIN, "now": NOW, **changes})


def error_of_example(**changes: Any) -> tuple[type[PvdmError], str]:
    with pytest.raises(PvdmError) as caught:
        check_example(**changes)
    return type(caught.value), caught.value.reason


def test_a_bundle_is_checked_with_a_pinned_chain_or_a_trust_root_object() -> None:
    assert check_example().proof.proof_ids == check_example(trust_root=ROOT, pin=None).proof.proof_ids
    assert check_example().not_proved


def test_a_chain_without_a_pin_is_refused() -> None:
    assert error_of_example(pin=None) == (InputError, "trust_root_pin_missing")


def test_a_chain_with_another_pin_is_refused() -> None:
    assert error_of_example(pin="00" * 32) == (VerificationError, "trust_root_not_pinned")


def test_a_proof_from_the_future_is_refused() -> None:
    assert error_of_example(now=NOW - DAY)[0] is VerificationError


def test_a_proof_with_fewer_notaries_than_the_caller_requires_is_refused() -> None:
    assert error_of_example(threshold=16) == (VerificationError, "threshold_not_met")


def test_a_log_that_the_root_does_not_name_is_refused() -> None:
    assert error_of_example(origin="other.example/log") == (VerificationError, "log_key_missing")


def test_a_root_with_several_logs_needs_an_origin() -> None:
    other = TrustedKey(SIGNERS["source-other"].public, "other.example/log", (RootRole.LOG,), (), NOW - DAY, NOW + DAY)
    mine = [key for key in ROOT.keys if key.key_id != other.key_id]
    both = root_of([*mine, other])
    assert error_of_example(trust_root=both, pin=None) == (InputError, "origin_ambiguous")
