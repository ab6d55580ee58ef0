"""`pvdm steward restore` in words: what it brought back, what it could not, and the next step for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pvdm.steward.restore import restore
from pvdm.steward.restore.lineage import LostPublication
from pvdm.steward.restore.refill_statements import RemadeMigration, ReprotectedObject, UnprotectedTable
from pvdm.steward.restore.restore import AdvancedTable, BlockedClaim, RestoreResult, UnreceiptedChunk
from pvdm.steward.restore.table_report import BehindTable, UnreadableTable, UnregisteredTable
from tests.behaviour.cli.support import Run
from tests.behaviour.cli.test_steward import BY, CONFIGURED, steward_folder

__all__ = ["steward_folder"]

LOST = LostPublication(
    "sales.orders",
    "4f0c2d5e-1111-4222-8333-9a8b7c6d5e4f",
    "1206533119840177310",
    "orders-15",
    ("all",),
    "ab" * 32,
    "file:///srv/lake/catalog/a.metadata.json",
    "file_missing",
    "file:///srv/lake/warehouse/b.parquet: a file is not there",
    "file:///srv/lake/warehouse/b.parquet",
)
DONE = RestoreResult(
    backup_size=7,
    outside_size=19,
    refilled=12,
    lost=0,
    missing=0,
    abandoned=("orders-16",),
    published=("orders-12",),
    settled=(),
    spent=("orders-14",),
    blocked=(BlockedClaim("sales.returns", "cd" * 32, "returns-14"),),
    protected=(
        ReprotectedObject("table", "sales.prices", "8f0c", "12" * 32),
        ReprotectedObject("namespace", "curated", "bf0c", "34" * 32),
    ),
    remade=(RemadeMigration("sales.orders", LOST.table_uuid, "56" * 32),),
    unmigrated=("sales.prices",),
    advanced=(
        AdvancedTable("sales.orders", LOST.table_uuid, "8826827733202108831", created=False),
        AdvancedTable("sales.later", "5f0c2d5e-1111-4222-8333-9a8b7c6d5e4f", None, created=True),
    ),
    unreceipted=(UnreceiptedChunk("sales.orders", "77", "orders-13", "all", "ef" * 32),),
    lost_publications=(LOST,),
    behind=(BehindTable("raw.orders", "af0c", False), BehindTable("raw.once", "cf0c", True)),
    unreadable=(UnreadableTable("raw.old", "6f0c", "file:///srv/lake/o.json", "metadata_file_missing", "it is gone"),),
    unregistered=(
        UnregisteredTable("7f0c", "file:///srv/lake/catalog/7f0c/n.metadata.json", None),
        UnregisteredTable("8f0c", "file:///srv/lake/catalog/8f0c/p.metadata.json", "sales.prices"),
    ),
    unprotected=(UnprotectedTable("sales.gone", "9f0c", 1_794_650_400_000_000),),
    nonces=1,
    tokens=3,
    new_epoch=2,
    log_size=22,
)


def run_restore(pvdm: Run, monkeypatch: pytest.MonkeyPatch, done: RestoreResult) -> str:
    monkeypatch.setattr(restore, "restore", lambda *_, **__: done)
    ran = pvdm("steward", "restore", "--yes", *CONFIGURED, *BY)
    assert ran.code == 0, ran.err
    return " ".join(ran.out.split())


@pytest.mark.usefixtures("steward_folder")
def test_the_text_names_tables_snapshots_and_next_steps(pvdm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = run_restore(pvdm, monkeypatch, DONE)
    for part in (
        "advanced sales.orders: main shows snapshot 8826827733202108831",
        "advanced sales.later, which the backup lacked: main shows snapshot none",
        "*** LOST *** sales.orders, snapshot 1206533119840177310 of workload orders-15",
        "file_missing: file:///srv/lake/warehouse/b.parquet: a file is not there",
        "metadata file file:///srv/lake/catalog/a.metadata.json",
        "unreceipted sales.orders, snapshot 77, chunk all of workload orders-13: main shows it without a receipt",
        "*** UNREADABLE *** raw.old: put its metadata file back",
        "metadata_file_missing: it is gone (file:///srv/lake/o.json)",
        "behind raw.orders: not protected, and newer metadata files exist than the one that it shows write its rows"
        " again; or drop it without a purge, and register the right metadata file",
        "behind raw.once: not protected, and newer metadata files exist than the one that it shows never drop it:"
        " it was protected once, and cannot be registered again; write its rows again, or protect it and publish them",
        "unregistered a table whose name is in no metadata file, UUID 7f0c: the backup lacks it",
        "register it if it is wanted: file:///srv/lake/catalog/7f0c/n.metadata.json",
        "unregistered sales.prices, UUID 8f0c: the backup lacks it",
        "unprotected sales.gone: protection ended at 2026-11-14 10:00:00Z; drop it if it was dropped",
        "blocked sales.returns: it is unknown which rows workload returns-14 claimed",
        f"pvdm claims release {'cd' * 32}",
        "abandoned 1 open workload: orders-16",
        "published workload orders-12, which the backup has open, at least in part: its id is used up",
        "chunks, and what to do for missing ones: pvdm status --workload-id orders-12",
        "spent workload orders-14, not in the backup, published at least in part: its id is used up",
        "chunks, and what to do for missing ones: pvdm status --workload-id orders-14",
        "unmigrated sales.prices: the change is lost; propose it again",
        f"protected table sales.prices: again under contract {'12' * 32}, as the log says",
        f"protected namespace curated: again under contract {'34' * 32}, as the log says",
        f"remade sales.orders: migration {'56' * 32} is in force again",
        "hint: publish what is lost again",
        "hint: issue new tokens",
    ):
        assert part in words


@pytest.mark.usefixtures("steward_folder")
def test_a_second_restore_says_that_nothing_was_changed(pvdm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = run_restore(pvdm, monkeypatch, replace(DONE, repeated=True))
    assert "nothing to restore" in words
    assert "--again" in words
    assert "token issue" not in words


@pytest.mark.usefixtures("steward_folder")
def test_without_yes_and_without_a_terminal_the_error_shows_the_question(pvdm: Run) -> None:
    ran = pvdm("steward", "restore", *CONFIGURED, *BY)
    assert ran.code == 2
    assert '"restore this Steward?" needs a terminal; read what the command does, then add --yes' in ran.err
