"""Metrics of work and proofs, computed from the ledger: equal in every Steward, and after a restart."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pvdm.errors import Code, PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.work import statistics
from pvdm.ledger.work.statistics import AttemptEnd, Origin
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.states import CRASH_LOOP_LEASES, AttemptState
from pvdm.steward.notary import Notary
from pvdm.steward.threads import call_in_daemon_thread
from pvdm.steward.work.opened import contract_of

METRIC_OWNERS_MAX: Final = 200
"""How many owners (see `Owner`) have metrics of their own. All others share metrics, with the labels `other`."""

# How long a scrape waits until new rows are counted.
_COUNT_WAIT_SECONDS: Final = 3.0
# How far each count looks back for rows whose transactions were committed late.
_LOOK_BACK_MICROS: Final = 3_600 * MICROS_PER_SECOND
_BUCKET_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)
_LABELS: Final = ("domain", "product", "producer")

Owner: TypeAlias = tuple[str, str, str]
"""The values of `_LABELS`."""
_OTHER: Final[Owner] = ("other", "other", "other")


@dataclass(slots=True)
class _Durations:
    """How many durations are in each bucket, and the sum of all durations."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKET_SECONDS) + 1))
    sum_seconds: float = 0.0

    def add(self, micros: int) -> None:
        seconds = max(0.0, micros / MICROS_PER_SECOND)
        self.counts[bisect_left(_BUCKET_SECONDS, seconds)] += 1
        self.sum_seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound with the number of durations up to it."""
        found, total = [], 0
        for bound, count in zip((*map(str, _BUCKET_SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class _Progress:
    """How far a history is counted. Each row is counted once, even if its transaction was committed late."""

    def __init__(self) -> None:
        self._newest = 0  # the time of the newest counted row
        self._recent: dict[str, int] = {}  # the counted rows that `_LOOK_BACK_MICROS` finds again

    def count_new(
        self,
        ledger: Ledger,
        page_rows: Callable[[Unit, tuple[int, str]], list[tuple[int, str]]],
        count: Callable[[Unit, list[str]], None],
    ) -> None:
        """Count the rows that are new since the last call. The first call reads all rows, page by page."""
        after = (max(0, self._newest - _LOOK_BACK_MICROS), "")
        while True:
            with ledger.read() as unit:
                page = page_rows(unit, after)
                new = {key: at_micros for at_micros, key in page if key not in self._recent}
                count(unit, list(new))
                self._recent |= new
                self._newest = max([self._newest, *new.values()])
            if len(page) < statistics.HISTORY_PAGE_MAX_ROWS:
                break
            after = page[-1]
        oldest = self._newest - _LOOK_BACK_MICROS
        self._recent = {key: at_micros for key, at_micros in self._recent.items() if at_micros >= oldest}


class WorkMetrics:
    """Counts ended attempts and proofs, each once, and reads live attempts and leases at each scrape.

    Thread-safe: one scrape at a time reads, and concurrent scrapes get the metrics of the scrape before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counting: Future[None] | None = None
        self._shown: list[Metric] = []
        self._products: dict[str, str] = {}  # by the hash of the contract
        self._owners: set[Owner] = set()  # with metrics of their own, from the first attempts that ended
        self._ends_counted, self._proofs_counted = _Progress(), _Progress()
        self._verdicts = Counter[str]()
        self._ended = Counter[tuple[Owner, str, str]]()
        self._failures = Counter[tuple[Owner, str]]()
        self._rows = Counter[Owner]()
        self._to_verdict: dict[Owner, _Durations] = defaultdict(_Durations)
        self._to_publication: dict[Owner, _Durations] = defaultdict(_Durations)

    def collect(self, notary: Notary) -> Iterator[Metric]:
        """All metrics of work; those of the scrape before if new rows cannot be counted in time.

        Raises PvdmError if the ledger cannot be read, or while the first count is not finished.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._count_in_time(notary):
                    self._shown = [*self._proof_metrics(), *self._ended_metrics(), *self._live_metrics(notary)]
            finally:
                self._lock.release()
        if not self._shown:
            raise Code.SERVICE_BUSY("the attempts and proofs in the ledger are not counted yet")
        return iter(self._shown)

    def _count_in_time(self, notary: Notary) -> bool:
        """Count new rows in another thread, since the first count may take minutes. Returns whether the count ended."""
        if self._counting is None:
            self._counting = call_in_daemon_thread(partial(self._count_new, notary.ledger), "pvdm-metrics")
        ended, _ = wait([self._counting], _COUNT_WAIT_SECONDS)
        if ended:
            self._counting = None
        for each in ended:
            each.result()  # raises what the count has raised
        return bool(ended)

    def _count_new(self, ledger: Ledger) -> None:
        self._ends_counted.count_new(ledger, statistics.page_ended, self._count_ends)
        self._proofs_counted.count_new(ledger, statistics.page_proofs, self._count_proofs)

    def _count_proofs(self, unit: Unit, proof_ids: list[str]) -> None:
        self._verdicts += statistics.count_verdicts(unit, proof_ids)

    def _count_ends(self, unit: Unit, attempt_ids: list[str]) -> None:
        ends = statistics.read_ends(unit, attempt_ids)
        owners = {key: self._owner_of(unit, each.origin) for key, each in ends.items()}
        for attempt_id in attempt_ids:
            self._count(ends[attempt_id], self._choose_owner(owners[attempt_id]))

    def _count(self, each: AttemptEnd, owner: Owner) -> None:
        self._ended[owner, each.state.value, "none" if each.verdict is None else each.verdict.value] += 1
        for failure in each.classes:
            self._failures[owner, failure.value] += 1
        self._rows[owner] += each.rows_added
        if each.handed_in_micros is None:
            return
        if each.verdict_micros is not None:
            self._to_verdict[owner].add(each.verdict_micros - each.handed_in_micros)
        if each.state is AttemptState.COMMITTED:
            self._to_publication[owner].add(each.ended_micros - each.handed_in_micros)

    def _choose_owner(self, owner: Owner) -> Owner:
        """The owner, or `_OTHER` if the limit is reached. Later calls for the owner return the same."""
        if owner not in self._owners and len(self._owners) >= METRIC_OWNERS_MAX:
            return _OTHER
        self._owners.add(owner)
        return owner

    def _owner_of(self, unit: Unit, origin: Origin) -> Owner:
        product = self._products.get(origin.contract_hash)
        if product is None:
            try:
                product = contract_of(unit, origin.contract_hash).product.product
            except PvdmError as error:
                if error.code != Code.RECORD_UNKNOWN:
                    raise
                product = "unknown"  # a restored ledger may lack the contract
            self._products[origin.contract_hash] = product
        return origin.domain, product, origin.producer

    def _proof_metrics(self) -> Iterator[Metric]:
        family = CounterMetricFamily("pvdm_steward_proofs", "Proofs in the ledger by verdict", labels=["verdict"])
        for verdict in ("PASS", "FAIL"):
            family.add_metric([verdict], self._verdicts[verdict])
        yield family

    def _ended_metrics(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            "pvdm_steward_attempts_ended",
            "Attempts that have ended, by state and last verdict",
            labels=[*_LABELS, "state", "verdict"],
        )
        for (owner, state, verdict), count in sorted(self._ended.items()):
            ended.add_metric([*owner, state, verdict], count)
        failures = CounterMetricFamily(
            "pvdm_steward_attempt_failures",
            "Ended attempts whose last verdict is FAIL, by failure class; an attempt may have several classes",
            labels=[*_LABELS, "class"],
        )
        for (owner, failure), count in sorted(self._failures.items()):
            failures.add_metric([*owner, failure], count)
        rows = CounterMetricFamily("pvdm_steward_rows_published", "Rows that publications have added", labels=_LABELS)
        for owner, count in sorted(self._rows.items()):
            rows.add_metric(owner, count)
        to_verdict = HistogramMetricFamily(
            "pvdm_steward_verdict_seconds", "Time from hand-in to the first verdict", labels=_LABELS
        )
        to_publication = HistogramMetricFamily(
            "pvdm_steward_publication_seconds", "Time from hand-in to publication", labels=_LABELS
        )
        for family, durations in ((to_verdict, self._to_verdict), (to_publication, self._to_publication)):
            for owner, each in sorted(durations.items(), key=lambda item: item[0]):
                family.add_metric(owner, each.buckets(), each.sum_seconds)
        yield from (ended, failures, rows, to_verdict, to_publication)

    def _live_metrics(self, notary: Notary) -> Iterator[Metric]:
        now = notary.clock.trusted_micros()
        with notary.ledger.read() as unit:
            live = [(self._owner_of(unit, each.origin), each) for each in statistics.count_live_attempts(unit)]
            leases = statistics.count_live_leases(unit, now).items()
            leased = [(self._owner_of(unit, origin), count) for origin, count in leases]
            looping = [
                self._owner_of(unit, each) for _, each in statistics.list_without_progress(unit, CRASH_LOOP_LEASES)
            ]
        shown = self._choose_live_owners([owner for owner, _ in live] + [owner for owner, _ in leased] + looping)
        counts, oldest = Counter[tuple[Owner, str]](), dict[tuple[Owner, str], float]()
        for owner, each in live:
            key = (shown[owner], each.state.value)
            counts[key] += each.count
            oldest[key] = max(oldest.get(key, 0.0), (now - each.since_micros) / MICROS_PER_SECOND)
        with_state = [*_LABELS, "state"]
        attempts = GaugeMetricFamily("pvdm_steward_attempts", "Attempts that have not ended", labels=with_state)
        ages = GaugeMetricFamily(
            "pvdm_steward_attempt_oldest_seconds",
            "How long the oldest attempt has been in its state",
            labels=with_state,
        )
        for (owner, state), count in sorted(counts.items()):
            attempts.add_metric([*owner, state], count)
            ages.add_metric([*owner, state], oldest[owner, state])
        held = GaugeMetricFamily("pvdm_steward_leases", "Workloads on which a run works now", labels=_LABELS)
        for owner, count in sorted(_sum_by_owner([(shown[owner], count) for owner, count in leased]).items()):
            held.add_metric(owner, count)
        loops = GaugeMetricFamily(
            "pvdm_steward_crash_loops", "Open workloads whose last runs handed nothing in", labels=_LABELS
        )
        for owner, count in sorted(_sum_by_owner([(shown[owner], 1) for owner in looping]).items()):
            loops.add_metric(owner, count)
        yield from (attempts, ages, held, loops)

    def _choose_live_owners(self, owners: list[Owner]) -> dict[Owner, Owner]:
        """For each owner, the owner under which its gauges are shown. Owners of counters have precedence."""
        new = sorted(set(owners) - self._owners)[: max(0, METRIC_OWNERS_MAX - len(self._owners))]
        return {owner: owner if owner in self._owners or owner in new else _OTHER for owner in owners}


def _sum_by_owner(counts: list[tuple[Owner, int]]) -> Counter[Owner]:
    found = Counter[Owner]()
    for owner, count in counts:
        found[owner] += count
    return found
