"""Parses a contract: the YAML, then its schema, then rules beyond the schema, such as settings that exclude others."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from pvdm.errors import Code, InputError, expect
from pvdm.model.contract import types
from pvdm.model.contract.document import Document
from pvdm.model.contract.positions import KeyPath, ParsedYaml, parse_yaml
from pvdm.model.contract.refusal import Finding, list_findings, make_error
from pvdm.model.contract.types import DataProductContract, parse_wider_type
from pvdm.model.fields import require_text
from pvdm.model.filter.claim_filter import find_empty_range, is_bounded
from pvdm.model.filter.expression import Always, Expression, columns_of, parameters_of, quote_column
from pvdm.model.filter.text import parse_expression
from pvdm.model.printable import list_first
from pvdm.model.role import Role
from pvdm.model.schema import Kind
from pvdm.model.statements.core import ExtractionPath, Operation, Profile
from pvdm.model.statements.proof import PROOF_LIFETIME_MAX_MICROS, Storage

CONTRACT_SIZE_MAX_BYTES: Final = 262_144
_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63})\}", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]+)(KiB|MiB|GiB|TiB)?", re.ASCII)
_UNIT_BYTES: Final = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_CHUNKING_KEYS: Final[dict[str, tuple[str, ...]]] = {  # the settings that each kind of chunking needs
    "none": (),
    "partition": ("columns",),
    "files": ("max-size",),
    "range": ("column", "bounds"),
}
_LATER_HINT: Final = "a later version will support this setting; until then it is refused"


def read_contract(path: Path) -> bytes:
    """Read a contract's file, at most one byte more than the limit. `parse_contract` then raises for the size."""
    try:
        with path.open("rb") as file:
            return file.read(CONTRACT_SIZE_MAX_BYTES + 1)
    except OSError as error:
        got = error.strerror or type(error).__name__
        raise Code.INPUT_FILE_INVALID(f"{path} cannot be read", reason="input_not_readable", got=got) from error


def parse_contract(data: bytes, name: str = "contract") -> DataProductContract:
    """The contract in these bytes. Raises the error of the first fault, with `name`, line and column."""
    if len(data) > CONTRACT_SIZE_MAX_BYTES:
        most = f"at most {CONTRACT_SIZE_MAX_BYTES} bytes"
        message = f"{name} is too large"
        raise Code.CONTRACT_INVALID(message, reason="contract_too_large", expected=most, got=str(len(data)), file=name)
    parsed = parse_yaml(data, name)
    try:
        document = Document.model_validate(parsed.value)
    except ValidationError as error:
        raise make_error(list_findings(error.errors(include_url=False), parsed), name) from None
    builder = _ContractBuilder(document, parsed)
    contract = builder.build(hashlib.sha256(data).hexdigest())
    if builder.findings:
        raise make_error(builder.findings, name)
    return contract


