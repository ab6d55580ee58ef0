"""Plans and digesters: plans that are refused, errors with the row of the whole input, and interruptions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest import Construction, Digester, Engine, Mode, Plan, digest
from pvdm.errors import InputError
from pvdm.model.projection import Exclusion, Projection, ProjectionName, content, identity
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.model.secret import DigestKey
from tests.support.for_each import for_each

LONG = PrimitiveType(Kind.LONG)
OLD = Schema((Field("id", LONG, required=True),))
NEW = Schema((Field("id", LONG, required=True), Field("amount", LONG)))
PLAN = Plan(NEW, (content(NEW),))
KEYS = {ProjectionName.CONTENT: DigestKey(bytes(range(32)), epoch=1)}


def batch_of(ids: list[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "amount": pa.array(ids, pa.int64())})


def refusal_of(call: Callable[[], Any]) -> InputError:
    with pytest.raises(InputError) as refusal:
        call()
    return refusal.value


def test_a_content_projection_of_another_schema_is_refused() -> None:
    assert refusal_of(lambda: Plan(NEW, (content(OLD),))).reason == "coverage_incomplete"


def test_a_content_projection_made_by_hand_that_leaves_a_column_out_is_refused() -> None:
    assert refusal_of(lambda: Plan(NEW, (Projection(ProjectionName.CONTENT, ("id",)),))).reason == "coverage_incomplete"


def test_an_exclusion_made_by_hand_without_a_reason_is_refused() -> None:
    projection = Projection(ProjectionName.CONTENT, ("id",), (Exclusion("amount", " "),))
    assert refusal_of(lambda: Plan(NEW, (projection,))).reason == "exclusion_reason_missing"


def test_an_identity_that_excludes_is_refused() -> None:
    projection = Projection(ProjectionName.IDENTITY, ("id",), (Exclusion("amount", "not a key"),))
    assert refusal_of(lambda: Plan(NEW, (projection,))).reason == "projection_invalid"


@for_each(
    "parts",
    [
        (NEW, (content(NEW),), "portable"),
        (NEW, (content(NEW),), Mode.STORED, "blake3"),
        (pa.schema([]), (content(NEW),)),
        (NEW, ("content",)),
    ],
    ids=["mode", "construction", "schema", "projection"],
)
def test_plan_arguments_of_another_type_are_refused(parts: tuple[Any, ...]) -> None:
    assert refusal_of(lambda: Plan(*parts)).reason == "plan_invalid"


@pytest.mark.parametrize(
    "call",
    [
        lambda: identity(NEW, "id"),
        lambda: identity(NEW, [1]),  # type: ignore[list-item]
        lambda: content(NEW, exclude=["amount"]),  # type: ignore[arg-type]
    ],
    ids=["a word", "numbers", "a list"],
)
def test_columns_that_are_no_list_of_names_are_refused(call: Callable[[], Any]) -> None:
    assert refusal_of(call).reason == "projection_invalid"


@pytest.mark.parametrize("keys", [{}, KEYS[ProjectionName.CONTENT], {ProjectionName.CONTENT: bytes(32)}], ids=str)
def test_missing_or_wrong_keys_are_refused(keys: Any) -> None:
    assert refusal_of(lambda: Digester(PLAN, keys)).reason == "keys_invalid"


@for_each("threads", [0, 257, "2", None], ids=str)
def test_an_invalid_number_of_threads_is_refused(threads: Any) -> None:
    assert refusal_of(lambda: digest(batch_of([1]), PLAN, KEYS, threads=threads)).reason == "threads_invalid"


@pytest.mark.parametrize("data", [[1], "rows", pa.chunked_array([[1]])], ids=["list", "text", "chunked array"])
def test_data_that_is_not_arrow_is_refused(data: Any) -> None:
    assert refusal_of(lambda: digest(data, PLAN, KEYS)).reason == "input_not_arrow"


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_names_the_row_of_the_whole_input(engine: Engine, threads: int) -> None:
    batches = [batch_of([1, 2, 3]), batch_of([4, 5]), batch_of([6, None])]
    table = pa.Table.from_batches(batches)
    refusal = refusal_of(lambda: digest(table, PLAN, KEYS, threads=threads, engine=engine))
    assert (refusal.reason, refusal.details) == ("null_in_required", {**refusal.details, "column": "id", "row": 6})


def test_an_error_of_a_second_update_names_the_row_since_the_first(engine: Engine) -> None:
    digester = Digester(PLAN, KEYS, engine=engine)
    digester.update(batch_of([1, 2, 3]))
    assert refusal_of(lambda: digester.update(batch_of([4, None]))).details["row"] == 4


def test_an_error_has_a_hint(engine: Engine) -> None:
    assert refusal_of(lambda: digest(batch_of([None]), PLAN, KEYS, engine=engine)).hint


def test_a_digester_that_failed_is_void(engine: Engine) -> None:
    digester = Digester(PLAN, KEYS, engine=engine)
    with pytest.raises(InputError):
        digester.update(batch_of([None]))
    assert refusal_of(digester.partials).reason == "digester_void"
    assert refusal_of(lambda: digester.update(batch_of([1]))).reason == "digester_void"


def test_a_digester_is_void_after_a_reader_that_failed_between_batches(engine: Engine) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch_of([1, 2])
        raise OSError("the disk is gone")

    digester = Digester(PLAN, KEYS, engine=engine)
    with pytest.raises(OSError, match="the disk is gone"):
        digester.update(pa.RecordBatchReader.from_batches(batch_of([]).schema, broken()))
    assert refusal_of(digester.partials).reason == "digester_void"
    assert refusal_of(lambda: digester.update(batch_of([3]))).reason == "digester_void"


def test_a_digester_stays_void_if_another_thread_fails_while_a_batch_is_added(engine: Engine) -> None:
    digester = Digester(PLAN, KEYS, engine=engine)
    with digester._adding():
        assert refusal_of(digester.partials).reason == "digester_in_use"
        assert refusal_of(lambda: digester.update(batch_of([1]))).reason == "digester_in_use"
    assert refusal_of(digester.partials).reason == "digester_void"


def test_an_empty_table_of_another_schema_is_refused(engine: Engine) -> None:
    empty = batch_of([]).schema.set(0, pa.field("id", pa.string())).empty_table()
    assert refusal_of(lambda: digest(empty, PLAN, KEYS, engine=engine)).reason == "cast_refused"


def test_an_interruption_ends_several_threads_over_an_endless_stream(engine: Engine) -> None:
    timer = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])

    def endless() -> Iterator[pa.RecordBatch]:
        timer.start()  # only now: before the digest reads, the signal would end the test itself
        while True:
            yield batch_of([1, 2, 3])

    reader = pa.RecordBatchReader.from_batches(batch_of([]).schema, endless())
    with pytest.raises(KeyboardInterrupt):
        digest(reader, PLAN, KEYS, threads=3, engine=engine)


def test_an_interruption_that_does_not_wake_the_waiting_thread_ends_the_digest(engine: Engine) -> None:
    interrupt = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            if interrupt.is_set():
                interrupt.clear()
                # The signal goes to the thread that reads. So the main thread stays asleep, as it would after a signal
                # that arrives just before it sleeps.
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            yield batch_of([1, 2, 3])

    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    reader = pa.RecordBatchReader.from_batches(batch_of([]).schema, endless())
    with pytest.raises(KeyboardInterrupt):
        digest(reader, PLAN, KEYS, threads=3, engine=engine)


@pytest.mark.parametrize("construction", Construction, ids=lambda construction: construction.value)
def test_an_error_of_the_reader_is_raised_without_a_digest(engine: Engine, construction: Construction) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch_of([1])
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(batch_of([]).schema, broken())
    plan = Plan(NEW, (content(NEW),), Mode.STORED, construction)
    with pytest.raises(OSError, match="gone"):
        digest(reader, plan, KEYS, threads=2, engine=engine)
