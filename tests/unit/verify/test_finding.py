"""Findings: their fields, and that their texts are short and printable."""

from __future__ import annotations

from pvdm.errors import VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import FINDING_TEXT_MAX_CHARACTERS, Finding


def test_a_finding_has_the_fields_of_its_error() -> None:
    error = VerificationError("file_missing", "a file is not there", expected="a", got="none")
    found = Finding.of(FailureClass.PHYSICAL, error, "f.parquet")
    assert found.to_json() == {
        "failure": "physical",
        "code": "file_missing",
        "message": "a file is not there",
        "expected": "a",
        "got": "none",
        "file": "f.parquet",
    }
    assert str(found) == "a file is not there: expected a, got none (f.parquet)"


def test_long_texts_of_a_finding_are_cut() -> None:
    found = Finding(FailureClass.METADATA, "x", "m", got="y" * 10_000)
    assert found.got is not None
    assert len(found.got) == FINDING_TEXT_MAX_CHARACTERS


def test_control_characters_in_a_finding_are_escaped() -> None:
    found = Finding(FailureClass.METADATA, "x", "m", got="a\x1b[2J\nb", file="f\u202eg")
    assert (found.got, found.file) == ("a\\x1b[2J\\nb", "f\\u202eg")
