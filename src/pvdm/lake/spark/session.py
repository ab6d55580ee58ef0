"""Spark sessions that reach tables through a Steward's catalog: Iceberg's runtime and one catalog for each role."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pvdm.errors import Code, InputError
from pvdm.lake.spark.trust_store import trusting
from pvdm.model.secret import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ICEBERG_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AWS_BUNDLE: Final = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
"""Iceberg's way to object stores, for sessions whose tables lie in one."""
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED: Final = frozenset({"spark_catalog", "system"})
_PACKAGES: Final = "spark.jars.packages"
_CONNECT: Final = "pyspark.sql.connect"
_JAVA_LEAST: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(\d+)')
_JAVA_PACKAGES: Final = (
    "Debian, Ubuntu: apt-get install openjdk-17-jre-headless; Fedora: dnf install java-21-openjdk-headless; "
    "macOS: brew install openjdk@17"
)


@dataclass(frozen=True, slots=True)
class SparkCatalog:
    """A catalog as a session names it: `select * from NAME.namespace.table`, with the rights of one token.

    With the token's id Iceberg's client buys short-lived tokens and renews them as long as the token is good. Without
    it, as for a token of one attempt that buys none, the token itself is sent until it ends.
    """

    name: str
    uri: str
    token: Secret
    token_id: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.lower() in _RESERVED:
            raise Code.SPARK_CATALOG_NAME(got=ascii(self.name)[:80])

    @property
    def secret_key(self) -> str:
        """Where Spark keeps the secret."""
        return f"{self._prefix}.{'token' if self.token_id is None else 'credential'}"

    def settings(self) -> dict[str, str]:
        """What Spark is told."""
        return self._open_settings() | {self.secret_key: self._secret()}

    def is_wired(self, spark: SparkSession) -> bool:
        """Whether the session has just this catalog."""
        return all(spark.conf.get(key, None) == value for key, value in self.settings().items())

    @property
    def _prefix(self) -> str:
        return f"spark.sql.catalog.{self.name}"

    def _open_settings(self) -> dict[str, str]:
        prefix = self._prefix
        found = {
            prefix: CATALOG_CLASS,
            f"{prefix}.type": "rest",
            f"{prefix}.uri": self.uri,
            f"{prefix}.rest.auth.type": "oauth2",
            f"{prefix}.oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
            # A table that another process changes is seen at once; a sight is never older than the question.
            f"{prefix}.cache-enabled": "false",
        }
        # A token that buys no other one cannot be renewed: trying would fill the log with refusals.
        return found if self.token_id is not None else found | {f"{prefix}.token-refresh-enabled": "false"}

    def _secret(self) -> str:
        text = self.token.reveal().decode("ascii")
        return text if self.token_id is None else f"{self.token_id}:{text}"


