"""Keys of a verification: they are in nothing that is kept, logged or told."""

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
        _search(bench, caplog, monkeypatch)


def _search(bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []
    notary = bench.scene.notary
    real = type(notary.keys)

    for name in ("row_hash_key", "commitment_key"):
        made = getattr(real, name)

        def remembered(self: Any, context: Any, projection: Any, made: Any = made) -> Any:
            key = made(self, context, projection)
            secrets.append(key.reveal())
            return key

        monkeypatch.setattr(real, name, remembered)
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
    told = "\n".join([caplog.text, *errors])
    data = (bench.folder / "ledger.db").read_bytes()
    for secret in secrets:
        assert secret.hex() not in told
        assert repr(secret) not in told
        assert secret not in data
        assert secret.hex().encode() not in data
