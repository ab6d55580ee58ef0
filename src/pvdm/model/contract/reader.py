"""Reads a contract from its bytes: YAML, then the schema's form, then whether its parts fit each other."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from pvdm.errors import Code
from pvdm.model.contract.document import Document
from pvdm.model.contract.judge import judged
from pvdm.model.contract.positions import parse_yaml
from pvdm.model.contract.refusal import findings, first, refusal
from pvdm.model.contract.types import DataProductContract

CONTRACT_SIZE_MAX_BYTES: Final = 262_144


def read_contract(path: Path) -> bytes:
    """The bytes of a contract's file; of one that is too large, one byte more than is allowed."""
    try:
        with path.open("rb") as file:
            return file.read(CONTRACT_SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise Code.INPUT_NOT_READABLE(
            f"{path} cannot be read", expected="a file to read", got=error.strerror or type(error).__name__
        ) from error


def parse_contract(data: bytes, name: str = "contract") -> DataProductContract:
    """The contract in these bytes; the first thing that cannot be accepted is told with `name`, line and column."""
    if len(data) > CONTRACT_SIZE_MAX_BYTES:
        raise Code.CONTRACT_TOO_LARGE(
            f"{name} is too large", expected=f"at most {CONTRACT_SIZE_MAX_BYTES} bytes", got=str(len(data)), file=name
        )
    placed = parse_yaml(data, name)
    try:
        document = Document.model_validate(placed.value)
    except ValidationError as error:
        raise refusal(first(findings(error.errors(include_url=False), placed)), name) from None
    return judged(document, placed, name, hashlib.sha256(data).hexdigest())
