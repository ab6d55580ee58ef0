"""Writes JSON lines on the logger `pvdm.steward`: one for each request, exception and event.

No header, body or query value is logged. A workload's id is logged if an operator, auditor or attestor changes it.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final, Protocol

from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import Grant

LOGGER: Final = logging.getLogger("pvdm.steward")
FRAMES_MAX: Final = 50


class LoggedRequest(Protocol):
    """The fields of a request that a log line shows."""

    method: str
    request_id: str
    started: float
    route: str
    grant: Grant | None
    workload_id: str | None


def log_request(request: LoggedRequest, status: int | None) -> None:
    """Log a request at its end; status None means that the caller disconnected before the response."""
    grant = request.grant
    _write(
        logging.INFO,
        {
            "event": "request",
            "request_id": request.request_id,
            "method": request.method if request.method.isalpha() and len(request.method) <= 16 else "(other)",
            "route": request.route,
            "status": status,
            "milliseconds": round((time.monotonic() - request.started) * 1_000, 3),
            "token_id": None if grant is None else grant.token_id,
            "role": None if grant is None else grant.role.value,
            "domain": None if grant is None else grant.domain,
            **({} if request.workload_id is None else {"workload_id": request.workload_id}),
        },
    )


def log_exception(request: LoggedRequest, error: BaseException) -> None:
    """Log type, reason and frames of an exception, without its message and locals, which may hold secrets."""
    log_failure("exception", error, request_id=request.request_id, route=request.route)


def log_failure(event: str, error: BaseException, **facts: str | int | None) -> None:
    """Log type, reason and frames of an exception, as `log_exception` does, but for work that no request started."""
    _write(logging.ERROR, {"event": event, **facts, **_error_facts(error)})


def log_event(event: str, **facts: str | int | None) -> None:
    """Log an event of normal work, such as `started` or `job_done`."""
    _write(logging.INFO, {"event": event, **facts})


def log_warning(event: str, **facts: str | int | None) -> None:
    """Log an event that an operator should look at; the Steward continues its work."""
    _write(logging.WARNING, {"event": event, **facts})


def log_error(event: str, **facts: str | int | None) -> None:
    """Log an event that stops the Steward's work until an operator acts."""
    _write(logging.ERROR, {"event": event, **facts})


class JsonFormatter(logging.Formatter):
    """Formats the lines of other loggers, such as uvicorn's, as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line as JSON. If it reports an exception, message and arguments are left out: they may hold secrets."""
        if record.name == LOGGER.name:
            return record.getMessage()  # already JSON
        line: dict[str, object] = {"time": _now(), "level": record.levelname, "event": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            return json.dumps({**line, "message": str(record.msg).strip(), **_error_facts(record.exc_info[1])})
        return json.dumps({**line, "message": record.getMessage()})


def _write(level: int, line: dict[str, object]) -> None:
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", json.dumps({"time": _now(), "level": logging.getLevelName(level), **line}))


def _now() -> str:
    """The host's time in UTC, so that operators can compare the log with other logs of the host."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _error_facts(error: BaseException) -> dict[str, object]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return {
        "type": type(error).__name__,
        "code": error.reason if isinstance(error, PvdmError) else None,  # the field "code" holds the error's reason
        "frames": [f"{'/'.join(PurePath(frame.filename).parts[-3:])}:{frame.lineno}" for frame in frames],
    }
