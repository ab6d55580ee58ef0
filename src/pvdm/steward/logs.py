"""One JSON line a request and one an exception, on the logger `pvdm.steward`; no header, body or query value in it.

Of the path it names the workload that a person asks to change.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from pvdm.errors import PvdmError
from pvdm.steward.http.request import RequestContext

LOGGER: Final = logging.getLogger("pvdm.steward")
FRAMES_MAX: Final = 50


def log_request(context: RequestContext, status: int | None) -> None:
    """The request as it ended; no status means that the caller was gone before the answer."""
    grant = context.grant
    _say(
        logging.INFO,
        {
            "event": "request",
            "request_id": context.request_id,
            "method": context.method if context.method.isalpha() and len(context.method) <= 16 else "(other)",
            "route": context.route,
            "status": status,
            "milliseconds": round((time.monotonic() - context.started) * 1_000, 3),
            "token_id": None if grant is None else grant.token_id,
            "role": None if grant is None else grant.role.value,
            "domain": None if grant is None else grant.domain,
            **({} if context.workload_id is None else {"workload_id": context.workload_id}),
        },
    )


def log_exception(context: RequestContext, error: BaseException) -> None:
    """What was met and where: type, code and places. Its message and its locals may hold secrets and stay away."""
    _say(
        logging.ERROR, {"event": "exception", "request_id": context.request_id, "route": context.route, **_told(error)}
    )


def log_failure(event: str, error: BaseException, **facts: str | int | None) -> None:
    """What the Steward's own work met, and where; its message and its locals stay away here too."""
    _say(logging.ERROR, {"event": event, **facts, **_told(error)})


def log_event(event: str, **facts: str | int | None) -> None:
    """Something of the service itself: started, stopping, stopped."""
    _say(logging.INFO, {"event": event, **facts})


def log_warning(event: str, **facts: str | int | None) -> None:
    """Something that an operator should look at; the Steward goes on."""
    _say(logging.WARNING, {"event": event, **facts})


def log_error(event: str, **facts: str | int | None) -> None:
    """Something that keeps the Steward from its work until an operator acts."""
    _say(logging.ERROR, {"event": event, **facts})


class JsonFormatter(logging.Formatter):
    """Lines of other loggers, such as the server's own, in the same form and with the same silence."""

    def format(self, record: logging.LogRecord) -> str:
        """Our own lines are JSON already; of others the words, and of an exception its type and places."""
        if record.name == LOGGER.name:
            return record.getMessage()
        line: dict[str, object] = {"time": _time(), "level": record.levelname, "event": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            return json.dumps({**line, "message": str(record.msg).strip(), **_told(record.exc_info[1])})
        return json.dumps({**line, "message": record.getMessage()})


def _say(level: int, line: dict[str, object]) -> None:
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", json.dumps({"time": _time(), "level": logging.getLevelName(level), **line}))


def _time() -> str:
    """The host's idea of the time, in UTC: a log is read beside other logs of the host."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _told(error: BaseException) -> dict[str, object]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return {
        "type": type(error).__name__,
        "code": error.code if isinstance(error, PvdmError) else None,
        "frames": [f"{'/'.join(PurePath(frame.filename).parts[-3:])}:{frame.lineno}" for frame in frames],
    }
