"""Spark sessions with catalogs of a Steward, pvdm's service. No other module starts Spark."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pvdm.errors import Code
from pvdm.model.secret import Secret

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from pyspark.sql import SparkSession

ICEBERG_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AWS_BUNDLE: Final = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
"""Iceberg's client of object stores, for sessions with tables in an object store."""
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_CATALOG_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED_CATALOG_NAMES: Final = frozenset({"spark_catalog", "system"})
_PACKAGES_SETTING: Final = "spark.jars.packages"
_CONNECT_MODULE: Final = "pyspark.sql.connect"
_JAVA_LEAST: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(\d+)')


@dataclass(frozen=True, slots=True)
class SparkCatalog:
    """A catalog of a session, as in `select * from NAME.namespace.table`, with the rights of one token.

    With a `token_id`, Iceberg's client exchanges the token for short-lived tokens and renews these. Without one, as for
    the token of an attempt (one try to publish a chunk), the client sends the token itself until the token expires.
    """

    name: str
    uri: str
    token: Secret
    token_id: str | None = None

    def __post_init__(self) -> None:
        if not _CATALOG_NAME.fullmatch(self.name) or self.name.lower() in _RESERVED_CATALOG_NAMES:
            raise Code.IDENTIFIER_INVALID(reason="spark_catalog_name", got=ascii(self.name)[:80])

    @property
    def secret_setting(self) -> str:
        """The name of the setting that holds the secret."""
        return f"spark.sql.catalog.{self.name}.{'token' if self.token_id is None else 'credential'}"

    def settings(self) -> dict[str, str]:
        """Spark's settings for this catalog."""
        prefix, secret = f"spark.sql.catalog.{self.name}", self.token.reveal().decode("ascii")
        settings = {
            prefix: CATALOG_CLASS,
            f"{prefix}.type": "rest",
            f"{prefix}.uri": self.uri,
            f"{prefix}.rest.auth.type": "oauth2",
            f"{prefix}.oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
            # Without a cache, changes by other processes are visible at once.
            f"{prefix}.cache-enabled": "false",
        }
        if self.token_id is not None:
            return settings | {self.secret_setting: f"{self.token_id}:{secret}"}
        # A token without an id cannot be renewed: each try would only log a refusal.
        return settings | {self.secret_setting: secret, f"{prefix}.token-refresh-enabled": "false"}


def spark_session(
    catalogs: Sequence[SparkCatalog],
    *,
    app_name: str = "pvdm",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    object_store: bool = False,
    ca_file: Path | None = None,
) -> SparkSession:
    """A session with these catalogs: the running one if there is one, else a new one.

    Raises if the running session has no Iceberg, or other settings than `config`.
    Spark downloads Iceberg's runtime unless `config` names jars or packages that have it. With `object_store` the same
    holds for Iceberg's S3 client. With `ca_file` a new session also trusts these certificate authorities; a running
    session keeps its own.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Code.DEPENDENCY_MISSING(reason="spark_missing", got="none") from None
    wanted = dict(config or {})
    _require_classic(wanted)
    spark = SparkSession.getActiveSession()
    if spark is None:
        _require_java()
        builder = SparkSession.builder.appName(app_name)
        if master is not None:
            builder = builder.master(master)
        settings = _new_session_settings(wanted, object_store=object_store)
        if ca_file is not None:
            settings = with_trust_store(settings, ca_file)
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    else:
        _require_same(spark, wanted, master)
    for catalog in catalogs:
        # Not with the builder, which would put the token on the command line of Spark's Java process.
        add_catalog(spark, catalog)
    return spark


def running_session() -> SparkSession | None:
    """The Spark session that runs in this process, or None. Each thread sees it, also one that has not used it yet."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith(_CONNECT_MODULE)


