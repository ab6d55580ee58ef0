"""`extraction: spark`: what it needs, told before anything is staged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from pvdm.errors import Code
from pvdm.model.schema import FixedType, GeoType, Kind, PrimitiveType, Schema, Type

# What Spark's reader gives as another type, or not at all: digests of it would not be of what is stored.
_KINDS: Final = frozenset(
    {
        Kind.TIME,
        Kind.TIME_NS,
        Kind.TIMESTAMP_NS,
        Kind.TIMESTAMPTZ_NS,
        Kind.UNKNOWN,
        Kind.UUID,
        Kind.VARIANT,
    }
)


class Reach(Protocol):
    """What Spark's reader can read."""

    def require_reach(self, locations: Sequence[str]) -> None:
        """Refuse files that it cannot."""


_Found = TypeVar("_Found")


def require_extraction(found: _Found | None) -> _Found:
    """A contract that wants Spark's reader wants a Steward that has a Spark application."""
    if found is None:
        raise Code.EXTRACTION_NOT_CONFIGURED(got="none")
    return found


def require_extractable(schema: Schema, whose: str) -> None:
    """Every column comes out of Spark as the type that it has in the table."""
    for path, slot in schema.walk():
        if _is_refused(slot.type):
            raise Code.EXTRACTION_TYPE_UNSUPPORTED(
                f"Spark's reader does not give column {path!a} of the {whose} as it is stored",
                got=str(slot.type),
                column=path,
            )


def _is_refused(kind: Type) -> bool:
    if isinstance(kind, PrimitiveType):
        return kind.kind in _KINDS
    return isinstance(kind, FixedType | GeoType)
