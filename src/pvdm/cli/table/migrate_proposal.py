"""A proposed migration as a file: both structures whole, so that who signs sees exactly what is signed, offline."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from pvdm.cli.table.migrate_diff import difference_lines
from pvdm.cli.table.open_workloads import OpenWorkload
from pvdm.errors import Code, NotAllowedError
from pvdm.lake.format.json_document import Json, dump_json, parse_json
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.main_state import structure_bytes, structure_of, without_data
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.metadata.gate.migration import require_same_data, require_same_table
from pvdm.metadata.gate.state import state_of
from pvdm.model.canonical_json import Value, dump, parse
from pvdm.model.contract import parse_contract
from pvdm.model.fields import Fields
from pvdm.model.statements.core import Operation
from pvdm.model.statements.migration import TableState, contract_sha256
from pvdm.model.statements.table import TableRef
from pvdm.steward.approval.migrations import parse_updates

PROPOSAL_SIZE_MAX_BYTES: Final = 33_554_432
_FORMAT: Final = "pvdm-migration-proposal/v1"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A table from one structure to another by these updates, and perhaps to another contract.

    `open_workloads` are those that the migration ends or affects, as they were when it was proposed. Nobody signs them.
    """

    table: TableRef
    before: TableState
    after: TableState
    structure_before: str
    structure_after: str
    updates: str
    contract_before: str | None
    contract: str | None
    open_workloads: tuple[OpenWorkload, ...] = ()

    def lines(self, *, cut: bool = False) -> list[str]:
        """The difference, for people; whole unless only its outline is wanted."""
        found = difference_lines(_table(self.structure_before), _table(self.structure_after), cut=cut)
        if self.before.contract_sha256 != self.after.contract_sha256:
            found.append(f"~ contract: {self.before.contract_sha256} becomes {self.after.contract_sha256}")
        return found

    def contract_lines(self) -> list[str]:
        """The two contracts' texts as a unified difference; nothing where the contract stays."""
        if self.contract_before is None or self.contract is None:
            return []
        names = (f"contract {self.before.contract_sha256}", f"contract {self.after.contract_sha256}")
        # By newlines alone: every other character, a carriage return too, is shown as part of its line.
        old, new = self.contract_before.split("\n"), self.contract.split("\n")
        return list(unified_diff(old, new, *names, lineterm=""))

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
            "contract_before": self.contract_before,
            "contract": self.contract,
            "open_workloads": [each.to_json() for each in self.open_workloads],
        }
        return dump(value)


def propose(
    table: TableRef, metadata: TableMetadata, held: str, updates: list[Json], contracts: tuple[str, str] | None
) -> Proposal:
    """What these updates, and the second contract after the first, would make of the table.

    What a migration may never do is refused here already.
    """
    after = apply_updates(metadata, updates, now_ms=metadata.last_updated_ms, previous_location=None)
    require_same_table(metadata, after)
    require_same_data(metadata, after)
    states = state_of(metadata, held), state_of(after, held if contracts is None else contract_sha256(contracts[1]))
    if states[0] == states[1]:
        raise Code.MIGRATION_EMPTY(got="none")
    if states[0].contract_sha256 == states[1].contract_sha256:
        contracts = None
    return Proposal(
        table,
        *states,
        structure_bytes(structure_of(metadata)).decode(),
        structure_bytes(structure_of(after)).decode(),
        dump_json(updates).decode(),
        *(contracts or (None, None)),
    )


def warn_of_unclaimed(proposal: Proposal) -> list[str]:
    """What an operator must know before rows are appended again to a table that workloads have overwritten."""
    if proposal.contract_before is None or proposal.contract is None:
        return []
    texts = (proposal.contract_before, proposal.contract)
    before, after = (parse_contract(text.encode()).boundary.operation for text in texts)
    if before is Operation.APPEND or after is not Operation.APPEND:
        return []
    return [
        "workloads that overwrote have claimed nothing: rows that were first published under the contract of before "
        "can be appended once more under another workload id, and would then be in the table twice"
    ]


def read_proposal(data: bytes) -> Proposal:
    """The file, once its parts fit together: states are those of the structures, and the updates lead to the second."""
    value = parse(data, size_max_bytes=PROPOSAL_SIZE_MAX_BYTES)
    fields = Fields(value, "the proposal", ("format", *Proposal.__slots__))
    if fields.text("format") != _FORMAT:
        raise Code.PROPOSAL_INVALID(expected=_FORMAT, got=fields.text("format")[:80])
    found = Proposal(
        TableRef.from_json(fields.value("table")),
        TableState.from_json(fields.value("before")),
        TableState.from_json(fields.value("after")),
        fields.text("structure_before"),
        fields.text("structure_after"),
        fields.text("updates"),
        fields.optional_text("contract_before"),
        fields.optional_text("contract"),
        tuple(OpenWorkload.from_json(each) for each in fields.items("open_workloads")),
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
    _require_contracts(proposal)
    if state_of(made, proposal.after.contract_sha256) != proposal.after:
        raise _not_whole("the updates do not lead to the state after")


def _require_contracts(proposal: Proposal) -> None:
    """Both texts where the contract changes, each that of its hash, so that their difference is the one signed."""
    changed = proposal.before.contract_sha256 != proposal.after.contract_sha256
    for what, text, stated in (
        ("before", proposal.contract_before, proposal.before.contract_sha256),
        ("after", proposal.contract, proposal.after.contract_sha256),
    ):
        if (text is not None) is not changed or (text is not None and contract_sha256(text) != stated):
            raise _not_whole(f"the contract {what} is not that of its state")


def require_signed(data: bytes, file: str) -> None:
    """A proposal that nobody has signed is told as that."""
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
        if isinstance(value, dict) and str(value.get("format", "")).startswith(_FORMAT.partition("/")[0]):
            raise Code.PROPOSAL_UNSIGNED(
                got="a proposal", hint=f"nothing was changed; sign it first: `pvdm migrate sign {file} …`"
            )


def _table(structure: str) -> TableMetadata:
    return without_data(parse_json(structure.encode(), size_max_bytes=PROPOSAL_SIZE_MAX_BYTES))


def _not_whole(why: str) -> NotAllowedError:
    return NotAllowedError(
        Code.PROPOSAL_NOT_WHOLE,
        f"the proposal does not hold together: {why}",
        hint="nothing was signed; somebody may have changed it: have it proposed again",
    )
