"""The audit's bundle: one spelling, the schema of spec/audit.md, and no part that can be mixed up unseen."""

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


def valid(document: object) -> bool:
    return bool(Draft202012Validator(SCHEMA, registry=REGISTRY).is_valid(document))


def test_a_bundle_reads_back_as_itself(data: bytes) -> None:
    assert parse_audit_bundle(data).to_bytes() == data


def test_a_bundle_is_all_that_an_audit_needs(data: bytes) -> None:
    bundle = parse_audit_bundle(data)
    report = audit(bundle.evidence, bundle, AuditTrust(ROOT, ORIGIN, NOW))
    assert (codes(report), report.holds) == (set(), True)


def test_a_file_that_a_bundle_lacks_is_found(data: bytes) -> None:
    bundle = parse_audit_bundle(data)
    for location in bundle.files:
        less = {key: value for key, value in bundle.files.items() if key != location}
        report = audit(bundle.evidence, type(bundle)(bundle.evidence, less), AuditTrust(ROOT, ORIGIN, NOW))
        assert codes(report) == {"audit_file_missing"} or location.endswith("1001-m0.avro")


def test_a_file_that_is_larger_than_its_list_says_is_not_given(data: bytes) -> None:
    bundle = parse_audit_bundle(data)
    with pytest.raises(VerificationError) as caught:
        bundle.read(0, next(iter(bundle.files)), max_bytes=1)
    assert caught.value.reason == "audit_file_too_large"


def test_the_schema_takes_a_bundle(data: bytes) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert valid(json.loads(data))


def set_to(path: str, value: Any) -> Callable[[Any], None]:
    *way, last = path.split(".")

    def change(document: Any) -> None:
        for step in way:
            document = document[int(step) if step.isdigit() else step]
        document[int(last) if last.isdigit() else last] = value

    return change


def without(key: str) -> Callable[[Any], None]:
    return lambda document: document.pop(key)


SPOILED: dict[str, Callable[[Any], None]] = {
    "another format": set_to("format", "pvdm-audit/v2"),
    "a key too many": set_to("more", 1),
    "a contract that is no hash": set_to("contract_sha256", "x"),
    "a kind that is not audited": set_to("statements.0.kind", "epoch"),
    "a time that is no number": set_to("statements.0.logged_at", "now"),
    "an index that is no decimal": set_to("statements.0.index", 1),
    "a hash that is no base64": set_to("statements.0.hashes", ["_"]),
    "too many hashes": set_to("statements.0.hashes", ["AAAA"] * 65),
    "a document without a path": set_to("metadata.path", ""),
    "a file with a key too many": set_to("files.0.more", 1),
    "a file that is no base64": set_to("files.0.data", "_"),
    **{f"no {key}": without(key) for key in SCHEMA["required"]},
}


@pytest.mark.parametrize("name", SPOILED)
def test_schema_and_parser_refuse_the_same(data: bytes, name: str) -> None:
    document = copy.deepcopy(json.loads(data))
    SPOILED[name](document)
    assert not valid(document)
    with pytest.raises(VerificationError):
        parse_audit_bundle(dump(document))


@pytest.mark.parametrize("part", ["statements", "files"])
@pytest.mark.parametrize("change", ["turned", "twice"])
def test_one_bundle_has_one_order(data: bytes, part: str, change: str) -> None:
    document = json.loads(data)
    items = document[part]
    document[part] = items[::-1] if change == "turned" else [*items, items[-1]]
    with pytest.raises(VerificationError, match=part):
        parse_audit_bundle(dump(document))


@pytest.mark.parametrize("path", ["metadata.sha256", "files.0.sha256"])
def test_a_damaged_copy_is_told_apart(data: bytes, path: str) -> None:
    document = json.loads(data)
    set_to(path, "00" * 32)(document)
    with pytest.raises(VerificationError) as caught:
        parse_audit_bundle(dump(document))
    assert caught.value.reason == "audit_bundle_damaged"


def test_base64_has_one_spelling(data: bytes) -> None:
    document = json.loads(data)
    set_to("statements.0.hashes", ["AB=="])(document)
    with pytest.raises(VerificationError, match="canonical base64"):
        parse_audit_bundle(dump(document))


@pytest.mark.parametrize(("part", "limit"), [("statements", "AUDIT_STATEMENTS_MAX"), ("files", "AUDIT_FILES_MAX")])
def test_more_than_an_audit_can_hold_is_not_read(
    data: bytes, monkeypatch: pytest.MonkeyPatch, part: str, limit: str
) -> None:
    monkeypatch.setattr(audit_bundle, limit, 1)
    with pytest.raises(VerificationError, match=f"{part} of the audit bundle cannot be accepted: expected 0 to 1"):
        parse_audit_bundle(data)


def test_a_bundle_over_the_limit_is_neither_written_nor_read(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
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
    ours = ("pvdm.ledger", "pvdm.steward", "pvdm.catalog", "pvdm.client", "sqlalchemy", "httpx", "fastapi")
    script = (
        "import sys, pvdm.metadata.audit.audit, pvdm.metadata.audit.evidence;"
        f"print([name for name in sys.modules if name.startswith({ours!r})])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
