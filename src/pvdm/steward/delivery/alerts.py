"""Sends alerts: as a signed request to a webhook, or to a command's standard input."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pvdm.ledger.record.outbox import OutboxEvent
from pvdm.model.printable import counted
from pvdm.model.secret import Secret
from pvdm.steward.config.alerts import CommandAlerts, WebhookAlerts
from pvdm.steward.config.resources import read_alert_secret
from pvdm.steward.delivery.delivery import DeliveryError, Send
from pvdm.steward.threads import call_in_daemon_thread

TIMESTAMP_HEADER: Final = "pvdm-timestamp"
SIGNATURE_HEADER: Final = "pvdm-signature"
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
_KILL_SECONDS: Final = 5


def open_alert_sender(config: CommandAlerts | WebhookAlerts) -> Send:
    """The function that sends an alert. Reads the secret of a webhook; raises if the file is missing or not private."""
    match config:
        case CommandAlerts():
            return lambda event: _run_command(config, event)
        case WebhookAlerts():
            secret = read_alert_secret(config.secret_file)
            return lambda event: _post(config, secret, event)


def sign(secret: Secret, timestamp: str, body: bytes) -> str:
    """The signature of a body: HMAC-SHA256 over the timestamp, a dot and the body, in hex after `v1=`."""
    return f"v1={hmac.new(secret.reveal(), timestamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def _post(config: WebhookAlerts, secret: Secret, event: OutboxEvent) -> None:
    timestamp = str(int(time.time()))
    headers = {
        "content-type": "application/json",
        TIMESTAMP_HEADER: timestamp,
        SIGNATURE_HEADER: sign(secret, timestamp, event.body),
    }
    # httpx's own timeouts apply to single reads, so a receiver that sends single bytes could make the call very long.
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            request = _request_status(config.url, event.body, headers)
            status = runner.run(asyncio.wait_for(request, config.timeout_seconds))
    except TimeoutError:
        raise DeliveryError(f"the webhook did not answer within {counted(config.timeout_seconds, 'second')}") from None
    except Exception as error:  # also an error of this host; the event is complete, so no error is its fault
        raise DeliveryError(f"the webhook cannot be reached: {type(error).__name__}") from None
    if not 200 <= status < 300:
        raise DeliveryError(f"the webhook answered with status {status}")


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that looks up names in daemon threads. At its end, the base class waits for its lookup threads."""

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """Look up a name, with the arguments and the result of the base class's method."""
        look_up = partial(socket.getaddrinfo, *args, **options)
        return await asyncio.wrap_future(call_in_daemon_thread(look_up, "pvdm-name-lookup"), loop=self)


async def _request_status(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Send the request and return the response's status. The body is not read, and a redirect is not followed."""
    import httpx  # here, since httpx is slow to load, and only Stewards with a webhook need it

    async with (
        httpx.AsyncClient(timeout=None, trust_env=False) as client,  # noqa: S113 - the caller has a timeout
        client.stream("POST", url, content=body, headers=headers) as response,
    ):
        return response.status_code


def _run_command(config: CommandAlerts, event: OutboxEvent) -> None:
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}  # no secrets of the Steward
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's command, without a shell
            config.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except Exception as error:  # never the event's fault
        raise DeliveryError(f"the command cannot be started: {type(error).__name__}") from None
    try:
        process.communicate(event.body, timeout=config.timeout_seconds)
    except subprocess.TimeoutExpired:
        raise DeliveryError(f"the command did not end within {counted(config.timeout_seconds, 'second')}") from None
    except Exception as error:
        raise DeliveryError(f"the command failed: {type(error).__name__}") from None
    finally:
        if process.poll() is None:
            # The kill fails for a command that runs as another user. A command that waits for a device ends later.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)  # the command and the processes that it has started
                process.communicate(timeout=_KILL_SECONDS)
    if process.returncode != 0:
        raise DeliveryError(f"the command ended with {process.returncode}")
