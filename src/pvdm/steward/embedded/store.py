"""The store file of an embedded Steward: its configuration begins with it, and from then on has to agree with it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pvdm.errors import Code
from pvdm.steward.config.steward import StewardConfig

# What a store file describes, whether it names it or not; [s3.vending] is a value of its own in the configuration.
_DESCRIBED: Final = ("catalog", "s3", "vending")
_TABLES: Final = ("catalog", "s3", "service", "spark")
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
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Code.CONFIG_INVALID(
                "the store's tables cannot be read", expected=str(path), got=type(error).__name__
            ) from None
        _require_tables(path, text)
        return cls(path, f"\n{text}")


def _require_tables(path: Path, text: str) -> None:
    """Told by the file's own lines: it is read as the end of a longer one, where a line above its tables means more."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Code.CONFIG_INVALID(f"{path.name} cannot be accepted", expected="TOML", got=str(error)[:200]) from None
    for name, value in read.items():
        if name not in _TABLES or not isinstance(value, dict):
            raise Code.CONFIG_INVALID(
                f"{path.name}: {ascii(name)[1:-1][:80]} cannot be accepted",
                expected="the tables [catalog], [s3] and [spark], and nothing outside of them",
                got="another table" if isinstance(value, dict) else "another line",
            )


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
        raise Code.EMBEDDED_SETTINGS_INVALID(
            reason="embedded_store_differs",
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
