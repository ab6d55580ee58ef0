"""Calls a function in a daemon thread, which nothing has to wait for. Imports nothing of pvdm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def call_in_daemon_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Call the function in a new thread. Neither the caller nor the end of the process waits for the thread."""
    future = Future[T]()
    future.set_running_or_notify_cancel()  # from now on the future cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
