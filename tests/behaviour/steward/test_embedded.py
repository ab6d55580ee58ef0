"""A Steward inside the caller's process: created, used, closed, killed, opened again, and never twice at once."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pvdm
from pvdm.client import StewardClient
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.model.role import Role
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.statements.proof import Isolation, Proof
from pvdm.steward.embedded import embedded
from pvdm.steward.embedded import root as embedded_root
from pvdm.steward.embedded.embedded import EmbeddedSteward, Person
from pvdm.steward.notary import open_notary
from pvdm.trust.keys.pem import create_key_pair, open_key_pair
from pvdm.trust.root import RootRole, TrustRoot, follow_roots
from tests.support.steward.notary import Stand, Time
from tests.support.steward.secret_search import traces_in_files

DAY = 86_400 * 1_000_000


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[EmbeddedSteward]:
    with pvdm.Steward.embedded(tmp_path / "steward") as made:
        yield made


@pytest.fixture(scope="module")
def shared_steward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSteward]:
    """One Steward for all tests whose changes no other test can see."""
    with pvdm.Steward.embedded(tmp_path_factory.mktemp("shared") / "steward") as made:
        yield made


def refusal(work: Callable[[], object]) -> tuple[type[PvdmError], str]:
    with pytest.raises(PvdmError) as caught:
        work()
    return type(caught.value), caught.value.reason


def root_of(steward: EmbeddedSteward) -> TrustRoot:
    return follow_roots(steward.trust_root().chain, sha256=steward.pin, now=time.time_ns() // 1_000)


def stand_of(steward: EmbeddedSteward) -> Stand:
    return Stand(steward.folder, steward._notary.config, Time(), steward._notary)


def test_an_embedded_steward_is_ready_and_reports_that_it_is_embedded(shared_steward: EmbeddedSteward) -> None:
    assert shared_steward.readiness().ready
    assert shared_steward.info().isolation is Isolation.EMBEDDED
    assert shared_steward.url.startswith("http://127.0.0.1:")


def test_an_embedded_steward_is_a_client_with_the_rights_of_an_operator(shared_steward: EmbeddedSteward) -> None:
    found = shared_steward.identity()
    assert (found.role, found.domain) == (Role.OPERATOR, "*")


def test_the_trust_root_names_the_stewards_own_keys_and_no_break_glass_key(shared_steward: EmbeddedSteward) -> None:
    roles = sorted(role.value for key in root_of(shared_steward).keys for role in key.roles)
    assert roles == ["log", "notary", "root"]


def test_only_their_owner_can_read_folder_root_signer_and_keystore(shared_steward: EmbeddedSteward) -> None:
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in (shared_steward.folder, *shared_steward.folder.iterdir())
    }
    assert (modes["steward"], modes["root-signer.pem"], modes["keystore.json"]) == (0o700, 0o600, 0o600)


def test_a_proof_says_embedded_and_passes_an_offline_check(shared_steward: EmbeddedSteward) -> None:
    recorded = stand_of(shared_steward).proved("one")
    with shared_steward.as_role(Role.CONSUMER, "sales") as consumer:
        bundle, roots = consumer.proof_bundle(recorded.statement_id), consumer.trust_root()
    checked = pvdm.check_proof(bundle, roots.chain, pin=shared_steward.pin)
    statement = checked.proof.statements[0].predicate
    assert isinstance(statement, Proof)
    assert statement.notary.isolation is Isolation.EMBEDDED
    assert any("embedded" in sentence for sentence in checked.not_proved)


@pytest.mark.parametrize("role", list(Role))
def test_an_embedded_steward_gives_tokens_for_every_role(shared_steward: EmbeddedSteward, role: Role) -> None:
    with shared_steward.as_role(role, "sales", name="somebody") as client:
        found = client.identity()
        assert (found.role, found.domain, found.name) == (role, "sales", "somebody")
    with StewardClient(shared_steward.url, shared_steward.token_for(role)) as other:
        assert other.identity().role is role


def test_a_client_of_another_role_has_only_the_rights_of_that_role(shared_steward: EmbeddedSteward) -> None:
    with shared_steward.as_role(Role.PRODUCER, "sales") as producer:
        assert refusal(producer.epochs) == (NotAllowedError, "role_wrong")


def test_a_second_start_has_the_same_pin_log_and_proofs(tmp_path: Path) -> None:
    with embedded.start(tmp_path / "s") as steward:
        recorded = stand_of(steward).proved("one")
        before, pin = steward.info(), steward.pin
    with embedded.start(tmp_path / "s") as steward:
        assert (steward.info(), steward.pin) == (before, pin)
        assert steward.proof(recorded.statement_id).proof_id == recorded.statement_id


def test_a_second_start_at_the_same_time_is_refused(shared_steward: EmbeddedSteward) -> None:
    assert refusal(lambda: embedded.start(shared_steward.folder)) == (ConflictError, "embedded_in_use")
    assert shared_steward.readiness().ready


def test_another_process_is_refused_with_the_id_of_the_first(shared_steward: EmbeddedSteward) -> None:
    code = f"import pvdm; pvdm.Steward.embedded({str(shared_steward.folder)!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another Steward is running in this folder" in ended.stderr
    assert f"process {os.getpid()}" in ended.stderr


def test_a_token_is_written_to_a_file_that_only_its_owner_reads(
    shared_steward: EmbeddedSteward, tmp_path: Path
) -> None:
    file = tmp_path / "job.token"
    for role in (Role.AUDITOR, "producer"):
        shared_steward.write_token(file, role, "sales", name="nightly")
    assert file.stat().st_mode & 0o777 == 0o600
    with StewardClient(shared_steward.url, token_file=file) as client:
        found = client.identity()
    assert (found.role, found.domain, found.name) == (Role.PRODUCER, "sales", "nightly")


def test_closing_stops_the_service_and_ends_its_tokens(tmp_path: Path) -> None:
    steward = embedded.start(tmp_path / "s")
    token, old = steward.token_for(Role.AUDITOR), steward.url
    steward.identity()
    steward.close()
    steward.close()
    assert refusal(steward.info) == (InputError, "client_closed")
    with StewardClient(old, token) as client:
        assert refusal(client.info) == (UnavailableError, "steward_unreachable")
    with embedded.start(tmp_path / "s") as again, StewardClient(again.url, token) as client:
        assert refusal(client.info) == (NotAllowedError, "token_revoked")


SCRIPT = """
    import os, signal, sys, pvdm
    from pvdm.model.role import Role
    steward = pvdm.Steward.embedded(sys.argv[1])
    steward.identity()
    print(steward.token_for(Role.AUDITOR).text, flush=True)
    {end}
