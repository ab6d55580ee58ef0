"""Two sections of `steward.toml`: `[spark]` and `[[catalog.upstreams]]`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from pvdm.errors import Code, PvdmError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.upstream import UPSTREAM_TIMEOUT_MAX_SECONDS, GlueSettings
from pvdm.verify.spark.settings import SparkSettings, is_connect

_SPARK_DEFAULTS: Final = SparkSettings("local[*]", Path())  # only its default values are used
_SET_BY_STEWARD: Final = frozenset({"spark.master", "spark.archives", "spark.remote"})
_MEMORY_SIZE: Final = re.compile(r"(?i)[1-9][0-9]{0,9}[kmgt]")
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|credential")

UPSTREAMS_MAX: Final = 64
UPSTREAM_PLACES_MAX: Final = 64
IDENTITY: Final = r"[a-z0-9][a-z0-9._@/:-]{0,127}"
"""The pattern for names of notaries, logs, catalogs and upstreams."""


class StrictSection(BaseModel):
    """A section of `steward.toml`: unknown fields are refused, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SparkSection(StrictSection):
    """The section `[spark]` as written, for example with `memory = "1g"`. It sets up the Steward's Spark application.

    Spark reads chunks of at least `bytes_least` bytes or `files_least` files. Threads of the Steward read smaller ones.
    """

    master: Annotated[str, Field(min_length=1, max_length=1_024)]
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = None
    memory: Annotated[str, Field(min_length=1, max_length=16)] = _SPARK_DEFAULTS.memory
    python: str | None = None  # the workers' interpreter
    jars: list[str] = []
    bytes_least: Annotated[int, Field(ge=0)] = _SPARK_DEFAULTS.bytes_least
    files_least: Annotated[int, Field(ge=1, le=10_000_000)] = _SPARK_DEFAULTS.files_least
    scratch: str = "spark"  # the folder of the driver's log and temporary files
    worker_token: str | None = None  # a file on each worker's host
    address: str | None = None  # where workers reach the Steward
    authorities: str | None = None  # a file with the certificates that workers trust
    job_seconds: Annotated[int, Field(ge=1, le=604_800)] = _SPARK_DEFAULTS.job_seconds
    idle_seconds: Annotated[int, Field(ge=1, le=604_800)] = _SPARK_DEFAULTS.idle_seconds  # until the driver ends
    settings: dict[str, str] = {}


def make_spark_settings(section: SparkSection | None, folder: Path) -> SparkSettings | None:
    """Check the section and make its paths absolute; `folder` has `steward.toml`. Returns None without a section."""
    if section is None:
        return None
    _require_supported(section)
    paths = {
        "scratch": folder / section.scratch,
        "worker_token": None if section.worker_token is None else folder / section.worker_token,
        "authorities": None if section.authorities is None else folder / section.authorities,
    }
    settings = SparkSettings(**{**section.model_dump(), **paths, "jars": tuple(section.jars)})
    if not settings.is_local and settings.worker_token is None:
        expected = "worker_token, a file on each of these hosts"
        raise _spark_error("workers on other hosts need a credential", expected, "none")
    return settings


def _require_supported(section: SparkSection) -> None:
    if is_connect(section.master) and section.cores is None:
        raise _spark_error("a Spark Connect server does not say how many cores it has", "cores", "none")
    if not _MEMORY_SIZE.fullmatch(section.memory):
        # Without this check Java would refuse it only when Spark starts, at the first large chunk.
        raise _spark_error("memory cannot be accepted", "a number with k, m, g or t, such as 1g", section.memory)
    for name in section.settings:
        if name in _SET_BY_STEWARD or not name.startswith("spark."):
            expected = "settings of Spark that have no field in [spark]"
            raise _spark_error("a setting cannot be accepted", expected, name)
        if _SECRET_NAME.search(name):
            raise _spark_error("a secret does not belong into Spark's settings", "settings without secrets", name)


