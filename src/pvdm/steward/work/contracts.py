"""Contracts as the Steward takes them in: judged whole by their language, and made for just this table or namespace."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.catalog.names import full_name, parse_full_name
from pvdm.errors import InputError, NotAllowedError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.model.contract import DataProductContract, parse_contract
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.extraction import Reach, require_extraction
from pvdm.verify.fit import require_partition_fit


def contract_text(data: bytes, name: str = "contract") -> str:
    """The text of a contract's bytes, judged; encoded again it is the same bytes."""
    if not data:
        raise InputError("contract_invalid", f"{name} cannot be accepted", expected="a contract", got="an empty file")
    parse_contract(data, name)
    return data.decode()


def judge_contract(text: str) -> DataProductContract:
    """A contract that an approval brings; what a later version serves is refused here already, as not yet."""
    return parse_contract(text.encode())


def judge_doable(text: str, *, extracts: Reach | None) -> DataProductContract:
    """The same, before it is to hold: what this Steward cannot do is refused too; `extracts` is Spark's reader."""
    found = judge_contract(text)
    if found.extraction is ExtractionPath.SPARK:
        require_extraction(extracts)
    return found


def require_target_fit(contract: DataProductContract, metadata: TableMetadata, extracts: Reach | None) -> None:
    """What the target alone shows: its partitions have the declared values, and Spark's reader reaches its files."""
    require_partition_fit(contract, metadata)
    if contract.extraction is ExtractionPath.SPARK:
        # Whatever lies below the table's folder is reached alike.
        require_extraction(extracts).require_reach([f"{metadata.location.rstrip('/')}/data/file"])


def require_for_table(contract: DataProductContract, parts: Sequence[str], domain: str) -> None:
    """The contract publishes exactly this table, for the domain that owns it."""
    if contract.boundary.target != full_name(parts):
        raise _elsewhere(contract, full_name(parts))
    _require_domain(contract, domain)


def require_for_namespace(contract: DataProductContract, levels: Sequence[str], domain: str) -> None:
    """The contract publishes a table of this namespace; one that is born there under another name needs its own."""
    inside, _, _ = contract.boundary.target.rpartition(".")
    if inside != full_name(levels):
        raise _elsewhere(contract, f"a table of {full_name(levels)}")
    _require_domain(contract, domain)


def require_source_reached(ledger: Ledger, contract: DataProductContract, grant: Grant) -> None:
    """Who puts a table under a contract may read its source: its producers learn of rows that it has and they lack.

    A namespace that is not there yet may be anybody's one day.
    """
    if contract.boundary.source.table is None or grant.domain == EVERY_DOMAIN:
        return
    *levels, _ = parse_full_name(contract.boundary.source.table)
    with ledger.read() as unit:
        found = namespaces.find(unit, tuple(levels))
    if found is None or not grant.reaches(found.domain):
        raise NotAllowedError(
            "source_of_other_domain",
            "the contract's source is not in a namespace of the token's domain",
            expected=f"a source of the domain {grant.domain}",
            got=contract.boundary.source.table[:200] if found is None else "one of another domain",
            hint="nothing was changed; an operator of every domain (`*`) puts a table under a contract across domains",
        )


def _elsewhere(contract: DataProductContract, expected: str) -> NotAllowedError:
    return NotAllowedError(
        "contract_of_other_table",
        "the contract is for another table",
        expected=expected,
        got=contract.boundary.target,
        hint="nothing was changed; boundary.target of the contract names the table that it publishes",
    )


def _require_domain(contract: DataProductContract, domain: str) -> None:
    if contract.product.domain != domain:
        raise NotAllowedError(
            "contract_of_other_domain",
            "the contract is another domain's",
            expected=domain,
            got=contract.product.domain,
            hint="nothing was changed; metadata.domain of the contract names the domain that owns the table",
        )
