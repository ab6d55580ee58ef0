"""The kernel's settings of the C library's allocator: freed memory is kept for the next batch."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("kernel")

# Prints how many separate blocks the C library takes from the system for an allocation of 16 MiB.
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


def count_separate_blocks(*arguments: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library has no mallinfo2")
def test_the_kernel_lets_large_blocks_be_reused() -> None:
    assert count_separate_blocks() == 1
    assert count_separate_blocks("kernel") == 0
