"""PyIceberg's client of Glue as the Steward lets it work: on one state of a table, by the Steward's own settings."""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Properties

LOCATION: Final = "metadata_location"


class OwnGlue(GlueCatalog):
    """A table's properties are the words of whoever writes to it, and nothing here goes by them.

    By them PyIceberg would load classes, send the Steward's credential to another address, and write anywhere.
    """

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return super()._load_file_io(location=location)


class Pinned(OwnGlue):
    """On the state with this metadata file: versions are compared only from where the table is read again."""

    def __init__(self, name: str, client: Any, location: str, properties: dict[str, str]) -> None:
        super().__init__(name, client=client, **properties)
        self._pinned = location

    def _get_glue_table(self, database_name: str, table_name: str) -> Any:
        found = super()._get_glue_table(database_name, table_name)
        if found.get("Parameters", {}).get(LOCATION) != self._pinned:
            raise CommitFailedException("the table shows another metadata file by now")
        return found

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: tuple[str, ...],
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """As PyIceberg does it, with the next file in the table's own place, whatever it names for that."""
        if current_table is None:
            raise CommitFailedException("the table is gone")
        before, file = current_table.metadata, current_table.metadata_location
        for requirement in requirements:
            requirement.validate(before)
        after = update_table_metadata(before, updates, enforce_validation=False, metadata_location=file)
        places = SimpleLocationProvider(after.location.rstrip("/"), EMPTY_DICT)
        location = places.new_table_metadata_file_location(self._parse_metadata_version(file) + 1)
        return StagedTable(table_identifier, after, location, self._load_file_io(location=location), self)
