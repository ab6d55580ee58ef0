"""What a publication changes in the ledger, as one value.

In the Steward's own catalog, the transaction that moves `main` applies the changes. For an upstream catalog they are
stored before the upstream is called, so that a crash in between loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final

from pvdm.ledger.work.announced import LEDGER_CHANGES_MAX_BYTES
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
class PublishedAttempt:
    """An attempt that the publication publishes, the nonce that it uses up, and the counts of its rows and files."""

    attempt_id: str
    nonce: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class LedgerChanges:
    """The published attempts, what else the publication takes or uses up, and the facts of its receipt."""

    attempts: tuple[PublishedAttempt, ...]
    source: Source  # as the contract names it
    claim: Claim | None  # None: it takes no claim
    override_nonce: str | None  # None: it uses no override
    manifest_list: str  # the location
    shown: PublishedSnapshot

    def with_upstream_metadata(self, *, metadata_path: str, metadata_sha256: str, published_at: int) -> LedgerChanges:
        """The same changes, with the metadata file that the upstream wrote, and the time of the publication."""
        shown = replace(
            self.shown, metadata_path=metadata_path, metadata_sha256=metadata_sha256, published_at=published_at
        )
        return replace(self, shown=shown)

    def to_text(self) -> str:
        """The changes as the ledger stores them. `shown.published_at` is not stored."""
        document: Value = {
            "parts": [[each.attempt_id, each.nonce, *astuple(each.extent)] for each in self.attempts],
            "source": [self.source.table, self.source.manifest, self.source.uuid],
            "claim": None if self.claim is None else _claim_to_list(self.claim),
            "override_nonce": self.override_nonce,
            "manifest_list": self.manifest_list,
            "proof_ids": list(self.shown.proof_ids),
            "shown": self.shown.facts(),
        }
        return canonical_json.dump(document).decode()

    @classmethod
    def from_text(cls, text: str) -> LedgerChanges:
        """The changes that `to_text` wrote, with 0 as `shown.published_at`."""
        document = canonical_json.parse(text.encode(), size_max_bytes=LEDGER_CHANGES_MAX_BYTES)
        fields = Fields(document, "stored ledger changes", _KEYS)
        ids = fields.value("proof_ids")
        proof_ids = tuple(str(each) for each in ids) if isinstance(ids, Sequence) else ()
        return cls(
            tuple(_parse_attempt(each) for each in _require_list(fields.value("parts"))),
            _parse_source(fields.value("source")),
            _parse_claim(fields.value("claim")),
            fields.optional_text("override_nonce"),
            fields.text("manifest_list"),
            PublishedSnapshot.from_facts(fields.value("shown"), proof_ids=proof_ids, published_at=0),
        )


def select_claim(cores: Sequence[ProofCore], claim: Claim) -> Claim | None:
    """The claim. None if the publication is no append, or certainly has no row, so that it cannot repeat a row."""
    takes = any(core.target.operation is Operation.APPEND and core.rows.staged != 0 for core in cores)
    return claim if takes else None


def _parse_attempt(value: Value) -> PublishedAttempt:
    attempt_id, nonce, *counts = _require_list(value)
    return PublishedAttempt(str(attempt_id), str(nonce), Extent(*(int(str(each)) for each in counts)))


def _parse_source(value: Value) -> Source:
    table, manifest, uuid = (None if each is None else str(each) for each in _require_list(value))
    return Source(table, manifest, uuid)


def _claim_to_list(claim: Claim) -> list[Value]:
    upper = None if claim.upper is None else claim.upper.hex()
    return [claim.column, claim.kind, claim.lower.hex(), upper, claim.text]


def _parse_claim(value: Value) -> Claim | None:
    if value is None:
        return None
    column, kind, lower, upper, text = (None if each is None else str(each) for each in _require_list(value))
    return Claim(column, kind, bytes.fromhex(lower or ""), None if upper is None else bytes.fromhex(upper), text or "")


def _require_list(value: Value) -> Sequence[Value]:
    if not isinstance(value, list | tuple):
        raise AssertionError("the stored ledger changes have another value where `to_text` writes a list")
    return value
