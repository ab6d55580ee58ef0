"""The Steward's own Spark application on tables in an object store: workers and Spark's reader, by vended sessions."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.api.work import AttemptView
from pvdm.lake.stores.s3_client import SECRET_ACCESS_KEY, SESSION_TOKEN
from pvdm.ledger.record import proofs
from pvdm.model.statements.core import ExtractionPath
from pvdm.model.statements.proof import Proof, Storage
from pvdm.model.states import AttemptState
from pvdm.steward.config.steward import StewardConfig
from pvdm.trust.statement import read_unchecked
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.settings import SparkSettings
from tests.support.ledger.databases import memory_folder
from tests.support.services import require
from tests.support.spark.traces import pages_and_processes, traces_in, verbose_settings
from tests.support.steward.pipeline import ROWS, Line, contract, line_at
from tests.support.steward.secret_search import traces
from tests.support.stores.s3_server import S3Server, s3_server

pytest.importorskip("pvdm_kernel")
pytestmark = [
    # `make test` has the same workers and readers without an object store on Spark (test_verify_on_spark.py), and with
    # one in this process (tests/behaviour/stores/test_spark_on_s3.py).
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg"),
]
__all__ = ["s3_server"]
SECONDS = 300.0


@dataclass(slots=True)
class Run:
    """A published attempt, and every session that was vended on the way."""

    line: Line
    folder: Path
    attempt: AttemptView
    vended: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def run(s3_server: S3Server) -> Iterator[Run]:
    require(importlib.util.find_spec("pandas"), "pandas is not installed, without which Spark hands no batches over")
    bucket = s3_server.bucket()
    vended: list[dict[str, str]] = []
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        settings = SparkSettings("local[2]", folder / "spark", bytes_least=0, settings=verbose_settings(folder))

        def changed(config: StewardConfig) -> StewardConfig:
            return replace(bucket.config()(config), spark=settings)

        vend = StoreAccess.vend

        def vend_and_record(self: StoreAccess, *given: Any) -> dict[str, str] | None:
            found = vend(self, *given)
            vended.extend([] if found is None else [found])
            return found

        patch.setattr(StoreAccess, "vend", vend_and_record)
        with line_at(folder, changed=changed) as line, line.client() as client:
            line.protect(contract("storage: sealed", "extraction: spark"))
            _, attempt = line.attempt(client, "run-1")
            line.stage(client, attempt, ROWS)
            client.staged(attempt.attempt_id)
            found = client.await_attempt(attempt.attempt_id, seconds=SECONDS)
            yield Run(line, folder, found, vended)


def test_a_sealed_attempt_is_read_by_sparks_own_reader_and_published(run: Run) -> None:
    log = (run.folder / "spark" / "driver.log").read_text()[-4_000:]
    assert run.attempt.state is AttemptState.COMMITTED, log
    with run.line.notary.ledger.read() as unit:
        (record,) = proofs.list_by_attempt(unit, run.attempt.attempt_id)
        proof = read_unchecked(proofs.get_envelope(unit, record.proof_id), Proof)
    assert proof.notary.storage is Storage.SEALED
    assert proof.core.method.extraction is ExtractionPath.SPARK
    assert proof.core.method.extraction_version.startswith("spark-4.")
    assert (proof.core.rows.intent, proof.core.rows.staged) == (len(ROWS), len(ROWS))


def test_no_credential_of_the_store_is_left_where_spark_shows_or_keeps_things(run: Run) -> None:
    desk = run.line.notary.spark
    assert desk is not None
    assert len(run.vended) == 3, "workers, and Spark's reader on either side; a job that is tried again asks again"
    shown = pages_and_processes(desk.application)
    own = run.line.notary.config.s3
    assert own is not None
    assert own.credentials is not None
    secrets = [own.credentials.secret_access_key.reveal()]
    for each in run.vended:
        secrets += [each[SECRET_ACCESS_KEY].encode(), each[SESSION_TOKEN].encode()]
    for secret in secrets:
        assert traces_in(secret, run.folder / "spark") == []
        assert traces_in(secret, run.folder / "events") == []
        assert [place for place, text in shown.items() if traces(secret, text)] == []
    assert any(b"store.credentials" in text for text in shown.values()), "what is searched tells where the file was"
