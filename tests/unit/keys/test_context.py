"""The context that a key is derived from: each field is checked, and the worked example of spec/keys.md is right."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName
from pvdm.trust.keys.context import AttemptContext, Purpose
from tests.support.for_each import for_each
from tests.support.steward.keys import attempt_context, source_context

SPEC = (Path(__file__).parents[3] / "spec" / "keys.md").read_text()
ROOT = bytes(range(32))
FIELDS = [
    "purpose",
    "workload",
    "chunk",
    "attempt",
    "nonce",
    "projection",
    "fingerprint",
    "mode",
    "intent_root",
    "staged_root",
]


def spec_value(name: str) -> str:
    """The hex value of this name in the worked example of spec/keys.md."""
    found = re.search(rf"^    {name} +([0-9a-f ]+)$", SPEC, re.MULTILINE)
    assert found is not None, name
    return found[1].replace(" ", "")


@for_each(
    ("field", "value"),
    [
        ("epoch", 0),
        ("epoch", 2**63),
        ("epoch", True),
        ("epoch", "1"),
        ("workload_id", ""),
        ("workload_id", "a" * 129),
        ("workload_id", "a b"),
        ("workload_id", "ordérs"),
        ("workload_id", "orders\n"),
        ("chunk_id", ""),
        ("chunk_id", " "),
        ("chunk_id", "a" * 4097),
        ("chunk_id", "é" * 2049),
        ("chunk_id", "a\x00b"),
        ("chunk_id", "\ud800"),
        ("chunk_id", b"bytes"),
        ("attempt_id", "0123456789ABCDEF0123456789ABCDEF"),
        ("attempt_id", "0123"),
        ("nonce", "z" * 32),
        ("nonce", "0" * 33),
        ("mode", "stored"),
        ("fingerprints", ()),
        ("fingerprints", ((ProjectionName.IDENTITY, bytes(31)),)),
        ("fingerprints", (("identity", bytes(32)),)),
        ("fingerprints", ((ProjectionName.CONTENT, bytes(32)), (ProjectionName.IDENTITY, bytes(32)))),
        ("fingerprints", ((ProjectionName.CONTENT, bytes(32)), (ProjectionName.CONTENT, bytes(32)))),
        ("intent_root", bytes(31)),
        ("intent_root", "33" * 32),
        ("staged_root", b""),
        ("staged_root", None),
    ],
)
def test_a_field_that_cannot_be_part_of_a_key_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        replace(attempt_context(), **{field: value})  # type: ignore[arg-type]
    assert (caught.value.reason, str(caught.value.details["field"]).split()[0].rstrip("s")) == (
        "context_invalid",
        field.rstrip("s"),
    )


@for_each(
    ("field", "value"),
    [
        ("catalog", ""),
        ("catalog", "a" * 4097),
        ("table_uuid", "F79C3E09-677C-4BBD-A479-3F349CB785E7"),
        ("snapshot_id", "7"),
        ("snapshot_id", -1),
        ("snapshot_id", 2**63),
        ("attestor", "\n"),
        ("attestor", "Payments"),
        ("nonce", ""),
    ],
)
def test_a_field_of_a_source_that_cannot_be_part_of_a_key_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        replace(source_context(), **{field: value})  # type: ignore[arg-type]
    assert (caught.value.reason, caught.value.details["field"]) == ("context_invalid", field)


def test_a_projection_that_the_context_does_not_have_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        source_context().message(Purpose.SOURCE_COMMITMENT, ProjectionName.IDENTITY)
    assert caught.value.reason == "projection_unknown"


def test_an_attempt_has_no_key_for_the_purpose_of_a_source() -> None:
    with pytest.raises(InputError) as caught:
        attempt_context().message(Purpose.SOURCE_ROW_HASH, ProjectionName.CONTENT)
    assert caught.value.reason == "context_invalid"


def test_a_source_has_no_key_for_the_purpose_of_an_attempt() -> None:
    with pytest.raises(InputError) as caught:
        source_context().message(Purpose.ROW_HASH, ProjectionName.CONTENT)
    assert caught.value.reason == "context_invalid"


def test_a_context_is_read_back_from_its_document() -> None:
    assert AttemptContext.parse(attempt_context().to_json()) == attempt_context()


@for_each(
    "change",
    [{"epoch": "01"}, {"epoch": 1}, {"nonce": "0" * 31}, {"mode": "other"}, {"extra": "x"}, {"fingerprints": {}},
     {"intent_root": "33" * 31 + "3G"}, {"staged_root": "44" * 31 + "4A"}],
    ids=str,
)  # fmt: skip
def test_a_document_that_is_not_a_context_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        AttemptContext.parse({**attempt_context().to_json(), **change})  # type: ignore[dict-item]
    assert caught.value.reason == "context_invalid"


def test_the_worked_example_has_the_message_of_the_code() -> None:
    message = attempt_context().message(Purpose.ROW_HASH, ProjectionName.CONTENT)
    assert message.hex() == spec_value("message")


def test_the_worked_example_joins_the_fields_as_the_specification_says() -> None:
    fields = "".join(spec_value(name.replace("_", " ")) for name in FIELDS)
    assert hashlib.sha256(bytes.fromhex(fields)).hexdigest() + "01" == spec_value("message")


@pytest.mark.parametrize(
    ("name", "purpose"), [("row-hash key", Purpose.ROW_HASH), ("commitment key", Purpose.COMMITMENT)]
)
def test_the_worked_example_has_the_keys_of_the_code(name: str, purpose: Purpose) -> None:
    root = ROOT if purpose is Purpose.ROW_HASH else ROOT[::-1]
    key = hmac.digest(root, attempt_context().message(purpose, ProjectionName.CONTENT), hashlib.sha256)
    assert key.hex() == spec_value(name)


def test_the_worked_example_of_a_source_has_the_key_of_the_code() -> None:
    message = source_context().message(Purpose.SOURCE_ROW_HASH, ProjectionName.CONTENT)
    assert hmac.digest(ROOT, message, hashlib.sha256).hex() == spec_value("source key")
