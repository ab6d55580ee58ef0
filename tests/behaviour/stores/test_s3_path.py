"""Tables in an object store: staged, verified, published and read there, with credentials that the Steward vends."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.cli import main
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.errors import PvdmError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.store import WriteHooks, read
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from pvdm.steward.work.opened import require_adoptable
from pvdm.verify.fetch import Files
from tests.behaviour.stores.conftest import Lake
from tests.support import fault
from tests.support.audit.crafted_history import codes
from tests.support.audit.published_history import gather_evidence
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.steward.pipeline import ROWS, Row, contract
from tests.support.stores.s3_server import REGION, S3Server
from tools.proof_kit import SECOND

pytest.importorskip("pvdm_kernel")
# The warnings are PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")


class ManifestReader:
    """Reads manifests from the bucket."""

    def __init__(self, lake: Lake) -> None:
        self.files = Files(lake.line.notary.audits._files.stores)

    def read(self, _snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        return self.files.read(location, max_bytes=max_bytes)


def audit_codes(lake: Lake) -> set[str]:
    """The codes of the findings of an audit that hashes every file again."""
    line = lake.line
    line.served.stand.time.pass_by(SECOND)
    evidence = gather_evidence(line.notary, line.scene.grant(Role.AUDITOR, "sales"), "orders")
    judge = AuditTrust(line.notary.trust.current(), LOG_ORIGIN, line.scene.now)
    reader = ManifestReader(lake)
    return codes(audit(evidence, reader, judge, data_files=reader.files))


def consumer_rows(lake: Lake) -> list[Row]:
    """The rows that PyIceberg reads with only a consumer's token, sorted."""
    catalog = RestCatalog("lake", uri=f"{lake.line.url}/catalog", token=lake.line.token(Role.CONSUMER).text)
    rows = catalog.load_table(("sales", "orders")).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["day"].isoformat(), row["town"]) for row in rows)


@pytest.mark.parametrize("storage", ["open", "copied", "sealed"])
def test_rows_as_intended_are_published_and_read_by_vended_credentials(
    lake: Lake, producer: StewardClient, storage: str
) -> None:
    lake.line.protect(contract(f"storage: {storage}"))
    attempt = lake.stage_attempt(producer)
    found = lake.hand_in(producer, attempt)
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert consumer_rows(lake) == sorted(ROWS)
    assert len(lake.data_files(attempt)) == (0 if storage == "copied" else 2)
    assert audit_codes(lake) == set()


