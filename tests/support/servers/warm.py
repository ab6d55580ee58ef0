"""When imported, publishes one workload, so that processes forked later start faster.

The forked processes share modules, compiled SQL statements, validators of requests, and TLS's trusted authorities.
"""

from __future__ import annotations

import gc
import threading

from pvdm import Coordinator
from tests.support.ledger.databases import memory_folder
from tests.support.process_wide import share_in_process
from tests.support.steward.shop import ROWS, shop_at, table_of


def publish_once() -> None:
    """Publish a workload with an embedded Steward, and end all of its threads, because a fork would lose them."""
    with memory_folder() as folder, shop_at(folder) as shop:
        table = shop.target("warm")
        with shop.client() as client, Coordinator(client) as coordinator:
            outcome = coordinator.execute_workload("warm-1", lambda *_: table_of(ROWS), table=table)
    assert outcome.name == "COMMITTED", outcome
    assert threading.active_count() == 1, threading.enumerate()


share_in_process()
publish_once()
gc.collect()
gc.freeze()
