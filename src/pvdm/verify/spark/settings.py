"""Settings of the Steward's Spark application: configuration, environment, archive and credential file."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pvdm.errors import Code
from pvdm.lake.spark import CATALOG_CLASS
from pvdm.lake.stores.s3_client import ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN
from pvdm.version import __version__

TASKS_A_CORE_MAX: Final = 4
TASK_TRIES_MAX: Final = 4
DRIVER_START_SECONDS: Final = 300
_LOCAL: Final = re.compile(r"local(\[.*\])?")


def is_connect(master: str) -> bool:
    """Whether the address is a Spark Connect server's."""
    return master.startswith("sc://")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The application reads chunks of at least `bytes_least` bytes or `files_least` files, staged and source together.

    `worker_token` is a file on every worker's host, which an operator puts there. If all workers are on this host,
    the Steward makes it. Workers reach the Steward at `address`, and trust the certificates of `authorities`.
    """

    master: str  # as Spark has it, or a Connect server's address (sc://…)
    scratch: Path  # the folder of the driver's log and temporary files
    cores: int | None = None  # the most cores to use; for a Connect server, how many it has
    memory: str = "1g"  # of the driver, and of each executor
    python: str | None = None  # the workers' interpreter
    jars: tuple[str, ...] = ()  # for Spark
    bytes_least: int = 4_294_967_296
    files_least: int = 1_000
    worker_token: Path | None = None
    address: str | None = None
    authorities: Path | None = None
    job_seconds: int = 3_600  # the longest time of one job
    idle_seconds: int = 600  # from the last job to the end of the driver
    settings: Mapping[str, str] = field(default_factory=dict)  # further settings of Spark

    @property
    def is_local(self) -> bool:
        """Whether all workers are processes of this host, started by the application itself."""
        return _LOCAL.fullmatch(self.master) is not None


ARCHIVE_FOLDER: Final = "pvdm_archive"
_PACKAGES: Final = ("pvdm", "pvdm_kernel")


def build_archive(folder: Path) -> Path:
    """A tar of pvdm and its kernel, which each executor unpacks, since a native library cannot be loaded from a zip."""
    path = folder / f"pvdm-{__version__}.tar.gz"
    temporary = folder / f".{path.name}.{os.getpid()}"
    with tarfile.open(temporary, "w:gz", compresslevel=1) as archive:
        for name in _PACKAGES:
            package = importlib.util.find_spec(name)
            if package is None or package.origin is None:
                raise Code.DEPENDENCY_MISSING(reason="kernel_missing", got=f"no package {name}")
            folder_of_package = Path(package.origin).parent
            archive.add(folder_of_package, name, filter=lambda each: None if "__pycache__" in each.name else each)
    temporary.replace(path)
    return path


_PROFILE_KEYS: Final = {
    ACCESS_KEY_ID: "aws_access_key_id",
    SECRET_ACCESS_KEY: "aws_secret_access_key",
    SESSION_TOKEN: "aws_session_token",
}


def credential_file(scratch: Path) -> Path:
    """The file with the credential with which Spark's reader reads a store, in the format of AWS."""
    return scratch / "store.credentials"


@contextlib.contextmanager
def lend_credential(scratch: Path, store: Mapping[str, str] | None) -> Iterator[None]:
    """Keep the credential file while one job runs. A job that reads only local files has none (`store` is None)."""
    path = credential_file(scratch)
    path.unlink(missing_ok=True)  # a killed Steward may have left it
    if store is None:
        yield
        return
    lines = ["[default]", *(f"{word} = {store[name]}" for name, word in _PROFILE_KEYS.items() if name in store), ""]
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write("\n".join(lines))
        yield
    finally:
        path.unlink(missing_ok=True)


EXTRACTION_CATALOG: Final = "pvdm_extraction"
EXTRACTION_FOLDER: Final = "extraction"
# The driver gets only these variables, since the Steward's environment may hold credentials of AWS KMS or a key token.
_ENVIRONMENT: Final = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "PATH", "SPARK_CONF_DIR", "SPARK_HOME", "TZ", "USER")


def driver_environment(settings: SparkSettings, store: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of the driver's process; it names the credential file and holds no secret."""
    inherited = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    paths = os.pathsep.join(each for each in sys.path if each)
    python, temporary = settings.python or sys.executable, str(settings.scratch / "tmp")
    own = {"PYSPARK_PYTHON": python, "PYTHONPATH": paths, "TMPDIR": temporary}
    return inherited | own | (_store_environment(settings) if store is not None else {})


def spark_conf(settings: SparkSettings, store: Mapping[str, str] | None, archive: Path | None) -> dict[str, str]:
    """The configuration of Spark, without any secret, since Spark shows it on its pages and in its event log."""
    conf = {
        "spark.driver.memory": settings.memory,
        "spark.executor.memory": settings.memory,
        "spark.executor.processTreeMetrics.enabled": "false",
        "spark.local.dir": str(settings.scratch / "local"),
        "spark.speculation": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": str(TASK_TRIES_MAX),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for suffix, value in _catalog(settings, store).items():
        conf[f"spark.sql.catalog.{EXTRACTION_CATALOG}{suffix}"] = value
    if settings.cores is not None:
        conf["spark.cores.max"] = str(settings.cores)
    if settings.jars:
        conf["spark.jars"] = ",".join(settings.jars)
    if archive is not None and not is_connect(settings.master):
        conf["spark.archives"] = f"file://{archive}#{ARCHIVE_FOLDER}"
    if store is not None:
        for name, value in _store_environment(settings).items():
            conf[f"spark.executorEnv.{name}"] = value
    return conf | dict(settings.settings)


def _catalog(settings: SparkSettings, store: Mapping[str, str] | None) -> dict[str, str]:
    """Options of Spark's only catalog (folders of metadata that the Steward writes). Each key follows its name."""
    properties = {
        "type": "hadoop",
        "warehouse": f"file://{settings.scratch / EXTRACTION_FOLDER}",
        "cache-enabled": "false",
        # Chooses local files or the object store by the scheme.
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
    }
    if store is not None:
        provider = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
        properties |= {**store, "client.credentials-provider": provider}
    return {"": CATALOG_CLASS} | {f".{name}": value for name, value in properties.items()}


def _store_environment(settings: SparkSettings) -> dict[str, str]:
    """The variables that name the credential file of the running job, and prevent that the user's profiles are read."""
    path = str(credential_file(settings.scratch))
    return {"AWS_SHARED_CREDENTIALS_FILE": path, "AWS_CONFIG_FILE": os.devnull}
