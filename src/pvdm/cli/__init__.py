"""The command line `pvdm`. It may import every other package, and none imports it."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False  # not from `typing`: its import would run before Ctrl-C is handled
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Without `argv`, it is the command line of this process."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        # Imports make hundreds of thousands of objects that stay. With Python's own thresholds, looking for garbage
        # among them took a tenth of the time of a short command.
        gc.set_threshold(20_000, 20, 20)
    # Imports are below this line, so that Ctrl-C during the start is handled too.
    try:
        from pvdm.cli.guard import run

        return run(words, ends_process=argv is None)
    except (Exception, KeyboardInterrupt) as error:
        from pvdm.cli.guard import fail

        return fail(error, as_json="--json" in words)
    finally:
        if argv is None:
            gc.freeze()  # the process ends, so its last look for garbage need not find any
