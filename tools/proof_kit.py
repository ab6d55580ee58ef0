"""Published test keys and one good instance of every signed document; hostile assets and examples are made from these.

The private keys are derived from their names. They protect nothing and must not be used. Times are in microseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pvdm.digest.partial import Partial
from pvdm.digest.plan import Construction, Mode, fingerprint
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.new_table import new_table
from pvdm.model.projection import Exclusion, Projection, ProjectionName
from pvdm.model.secret import CommitmentKey
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.core import (
    AddedFile,
    Attempt,
    ExtractionPath,
    FileSet,
    Method,
    Operation,
    Profile,
    ProofCore,
    ProvedProjection,
    RowCounts,
    StagedBranch,
    Target,
)
from pvdm.model.statements.epoch import EpochStage, EpochStatement, RestoreStatement
from pvdm.model.statements.migration import (
    Migration,
    NamespaceTarget,
    Protection,
    ProtectionAction,
    TableState,
    TableTarget,
    contract_sha256,
)
from pvdm.model.statements.proof import (
    ChunkProofs,
    Commitments,
    Isolation,
    NotaryPart,
    Proof,
    Storage,
    WorkloadStatement,
)
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import NamespaceRef, SourceSnapshot, TableRef
from pvdm.model.statements.verdict import FailureClass, Outcome, Verdict
from pvdm.trust.attestation import RequiredAttestation
from pvdm.trust.commitment import commit
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.root import RootRole, Thresholds, TrustedKey, TrustRoot
from pvdm.trust.statement import payload_of

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
NOW: Final = 1_794_650_400_000_000  # 2026-11-14T10:00:00Z
ISSUED: Final = NOW - 60 * SECOND
EXPIRES: Final = NOW + 3_600 * SECOND
EPOCH: Final = 7
ORIGIN: Final = "log.example/orders"  # as in tests/support/ledger/log_storage.py


def fixed(name: str, size: int = 32) -> str:
    """Hexadecimal digits derived from a name: a hash, id or nonce of the examples, of `size` bytes."""
    return hashlib.sha256(f"pvdm example {name}".encode()).hexdigest()[: 2 * size]


@dataclass(frozen=True, slots=True)
class ExampleSigner:
    """A signer whose private key everybody can compute."""

    public: PublicKey
    sign: Callable[[bytes], bytes]


def _ed25519(name: str) -> ExampleSigner:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"pvdm test key {name}".encode()).digest())
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return ExampleSigner(PublicKey(Algorithm.ED25519, der), key.sign)


def _p256(name: str) -> ExampleSigner:
    number = int.from_bytes(hashlib.sha256(f"pvdm test key {name}".encode()).digest(), "big") >> 1
    key = ec.derive_private_key(number, ec.SECP256R1())
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    scheme = ec.ECDSA(SHA256(), deterministic_signing=True)
    return ExampleSigner(PublicKey(Algorithm.ECDSA_P256, der), lambda data: key.sign(data, scheme))


SIGNERS: Final = {
    name: (_p256 if name in {"notary-b", "source-payments"} else _ed25519)(name)
    for name in (
        "notary-a",
        "notary-a-second",
        "notary-b",
        "notary-revoked",
        "notary-expired",
        "notary-early",
        "log-keeper",
        "operator-ruth",
        "operator-tom",
        "source-payments",
        "source-other",
        "root-one",
        "root-two",
        "root-three",
        "root-four",
        "rogue",
    )
}


def _trusted(
    name: str,
    role: RootRole,
    *,
    identity: str | None = None,
    valid: tuple[int, int] = (NOW - 100 * DAY, NOW + 300 * DAY),
    revoked_at: int | None = None,
) -> TrustedKey:
    epochs = (EPOCH - 1, EPOCH) if role in {RootRole.NOTARY, RootRole.LOG, RootRole.BREAK_GLASS} else ()
    return TrustedKey(SIGNERS[name].public, identity or name, (role,), epochs, *valid, revoked_at)


KEYS: Final = {
    "notary-a": _trusted("notary-a", RootRole.NOTARY),
    "notary-a-second": _trusted("notary-a-second", RootRole.NOTARY, identity="notary-a"),
    "notary-b": _trusted("notary-b", RootRole.NOTARY),
    "notary-revoked": _trusted("notary-revoked", RootRole.NOTARY, revoked_at=NOW - DAY),
    "notary-expired": _trusted("notary-expired", RootRole.NOTARY, valid=(NOW - 100 * DAY, NOW - DAY)),
    "notary-early": _trusted("notary-early", RootRole.NOTARY, valid=(NOW + DAY, NOW + 300 * DAY)),
    "log-keeper": _trusted("log-keeper", RootRole.LOG, identity=ORIGIN),
    "operator-ruth": _trusted("operator-ruth", RootRole.BREAK_GLASS),
    "operator-tom": _trusted("operator-tom", RootRole.OPERATOR),
    "source-payments": _trusted("source-payments", RootRole.ATTESTOR),
    "source-other": _trusted("source-other", RootRole.ATTESTOR),
    "root-one": _trusted("root-one", RootRole.ROOT),
    "root-two": _trusted("root-two", RootRole.ROOT),
}


def root_of(keys: list[TrustedKey], *, version: int = 1, previous: str | None = None, notaries: int = 1) -> TrustRoot:
    """A trust root with these keys, which needs two root signers and this many notaries."""
    ordered = tuple(sorted(keys, key=lambda key: key.key_id))
    return TrustRoot(version, previous, NOW - 30 * DAY, NOW + 60 * DAY, ordered, Thresholds(notaries, 2))


ROOT: Final = root_of(list(KEYS.values()))
NEXT_ROOT: Final = root_of(
    [key for name, key in KEYS.items() if name != "notary-expired"], version=2, previous=ROOT.sha256
)

TABLE: Final = TableRef("lake", "9f1c6f0e-7d0b-4a67-9a3e-2d6d0f3d9a11", "curated.orders")
SOURCE: Final = TableRef("payments", "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22", "raw.payments")
CONTRACT_TEXT: Final = """\
# what consumers of orders can rely on
apiVersion: pvdm/v1
kind: DataProduct
metadata:
  domain: sales
  product: orders
  owner: sales
