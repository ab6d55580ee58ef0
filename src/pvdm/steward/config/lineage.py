"""The section `[lineage]` of `steward.toml`: where OpenLineage events go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from pvdm.errors import Code
from pvdm.steward.config.sections import StrictSection
from pvdm.trust.keys import disk

LINEAGE_CONFIG_MAX_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class LineageConfig:
    """The OpenLineage library's configuration file, and the namespace of jobs and datasets (None: catalog name)."""

    config_file: Path
    namespace: str | None


class LineageSection(StrictSection):
    """The section as written."""

    config_file: Annotated[str, Field(min_length=1, max_length=4_096)]
    namespace: Annotated[str, Field(min_length=1, max_length=512)] | None = None


def make_lineage_config(section: LineageSection | None, folder: Path) -> LineageConfig | None:
    """The configuration with an absolute path; None without a section."""
    return None if section is None else LineageConfig(folder / section.config_file, section.namespace)


def read_transport(path: Path) -> dict[str, Any]:
    """Read `transport` from the OpenLineage library's file. The file may hold a key, so it must have mode 0600."""
    data = disk.read_own(path, size_max_bytes=LINEAGE_CONFIG_MAX_BYTES)
    try:
        found = yaml.safe_load(data)
    except yaml.YAMLError:
        found = None
    transport = found.get("transport") if isinstance(found, dict) else None
    if not isinstance(transport, dict):
        message, expected = f"{path.name} cannot be accepted", "YAML with the table transport"
        raise Code.CONFIG_INVALID(message, expected=expected, got="something else")
    return transport
