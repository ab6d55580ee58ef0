"""The door: plans that leave nothing out, errors that name the row of the whole input, interruption, void digesters."""

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

LONG = PrimitiveType(Kind.LONG)
OLD = Schema((Field("id", LONG, required=True),))
NEW = Schema((Field("id", LONG, required=True), Field("amount", LONG)))
PLAN = Plan(NEW, (content(NEW),))
KEYS = {ProjectionName.CONTENT: DigestKey(bytes(range(32)), epoch=1)}


def rows(ids: list[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "amount": pa.array(ids, pa.int64())})


def refused(call: Callable[[], Any]) -> InputError:
    with pytest.raises(InputError) as refusal:
        call()
    return refusal.value


def test_a_content_projection_of_another_schema_is_refused() -> None:
    assert refused(lambda: Plan(NEW, (content(OLD),))).reason == "coverage_incomplete"


def test_a_content_projection_made_by_hand_that_leaves_a_column_out_is_refused() -> None:
    assert refused(lambda: Plan(NEW, (Projection(ProjectionName.CONTENT, ("id",)),))).reason == "coverage_incomplete"


def test_an_exclusion_made_by_hand_without_a_reason_is_refused() -> None:
    bare = Projection(ProjectionName.CONTENT, ("id",), (Exclusion("amount", " "),))
    assert refused(lambda: Plan(NEW, (bare,))).reason == "exclusion_reason_missing"


def test_an_identity_that_excludes_is_refused() -> None:
    odd = Projection(ProjectionName.IDENTITY, ("id",), (Exclusion("amount", "not a key"),))
    assert refused(lambda: Plan(NEW, (odd,))).reason == "projection_invalid"


@pytest.mark.parametrize(
    "parts",
    [
        (NEW, (content(NEW),), "portable"),
        (NEW, (content(NEW),), Mode.STORED, "blake3"),
        (pa.schema([]), (content(NEW),)),
        (NEW, ("content",)),
    ],
    ids=["mode", "construction", "schema", "projection"],
)
def test_words_in_the_place_of_values_are_refused(parts: tuple[Any, ...]) -> None:
    assert refused(lambda: Plan(*parts)).reason == "plan_invalid"


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
    assert refused(call).reason == "projection_invalid"


@pytest.mark.parametrize("keys", [{}, KEYS[ProjectionName.CONTENT], {ProjectionName.CONTENT: bytes(32)}], ids=str)
def test_keys_that_do_not_fit_are_refused(keys: Any) -> None:
    assert refused(lambda: Digester(PLAN, keys)).reason == "keys_invalid"


@pytest.mark.parametrize("threads", [0, 257, "2", None], ids=str)
def test_a_number_of_threads_that_makes_no_sense_is_refused(threads: Any) -> None:
    assert refused(lambda: digest(rows([1]), PLAN, KEYS, threads=threads)).reason == "threads_invalid"


@pytest.mark.parametrize("data", [[1], "rows", pa.chunked_array([[1]])], ids=["list", "text", "chunked array"])
def test_what_is_not_a_table_is_refused(data: Any) -> None:
    assert refused(lambda: digest(data, PLAN, KEYS)).reason == "input_not_arrow"


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_names_the_row_of_the_whole_input(engine: Engine, threads: int) -> None:
    batches = [rows([1, 2, 3]), rows([4, 5]), rows([6, None])]
    table = pa.Table.from_batches(batches)
    refusal = refused(lambda: digest(table, PLAN, KEYS, threads=threads, engine=engine))
    assert (refusal.reason, refusal.details) == ("null_in_required", {**refusal.details, "column": "id", "row": 6})


def test_an_error_of_a_second_update_names_the_row_since_the_first(engine: Engine) -> None:
    digester = Digester(PLAN, KEYS, engine=engine)
    digester.update(rows([1, 2, 3]))
    assert refused(lambda: digester.update(rows([4, None]))).details["row"] == 4


def test_an_error_carries_a_next_step(engine: Engine) -> None:
    assert refused(lambda: digest(rows([None]), PLAN, KEYS, engine=engine)).hint


def test_a_digester_that_failed_gives_nothing_any_more(engine: Engine) -> None:
    digester = Digester(PLAN, KEYS, engine=engine)
    with pytest.raises(InputError):
        digester.update(rows([None]))
    assert refused(digester.partials).reason == "digester_void"
    assert refused(lambda: digester.update(rows([1]))).reason == "digester_void"


def test_an_empty_table_of_another_schema_is_refused(engine: Engine) -> None:
    empty = rows([]).schema.set(0, pa.field("id", pa.string())).empty_table()
    assert refused(lambda: digest(empty, PLAN, KEYS, engine=engine)).reason == "cast_refused"


def test_an_interruption_ends_several_threads_over_an_endless_stream(engine: Engine) -> None:
    timer = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])

    def endless() -> Iterator[pa.RecordBatch]:
        timer.start()  # only now: before the digest reads, the signal would end the test itself
        while True:
            yield rows([1, 2, 3])

    reader = pa.RecordBatchReader.from_batches(rows([]).schema, endless())
    with pytest.raises(KeyboardInterrupt):
        digest(reader, PLAN, KEYS, threads=3, engine=engine)


def test_an_interruption_that_does_not_wake_the_waiting_thread_ends_the_digest_too(engine: Engine) -> None:
    interrupt = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            if interrupt.is_set():
                interrupt.clear()
                # In the thread that reads: the main thread sleeps on, as after a signal just before its sleep.
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            yield rows([1, 2, 3])

    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    reader = pa.RecordBatchReader.from_batches(rows([]).schema, endless())
    with pytest.raises(KeyboardInterrupt):
        digest(reader, PLAN, KEYS, threads=3, engine=engine)


@pytest.mark.parametrize("construction", Construction, ids=lambda construction: construction.value)
def test_a_reader_that_breaks_in_the_middle_gives_no_digest(engine: Engine, construction: Construction) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows([1])
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(rows([]).schema, broken())
    plan = Plan(NEW, (content(NEW),), Mode.STORED, construction)
    with pytest.raises(OSError, match="gone"):
        digest(reader, plan, KEYS, threads=2, engine=engine)
