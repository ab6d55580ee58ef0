"""Delivers the events of a channel in a thread of its own, at least once each, by one Steward of a ledger at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pvdm.errors import PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import outbox
from pvdm.ledger.record.outbox import Channel, OutboxEvent
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.steward.logs import log_failure, log_warning

DELIVERY_RETRY_MAX_SECONDS: Final = 3_600
UNBUILT_TRIES_MAX: Final = 12
"""After so many tries an event that cannot be built is set aside: about three hours after the first try."""
POLL_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 5.0

Send = Callable[[OutboxEvent], None]
"""Sends an event. Raises DeliveryError unless the receiver has accepted it; other errors if it cannot be built."""


class DeliveryError(Exception):
    """The receiver has not accepted an event. The text says why, without secrets."""


class Delivery:
    """Sends what is due, and tries again later what the receiver has not accepted."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, channel: Channel, send: Send) -> None:
        self._ledger = ledger
        self._clock = clock
        self._channel = channel
        self._send = send
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._work, name=f"pvdm-{self._channel}", daemon=True)
            self._thread.start()

    def stop(self, seconds: float) -> None:
        """Begin no further delivery, and wait for the current one. The rest is delivered after the next start."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)
            self._thread = None

    def deliver_due(self) -> int:
        """Deliver what is due, unless another Steward does. Returns how many events the receiver accepted."""
        now = self._clock.now_micros()
        if not self._list_due(now):
            return 0
        with self._ledger.try_lock(f"delivery of {self._channel}") as is_locked:
            # Read again: another Steward may have delivered them meanwhile.
            due = self._list_due(now) if is_locked else []
            return sum(self._deliver(event) for event in due)

    def _work(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self.deliver_due()
            except PvdmError as error:  # the ledger or the clock
                log_warning("outbox_not_read", channel=self._channel.value, code=error.reason)
            except Exception as error:
                log_failure("delivery_met_a_bug", error, channel=self._channel.value)

    def _list_due(self, now_micros: int) -> list[OutboxEvent]:
        with self._ledger.read() as unit:
            return outbox.list_due(unit, self._channel, now_micros)

    def _deliver(self, event: OutboxEvent) -> bool:
        if self._stopping.is_set():
            return False
        try:
            self._send(event)
        except DeliveryError as error:
            self._try_later(event, str(error))
            return False
        except (StateUnknownError, UnavailableError):  # the ledger: no fault of the event
            raise
        except Exception as error:
            self._note_unbuilt(event, error)
            return False
        self._ledger.transact(
            lambda unit: outbox.note_delivered(unit, event.event_id), at_micros=self._clock.now_micros()
        )
        return True

    def _try_later(self, event: OutboxEvent, problem: str) -> None:
        wait = min(DELIVERY_RETRY_MAX_SECONDS, _RETRY_SECONDS * 2.0 ** min(event.tries, 16))
        log_warning("not_delivered", channel=self._channel.value, event_id=event.event_id, tries=event.tries + 1)
        now = self._clock.now_micros()
        due = now + int(wait * MICROS_PER_SECOND)
        self._ledger.transact(lambda unit: outbox.note_problem(unit, event, problem, due_micros=due), at_micros=now)

    def _note_unbuilt(self, event: OutboxEvent, error: Exception) -> None:
        """Try an event that cannot be built again later, or set it aside. The events after it are delivered."""
        if isinstance(error, PvdmError):
            problem = f"the event cannot be built: {error.reason}"
        else:
            log_failure("delivery_met_a_bug", error, channel=self._channel.value)
            problem = f"the event cannot be built: {type(error).__name__}"
        if event.tries + 1 < UNBUILT_TRIES_MAX:
            self._try_later(event, problem)
            return
        log_warning("event_set_aside", channel=self._channel.value, event_id=event.event_id)
        self._ledger.transact(lambda unit: outbox.set_aside(unit, event, problem), at_micros=self._clock.now_micros())
