"""A proposed migration as a file: both structures whole, so that who signs sees exactly what is signed, offline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from pvdm.cli.migrate_diff import difference_lines
from pvdm.errors import InputError, NotAllowedError
from pvdm.lake.format.document import Json, dump_json, parse_json
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.structure import structure_bytes, structure_of, without_data
from pvdm.lake.format.updates import apply_updates
from pvdm.metadata.migration import require_same_data, require_same_table, state_of
from pvdm.model.document import Value, dump, parse
from pvdm.model.fields import Fields
from pvdm.model.migration import TableState, contract_sha256
from pvdm.model.table import TableRef
from pvdm.steward.migrations import parse_updates

PROPOSAL_SIZE_MAX_BYTES: Final = 33_554_432
_FORMAT: Final = "pvdm-migration-proposal/v1"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A table from one structure to another by these updates, and perhaps to another contract."""

    table: TableRef
    before: TableState
    after: TableState
    structure_before: str
    structure_after: str
    updates: str
    contract: str | None

    def lines(self) -> list[str]:
        """The difference, for people."""
        found = difference_lines(_table(self.structure_before), _table(self.structure_after))
        if self.before.contract_sha256 != self.after.contract_sha256:
            found.append(f"~ contract: {self.before.contract_sha256} becomes {self.after.contract_sha256}")
        return found

    def to_bytes(self) -> bytes:
        """The file."""
        value: dict[str, Value] = {
            "format": _FORMAT,
            "table": self.table.to_json(),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "structure_before": self.structure_before,
            "structure_after": self.structure_after,
            "updates": self.updates,
            "contract": self.contract,
        }
        return dump(value)


def propose(table: TableRef, metadata: TableMetadata, held: str, updates: list[Json], contract: str | None) -> Proposal:
    """What these updates would make of the table; what a migration may never do is refused here already."""
    after = apply_updates(metadata, updates, now_ms=metadata.last_updated_ms, previous_location=None)
    require_same_table(metadata, after)
    require_same_data(metadata, after)
    states = state_of(metadata, held), state_of(after, held if contract is None else contract_sha256(contract))
    if states[0] == states[1]:
        raise InputError("migration_empty", "the proposal changes nothing", expected="at least one change", got="none")
    return Proposal(
        table,
        *states,
        structure_bytes(structure_of(metadata)).decode(),
        structure_bytes(structure_of(after)).decode(),
        dump_json(updates).decode(),
        contract if states[0].contract_sha256 != states[1].contract_sha256 else None,
    )


def read_proposal(data: bytes) -> Proposal:
    """The file, once its parts fit together: states are those of the structures, and the updates lead to the second."""
    value = parse(data, size_max_bytes=PROPOSAL_SIZE_MAX_BYTES)
    fields = Fields(value, "the proposal", ("format", *Proposal.__slots__))
    if fields.text("format") != _FORMAT:
        raise InputError(
            "proposal_invalid", "this is no proposal of a migration", expected=_FORMAT, got=fields.text("format")[:80]
        )
    found = Proposal(
        TableRef.from_json(fields.value("table")),
        TableState.from_json(fields.value("before")),
        TableState.from_json(fields.value("after")),
        fields.text("structure_before"),
        fields.text("structure_after"),
        fields.text("updates"),
        fields.optional_text("contract"),
    )
    _require_whole(found)
    return found


def _require_whole(proposal: Proposal) -> None:
    before, after = _table(proposal.structure_before), _table(proposal.structure_after)
    made = apply_updates(before, parse_updates(proposal.updates), now_ms=0, previous_location=None)
    for what, text, stated, table in (
        ("before", proposal.structure_before, proposal.before, before),
        ("after", proposal.structure_after, proposal.after, after),
    ):
        exact = hashlib.sha256(text.encode()).hexdigest() == stated.structure_sha256
        if not exact or state_of(table, stated.contract_sha256) != stated:
            raise _not_whole(f"the state {what} is not that of its structure")
    if state_of(made, proposal.after.contract_sha256) != proposal.after:
        raise _not_whole("the updates do not lead to the state after")


def _table(structure: str) -> TableMetadata:
    return without_data(parse_json(structure.encode(), size_max_bytes=PROPOSAL_SIZE_MAX_BYTES))


def _not_whole(why: str) -> NotAllowedError:
    return NotAllowedError(
        "proposal_not_whole",
        f"the proposal does not hold together: {why}",
        hint="nothing was signed; somebody may have changed it: have it proposed again",
    )
