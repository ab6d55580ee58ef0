"""One caller's changes leave room for everybody else's requests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pvdm.model.role import Role
from pvdm.steward.http.app import THREADS_MAX
from tests.support import fault
from tests.support.catalog.http import lake_at


def test_waiting_writers_of_one_caller_do_not_keep_others_from_reading(tmp_path: Path) -> None:
    reached, go = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(20)

    with lake_at(tmp_path) as lake:
        operator, producer = lake.caller(), lake.caller(Role.PRODUCER, "sales")
        operator.make()
        change = [{"action": "set-properties", "updates": {"a": "b"}}]
        with ThreadPoolExecutor(2 * THREADS_MAX) as pool, fault.armed("catalog.after_metadata_file", fault.Call(wait)):
            try:
                written = [pool.submit(producer.commit, "t", change) for _ in range(2 * THREADS_MAX)]
                assert reached.wait(10)
                # The first commit has its turn at the table and stands still; the caller's other commits wait.
                answer = lake.caller(Role.CONSUMER, "sales").ask("GET", "/namespaces/sales/tables/t", timeout=5)
            finally:
                go.set()
        assert answer.status_code == 200
        assert {each.result().status_code for each in written} == {200}
