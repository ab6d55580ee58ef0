"""The trust root: the first is accepted by its pinned hash, each next by signers of the one before; all are logged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pvdm.errors import PvdmError
from pvdm.trust.keys.epochs import Epoch, KeyRole
from pvdm.trust.root import TrustRoot, sign_root
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import Stand, created, opened, root_naming, signed_root, stand_at
from tools.proof_kit import KEYS, SIGNERS, fixed


@pytest.fixture
def rootless() -> Iterator[Stand]:
    """A Steward without a trust root."""
    with memory_folder() as folder, stand_at(folder, rooted=False) as made:
        yield made


@pytest.fixture
def stand() -> Iterator[Stand]:
    """A Steward under version 1."""
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def active(stand: Stand) -> Epoch:
    found = stand.notary.epochs.book().active
    assert found is not None
    return found


def next_root(stand: Stand, *, without: str | None = None) -> TrustRoot:
    """The next version; `without` leaves one person out, which gives another root of the same version."""
    current = stand.notary.trust.current()
    root = root_naming(active(stand), version=current.version + 1, previous=current.sha256)
    return replace(root, keys=tuple(key for key in root.keys if key.identity != without))


def refusal_of(stand: Stand, envelope: bytes, *, pin: str | None = None) -> str:
    """The reason of the refusal, after which chain and log are as before."""
    trust, before = stand.notary.trust, (stand.notary.trust.chain(), stand.notary.log.size())
    reason = reason_of(lambda: trust.accept(envelope, pin=pin))
    assert (trust.chain(), stand.notary.log.size()) == before
    return reason


def test_a_new_steward_has_no_trust_root(rootless: Stand) -> None:
    assert reason_of(rootless.notary.trust.current) == "steward_without_root"
    assert rootless.notary.trust.chain() == ()


def test_the_first_trust_root_needs_a_pin(rootless: Stand) -> None:
    assert refusal_of(rootless, signed_root(root_naming(active(rootless)))) == "trust_root_pin_missing"


def test_the_first_trust_root_must_be_the_pinned_one(rootless: Stand) -> None:
    root = root_naming(active(rootless))
    assert refusal_of(rootless, signed_root(root), pin=fixed("another root")) == "trust_root_not_pinned"
    assert rootless.notary.trust.accept(signed_root(root), pin=root.sha256) == root


def test_the_configuration_may_hold_the_pin(rootless: Stand) -> None:
    root = root_naming(active(rootless))
    configure_pin(rootless, root.sha256)
    assert rootless.notary.trust.accept(signed_root(root)) == root


def test_a_pin_that_differs_from_the_configured_one_is_refused(rootless: Stand) -> None:
    root = root_naming(active(rootless))
    configure_pin(rootless, root.sha256)
    assert refusal_of(rootless, signed_root(root), pin=fixed("another")) == "trust_root_pin_differs"


def configure_pin(stand: Stand, pin: str | None) -> None:
    """Reopen the Steward with this pin in its configuration."""
    stand.config = replace(stand.config, trust_root_sha256=pin)
    stand.reopen()


def test_a_chain_that_does_not_begin_with_the_pin_is_not_followed(stand: Stand) -> None:
    configure_pin(stand, fixed("another"))
    assert reason_of(stand.notary.trust.current) == "trust_root_not_pinned"


def test_a_first_root_that_its_own_signers_did_not_sign_is_refused(rootless: Stand) -> None:
    root = root_naming(active(rootless))
    envelope = sign_root(root, [SIGNERS["root-one"]]).to_bytes()
    assert refusal_of(rootless, envelope, pin=root.sha256) == "trust_root_self_unsigned"


def test_every_version_is_an_entry_of_the_log(stand: Stand) -> None:
    stand.notary.trust.accept(signed_root(next_root(stand)))
    log = stand.notary.log
    kinds = [json.loads(entry_of(stand.notary, index))["kind"] for index in range(log.size())]
    assert kinds == ["epoch", "epoch", "trust-root", "trust-root"]


def test_the_next_version_is_accepted_and_stored(stand: Stand) -> None:
    first, root = stand.notary.trust.current(), next_root(stand)
    assert stand.notary.trust.accept(signed_root(root)) == root
    assert stand.notary.trust.chain() == (signed_root(first), signed_root(root))
    stand.reopen()
    assert stand.notary.trust.current() == root


def test_the_same_version_again_is_no_change(stand: Stand) -> None:
    root = next_root(stand)
    stand.notary.trust.accept(signed_root(root))
    size = stand.notary.log.size()
    assert (stand.notary.trust.accept(signed_root(root)), stand.notary.log.size()) == (root, size)
    assert len(stand.notary.trust.chain()) == 2


def test_an_older_version_is_refused(stand: Stand) -> None:
    first = stand.notary.trust.current()
    stand.notary.trust.accept(signed_root(next_root(stand)))
    assert refusal_of(stand, signed_root(first)) == "trust_root_rolled_back"


def test_another_root_of_the_same_version_is_refused(stand: Stand) -> None:
    one, other = next_root(stand), next_root(stand, without="source-other")
    stand.notary.trust.accept(signed_root(one))
    assert refusal_of(stand, signed_root(other)) == "trust_root_forked"


def test_a_version_that_skips_one_is_refused(stand: Stand) -> None:
    root = replace(next_root(stand), version=3)
    assert refusal_of(stand, signed_root(root)) == "trust_root_gap"


def test_a_version_that_follows_another_root_is_refused(stand: Stand) -> None:
    root = replace(next_root(stand), previous_sha256=fixed("another root"))
    assert refusal_of(stand, signed_root(root)) == "trust_root_not_successor"


def test_a_version_that_too_few_signed_is_refused(stand: Stand) -> None:
    envelope = sign_root(next_root(stand), [SIGNERS["root-one"]]).to_bytes()
    assert refusal_of(stand, envelope) == "trust_root_unsigned"


def test_a_version_signed_with_unknown_keys_is_refused(stand: Stand) -> None:
    envelope = sign_root(next_root(stand), [SIGNERS["rogue"], SIGNERS["root-three"]]).to_bytes()
    assert refusal_of(stand, envelope) == "trust_root_unsigned"


@pytest.mark.parametrize("role", [KeyRole.SIGNING, KeyRole.LOG], ids=lambda role: role.value)
def test_a_root_that_does_not_name_the_stewards_own_key_is_refused(rootless: Stand, role: KeyRole) -> None:
    named = root_naming(active(rootless))
    missing = active(rootless).key(role).public
    assert missing is not None
    keys = [key for key in named.keys if key.key_id != missing.key_id]
    # Another notary takes its place: without any notary no threshold could be met.
    root = replace(named, keys=tuple(sorted((*keys, KEYS["notary-a"]), key=lambda key: key.key_id)))
    assert refusal_of(rootless, signed_root(root), pin=root.sha256) == "trust_root_lacks_epoch"


@pytest.mark.parametrize("change", ["identity", "epochs"])
def test_a_root_that_names_the_key_for_another_notary_or_epoch_is_refused(rootless: Stand, change: str) -> None:
    wanted = active(rootless).key(KeyRole.SIGNING).public
    assert wanted is not None
    named = root_naming(active(rootless))
    other = {"identity": "steward-two", "epochs": (2,)}
    keys = tuple(
        replace(key, **{change: other[change]}) if key.key_id == wanted.key_id else key  # type: ignore[arg-type]
        for key in named.keys
    )
    root = replace(named, keys=keys)
    assert refusal_of(rootless, signed_root(root), pin=root.sha256) == "trust_root_lacks_epoch"


def test_of_two_next_versions_the_one_that_is_stored_first_wins(stand: Stand) -> None:
    """Without the check under the log's lock both successors would be stored, and the chain could not be read."""
    one, other = next_root(stand), next_root(stand, without="source-other")
    second = opened(stand.config, stand.time)
    real = stand.notary.recorder.record

    def accept_other_then_record(*args: object) -> tuple[int, ...]:
        second.trust.accept(signed_root(other))
        return real(*args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand.notary.recorder, "record", accept_other_then_record)
        assert reason_of(lambda: stand.notary.trust.accept(signed_root(one))) == "trust_root_moved"
    second.close()
    assert stand.notary.trust.current() == other


def test_another_steward_sees_the_new_version_at_once(stand: Stand) -> None:
    other = opened(stand.config, stand.time)
    root = next_root(stand)
    other.trust.accept(signed_root(root))
    assert stand.notary.trust.current() == root
    other.close()


def test_the_first_trust_root_may_have_a_later_version(rootless: Stand) -> None:
    root = root_naming(active(rootless), version=4, previous=fixed("version 3"))
    assert rootless.notary.trust.accept(signed_root(root), pin=root.sha256).version == 4
    assert rootless.notary.trust.accept(signed_root(next_root(rootless))).version == 5


def test_a_steward_that_is_created_again_keeps_its_trust_root(stand: Stand) -> None:
    root, size = stand.notary.trust.current(), stand.notary.log.size()
    stand.notary.close()
    stand.notary = created(stand.config, stand.time, rooted=False)
    assert (stand.notary.trust.current(), stand.notary.log.size()) == (root, size)
