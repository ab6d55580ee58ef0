"""Proposals of migrations: files with the table's structure (metadata without snapshots and refs) before and after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from typing import Final

from pvdm.catalog.names import parse_full_name
from pvdm.cli.table.open_workloads import WorkloadSummary
from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import Json, comparison_text, dump_json, parse_json
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.main_state import empty_table, structure_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.protectable import require_protectable
from pvdm.metadata.gate.migration import require_same_data, require_same_defaults, require_same_table
from pvdm.metadata.gate.state import state_of
from pvdm.model.canonical_json import Value, dump, parse
from pvdm.model.contract import parse_contract
from pvdm.model.fields import Fields
from pvdm.model.statements.migration import TableState, contract_sha256
from pvdm.model.statements.table import TableRef
from pvdm.steward.migrations import parse_updates
from pvdm.steward.work.contracts import require_for_table
from pvdm.verify.fit import require_partition_fit, require_projections_fit

PROPOSAL_SIZE_MAX_BYTES: Final = 33_554_432
_FORMAT: Final = "pvdm-migration-proposal/v1"
_SHOWN_CHARACTERS: Final = 400
_ValueText = Callable[[str | None], str]
# Each entry under these keys is compared and shown by itself.
_SHOWN_APART: Final = frozenset({"properties", "schemas", "partition-specs", "sort-orders"})
_LISTS: Final = (  # key in the metadata, key of an entry's id, name of an entry in the difference
    ("schemas", "schema-id", "schema"),
    ("partition-specs", "spec-id", "partition spec"),
    ("sort-orders", "order-id", "sort order"),
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of a table's structure by Iceberg's updates, and of its contract if `contract` is given.

    `open_workloads` are those that the change ends or affects, as they were at the proposal. They are not signed.
    """

    table: TableRef
    before: TableState
    after: TableState
    structure_before: str
    structure_after: str
    updates: str
    contract_before: str | None
    contract: str | None
    open_workloads: tuple[WorkloadSummary, ...] = ()

    def lines(self, *, shorten: bool = False) -> list[str]:
        """The difference as text; with `shorten`, long values are cut."""
        before, after = _parse_structure(self.structure_before), _parse_structure(self.structure_after)
        lines = difference_lines(before, after, shorten=shorten)
        if self.before.contract_sha256 != self.after.contract_sha256:
            lines.append(f"~ contract: {self.before.contract_sha256} becomes {self.after.contract_sha256}")
        return lines

    def contract_lines(self) -> list[str]:
        """The unified difference of the two contracts; empty if the contract stays."""
        if self.contract_before is None or self.contract is None:
            return []
        names = (f"contract {self.before.contract_sha256}", f"contract {self.after.contract_sha256}")
        # Split at newlines only: every other character, a carriage return too, is shown in its line.
        old, new = self.contract_before.split("\n"), self.contract.split("\n")
        return list(unified_diff(old, new, *names, lineterm=""))

    def to_bytes(self) -> bytes:
        """The content of the proposal's file."""
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


def propose(table: TableRef, metadata: TableMetadata, updates: list[Json], contracts: tuple[str, str]) -> Proposal:
    """The proposal of these updates. `contracts`: the text in force and the new one, which may be equal.

    Raises for what no migration may do, and for a contract that does not fit the target afterwards. Only the Steward
    checks the contract's source.
    """
    after = apply_updates(metadata, updates, now_ms=metadata.last_updated_ms, previous_location=None)
    require_same_table(metadata, after)
    require_same_data(metadata, after)
    require_same_defaults(metadata, after)
    require_protectable(after)
    old_state, new_state = map(state_of, (metadata, after), map(contract_sha256, contracts))
    if old_state == new_state:
        raise Code.MIGRATION_INVALID(reason="migration_empty", got="none")
    contract_before, contract = contracts if contracts[0] != contracts[1] else (None, None)
    if contract is not None or old_state.columns_and_spec != new_state.columns_and_spec:
        _require_contract_fit(table, contracts, after)
    return Proposal(
        table,
        old_state,
        new_state,
        comparison_text(structure_of(metadata)),
        comparison_text(structure_of(after)),
        dump_json(updates).decode(),
        contract_before,
        contract,
    )


def _require_contract_fit(table: TableRef, contracts: tuple[str, str], after: TableMetadata) -> None:
    """Raise if the contract does not fit the target, or if a new contract is for another table or domain."""
    old, new = (parse_contract(text.encode()) for text in contracts)
    if contracts[0] != contracts[1]:
        require_for_table(new, parse_full_name(table.name), old.product.domain)
    require_partition_fit(new, after)
    require_projections_fit(new, to_model(after.current_schema))


