"""Runs the Steward of the catalog's benchmark in its own process, and protects each table named on standard input."""

from __future__ import annotations

import contextlib
import json
import sys
from functools import partial
from pathlib import Path

from bench.steward_http import OPEN_LIMITS
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.model.role import Role
from pvdm.model.statements.proof import Isolation
from pvdm.steward.config.steward import CatalogConfig, FileKeys, ServiceConfig, StewardConfig
from pvdm.steward.notary import create_notary
from pvdm.steward.server import start

NAMESPACE = "bench"
CONTRACT_SHA256 = "c0" * 32  # of no real contract: the benchmark needs only a table that is protected


def protect(unit: Unit, name: str) -> None:
    """Put a table under a contract."""
    row = tables.find(unit, namespaces.get(unit, (NAMESPACE,)).namespace_id, name)
    assert row is not None
    tables.protect(unit, row, CONTRACT_SHA256)


def serve(folder: Path, ledger_url: str | None) -> None:
    """Run until standard input ends; address and token go to standard output."""
    (folder / "outside").mkdir()
    config = StewardConfig(
        notary="bench",
        origin="bench/log",
        ledger_url=ledger_url or f"sqlite:///{folder}/ledger.sqlite",
        keys=FileKeys(folder / "keys"),
        outside_path=folder / "outside" / "checkpoint",
        isolation=Isolation.EMBEDDED,
        service=ServiceConfig(port=0, limits=OPEN_LIMITS),
        catalog=CatalogConfig(f"file://{folder}/warehouse", folder / "catalog"),
    )
    with contextlib.closing(create_notary(config, reason="the benchmark")) as notary, start(notary) as running:
        notary.ledger.transact(
            lambda unit: namespaces.create(unit, (NAMESPACE,), domain=NAMESPACE, properties={}),
            at_micros=notary.clock.now_micros(),
        )
        token, _ = notary.access.issue(Role.PRODUCER, domain=NAMESPACE, name="bench", lifetime_seconds=86_400)
        print(json.dumps({"url": f"{running.url}/catalog", "token": token.reveal()}), flush=True)
        for line in sys.stdin:
            notary.ledger.transact(partial(protect, name=line.strip()), at_micros=notary.clock.now_micros())
            print("protected", flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else None)
