"""A table of our own catalog as the gate publishes to it: swap and ledger rows are one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.catalog.names import full_name
from pvdm.catalog.state import States, TableState
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record.tokens import Grant
from pvdm.metadata.gate.checks_table import carry_out
from pvdm.metadata.gate.order import Order
from pvdm.metadata.gate.proposal import PublishedSnapshot
from pvdm.metadata.gate.target import Base, Next, Permit
from pvdm.model.statements.table import TableRef


class CatalogTarget:
    """The table of one UUID, whatever its name. `own` is the Steward's own grant."""

    removes_branches = True

    def __init__(self, ledger: Ledger, catalog: Catalog, table_uuid: str, own: Grant) -> None:
        self._ledger = ledger
        self._own = own
        self._catalog = catalog
        self._uuid = table_uuid

    def load(self) -> Base:
        """The table as it is now."""
        return self._read(self._ledger, self._catalog.states)

    def publish(
        self,
        make: Callable[[Base], Next],
        in_transaction: Callable[[Unit, TableRow], Order],
        then: Callable[[PublishedSnapshot], None],
    ) -> None:
        """One commit by the Steward. Each try is made on the base that its swap compares."""
        with self._ledger.read() as unit:
            levels, row = find_row_by_uuid(unit, self._uuid)
        tried: list[Next] = []
        shown: list[PublishedSnapshot] = []

        def made(before: TableState) -> Sequence[Json]:
            tried[:] = [make(base_of(self._catalog, levels, before))]
            return tried[0].updates

        def permit(_: TableState, after: TableMetadata, data: bytes) -> Permit:
            return tried[0].permit(after, data)

        def extra(unit: Unit, rows: Sequence[TableRow]) -> None:
            shown[:] = [carry_out(unit, in_transaction(unit, tables.get_by_id(unit, rows[0].table_id)))]

        change = Change(levels, row.name, (), (), made)
        self._catalog.commits.commit(self._own, [change], permit=permit, extra=extra, then=lambda: then(shown[0]))

    def read_back(self) -> Base:
        """Pointer and document through new connections."""
        with self._ledger.with_new_connections() as ledger:
            return self._read(ledger, self._catalog.states.on(ledger))

    def _read(self, ledger: Ledger, states: States) -> Base:
        with ledger.read() as unit:
            levels, row = find_row_by_uuid(unit, self._uuid)
        return base_of(self._catalog, levels, states.of(row))


def find_row_by_uuid(unit: Unit, table_uuid: str) -> tuple[Levels, TableRow]:
    """The table's namespace and row. Raises `table_unknown`."""
    row = tables.find_by_uuid(unit, table_uuid)
    namespace = None if row is None else namespaces.find_by_id(unit, row.namespace_id)
    if row is None or namespace is None:
        raise Code.TABLE_UNKNOWN("the catalog has no table of this UUID", got=table_uuid)
    return namespace.levels, row


def base_of(catalog: Catalog, levels: Levels, state: TableState) -> Base:
    """The state as the gate checks it."""
    name = full_name((*levels, state.row.name))
    return Base(TableRef(catalog.name, state.row.table_uuid, name), state.row, state.metadata)