def claim_warnings(proposal: Proposal) -> list[str]:
    """A warning if the operation becomes append: workloads under the old contract have claimed no rows."""
    if proposal.contract_before is None or proposal.contract is None:
        return []
    before, after = (parse_contract(text.encode()) for text in (proposal.contract_before, proposal.contract))
    warning = after.claim_warning(before)
    return [] if warning is None else [warning]


def read_proposal(data: bytes) -> Proposal:
    """The proposal of a file. Raises unless states and structures agree, and the updates lead from before to after."""
    value = parse(data, size_max_bytes=PROPOSAL_SIZE_MAX_BYTES)
    fields = Fields(value, "the proposal", ("format", *Proposal.__slots__))
    if fields.text("format") != _FORMAT:
        raise Code.MIGRATION_INVALID(reason="proposal_invalid", expected=_FORMAT, got=fields.text("format")[:80])
    found = Proposal(
        TableRef.from_json(fields.value("table")),
        TableState.from_json(fields.value("before")),
        TableState.from_json(fields.value("after")),
        fields.text("structure_before"),
        fields.text("structure_after"),
        fields.text("updates"),
        fields.optional_text("contract_before"),
        fields.optional_text("contract"),
        tuple(WorkloadSummary.from_json(each) for each in fields.items("open_workloads")),
    )
    _require_consistent(found)
    return found


def _require_consistent(proposal: Proposal) -> None:
    before, after = _parse_structure(proposal.structure_before), _parse_structure(proposal.structure_after)
    updated = apply_updates(before, parse_updates(proposal.updates), now_ms=0, previous_location=None)
    for what, text, stated, table in (
        ("before", proposal.structure_before, proposal.before, before),
        ("after", proposal.structure_after, proposal.after, after),
    ):
        same_hash = hashlib.sha256(text.encode()).hexdigest() == stated.structure_sha256
        if not same_hash or state_of(table, stated.contract_sha256) != stated:
            raise _not_consistent(f"the state {what} is not that of its structure")
    _require_contracts(proposal)
    if proposal.contract_before is not None and proposal.contract is not None:
        _require_contract_fit(proposal.table, (proposal.contract_before, proposal.contract), after)
    if state_of(updated, proposal.after.contract_sha256) != proposal.after:
        raise _not_consistent("the updates do not lead to the state after")


def _require_contracts(proposal: Proposal) -> None:
    """Raise unless each contract's text has the hash that its state names. An unchanged contract must have no text."""
    changed = proposal.before.contract_sha256 != proposal.after.contract_sha256
    for what, text, stated in (
        ("before", proposal.contract_before, proposal.before.contract_sha256),
        ("after", proposal.contract, proposal.after.contract_sha256),
    ):
        if (text is not None) != changed or (text is not None and contract_sha256(text) != stated):
            raise _not_consistent(f"the contract {what} is not that of its state")


def require_not_proposal(data: bytes, file: str) -> None:
    """Raise if the data is a proposal, which is not signed; the Steward checks everything else."""
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
        if isinstance(value, dict) and str(value.get("format", "")).startswith(_FORMAT.partition("/")[0]):
            hint = f"nothing was changed; sign it first: `pvdm migrate sign {file} …`"
            raise Code.MIGRATION_INVALID(reason="proposal_unsigned", got="a proposal", hint=hint)


def _parse_structure(structure: str) -> TableMetadata:
    return empty_table(parse_json(structure.encode(), size_max_bytes=PROPOSAL_SIZE_MAX_BYTES))


def _not_consistent(problem: str) -> PvdmError:
    return Code.MIGRATION_REFUSED(f"the proposal is not consistent: {problem}", reason="proposal_not_whole")


def difference_lines(before: TableMetadata, after: TableMetadata, *, shorten: bool = False) -> list[str]:
    """What was added (`+`), removed (`-`) and changed (`~`)."""
    as_text = partial(_value_text, max_characters=_SHOWN_CHARACTERS if shorten else None)
    old, new = structure_of(before), structure_of(after)
    names = sorted({*before.properties, *after.properties})
    return [
        *_column_lines(before.current_schema, after.current_schema, as_text),
        *_scalar_lines(old, new, as_text),
        *(line for key, id_name, what in _LISTS for line in _list_lines(old[key], new[key], id_name, what, as_text)),
        *_entry_lines(names, before.properties, after.properties, ("property", " ="), as_text),
    ]


