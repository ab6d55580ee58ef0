"""A run whose token is rotated or revoked while a job stages continues, or its error names the token, not the job."""

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

# Spark's error if the catalog answers 401, with the first line of its Java stack.
SPARK_ERROR = (
    "An error occurred while calling o87.append.\n"
    ": org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: the token was revoked. Ask an operator"
    " of the Steward why, and for a new one\n\tat org.apache.iceberg.rest.ErrorHandlers.accept(ErrorHandlers.java:212)"
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


class Producer:
    """A producer with a token in a file, which tests rotate or revoke while its job runs."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.access: Access = shop.steward._notary.access
        self.shop = shop
        self.file = folder / "job.token"
        token, self.grant = self.access.issue(Role.PRODUCER, domain="sales", name="job", lifetime_seconds=3_600)
        self._put(token.reveal())

    def rotate_token(self) -> Grant:
        """Replace the token at once, without an overlap, and write the new one to the file."""
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
def producer(shop: Shop, tmp_path: Path) -> Producer:
    return Producer(shop, tmp_path)


def test_a_run_continues_if_its_token_is_rotated_while_the_job_stages(producer: Producer) -> None:
    def job(_spark: object, _chunk: Chunk) -> pa.Table:
        producer.rotate_token()
        return table_of(ROWS)

    outcome = producer.run("rotated", job)
    assert isinstance(outcome, Committed), outcome
    assert producer.shop.visible_rows("sales.rotated") == sorted(ROWS, key=repr)


def test_a_run_whose_new_token_is_revoked_too_ends_and_names_the_token(producer: Producer) -> None:
    def job(_spark: object, _chunk: Chunk) -> pa.Table:
        producer.access.revoke(producer.rotate_token().token_id)
        return table_of(ROWS)

    with pytest.raises(NotAllowedError) as caught:
        producer.run("revoked", job)
    assert caught.value.reason == "token_revoked"
    assert "STAGING" in caught.value.message
    assert "the same call" in str(caught.value.hint)
    assert producer.shop.visible_rows("sales.revoked") == []


def test_a_catalog_that_refuses_sparks_token_is_reported_and_not_the_job(producer: Producer) -> None:
    def job(_spark: object, _chunk: Chunk) -> pa.Table:
        raise RuntimeError(SPARK_ERROR)

    outcome = producer.run("refused", job)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "catalog_token_refused"
    assert "the token was revoked" in str(outcome.error.got)
    assert "fix the job" not in str(outcome.error.hint)


def test_a_token_for_an_attempt_is_requested_again_if_the_answer_was_lost(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = Wire._exchange, list[str]()

    def exchange(wire: Wire, call: Call, *more: object) -> object:
        answer = real(wire, call, *more)  # type: ignore[arg-type]
        if call.path.endswith("/tokens") and len(lost) < 2:
            lost.append(json.loads(call.content or b"")["secret_sha256"])
            raise httpx.ReadError("connection reset")
        return answer

    monkeypatch.setattr(Wire, "_exchange", exchange)
    outcome = producer.run("unheard", lambda _spark, _chunk: table_of(ROWS))
    assert isinstance(outcome, Committed), outcome
    assert (len(lost), len(set(lost))) == (2, 1)
    derived = [each for each in producer.access.list_tokens() if each.parent_id == producer.grant.token_id]
    assert len(derived) == 1
