"""Plays one round: producers publish, faults come at their times, whatever ended is started again."""

from __future__ import annotations

import contextlib
import functools
import heapq
import json
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.random_kills.schedule import Fault, Kind, Round, Work
from tests.random_kills.world import World
from tests.support.servers.starter import Process

PRODUCERS_END_SECONDS = 150
"""By then, after the last fault, every producer has an answer for every workload."""
STEWARD_END_SECONDS = 90
"""How long a Steward may take to end once it is asked to; it finishes what it has begun."""
_LOOK_SECONDS = 0.2
_TWIN_SECONDS = 6.0
"""During a stop that is longer, the producer is started a second time."""


@dataclass(slots=True)
class Played:
    """What happened in a round: faults that struck, faults whose victim was down, and the producers' notes."""

    acknowledged: set[str] = field(default_factory=set)
    notes: list[dict[str, str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Producer:
    works: tuple[Work, ...]
    notes: Path
    process: Process
    ends_by_itself: bool = True


class Play:
    """One round in one world."""

    def __init__(self, world: World, plan: Round) -> None:
        self._world, self._plan = world, plan
        self._played = Played()
        self._began = 0.0
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._producers: dict[int, list[_Producer]] = {}
        self._steward_from = 0.0
        self._started = 0
        self._ending: list[Process] = []

    def run(self) -> Played:
        """The round from its beginning to the end of its last producer."""
        world = self._world
        if (why := world.wait_until_ready()) is not None:
            raise AssertionError(why)
        self._began = time.monotonic()
        for number, works in enumerate(self._plan.producers):
            self._start_producer(number, works)
        for fault in self._plan.faults:
            self._schedule(fault.at_seconds, functools.partial(self._strike, fault))
        while self._scheduled or self._running():
            self._do_next()
            self._supervise()
            last = max((fault.at_seconds + fault.seconds for fault in self._plan.faults), default=0.0)
            if self._now > last + PRODUCERS_END_SECONDS:
                self._give_up_waiting()
                break
        self._world.order.unlink(missing_ok=True)
        self._await_ends()
        self._read_notes()
        return self._played

    def _await_ends(self) -> None:
        """Wait for the end of Stewards that got SIGTERM: they could still answer requests of the check."""
        for steward in self._ending:
            until = time.monotonic() + STEWARD_END_SECONDS
            while not steward.has_ended() and time.monotonic() < until:
                time.sleep(0.05)
            if not steward.has_ended():
                self._played.stuck.append(f"a Steward did not end within {STEWARD_END_SECONDS} s of SIGTERM")

    # Time.

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _schedule(self, at: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._scheduled, (at, self._order, action))

    def _do_next(self) -> None:
        """Do the next action if it is due. Else wait for its time, or until a process ends."""
        if self._scheduled and self._scheduled[0][0] <= self._now:
            heapq.heappop(self._scheduled)[2]()
            return
        wait = min(_LOOK_SECONDS, self._scheduled[0][0] - self._now if self._scheduled else _LOOK_SECONDS)
        poll = select.poll()
        for process in self._running_processes():
            poll.register(process.descriptor, select.POLLIN)
        poll.poll(max(0.0, wait) * 1000)

    # Faults.

    def _strike(self, fault: Fault) -> None:
        struck = {
            Kind.KILL_STEWARD: self._signal_steward,
            Kind.END_STEWARD: self._signal_steward,
            Kind.STOP_STEWARD: self._stop_steward,
            Kind.KILL_PRODUCER: self._kill_producer,
            Kind.STOP_PRODUCER: self._stop_producer,
            Kind.KILL_AT_POINT: self._order_kill,
            Kind.POWER_CUT: self._cut_power,
            Kind.RESTART_POSTGRESQL: self._restart_postgresql,
        }[fault.kind](fault)
        (self._played.faults if struck else self._played.missed)[fault.kind.value] += 1

    def _signal_steward(self, fault: Fault) -> bool:
        steward = self._world.steward
        if steward is None or steward.has_ended():
            return False
        self._steward_from = self._now + fault.seconds
        if fault.kind is Kind.KILL_STEWARD:
            steward.kill()
        else:
            steward.send(signal.SIGTERM)
            self._ending.append(steward)
        return True

    def _stop_steward(self, fault: Fault) -> bool:
        steward = self._world.steward
        if steward is None or steward.has_ended():
            return False
        steward.send(signal.SIGSTOP)
        self._schedule(self._now + fault.seconds, lambda: steward.send(signal.SIGCONT))
        return True

    def _kill_producer(self, fault: Fault) -> bool:
        running = self._running_producers(fault.producer)
        for producer in running:
            producer.ends_by_itself = False
            producer.process.kill()
        if running:
            self._schedule(self._now + fault.seconds, functools.partial(self._start_again, fault.producer))
        return bool(running)

    def _stop_producer(self, fault: Fault) -> bool:
        """Stop the producer; during a long stop its scheduler starts the jobs a second time."""
        running = self._running_producers(fault.producer)
        for producer in running:
            producer.process.send(signal.SIGSTOP)
            self._schedule(self._now + fault.seconds, functools.partial(producer.process.send, signal.SIGCONT))
        if running and fault.seconds > _TWIN_SECONDS:
            self._schedule(self._now + fault.seconds / 2, functools.partial(self._start_again, fault.producer))
        return bool(running)

    def _order_kill(self, fault: Fault) -> bool:
        """Let the next process that reaches the point end itself there."""
        self._world.order.write_text(fault.point)
        return True

    def _cut_power(self, fault: Fault) -> bool:
        running = [each for number in self._producers for each in self._running_producers(number)]
        for producer in running:
            producer.ends_by_itself = False
        self._world.lose_power([each.process for each in running])
        self._steward_from = self._now + fault.seconds
        for number in self._producers:
            self._schedule(self._now + fault.seconds, functools.partial(self._start_again, number))
        return True

    def _restart_postgresql(self, fault: Fault) -> bool:
        self._world.stop_postgresql()
        self._schedule(self._now + fault.seconds, self._world.start_postgresql)
        return True

    # Processes.

    def _supervise(self) -> None:
        steward = self._world.steward
        if (steward is None or steward.has_ended()) and self._now >= self._steward_from:
            self._world.start_steward()
            self._steward_from = self._now + 0.5  # a Steward that ends at once is started again at most twice a second

    def _start_producer(self, number: int, works: tuple[Work, ...]) -> None:
        self._started += 1
        notes = self._world.log.with_name(f"{self._world.log.stem}-producer-{self._started}.notes")
        made = _Producer(works, notes, self._world.start_producer(works, notes))
        self._producers.setdefault(number, []).append(made)

    def _start_again(self, number: int) -> None:
        """Start those of the producer's workloads again that were not acknowledged as published."""
        self._read_notes()
        left = tuple(work for work in self._plan.producers[number] if work.workload_id not in self._played.acknowledged)
        if left:
            self._start_producer(number, left)

    def _running_producers(self, number: int) -> list[_Producer]:
        return [each for each in self._producers.get(number, []) if not each.process.has_ended()]

    def _running(self) -> bool:
        return any(self._running_producers(number) for number in self._producers)

    def _running_processes(self) -> Iterator[Process]:
        for number in self._producers:
            yield from (each.process for each in self._running_producers(number))
        if self._world.steward is not None and not self._world.steward.has_ended():
            yield self._world.steward

    def _give_up_waiting(self) -> None:
        for number in self._producers:
            for producer in self._running_producers(number):
                log = producer.notes.with_suffix(".log").read_text()[-500:]
                self._played.stuck.append(f"producer {number} has no end: {log}")
                producer.process.kill()
        while self._scheduled:
            heapq.heappop(self._scheduled)[2]()

    def _read_notes(self) -> None:
        """Read what the producers have noted; lines that a kill has cut short are left out."""
        notes = []
        for producer in (each for several in self._producers.values() for each in several):
            with contextlib.suppress(FileNotFoundError):
                for line in producer.notes.read_text().splitlines():
                    with contextlib.suppress(ValueError):
                        notes.append(json.loads(line))
        self._played.notes = notes
        self._played.acknowledged = {note["workload_id"] for note in notes if note["outcome"] == "COMMITTED"}