def _column_lines(before: TableSchema, after: TableSchema, as_text: _ValueText) -> Iterator[str]:
    """Changes of the current schema's columns, at every depth."""
    old_names, new_names = _column_names(before), _column_names(after)
    old_attributes, new_attributes = dict(_attributes(before.raw)), dict(_attributes(after.raw))
    for field_id in sorted({*before.fields, *after.fields}):
        old, new = before.fields.get(field_id), after.fields.get(field_id)
        if old is None and new is not None:
            yield f"+ column {new_names[field_id]}: {new.type}, {_required_text(new.required)}, id {field_id}"
        elif old is not None and new is None:
            yield f"- column {old_names[field_id]}: {old.type}, {_required_text(old.required)}, id {field_id}"
        elif old is not None and new is not None:
            name = old_names[field_id]
            if name != new_names[field_id]:
                yield f"~ column {name}: is renamed to {new_names[field_id]}, id {field_id}"
            if old.type != new.type:
                yield f"~ column {name}: {old.type} becomes {new.type}, id {field_id}"
            if old.required != new.required:
                yield f"~ column {name}: becomes {_required_text(new.required)}, id {field_id}"
            was, now = old_attributes.get(field_id), new_attributes.get(field_id)
            if was != now:
                yield f"~ column {name}: {as_text(was)} becomes {as_text(now)}"
    if before.identifier_field_ids != after.identifier_field_ids:
        yield f"~ identifier columns: {_ids_text(before, old_names)} becomes {_ids_text(after, new_names)}"
    in_both = [field_id for field_id in before.fields if field_id in after.fields]
    if in_both != [field_id for field_id in after.fields if field_id in before.fields]:
        yield "~ the columns are in another order"


def _scalar_lines(old: Mapping[str, Json], new: Mapping[str, Json], as_text: _ValueText) -> Iterator[str]:
    for key in sorted({*old, *new} - _SHOWN_APART):
        was, now = (comparison_text(each[key]) if key in each else None for each in (old, new))
        if was != now:
            yield f"~ {key}: {as_text(was)} becomes {as_text(now)}"


def _list_lines(old: Json, new: Json, id_name: str, what: str, as_text: _ValueText) -> Iterator[str]:
    was, now = _by_id(old, id_name), _by_id(new, id_name)
    yield from _entry_lines(sorted({*was, *now}, key=int), was, now, (what, ":"), as_text)
    if [key for key in was if key in now] != [key for key in now if key in was]:
        yield f"~ the {what}s are in another order"


def _by_id(value: Json, id_name: str) -> dict[str, str]:
    items = value if isinstance(value, list) else []
    return {str(item[id_name]): comparison_text(item) for item in items if isinstance(item, Mapping)}


def _entry_lines(
    keys: Iterable[str], old: Mapping[str, str], new: Mapping[str, str], words: tuple[str, str], as_text: _ValueText
) -> Iterator[str]:
    """Changes of entries by their keys; `words` are the entry's kind and the sign before its value."""
    what, sign = words
    for key in keys:
        if key not in old:
            yield f"+ {what} {key}{sign} {as_text(new[key])}"
        elif key not in new:
            yield f"- {what} {key}{sign} {as_text(old[key])}"
        elif old[key] != new[key]:
            yield f"~ {what} {key}: {as_text(old[key])} becomes {as_text(new[key])}"


def _column_names(schema: TableSchema) -> dict[int, str]:
    """Key: field id. Value: the column's full name, the first of its names in `ids_by_name`."""
    return {field_id: name for name, field_id in reversed(list(schema.ids_by_name.items()))}


def _attributes(value: Json) -> Iterator[tuple[int, str]]:
    """For each column of a schema's JSON its id, and its attributes beside name, type and `required`, such as `doc`."""
    inner: Iterable[Json] = value if isinstance(value, list | tuple) else ()
    if isinstance(value, Mapping):
        inner = value.values()
        field_id = value.get("id")
        rest = {key: each for key, each in value.items() if key not in ("id", "name", "type", "required")}
        if isinstance(field_id, int) and rest:
            yield field_id, comparison_text(rest)
    for each in inner:
        yield from _attributes(each)


def _ids_text(schema: TableSchema, names: Mapping[int, str]) -> str:
    return ", ".join(sorted(names[each] for each in schema.identifier_field_ids)) or "none"


def _required_text(required: bool) -> str:
    return "required" if required else "optional"


def _value_text(value: str | None, *, max_characters: int | None) -> str:
    text = "none" if value is None else value
    if max_characters is None or len(text) <= max_characters:
        return text
    return f"{text[:max_characters]}… ({len(text)} characters)"
