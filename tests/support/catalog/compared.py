"""A catalog and its model (`oracles/catalog_model.py`): both get the same commits, and are compared after each step."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Sequence
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
from tests.support.catalog.core import CONTRACT, OPERATOR, PRODUCER, always_permit, grant
from tests.support.catalog.snapshot_files import Pool, PreparedSnapshot
from tests.support.oracles.catalog_model import Doc, Model, ancestry, facts, shown_by_main, tags
from tests.support.steward.notary import Time

CONSUMER = grant(Role.CONSUMER)
_NAMESPACES = itertools.count(1)

Reader = Callable[[bytes], None]
"""A parser of metadata documents by another project: raises on a document that it does not accept."""


def pyiceberg_reads(document: bytes) -> None:
    """Parse the document with PyIceberg."""
    TableMetadataUtil.parse_raw(document.decode())


class Expected(Enum):
    """What must happen to a commit. `GATED` is refused by the gate, `EITHER` may be done or refused."""

    DONE = "done"
    REFUSED = "refused"
    GATED = "refused by the gate"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to one table, and what must happen to it."""

    table: str
    updates: Sequence[Doc]
    expected: Expected
    requirements: Sequence[Doc] = ()
    by: Grant = PRODUCER
    permit: Permit | None = None

    @property
    def adds_snapshot(self) -> bool:
        return any(update.get("action") == "add-snapshot" for update in self.updates)

    @property
    def adds_first_snapshot(self) -> bool:
        """Whether the snapshot has no parent."""
        return self.adds_snapshot and "parent-snapshot-id" not in self.updates[0]["snapshot"]


