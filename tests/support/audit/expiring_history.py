"""For tests of history that expires: a table that keeps few snapshots, publications to it, and its audit."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.catalog.commit import Change
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.report import AuditReport
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.model.role import Role
from tests.support.audit.crafted_history import Local
from tests.support.audit.published_history import gather_evidence
from tests.support.gate.protected_tables import Doc, House, Row, contract
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.stores.places import files
from tools.proof_kit import SECOND


def audit_orders(house: House) -> AuditReport:
    """Audit the table `sales.orders`, and hash its data files again."""
    evidence = gather_evidence(house.notary, house.scene.grant(Role.AUDITOR, "sales"), "orders")
    trust = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    return audit(evidence, Local(), trust, data_files=files())


def publish_attempt(house: House, attempt: Attempt) -> None:
    """Publish a proved attempt; the clock moves by two seconds."""
    house.stand.time.pass_by(SECOND)
    validate_then_commit(house.proposal(attempt), house.gate())
    house.stand.time.pass_by(SECOND)


def keep(house: House, snapshots: int, *, rows: Sequence[Row] = ()) -> None:
    """Create the protected table `sales.orders` with these rows, which keeps only so many snapshots of `main`."""
    house.scene.make("orders")
    if rows:
        house.commit(house.write_files(f"{house.table_state().metadata.location}/data/before", rows), "main")
    settings = {"history.expire.min-snapshots-to-keep": str(snapshots), "history.expire.max-snapshot-age-ms": "1"}
    update: Doc = {"action": "set-properties", "updates": settings}
    change = Change(("sales",), "orders", (), [update])
    house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [change])
    house.stand.time.pass_by(SECOND)
    house.contracts["orders"] = contract()
    house.scene.protect(house.scene.protection("orders", contract=house.contracts["orders"]))
