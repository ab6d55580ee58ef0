"""Runs Iceberg's REST compatibility kit against a Steward that it starts, and writes what passed and what failed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pvdm.model.role import Role
from pvdm.model.statements.proof import Isolation
from pvdm.steward import server as service
from pvdm.steward.config.steward import CatalogConfig, FileKeys, Limits, ServiceConfig, StewardConfig
from pvdm.steward.notary import create_notary

VERSION: Final = "1.11.0"
# The kit's test classes, and the class that is run for each. For the first it is our subclass, which allows names with
# slashes: the kit has no setting for them.
KITS: Final[Mapping[str, str]] = {
    "RESTCompatibilityKitCatalogTests": "SlashesCatalogTests",
    "RESTCompatibilityKitViewCatalogTests": "RESTCompatibilityKitViewCatalogTests",
}
SECONDS_MAX: Final = 900
# Tests that need what this catalog refuses to do, and why; docs/views.md has the same list.
KNOWN_FAILURES: Final[Mapping[str, str]] = {
    "createViewWithCustomMetadataLocation": "metadata files lie in the Steward's own place and nowhere else",
}

_HERE: Final = Path(__file__).resolve().parent
_PACKAGE: Final = "org.apache.iceberg.rest"
# Environment variables by which the kit learns what the catalog supports.
_SWITCHES: Final[Mapping[str, str]] = {
    "CATALOG_RCK_REQUIRES__NAMESPACE__CREATE": "true",
    "CATALOG_RCK_SUPPORTS__SERVERSIDE__RETRY": "true",
    "CATALOG_RCK_OVERRIDES__REQUESTED__LOCATION": "false",
    "CATALOG_RCK_SUPPORTS__NAMES__WITH__DOT": "true",
    "CATALOG_RCK_SUPPORTS__NAMES__WITH__SLASHES": "true",
    "CATALOG_RCK_SUPPORTS__NESTED__NAMESPACES": "true",
    "CATALOG_RCK_SUPPORTS__VARIANT": "true",
}


@dataclass(slots=True)
class Result:
    """The result of one test class of the kit; `failed` has the message of each failed test by its name."""

    kit: str
    run: int = 0
    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The class's part of the result file."""
        return {
            "kit": f"{self.kit} {VERSION}",
            "run": self.run,
            "passed": self.passed,
            "failed": [{"name": name, "message": text} for name, text in sorted(self.failed.items())],
            "skipped": sorted(self.skipped),
        }

    def __str__(self) -> str:
        counts = f"run {self.run}, passed {self.passed}, failed {len(self.failed)}, skipped {len(self.skipped)}"
        return "\n".join(
            [f"{self.kit}: {counts}", *(f"  {name}: {text}" for name, text in sorted(self.failed.items()))]
        )


def summary(results: Sequence[Result]) -> dict[str, object]:
    """The content of the result file: all classes together, then each by itself."""
    return {
        "kit": f"{_PACKAGE} {VERSION}",
        "run": sum(result.run for result in results),
        "passed": sum(result.passed for result in results),
        "failed": [f"{result.kit}.{name}" for result in results for name in sorted(result.failed)],
        "kits": [result.to_json() for result in results],
    }


@contextlib.contextmanager
def database(*, postgresql: bool) -> Iterator[str | None]:
    """The URL of an empty database, on a PostgreSQL server that runs for the block; None for a SQLite file."""
    if not postgresql:
        yield None
        return
    from tests.support.ledger.databases import Postgresql

    server = Postgresql()
    try:
        server.start()
        yield server.create_database()
    finally:
        server.stop()
        server.remove()


@contextlib.contextmanager
def steward(folder: Path, ledger_url: str | None) -> Iterator[tuple[str, str]]:
    """Run a new Steward with an empty catalog for the block; yields the catalog's address and an operator's token."""
    (folder / "outside").mkdir()
    limits = Limits(rate_per_second=100_000, burst=1_000_000, concurrent=1_000)
    config = StewardConfig(
        notary="rck",
        origin="rck/log",
        ledger_url=ledger_url or f"sqlite:///{folder}/ledger.sqlite",
        keys=FileKeys(folder / "keys"),
        outside_path=folder / "outside" / "checkpoint",
        isolation=Isolation.EMBEDDED,
        service=ServiceConfig(port=0, limits=limits),
        catalog=CatalogConfig(f"file://{folder}/warehouse", folder / "catalog"),
    )
    with contextlib.closing(create_notary(config, reason="the compatibility kit")) as notary:
        token, _ = notary.access.issue(Role.OPERATOR, domain="*", name="rck", lifetime_seconds=7_200)
        with service.start(notary) as running:
            yield f"{running.url}/catalog", token.reveal()


