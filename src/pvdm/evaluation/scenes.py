"""The demo's scenes on real Spark and Iceberg. Each is compared with its script, and a difference is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pvdm.durable.chunk import Chunk
from pvdm.durable.coordinator import Build, Coordinator
from pvdm.durable.outcome import Committed, Outcome
from pvdm.errors import Code, PvdmError
from pvdm.evaluation.attacks import make_unsigned_override, replay, swap_bytes
from pvdm.evaluation.shop import DAYS, DOMAIN, ORDERS, PRODUCER_CATALOG, RETURNS, SHOPS, SOURCE, DemoLake, OrderTotals
from pvdm.lake.stores.stores import Stores
from pvdm.model.role import Role

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DROPPED_ROWS: Final = 6
FIRST_WORKLOAD, SECOND_WORKLOAD = (f"orders-{day}" for day in DAYS)
INSERT: Final = f"INSERT INTO {PRODUCER_CATALOG}.{ORDERS} SELECT * FROM {PRODUCER_CATALOG}.{SOURCE}"  # noqa: S608 - our own names
_CENT: Final = Decimal("0.01")
_NOTHING: Final = OrderTotals(0, Decimal("0.00"))
_JAVA_EXCEPTION: Final = "Exception: "


@dataclass(frozen=True, slots=True)
class SceneResult:
    """The outcome of a scene, with the classes of its verdict and its error if there are any."""

    outcome: str
    classes: tuple[str, ...] = ()
    error: PvdmError | None = None
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene with its result, what a consumer then sees of its table, and the tables' names by their UUIDs."""

    name: str
    title: str
    table: str
    result: SceneResult
    seen: OrderTotals
    names: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The scene in the demo's JSON."""
        result, error = self.result, None
        if result.error is not None:
            names = ("message", "expected", "got", "hint", "check")
            error = {"code": result.error.reason, **{name: getattr(result.error, name) for name in names}}
        return {
            "name": self.name,
            "title": self.title,
            "outcome": result.outcome,
            "classes": list(result.classes),
            "error": error,
            "consumer": {"table": self.table, **self.seen.to_json()},
        }


@dataclass(frozen=True, slots=True)
class Script:
    """What a scene does, and the outcome, the error's reason and the gate's check that it must end with."""

    name: str
    title: str
    act: Callable[[Story], SceneResult]
    outcome: str
    classes: tuple[str, ...] = ()
    reason: str | None = None
    check: int | None = None
    table: str = ORDERS
    reason_in_store: str | None = None
    """The reason in an object store. The store refuses the data files before any commit, and so the Spark job fails."""


@dataclass(slots=True)
class Story:
    """The state that scenes share: the orders that jobs drop and change, and the id of the last FAIL proof."""

    lake: DemoLake
    fail_proof_id: str | None = None
    dropped_ids: list[int] = field(default_factory=list)
    changed_id: int = 0

    def __post_init__(self) -> None:
        ids = self.lake.orders.ids(DAYS[1], SHOPS[0])
        self.dropped_ids = sorted(self.lake.orders.random.sample(ids, DROPPED_ROWS))
        self.changed_id = self.lake.orders.random.choice(ids)

    def publish_clean_day(self) -> SceneResult:
        """Run the contract's own filter as the job."""
        with Coordinator(self.lake.steward, self.lake.spark) as coordinator:
            return self._record(coordinator.execute_workload(FIRST_WORKLOAD, table=ORDERS, day=DAYS[0]))

    def drop_rows(self) -> SceneResult:
        """Run a job that drops six rows."""

        def build(_spark: object, chunk: Chunk) -> DataFrame:
            rows = chunk.rows()
            return rows.where(~rows["order_id"].isin(self.dropped_ids))

        with Coordinator(self.lake.steward, self.lake.spark) as coordinator:
            return self._record(coordinator.execute_workload(SECOND_WORKLOAD, build, table=ORDERS, day=DAYS[1]))

    def double_chunk(self) -> SceneResult:
        """Run a job that writes its chunk twice."""
        return self._repair("the filter was too narrow", lambda _, chunk: chunk.rows().union(chunk.rows()))

    def modify_amount(self) -> SceneResult:
        """Run a job that adds a cent to one amount."""

        def build(_spark: object, chunk: Chunk) -> DataFrame:
            from pyspark.sql import functions

            rows = chunk.rows()
            is_changed = rows["order_id"] == self.changed_id
            amount = functions.when(is_changed, rows["amount"] + _CENT).otherwise(rows["amount"])
            return rows.withColumn("amount", amount.cast("decimal(12, 2)"))

        return self._repair("the union is gone", build)

    def swap_file(self) -> SceneResult:
        """Replace the file of the first chunk, which is proved, while a correct job stages the second."""

        def build(_spark: object, chunk: Chunk) -> DataFrame:
            with self.lake.steward.as_role(Role.PRODUCER, DOMAIN) as client:
                for attempt in client.workload(SECOND_WORKLOAD).attempts:
                    if attempt.waiting:  # proved, and waits for the other chunk
                        swap_bytes(attempt, Stores(self.lake.steward.notary.config.s3))
            return chunk.rows()

        return self._repair("the rounding is gone", build)

    def replay_proofs(self) -> SceneResult:
        """Submit the proofs of the first day to the gate for another table."""
        return self._expect_refusal(lambda: replay(self.lake.steward, FIRST_WORKLOAD, self.lake.table_uuid(RETURNS)))

    def insert(self) -> SceneResult:
        """Run an INSERT as any Spark job may."""
        try:
            self.lake.spark.sql(INSERT)
        except Exception as error:  # Py4J's or PySpark's; only the message counts
            return SceneResult("refused", error=_read_java_error(str(error)))
        return SceneResult("accepted")

    def submit_unsigned_override(self) -> SceneResult:
        """Submit an unsigned override of the last FAIL with an operator's token."""
        if self.fail_proof_id is None:
            raise AssertionError("no earlier scene has ended with a FAIL proof")
        envelope = make_unsigned_override(self.lake.steward, self.fail_proof_id)
        return self._expect_refusal(lambda: self.lake.steward.submit_override(envelope))

    def _repair(self, reason: str, build: Build) -> SceneResult:
        with Coordinator(self.lake.steward, self.lake.spark) as coordinator:
            return self._record(coordinator.repair(SECOND_WORKLOAD, build, reason=reason))

    def _record(self, outcome: Outcome) -> SceneResult:
        attempts = [each.attempt for each in outcome.chunks]
        failed = [each for each in attempts if each.classes]
        if failed:
            self.fail_proof_id = failed[-1].proof_id
        classes = tuple(sorted({each.value for attempt in failed for each in attempt.classes}))
        if isinstance(outcome, Committed):
            return SceneResult(outcome.name, chunks=len(attempts))
        return SceneResult(outcome.name, classes, outcome.error, len(attempts))

    def _expect_refusal(self, act: Callable[[], Any]) -> SceneResult:
        try:
            act()
        except PvdmError as error:
            return SceneResult("refused", error=error)
        return SceneResult("accepted")


