"""A Steward with a catalog and the table `sales.orders`, and an operator who signs protections and migrations."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.api.protection import ClaimReleaseView
from pvdm.catalog.commit import Change
from pvdm.catalog.names import full_name
from pvdm.catalog.state import TableState
from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.manifest_list import ListHeader
from pvdm.lake.format.manifest.write import write_manifest_list
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.record.tokens import Grant
from pvdm.metadata.gate.state import state_of, target_of
from pvdm.model.role import Role
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.migration import Migration, NamespaceTarget, Protection, ProtectionAction, contract_sha256
from pvdm.model.statements.table import NamespaceRef, TableRef
from pvdm.steward.config.steward import CatalogConfig, StewardConfig
from pvdm.steward.notary import Notary
from pvdm.trust.verify import sign_statement
from tests.support.catalog.core import request, to_ref
from tests.support.lake.sources import follow_target, provide_source
from tests.support.steward.notary import Stand, stand_at
from tests.support.stores.places import file_at, on_test_store
from tools.proof_kit import SECOND, SIGNERS, fixed

Doc = dict[str, Any]

SALES: Levels = ("sales",)


def contract_for(name: str = "orders", levels: Levels = SALES, *, owner: str = "sales", domain: str = "sales") -> str:
    """A contract that appends rows to this table from the table of the same name in `raw`."""
    return (
        "apiVersion: pvdm/v1\n"
        "kind: DataProduct\n"
        "metadata:\n"
        f"  domain: {domain}\n"
        f"  product: {name}\n"
        f"  owner: {owner}\n"
        "boundary:\n"
        "  source:\n"
        f"    table: raw.{name}\n"
        f"  target: {'.'.join((*levels, name))}\n"
        "  operation: append\n"
        "projections:\n"
        "  identity: [id]\n"
    )


CONTRACT = contract_for()
OTHER_CONTRACT = contract_for(owner="risk")
HASH, OTHER_HASH = contract_sha256(CONTRACT), contract_sha256(OTHER_CONTRACT)
WORD: list[Doc] = [{"action": "set-properties", "updates": {"word": "mine"}}]
COLUMN: list[Doc] = [
    {
        "action": "add-schema",
        "schema": {
            "type": "struct",
            "schema-id": 1,
            "fields": [
                {"id": 1, "name": "id", "required": False, "type": "long"},
                {"id": 2, "name": "day", "required": False, "type": "date"},
                {"id": 3, "name": "town", "required": False, "type": "string"},
                {"id": 4, "name": "channel", "required": False, "type": "string"},
            ],
        },
    },
    {"action": "set-current-schema", "schema-id": -1},
]


@dataclass(slots=True)
class Scene:
    """A Steward and its catalog. `scene_at` creates the table `sales.orders` with one snapshot in it."""

    stand: Stand
    counter: int = 0

    @property
    def notary(self) -> Notary:
        return self.stand.notary

    @property
    def now(self) -> int:
        return self.stand.time.wall

    def grant(self, role: Role = Role.OPERATOR, domain: str = "*") -> Grant:
        return self.stand.grant(role, domain)

    def table_state(self, name: str = "orders", levels: Levels = SALES) -> TableState:
        """The table's current state."""
        return self.notary.catalog.states.get(levels, name)

    def space(self, levels: Levels = SALES) -> Namespace:
        return self.notary.catalog.namespaces.get(self.grant(), levels)

    def contract_of(self, name: str = "orders") -> str | None:
        return self.table_state(name).row.contract_hash

    def make(self, name: str = "orders", *, version: int = 2, levels: Levels = SALES) -> TableState:
        """Create a table of this format version."""
        return self.notary.catalog.tables.create(self.grant(), levels, {"name": name, **request(version)})

    def commit(
        self, updates: Sequence[Doc], name: str = "orders", *, role: Role = Role.OPERATOR, levels: Levels = SALES
    ) -> TableState:
        change = Change(levels, name, (), updates)
        return self.notary.catalog.tables.commit(self.grant(role, "sales"), [change])[0]

    def stage(self, name: str = "orders", branch: str = "stage") -> TableState:
        """Commit one more snapshot, without files: to a branch as a producer, or to `main` as an operator."""
        base = self.table_state(name).metadata
        self.counter += 1
        ref = base.refs.get(branch)
        snapshot: Doc = {
            "snapshot-id": 1_000 + self.counter,
            "sequence-number": base.next_sequence_number,
            "timestamp-ms": max(self.now // 1_000, base.last_updated_ms),
            "summary": {"operation": "append", "added-records": "3", "engine-name": "spark"},
            "manifest-list": f"{base.location}/metadata/snap-{1_000 + self.counter}.avro",
            "schema-id": base.current_schema_id,
            **({} if ref is None else {"parent-snapshot-id": ref.snapshot_id}),
        }
        if base.format_version == 1:
            del snapshot["sequence-number"]
        if base.format_version == 3:
            snapshot |= {"first-row-id": base.next_row_id, "added-rows": 3}
        _write_empty_list(base, snapshot)
        role = Role.OPERATOR if branch == "main" else Role.PRODUCER
        return self.commit(to_ref(branch, snapshot), name, role=role)

    def nonce(self) -> str:
        self.counter += 1
        return fixed(f"approval {self.counter}", 16)

    def ref(self, name: str = "orders", levels: Levels = SALES) -> TableRef:
        row = self.table_state(name, levels).row
        return TableRef(self.notary.catalog.name, row.table_uuid, full_name((*levels, name)))

    def protection(
        self,
        name: str = "orders",
        *,
        action: ProtectionAction = ProtectionAction.PROTECT,
        contract: str | None = None,
        levels: Levels = SALES,
    ) -> Protection:
        """The operator's statement that protects the table as it is now, or ends its protection."""
        contract = contract or contract_for(name, levels, domain=levels[0])
        metadata = self.table_state(name, levels).metadata
        return Protection(
            "operator-tom",
            "orders go live",
            action,
            target_of(self.ref(name, levels), metadata, contract_sha256(contract)),
            contract if action is ProtectionAction.PROTECT else None,
            self.nonce(),
            self.now,
            self.now + 3_600 * SECOND,
        )

    def namespace_protection(
        self,
        *,
        action: ProtectionAction = ProtectionAction.PROTECT,
        levels: Levels = SALES,
        contract: str | None = None,
    ) -> Protection:
        """The operator's statement that protects a namespace, or ends its protection."""
        contract = contract or contract_for(levels=levels, domain=levels[0])
        namespace = self.space(levels)
        ref = NamespaceRef(self.notary.catalog.name, namespace.namespace_id, full_name(levels))
        return Protection(
            "operator-tom",
            "every table of sales needs proofs",
            action,
            NamespaceTarget(ref, contract_sha256(contract)),
            contract if action is ProtectionAction.PROTECT else None,
            self.nonce(),
            self.now,
            self.now + 3_600 * SECOND,
        )

    def migration(
        self,
        updates: Sequence[Doc] = WORD,
        name: str = "orders",
        *,
        contract: str | None = None,
    ) -> Migration:
        """The operator's statement that makes these updates to the protected table as it is now."""
        found = self.table_state(name)
        contract_hash = found.row.contract_hash or HASH
        after = apply_updates(
            found.metadata, updates, now_ms=self.now // 1_000, previous_location=found.row.pointer.location
        )
        return Migration(
            "operator-tom",
            "the table needs an update",
            self.ref(name),
            state_of(found.metadata, contract_hash),
            state_of(after, contract_hash if contract is None else contract_sha256(contract)),
            json.dumps(updates),
            contract,
            self.nonce(),
            self.now,
            self.now + 3_600 * SECOND,
        )

    def claim_release(self, receipt_id: str | None = None) -> ClaimRelease:
        """The operator's statement that releases the lost claim of this receipt or proof, or the first lost claim."""
        self.stand.time.pass_by(SECOND)  # a statement that is not newer than the restore is refused
        lost = self.notary.claim_releases.list_lost(self.grant(), receipt_id=receipt_id)[0]
        return ClaimRelease(
            "operator-tom",
            "compared with the source, day by day",
            TableRef(lost.catalog, lost.table_uuid, lost.table),
            lost.workload_id,
            lost.receipt_id,
            lost.proof_ids,
            lost.restore_id,
            self.nonce(),
            self.now,
            self.now + 3_600 * SECOND,
        )

    def release(
        self, statement: ClaimRelease | None = None, *, signer: str = "operator-tom", domain: str = "*"
    ) -> ClaimReleaseView:
        """Sign and submit a claim release."""
        envelope = signed(statement or self.claim_release(), signer)
        return self.notary.claim_releases.submit(envelope, self.grant(domain=domain))

    def protect(self, statement: Protection | None = None, *, signer: str = "operator-tom", domain: str = "*") -> Any:
        """Create the contract's source, then sign and submit the protection."""
        statement = statement or self.protection()
        if statement.contract is not None:
            with contextlib.suppress(PvdmError):  # the Steward refuses the statement, and its error says why
                provide_source(self.notary, self.grant(), statement.contract, self._metadata_of(statement))
        envelope = signed(statement, signer)
        return self.notary.protections.submit(envelope, self.grant(domain=domain))

    def migrate(self, statement: Migration | None = None, *, signer: str = "operator-tom", domain: str = "*") -> Any:
        """Add the new columns to the contract's source, then sign and submit the migration."""
        statement = statement or self.migration()
        self.prepare_source(statement)
        envelope = signed(statement, signer)
        return self.notary.migrations.submit(envelope, self.grant(domain=domain)).migration

    def _metadata_of(self, statement: Protection) -> TableMetadata:
        """The metadata of the table that the statement protects; for a namespace, the metadata of `orders`."""
        if isinstance(statement.target, NamespaceTarget):
            return self.table_state().metadata
        *levels, name = statement.target.table.name.split(".")
        return self.table_state(name, tuple(levels)).metadata

    def prepare_source(self, statement: Migration) -> None:
        """Give the source the columns that the migration gives the target."""
        try:
            *levels, name = statement.table.name.split(".")
            found = self.table_state(name, tuple(levels))
            updates = json.loads(statement.updates)
            after = apply_updates(found.metadata, updates, now_ms=self.now // 1_000, previous_location="file:///before")
        except (PvdmError, ValueError):
            return  # the Steward refuses the statement, and its error says why
        if found.row.contract_hash is None:
            return
        contract = statement.contract
        if contract is None:
            contract = self.notary.protections.get_contract(found.row.contract_hash, self.grant()).decode()
        provide_source(self.notary, self.grant(), contract, after)
        follow_target(self.notary, self.grant(), contract, after)


def _write_empty_list(base: TableMetadata, snapshot: Doc) -> None:
    """Write the snapshot's manifest list, without a manifest: the Steward reads the list when it protects the table."""
    header = ListHeader(
        format_version=base.format_version,
        snapshot_id=snapshot["snapshot-id"],
        parent_snapshot_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot.get("sequence-number"),
        first_row_id=snapshot.get("first-row-id"),
    )
    place = file_at(snapshot["manifest-list"])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(write_manifest_list(header, []).data)


def signed(statement: Protection | Migration | ClaimRelease, signer: str = "operator-tom") -> bytes:
    return sign_statement(statement, SIGNERS[signer]).to_bytes()


def with_catalog(folder: Path) -> Callable[[StewardConfig], StewardConfig]:
    return lambda config: replace(config, catalog=CatalogConfig(f"file://{folder}/warehouse", folder / "catalog"))


def furnish(stand: Stand) -> Scene:
    """Create the namespaces `sales` and `risk`, and the table `sales.orders` with one snapshot on `main`."""
    scene = Scene(stand)
    for levels in (SALES, ("risk",)):
        stand.notary.catalog.namespaces.create(scene.grant(), levels, {"pvdm.domain": levels[0]})
    scene.make()
    scene.stage(branch="main")
    provide_source(stand.notary, scene.grant(), CONTRACT, scene.table_state().metadata)
    return scene


@contextlib.contextmanager
def scene_at(
    folder: Path,
    *,
    ledger_url: str | None = None,
    changed: Callable[[StewardConfig], StewardConfig] = lambda config: config,
) -> Iterator[Scene]:
    """A Steward in this folder with the namespaces and the table of `furnish`."""
    folder = folder.resolve()
    catalog = on_test_store(with_catalog(folder))
    with stand_at(folder, ledger_url=ledger_url, changed=lambda config: changed(catalog(config))) as stand:
        yield furnish(stand)


def reason_of(call: Callable[[], object], kind: type[PvdmError] = PvdmError) -> str:
    """The code of the error that the call must raise."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value.reason
