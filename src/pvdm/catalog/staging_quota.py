"""Who makes what is staged: a producer has a share of a protected table's branches and snapshots, not all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.catalog.rule import added_snapshots
from pvdm.errors import InputError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import staging_owners
from pvdm.ledger.catalog.staging_owners import Made
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.catalog import StagedKind
from pvdm.model import canonical_json

PRODUCER_BRANCHES_MAX: Final = 250
PRODUCER_SNAPSHOTS_MAX: Final = 2_500


@dataclass(frozen=True, slots=True)
class Making:
    """The branches and snapshots that one commit adds, and whose they are."""

    maker: str
    made: tuple[Made, ...]

    @classmethod
    def of(cls, grant: Grant, before: TableMetadata, after: TableMetadata) -> Making:
        """By the name that the token was issued to, which its later tokens and those for one attempt carry too."""
        branches = [(StagedKind.BRANCH, name) for name in sorted(_branches(after) - _branches(before))]
        snapshots = [(StagedKind.SNAPSHOT, str(each.snapshot_id)) for each in added_snapshots(before, after)]
        return cls(canonical_json.dump([grant.domain, grant.name]).decode(), (*branches, *snapshots))

    def note(self, unit: Unit, row: TableRow) -> None:
        """Kept with the swap."""
        staging_owners.note(unit, row.table_id, self.maker, self.made)


def require_own_share(ledger: Ledger, row: TableRow, making: Making, after: TableMetadata) -> None:
    """Of what is staged now not too much is the maker's; nobody is asked about as long as all of it is little."""
    for kind, there, limit in (
        (StagedKind.BRANCH, _branches(after), PRODUCER_BRANCHES_MAX),
        (StagedKind.SNAPSHOT, _staged(after), PRODUCER_SNAPSHOTS_MAX),
    ):
        new = {name for made, name in making.made if made is kind} & there
        if not new or len(there) <= limit:
            continue
        with ledger.read() as unit:
            own = len(new) + staging_owners.count(unit, row.table_id, making.maker, kind, there - new)
        if own > limit:
            raise InputError(
                "staging_not_sane",
                f"the number of {kind}{'es' if kind is StagedKind.BRANCH else 's'} that this producer keeps staged"
                " cannot be accepted",
                expected=f"at most {limit}",
                got=str(own),
                hint="remove branches that are done; nothing was changed",
            )


def _branches(metadata: TableMetadata) -> set[str]:
    return {name for name, ref in metadata.refs.items() if name != MAIN and ref.type is RefType.BRANCH}


def _staged(metadata: TableMetadata) -> set[str]:
    current = metadata.current_snapshot_id
    shown = set() if current is None else {each.snapshot_id for each in metadata.ancestry(current)}
    return {str(each.snapshot_id) for each in metadata.snapshots if each.snapshot_id not in shown}
