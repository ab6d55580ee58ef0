"""`[[catalog.upstreams]]` of `steward.toml`: existing catalogs that are served below namespaces of this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from pvdm.errors import Code
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.upstream import UPSTREAM_TIMEOUT_MAX_SECONDS

UPSTREAMS_MAX: Final = 64
UPSTREAM_PLACES_MAX: Final = 64
IDENTITY: Final = r"[a-z0-9][a-z0-9._@/:-]{0,127}"
"""The pattern of names of notaries, logs, catalogs and upstreams."""

_STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True)


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """An upstream catalog: its namespaces below `there` are served below `namespace`.

    Its tables must lie below one of `places`; without places, anywhere outside of the Steward's own folders.
    """

    name: str
    namespace: tuple[str, ...]
    there: tuple[str, ...]
    settings: RestUpstreamConfig | GlueUpstreamConfig
    places: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class RestUpstreamConfig:
    """A REST catalog; the Steward's credential for it is in a separate file."""

    uri: str
    warehouse: str | None = None
    token_file: Path | None = None
    credential_file: Path | None = None
    timeout_seconds: int = 30


@dataclass(frozen=True, slots=True)
class GlueUpstreamConfig:
    """AWS Glue; credentials come from AWS's default chain."""

    region: str
    endpoint: str | None = None
    catalog_id: str | None = None
    timeout_seconds: int = 30


_Levels: TypeAlias = list[Annotated[str, Field(min_length=1, max_length=255)]]
_Places: TypeAlias = Annotated[list[str], Field(max_length=UPSTREAM_PLACES_MAX)]
_Namespace: TypeAlias = Annotated[_Levels, Field(min_length=1)]
_Name: TypeAlias = Annotated[str, Field(pattern=f"^{IDENTITY}$")]


class _Upstream(BaseModel):
    model_config = _STRICT

    name: _Name
    namespace: _Namespace
    there: _Levels = []
    places: _Places = []
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


UpstreamTable: TypeAlias = Annotated[_RestUpstream | _GlueUpstream, Field(discriminator="kind")]


def upstream_configs(given: Sequence[UpstreamTable], folder: Path, *, vends: bool) -> tuple[UpstreamConfig, ...]:
    """The upstreams of the file; file names are relative to its folder. `vends`: the Steward vends credentials."""
    found = tuple(_upstream(each, folder) for each in given)
    _require_apart(found)
    for each in found if vends else ():
        _require_places(each)
    return found


def _upstream(given: UpstreamTable, folder: Path) -> UpstreamConfig:
    settings: RestUpstreamConfig | GlueUpstreamConfig
    match given:
        case _RestUpstream():
            settings = RestUpstreamConfig(
                given.uri,
                given.warehouse,
                None if given.token_file is None else folder / given.token_file,
                None if given.credential_file is None else folder / given.credential_file,
                given.timeout_seconds,
            )
        case _GlueUpstream():
            settings = GlueUpstreamConfig(given.region, given.endpoint, given.catalog_id, given.timeout_seconds)
    places = tuple(parse_location(each) for each in given.places)
    return UpstreamConfig(given.name, tuple(given.namespace), tuple(given.there), settings, places)


def _require_places(upstream: UpstreamConfig) -> None:
    """Require places where credentials are vended: else an upstream would choose where producers may write."""
    if not upstream.places:
        raise Code.CONFIG_INVALID(
            f"where tables of the upstream catalog {upstream.name} may lie is not said, and credentials are vended",
            expected='places = ["s3://bucket/folder"] in its [[catalog.upstreams]]',
            got="none",
        )


def _require_apart(upstreams: tuple[UpstreamConfig, ...]) -> None:
    """Refuse upstreams that share a name or overlap in their namespaces."""
    for at, one in enumerate(upstreams):
        for other in upstreams[:at]:
            shared = min(len(one.namespace), len(other.namespace))
            if one.name == other.name or one.namespace[:shared] == other.namespace[:shared]:
                raise Code.CONFIG_INVALID(
                    "two upstream catalogs would be served in one place",
                    expected="names and namespaces of their own",
                    got=f"{other.name} and {one.name}",
                )
