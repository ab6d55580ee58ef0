"""What Spark's Java side says went wrong, in one line: the deepest cause, not the call that ran into it."""

from __future__ import annotations

import re
from typing import Final

# What py4j begins with; it names the call, and nothing of what went wrong.
CALLING: Final = "An error occurred while calling "
_CAUSE: Final = "Caused by: "
_PACKAGE: Final = re.compile(r"(?:[a-z_][\w$]*\.)+(?=[A-Z])")
_MAX_CHARACTERS: Final = 400


def cause_of(error: BaseException) -> str:
    """The last `Caused by` of a stack; else the exception itself; else the first line of what is said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    others = [line.removeprefix(":").strip() for line in lines if not line.startswith(CALLING)]
    found = (causes[-1:] or others or [type(error).__name__])[0]
    return _PACKAGE.sub("", found, count=1)[:_MAX_CHARACTERS]