def add_catalog(spark: SparkSession, catalog: SparkCatalog) -> None:
    """Add a catalog to a running session, unless it is there. Raises if another catalog has the name."""
    if is_remote(spark):
        raise Code.SPARK_CONNECT_UNSUPPORTED(got="Spark Connect")
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if EXTENSIONS not in extensions:
        raise Code.SPARK_SESSION_DIFFERS(reason="spark_without_iceberg", expected=EXTENSIONS, got=extensions or "none")
    if all(spark.conf.get(key, None) == value for key, value in catalog.settings().items()):
        return
    if spark.conf.get(f"spark.sql.catalog.{catalog.name}", None) is not None:
        expected = f"a name that is free, for {catalog.uri}"
        raise Code.SPARK_SESSION_DIFFERS(reason="spark_catalog_taken", expected=expected, got=catalog.name)
    # Spark's event log hides a secret of the session only if the context's configuration has a setting of this name.
    spark.sparkContext._jsc.sc().conf().set(catalog.secret_setting, "kept by the session")
    for key, value in catalog.settings().items():
        spark.conf.set(key, value)


def remove_catalog(spark: SparkSession, catalog: SparkCatalog) -> None:
    """Remove a catalog's settings with its token from a running session."""
    for key in catalog.settings():
        spark.conf.unset(key)


def _require_java() -> None:
    """Raise unless the Java that PySpark starts is new enough for Spark 4."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    output = ""
    if java is not None:
        with contextlib.suppress(OSError):
            # Java prints to standard error, for example: openjdk version "17.0.15" 2025-04-15
            output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = _JAVA_VERSION.search(output)
    if found is None or int(found[1]) < _JAVA_LEAST:
        expected = f"Java {_JAVA_LEAST} or newer, by JAVA_HOME or on the path"
        got = "none" if found is None else f"Java {found[1]}"
        raise Code.DEPENDENCY_MISSING(reason="java_missing", expected=expected, got=got)


def _new_session_settings(given: Mapping[str, str], *, object_store: bool = False) -> dict[str, str]:
    """The settings of a new session: the caller's, with Iceberg's extensions and runtime."""
    settings = dict(given)
    extensions = given.get("spark.sql.extensions", "")
    if EXTENSIONS not in extensions:
        settings["spark.sql.extensions"] = _join(",", extensions, EXTENSIONS)
    packages = {"iceberg-spark-runtime": ICEBERG_RUNTIME}
    if object_store:
        packages["iceberg-aws-bundle"] = AWS_BUNDLE
    for name, package in packages.items():
        if name not in settings.get(_PACKAGES_SETTING, "") and name not in given.get("spark.jars", ""):
            settings[_PACKAGES_SETTING] = _join(",", settings.get(_PACKAGES_SETTING), package)
    return settings


def _require_same(spark: SparkSession, wanted: Mapping[str, str], master: str | None) -> None:
    """Raise unless the session has these settings: a running session would ignore most of them."""
    master_setting = {} if master is None else {"spark.master": master}
    for key, value in {**wanted, **master_setting}.items():
        found = spark.conf.get(key, None)
        is_list = key in (_PACKAGES_SETTING, "spark.sql.extensions")
        if found != value and not (is_list and value in (found or "")):
            words, got = f"a Spark session is running with another {key}", "none" if found is None else found[:200]
            raise Code.SPARK_SESSION_DIFFERS(words, reason="spark_settings_differ", expected=value[:200], got=got)


def _require_classic(config: Mapping[str, str]) -> None:
    """Raise if environment or settings ask for Spark Connect."""
    remote = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & set(os.environ)
    if remote or "spark.remote" in config or config.get("spark.api.mode") == "connect":
        raise Code.SPARK_CONNECT_UNSUPPORTED(got="Spark Connect")


# Not a secret: a trust store holds public certificates only. Java needs a password; Java's own store has the same one.
_TRUST_STORE_PASSWORD: Final = "changeit"  # noqa: S105
_TRUST_STORE_NAME: Final = "pvdm-trust.p12"
_DRIVER_OPTIONS_SETTING: Final = "spark.driver.defaultJavaOptions"
_EXECUTOR_OPTIONS_SETTING: Final = "spark.executor.defaultJavaOptions"
_FILES_SETTING: Final = "spark.files"
CA_FILE_MAX_BYTES: Final = 16 * 1024 * 1024


def with_trust_store(config: Mapping[str, str], ca_file: Path) -> dict[str, str]:
    """Write a trust store. Returns settings with which driver and executors also trust the authorities in `ca_file`.

    The settings have an effect only when Java starts. Of equal options Java uses the last: the caller's.
    The store is removed when this process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="pvdm-trust-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = folder / _TRUST_STORE_NAME
    store.write_bytes(make_trust_store(ca_file))
    return {
        **config,
        _DRIVER_OPTIONS_SETTING: _join(" ", _java_options(str(store)), config.get(_DRIVER_OPTIONS_SETTING)),
        # Spark copies the file to the working folder of each executor.
        _EXECUTOR_OPTIONS_SETTING: _join(" ", _java_options(_TRUST_STORE_NAME), config.get(_EXECUTOR_OPTIONS_SETTING)),
        _FILES_SETTING: _join(",", config.get(_FILES_SETTING), str(store)),
    }


