"""`pvdm break-glass sign`: an override is for one FAIL proof and its files, expires soon, and needs an explicit yes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pvdm.model.statements.break_glass import BreakGlass
from pvdm.trust.approval import verify_override
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import sign_statement
from tests.behaviour.cli.support import EXAMPLES, CommandResult, Run, bundle_of
from tests.support.gate.hostile_assets import verified_fail
from tools.proof_kit import FAIL_PROOF, FAIL_PROOF_ID, FILES, NOW, ROOT, SECOND, SIGNERS, TABLE

pytestmark = pytest.mark.usefixtures("at_examples_time")
HOUR = 3_600 * SECOND
REASON = "the amounts are known and explained in incident 4711"


@pytest.fixture(autouse=True)
def keys(example_key: Callable[[str], Path]) -> None:
    for name in ("operator-ruth", "operator-tom", "notary-a", "rogue"):
        example_key(name)


def sign(
    pvdm: Run, *more: object, key: str = "operator-ruth", proof: object = EXAMPLES / "proof-fail.json"
) -> CommandResult:
    words = ("--key", f"{key}.pem", "--proof", proof, "--operator", "operator-ruth", "--reason", REASON)
    return pvdm("break-glass", "sign", *words, "--out", "override.json", *more)


def read_override(folder: Path) -> BreakGlass:
    return read_statement(parse_envelope((folder / "override.json").read_bytes()).payload, BreakGlass)


@pytest.mark.parametrize("bundled", [False, True], ids=["envelope", "bundle"])
def test_an_override_is_accepted_for_exactly_its_fail_proof(pvdm: Run, tmp_path: Path, bundled: bool) -> None:
    (tmp_path / "b.json").write_bytes(bundle_of((FAIL_PROOF, "notary-a")))
    assert sign(pvdm, "--yes", proof="b.json" if bundled else EXAMPLES / "proof-fail.json").code == 0
    data = (tmp_path / "override.json").read_bytes()
    override = verify_override(data, ROOT, failed=verified_fail(), now=NOW, used=lambda _: False).predicate
    assert (override.operator, override.reason, override.table) == ("operator-ruth", REASON, TABLE)
    assert (override.fail_proof_id, override.file_hashes) == (FAIL_PROOF_ID, FILES.staged_hashes)


def test_an_override_expires_after_four_hours_by_default(pvdm: Run, tmp_path: Path) -> None:
    sign(pvdm, "--yes")
    assert read_override(tmp_path).expires_at - read_override(tmp_path).issued_at == 4 * HOUR


def test_an_override_expires_after_the_given_time(pvdm: Run, tmp_path: Path) -> None:
    sign(pvdm, "--yes", "--expires", "30m")
    assert read_override(tmp_path).expires_at - read_override(tmp_path).issued_at == HOUR // 2


def test_an_override_for_more_than_a_day_is_refused(pvdm: Run, tmp_path: Path) -> None:
    refused = sign(pvdm, "--yes", "--expires", "25h", "--json")
    assert (refused.code, refused.error) == (2, "override_lifetime_invalid")
    assert not (tmp_path / "override.json").exists()


def test_each_override_has_a_nonce_of_its_own(pvdm: Run, tmp_path: Path) -> None:
    sign(pvdm, "--yes")
    first = read_override(tmp_path).nonce
    (tmp_path / "override.json").unlink()
    sign(pvdm, "--yes")
    assert read_override(tmp_path).nonce != first


def test_an_override_of_a_pass_proof_is_refused(pvdm: Run, tmp_path: Path) -> None:
    refused = sign(pvdm, "--yes", "--json", proof=EXAMPLES / "proof.json")
    assert (refused.code, refused.error) == (5, "override_of_pass")
    assert not (tmp_path / "override.json").exists()


def test_a_statement_that_is_no_proof_is_refused(pvdm: Run) -> None:
    refused = sign(pvdm, "--yes", "--json", proof=EXAMPLES / "receipt.json")
    assert (refused.code, refused.error) == (2, "proof_expected")


def test_without_yes_and_without_a_terminal_nothing_is_signed(pvdm: Run, tmp_path: Path) -> None:
    refused = sign(pvdm, "--json")
    assert (refused.code, refused.error) == (2, "usage")
    assert not (tmp_path / "override.json").exists()


def answer_on_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda *_: answer)


def test_the_question_warns_loudly_and_a_no_signs_nothing(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_on_terminal(monkeypatch, "n")
    declined = sign(pvdm, "--json")
    assert (declined.code, declined.error) == (4, "declined")
    assert "*** FAIL (modified) ***" in declined.err
    assert "*** BREAK-GLASS" in declined.err
    assert not (tmp_path / "override.json").exists()


def test_a_yes_on_the_terminal_signs(pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_on_terminal(monkeypatch, "y")
    assert sign(pvdm).code == 0
    assert read_override(tmp_path).operator == "operator-ruth"


def test_the_result_begins_with_a_loud_line(pvdm: Run) -> None:
    shown = sign(pvdm, "--yes")
    assert shown.out.startswith("*** BREAK-GLASS: a FAIL verdict is waived ***")
    assert REASON in shown.out


def test_without_a_trust_root_a_notice_says_that_the_proof_was_not_verified(pvdm: Run) -> None:
    assert "was not verified" in sign(pvdm, "--yes").err


TRUST = ("--trust-root", EXAMPLES / "trust-root-1.json", "--root-sha256", ROOT.sha256)


def test_with_a_trust_root_proof_and_override_are_verified(pvdm: Run) -> None:
    shown = sign(pvdm, "--yes", *TRUST, "--json")
    assert (shown.code, shown.json["verified"]) == (0, True)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("operator-tom", "key_role_wrong"),
        ("notary-a", "override_signed_by_steward"),
        ("rogue", "key_unknown"),
    ],
)
def test_with_a_trust_root_another_key_is_refused_before_anything_is_written(
    pvdm: Run, tmp_path: Path, key: str, code: str
) -> None:
    refused = sign(pvdm, "--yes", *TRUST, "--json", key=key)
    assert (refused.code, refused.error) == (5, code)
    assert not (tmp_path / "override.json").exists()


def test_with_a_trust_root_a_forged_fail_proof_is_refused(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "forged.json").write_bytes(sign_statement(FAIL_PROOF, SIGNERS["rogue"]).to_bytes())
    refused = sign(pvdm, "--yes", *TRUST, "--json", proof="forged.json")
    assert (refused.code, refused.error) == (3, "key_unknown")


def test_no_override_is_written_over_another_file(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "override.json").write_text("mine")
    refused = sign(pvdm, "--yes", "--json")
    assert (refused.code, refused.error) == (2, "output_exists")
    assert (tmp_path / "override.json").read_text() == "mine"


def test_an_existing_output_file_is_refused_before_the_question(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "override.json").write_text("mine")
    assert sign(pvdm, "--json").error == "output_exists"


@pytest.mark.parametrize("reason", ["", "  ", "line\nbreak", "x" * 4_097])
def test_an_empty_multiline_or_too_long_reason_is_refused(pvdm: Run, tmp_path: Path, reason: str) -> None:
    words = ("--key", "operator-ruth.pem", "--proof", EXAMPLES / "proof-fail.json", "--operator", "operator-ruth")
    refused = pvdm("break-glass", "sign", *words, "--reason", reason, "--out", "override.json", "--yes", "--json")
    assert (refused.code, refused.error) == (2, "document_value_invalid")


@pytest.mark.parametrize("expires", ["soon", "0h", "-1h", "4", "1.5h"])
def test_an_invalid_duration_is_a_usage_error(pvdm: Run, expires: str) -> None:
    assert sign(pvdm, "--yes", "--expires", expires, "--json").error == "usage"


def test_a_private_key_that_others_can_read_is_refused(pvdm: Run, tmp_path: Path) -> None:
    (tmp_path / "operator-ruth.pem").chmod(0o644)
    refused = sign(pvdm, "--yes", "--json")
    assert (refused.code, refused.error) == (5, "key_file_mode")
