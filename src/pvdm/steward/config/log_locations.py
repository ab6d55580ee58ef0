"""Where the log's files are kept: the outside checkpoint and the archive, on a disk or in an object store."""

from __future__ import annotations

from pvdm.lake.stores.object_path import FilePath, path_at
from pvdm.lake.stores.stores import Stores
from pvdm.steward.config.steward import StewardConfig


def outside_file(config: StewardConfig) -> FilePath:
    """The file of the outside checkpoint."""
    return path_at(config.outside_at or config.outside_path, Stores(config.s3))


def archive_folder(config: StewardConfig) -> FilePath | None:
    """The folder of the archive, if there is one."""
    place = config.archive_at or config.archive
    return None if place is None else path_at(place, Stores(config.s3))
