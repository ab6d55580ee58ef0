"""Checks contracts before they come into force: their text, their target, their domain and their source."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.catalog.names import full_name, parse_full_name
from pvdm.errors import Code
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.model.contract import DataProductContract, parse_contract
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.fit import require_partition_fit
from pvdm.verify.spark.extracting import SparkExtraction, require_extraction


def contract_text(data: bytes, name: str = "contract") -> str:
    """The text of a contract's bytes. Raises if they are empty or not a valid contract; `name` is for the errors."""
    if not data:
        raise Code.CONTRACT_INVALID(f"{name} cannot be accepted", got="an empty file")
    parse_contract(data, name)
    return data.decode()


def require_servable(text: str, spark_extraction: SparkExtraction | None) -> DataProductContract:
    """Parse a contract. Raises if it needs Spark's reader (`spark_extraction`), and this Steward has none."""
    found = parse_contract(text.encode())
    if found.extraction is ExtractionPath.SPARK:
        require_extraction(spark_extraction)
    return found


def require_target_fit(
    contract: DataProductContract, metadata: TableMetadata, spark_extraction: SparkExtraction | None
) -> None:
    """Require that the target has the declared partition, and that Spark's reader reaches its files."""
    require_partition_fit(contract, metadata)
    if contract.extraction is ExtractionPath.SPARK:
        # Spark reaches all files below the table's folder alike, so one example is enough.
        require_extraction(spark_extraction).require_reach([f"{metadata.location.rstrip('/')}/data/file"])


def require_for_table(contract: DataProductContract, parts: Sequence[str], domain: str) -> None:
    """Require that the contract publishes exactly this table, for the domain that owns it."""
    is_target = contract.boundary.target == full_name(parts)
    _require_applicable(contract, domain, is_target=is_target, expected_target=full_name(parts))


def require_for_namespace(contract: DataProductContract, levels: Sequence[str], domain: str) -> None:
    """Require that the contract publishes a table of this namespace, for the domain that owns it."""
    namespace, _, _ = contract.boundary.target.rpartition(".")
    is_target = namespace == full_name(levels)
    _require_applicable(contract, domain, is_target=is_target, expected_target=f"a table of {full_name(levels)}")


def require_source_reached(ledger: Ledger, contract: DataProductContract, grant: Grant) -> None:
    """Require that the caller may read the contract's source, since verdicts reveal rows of the source.

    A namespace that does not exist yet is refused as well: another domain may create it later.
    """
    if contract.boundary.source.table is None or grant.domain == EVERY_DOMAIN:
        return
    *levels, _ = parse_full_name(contract.boundary.source.table)
    with ledger.read() as unit:
        found = namespaces.find(unit, tuple(levels))
    if found is None or not grant.reaches(found.domain):
        expected = f"a source of the domain {grant.domain}"
        got = contract.boundary.source.table[:200] if found is None else "one of another domain"
        raise Code.SOURCE_NOT_ALLOWED(reason="source_of_other_domain", expected=expected, got=got)


def _require_applicable(contract: DataProductContract, domain: str, *, is_target: bool, expected_target: str) -> None:
    target, own_domain = contract.boundary.target, contract.product.domain
    if not is_target:
        raise Code.CONTRACT_NOT_APPLICABLE(reason="contract_of_other_table", expected=expected_target, got=target)
    if own_domain != domain:
        raise Code.CONTRACT_NOT_APPLICABLE(reason="contract_of_other_domain", expected=domain, got=own_domain)
