"""Findings about staged data, and the verdict that follows from them and from the digests of both sides.

Findings are collected and not raised, since a verdict names everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pvdm.digest import Partial
from pvdm.errors import Code, PvdmError, comparison
from pvdm.model.codec import Document
from pvdm.model.located import WrongRows
from pvdm.model.printable import printable
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.verdict import FailureClass, Outcome, Verdict

FINDING_TEXT_MAX_CHARACTERS: Final = 400
# Findings whose `expected` and `got` hold only numbers, ids, types and places. In all others they may hold values of
# rows, such as a bound or a partition, and only roles that may see values see them. All roles see the message.
SHOWN_WHOLE: Final = frozenset(
    """
    arrow_type_unsupported boundary_moved cast_refused column_duplicate column_missing column_unexpected
    decimal_not_exact decimal_too_wide delete_file_staged deletes_newer extraction_differs field_default_missing
    field_id_missing field_id_reserved field_id_twice field_id_unknown field_required_missing file_format_other
    file_outside_prefix file_size_lies map_key_duplicate map_key_null nan_count_lies nesting_too_deep null_count_lies
    null_in_required parquet_ambiguous parquet_bloom_filter_lies parquet_claim_unverified parquet_codec_unsupported
    parquet_encodings_lie parquet_encrypted parquet_invalid parquet_rows_lie parquet_sorting_lies parquet_too_large
    parquet_type_unsupported parquet_unreadable record_count_lies removal_incomplete removal_outside_boundary
    removal_under_append row_too_large schema_id_other spec_other split_offsets_lie staged_bytes_exceed
    staged_files_exceed staged_rows_exceed staged_snapshot_gone string_not_utf8 value_count_lies value_out_of_range
    variant_shredded
    """.split()  # noqa: SIM905 - a list would have one code a line
)
Partials: TypeAlias = Mapping[ProjectionName, Partial]
_MODULUS: Final = 1 << 256


@dataclass(frozen=True, slots=True)
class Finding(Document, title="a finding"):
    """One fault: its class in the verdict, a stable code, and the file that it was found in, if any."""

    failure: FailureClass
    code: str
    message: str
    expected: str | None = None
    got: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        # Producers choose names and values, so texts are made printable and short.
        for name in ("message", "expected", "got", "file"):
            text = getattr(self, name)
            if text is not None:
                limit = FINDING_TEXT_MAX_CHARACTERS
                cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
                object.__setattr__(self, name, printable(cut))

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        place = f" ({self.file})" if self.file else ""
        return (f"{self.message}: {tail}" if tail else self.message) + place

    @classmethod
    def of(cls, failure: FailureClass, error: PvdmError, file: str | None = None) -> Finding:
        """The finding for an error."""
        return cls(failure, error.reason, error.message, error.expected, error.got, file)


def compare(
    intent: Partials | None, staged: Partials | None, findings: Iterable[Finding], located: WrongRows | None = None
) -> Verdict:
    """PASS if every digest matches and there is no finding; a side that is None could not be digested.

    Only the digests decide whether rows are wrong. Located rows say in which ways.
    """
    classes = {found.failure for found in findings}
    if intent is not None and staged is not None:
        rows = rows_class(intent, staged)
        if rows is not None:
            classes |= (located.failures if located is not None else None) or {rows}
    elif not classes:
        raise Code.DIGEST_MISSING(got="one")
    return Verdict.failed(*classes) if classes else Verdict(Outcome.PASS)


def rows_class(intent: Partials, staged: Partials) -> FailureClass | None:
    """How the staged rows differ from the intended ones, as far as counts and digests can tell; None if they do not.

    Fewer rows are missing ones. More rows are duplicates if every sum is a multiple of the intended sum, else added
    ones. As many rows with other sums are modified. Located rows tell more.
    """
    if intent.keys() != staged.keys() or not intent:
        raise Code.PARTIAL_MISMATCH(
            "intent and staged were not digested alike", reason="partial_missing", expected="the same", got="not"
        )
    if all(intent[name].matches(staged[name]) for name in intent):
        return None
    wanted, got = rows_of(intent), rows_of(staged)
    if got < wanted:
        return FailureClass.MISSING
    if got > wanted:
        return FailureClass.DUPLICATED if _is_repeated(intent, staged, wanted, got) else FailureClass.ADDED
    return FailureClass.MODIFIED


def _is_repeated(intent: Partials, staged: Partials, wanted: int, got: int) -> bool:
    """Whether the staged digests are those of all intended rows, each taken the same number of times."""
    if not wanted:
        return False
    times = got // wanted
    repeated = {
        name: replace(each, rows=each.rows * times, total=each.total * times % _MODULUS)
        for name, each in intent.items()
    }
    return all(repeated[name].matches(staged[name]) for name in intent)


def rows_of(partials: Partials) -> int:
    """The number of rows, which all projections must have counted alike."""
    counts = {partial.rows for partial in partials.values()}
    if len(counts) != 1:
        raise Code.PARTIAL_MISMATCH(
            "the projections counted different numbers of rows", reason="partial_missing", expected="one", got="two"
        )
    return counts.pop()
