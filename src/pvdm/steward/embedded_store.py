"""The store file of an embedded Steward: its configuration begins with it, and from then on has to agree with it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pvdm.errors import InputError
from pvdm.steward.config import StewardConfig

# What a store file describes, whether it names it or not; [s3.vending] is a value of its own in the configuration.
_DESCRIBED: Final = ("catalog", "s3", "vending")
_SHOWN: Final = {"vending": "s3.vending"}


@dataclasses.dataclass(frozen=True, slots=True)
class StoreFile:
    """A file with tables of a configuration; what is wrong in them is told when they are read."""

    path: Path
    tables: str

    @classmethod
    def read(cls, path: Path) -> StoreFile:
        """The file at that path."""
        try:
            return cls(path, f"\n{path.read_text('utf-8')}")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                "config_invalid", "the store's tables cannot be read", expected=str(path), got=type(error).__name__
            ) from None


def require_same_store(config: StewardConfig, given: StewardConfig, store: StoreFile, path: Path) -> None:
    """The configuration says what the store file says: a caller who names a file must not get another store unheard.

    Nothing is taken over: tables lie where the first start put them, and others may have changed the file since.
    """
    more = tuple(name for name in tomllib.loads(store.tables) if name in ("service", "spark"))
    # One word a place: what differs may be a password in the wrong line.
    differing = [
        place
        for name in (*_DESCRIBED, *more)
        for place in _differing(_SHOWN.get(name, name), getattr(config, name), getattr(given, name))
    ]
    if differing:
        raise InputError(
            "embedded_store_differs",
            "this Steward was made with another store, and `store` changes nothing afterwards",
            expected=f"what {path} says, or no `store`",
            got=f"other values of {', '.join(differing)}",
            hint=f"to change it, edit {path.name} itself; a Steward with tables elsewhere is one in another folder",
        )


def _differing(place: str, one: object, other: object) -> Iterator[str]:
    """The places of two configurations that are not the same."""
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        for field in dataclasses.fields(one):
            yield from _differing(f"{place}.{field.name}", getattr(one, field.name), getattr(other, field.name))
    elif one != other:
        yield place