def spark_session(
    catalogs: Sequence[SparkCatalog],
    *,
    app_name: str = "pvdm",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    object_store: bool = False,
    ca_file: Path | None = None,
) -> SparkSession:
    """A session with these catalogs; a running one gets them added if it has Iceberg, and is refused if not.

    Iceberg's runtime comes by Spark's own package mechanism, unless `config` names jars or packages that hold it; with
    `object_store` its way to S3 comes too. With `ca_file` a new session trusts these certificate authorities besides
    the system's; a running one trusts what its Java was started with.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Code.SPARK_MISSING(got="none") from None
    wanted = dict(config or {})
    _require_classic(wanted)
    spark = SparkSession.getActiveSession()
    if spark is None:
        _require_java()
        builder = SparkSession.builder.appName(app_name)
        if master is not None:
            builder = builder.master(master)
        settings = _started(wanted, object_store=object_store)
        if ca_file is not None:
            settings = trusting(settings, ca_file)
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    else:
        _require_same(spark, wanted, master)
    for catalog in catalogs:
        # Not by the builder: what it is told stands on the command line of Spark's process.
        wire(spark, catalog)
    return spark


def running_session() -> SparkSession | None:
    """The session that this process has, if it has one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    return SparkSession.getActiveSession()


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of a Spark Connect server."""
    return type(spark).__module__.startswith(_CONNECT)


def wire(spark: SparkSession, catalog: SparkCatalog) -> None:
    """Add a catalog to a running session; a second time does nothing. Spark keeps the first one of a name."""
    if is_remote(spark):
        raise _connect()
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if EXTENSIONS not in extensions:
        raise Code.SPARK_WITHOUT_ICEBERG(expected=EXTENSIONS, got=extensions or "none")
    if catalog.is_wired(spark):
        return
    if spark.conf.get(f"spark.sql.catalog.{catalog.name}", None) is not None:
        raise Code.SPARK_CATALOG_TAKEN(expected=f"a name that is free, for {catalog.uri}", got=catalog.name)
    # The event log blanks a session's secret only if the key stands in the context's configuration too.
    spark.sparkContext._jsc.sc().conf().set(catalog.secret_key, "kept by the session")
    for key, value in catalog.settings().items():
        spark.conf.set(key, value)


def unwire(spark: SparkSession, catalog: SparkCatalog) -> None:
    """Take a catalog's settings, and with them its token, out of a running session."""
    for key in catalog.settings():
        spark.conf.unset(key)


def _require_java() -> None:
    """The Java that PySpark will start is there, and new enough for Spark 4."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    said = ""
    if java is not None:
        try:
            # It answers on standard error: openjdk version "17.0.15" 2025-04-15
            said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
        except OSError:
            java = None
    found = _JAVA_VERSION.search(said)
    if java is None or found is None or int(found[1]) < _JAVA_LEAST:
        raise Code.JAVA_MISSING(
            expected=f"Java {_JAVA_LEAST} or newer, by JAVA_HOME or on the path",
            got="none" if found is None else f"Java {found[1]}",
            hint=_JAVA_PACKAGES,
        )


def _started(given: Mapping[str, str], *, object_store: bool = False) -> dict[str, str]:
    """The settings of a new session: the caller's, Iceberg's extensions beside theirs, and its runtime."""
    extensions = given.get("spark.sql.extensions", "")
    found = dict(given)
    if EXTENSIONS not in extensions:
        found["spark.sql.extensions"] = ",".join(each for each in (extensions, EXTENSIONS) if each)
    packages = given.get(_PACKAGES, "")
    for name, package in (("iceberg-spark-runtime", ICEBERG_RUNTIME), ("iceberg-aws-bundle", AWS_BUNDLE)):
        wanted = package is ICEBERG_RUNTIME or object_store
        if wanted and not any(name in named for named in (packages, given.get("spark.jars", ""))):
            packages = found[_PACKAGES] = ",".join(each for each in (packages, package) if each)
    return found


def _require_same(spark: SparkSession, wanted: Mapping[str, str], master: str | None) -> None:
    """What is asked for is what the running session has; Spark would pass over most of it without a word."""
    asked = dict(wanted) if master is None else {**wanted, "spark.master": master}
    for key, value in asked.items():
        found = spark.conf.get(key, None)
        held = found == value or (key in (_PACKAGES, "spark.sql.extensions") and value in (found or ""))
        if not held:
            raise Code.SPARK_SETTINGS_DIFFER(
                f"a Spark session is running with another {key}",
                expected=value[:200],
                got="none" if found is None else found[:200],
            )


def _require_classic(config: Mapping[str, str]) -> None:
    remote = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & set(os.environ)
    if remote or "spark.remote" in config or config.get("spark.api.mode") == "connect":
        raise _connect()


def _connect() -> InputError:
    return InputError(
        Code.SPARK_CONNECT_UNSUPPORTED,
        "a Spark Connect session runs in another process, whose configuration is not ours to change",
        expected="a session in this process",
        got="Spark Connect",
        hint="put the catalog into the server's spark-defaults (docs/spark.md)",
    )
