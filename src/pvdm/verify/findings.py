"""Findings: what is wrong with staged data, collected instead of raised, since a verdict names everything it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.errors import PvdmError, comparison
from pvdm.model.canonical_json import Value
from pvdm.model.printable import printable
from pvdm.model.statements.verdict import FailureClass

FINDING_TEXT_MAX_CHARACTERS: Final = 400
# Findings whose `expected` and `got` hold numbers, ids, types and places alone. Of all others they are for those who
# may see values of rows, for a bound or a partition is one; the sentence, which all see, names column and claim.
SHOWN_WHOLE: Final = frozenset(
    {
        "arrow_type_unsupported",
        "boundary_moved",
        "cast_refused",
        "column_duplicate",
        "column_missing",
        "column_unexpected",
        "decimal_not_exact",
        "decimal_too_wide",
        "delete_file_staged",
        "deletes_newer",
        "extraction_differs",
        "field_default_missing",
        "field_id_missing",
        "field_id_reserved",
        "field_id_twice",
        "field_id_unknown",
        "field_required_missing",
        "file_format_other",
        "file_outside_prefix",
        "file_size_lies",
        "map_key_duplicate",
        "map_key_null",
        "nan_count_lies",
        "nesting_too_deep",
        "null_count_lies",
        "null_in_required",
        "parquet_ambiguous",
        "parquet_bloom_filter_lies",
        "parquet_claim_unverified",
        "parquet_codec_unsupported",
        "parquet_encodings_lie",
        "parquet_encrypted",
        "parquet_invalid",
        "parquet_rows_lie",
        "parquet_sorting_lies",
        "parquet_too_large",
        "parquet_type_unsupported",
        "parquet_unreadable",
        "record_count_lies",
        "removal_incomplete",
        "removal_outside_boundary",
        "removal_under_append",
        "row_too_large",
        "schema_id_other",
        "spec_other",
        "split_offsets_lie",
        "staged_bytes_exceed",
        "staged_files_exceed",
        "staged_rows_exceed",
        "staged_snapshot_gone",
        "string_not_utf8",
        "value_count_lies",
        "value_out_of_range",
        "variant_shredded",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: its class in the verdict, a stable code, and the file it was found in, if any."""

    failure: FailureClass
    code: str
    message: str
    expected: str | None = None
    got: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        # Names and values come from whoever staged the data; what ends up in answers and logs is printable and short.
        for name in ("message", "expected", "got", "file"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, _shown(text))

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        place = f" ({self.file})" if self.file else ""
        return (f"{self.message}: {tail}" if tail else self.message) + place

    @classmethod
    def of(cls, failure: FailureClass, error: PvdmError, file: str | None = None) -> Finding:
        """What an error says, as a finding."""
        return cls(failure, error.reason, error.message, error.expected, error.got, file)

    def to_json(self) -> dict[str, Value]:
        """The finding in an answer."""
        return {
            "class": self.failure.value,
            "code": self.code,
            "message": self.message,
            "expected": self.expected,
            "got": self.got,
            "file": self.file,
        }


def _shown(text: str) -> str:
    cut = text if len(text) <= FINDING_TEXT_MAX_CHARACTERS else f"{text[: FINDING_TEXT_MAX_CHARACTERS - 1]}…"
    return printable(cut)
