"""Files that hold signed statements: one envelope, or a bundle of proofs; read by form, nothing is believed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pvdm.cli.common.files import read_file, require_json
from pvdm.errors import Code
from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields
from pvdm.model.statements.proof import Proof
from pvdm.trust.bundle import BUNDLE_SIZE_MAX_BYTES, parse_bundle
from pvdm.trust.envelope import Envelope, parse_envelope
from pvdm.trust.refusal import refusing
from pvdm.trust.statement import FAMILIES, PAYLOAD_SIZE_MAX_BYTES, Predicate, read_statement
from pvdm.trust.strict_json import read

_BUNDLE = b'{"format":"pvdm-bundle/'


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement as its envelope carries it, with the time of its log entry where a bundle tells it."""

    envelope: Envelope
    predicate: Predicate
    logged_at: int | None = None

    @property
    def statement_id(self) -> str:
        """SHA-256 of the payload."""
        return self.envelope.payload_sha256

    @property
    def kind(self) -> str:
        """Proof, receipt, break-glass and so on."""
        return FAMILIES[type(self.predicate)].predicate_type.split(":")[2]


def is_bundle(data: bytes) -> bool:
    """Whether these bytes begin as a bundle does."""
    return data.startswith(_BUNDLE)


def read_statement_file(path: Path) -> tuple[bytes, list[Statement]]:
    """The file's bytes, and the statements of its envelope or bundle."""
    data = read_file(path, size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    require_json(path, data, "a signed statement or a bundle")
    if is_bundle(data):
        logged = parse_bundle(data).proofs
        return data, [_statement(each.envelope, each.logged_at) for each in logged]
    return data, [_statement(data, None)]


def read_proofs(path: Path) -> tuple[bytes, list[tuple[str, Proof]]]:
    """The proofs of a file, by id; another kind of statement is bad input."""
    data, statements = read_statement_file(path)
    proofs = []
    for each in statements:
        if not isinstance(each.predicate, Proof):
            raise Code.PROOF_EXPECTED(f"{path} holds no proof", got=f"a {each.kind}")
        proofs.append((each.statement_id, each.predicate))
    return data, proofs


def _statement(data: bytes, logged_at: int | None) -> Statement:
    envelope = parse_envelope(data)
    return Statement(envelope, read_statement(envelope.payload, _kind(envelope.payload)), logged_at)


def _kind(payload: bytes) -> type[Predicate]:
    """The kind that the payload names; one that is not known is read as a proof, which says what is wrong with it."""
    value: Value = read(payload, "the statement", size_max_bytes=PAYLOAD_SIZE_MAX_BYTES)
    with refusing():
        fields = Fields(value, "the statement", ("_type", "subject", "predicateType", "predicate"))
        name = fields.text("predicateType")
    return next((kind for kind, family in FAMILIES.items() if family.predicate_type == name), Proof)
