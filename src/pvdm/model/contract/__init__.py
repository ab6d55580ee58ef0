"""The contract of a data product: what one workload may touch, and how it is proved."""

from pvdm.model.contract.parser import CONTRACT_SIZE_MAX_BYTES, parse_contract, read_contract
from pvdm.model.contract.types import (
    Atomicity,
    BoundContract,
    Chunking,
    ChunkingBy,
    DataProductContract,
    MappedColumn,
    OnFail,
    ParameterRef,
    Source,
    columns_read,
    map_columns,
)
from pvdm.model.statements.core import Operation

__all__ = [
    "CONTRACT_SIZE_MAX_BYTES",
    "Atomicity",
    "BoundContract",
    "Chunking",
    "ChunkingBy",
    "DataProductContract",
    "MappedColumn",
    "OnFail",
    "Operation",
    "ParameterRef",
    "Source",
    "columns_read",
    "map_columns",
    "parse_contract",
    "read_contract",
]
