"""The demo's scenes on real Spark and Iceberg; each is held to what it is said to show, so that the demo cannot lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pvdm.durable.chunk import Chunk
from pvdm.durable.coordinator import Build, Coordinator
from pvdm.durable.outcome import Committed, Outcome, VerificationFailed
from pvdm.errors import Code, PvdmError
from pvdm.evaluation.orders import DAYS, SHOPS, Sight
from pvdm.evaluation.shop import DOMAIN, ORDERS, PRODUCER, RETURNS, SOURCE, Shop
from pvdm.evaluation.thefts import replay, swap_bytes, unsigned_override
from pvdm.lake.stores.stores import Stores
from pvdm.model.role import Role

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DROPPED_ROWS: Final = 6
FIRST, SECOND = (f"orders-{day}" for day in DAYS)
INSERT: Final = f"INSERT INTO {PRODUCER}.{ORDERS} SELECT * FROM {PRODUCER}.{SOURCE}"  # noqa: S608 - our own names
_CENT: Final = Decimal("0.01")
_NOTHING: Final = Sight(0, Decimal("0.00"))
_EXCEPTION: Final = "Exception: "


@dataclass(frozen=True, slots=True)
class Told:
    """What the one who tried it is told; `check` is the number of the gate's check, where the gate said so."""

    code: str
    message: str
    expected: str | None = None
    got: str | None = None
    hint: str | None = None
    check: int | None = None

    @classmethod
    def of(cls, error: PvdmError) -> Told:
        """The error's own words."""
        return cls(error.reason, error.message, error.expected, error.got, error.hint, error.check)

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "code": self.code,
            "message": self.message,
            "expected": self.expected,
            "got": self.got,
            "hint": self.hint,
            "check": self.check,
        }


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a try: how it ended, and what was told where it was refused."""

    outcome: str
    classes: tuple[str, ...] = ()
    told: Told | None = None
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """One try and what came of it; `seen` is what a consumer sees afterwards of the table that was aimed at.

    `names`: the tables by their UUIDs, for who reads an error that names a table so.
    """

    name: str
    title: str
    table: str
    played: Played
    seen: Sight
    names: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """For programs."""
        played = self.played
        return {
            "name": self.name,
            "title": self.title,
            "outcome": played.outcome,
            "classes": list(played.classes),
            "error": None if played.told is None else played.told.to_json(),
            "consumer": {"table": self.table, **self.seen.to_json()},
        }


@dataclass(frozen=True, slots=True)
class Script:
    """What a scene is said to show: how it must end, with which code, and at which of the gate's checks if at one."""

    name: str
    title: str
    act: Callable[[Story], Played]
    outcome: str
    classes: tuple[str, ...] = ()
    code: str | None = None
    check: int | None = None
    table: str = ORDERS
    code_in_store: str | None = None
    """Where the object store itself refuses first: Spark says that its job failed."""


@dataclass(slots=True)
class Story:
    """The shop on the two days; `failed` is the proof of the last verdict that was FAIL."""

    shop: Shop
    failed: str | None = None
    lost: list[int] = field(default_factory=list)
    changed: int = 0

    def __post_init__(self) -> None:
        ids = self.shop.orders.ids(DAYS[1], SHOPS[0])
        self.lost = sorted(self.shop.orders.random.sample(ids, DROPPED_ROWS))
        self.changed = self.shop.orders.random.choice(ids)

    def clean(self) -> Played:
        """No job is given: the contract's own filter is the job."""
        with Coordinator(self.shop.steward, self.shop.spark) as coordinator:
            return self._ended(coordinator.execute_workload(FIRST, table=ORDERS, day=DAYS[0]))

    def dropped(self) -> Played:
        """The job leaves six rows out."""

        def build(_spark: object, chunk: Chunk) -> DataFrame:
            rows = chunk.rows()
            return rows.where(~rows["order_id"].isin(self.lost))

        with Coordinator(self.shop.steward, self.shop.spark) as coordinator:
            return self._ended(coordinator.execute_workload(SECOND, build, table=ORDERS, day=DAYS[1]))

    def doubled(self) -> Played:
        """The job writes its chunk twice."""
        return self._repaired("the filter was too narrow", lambda _, chunk: chunk.rows().union(chunk.rows()))

    def modified(self) -> Played:
        """The job adds a cent to one amount."""

        def build(_spark: object, chunk: Chunk) -> DataFrame:
            from pyspark.sql import functions

            rows = chunk.rows()
            amount = functions.when(rows["order_id"] == self.changed, rows["amount"] + _CENT).otherwise(rows["amount"])
            return rows.withColumn("amount", amount.cast("decimal(12, 2)"))

        return self._repaired("the union is gone", build)

    def swapped(self) -> Played:
        """The job is right; but while it stages the second chunk, the file of the first, proved one is exchanged."""

        def build(_spark: object, chunk: Chunk) -> DataFrame:
            with self.shop.steward.as_role(Role.PRODUCER, DOMAIN) as client:
                for attempt in client.workload(SECOND).attempts:
                    if attempt.waiting:
                        swap_bytes(attempt, Stores(self.shop.steward.notary.config.s3))
            return chunk.rows()

        return self._repaired("the rounding is gone", build)

    def replayed(self) -> Played:
        """The proofs of the first day at the gate, for a table that they are not about."""
        return self._refused(lambda: replay(self.shop.steward, FIRST, self.shop.table_uuid(RETURNS)))

    def inserted(self) -> Played:
        """An INSERT as any Spark job would write it."""
        try:
            self.shop.spark.sql(INSERT)
        except Exception as error:  # Py4J's or PySpark's: which one is not the demo's business, its words are
            return Played("refused", told=_sentence(str(error)))
        return Played("accepted")

    def overridden(self) -> Played:
        """An operator's token hands in an override of the last FAIL that nobody signed."""
        if self.failed is None:
            raise AssertionError("a verdict was FAIL before")
        envelope = unsigned_override(self.shop.steward, self.failed)
        return self._refused(lambda: self.shop.steward.submit_override(envelope))

    def _repaired(self, reason: str, build: Build) -> Played:
        with Coordinator(self.shop.steward, self.shop.spark) as coordinator:
            return self._ended(coordinator.repair(SECOND, build, reason=reason))

    def _ended(self, outcome: Outcome) -> Played:
        attempts = [each.attempt for each in outcome.chunks]
        failed = [each for each in attempts if each.classes]
        if failed:
            self.failed = failed[-1].proof_id
        classes = tuple(sorted({each.value for attempt in failed for each in attempt.classes}))
        match outcome:
            case Committed():
                return Played(outcome.name, chunks=len(attempts))
            case VerificationFailed(error=error):
                return Played(outcome.name, classes, Told.of(error), len(attempts))
        return Played(outcome.name, classes, Told.of(outcome.error), len(attempts))

    def _refused(self, act: Callable[[], Any]) -> Played:
        try:
            act()
        except PvdmError as error:
            return Played("refused", told=Told.of(error))
        return Played("accepted")


