"""Findings: short and printable whatever a producer wrote, and told alike everywhere."""

from __future__ import annotations

from pvdm.errors import VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import FINDING_TEXT_MAX_CHARACTERS, Finding


def test_a_finding_says_what_an_error_says() -> None:
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


def test_long_texts_of_a_producer_are_cut() -> None:
    found = Finding(FailureClass.METADATA, "x", "m", got="y" * 10_000)
    assert found.got is not None
    assert len(found.got) == FINDING_TEXT_MAX_CHARACTERS


def test_characters_that_steer_a_terminal_are_spelled_out() -> None:
    found = Finding(FailureClass.METADATA, "x", "m", got="a\x1b[2J\nb", file="f\u202eg")
    assert (found.got, found.file) == ("a\\x1b[2J\\nb", "f\\u202eg")
