"""Runs the section "Try it on a laptop" of docs/stores.md as it is, against its own moto server."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

import pvdm
from pvdm.client import StewardClient
from pvdm.lake.stores import s3_client
from pvdm.model.role import Role
from pvdm.steward.embedded.embedded import Person
from pvdm.trust.keys.pem import create_key_pair
from pvdm.trust.root import RootRole

pytest.importorskip("moto")
# The warnings are PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "5000"


def blocks() -> list[tuple[str, str]]:
    """The language and text of each code block of the section, in order."""
    text = PAGE.read_text("utf-8")
    _, _, after = text.partition("## Try it on a laptop\n")
    return BLOCK.findall(after.partition("\n## ")[0])


@contextlib.contextmanager
def serve(command: str, port: int) -> Iterator[None]:
    """Run the page's command that starts a server, on another port."""
    program, *arguments = shlex.split(command.replace(PORT, str(port)))
    path = Path(sys.executable).with_name(program)
    with subprocess.Popen([path, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + 60
            while time.monotonic() < ends:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def run_getting_started() -> None:
    """The first steps of docs/getting-started.md in the same folder: the page has left no table in their way."""
    create_key_pair(Path("tom.pem"))
    tom = Person.from_file("tom", RootRole.OPERATOR, "tom.pem.pub")
    with pvdm.Steward.embedded("steward", people=[tom], store="store.toml") as steward:
        token = steward.token_for(Role.PRODUCER, "sales").text
        catalog = RestCatalog("lake", uri=f"{steward.url}/catalog", token=token)
        rows = pa.table({"order_id": [1, 2]})
        for namespace in ("raw", "sales"):
            catalog.create_namespace(namespace)
            catalog.create_table(f"{namespace}.orders", rows.schema)
        catalog.load_table("raw.orders").append(rows)
        assert catalog.load_table("raw.orders").scan().to_arrow() == rows


def test_the_section_for_a_laptop_runs_from_its_beginning_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3_client._session.cache_clear()
    (_, shell), *rest = blocks()
    port, names = free_port(), dict[str, object]({"__name__": "page"})
    try:
        with serve(shell.splitlines()[-1], port):
            for language, text in rest:
                ready = text.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{port}")
                if language == "toml":
                    Path("store.toml").write_text(ready, "utf-8")
                else:
                    exec(compile(ready, str(PAGE), "exec"), names)
            assert [language for language, _ in rest] == ["python", "toml", "python"]
            assert os.environ["AWS_ACCESS_KEY_ID"] not in ("first", "none")
            run_getting_started()
    finally:
        s3_client._session.cache_clear()
        for client in [value for value in names.values() if isinstance(value, StewardClient)]:
            client.close()
