"""Trust in certificate authorities for Spark's Java: a PKCS#12 trust store made from PEM files."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import ssl
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pvdm.errors import Code

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# A trust store holds public certificates: Java wants a password, and its own store has this one.
_PASSWORD: Final = "changeit"  # noqa: S105
_NAME: Final = "pvdm-trust.p12"
_DRIVER: Final = "spark.driver.defaultJavaOptions"
_EXECUTOR: Final = "spark.executor.defaultJavaOptions"
_FILES: Final = "spark.files"
CA_FILE_MAX_BYTES: Final = 16 * 1024 * 1024


def trusting(config: Mapping[str, str], ca_file: Path) -> dict[str, str]:
    """Settings of Spark with which driver and executors trust these authorities besides the system's.

    They count only when Java starts. Options of the caller come later on Java's command line, so that a trust store of
    the caller's own wins. The store is removed when this process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="pvdm-trust-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = folder / _NAME
    store.write_bytes(trust_store(ca_file))
    return {
        **config,
        _DRIVER: _joined(config.get(_DRIVER), _options(str(store))),
        # Spark brings the file to the folder that an executor works in.
        _EXECUTOR: _joined(config.get(_EXECUTOR), _options(_NAME)),
        _FILES: ",".join(each for each in (config.get(_FILES), str(store)) if each),
    }


def trust_store(ca_file: Path) -> bytes:
    """The system's certificate authorities and those of a PEM file, as Java reads them."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

    found = {each.public_bytes(Encoding.DER): each for each in (*_system(), *_certificates(ca_file))}
    entries = [pkcs12.PKCS12Certificate(each, f"ca-{at}".encode()) for at, each in enumerate(found.values())]
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_PASSWORD.encode()))


def _certificates(ca_file: Path) -> list[Certificate]:
    from cryptography import x509

    try:
        with ca_file.open("rb") as file:
            return x509.load_pem_x509_certificates(file.read(CA_FILE_MAX_BYTES))
    except (OSError, ValueError):
        raise Code.CA_FILE_INVALID(
            "the file of certificate authorities cannot be used",
            expected="certificates in PEM form",
            got=ascii(str(ca_file))[:200],
        ) from None


def _system() -> list[Certificate]:
    """The certificates that Python trusts by default; one that cannot be read is left out."""
    from cryptography import x509
    from cryptography.utils import CryptographyDeprecationWarning

    found: list[Certificate] = []
    with warnings.catch_warnings():
        # Some old authorities number their certificates in ways that a later version will not read.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for each in ssl.create_default_context().get_ca_certs(binary_form=True):
            with contextlib.suppress(ValueError):
                found.append(x509.load_der_x509_certificate(each))
    return found


def _options(store: str) -> str:
    wanted = {"trustStore": store, "trustStoreType": "PKCS12", "trustStorePassword": _PASSWORD}
    return " ".join(f"-Djavax.net.ssl.{name}={value}" for name, value in wanted.items())


def _joined(given: str | None, added: str) -> str:
    """The caller's options last: of two, Java takes the later."""
    return f"{added} {given}" if given else added