def run_kit(kit: str, jars: Path, uri: str, token: str, folder: Path) -> Path:
    """Run a test class of the kit in its own Java process; returns the folder of its reports."""
    classes = _compile_subclass(jars, folder)
    settings = {**_SWITCHES, "CATALOG_URI": uri, "CATALOG_TOKEN": token, "CATALOG_WAREHOUSE": "lake"}
    reports = folder / "reports"
    # With `rck.local=false` the kit tests the Steward and starts no server of its own.
    command = ["java", "-Xmx1g", "-Drck.local=false", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{classes}:{jars}/*", "org.junit.platform.console.ConsoleLauncher", "execute"]
    command += ["--disable-banner", "--disable-ansi-colors", "--config=rck.local=false", "--details=none"]
    command += ["--select-class", f"{_PACKAGE}.{KITS[kit]}", "--reports-dir", str(reports)]
    env = {**os.environ, **settings}
    with (folder / "kit.log").open("wb") as log:
        # Failed tests give an exit code too. The reports tell which tests failed.
        subprocess.run(command, env=env, stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS_MAX, check=False)
    return reports


def read_reports(kit: str, folder: Path) -> Result:
    """The result of the class from JUnit's reports in the folder."""
    result = Result(kit)
    for report in sorted(folder.glob("TEST-*.xml")):
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - JUnit wrote it
            name = case.attrib["name"].removesuffix("()")
            problem = case.find("failure") if case.find("failure") is not None else case.find("error")
            if case.find("skipped") is not None:
                result.skipped.append(name)
                continue
            result.run += 1
            if problem is None:
                result.passed += 1
            else:
                text = problem.attrib.get("message") or (problem.text or "")
                result.failed[name] = re.sub(r"\s+", " ", text)[:400]
    return result


def _compile_subclass(jars: Path, folder: Path) -> Path:
    """Compile our subclass of the kit's tests; returns the folder of its classes."""
    classes = folder / "classes"
    source = _HERE / "SlashesCatalogTests.java"
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", str(source)], check=True)
    return classes


def _fetch_jars(jars: Path) -> Path:
    """Fetch the kit's jars with Maven, unless the folder has them."""
    if not any(jars.glob("iceberg-open-api-*.jar")):
        command = ["mvn", "-q", "-B", "-f", str(_HERE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={jars}"], check=True)
    return jars


def main() -> int:
    """Fetch the kit, run it, and print and write the results; returns 0 if only known failures failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, default=Path("build/rck-jars"), help="where the kit's jars are kept")
    parser.add_argument("--out", type=Path, default=Path("build/rck.json"), help="where the result goes")
    parser.add_argument("--postgresql", action="store_true", help="use a new PostgreSQL server, not SQLite")
    parser.add_argument("--log", type=Path, help="append the kit's own log to this file")
    parser.add_argument("--kit", choices=[*KITS], action="append", help="run only this class; may be repeated")
    given = parser.parse_args()
    jars = _fetch_jars(given.jars.resolve())
    results = []
    for kit in given.kit or KITS:
        # The kit expects that the catalog has nothing that it did not create, so each class gets its own Steward.
        with tempfile.TemporaryDirectory(prefix="pvdm-rck-") as name:
            folder = Path(name).resolve()
            with database(postgresql=given.postgresql) as ledger, steward(folder, ledger) as (uri, token):
                results.append(read_reports(kit, run_kit(kit, jars, uri, token, folder)))
            if given.log is not None:
                with given.log.open("ab") as log:
                    log.write((folder / "kit.log").read_bytes())
        print(results[-1], flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(summary(results), indent=2) + "\n")
    return 0 if all(result.run and result.failed.keys() <= KNOWN_FAILURES.keys() for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
