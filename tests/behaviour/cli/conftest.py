"""Fixtures of the command line's tests: a command run in this process, a served Steward, keys of example signers."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pvdm.cli import main
from pvdm.trust.keys.public import Algorithm
from tests.behaviour.cli.house import House, open_house
from tests.behaviour.cli.served import ServedSteward, serve_steward
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.servers.starter import Starter, running_starter
from tools.proof_kit import NOW, SIGNERS

LOGGERS = ("pvdm.steward", "uvicorn.error", "asyncio")


@pytest.fixture
def pvdm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in the test's own folder, without the caller's `PVDM_` variables."""
    for logger in map(logging.getLogger, LOGGERS):  # `steward serve` has them write to this test's standard error
        for name in ("handlers", "level", "propagate"):
            monkeypatch.setattr(logger, name, getattr(logger, name))
    for name in [name for name in os.environ if name.startswith("PVDM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> CommandResult:
        capsys.readouterr()
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return CommandResult(code, shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Starts processes without loading `pvdm` for each."""
    with running_starter(tmp_path_factory.mktemp("starter")) as made:
        yield made


@pytest.fixture
def at_examples_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands' clock shows the time at which the examples were made."""
    monkeypatch.setattr("pvdm.cli.common.times._nanos", lambda: NOW * 1_000)


@pytest.fixture
def steward(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_examples_time: None
) -> Iterator[ServedSteward]:
    """A running Steward whose clock, like the commands', shows the examples' time."""
    with serve_steward(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def example_key(tmp_path: Path) -> Callable[[str], Path]:
    """Writes the published private key of an example signer, as its owner would have it."""

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.pem"
        seed = hashlib.sha256(f"pvdm test key {name}".encode()).digest()
        key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
        if SIGNERS[name].public.algorithm is Algorithm.ED25519:
            key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        else:
            key = ec.derive_private_key(int.from_bytes(seed, "big") >> 1, ec.SECP256R1())
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def house(
    pvdm: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_examples_time: None,
    example_key: Callable[[str], Path],
) -> Iterator[House]:
    """A served Steward with the table `sales.orders`, whose clock shows the examples' time."""
    with open_house(pvdm, tmp_path, monkeypatch, example_key) as made:
        yield made