def make_trust_store(ca_file: Path) -> bytes:
    """A PKCS#12 trust store of the system's certificate authorities and those of a PEM file."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

    # By their bytes, so that the store has each certificate once.
    by_bytes = {each.public_bytes(Encoding.DER): each for each in (*_system_certificates(), *_certificates(ca_file))}
    entries = [pkcs12.PKCS12Certificate(each, f"ca-{i}".encode()) for i, each in enumerate(by_bytes.values())]
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_TRUST_STORE_PASSWORD.encode()))


def _certificates(ca_file: Path) -> list[Certificate]:
    from cryptography import x509

    try:
        with ca_file.open("rb") as file:
            pem = file.read(CA_FILE_MAX_BYTES + 1)
        if len(pem) > CA_FILE_MAX_BYTES:
            raise ValueError
        return x509.load_pem_x509_certificates(pem)
    except (OSError, ValueError):
        words = "the file of certificate authorities cannot be used"
        expected, got = f"certificates in PEM form, at most {CA_FILE_MAX_BYTES:,} bytes", ascii(str(ca_file))[:200]
        raise Code.CLIENT_SETTING_INVALID(words, reason="ca_file_invalid", expected=expected, got=got) from None


def _system_certificates() -> list[Certificate]:
    """The certificates that Python trusts by default, without those that cannot be read."""
    from cryptography import x509
    from cryptography.utils import CryptographyDeprecationWarning

    found: list[Certificate] = []
    with warnings.catch_warnings():
        # Some old certificates have serial numbers that a later version will not read.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for each in ssl.create_default_context().get_ca_certs(binary_form=True):
            with contextlib.suppress(ValueError):
                found.append(x509.load_der_x509_certificate(each))
    return found


def _java_options(store: str) -> str:
    options = {"trustStore": store, "trustStoreType": "PKCS12", "trustStorePassword": _TRUST_STORE_PASSWORD}
    return " ".join(f"-Djavax.net.ssl.{name}={value}" for name, value in options.items())


def _join(separator: str, *settings: str | None) -> str:
    """Join the settings that are not empty."""
    return separator.join(filter(None, settings))


# The beginning of the first line of py4j's messages. This line only names the call.
PY4J_CALL_PREFIX: Final = "An error occurred while calling "
_CAUSE: Final = "Caused by: "
_PACKAGE: Final = re.compile(r"(?:[a-z_][\w$]*\.)+(?=[A-Z])")
_CAUSE_MAX_CHARACTERS: Final = 400


def cause_of(error: BaseException) -> str:
    """The deepest cause in a Java stack trace, or the first line of the message, shortened for an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    others = [line.removeprefix(":").strip() for line in lines if not line.startswith(PY4J_CALL_PREFIX)]
    candidates = causes[-1:] or others or [type(error).__name__]
    return _PACKAGE.sub("", candidates[0], count=1)[:_CAUSE_MAX_CHARACTERS]
