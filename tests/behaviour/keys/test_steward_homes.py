"""A Steward with its keys in a token or under a passphrase. PIN and passphrase are in files that only it can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pvdm.errors import PvdmError
from pvdm.model.role import Role
from pvdm.steward.config.steward import FileKeys, Pkcs11Keys
from pvdm.trust.keys.public import Algorithm
from pvdm.trust.verify import verify_threshold
from tests.behaviour.keys.conftest import PIN, Token
from tests.support.steward.notary import Stand, Time, config_at, created, opened


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def write_private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: str(algorithm.value))
def test_a_steward_with_its_keys_in_a_token_starts_signs_and_starts_again(
    tmp_path: Path, token: Token, algorithm: Algorithm
) -> None:
    pin = write_private(tmp_path / "pin", f"{PIN}\n")
    config = config_at(tmp_path, keys=Pkcs11Keys(token.library, token.label, pin, algorithm))
    time = Time()
    stand = Stand(tmp_path, config, time, created(config, time))
    recorded = stand.proved()
    stand.reopen()
    root = stand.notary.trust.current()
    assert verify_threshold([recorded.envelope], root, threshold=1, now=time.wall).core.verdict.passed
    envelope = stand.notary.proofs.envelope(recorded.statement_id, stand.grant(Role.AUDITOR))
    assert (envelope, stand.notary.readiness()) == (recorded.envelope, ())
    stand.notary.close()


def test_a_keystore_under_a_passphrase_opens_with_the_passphrase_of_its_file(tmp_path: Path) -> None:
    passphrase_file = write_private(tmp_path / "passphrase", "correct horse battery staple\n")
    config = config_at(tmp_path, keys=FileKeys(tmp_path / "keys", passphrase_file))
    created(config, Time()).close()
    opened(config, Time()).close()
    write_private(passphrase_file, "another passphrase\n")
    assert reason_of(lambda: opened(config, Time())) == "passphrase_wrong"


def test_a_passphrase_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    passphrase_file = write_private(tmp_path / "passphrase", "correct horse battery staple\n")
    passphrase_file.chmod(0o644)
    config = config_at(tmp_path, keys=FileKeys(tmp_path / "keys", passphrase_file))
    assert reason_of(lambda: created(config, Time())) == "key_file_mode"


def test_without_its_passphrase_file_no_keystore_is_created(tmp_path: Path) -> None:
    config = config_at(tmp_path, keys=FileKeys(tmp_path / "keys", tmp_path / "passphrase"))
    assert reason_of(lambda: created(config, Time())) == "key_file_missing"
    assert not (tmp_path / "keys").exists()