def test_an_exported_audit_reads_the_store_by_the_auditors_own_credentials(
    lake: Lake,
    producer: StewardClient,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It needs the store, but no Steward."""
    lake.line.protect(contract("storage: sealed"))
    (file, *_) = lake.data_files(lake.hand_in(producer, lake.stage_attempt(producer)))
    line = lake.line
    line.served.stand.time.pass_by(SECOND)
    monkeypatch.setattr("pvdm.cli.common.times._nanos", lambda: line.scene.now * 1_000)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as online:
        online.setenv("PVDM_URL", line.url)
        online.setenv("PVDM_TOKEN", line.token(Role.AUDITOR).text)
        assert main(["keys", "root", "fetch", "--out", "roots.json"]) == 0
        assert main(["audit", "sales.orders", "--export", "orders.audit.json"]) == 0

    def audit_bundle() -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["audit", "--bundle", "orders.audit.json", "--trust-root", "roots.json", "--rehash", "--json"])
        return code, json.loads(capsys.readouterr().out)

    s3_server.lend_to(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    code, report = audit_bundle()
    assert (code, report["rehashed"]["data_files"]) == (0, 2), report
    lake.admin.put(file, b"another", WriteHooks())
    code, report = audit_bundle()
    assert (code, report["counts"]["changed"]) == (3, 1), report


def test_rows_that_are_not_as_intended_are_never_seen_and_their_files_are_removed(
    lake: Lake, producer: StewardClient
) -> None:
    lake.line.protect(contract("storage: copied"))
    attempt = lake.stage_attempt(producer, ROWS[:3])
    found = lake.hand_in(producer, attempt)
    assert (found.state, found.classes) == (AttemptState.VERIFICATION_FAILED, (FailureClass.MISSING,))
    assert consumer_rows(lake) == []
    assert list(lake.admin.walk(parse_location(attempt.prefix))) == []


def can_read_and_write(store: S3Store, place: Location) -> tuple[bool, bool]:
    """Whether these credentials can read at the place, and whether they can write there."""
    reads = writes = True
    try:
        read(store, place, 10)
    except FileNotFoundError:
        pass
    except PermissionError:
        reads = False
    try:
        store.put(place, b"x", WriteHooks())
    except PermissionError:
        writes = False
    return reads, writes


def test_a_role_gets_credentials_for_its_own_places_and_no_others(lake: Lake, producer: StewardClient) -> None:
    open_table = S3Store(lake.role_storage(Role.PRODUCER))
    lake.line.protect()
    first, other = lake.stage_attempt(producer), lake.stage_attempt(producer)
    own = S3Store(lake.attempt_storage(producer, first))
    table = parse_location(lake.line.scene.table_state().metadata.location)
    steward = parse_location(f"{lake.bucket.root}/steward")
    uuid = lake.line.scene.table_state().row.table_uuid
    assert can_read_and_write(own, parse_location(first.prefix).child("data", "x")) == (True, True)
    assert can_read_and_write(own, parse_location(other.prefix).child("data", "x")) == (True, False)
    assert can_read_and_write(own, table.child("data", "x")) == (True, False)
    assert can_read_and_write(own, steward.child("vault", uuid, "data", "x")) == (True, False)
    assert can_read_and_write(own, steward.child("vault", uuid, "quarantine", "x")) == (False, False)
    assert can_read_and_write(own, steward.child("catalog", uuid, "x")) == (False, False)
    assert can_read_and_write(own, parse_location(f"{lake.bucket.root}/warehouse/other/x")) == (False, False)
    consumer = S3Store(lake.role_storage(Role.CONSUMER))
    assert can_read_and_write(consumer, table.child("data", "x")) == (True, False)
    assert can_read_and_write(consumer, steward.child("catalog", uuid, "x")) == (False, False)
    assert can_read_and_write(open_table, table.child("data", "y")) == (True, True)
    protected_table = S3Store(lake.role_storage(Role.PRODUCER))
    assert can_read_and_write(protected_table, table.child("data", "z")) == (True, False)


def test_credentials_without_write_access_cannot_list_staged_files(lake: Lake, producer: StewardClient) -> None:
    lake.line.protect()
    attempt = lake.stage_attempt(producer)
    table = parse_location(lake.line.scene.table_state().metadata.location)
    for role in (Role.CONSUMER, Role.AUDITOR, Role.PRODUCER):
        with pytest.raises(PermissionError):
            list(S3Store(lake.role_storage(role)).walk(table))
    own = S3Store(lake.attempt_storage(producer, attempt))
    assert list(own.walk(parse_location(attempt.prefix))) != []


@pytest.mark.parametrize("delegation", ["vended-credentials", "none"])
def test_a_producer_writes_files_for_its_own_branch_only_with_its_own_credentials(
    lake: Lake, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, delegation: str
) -> None:
    s3_server.lend_to(monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    lake.line.protect()
    url, token = f"{lake.line.url}/catalog", lake.line.token(Role.PRODUCER).text
    catalog = RestCatalog("lake", uri=url, token=token, **{"header.X-Iceberg-Access-Delegation": delegation})
    table = catalog.load_table(("sales", "orders"))
    place = parse_location(f"{table.location()}/data/own")
    with contextlib.nullcontext() if delegation == "none" else pytest.raises(OSError, match="ACCESS_DENIED"):
        with table.io.new_output(str(place)).create() as file:
            file.write(b"own")
        assert read(lake.admin, place, 10) == b"own"


def test_an_unknown_branch_is_refused_with_a_hint_about_credentials(lake: Lake, producer: StewardClient) -> None:
    lake.line.protect()
    with pytest.raises(PvdmError) as caught:
        require_adoptable(lake.line.scene.table_state().metadata, "etl")
    assert "credentials of its own" in str(caught.value.hint)


def test_an_ended_attempt_gets_no_credentials_to_write(lake: Lake, producer: StewardClient) -> None:
    lake.line.protect()
    attempt = lake.stage_attempt(producer)
    lake.hand_in(producer, attempt)
    with pytest.raises(PvdmError) as caught:
        lake.attempt_storage(producer, attempt)
    assert caught.value.reason == "attempt_ended"


def test_an_attempt_gets_no_credentials_to_write_while_it_is_verified(lake: Lake, producer: StewardClient) -> None:
    lake.line.protect(contract("storage: open"))
    attempt = lake.stage_attempt(producer)
    place = parse_location(attempt.prefix).child("data", "x")
    with producer.with_token(producer.attempt_token(attempt.attempt_id).token) as own:
        table = TableClient(own, ("sales",), "orders")
        rights: list[tuple[bool, bool]] = []

        def record_rights() -> None:
            rights.append(can_read_and_write(S3Store(table.storage()), place))

        record_rights()
        with fault.armed("verify.after_freeze", fault.Call(record_rights)):
            assert lake.hand_in(producer, attempt).state is AttemptState.COMMITTED
    assert rights == [(True, True), (True, False)]
