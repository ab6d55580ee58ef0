"""Findings about staged data, and the verdict, which depends on them and on the digests of intended and staged rows.

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
# Findings whose `expected` and `got` have only numbers, ids, types and paths, so all roles see these two texts. In
# other findings the two may have values of rows, so only roles that may see values see both. All roles see messages.
SHOWN_TO_ALL_ROLES: Final = frozenset(
    """
    arrow_type_unsupported boundary_moved boundary_unclear cast_refused column_duplicate column_missing
    column_unexpected decimal_not_exact decimal_too_wide delete_file_staged deletes_newer extraction_differs
    field_default_missing field_id_missing field_id_reserved field_id_twice field_id_unknown field_required_missing
    file_format_other file_outside_prefix file_size_lies map_key_duplicate map_key_null nan_count_lies
    nesting_too_deep null_count_lies null_in_required parquet_ambiguous parquet_bloom_filter_lies
    parquet_claim_unverified parquet_codec_unsupported parquet_encodings_lie parquet_encrypted parquet_invalid
    parquet_rows_lie parquet_sorting_lies parquet_too_large parquet_type_unsupported parquet_unreadable
    record_count_lies removal_incomplete removal_outside_boundary removal_under_append row_too_large schema_id_other
    spec_other split_offsets_lie staged_bytes_exceed staged_files_exceed staged_rows_exceed staged_snapshot_gone
    string_not_utf8 value_count_lies value_out_of_range variant_shredded
    """.split()  # noqa: SIM905 - a list would have one code a line
)
Partials: TypeAlias = Mapping[ProjectionName, Partial]
"""The digests of some rows, one for each projection."""
_MODULUS: Final = 1 << 256  # of the sums of row hashes


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
            text, limit = getattr(self, name), FINDING_TEXT_MAX_CHARACTERS
            if text is not None:
                object.__setattr__(self, name, printable(text if len(text) <= limit else f"{text[: limit - 1]}…"))

    def __str__(self) -> str:
        difference = comparison(self.expected, self.got)
        place = f" ({self.file})" if self.file else ""
        return (f"{self.message}: {difference}" if difference else self.message) + place

    @classmethod
    def of(cls, failure: FailureClass, error: PvdmError, file: str | None = None) -> Finding:
        """The finding for an error."""
        return cls(failure, error.reason, error.message, error.expected, error.got, file)


def decide_verdict(
    intent: Partials | None, staged: Partials | None, findings: Iterable[Finding], located: WrongRows | None = None
) -> Verdict:
    """The verdict: PASS if every digest matches and there is no finding. A side is None if it was not digested.

    If the digests differ, `located` gives the failure classes of the wrong rows. If `located` has no class (the rows
    could not be located), the digests' row counts and sums give one class. For equal digests, `located` has no effect.
    """
    classes = {finding.failure for finding in findings}
    if intent is not None and staged is not None:
        failure = classify_rows(intent, staged)
        if failure is not None:
            located_classes: frozenset[FailureClass] = frozenset() if located is None else located.failures
            classes |= located_classes or {failure}
    elif not classes:
        raise Code.DIGEST_MISSING(got="at most one")
    return Verdict.failed(*classes) if classes else Verdict(Outcome.PASS)


def classify_rows(intent: Partials, staged: Partials) -> FailureClass | None:
    """Classify the difference by counts and digests alone; None if both sides are equal.

    Fewer rows are MISSING. More rows are DUPLICATED if they are all intended rows several times, otherwise ADDED.
    The same number of rows with other sums is MODIFIED.
    """
    if intent.keys() != staged.keys() or not intent:
        raise Code.PARTIAL_MISMATCH(
            "intent and staged were not digested in the same projections",
            reason="partial_missing",
            expected=", ".join(name.value for name in intent) or "a projection",
            got=", ".join(name.value for name in staged) or "none",
        )
    if all(intent[name].matches(staged[name]) for name in intent):
        return None
    intended_rows, staged_rows = count_rows(intent), count_rows(staged)
    if staged_rows < intended_rows:
        return FailureClass.MISSING
    if staged_rows == intended_rows:
        return FailureClass.MODIFIED
    times = staged_rows // intended_rows if intended_rows else 0  # how often each row may be repeated
    return FailureClass.DUPLICATED if times and _is_repeated(intent, staged, times) else FailureClass.ADDED


def _is_repeated(intent: Partials, staged: Partials, times: int) -> bool:
    """Whether the staged digests are those of all intended rows, each taken `times` times."""
    return all(
        replace(each, rows=each.rows * times, total=each.total * times % _MODULUS).matches(staged[name])
        for name, each in intent.items()
    )


def count_rows(partials: Partials) -> int:
    """The number of digested rows. Raises unless all projections counted the same number."""
    counts = {partial.rows for partial in partials.values()}
    if len(counts) != 1:
        message = "the projections counted different numbers of rows"
        got = " and ".join(map(str, sorted(counts))) or "no projection"
        raise Code.PARTIAL_MISMATCH(message, reason="partial_missing", expected="one number of rows", got=got)
    return counts.pop()
