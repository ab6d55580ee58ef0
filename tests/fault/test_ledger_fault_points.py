"""A crash at either side of a commit: before it nothing has happened, after it everything has."""

from __future__ import annotations

import os

import pytest

from pvdm.ledger import Ledger
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces
from tests.support import fault
from tests.support.ledger.databases import NOW
from tests.support.ledger.rows import hex32


@pytest.mark.parametrize(("point", "kept"), [("ledger.before_commit", False), ("ledger.after_commit", True)])
def test_a_crash_at_a_commit_leaves_all_or_nothing(ledger: Ledger, point: str, kept: bool) -> None:
    child = os.fork()
    if child == 0:
        fault.arm(point, fault.Exit())
        try:
            with ledger.write(at_micros=NOW) as unit:
                nonces.reserve(unit, hex32(1), purpose=NoncePurpose.BREAK_GLASS, holder="x")
                unit.commit()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == fault.EXIT_CODE
    with ledger.read() as unit:
        assert (nonces.find(unit, hex32(1)) is not None) == kept
