"""The command line `pvdm`. May call every room below it; no other room calls this one."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    # Nothing is imported before this line, so that an interruption while the program starts is met here too.
    try:
        from pvdm.cli.guard import run

        return run(words)
    except (Exception, KeyboardInterrupt) as error:
        from pvdm.cli.guard import fail

        return fail(error, as_json="--json" in words)
