"""Delivers the events of a channel in a thread of its own, at least once each, by one Steward of a ledger at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from pvdm.errors import PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import outbox
from pvdm.ledger.record.outbox import Channel, OutboxEvent
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.steward.logs import log_failure, log_warning

DELIVERY_RETRY_MAX_SECONDS: Final = 3_600
UNBUILT_TRIES_MAX: Final = 12
"""After this many tries an event that cannot be built is set aside, about two and a half hours after the first try."""
POLL_SECONDS: Final = 2.0
# The pause between two polls doubles after each failure in a row, at most this often: to about a minute.
_DOUBLINGS_MAX: Final = 5
_RETRY_SECONDS: Final = 5.0
_UNBUILT: Final = "the event cannot be built"

Send = Callable[[OutboxEvent], None]
"""Sends an event. Raises DeliveryError if the receiver has not accepted it; another error if it cannot be built."""

_Result: TypeAlias = tuple[bool, Callable[[Unit], None]]
"""Whether the receiver accepted an event, and the function that stores what became of the event."""


class DeliveryError(Exception):
    """The receiver has not accepted an event. The text says why, without secrets."""


class Delivery:
    """Sends the events that are due. An event that the receiver has not accepted is sent again later."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, channel: Channel, send: Send) -> None:
        self._ledger = ledger
        self._clock = clock
        self._channel = channel
        self._send = send
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # The result that could not be stored, by its event's id. This result is stored before any other event is sent.
        self._unstored: dict[str, _Result] = {}

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._work, name=f"pvdm-{self._channel}", daemon=True)
            self._thread.start()

    def stop(self, seconds: float) -> None:
        """Begin no further delivery, and wait up to `seconds` for the current one. The next start delivers the rest."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)
            self._thread = None

    def deliver_due(self) -> int:
        """Deliver the events that are due, unless another Steward does. Returns how many the receiver accepted."""
        now = self._clock.now_micros()
        if not self._list_due(now):
            return 0
        with self._ledger.try_lock(f"delivery of {self._channel}") as is_locked:
            # Read again: another Steward may have delivered them meanwhile.
            due = self._list_due(now) if is_locked else []
            due.sort(key=lambda event: event.event_id not in self._unstored)
            return sum(self._deliver(event) for event in due)

    def _work(self) -> None:
        failures = 0
        while not self._stopping.wait(POLL_SECONDS * 2.0 ** min(failures, _DOUBLINGS_MAX)):
            failures += 1
            try:
                self.deliver_due()
                failures = 0
            except PvdmError as error:  # the ledger or the clock
                log_warning("outbox_not_read", channel=self._channel.value, code=error.reason)
            except Exception as error:
                log_failure("delivery_met_a_bug", error, channel=self._channel.value)

    def _list_due(self, now_micros: int) -> list[OutboxEvent]:
        with self._ledger.read() as unit:
            return outbox.list_due(unit, self._channel, now_micros)

    def _deliver(self, event: OutboxEvent) -> bool:
        """Send the event unless an earlier call did, and store the result. Returns whether the receiver accepted it."""
        if self._stopping.is_set():
            return False
        if event.event_id not in self._unstored:
            self._unstored = {event.event_id: self._send_once(event)}
        is_accepted, store = self._unstored[event.event_id]
        self._ledger.transact(store, at_micros=self._clock.now_micros())
        self._unstored = {}
        return is_accepted

    def _send_once(self, event: OutboxEvent) -> _Result:
        try:
            self._send(event)
        except DeliveryError as error:
            return self._try_later(event, str(error))
        except (StateUnknownError, UnavailableError):  # the ledger failed, which is not the event's fault
            raise
        except Exception as error:
            return self._note_unbuilt(event, error)
        return True, partial(outbox.note_delivered, event_id=event.event_id)

    def _try_later(self, event: OutboxEvent, problem: str) -> _Result:
        wait = min(DELIVERY_RETRY_MAX_SECONDS, _RETRY_SECONDS * 2.0 ** min(event.tries, 16))
        log_warning("not_delivered", channel=self._channel.value, event_id=event.event_id, tries=event.tries + 1)
        due = self._clock.now_micros() + int(wait * MICROS_PER_SECOND)
        return False, partial(outbox.note_problem, event=event, problem=problem, due_micros=due)

    def _note_unbuilt(self, event: OutboxEvent, error: Exception) -> _Result:
        """The result for an event that cannot be built: try later, or set it aside. Later events are delivered."""
        if isinstance(error, PvdmError):
            problem = f"{_UNBUILT}: {error.reason}"
        else:
            log_failure("delivery_met_a_bug", error, channel=self._channel.value)
            problem = f"{_UNBUILT}: {type(error).__name__}"
        if not (event.problem or "").startswith(_UNBUILT):
            event = replace(event, tries=0)  # the tries before failed at the receiver, and do not count here
        if event.tries + 1 < UNBUILT_TRIES_MAX:
            return self._try_later(event, problem)
        log_warning("event_set_aside", channel=self._channel.value, event_id=event.event_id)
        return False, partial(outbox.set_aside, event=event, problem=problem)