@dataclass
class _ContractBuilder:
    """Builds the contract, and collects its faults in `findings`. The contract is used only if there are none."""

    document: Document
    parsed: ParsedYaml
    findings: list[Finding] = field(default_factory=list)

    def _report(self, path: KeyPath, expected: str, got: str, hint: str | None = None) -> None:
        self.findings.append(Finding(self.parsed.position(path), path, expected, got, hint))

    def build(self, sha256: str) -> types.DataProductContract:
        given, limits = self.document, self.document.limits
        self._check_served()
        self._check_extraction()
        self._check_text(("metadata", "owner"), given.metadata.owner)
        boundary = self._build_boundary()
        self._check_parameters(boundary)
        return types.DataProductContract(
            sha256=sha256,
            product=given.metadata,
            parameters=tuple(types.Parameter(name, Kind(each.type)) for name, each in sorted(given.parameters.items())),
            boundary=boundary,
            chunking=self._build_chunking(),
            projections=self._build_projections(boundary.columns),
            profile=Profile(given.profile),
            atomicity=types.Atomicity(given.atomicity),
            extraction=ExtractionPath(given.extraction),
            storage=Storage(given.storage),
            governance=self._build_governance(),
            limits=types.Limits(limits.chunks, limits.files, limits.rows, bytes=_parse_size(limits.size)),
        )

    def _check_served(self) -> None:
        """Report settings that this version does not serve yet. If they were ignored, users would rely on them."""
        given = self.document
        settings: tuple[tuple[KeyPath, str, str], ...] = (
            (("profile",), given.profile, "A"),
            (("governance", "attestation"), given.governance.attestation, "none"),
            (("governance", "threshold"), str(given.governance.threshold), "1"),
        )
        for path, value, served in settings:
            if value != served:
                position = self.parsed.position(path)
                self.findings.append(Finding(position, path, served, value, _LATER_HINT, served_later=True))

    def _check_extraction(self) -> None:
        """Report `spark` without a source table, or if the producer can still write files that Spark reads again."""
        given = self.document
        if given.extraction != "spark":
            return
        if given.storage == "open":
            self._report(("extraction",), "storage copied or sealed beside extraction spark", "storage open")
        if given.boundary.source.files is not None:
            self._report(("extraction",), "a table as the source of extraction spark", "a manifest of files")

    def _check_text(self, path: KeyPath, text: str) -> None:
        """Report blank text, and text with line breaks or other control characters: proofs and terminals show it."""
        try:
            require_text(text, "")
        except InputError as error:
            self._report(path, error.expected or "", error.got or "")

    def _build_boundary(self) -> types.DomainTransactionBoundary:
        given = self.document.boundary
        source = given.source
        if (source.table is None) == (source.files is None):
            both = source.table is not None
            self._report(("boundary", "source"), "a table or files, one of the two", "both" if both else "neither")
        if source.uuid is not None and source.table is None:
            self._report(("boundary", "source", "uuid"), "the UUID of a table", "a UUID beside a manifest of files")
        where = self._parse_where(given.where)
        if given.claim is not None and given.operation != "append":
            self._report(("boundary", "claim"), "a claim only with operation append", given.operation)
        elif given.claim is not None and where is not None:
            self._check_claim(given.claim.column, given.where, where)
        if given.partition and given.operation == "overwrite":
            self._report(("boundary", "partition"), "no partition: overwrite replaces the whole table", "a partition")
        return types.DomainTransactionBoundary(
            source=types.Source(source.table, None if source.files is None else source.files.manifest, source.uuid),
            where=Always() if where is None else where,
            columns=self._build_columns(),
            target=given.target,
            operation=Operation(given.operation),
            partition=self._build_partition(),
            claim=None if given.claim is None else given.claim.column,
        )

    def _check_claim(self, column: str, text: str, where: Expression) -> None:
        """Report a filter that does not bound the column, or that leaves it no value, whatever the parameters are."""
        if not is_bounded(where, column):
            self._report_unbounded(column, text, where)
        elif (empty := find_empty_range(where, column, {})) is not None:
            self._report(("boundary", "where"), str(empty.expected), ascii(text[:80]), empty.hint)

    def _report_unbounded(self, column: str, text: str, where: Expression) -> None:
        """Report a filter without both bounds: every workload would claim the same, so that only one could publish."""
        path: KeyPath = ("boundary", "where")
        if path not in self.parsed.values:  # the contract has no filter
            path = ("boundary", "claim", "column")
        filtered = columns_of(where)
        name, *others = (ascii(quote_column(each)[:80])[1:-1] for each in (column, *filtered))
        hint = f"bound {name} in boundary.where by literals or parameters, or leave boundary.claim out: "
        if filtered and column not in filtered:
            hint = f"the filter names {list_first(others)}, not {name}: correct a misspelled name, or {hint}"
        self._report(
            path,
            f"a filter that bounds the claim column: {name} = …, or {name} >= … and {name} < …, "
            "beside everything else or in every branch of an `or`",
            ascii(text[:80]),
            f"{hint}a workload then claims the whole target, so that only one workload can append to it",
        )

    def _parse_where(self, text: str) -> Expression | None:
        """The filter; None if it cannot be read, which is reported."""
        try:
            return parse_expression(text)
        except InputError as error:
            got = f"{error.got} at character {error.details['character']} of the filter"
            self._report(("boundary", "where"), str(error.expected), got, error.hint)
            return None

    def _build_columns(self) -> tuple[types.Column, ...] | None:
        given = self.document.boundary.columns
        if given is None:
            return None
        columns: dict[str, types.Column] = {}
        for position, each in enumerate(given):
            path: KeyPath = ("boundary", "columns", position)
            if isinstance(each, str):
                column = types.Column(each, each, None)
            else:
                kind = None
                if each.type is not None:
                    try:
                        kind = parse_wider_type(each.type)
                    except InputError as error:
                        self._report((*path, "type"), str(error.expected), str(error.got), error.hint)
                column = types.Column(each.from_, each.to or each.from_, kind)
            if column.target in columns:
                self._report(path, "each column of the target once", f"{column.target[:80]!a} again")
            columns[column.target] = column
        return tuple(columns.values())

    def _build_partition(self) -> tuple[tuple[str, str | types.ParameterRef | None], ...]:
        values: list[tuple[str, str | types.ParameterRef | None]] = []
        for name, value in sorted(self.document.boundary.partition.items()):
            text = _scalar_text(value)
            if text is None or "${" not in text:
                values.append((name, text))
            elif (whole := _PLACEHOLDER.fullmatch(text)) is not None:
                values.append((name, types.ParameterRef(whole[1])))
            else:
                path = ("boundary", "partition", name)
                self._report(path, "a value, or one parameter as ${name} and nothing beside it", ascii(text[:80]))
        return tuple(values)

    def _check_parameters(self, boundary: types.DomainTransactionBoundary) -> None:
        """Report a parameter that is used and not declared, or declared and not used."""
        declared = set(self.document.parameters)
        used: dict[str, KeyPath] = {}
        for name in parameters_of(boundary.where):
            used.setdefault(name, ("boundary", "where"))
        for column, value in boundary.partition:
            if isinstance(value, types.ParameterRef):
                used.setdefault(value.name, ("boundary", "partition", column))
        for name in sorted(set(used) - declared):
            self._report(used[name], f"a parameter {name} under parameters", ", ".join(sorted(declared)) or "none")
        # Only the first fault of a file is shown: a parameter may be unused because its use cannot be read.
        for name in sorted(declared - set(used)) if not self.findings else ():
            path: KeyPath = ("parameters", name)
            position = self.parsed.key_position(path)
            self.findings.append(Finding(position, path, "a parameter that the boundary uses", "an unused parameter"))

    def _build_chunking(self) -> types.Chunking:
        given = self.document.chunking
        needed = _CHUNKING_KEYS[given.by]
        values = {"columns": given.columns, "max-size": given.max_size, "column": given.column, "bounds": given.bounds}
        for key, value in values.items():
            if bool(value) != (key in needed):
                wanted = key if key in needed else f"no {key}"
                self._report(("chunking", key), f"{wanted} with chunking by {given.by}", key if value else "none")
        bounds = tuple(_scalar_text(each) or "" for each in given.bounds)
        self._check_distinct(("chunking", "columns"), tuple(given.columns), "column")
        self._check_distinct(("chunking", "bounds"), bounds, "bound")
        overwrites_by_chunks = given.by != "none" and self.document.boundary.operation != "append"
        if overwrites_by_chunks and self.document.atomicity != "workload":
            wanted = "atomicity: workload, since chunks of an overwrite could replace each other's rows"
            is_set = ("atomicity",) in self.parsed.keys
            got = "atomicity: chunk" if is_set else "none, which is atomicity: chunk"
            self._report(("atomicity",) if is_set else ("chunking",), wanted, got)
        size = None if given.max_size is None else _parse_size(given.max_size)
        return types.Chunking(types.ChunkingBy(given.by), tuple(given.columns), size, given.column, bounds)

    def _check_distinct(self, path: KeyPath, names: tuple[str, ...], what: str) -> None:
        """Report the first name that occurs twice."""
        for position, name in enumerate(names):
            if name in names[:position]:
                self._report((*path, position), f"each {what} once", f"{name[:80]!a} again")
                return

    def _build_projections(self, columns: tuple[types.Column, ...] | None) -> types.Projections:
        given = self.document.projections
        excluded = tuple((each.column, each.reason) for each in given.content.exclude)
        self._check_distinct(("projections", "identity"), tuple(given.identity), "column")
        paths: list[tuple[KeyPath, str]] = [
            (("projections", "identity", position), name) for position, name in enumerate(given.identity)
        ]
        seen: set[str] = set()
        for position, (column, reason) in enumerate(excluded):
            path: KeyPath = ("projections", "content", "exclude", position, "column")
            self._check_text((*path[:-1], "reason"), reason)
            if column in given.identity:
                self._report(path, "a column that is no key", ascii(column[:80]))
            if column in seen:
                self._report(path, "each column once", f"{column[:80]!a} again")
            seen.add(column)
            paths.append((path, column))
        # If the contract lists the target's columns, only these can be projected.
        listed = None if columns is None else {column.target for column in columns}
        for path, name in paths:
            if listed is not None and name not in listed:
                self._report(path, "a column of the target, as boundary.columns lists them", ascii(name[:80]))
        return types.Projections(tuple(sorted(given.identity)), tuple(sorted(excluded)))

    def _build_governance(self) -> types.Governance:
        given = self.document.governance
        seconds = int(given.proof_lifetime[:-1]) * _UNIT_SECONDS[given.proof_lifetime[-1]]
        if seconds * 10**6 > PROOF_LIFETIME_MAX_MICROS:
            self._report(("governance", "proof-lifetime"), "at most 7d", given.proof_lifetime)
        if given.repair.automatic >= given.attempts:
            expected = "fewer repairs than governance.attempts"
            self._report(("governance", "repair", "automatic"), expected, str(given.repair.automatic))
        return types.Governance(
            on_fail=types.OnFail(given.on_fail),
            sample_keys=tuple(Role(each) for each in sorted(set(given.sample_keys))),
            threshold=given.threshold,
            attempts_max=given.attempts,
            automatic_repairs=given.repair.automatic,
            proof_lifetime_seconds=seconds,
        )


def _parse_size(size: str | int) -> int:
    number, unit = expect(_SIZE.fullmatch(str(size)), "the schema has checked the form").groups()
    return int(number) * _UNIT_BYTES[unit]


def _scalar_text(value: str | int | bool | None) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