parameters:
  business_date:
    type: date
    description: The day that is published.
boundary:
  source:
    table: raw.payments
  where: order_day = ${business_date}
  target: curated.orders
  operation: overwrite-partitions
  partition:
    order_day: ${business_date}
projections:
  identity: [payment_id]
  content:
    exclude:
      - column: ingested_at
        reason: set by the writer; no consumer relies on it
"""
_COLUMNS: Final[list[Json]] = [
    {"id": number, "name": name, "required": False, "type": kind}
    for number, (name, kind) in enumerate(
        (
            ("payment_id", "long"),
            ("amount", "decimal(12, 2)"),
            ("currency", "string"),
            ("order_day", "date"),
            ("ingested_at", "timestamptz"),
        ),
        start=1,
    )
]
EMPTY_TABLE: Final = new_table(
    {
        "schema": {"type": "struct", "schema-id": 0, "fields": _COLUMNS},
        "partition-spec": {
            "fields": [{"name": "order_day", "transform": "identity", "source-id": 4, "field-id": 1000}]
        },
        "properties": {"format-version": "2"},
    },
    location="s3://lake/curated/orders",
    table_uuid=TABLE.uuid,
    now_ms=(NOW - DAY) // 1_000,
)
_SCHEMA: Final = to_model(EMPTY_TABLE.current_schema)
NEWER_SNAPSHOT_ID: Final = 6_100_482_777_120_340_518
VAULT: Final = "s3://lake-metadata/vault"
PREFIX: Final = f"{EMPTY_TABLE.location}/attempts/{fixed('attempt', 16)}"
_COPIES: Final = f"{VAULT}/{TABLE.uuid}/data/{fixed('attempt', 16)}"
FILES: Final = FileSet(
    tuple(
        AddedFile(
            staged_path=f"{PREFIX}/data/part-{n}.parquet",
            staged_size_bytes=4_194_304 + n,
            staged_sha256=fixed(f"file {n}"),
            published_path=f"{_COPIES}/part-{n}.parquet",
            published_size_bytes=4_193_280 + n,
            published_sha256=fixed(f"published file {n}"),
        )
        for n in range(3)
    ),
    removed=(f"{EMPTY_TABLE.location}/data/old-0.parquet",),
)


def _projection(name: ProjectionName, columns: tuple[str, ...], *excluded: Exclusion) -> ProvedProjection:
    return ProvedProjection(Projection(name, columns, excluded), fingerprint(_SCHEMA.select(columns)).hex())


CORE: Final = ProofCore(
    attempt=Attempt(
        contract_sha256=contract_sha256(CONTRACT_TEXT),
        parameters=(("business_date", "2026-11-14"),),
        workload_id="orders-2026-11-14",
        plan_sha256=fixed("plan"),
        chunk_id="2026-11-14",
        attempt_id=fixed("attempt", 16),
        number=1,
        nonce=fixed("nonce", 16),
    ),
    target=Target(
        table=TABLE,
        branch="main",
        base_snapshot_id=5_311_277_034_218_850_033,
        operation=Operation.OVERWRITE_PARTITIONS,
        partition=(("order_day", "2026-11-14"),),
        schema_fingerprint=fingerprint(_SCHEMA).hex(),
        spec_id=EMPTY_TABLE.default_spec_id,
        format_version=2,
    ),
    staged=StagedBranch(f"pvdm-{fixed('attempt', 16)}", 7_902_266_124_008_513_407),
    files=FILES,
    rows=RowCounts(48_210, 48_210),
    sources=(SourceSnapshot(SOURCE, 1_206_533_119_840_177_310, fixed("source freeze root")),),
    method=Method(Profile.A, "stored", "hmac-sha256", ExtractionPath.DIRECT, "1"),
    projections=(
        _projection(
            ProjectionName.CONTENT,
            ("amount", "currency", "order_day", "payment_id"),
            Exclusion("ingested_at", "set by the writer; no consumer relies on it"),
        ),
        _projection(ProjectionName.IDENTITY, ("payment_id",)),
    ),
    checks=("bounds", "field-ids", "file-sizes", "manifest-counts", "row-group-statistics"),
    verdict=Verdict(Outcome.PASS),
)


def notary_part(notary: str = "notary-a") -> NotaryPart:
    """The part of a proof beside the core, which differs by notary; commitments are under the notary's own keys."""
    commitments = tuple(
        Commitments(name, fixed(f"{notary} {name.value}"), fixed(f"{notary} {name.value}"))
        for name in (ProjectionName.CONTENT, ProjectionName.IDENTITY)
    )
    return NotaryPart(notary, EPOCH, commitments, Isolation.PROCESS, Storage.COPIED, ISSUED, EXPIRES)