@dataclass(slots=True)
class Table:
    """A table of one example: its model, the documents that it had, and the last response to a consumer."""

    levels: Levels
    model: Model
    loaded: list[Doc]
    pointer: Pointer
    response: TableResponse | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Two catalogs on one ledger and one folder. Examples share them, and each example has its own namespaces."""

    catalog: Catalog
    other: Catalog
    ledger: Ledger
    time: Time
    pool: Pool
    readers: Sequence[Reader]

    @classmethod
    def open_in(cls, folder: Path, ledger: Ledger, clock: LedgerClock, time: Time, *readers: Reader) -> Stage:
        """A warehouse and metadata files in this folder; `clock` shows `time`."""
        catalog, other = (
            open_catalog(
                ledger,
                clock,
                name="lake",
                warehouse=f"file://{folder}/warehouse",
                steward_places=StewardPlaces(folder / "catalog"),
            )
            for _ in range(2)
        )
        return cls(catalog, other, ledger, time, Pool(folder / "pool"), readers)


@dataclass
class World:
    """The tables of one example: in an unprotected namespace (`free`) and in a protected one (`kept`)."""

    stage: Stage
    tables: dict[str, Table] = field(default_factory=dict)
    prepared: dict[int, PreparedSnapshot] = field(default_factory=dict)

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

    def add_table(
        self, name: str, levels: Levels, *, snapshot: PreparedSnapshot | None = None, like: Model | None = None
    ) -> None:
        """Add the model of a new table, with the rows of its first snapshot, or with those of `like`."""
        state = self.stage.catalog.states.get(levels, name)
        document = _document(state)
        model = Model.from_document(document, protected=levels == self.kept)
        if snapshot is not None:
            model.rows[snapshot.snapshot_id] = snapshot.rows
        if like is not None:
            assert facts(document) == facts(like.document)
            model.rows = like.rows
        self.tables[name] = Table(levels, model, [document], state.row.pointer)
        self.tables[name].response = self._read(name, state)

    def protect(self, name: str) -> None:
        row = self.state(name).row
        self.change(lambda unit: tables.protect(unit, row, CONTRACT))
        self.model(name).protected = True

    def permit(self, name: str, updates: Sequence[Doc]) -> Permit | None:
        """The permit that the gate would create for exactly these updates now; None if they cannot be applied."""
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

    def commit(self, commit: Commit) -> bool:
        """Send one commit, and compare; returns whether it happened."""
        return self.transact([commit])

    def transact(self, commits: Sequence[Commit]) -> bool:
        """Send commits to several tables as one transaction, and compare; returns whether it happened."""
        error = self._send(commits)
        _require_expected(commits, error)
        if error is not None:
            self.check()
            return False
        self._apply_to_models(commits)
        self.check(*commits)
        return True

    def race(self, first: Commit, second: Commit) -> None:
        """Send the second commit after the first has written its file, and before it swaps the pointer."""
        was_sent = False
        committed: list[Commit] = []

        def send_second() -> None:
            nonlocal was_sent
            if was_sent:
                return
            was_sent = True
            error = self._send([second], through=self.stage.other)
            _require_expected([second], error)
            if error is None:
                committed.append(second)
                self._apply_to_models([second])

        with fault.armed("catalog.after_metadata_file", fault.Call(send_second)):
            error = self._send([first])
        is_lost = bool(committed) and self._collides(first, second)
        _require_expected([replace(first, expected=Expected.REFUSED) if is_lost else first], error)
        if error is None:
            committed.append(first)
            self._apply_to_models([first])
        self.check(*committed)

    def threads(self, first: Commit, second: Commit) -> None:
        """Send both commits at the same time, in two threads. The models apply them in the order of revisions."""
        barrier, committed = threading.Barrier(2), list[tuple[int, Commit]]()
        errors: list[BaseException] = []

        def work(commit: Commit, through: Catalog) -> None:
            barrier.wait()
            try:
                (state,) = through.commits.commit(commit.by, [self._change(commit)])
            except PvdmError:
                return
            except BaseException as error:
                errors.append(error)
            else:
                committed.append((state.row.revision, commit))

        pairs = ((first, self.stage.catalog), (second, self.stage.other))
        running = [threading.Thread(target=work, args=pair) for pair in pairs]
        for each in running:
            each.start()
        for each in running:
            each.join()
        assert not errors
        done = [commit for _, commit in sorted(committed, key=lambda pair: pair[0])]
        if first.expected is second.expected is Expected.DONE:
            assert done, "at least one of two is committed"
            later = first if done[0] is second else second
            assert (later in done) != self._collides(later, done[0])
        for commit in done:
            assert commit.expected not in (Expected.REFUSED, Expected.GATED)
            self._apply_to_models([commit])
        self.check(*done)

    def _collides(self, later: Commit, earlier: Commit) -> bool:
        """Whether `later` must fail after `earlier`: both need one ref or one number, or its permit's base changed."""
        model = self.model(later.table)
        refs = [{each.get("ref") for each in commit.requirements} - {None} for commit in (later, earlier)]
        same_number = later.adds_snapshot and earlier.adds_snapshot and model.version > 1
        if model.version == 2 and not model.protected and later.adds_first_snapshot:
            same_number = False  # Iceberg lets a first snapshot share the last number
        return bool(refs[0] & refs[1]) or same_number or (later.permit is not None and model.protected)

    def _change(self, commit: Commit) -> Change:
        return Change(self.tables[commit.table].levels, commit.table, commit.requirements, commit.updates)

    def _send(self, commits: Sequence[Commit], through: Catalog | None = None) -> PvdmError | None:
        """Send the commits to a catalog as one transaction; returns the refusal, if there was one."""
        changes = [self._change(each) for each in commits]
        permit = always_permit(commits[0].permit)
        try:
            (through or self.stage.catalog).commits.commit(commits[0].by, changes, make_permit=permit)
        except PvdmError as error:
            return error
        return None

    def _apply_to_models(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            model = self.model(commit.table)
            model.apply(commit.updates)
            for update in commit.updates:
                if update["action"] == "add-snapshot":
                    snapshot_id = update["snapshot"]["snapshot-id"]
                    model.rows[snapshot_id] = self.prepared[snapshot_id].rows

    def check(self, *done: Commit) -> None:
        """Every table equals its model. A table without a commit is unchanged, and so is `main` without a permit."""
        self._check_names()
        for name, table in self.tables.items():
            state = self.state(name)
            commits = [commit for commit in done if commit.table == name]
            if not commits:
                assert state.row.pointer == table.pointer, f"{name} changed without a commit"
                continue
            document = _document(state)
            assert facts(document) == facts(table.model.document), name
            main_is_fixed = table.model.protected and all(commit.permit is None for commit in commits)
            if main_is_fixed:
                main_before = shown_by_main(table.loaded[-1])
                assert shown_by_main(document) == main_before, f"main of {name} changed without a permit"
            consumers_see_same = main_is_fixed and tags(document) == tags(table.loaded[-1])
            table.pointer = state.row.pointer
            table.loaded.append(document)
            before, table.response = table.response, self._read(name, state)
            assert not consumers_see_same or table.response == before, f"a consumer of {name} gets other bytes"

    def _check_names(self) -> None:
        """Each namespace lists the tables of the example."""
        for levels in (self.free, self.kept):
            found = self.stage.catalog.tables.page(OPERATOR, levels, after=None, count=None)
            assert set(found) == {name for name, table in self.tables.items() if table.levels == levels}

    def _read(self, name: str, state: TableState) -> TableResponse:
        """The response to a consumer. It shows what is published, and every reader accepts it and the full document."""
        document = self.latest(name)
        assert document.get("current-snapshot-id") in (self.model(name).head("main"), -1)
        response = self.stage.catalog.responses.table(CONSUMER, state)
        body = json.loads(response.body)
        seen = body["metadata"]
        assert {each["snapshot-id"] for each in seen["snapshots"]} == set(ancestry(document))
        assert shown_by_main(document)["refs"] == shown_by_main(seen)["refs"]
        assert all(ref["snapshot-id"] in ancestry(document) for ref in seen["refs"].values())
        for file in (state.row.pointer.location, body["metadata-location"]):
            data = _bytes(file)
            for read in self.stage.readers:
                read(data)
        return response


def _require_expected(commits: Sequence[Commit], error: PvdmError | None) -> None:
    """The commits happened, or failed with this error, as expected."""
    wanted = {each.expected for each in commits}
    if error is None:
        assert wanted <= {Expected.DONE, Expected.EITHER}, f"was done, and should not have been: {commits}"
    elif wanted == {Expected.DONE}:
        raise AssertionError(f"was refused, and should have been done: {commits}") from error
    elif wanted == {Expected.GATED}:
        assert isinstance(error, NotAllowedError), error


def _bytes(location: str) -> bytes:
    return Path(location.removeprefix("file://")).read_bytes()


def _document(state: TableState) -> Doc:
    """The document that the table's pointer names; its bytes must have the pointer's hash."""
    data = _bytes(state.row.pointer.location)
    assert hashlib.sha256(data).hexdigest() == state.row.pointer.sha256
    found: Doc = json.loads(data)
    return found
