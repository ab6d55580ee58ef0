"""The bundle of an audit: its one form, its schema, its limits, and bundles that are refused."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource

from pvdm.errors import Code, InputError, VerificationError
from pvdm.metadata.audit import evidence as audit_bundle
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.evidence import parse_audit_bundle
from pvdm.model.canonical_json import dump
from tests.support.audit.crafted_history import History, codes
from tools.proof_kit import NOW, ORIGIN, ROOT

REPOSITORY: Final = Path(__file__).parents[3]
SPEC: Final = REPOSITORY / "spec"
SCHEMAS: Final = [json.loads(path.read_text()) for path in sorted((SPEC / "schemas").glob("*.json"))]
REGISTRY: Final = Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in SCHEMAS)
SCHEMA: Final = json.loads((SPEC / "schemas" / "audit.json").read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    history = History(tmp_path_factory.mktemp("lake"))
    history.snapshot([history.data_file("old")])
    history.protect()
    history.publish(history.data_file("first"))
    history.publish(history.data_file("second"), passed=False, waived=True)
    return history.bundle().to_bytes()


def is_valid(document: object) -> bool:
    return bool(Draft202012Validator(SCHEMA, registry=REGISTRY).is_valid(document))


def test_a_bundle_is_written_as_it_was_read(data: bytes) -> None:
    assert parse_audit_bundle(data).to_bytes() == data


def test_an_audit_needs_only_the_bundle(data: bytes) -> None:
    bundle = parse_audit_bundle(data)
    report = audit(bundle.evidence, bundle, AuditTrust(ROOT, ORIGIN, NOW))
    assert (codes(report), report.holds) == (set(), True)


def test_a_file_that_the_bundle_lacks_is_found(data: bytes) -> None:
    bundle = parse_audit_bundle(data)
    for location in bundle.files:
        remaining = {key: value for key, value in bundle.files.items() if key != location}
        report = audit(bundle.evidence, type(bundle)(bundle.evidence, remaining), AuditTrust(ROOT, ORIGIN, NOW))
        # The audit may do without the manifest of the first snapshot, from before the protection.
        assert codes(report) == {"audit_file_missing"} or location.endswith("1001-m0.avro")


def test_reading_a_file_above_the_given_size_is_refused(data: bytes) -> None:
    bundle = parse_audit_bundle(data)
    with pytest.raises(VerificationError) as caught:
        bundle.read(0, next(iter(bundle.files)), max_bytes=1)
    assert caught.value.reason == "audit_file_too_large"


def test_the_schema_accepts_a_bundle(data: bytes) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert is_valid(json.loads(data))


def set_value(path: str, value: Any) -> Callable[[Any], None]:
    *parents, last = path.split(".")

    def change(document: Any) -> None:
        for step in parents:
            document = document[int(step) if step.isdigit() else step]
        document[int(last) if last.isdigit() else last] = value

    return change


def remove_key(key: str) -> Callable[[Any], None]:
    return lambda document: document.pop(key)


INVALID: dict[str, Callable[[Any], None]] = {
    "another format": set_value("format", "pvdm-audit/v2"),
    "a key too many": set_value("more", 1),
    "a contract that is no hash": set_value("contract_sha256", "x"),
    "a kind that is not audited": set_value("statements.0.kind", "epoch"),
    "a time that is no number": set_value("statements.0.logged_at", "now"),
    "an index that is no decimal": set_value("statements.0.index", 1),
    "a hash that is no base64": set_value("statements.0.hashes", ["_"]),
    "too many hashes": set_value("statements.0.hashes", ["AAAA"] * 65),
    "a document without a path": set_value("metadata.path", ""),
    "a file with a key too many": set_value("files.0.more", 1),
    "a file that is no base64": set_value("files.0.data", "_"),
    **{f"no {key}": remove_key(key) for key in SCHEMA["required"]},
}


@pytest.mark.parametrize("name", INVALID)
def test_schema_and_parser_refuse_the_same(data: bytes, name: str) -> None:
    document = copy.deepcopy(json.loads(data))
    INVALID[name](document)
    assert not is_valid(document)
    with pytest.raises(VerificationError):
        parse_audit_bundle(dump(document))


@pytest.mark.parametrize("part", ["statements", "files"])
@pytest.mark.parametrize("change", ["turned", "twice"])
def test_items_out_of_order_or_repeated_are_refused(data: bytes, part: str, change: str) -> None:
    document = json.loads(data)
    items = document[part]
    document[part] = items[::-1] if change == "turned" else [*items, items[-1]]
    with pytest.raises(VerificationError, match=part):
        parse_audit_bundle(dump(document))


@pytest.mark.parametrize("path", ["metadata.sha256", "files.0.sha256"])
def test_a_damaged_bundle_has_its_own_reason(data: bytes, path: str) -> None:
    document = json.loads(data)
    set_value(path, "00" * 32)(document)
    with pytest.raises(VerificationError) as caught:
        parse_audit_bundle(dump(document))
    assert caught.value.reason == "audit_bundle_damaged"


def test_base64_in_another_spelling_is_refused(data: bytes) -> None:
    document = json.loads(data)
    set_value("statements.0.hashes", ["AB=="])(document)
    with pytest.raises(VerificationError, match="canonical base64"):
        parse_audit_bundle(dump(document))


@pytest.mark.parametrize(("part", "limit"), [("statements", "AUDIT_STATEMENTS_MAX"), ("files", "AUDIT_FILES_MAX")])
def test_a_bundle_with_too_many_items_is_refused(
    data: bytes, monkeypatch: pytest.MonkeyPatch, part: str, limit: str
) -> None:
    monkeypatch.setattr(audit_bundle, limit, 1)
    with pytest.raises(VerificationError, match=f"{part} of the audit bundle cannot be accepted: expected 0 to 1"):
        parse_audit_bundle(data)


def test_writing_or_reading_a_bundle_above_the_limit_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = parse_audit_bundle(data)
    monkeypatch.setattr(audit_bundle, "AUDIT_BUNDLE_MAX_BYTES", len(data) - 1)
    with pytest.raises(InputError, match="fit"):
        bundle.to_bytes()
    with pytest.raises(VerificationError, match="too large"):
        parse_audit_bundle(data)


def test_the_specification_names_every_code() -> None:
    paths = [path for path in (REPOSITORY / "src").rglob("*.py") if "audit" in str(path.relative_to(REPOSITORY))]
    sources = "\n".join(path.read_text() for path in paths)
    codes = {code.lower() for code in re.findall(r"Code\.(AUDIT_[A-Z_]+)", sources)}
    families = {code for code in codes if Code[code.upper()].entry.reasons}
    raised = codes - families | set(re.findall(r'"(audit_[a-z_]+)"', sources))
    assert raised == set(re.findall(r"`(audit_[a-z_]+)`", (SPEC / "audit.md").read_text()))


def test_an_auditor_needs_neither_ledger_nor_catalog_nor_network() -> None:
    forbidden = ("pvdm.ledger", "pvdm.steward", "pvdm.catalog", "pvdm.client", "sqlalchemy", "httpx", "fastapi")
    script = (
        "import sys, pvdm.metadata.audit.audit, pvdm.metadata.audit.evidence;"
        f"print([name for name in sys.modules if name.startswith({forbidden!r})])"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
