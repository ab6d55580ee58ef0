"""The places where a running Spark application could leave a secret: UI pages, command lines, environments, files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import httpx

from pvdm.verify.job import VerificationResult
from pvdm.verify.spark.application import Application
from tests.support.services import SHORT_LIVED
from tests.support.spark.cluster import command_of, descendants_of, environment_of
from tests.support.spark.verification import Lab
from tests.support.steward.secret_search import traces

PAGES = ("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "api/v1/applications")
# Copies of programs contain no secret.
_PROGRAMS = frozenset({".jar", ".so", ".py", ".pyc", ".pyi", ".gz"})


def verbose_settings(folder: Path) -> dict[str, str]:
    """Settings of a Spark application with event log and UI pages."""
    (folder / "events").mkdir()
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }


def places(lab: Lab, others: Iterable[int] = ()) -> dict[str, bytes]:
    """The UI pages, and the commands and environments of the driver and other processes, while the application runs."""
    return pages_and_processes(lab.desk.application, others)


def pages_and_processes(application: Application, others: Iterable[int] = ()) -> dict[str, bytes]:
    """Like `places`, for any application."""
    found = {}
    started = application.started
    assert started is not None
    with httpx.Client(timeout=20, trust_env=False, follow_redirects=True) as http:
        address, one = _pages_at(started.process.pid), f"api/v1/applications/{started.application_id}"
        for page in (*PAGES, f"{one}/environment", f"{one}/jobs", f"{one}/sql", f"{one}/stages", f"{one}/allexecutors"):
            found[f"UI {page}"] = http.get(f"{address}/{page}").content
    for pid in (started.process.pid, *descendants_of(started.process.pid), *others):
        found[f"command of {pid}"] = command_of(pid)
        found[f"environment of {pid}"] = environment_of(pid)
    return found


def _pages_at(driver: int) -> str:
    """The URL of Spark's UI: the port of the driver's processes that answers with its pages."""
    inodes = set()
    for pid in (driver, *descendants_of(driver)):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()))
    for line in (
        Path("/proc/net/tcp").read_text().splitlines()[1:] + Path("/proc/net/tcp6").read_text().splitlines()[1:]
    ):
        parts = line.split()
        if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
            address = f"http://127.0.0.1:{int(parts[1].rpartition(':')[2], 16)}"
            with contextlib.suppress(httpx.HTTPError):
                if b"pvdm steward" in httpx.get(f"{address}/jobs/", timeout=20, trust_env=False).content:
                    return address
    raise AssertionError("the driver serves no pages")


def keys_of(lab: Lab, found: VerificationResult) -> dict[str, bytes]:
    """The keys of an attempt, by projection."""
    context = found.context
    assert context is not None
    keys = lab.bench.scene.notary.keys
    return {f"key of {name.value}": keys.row_hash_key(context, name).reveal() for name in context.projections}


def traces_in(secret: bytes, folder: Path) -> list[str]:
    """The files that contain the secret."""
    return [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in _PROGRAMS and traces(secret, path.read_bytes())
    ]
