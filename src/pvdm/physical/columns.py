"""What both stagers ask of a producer's columns, in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.errors import InputError


def require_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    """The target's columns, each once, in any order; a column that is left out is not guessed to be null."""
    if sorted(given) == sorted(wanted):
        return
    missing, other = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    twice = sorted({name for name in given if list(given).count(name) > 1})
    got = [
        f"{word} {', '.join(ascii(name)[1:-1][:80] for name in names[:5])}"
        for word, names in (("without", missing), ("with", other), ("twice", twice))
        if names
    ]
    raise InputError(
        "rows_columns_differ",
        "the rows have not the columns of the target",
        expected=", ".join(ascii(name)[1:-1] for name in wanted)[:400],
        got="; ".join(got),
        hint="give every column of the target once, and no other; one that the pinned snapshot of the source does not "
        "have yet, the job adds itself as null",
    )


def type_differs(column: str, expected: str, got: str) -> InputError:
    """A value could be changed on the way."""
    return InputError(
        "rows_type_differs",
        f"column {column[:80]!a} cannot be written without losing something",
        expected=expected[:200],
        got=got[:200],
        hint="cast it in the job: only int to long, float to double and decimals of the same scale are widened here",
    )
