"""Archives the classes that Spark loads, so that the tests' many Java processes start in half the processor time.

    python -m tools.spark_archive build/test/spark.jsa

If Spark cannot start, nothing is written; the tests then say what is missing.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pvdm.evaluation.shop import open_session
from tests.support.services import SHORT_LIVED

_END_SECONDS = 120
_STATEMENTS = (
    "create table lake.db.rows (id bigint, text string) using iceberg partitioned by (id)",
    "insert into lake.db.rows select id, cast(id as string) from range(4)",
    "select count(*), max(text) from lake.db.rows where id > 1 group by id order by id",
)


def _end_java() -> None:
    """End the Java process, which writes the archive, and wait for it."""
    from pyspark import SparkContext

    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    java.stdin.close()
    java.wait(_END_SECONDS)


def main() -> int:
    """Run a few statements in a Spark session whose Java process archives its classes when it ends."""
    archive = Path(sys.argv[1]).absolute()
    archive.parent.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={archive}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        lake = {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"{name}/lake",
        }
        try:
            with open_session(Path(name), app_name="archive", config=lake, object_store=True) as spark:
                for statement in _STATEMENTS:
                    spark.sql(statement).collect()
            _end_java()
        except Exception as error:  # without the archive the tests run too, only longer
            archive.unlink(missing_ok=True)
            print(f"no archive of Spark's classes: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
