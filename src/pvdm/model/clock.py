"""How far two clocks may be apart: one tolerance for every time that was written or signed elsewhere.

And how a time is shown to people.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

CLOCK_SKEW_MAX_SECONDS: Final = 60
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


def shown_time(micros: int) -> str:
    """A time as people read it; a fraction of a second where there is one."""
    return (_START + timedelta(microseconds=micros)).isoformat().removesuffix("+00:00") + "Z"
