"""Builds the FastAPI app: routes, the middleware in front of them, the OpenAPI document, and background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from typing import Any, Final, NoReturn

from anyio.to_thread import current_default_thread_limiter, run_sync
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from pvdm.errors import Code, PvdmError
from pvdm.ledger.clock import format_micros
from pvdm.model.fields import CLOCK_SKEW_MAX_SECONDS, MICROS_PER_SECOND
from pvdm.steward.http import oauth, openapi
from pvdm.steward.http.admission import AdmissionMiddleware
from pvdm.steward.http.body import invalid_request_error
from pvdm.steward.http.catalog import namespaces, tables, views
from pvdm.steward.http.dependencies import Readiness
from pvdm.steward.http.limits import Limiter, TokenLookup
from pvdm.steward.http.long_poll import LongPolls
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.routes import RouteTable
from pvdm.steward.http.v1 import audit, service, statements, work
from pvdm.steward.logs import log_error, log_failure, log_warning
from pvdm.steward.notary import Notary

# With the threads that look up tokens, there are as many threads as connections to the ledger. More would only wait.
THREADS_MAX: Final = 13
# How often background tasks run. A mark is a time that is stored in the ledger. `tidy` deletes what has expired.
MARK_SECONDS: Final = 60
READINESS_LOG_SECONDS: Final = 15
TIDY_SECONDS: Final = 600
VAULT_COUNT_SECONDS: Final = 600

_ROUTERS: Final = tuple(each.router for each in (service, oauth, work, statements, audit, namespaces, tables, views))


def create_app(notary: Notary) -> FastAPI:
    """The Steward's HTTP service over one notary. Raises unless each route has a rule in the table of roles."""
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        exception_handlers={RequestValidationError: _raise_invalid, HTTPException: _raise_unexpected},
    )
    for router in _ROUTERS:
        app.router.routes.extend(router.routes)
    routes = [route for route in app.router.routes if isinstance(route, APIRoute)]
    metrics = Metrics(notary)
    route_table = RouteTable(routes)
    lookup = TokenLookup(notary, Limiter(notary.config.service.limits))
    app.state.notary, app.state.metrics, app.state.lookup = notary, metrics, lookup
    app.state.readiness = Readiness(notary.readiness)
    app.state.long_polls = LongPolls(notary)
    app.openapi = cache(lambda: openapi.build_document(routes))  # type: ignore[method-assign] # built at first use
    app.add_middleware(AdmissionMiddleware, notary=notary, routes=route_table, lookup=lookup, metrics=metrics)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = THREADS_MAX
    notary: Notary = app.state.notary
    _warn_of_clock(notary)
    notary.start_work()
    mark_time = partial(notary.mark_time, serving=True)
    repeated = [
        # The next start compares the clock with the last mark, to find out whether the clock was set back.
        _run_repeatedly(partial(run_sync, mark_time), MARK_SECONDS, "time_not_marked", wait=MARK_SECONDS),
        _run_repeatedly(partial(run_sync, notary.tidy), TIDY_SECONDS, "not_tidied", wait=TIDY_SECONDS),
        # The metrics report the last count.
        _run_repeatedly(partial(run_sync, notary.usage.count), VAULT_COUNT_SECONDS, "vault_not_counted"),
        _run_repeatedly(
            partial(_log_readiness, notary, app.state.readiness), READINESS_LOG_SECONDS, "readiness_not_checked"
        ),
    ]
    for watch in notary.watches:
        seconds = watch.interval_seconds
        repeated.append(_run_repeatedly(partial(run_sync, watch.look), seconds, "not_watched", wait=seconds))
    tasks = [asyncio.create_task(work) for work in repeated]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await run_sync(notary.stop_work)
        with suppress(PvdmError):
            await run_sync(mark_time)


def _warn_of_clock(notary: Notary) -> None:
    """Log if the clock jumped, if no second clock confirms how long the Steward was down, or if the host clock lags."""
    clock = notary.clock
    trusted, host = format_micros(clock.trusted_micros()), format_micros(clock.host_micros())
    if not clock.is_ready():
        log_error("clock_jumped", trusted=trusted, host=host)
    if clock.absence is not None:
        newest, start = format_micros(clock.absence.from_micros), format_micros(clock.absence.to_micros)
        log_warning(
            "clock_absence",
            newest=newest,
            start=start,
            why="no second clock shows whether the time passed or the clock is wrong",
        )
    if clock.lead_micros() > CLOCK_SKEW_MAX_SECONDS * MICROS_PER_SECOND:
        log_warning("clock_behind", trusted=trusted, host=host)


async def _run_repeatedly(
    work: Callable[[], Awaitable[object]], seconds: float, failure_event: str, *, wait: float = 0.0
) -> None:
    """Run the work after `wait` seconds, and then again `seconds` after each run. Log an error and go on."""
    await asyncio.sleep(wait)
    while True:
        try:
            await work()
        except PvdmError as error:
            log_warning(failure_event, code=error.reason)
        except Exception as error:  # a bug, or an error of the host: the next run may succeed
            log_failure(failure_event, error)
        await asyncio.sleep(seconds)


async def _log_readiness(notary: Notary, readiness: Readiness) -> None:
    """Log if the Steward has stopped being ready or is ready again, even if /readyz is not called."""
    readiness.log_change(await run_sync(notary.readiness))


async def _raise_invalid(_: Request, error: Any) -> NoReturn:
    """Raise for a wrong parameter of path or query; the middleware sends the response."""
    raise invalid_request_error(error.errors()) from None


async def _raise_unexpected(_: Request, error: Any) -> NoReturn:
    """Raise an error of the framework as `request_invalid`; the middleware sends the response."""
    raise Code.REQUEST_INVALID("the request cannot be accepted", got=f"status {error.status_code}") from None
