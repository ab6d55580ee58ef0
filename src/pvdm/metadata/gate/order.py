"""The order: everything that a publication writes to the ledger, as a value.

It is carried out in the transaction of the swap. For an upstream catalog it is stored before the upstream is called, so
that a crash in between loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final

from pvdm.ledger.work.announced import ORDER_MAX_BYTES
from pvdm.ledger.work.chunks import Extent
from pvdm.metadata.gate.proposal import PublishedSnapshot
from pvdm.model import canonical_json
from pvdm.model.canonical_json import Value
from pvdm.model.contract import Source
from pvdm.model.fields import Fields
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.core import Operation, ProofCore

_KEYS: Final = ("parts", "source", "claim", "override_nonce", "manifest_list", "proof_ids", "shown")


@dataclass(frozen=True, slots=True)
class OrderPart:
    """One attempt to publish, the nonce that it uses up, and the counts of its rows and files."""

    attempt_id: str
    nonce: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class Order:
    """The attempts, their source as the contract names it, the claim, the override, and the facts of the receipt."""

    parts: tuple[OrderPart, ...]
    source: Source
    claim: Claim | None
    override_nonce: str | None
    manifest_list: str
    shown: PublishedSnapshot

    def seen_as(self, *, metadata_path: str, metadata_sha256: str, published_at: int) -> Order:
        """The same order with the metadata file that an upstream made of it."""
        shown = replace(
            self.shown, metadata_path=metadata_path, metadata_sha256=metadata_sha256, published_at=published_at
        )
        return replace(self, shown=shown)

    def to_text(self) -> str:
        """The order as the ledger stores it."""
        claim = self.claim
        document: Value = {
            "parts": [[each.attempt_id, each.nonce, *astuple(each.extent)] for each in self.parts],
            "source": [self.source.table, self.source.manifest, self.source.uuid],
            "claim": None
            if claim is None
            else [
                claim.column,
                claim.kind,
                claim.lower.hex(),
                None if claim.upper is None else claim.upper.hex(),
                claim.text,
            ],
            "override_nonce": self.override_nonce,
            "manifest_list": self.manifest_list,
            "proof_ids": list(self.shown.proof_ids),
            "shown": self.shown.facts(),
        }
        return canonical_json.dump(document).decode()

    @classmethod
    def from_text(cls, text: str) -> Order:
        """The order that `to_text` wrote."""
        document = canonical_json.parse(text.encode(), size_max_bytes=ORDER_MAX_BYTES)
        fields = Fields(document, "an order", _KEYS)
        ids = fields.value("proof_ids")
        proof_ids = tuple(str(each) for each in ids) if isinstance(ids, Sequence) else ()
        return cls(
            tuple(_part(each) for each in _listed(fields.value("parts"))),
            _source(fields.value("source")),
            _claim(fields.value("claim")),
            fields.optional_text("override_nonce"),
            fields.text("manifest_list"),
            PublishedSnapshot.from_facts(fields.value("shown"), proof_ids=proof_ids, published_at=0),
        )


def claim_taken(cores: Sequence[ProofCore], claim: Claim) -> Claim | None:
    """The claim, if the publication is an append with at least one row. No other one can publish rows twice."""
    takes = any(core.target.operation is Operation.APPEND and core.rows.staged != 0 for core in cores)
    return claim if takes else None


def _part(value: Value) -> OrderPart:
    attempt_id, nonce, *numbers = _listed(value)
    return OrderPart(str(attempt_id), str(nonce), Extent(*(int(str(each)) for each in numbers)))


def _source(value: Value) -> Source:
    table, manifest, uuid = (None if each is None else str(each) for each in _listed(value))
    return Source(table, manifest, uuid)


def _claim(value: Value) -> Claim | None:
    if value is None:
        return None
    column, kind, lower, upper, text = (None if each is None else str(each) for each in _listed(value))
    return Claim(column, kind, bytes.fromhex(lower or ""), None if upper is None else bytes.fromhex(upper), text or "")


def _listed(value: Value) -> Sequence[Value]:
    if not isinstance(value, list | tuple):
        raise AssertionError("a stored order has lists where `to_text` writes lists")
    return value
