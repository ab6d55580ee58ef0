"""How far two clocks may be apart: one tolerance for every time that was written or signed elsewhere."""

from __future__ import annotations

from typing import Final

CLOCK_SKEW_MAX_SECONDS: Final = 60