def failed_part(notary: str = "notary-a") -> NotaryPart:
    """Like `notary_part`, with another commitment to the content digest of the staged rows."""
    content, identity = notary_part(notary).commitments
    changed = Commitments(content.projection, content.intent, fixed(f"{notary} staged content"))
    return NotaryPart(notary, EPOCH, (changed, identity), Isolation.PROCESS, Storage.COPIED, ISSUED, EXPIRES)


def failed_core() -> ProofCore:
    """The core with the verdict FAIL (modified)."""
    return ProofCore.from_json({**CORE.to_json(), "verdict": Verdict.failed(FailureClass.MODIFIED).to_json()})


PROOF: Final = Proof(CORE, notary_part())
FAIL_PROOF: Final = Proof(failed_core(), failed_part())
FAIL_PROOF_ID: Final = hashlib.sha256(payload_of(FAIL_PROOF)).hexdigest()
PROOF_ID: Final = hashlib.sha256(payload_of(PROOF)).hexdigest()

OVERRIDE: Final = BreakGlass(
    operator="operator-ruth",
    reason="regulator's deadline; the changed amounts are known and explained in incident 4711",
    table=TABLE,
    base_snapshot_id=CORE.target.base_snapshot_id,
    fail_proof_id=FAIL_PROOF_ID,
    file_hashes=FILES.staged_hashes,
    nonce=fixed("override nonce", 16),
    issued_at=ISSUED,
    expires_at=EXPIRES,
)

SOURCE_KEY: Final = CommitmentKey(bytes.fromhex(fixed("shared source commitment key")), epoch=EPOCH)
SOURCE_DIGEST: Final = Partial(
    epoch=EPOCH,
    construction=Construction.HMAC_SHA256,
    mode=Mode.STORED,
    projection=ProjectionName.CONTENT,
    fingerprint=bytes.fromhex(fixed("fingerprint source")),
    key_check=bytes.fromhex(fixed("key check", 16)),
    rows=51_002,
    total=int(fixed("sum"), 16),
)
ATTESTATION: Final = SourceAttestation(
    attestor="source-payments",
    table=SOURCE,
    snapshot_id=CORE.sources[0].snapshot_id,
    row_count=SOURCE_DIGEST.rows,
    projection=ProjectionName.CONTENT,
    schema_fingerprint=fixed("fingerprint source"),
    mode="stored",
    construction="hmac-sha256",
    epoch=EPOCH,
    nonce=fixed("attestation nonce", 16),
    commitment=commit(SOURCE_KEY, SOURCE_DIGEST),
    issued_at=ISSUED,
)
WANTED: Final = RequiredAttestation(
    attestors=("source-payments",),
    catalog=SOURCE.catalog,
    table_uuid=SOURCE.uuid,
    snapshot_id=ATTESTATION.snapshot_id,
    nonce=ATTESTATION.nonce,
    epoch=EPOCH,
    age_max_micros=DAY,
)