"""


def run_script(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(SCRIPT.format(end=end))
    return subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_process_that_ends_without_closing_revokes_its_tokens(tmp_path: Path) -> None:
    ended = run_script(tmp_path / "s", "pass")
    assert (ended.returncode, ended.stderr) == (0, "")
    with embedded.start(tmp_path / "s") as steward, StewardClient(steward.url, ended.stdout.strip()) as client:
        assert refusal(client.info) == (NotAllowedError, "token_revoked")


def test_tokens_of_a_process_that_was_killed_end_at_the_next_start(tmp_path: Path) -> None:
    ended = run_script(tmp_path / "s", "os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.returncode == -signal.SIGKILL
    with embedded.start(tmp_path / "s") as steward, StewardClient(steward.url, ended.stdout.strip()) as client:
        assert refusal(client.info) == (NotAllowedError, "token_revoked")
        assert steward.identity().role is Role.OPERATOR


def test_a_process_that_ended_with_an_error_does_not_stop_the_next_start(tmp_path: Path) -> None:
    ended = run_script(tmp_path / "s", "raise SystemExit(7)")
    assert ended.returncode == 7
    with embedded.start(tmp_path / "s") as steward:
        assert steward.readiness().ready


def test_a_process_that_was_killed_does_not_stop_the_next_start(tmp_path: Path) -> None:
    ended = run_script(tmp_path / "s", "os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.returncode == -signal.SIGKILL
    with embedded.start(tmp_path / "s") as steward:
        assert steward.readiness().ready


def test_a_forked_child_does_not_keep_the_folder_of_a_killed_parent(tmp_path: Path) -> None:
    child = "os.fork() or (os.close(1), os.close(2), __import__('time').sleep(10), os._exit(0))"
    ended = run_script(tmp_path / "s", f"{child}; os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.returncode == -signal.SIGKILL
    with embedded.start(tmp_path / "s") as steward:
        assert steward.readiness().ready


def test_a_forked_child_may_not_use_its_parent_s_client(shared_steward: EmbeddedSteward) -> None:
    shared_steward.identity()
    child = os.fork()
    if child == 0:
        try:
            shared_steward.identity()
        except InputError as error:
            os._exit(7 if error.reason == "client_forked" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


INTERRUPTED = [
    "create_notary",
    "create_key_pair",
    "update_trust_root",
    "_write_config",
    "load_config",
]


@pytest.mark.parametrize("function", INTERRUPTED)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_first_start_that_was_interrupted_is_completed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, *, after: bool
) -> None:
    real = getattr(embedded, function)

    def interrupt(*args: object, **options: object) -> object:
        if after:
            real(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(embedded, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            embedded.start(tmp_path / "s")
    with embedded.start(tmp_path / "s") as steward:
        assert steward.readiness().ready
        assert [epoch.state for epoch in steward.epochs()] == [EpochStage.ACTIVE]
        assert root_of(steward).version == 1
    with embedded.start(tmp_path / "s") as steward:
        assert root_of(steward).version == 1


def test_a_missing_keystore_is_not_created_again(tmp_path: Path) -> None:
    embedded.start(tmp_path / "s").close()
    (tmp_path / "s" / "keystore.json").unlink()
    assert refusal(lambda: embedded.start(tmp_path / "s")) == (UnavailableError, "key_file_missing")
    assert not (tmp_path / "s" / "keystore.json").exists()


def test_a_folder_that_was_rolled_back_is_refused_if_the_checkpoint_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "other-disk").mkdir()
    embedded.start(tmp_path / "s", outside=tmp_path / "other-disk").close()
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    with embedded.start(tmp_path / "s") as steward:
        stand_of(steward).proved("one")
    shutil.rmtree(tmp_path / "s")
    shutil.move(tmp_path / "backup", tmp_path / "s")
    assert refusal(lambda: embedded.start(tmp_path / "s"))[0] is VerificationError


def test_the_other_folder_of_the_checkpoint_must_exist_and_not_change(tmp_path: Path) -> None:
    missing = tmp_path / "not-mounted"
    assert refusal(lambda: embedded.start(tmp_path / "s", outside=missing)) == (InputError, "embedded_outside_missing")
    missing.mkdir()
    with embedded.start(tmp_path / "s", outside=missing) as steward:
        assert steward.readiness().ready
        assert len(list(missing.glob("*.checkpoint"))) == 1
    (tmp_path / "third").mkdir()
    other = tmp_path / "third"
    assert refusal(lambda: embedded.start(tmp_path / "s", outside=other)) == (InputError, "embedded_outside_differs")


def test_a_folder_can_be_moved_as_a_whole(tmp_path: Path) -> None:
    embedded.start(tmp_path / "s").close()
    shutil.move(tmp_path / "s", tmp_path / "t")
    with embedded.start(tmp_path / "t") as steward:
        assert steward.readiness().ready


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o755)
    assert refusal(lambda: embedded.start(tmp_path / "s")) == (NotAllowedError, "embedded_folder_mode")


def test_a_folder_with_other_files_in_it_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    (tmp_path / "s" / "thesis.txt").write_text("x")
    assert refusal(lambda: embedded.start(tmp_path / "s")) == (InputError, "embedded_folder_foreign")
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("place", ["no/such/parent", "file/inside"])
def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    assert refusal(lambda: embedded.start(tmp_path / place)) == (UnavailableError, "embedded_folder_unavailable")


def create_people(tmp_path: Path) -> list[Person]:
    """An operator for break-glass and an attestor, each with a new key pair."""
    found = []
    for identity, role in (("operator-ruth", RootRole.BREAK_GLASS), ("source-payments", RootRole.ATTESTOR)):
        create_key_pair(tmp_path / identity)
        found.append(Person.from_file(identity, role, tmp_path / f"{identity}.pub"))
    return found


def test_people_are_named_in_the_first_root_or_in_the_next(tmp_path: Path) -> None:
    ruth, source = create_people(tmp_path)
    with embedded.start(tmp_path / "s", people=[ruth]) as steward:
        assert root_of(steward).find(ruth.public.key_id) is not None
        assert root_of(steward).version == 1
    with embedded.start(tmp_path / "s", people=[ruth]) as steward:
        assert root_of(steward).version == 1
    with embedded.start(tmp_path / "s", people=[source]) as steward:
        root = root_of(steward)
        assert root.version == 2
        assert {key.identity for key in root.keys} >= {"operator-ruth", "source-payments"}
        assert steward.renew_trust_root().version == 2


@pytest.mark.parametrize("role", [RootRole.NOTARY, RootRole.LOG, RootRole.ROOT])
def test_a_person_cannot_be_named_as_notary_log_or_root(tmp_path: Path, role: RootRole) -> None:
    person = create_people(tmp_path)[0]
    assert refusal(lambda: Person("x", role, person.public)) == (InputError, "embedded_person_role")


@pytest.mark.parametrize("given", [["tom"], "tom", None], ids=repr)
def test_a_person_without_a_key_is_refused_before_anything_is_created(tmp_path: Path, given: Any) -> None:
    assert refusal(lambda: embedded.start(tmp_path / "s", people=given)) == (InputError, "embedded_person_invalid")
    assert not (tmp_path / "s").exists()


def test_a_person_without_a_key_is_not_named_in_a_later_root(steward: EmbeddedSteward) -> None:
    tom: Any = ["tom"]
    assert refusal(lambda: steward.renew_trust_root(tom)) == (InputError, "embedded_person_invalid")


def test_a_key_is_not_named_for_two_people(tmp_path: Path) -> None:
    ruth = create_people(tmp_path)[0]
    twice = [ruth, Person("operator-tom", RootRole.OPERATOR, ruth.public)]
    assert refusal(lambda: embedded.start(tmp_path / "s", people=twice)) == (InputError, "trust_root_key_repeated")
    with embedded.start(tmp_path / "s", people=[ruth]) as steward:
        assert steward.readiness().ready
        assert refusal(lambda: steward.renew_trust_root(twice[1:])) == (InputError, "trust_root_key_repeated")


def test_a_rotation_needs_a_new_trust_root_before_the_activation_and_after_the_revocation(
    steward: EmbeddedSteward,
) -> None:
    steward.create_epoch("rotation")
    assert refusal(lambda: steward.activate_epoch(2, "too early")) == (VerificationError, "trust_root_lacks_epoch")
    assert steward.renew_trust_root().version == 2
    steward.activate_epoch(2, "rotation")
    steward.revoke_epoch(1, "rotation")
    assert steward.renew_trust_root().version == 3
    assert sorted(key.revoked_at is None for key in root_of(steward).keys) == [False, False, True, True, True]
    assert steward.readiness().ready


def test_a_trust_root_past_half_of_its_lifetime_is_renewed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(embedded_root, "ROOT_LIFETIME_SECONDS", 1)
        embedded.start(tmp_path / "s").close()
    time.sleep(1)
    with embedded.start(tmp_path / "s") as steward:
        assert root_of(steward).version == 2
        assert steward.readiness().ready


def test_a_token_that_has_expired_is_replaced_without_the_caller_noticing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "TOKEN_SECONDS", 1)
    with embedded.start(tmp_path / "s") as steward:
        first = steward.identity().token_id
        time.sleep(1.1)
        assert steward.identity().token_id != first


def test_a_clock_jump_during_downtime_is_confirmed_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.start(tmp_path / "s").close()
    later = functools.partial(open_notary, wall=lambda: time.time_ns() // 1_000 + 300 * DAY)
    monkeypatch.setattr(embedded, "open_notary", later)
    ruth = create_people(tmp_path)[0]
    with embedded.start(tmp_path / "s", people=[ruth]) as steward:
        assert [reason.reason for reason in steward.readiness().reasons] == ["clock_jumped"]
        assert refusal(steward.identity) == (UnavailableError, "clock_jumped")
        steward.confirm_clock("the machine was off for the winter")
        assert steward.readiness().ready
        chain = steward.trust_root().chain
        newest = follow_roots(chain, sha256=steward.pin, now=time.time_ns() // 1_000 + 300 * DAY)
        assert newest.find(ruth.public.key_id) is not None


def test_no_token_of_an_embedded_steward_is_written_to_its_folder(steward: EmbeddedSteward) -> None:
    token = steward.token_for(Role.AUDITOR)
    with steward.as_role(Role.AUDITOR) as auditor:
        auditor.info()
    current, _ = steward._wire.tokens.current()  # type: ignore[union-attr]
    for each in (token, current):
        assert traces_in_files(each.reveal(), [steward.folder]) == []
    (steward.folder / "planted").write_bytes(token.reveal())
    assert traces_in_files(token.reveal(), [steward.folder]) != []


def test_the_root_signers_key_has_no_role_but_root(shared_steward: EmbeddedSteward) -> None:
    signer = open_key_pair(shared_steward.folder / "root-signer.pem")
    named = root_of(shared_steward).find(signer.public.key_id)
    assert named is not None
    assert named.roles == (RootRole.ROOT,)
