"""The Steward removes files from quarantine after the configured days, unless break-glass may still publish them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.client import StewardClient
from pvdm.errors import Code, PvdmError
from pvdm.lake.vault import VaultKind
from pvdm.ledger.record import events, proofs
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.config.steward import RetentionConfig, load_config
from tests.support.for_each import for_each
from tests.support.steward import restore
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import REASON, ROWS, Line, line_at
from tests.support.waiting import eventually, wait_for_jobs

DAY = 86_400 * 1_000_000
DAYS = 30


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    retention = RetentionConfig(quarantine_days=DAYS)
    with line_at(tmp_path, changed=lambda config: replace(config, retention=retention)) as made:
        made.protect()
        yield made


def run(line: Line, client: StewardClient, workload_id: str, rows: int) -> str:
    """Stage the first `rows` rows as the next attempt, wait for all jobs, and return the attempt's id."""
    client.open_workload(workload_id, "sales.orders", {})
    attempt = open_attempt(client, workload_id, "all", REASON)
    line.stage(client, attempt, ROWS[:rows])
    client.staged(attempt.attempt_id)
    client.await_attempt(attempt.attempt_id, seconds=30)
    assert wait_for_jobs(line.notary.jobs, 30)
    return attempt.attempt_id


def count_quarantined(line: Line, attempt_id: str) -> int:
    """Count the attempt's files in quarantine."""
    uuid = line.scene.table_state().row.table_uuid
    return len(line.notary.vault_sweep._vault.finished(uuid, VaultKind.QUARANTINE, attempt_id))


def sweep_after(line: Line, days: int) -> int:
    """Let the days pass, and sweep as if this is the first sweep today."""
    for _ in range(days):
        line.served.stand.time.pass_by(DAY)
    line.notary.quarantine_retention._swept_at = 0.0
    return line.notary.quarantine_retention.sweep()


def test_quarantined_files_of_a_published_chunk_are_removed_after_the_configured_days(line: Line) -> None:
    with line.client() as client:
        failed = run(line, client, "run-1", 2)
        run(line, client, "run-1", 4)
        proof_id = client.attempt(failed).proof_id
    assert count_quarantined(line, failed) == 1
    assert sweep_after(line, DAYS - 1) == 0
    assert count_quarantined(line, failed) == 1
    assert sweep_after(line, 1) == 1
    assert count_quarantined(line, failed) == 0
    with line.notary.ledger.read() as unit:
        [removal] = [each for each in events.page(unit, about=failed) if each.subject == "quarantine_removals"][:1]
        assert proofs.get_envelope(unit, str(proof_id))
    assert removal.new is not None
    assert (removal.new["name"], removal.new["files"]) == ("steward", 1)
    assert sweep_after(line, 1) == 0


def test_quarantined_files_that_break_glass_may_still_publish_stay(line: Line) -> None:
    with line.client() as client:
        failed = run(line, client, "run-1", 2)
        assert sweep_after(line, 3 * DAYS) == 0
        assert count_quarantined(line, failed) == 1
    with line.client(Role.OPERATOR) as operator:
        operator.abandon_workload("run-1", "given up")
    assert sweep_after(line, 1) == 1
    assert count_quarantined(line, failed) == 0


def test_a_second_sweep_on_the_same_day_removes_nothing(line: Line) -> None:
    with line.client() as client:
        run(line, client, "run-1", 2)
        assert client.attempt(run(line, client, "run-1", 4)).state is AttemptState.COMMITTED
    sweep_after(line, DAYS - 1)
    line.served.stand.time.pass_by(2 * DAY)
    assert line.notary.quarantine_retention.sweep() == 0
    assert sweep_after(line, 0) == 1


def test_tidying_removes_quarantined_files_after_the_configured_days(line: Line) -> None:
    with line.client() as client:
        failed = run(line, client, "run-1", 2)
        run(line, client, "run-1", 4)
    for _ in range(DAYS + 1):
        line.served.stand.time.pass_by(DAY)
    line.notary.tidy()
    assert count_quarantined(line, failed) == 0


def test_files_of_an_attempt_that_failed_after_the_backup_are_removed_after_a_restore(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with line_at(tmp_path, changed=lambda config: replace(config, archive=archive)) as line:
        line.protect()
        recovery = restore.Scene(line.served.stand)
        with line.client() as client:
            client.open_workload("run-1", "sales.orders", {})
            attempt = open_attempt(client, "run-1", "all", REASON)
            recovery.backup.touch(mode=0o600)
            with contextlib.closing(sqlite3.connect(recovery.ledger)) as database:
                database.execute("VACUUM INTO ?", [str(recovery.backup)])
            line.stage(client, attempt, ROWS[:2])
            client.staged(attempt.attempt_id)
            client.await_attempt(attempt.attempt_id, seconds=30)
            assert wait_for_jobs(line.notary.jobs, 30)
        line.served.server.stop()
        recovery.lose_the_database()
        recovery.restore()
        recovery.start().start_work()
        assert eventually(lambda: bool(line.notary.quarantine.list_page(STEWARD_GRANT)))
        (listed,) = line.notary.quarantine.list_page(STEWARD_GRANT)
        assert (listed.attempt_id, listed.workload_id, listed.files) == (attempt.attempt_id, "run-1", 1)
        days = line.notary.config.retention.quarantine_days
        assert (sweep_after(line, days - 1), count_quarantined(line, attempt.attempt_id)) == (0, 1)
        assert (sweep_after(line, 1), count_quarantined(line, attempt.attempt_id)) == (1, 0)
        assert line.notary.quarantine.list_page(STEWARD_GRANT) == []


CONFIG = """
notary = "n"
origin = "o"
ledger = "sqlite:///ledger.db"
outside = "outside"
[keys]
home = "file"
path = "keys"
"""


def test_the_retention_section_is_read_and_without_it_the_defaults_apply(tmp_path: Path) -> None:
    path = tmp_path / "steward.toml"
    path.write_text(CONFIG)
    assert load_config(path).retention == RetentionConfig(90, 7)
    path.write_text(f"{CONFIG}[retention]\nquarantine_days = 7\nmetadata_days = 30\n")
    assert load_config(path).retention == RetentionConfig(7, 30)


@for_each("text", ("quarantine_days = 6", "metadata_days = 0", "metadata_days = 366", "vault_days = 9"))
def test_a_retention_out_of_range_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steward.toml"
    path.write_text(f"{CONFIG}[retention]\n{text}\n")
    with pytest.raises(PvdmError) as caught:
        load_config(path)
    assert caught.value.code == Code.CONFIG_INVALID