RECEIPT: Final = Receipt(
    notary="notary-a",
    epoch=EPOCH,
    workload_id=CORE.attempt.workload_id,
    proof_ids=(PROOF_ID,),
    override_id=None,
    table=TABLE,
    branch="main",
    old_snapshot_id=CORE.target.base_snapshot_id,
    new_snapshot_id=3_044_811_902_557_126_640,
    manifest_list_sha256=fixed("manifest list"),
    metadata_path="s3://lake-metadata/curated/orders/00042.metadata.json",
    metadata_sha256=fixed("metadata"),
    published_at=NOW,
)
WORKLOAD: Final = WorkloadStatement(
    notary="notary-a",
    epoch=EPOCH,
    workload_id=CORE.attempt.workload_id,
    contract_sha256=CORE.attempt.contract_sha256,
    plan_sha256=CORE.attempt.plan_sha256,
    table=TABLE,
    chunks=(ChunkProofs(CORE.attempt.chunk_id, CORE.attempt.attempt_id, CORE.attempt.nonce, (PROOF_ID,)),),
    issued_at=ISSUED,
    expires_at=EXPIRES,
)
_BEFORE: Final = TableState(
    contract_sha256=contract_sha256(CONTRACT_TEXT),
    schema_fingerprint=CORE.target.schema_fingerprint,
    spec_id=0,
    format_version=2,
    structure_sha256=fixed("structure of the table"),
)
_AFTER: Final = replace(
    _BEFORE, schema_fingerprint=fixed("fingerprint table 2"), structure_sha256=fixed("structure of the table 2")
)
MIGRATION: Final = Migration(
    operator="operator-tom",
    reason="orders are told apart by channel",
    table=TABLE,
    before=_BEFORE,
    after=_AFTER,
    updates='[{"action":"set-properties","updates":{"owner":"sales"}}]',
    contract=None,
    nonce=fixed("migration nonce", 16),
    issued_at=ISSUED,
    expires_at=EXPIRES,
)
PROTECTION: Final = Protection(
    operator="operator-tom",
    reason="orders go live",
    action=ProtectionAction.PROTECT,
    target=TableTarget(TABLE, _BEFORE, CORE.target.base_snapshot_id),
    contract=CONTRACT_TEXT,
    nonce=fixed("protection nonce", 16),
    issued_at=ISSUED,
    expires_at=EXPIRES,
)
NAMESPACE_PROTECTION: Final = replace(
    PROTECTION,
    reason="whatever is curated is proved",
    target=NamespaceTarget(
        NamespaceRef("lake", fixed("namespace curated", 16), "curated"), contract_sha256(CONTRACT_TEXT)
    ),
    nonce=fixed("namespace protection nonce", 16),
)
EPOCH_STATEMENT: Final = EpochStatement(
    notary="notary-a",
    epoch=EPOCH,
    before=EpochStage.CREATED,
    after=EpochStage.ACTIVE,
    reason="yearly rotation",
    key_ids=(("log", SIGNERS["log-keeper"].public.key_id), ("signing", SIGNERS["notary-a"].public.key_id)),
    issued_at=ISSUED,
)
RESTORE: Final = RestoreStatement(
    notary="notary-a",
    operator="operator-tom",
    reason="the database's disk failed; last night's backup was brought back",
    backup_size=1_204,
    outside_origin=ORIGIN,
    outside_size=1_260,
    outside_root=fixed("outside root"),
    refilled=56,
    missing=0,
    lost=0,
    new_epoch=EPOCH + 1,
    issued_at=ISSUED,
)
CLAIM_RELEASE: Final = ClaimRelease(
    operator="operator-tom",
    reason="compared with the source, day by day; all rows of 14 November are there once",
    table=TABLE,
    workload_id=RECEIPT.workload_id,
    receipt_id=hashlib.sha256(payload_of(RECEIPT)).hexdigest(),
    proof_ids=RECEIPT.proof_ids,
    restore_id=hashlib.sha256(payload_of(RESTORE)).hexdigest(),
    nonce=fixed("claim release nonce", 16),
    issued_at=ISSUED,
    expires_at=EXPIRES,
)
