"""What the driver and its executors are told: settings of Spark and an environment, without any secret."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pvdm.lake.spark import CATALOG_CLASS
from pvdm.verify.spark.archive import ARCHIVE_FOLDER
from pvdm.verify.spark.credential_file import FILE_VARIABLE, credential_file
from pvdm.verify.spark.settings import TASK_TRIES_MAX, SparkSettings, is_connect

EXTRACTION_CATALOG: Final = "pvdm_extraction"
EXTRACTION_FOLDER: Final = "extraction"
# All that a driver is given of the Steward's environment, in which the credentials of a key home may stand.
_ENVIRONMENT: Final = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "PATH", "SPARK_CONF_DIR", "SPARK_HOME", "TZ", "USER")
_CONFIG_VARIABLE: Final = "AWS_CONFIG_FILE"


def driver_environment(settings: SparkSettings, store: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of the driver's process; of credentials it holds the name of a file."""
    found = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    paths = os.pathsep.join(each for each in sys.path if each)
    own = {
        "PYSPARK_PYTHON": settings.python or sys.executable,
        "PYTHONPATH": paths,
        "TMPDIR": str(settings.scratch / "tmp"),
    }
    return found | own | (_store_environment(settings) if store is not None else {})


def spark_conf(settings: SparkSettings, store: Mapping[str, str] | None, archive: Path | None) -> dict[str, str]:
    """Settings of Spark, which stand on its pages and in its event log."""
    found = {
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
    for name, value in _catalog(settings, store).items():
        found[f"spark.sql.catalog.{EXTRACTION_CATALOG}{name and f'.{name}'}"] = value
    if settings.cores is not None:
        found["spark.cores.max"] = str(settings.cores)
    if settings.jars:
        found["spark.jars"] = ",".join(settings.jars)
    if archive is not None and not is_connect(settings.master):
        found["spark.archives"] = f"file://{archive}#{ARCHIVE_FOLDER}"
    if store is not None:
        for name, value in _store_environment(settings).items():
            found[f"spark.executorEnv.{name}"] = value
    return found | dict(settings.settings)


def _catalog(settings: SparkSettings, store: Mapping[str, str] | None) -> dict[str, str]:
    """Tables are found by folders in which the Steward put their metadata files; no other catalog is asked."""
    found = {
        "": CATALOG_CLASS,
        "type": "hadoop",
        "warehouse": f"file://{settings.scratch / EXTRACTION_FOLDER}",
        "cache-enabled": "false",
        # Each file by its scheme: of this machine, or of the object store.
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
    }
    if store is None:
        return found
    provider = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
    return found | dict(store) | {"client.credentials-provider": provider}


def _store_environment(settings: SparkSettings) -> dict[str, str]:
    """Where the credential of the job is that runs; profiles of the user are not looked at."""
    return {FILE_VARIABLE: str(credential_file(settings.scratch)), _CONFIG_VARIABLE: os.devnull}
