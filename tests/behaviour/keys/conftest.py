"""The three key homes: a keystore file, moto's KMS on a loopback port, a SoftHSM2 token in a temporary folder."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm.trust.keys.kms import KmsSettings, open_kms_keys
from pvdm.trust.keys.pkcs11 import Pkcs11Settings, open_pkcs11_keys
from pvdm.trust.keys.public import Algorithm
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import KeyService
from tests.support.services import require
from tests.support.steward.epoch_file import FileEpochStore
from tests.support.steward.keys import keystore

PIN = "734512"
REGION = "eu-west-1"
LIBRARIES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
)


@dataclass(frozen=True)
class Token:
    library: str
    label: str = "pvdm-test"

    def settings(self, algorithm: Algorithm = Algorithm.ED25519) -> Pkcs11Settings:
        return Pkcs11Settings(self.library, self.label, algorithm)


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Token]:
    """One token for the whole run: the library reads its configuration once a process."""
    require(importlib.util.find_spec("pkcs11"), "python-pkcs11 is not installed (keys in a token are not tested)")
    library = next((path for path in LIBRARIES if Path(path).exists()), None)
    require(library and shutil.which("softhsm2-util"), "SoftHSM2 is not installed (keys in a token are not tested)")
    assert library is not None
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    configuration = folder / "softhsm2.conf"
    configuration.write_text(
        f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\nlog.level = ERROR\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(configuration))
        command = ["softhsm2-util", "--init-token", "--free", "--label", Token(library).label]
        subprocess.run([*command, "--so-pin", "87654321", "--pin", PIN], check=True, capture_output=True)
        yield Token(library)


@pytest.fixture(scope="session")
def kms_endpoint() -> Iterator[str]:
    """moto's server in this process, so that its backend's key material can be read."""
    require(importlib.util.find_spec("boto3"), "boto3 is not installed (keys in KMS are not tested)")
    require(importlib.util.find_spec("moto"), "moto is not installed (keys in KMS are not tested)")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()


@pytest.fixture
def kms_keys(tmp_path: Path, kms_endpoint: str) -> Iterator[KeyService]:
    settings = KmsSettings(REGION, kms_endpoint)
    service = open_kms_keys(settings, FileEpochStore.create(tmp_path / "kms-book"))
    yield activate_first_epoch(service)
    service.close()


@pytest.fixture(params=Algorithm, ids=lambda algorithm: str(algorithm.value))
def token_keys(tmp_path: Path, token: Token, request: pytest.FixtureRequest) -> Iterator[KeyService]:
    store = FileEpochStore.create(tmp_path / "token-book")
    service = open_pkcs11_keys(token.settings(request.param), Passphrase(PIN), store)
    yield activate_first_epoch(service)
    service.close()


@pytest.fixture(params=["file", "kms", "token-ed25519", "token-p256"])
def keys(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KeyService]:
    """A key service on each home in turn."""
    homes: dict[str, Callable[[], KeyService]] = {
        "file": lambda: keystore(tmp_path / "keys"),
        "kms": lambda: _open_kms(tmp_path, request),
        "token-ed25519": lambda: _open_token(tmp_path, request, Algorithm.ED25519),
        "token-p256": lambda: _open_token(tmp_path, request, Algorithm.ECDSA_P256),
    }
    service = homes[request.param]()
    yield service
    service.close()


def _open_kms(folder: Path, request: pytest.FixtureRequest) -> KeyService:
    settings = KmsSettings(REGION, request.getfixturevalue("kms_endpoint"))
    return activate_first_epoch(open_kms_keys(settings, FileEpochStore.create(folder / "book")))


def _open_token(folder: Path, request: pytest.FixtureRequest, algorithm: Algorithm) -> KeyService:
    settings = request.getfixturevalue("token").settings(algorithm)
    return activate_first_epoch(open_pkcs11_keys(settings, Passphrase(PIN), FileEpochStore.create(folder / "book")))


def activate_first_epoch(service: KeyService) -> KeyService:
    service.create_epoch("first")
    service.activate_epoch(1, "first")
    return service
