"""A catalog beside its model: both get the same requests, and are compared after every step."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from pyiceberg.table.metadata import TableMetadataUtil

from pvdm.catalog.catalog import Catalog, StewardPlaces, open_catalog
from pvdm.catalog.commit import Change
from pvdm.catalog.responses import TableResponse
from pvdm.catalog.state import TableState
from pvdm.errors import NotAllowedError, PvdmError
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.paths import Pointer
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import Grant
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.core import CONTRACT, OPERATOR, PRODUCER, always, grant
from tests.support.catalog.snapshot_files import Made, Pool
from tests.support.oracles.catalog_model import Doc, Model, ancestry, facts, shown, tags
from tests.support.steward.notary import Time

CONSUMER = grant(Role.CONSUMER)
_NAMESPACES = itertools.count(1)

Reader = Callable[[bytes], None]
"""Somebody else's parser of metadata documents: raises on one that it does not accept."""


def pyiceberg_reads(document: bytes) -> None:
    """PyIceberg takes the document."""
    TableMetadataUtil.parse_raw(document.decode())


class Expected(Enum):
    """What must come of a request."""

    DONE = "done"
    REFUSED = "refused"
    GATED = "refused by the gate"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Asked:
    """A commit to one table, and what must come of it."""

    table: str
    updates: Sequence[Doc]
    expected: Expected
    requirements: Sequence[Doc] = ()
    by: Grant = PRODUCER
    permit: Permit | None = None

    @property
    def adds(self) -> bool:
        return any(update.get("action") == "add-snapshot" for update in self.updates)

    @property
    def is_rootless(self) -> bool:
        return self.adds and "parent-snapshot-id" not in self.updates[0]["snapshot"]


@dataclass(slots=True)
class Table:
    """One table of an example."""

    levels: Levels
    model: Model
    loaded: list[Doc]
    pointer: Pointer
    told: TableResponse | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """What examples are played on, each in namespaces of its own: two Stewards on one ledger and one folder."""

    catalog: Catalog
    other: Catalog
    ledger: Ledger
    time: Time
    pool: Pool
    readers: Sequence[Reader]

    @classmethod
    def at(cls, folder: Path, ledger: Ledger, clock: LedgerClock, time: Time, *readers: Reader) -> Stage:
        """A warehouse and metadata files in this folder; the clock goes by `time`."""
        catalog, other = (
            open_catalog(
                ledger,
                clock,
                name="lake",
                warehouse=f"file://{folder}/warehouse",
                homes=StewardPlaces(folder / "catalog"),
            )
            for _ in range(2)
        )
        return cls(catalog, other, ledger, time, Pool(folder / "pool"), readers)