SCRIPTS: Final = (
    Script("clean", f"a clean backfill of {DAYS[0]}", Story.clean, "COMMITTED"),
    Script(
        "dropped",
        f"the job for {DAYS[1]} drops {DROPPED_ROWS} rows and ends without an error",
        Story.dropped,
        "VERIFICATION_FAILED",
        ("missing",),
        "verification_failed",
    ),
    Script(
        "doubled",
        "the repaired job writes a chunk twice",
        Story.doubled,
        "VERIFICATION_FAILED",
        ("duplicated",),
        "verification_failed",
    ),
    Script(
        "modified",
        "the next one changes one amount by a cent",
        Story.modified,
        "VERIFICATION_FAILED",
        ("modified",),
        "verification_failed",
    ),
    Script(
        "swapped",
        "the job is right at last, and the bytes of its first chunk are swapped after their PASS",
        Story.swapped,
        "VERIFICATION_FAILED",
        (),
        "published_bytes_changed",
    ),
    Script(
        "replayed",
        f"the proofs of {DAYS[0]} are replayed at the gate for {RETURNS}",
        Story.replayed,
        "refused",
        (),
        "proof_wrong_table",
        check=5,
        table=RETURNS,
    ),
    Script("inserted", INSERT, Story.inserted, "refused", (), "ForbiddenException", code_in_store="SparkException"),
    Script(
        "overridden",
        "a break-glass override of the FAIL is handed in, unsigned",
        Story.overridden,
        "refused",
        (),
        "override_unsigned",
    ),
)


def play(shop: Shop) -> Iterator[Scene]:
    """Play every scene in its order; one that does not end as it is said to ends the demo with an error."""
    story, published = Story(shop), shop.orders.sight(DAYS[0])
    names = {shop.table_uuid(table): table for table in (ORDERS, RETURNS)}
    in_store = shop.steward.notary.config.s3 is not None
    for told in SCRIPTS:
        script = replace(told, code=told.code_in_store) if in_store and told.code_in_store else told
        scene = Scene(script.name, script.title, script.table, script.act(story), shop.seen(script.table), names)
        require_as_told(script, scene, published if script.table == ORDERS else _NOTHING)
        yield scene


def require_as_told(script: Script, scene: Scene, sight: Sight) -> None:
    """The scene ended as its script says, and consumers see only what was published."""
    played, told = scene.played, scene.played.told
    for what, expected, got in (
        ("the outcome", script.outcome, played.outcome),
        ("the classes of the verdict", script.classes, played.classes),
        ("the error", script.code, None if told is None else told.code),
        ("the gate's check", script.check, script.check and told and told.check),
        ("what a consumer sees", _shown(sight), _shown(scene.seen)),
    ):
        if expected != got:
            raise demo_failed(f"{what} of scene {scene.name!r} is not what the demo says", str(expected), str(got))


def demo_failed(message: str, expected: str, got: str) -> PvdmError:
    """A demo that shows something else than it says is a bug, here or in what it shows."""
    return PvdmError(Code.DEMO_FAILED, message, expected=expected, got=got)


def _shown(sight: Sight) -> str:
    return f"{sight.rows} rows, {sight.amount} in all"


def _sentence(said: str) -> Told:
    """The catalog's own sentence in the first lines of a Java error, and the exception that Iceberg makes of it."""
    for line in said.splitlines():
        before, sign, sentence = line.partition(_EXCEPTION)
        if sign:
            return Told(f"{before.split('.')[-1].split()[-1]}Exception", sentence.strip())
    return Told("unknown", said.strip().partition("\n")[0][:300])
