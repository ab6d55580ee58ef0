"""A run whose token is rotated, revoked or expires while a job stages: it goes on, or names the token, not the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack
from pvdm.client import StewardClient
from pvdm.client.wire import Call, Wire
from pvdm.errors import NotAllowedError
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.steward.access import Access
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of

# What Spark says when the catalog answers 401; its Java stack follows.
SPARK_SAYS = (
    "An error occurred while calling o87.append.\n"
    ": org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: the token was revoked. Ask an operator"
    " of the Steward why, and for a new one\n\tat org.apache.iceberg.rest.ErrorHandlers.accept(ErrorHandlers.java:212)"
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


class Desk:
    """A producer's token in a file, and what its operator does with it while the job runs."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.access: Access = shop.steward._notary.access
        self.shop = shop
        self.file = folder / "job.token"
        token, self.grant = self.access.issue(Role.PRODUCER, domain="sales", name="job", lifetime_seconds=3_600)
        self._put(token.reveal())

    def rotate(self) -> Grant:
        """At once, without an overlap."""
        token, self.grant = self.access.rotate(self.grant.token_id)
        self._put(token.reveal())
        return self.grant

    def run(self, name: str, job: object) -> Outcome:
        self.shop.make(f"sales.{name}")
        self.shop.protect(contract(f"sales.{name}"))
        client = StewardClient(self.shop.steward.url, token_file=self.file)
        with client, Coordinator(client) as coordinator:
            return coordinator.execute_workload(f"{name}-1", job, table=f"sales.{name}")  # type: ignore[arg-type]

    def _put(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)


@pytest.fixture
def desk(shop: Shop, tmp_path: Path) -> Desk:
    return Desk(shop, tmp_path)


def test_a_job_goes_on_when_its_token_is_rotated_while_it_stages(desk: Desk) -> None:
    def job(_spark: object, _chunk: Chunk) -> pa.Table:
        desk.rotate()
        return table_of(ROWS)

    outcome = desk.run("rotated", job)
    assert isinstance(outcome, Committed), outcome
    assert desk.shop.seen("sales.rotated") == sorted(ROWS, key=repr)


def test_a_job_whose_new_token_is_revoked_too_ends_and_the_token_is_named(desk: Desk) -> None:
    def job(_spark: object, _chunk: Chunk) -> pa.Table:
        desk.access.revoke(desk.rotate().token_id)
        return table_of(ROWS)

    with pytest.raises(NotAllowedError) as caught:
        desk.run("revoked", job)
    assert caught.value.reason == "token_revoked"
    assert "STAGING" in caught.value.message
    assert "the same call" in str(caught.value.hint)
    assert desk.shop.seen("sales.revoked") == []


def test_a_catalog_that_refuses_sparks_token_is_not_the_jobs_fault(desk: Desk) -> None:
    def job(_spark: object, _chunk: Chunk) -> pa.Table:
        raise RuntimeError(SPARK_SAYS)

    outcome = desk.run("refused", job)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "catalog_token_refused"
    assert "the token was revoked" in str(outcome.error.got)
    assert "fix the job" not in str(outcome.error.hint)


def test_a_token_for_an_attempt_whose_answer_was_lost_is_asked_for_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = Wire._exchange, list[str]()

    def exchange(wire: Wire, call: Call, *more: object) -> object:
        answer = real(wire, call, *more)  # type: ignore[arg-type]
        if call.path.endswith("/tokens") and len(lost) < 2:
            lost.append(json.loads(call.content or b"")["secret_sha256"])
            raise httpx.ReadError("connection reset")
        return answer

    monkeypatch.setattr(Wire, "_exchange", exchange)
    outcome = desk.run("unheard", lambda _spark, _chunk: table_of(ROWS))
    assert isinstance(outcome, Committed), outcome
    assert (len(lost), len(set(lost))) == (2, 1)
    made = [each for each in desk.access.list_tokens() if each.parent_id == desk.grant.token_id]
    assert len(made) == 1
