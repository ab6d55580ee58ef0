"""A ledger that is missing or misnamed is not created while the outside checkpoint exists or cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import PvdmError, UnavailableError
from pvdm.ledger import open_ledger
from pvdm.ledger.migrations import is_migrated
from pvdm.steward.config.steward import StewardConfig
from tests.support.ledger.databases import Postgresql
from tests.support.steward.notary import Time, config_at, created, opened, stand_at


def refusal_of(config: StewardConfig, *, creating: bool) -> tuple[str | None, str | None]:
    """Reason and message of the error with which the Steward is not opened, or not created."""
    with pytest.raises(PvdmError) as caught:
        created(config, Time(), own_keys=True).close() if creating else opened(config, Time()).close()
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize("creating", [False, True], ids=["open", "create"])
def test_an_empty_postgresql_database_gets_no_ledger_beside_a_checkpoint(
    tmp_path: Path, postgresql: Postgresql, creating: bool
) -> None:
    with stand_at(tmp_path, ledger_url=postgresql.create_database("template0")):
        pass
    other = postgresql.create_database("template0")
    reason, message = refusal_of(config_at(tmp_path, ledger_url=other), creating=creating)
    assert (reason, message) == ("ledger_lost", "this Steward exists, but its ledger is missing")
    ledger = open_ledger(other)
    assert not is_migrated(ledger)
    ledger.close()


@pytest.mark.parametrize("creating", [False, True], ids=["open", "create"])
def test_no_ledger_is_created_while_the_outside_folder_is_not_mounted(tmp_path: Path, creating: bool) -> None:
    with stand_at(tmp_path) as stand:
        config = stand.config
    outside = Path(config.outside_path)
    outside.parent.rename(tmp_path / "away")
    misspelled = replace(config, ledger_url=f"sqlite:///{tmp_path}/leger.db")
    reason, message = refusal_of(misspelled, creating=creating)
    assert reason == "outside_checkpoint_unavailable"
    assert str(outside.parent) in str(message)
    assert not (tmp_path / "leger.db").exists()


def test_a_ledger_whose_path_cannot_be_looked_up_is_not_reported_as_lost(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        config = stand.config
    (tmp_path / "plain").write_text("a file, not a folder")
    with pytest.raises(UnavailableError) as caught:
        opened(replace(config, ledger_url=f"sqlite:///{tmp_path}/plain/ledger.db"), Time())
    assert caught.value.reason == "ledger_unreachable"