def _spark_error(what: str, expected: str, got: str) -> PvdmError:
    shown = ascii(got[:80])[1:-1]  # without the quotes that `ascii` adds
    return Code.CONFIG_INVALID(f"[spark]: {what}", expected=expected, got=shown)


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """An upstream catalog. Its namespaces below `upstream_root` appear in the Steward's catalog below `namespace`.

    Its tables must lie below one of `places`. Without `places` they may lie wherever no other table and no file of the
    Steward lies.
    """

    name: str
    namespace: tuple[str, ...]
    upstream_root: tuple[str, ...]  # the field `there` of steward.toml
    settings: RestUpstreamConfig | GlueSettings
    places: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class RestUpstreamConfig:
    """A REST catalog; the Steward's token or credential for it is in a separate file."""

    uri: str
    warehouse: str | None = None
    token_file: Path | None = None
    credential_file: Path | None = None
    timeout_seconds: int = 30


_Levels: TypeAlias = list[Annotated[str, Field(min_length=1, max_length=255)]]


class _Upstream(StrictSection):
    name: Annotated[str, Field(pattern=f"^{IDENTITY}$")]
    namespace: Annotated[_Levels, Field(min_length=1)]
    there: _Levels = []
    places: Annotated[list[str], Field(max_length=UPSTREAM_PLACES_MAX)] = []
    timeout_seconds: Annotated[int, Field(ge=1, le=UPSTREAM_TIMEOUT_MAX_SECONDS)] = 30


class _RestUpstream(_Upstream):
    kind: Literal["rest"]
    uri: Annotated[str, Field(min_length=1, max_length=4_096)]
    warehouse: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    token_file: str | None = None
    credential_file: str | None = None


class _GlueUpstream(_Upstream):
    kind: Literal["glue"]
    region: Annotated[str, Field(min_length=1, max_length=64)]
    endpoint: str | None = None
    catalog_id: str | None = None


UpstreamSection: TypeAlias = Annotated[_RestUpstream | _GlueUpstream, Field(discriminator="kind")]


def make_upstream_configs(given: Sequence[UpstreamSection], folder: Path, *, vends: bool) -> tuple[UpstreamConfig, ...]:
    """The checked upstreams of the `steward.toml` in `folder`. `vends`: the Steward gives out store credentials."""
    upstreams = tuple(_make_upstream_config(each, folder) for each in given)
    _require_disjoint(upstreams)
    # With vended credentials and without `places`, the upstream would decide where producers may write.
    without_places = [each.name for each in upstreams if vends and not each.places]
    if without_places:
        raise Code.CONFIG_INVALID(
            f"credentials are vended, so the upstream catalog {without_places[0]} needs places for its tables",
            expected='places = ["s3://bucket/folder"] in its [[catalog.upstreams]]',
            got="none",
        )
    return upstreams


def _make_upstream_config(given: UpstreamSection, folder: Path) -> UpstreamConfig:
    settings: RestUpstreamConfig | GlueSettings
    match given:
        case _RestUpstream():
            names = (given.token_file, given.credential_file)
            token, credential = (None if name is None else folder / name for name in names)
            settings = RestUpstreamConfig(given.uri, given.warehouse, token, credential, given.timeout_seconds)
        case _GlueUpstream():
            settings = GlueSettings(given.region, given.endpoint, given.catalog_id, given.timeout_seconds)
    places = tuple(parse_location(each) for each in given.places)
    return UpstreamConfig(given.name, tuple(given.namespace), tuple(given.there), settings, places)


def _require_disjoint(upstreams: tuple[UpstreamConfig, ...]) -> None:
    """Refuse upstreams that share a name or overlap in their namespaces."""
    for first, second in itertools.combinations(upstreams, 2):
        depth = min(len(first.namespace), len(second.namespace))
        overlaps = first.namespace[:depth] == second.namespace[:depth]  # they are equal, or one contains the other
        if first.name == second.name or overlaps:
            message, got = "two upstream catalogs would be served in one place", f"{first.name} and {second.name}"
            expected = "different names, and namespaces that do not overlap"
            raise Code.CONFIG_INVALID(message, expected=expected, got=got)
