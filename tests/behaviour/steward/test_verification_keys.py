"""No key of a verification is in a log line, in an error or in the ledger."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import ConflictError, PvdmError
from tests.support import fault
from tests.support.verify.attempts import ROWS, Bench, bench_at

pytest.importorskip("pvdm_kernel")


def test_no_key_is_in_a_log_line_an_error_or_the_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_at(tmp_path) as bench:
        verify_and_search(bench, caplog, monkeypatch)


def verify_and_search(bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []
    notary = bench.scene.notary
    key_service = type(notary.keys)

    for name in ("row_hash_key", "commitment_key"):
        derive = getattr(key_service, name)

        def derive_and_record(self: Any, context: Any, projection: Any, derive: Any = derive) -> Any:
            key = derive(self, context, projection)
            secrets.append(key.reveal())
            return key

        monkeypatch.setattr(key_service, name, derive_and_record)
    caplog.set_level(logging.DEBUG)
    attempt, _ = bench.staged(ROWS[:90])
    errors: list[str] = []
    with fault.armed("verify.after_digests", fault.Raise(ConflictError("stopped", "stopped here"))):
        try:
            bench.verification.verify(attempt.attempt_id)
        except PvdmError as error:
            errors.append(repr(error) + str(error.to_json()))
    bench.verification.verify(attempt.attempt_id)
    assert len(secrets) == 6
    text = "\n".join([caplog.text, *errors])
    data = (bench.folder / "ledger.db").read_bytes()
    for secret in secrets:
        assert secret.hex() not in text
        assert repr(secret) not in text
        assert secret not in data
        assert secret.hex().encode() not in data
