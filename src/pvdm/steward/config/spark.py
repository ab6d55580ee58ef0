"""`[spark]` of `steward.toml`: the Steward's own Spark application, for chunks that are too large for threads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from pvdm.errors import Code, InputError
from pvdm.verify.spark.settings import SparkSettings, is_connect

_DEFAULT: Final = SparkSettings("local[*]", Path())
_OWN: Final = frozenset({"spark.master", "spark.archives", "spark.remote"})
_MEMORY: Final = re.compile(r"(?i)[1-9][0-9]{0,9}[kmgt]")
_SECRET: Final = re.compile(r"(?i)secret|password|token|credential")


class SparkTable(BaseModel):
    """The section as written; times and sizes are plain numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    master: Annotated[str, Field(min_length=1, max_length=1_024)]
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = None
    memory: Annotated[str, Field(min_length=1, max_length=16)] = _DEFAULT.memory
    python: str | None = None
    jars: list[str] = []
    bytes_least: Annotated[int, Field(ge=0)] = _DEFAULT.bytes_least
    files_least: Annotated[int, Field(ge=1, le=10_000_000)] = _DEFAULT.files_least
    scratch: str = "spark"
    worker_token: str | None = None
    address: str | None = None
    authorities: str | None = None
    job_seconds: Annotated[int, Field(ge=1, le=604_800)] = _DEFAULT.job_seconds
    idle_seconds: Annotated[int, Field(ge=1, le=604_800)] = _DEFAULT.idle_seconds
    settings: dict[str, str] = {}


def spark_settings(given: SparkTable | None, folder: Path) -> SparkSettings | None:
    """The Spark settings of the section; None without it."""
    if given is None:
        return None
    _require_supported(given)
    made = SparkSettings(
        master=given.master,
        scratch=folder / given.scratch,
        cores=given.cores,
        memory=given.memory,
        python=given.python,
        jars=tuple(given.jars),
        bytes_least=given.bytes_least,
        files_least=given.files_least,
        worker_token=None if given.worker_token is None else folder / given.worker_token,
        address=given.address,
        authorities=None if given.authorities is None else folder / given.authorities,
        job_seconds=given.job_seconds,
        idle_seconds=given.idle_seconds,
        settings=dict(given.settings),
    )
    if not made.is_local and made.worker_token is None:
        raise _invalid(
            "workers on other hosts need a credential", "worker_token, a file that lies on each of them", "none"
        )
    return made


def _require_supported(given: SparkTable) -> None:
    if is_connect(given.master) and given.cores is None:
        raise _invalid("a Spark Connect server does not say how many cores it has", "cores", "none")
    if not _MEMORY.fullmatch(given.memory):
        # Else Java would refuse it with the first large chunk.
        raise _invalid("memory cannot be accepted", "a number with k, m, g or t, such as 1g", given.memory)
    for name in given.settings:
        if name in _OWN or not name.startswith("spark."):
            raise _invalid("a setting cannot be accepted", "settings of Spark that have no field of their own", name)
        if _SECRET.search(name):
            raise _invalid("a secret does not belong into Spark's settings", "none that is secret", name)


def _invalid(what: str, expected: str, got: str) -> InputError:
    return InputError(Code.CONFIG_INVALID, f"[spark]: {what}", expected=expected, got=ascii(got[:80])[1:-1])
