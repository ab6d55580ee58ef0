"""What the kernel tells the C library of memory: blocks that are freed are there for the next batch."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("kernel")

# Blocks that are taken from the system one by one, before and after 16 MiB more are asked for.
PROGRAM = """
import ctypes
import sys

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks")] + [
        ("rest", ctypes.c_size_t * 6)
    ]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
library.malloc.restype = ctypes.c_void_p
if "kernel" in sys.argv:
    import pvdm_kernel
before = library.mallinfo2().hblks
block = library.malloc(ctypes.c_size_t(1 << 24))
print(library.mallinfo2().hblks - before)
"""


def blocks_of_their_own(*arguments: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not tell")
def test_memory_for_batches_is_not_taken_from_the_system_each_time() -> None:
    assert blocks_of_their_own() == 1
    assert blocks_of_their_own("kernel") == 0