@dataclass
class World:
    """The tables of one example."""

    stage: Stage
    tables: dict[str, Table] = field(default_factory=dict)
    made: dict[int, Made] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number = next(_NAMESPACES)
        self.free: Levels = (f"free{number}",)
        self.kept: Levels = (f"kept{number}",)
        for levels in (self.free, self.kept):
            self.stage.catalog.namespaces.create(OPERATOR, levels, {"pvdm.domain": "sales"})
        self.change(lambda unit: namespaces.protect(unit, namespaces.get(unit, self.kept), CONTRACT))

    @property
    def now_ms(self) -> int:
        return self.stage.time.wall // 1_000

    def change(self, work: Callable[[Unit], object]) -> None:
        self.stage.ledger.transact(work, at_micros=self.stage.time.wall)

    def model(self, name: str) -> Model:
        return self.tables[name].model

    def latest(self, name: str) -> Doc:
        return self.tables[name].loaded[-1]

    def state(self, name: str) -> TableState:
        return self.stage.catalog.states.get(self.tables[name].levels, name)

    def bear(self, name: str, levels: Levels, *, made: Made | None = None, like: Model | None = None) -> None:
        """Note a table that was just made, with the rows it was born with or had before."""
        state = self.stage.catalog.states.get(levels, name)
        document = _document(state)
        model = Model.born(document, protected=levels == self.kept)
        if made is not None:
            model.rows[made.snapshot_id] = made.rows
        if like is not None:
            assert facts(document) == facts(like.document)
            model.rows = like.rows
        self.tables[name] = Table(levels, model, [document], state.row.pointer)
        self.tables[name].told = self._read(name, state)

    def protect(self, name: str) -> None:
        row = self.state(name).row
        self.change(lambda unit: tables.protect(unit, row, CONTRACT))
        self.model(name).protected = True

    def permit(self, name: str, updates: Sequence[Doc]) -> Permit | None:
        """What the gate would make for exactly these updates now; none if they cannot be applied at all."""
        state = self.state(name)
        previous = state.row.pointer.location
        try:
            after = apply_updates(
                state.metadata, updates, now_ms=self.now_ms, previous_location=previous, write_if_unchanged=True
            )
        except PvdmError:
            return None
        sha256 = hashlib.sha256(after.to_bytes()).hexdigest()
        return Permit(state.row.table_uuid, state.row.pointer.sha256, sha256)

    def ask(self, asked: Asked) -> bool:
        """One commit; whether it happened."""
        return self.transact([asked])

    def transact(self, asked: Sequence[Asked]) -> bool:
        """Several tables at once, all or none."""
        error = self._send(asked)
        _judge(asked, error)
        if error is not None:
            self.check()
            return False
        self._tell(asked)
        self.check(*asked)
        return True

    def race(self, first: Asked, second: Asked) -> None:
        """The second happens after the first has written its file and before it swaps."""
        came: list[bool] = []

        def meanwhile() -> None:
            if not came:
                came.append(False)
                error = self._send([second], through=self.stage.other)
                _judge([second], error)
                came[0] = error is None
                if came[0]:
                    self._tell([second])

        with fault.armed("catalog.after_metadata_file", fault.Call(meanwhile)):
            error = self._send([first])
        lost = bool(came and came[0]) and self._collides(first, second)
        _judge([replace(first, expected=Expected.REFUSED) if lost else first], error)
        if error is None:
            self._tell([first])
        self.check(*([second] if came and came[0] else []), *([first] if error is None else []))

    def threads(self, first: Asked, second: Asked) -> None:
        """Both at once; who comes first is the machine's to say, and the model follows."""
        gate, came = threading.Barrier(2), list[tuple[int, Asked]]()
        errors: list[BaseException] = []

        def work(asked: Asked, through: Catalog) -> None:
            gate.wait()
            try:
                (state,) = through.commits.commit(asked.by, [self._change(asked)])
            except PvdmError:
                return
            except BaseException as error:
                errors.append(error)
            else:
                came.append((state.row.revision, asked))

        pairs = ((first, self.stage.catalog), (second, self.stage.other))
        running = [threading.Thread(target=work, args=pair) for pair in pairs]
        for each in running:
            each.start()
        for each in running:
            each.join()
        assert not errors
        done = [asked for _, asked in sorted(came, key=lambda pair: pair[0])]
        if first.expected is second.expected is Expected.DONE:
            assert done, "one of two is always first"
            later = first if done[0] is second else second
            assert (later in done) != self._collides(later, done[0])
        for asked in done:
            assert asked.expected not in (Expected.REFUSED, Expected.GATED)
            self._tell([asked])
        self.check(*done)

    def _collides(self, later: Asked, earlier: Asked) -> bool:
        """Whether it cannot follow: it wants a ref as it was, a number that was given, or its permit's base is gone."""
        model = self.model(later.table)
        named = [{each.get("ref") for each in asked.requirements} - {None} for asked in (later, earlier)]
        numbered = later.adds and earlier.adds and model.version > 1
        if model.version == 2 and not model.protected and later.is_rootless:
            numbered = False  # Iceberg lets a first snapshot share the last number
        return bool(named[0] & named[1]) or numbered or (later.permit is not None and model.protected)

    def _change(self, asked: Asked) -> Change:
        return Change(self.tables[asked.table].levels, asked.table, asked.requirements, asked.updates)

    def _send(self, asked: Sequence[Asked], through: Catalog | None = None) -> PvdmError | None:
        changes = [self._change(each) for each in asked]
        try:
            (through or self.stage.catalog).commits.commit(asked[0].by, changes, permit=always(asked[0].permit))
        except PvdmError as error:
            return error
        return None

    def _tell(self, asked: Sequence[Asked]) -> None:
        for each in asked:
            model = self.model(each.table)
            model.apply(each.updates)
            for update in each.updates:
                if update["action"] == "add-snapshot":
                    model.rows[update["snapshot"]["snapshot-id"]] = self.made[update["snapshot"]["snapshot-id"]].rows

    def check(self, *done: Asked) -> None:
        """Every table is what its model says; one that no commit named rests, main of a protected one rests too."""
        self._check_names()
        for name, table in self.tables.items():
            state = self.state(name)
            mine = [asked for asked in done if asked.table == name]
            if not mine:
                assert state.row.pointer == table.pointer, f"{name} moved, and nobody asked for it"
                continue
            document = _document(state)
            assert facts(document) == facts(table.model.document), name
            resting = table.model.protected and all(asked.permit is None for asked in mine)
            if resting:
                assert shown(document) == shown(table.loaded[-1]), f"main of {name} changed without a permit"
            resting = resting and tags(document) == tags(table.loaded[-1])
            table.pointer = state.row.pointer
            table.loaded.append(document)
            before, table.told = table.told, self._read(name, state)
            assert not resting or table.told == before, f"a consumer of {name} gets other bytes"

    def _check_names(self) -> None:
        for levels in (self.free, self.kept):
            found = self.stage.catalog.tables.page(OPERATOR, levels, after=None, count=None)
            assert set(found) == {name for name, table in self.tables.items() if table.levels == levels}

    def _read(self, name: str, state: TableState) -> TableResponse:
        """Every reader takes the document, and the one that consumers get, which holds what is published."""
        document = self.latest(name)
        assert document.get("current-snapshot-id") in (self.model(name).head("main"), -1)
        answer = self.stage.catalog.responses.table(CONSUMER, state)
        told = json.loads(answer.body)
        seen = told["metadata"]
        assert {each["snapshot-id"] for each in seen["snapshots"]} == set(ancestry(document))
        assert shown(document)["refs"] == shown(seen)["refs"]
        assert all(ref["snapshot-id"] in ancestry(document) for ref in seen["refs"].values())
        for file in (state.row.pointer.location, told["metadata-location"]):
            data = _bytes(file)
            for read in self.stage.readers:
                read(data)
        return answer


def _judge(asked: Sequence[Asked], error: PvdmError | None) -> None:
    """Hold what came of a request to what must come of it."""
    wanted = {each.expected for each in asked}
    if error is None:
        assert wanted <= {Expected.DONE, Expected.EITHER}, f"was done, and should not have been: {asked}"
    elif wanted == {Expected.DONE}:
        raise AssertionError(f"was refused, and should have been done: {asked}") from error
    elif wanted == {Expected.GATED}:
        assert isinstance(error, NotAllowedError), error


def _bytes(location: str) -> bytes:
    return Path(location.removeprefix("file://")).read_bytes()


def _document(state: TableState) -> Doc:
    data = _bytes(state.row.pointer.location)
    assert hashlib.sha256(data).hexdigest() == state.row.pointer.sha256
    found: Doc = json.loads(data)
    return found


def all_refs(world: World) -> Iterator[tuple[str, str]]:
    """Every table with every ref, and main where it shows nothing yet."""
    for name, table in world.tables.items():
        for ref in sorted({"main", *table.model.refs}):
            yield name, ref