def _script_of_fail(name: str, title: str, act: Callable[[Story], SceneResult], failure: str) -> Script:
    """The script of a scene whose verdict is FAIL with one class."""
    return Script(name, title, act, "VERIFICATION_FAILED", (failure,), "verification_failed")


_DROPPING: Final = f"the job for {DAYS[1]} drops {DROPPED_ROWS} rows and ends without an error"
_SWAPPING: Final = "the job is correct at last, and the bytes of its first chunk are swapped after their PASS"
_REPLAYING: Final = f"the proofs of {DAYS[0]} are replayed at the gate for {RETURNS}"
_OVERRIDING: Final = "an unsigned break-glass override of the FAIL is submitted"
SCRIPTS: Final = (
    Script("clean", f"a clean backfill of {DAYS[0]}", Story.publish_clean_day, "COMMITTED"),
    _script_of_fail("dropped", _DROPPING, Story.drop_rows, "missing"),
    _script_of_fail("doubled", "the repaired job writes a chunk twice", Story.double_chunk, "duplicated"),
    _script_of_fail("modified", "the next one changes one amount by a cent", Story.modify_amount, "modified"),
    Script("swapped", _SWAPPING, Story.swap_file, "VERIFICATION_FAILED", reason="published_bytes_changed"),
    Script("replayed", _REPLAYING, Story.replay_proofs, "refused", reason="proof_wrong_table", check=5, table=RETURNS),
    Script("inserted", INSERT, Story.insert, "refused", reason="ForbiddenException", reason_in_store="SparkException"),
    Script("overridden", _OVERRIDING, Story.submit_unsigned_override, "refused", reason="override_unsigned"),
)


def play(lake: DemoLake) -> Iterator[Scene]:
    """Play every scene in order. Raises if one does not end as its script says."""
    story, published = Story(lake), lake.orders.totals(DAYS[0])
    names = {lake.table_uuid(table): table for table in (ORDERS, RETURNS)}
    in_store = lake.steward.notary.config.s3 is not None
    for each in SCRIPTS:
        script = replace(each, reason=each.reason_in_store) if in_store and each.reason_in_store else each
        scene = Scene(
            script.name, script.title, script.table, script.act(story), lake.consumer_totals(script.table), names
        )
        require_as_scripted(script, scene, published if script.table == ORDERS else _NOTHING)
        yield scene


def require_as_scripted(script: Script, scene: Scene, totals: OrderTotals) -> None:
    """Raise unless the scene ended as its script says, and consumers see only what was published."""
    result, error = scene.result, scene.result.error
    check = None if script.check is None or error is None else error.check  # compared if the script names a check
    for what, expected, got in (
        ("the outcome", script.outcome, result.outcome),
        ("the classes of the verdict", script.classes, result.classes),
        ("the error", script.reason, None if error is None else error.reason),
        ("the gate's check", script.check, check),
        ("what a consumer sees", str(totals), str(scene.seen)),
    ):
        if expected != got:
            message = f"{what} of scene {scene.name!r} is not what the demo expects"
            raise Code.BUG(message, reason="demo_failed", expected=str(expected), got=str(got))


def _read_java_error(text: str) -> PvdmError:
    """The first exception of a Java stack trace: its class as the reason, and its message."""
    name, message = "unknown", text.strip().partition("\n")[0][:300]
    for line in text.splitlines():
        class_name, separator, java_message = line.partition(_JAVA_EXCEPTION)
        if separator:  # as in `: org.apache.iceberg.exceptions.ForbiddenException: not authorized`
            name, message = f"{class_name.split('.')[-1].split()[-1]}Exception", java_message.strip()
            break
    return PvdmError(name, message)
