"""How the Steward's own Spark application is started, and which chunks are large enough for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TASKS_A_CORE_MAX: Final = 4
TASK_TRIES_MAX: Final = 4
DRIVER_START_SECONDS: Final = 300
_LOCAL: Final = re.compile(r"local(\[.*\])?")


def is_connect(master: str) -> bool:
    """Whether the address is a Spark Connect server's."""
    return master.startswith("sc://")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The application; a chunk goes there from so many bytes, or so many files, on both sides together.

    `worker_token` is a file that lies on every worker's host, put there by an operator; where all workers are on this
    host the Steward makes one itself. `address` is how workers reach the Steward, `authorities` the certificates they
    believe it by.
    """

    master: str
    scratch: Path
    cores: int | None = None
    memory: str = "1g"
    python: str | None = None
    jars: tuple[str, ...] = ()
    bytes_least: int = 4_294_967_296
    files_least: int = 1_000
    worker_token: Path | None = None
    address: str | None = None
    authorities: Path | None = None
    job_seconds: int = 3_600
    idle_seconds: int = 600
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether all workers are processes of this host, started by the application itself."""
        return _LOCAL.fullmatch(self.master) is not None
