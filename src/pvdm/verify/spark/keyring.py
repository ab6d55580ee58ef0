"""A worker's keys: redeemed once under the process's own name, in its memory only, and dropped when the job is over."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from pvdm.client.token import read_token
from pvdm.digest import Keys
from pvdm.errors import Code, NotAllowedError, UnavailableError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import DigestKey
from pvdm.verify.spark.task import KeyDoor

REDEEM_PATH: Final = "/v1/keys/redeem"
REDEEM_TRIES_MAX: Final = 4
REDEEM_TIMEOUT_SECONDS: Final = 30
KEYS_IDLE_SECONDS: Final = 30

Redeem = Callable[[KeyDoor, str], Keys]


class Keyring:
    """The keys of the job that this process works for; one job at a time.

    Spark keeps worker processes for later tasks and tells none that a job has ended. So keys go when a task of another
    job comes, and when none came for a while; a task that comes later still redeems under a new name.
    """

    def __init__(self, redeem: Redeem, idle_seconds: float = KEYS_IDLE_SECONDS) -> None:
        self._redeem = redeem
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._process = 0
        self._job_id: str | None = None
        self._keys: Keys | None = None
        self._timer: threading.Timer | None = None

    def keys(self, door: KeyDoor) -> Keys:
        """The job's keys, from memory or from the Steward."""
        with self._lock:
            self._stop()
            # A forked process shares its parent's memory, but never its name.
            if self._keys is None or self._job_id != door.job_id or self._process != os.getpid():
                self._drop()
                self._keys = self._redeem(door, own_name())
                self._job_id, self._process = door.job_id, os.getpid()
            return self._keys

    def rest(self) -> None:
        """A task is done: unless another one comes soon, the keys go."""
        with self._lock:
            self._stop()
            self._timer = threading.Timer(self._idle_seconds, self.forget)
            self._timer.daemon = True
            self._timer.start()

    def forget(self) -> None:
        """Nothing is held any more."""
        with self._lock:
            self._drop()

    @property
    def holds(self) -> bool:
        """Whether there are keys in memory."""
        return self._keys is not None

    def _drop(self) -> None:
        self._keys = self._job_id = None

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def own_name() -> str:
    """A name that no other process, and no other holding of keys by this one, has."""
    host = "".join(each if each.isalnum() or each in ".-" else "-" for each in socket.gethostname())[:60]
    return f"{host}:{os.getpid()}:{secrets.token_hex(8)}"


def redeem(door: KeyDoor, worker: str) -> Keys:
    """Ask the Steward for the keys of the job, with the worker's own token; a busy Steward is asked again."""
    asked = {"job_id": door.job_id, "handle": door.handle, "worker": worker}
    verify: ssl.SSLContext | bool = True
    if door.authorities is not None:
        verify = ssl.create_default_context(cafile=door.authorities)
    for number in range(1, REDEEM_TRIES_MAX + 1):
        try:
            with httpx.Client(verify=verify, timeout=REDEEM_TIMEOUT_SECONDS, trust_env=False) as http:
                headers = {"authorization": f"Bearer {read_token(Path(door.token_file)).text}"}
                answer = http.post(f"{door.address}{REDEEM_PATH}", json=asked, headers=headers)
        except httpx.HTTPError as error:
            if number == REDEEM_TRIES_MAX:
                raise _unreachable(type(error).__name__) from None
        else:
            if answer.status_code == httpx.codes.OK:
                return _keys(answer.json())
            if answer.status_code not in (429, 503) or number == REDEEM_TRIES_MAX:
                raise _refused(answer)
        time.sleep(number)
    raise AssertionError("the last try answers or raises")


def _keys(told: dict[str, object]) -> Keys:
    epoch, keys = told["epoch"], told["keys"]
    if not isinstance(keys, dict):
        raise _unreachable("an answer of another form")
    return {ProjectionName(name): DigestKey(bytes.fromhex(text), epoch=int(str(epoch))) for name, text in keys.items()}


def _refused(answer: httpx.Response) -> NotAllowedError:
    try:
        code = str(answer.json()["error"]["reason"])
    except (ValueError, KeyError, TypeError):
        code = f"status {answer.status_code}"
    return NotAllowedError(
        Code.WORKER_REFUSED, "the Steward gives this worker no keys", expected="the job's keys", got=code[:80]
    )


def _unreachable(got: str) -> UnavailableError:
    return UnavailableError(
        Code.WORKER_DOOR_UNREACHABLE, "a worker cannot reach the Steward", expected="its answer", got=got
    )
