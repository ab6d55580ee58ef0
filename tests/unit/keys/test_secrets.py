"""No output of Python shows a secret: text, pickles, copies, errors, tracebacks, logs. Plain bytes are found there."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest

import pvdm
from pvdm.errors import InputError, PvdmError
from pvdm.model import canonical_json
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import CommitmentKey, DigestKey, Secret
from pvdm.trust.keys.epochs import KeyEntry, KeyRole
from pvdm.trust.keys.file import FileKeystore, open_file_keys
from pvdm.trust.keys.pem import create_key_pair, open_key_pair
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import AttemptKeys, KeyService, release_keys
from tests.support import fault
from tests.support.for_each import for_each
from tests.support.steward.keys import attempt_context, keystore
from tests.support.steward.secret_search import traces

MATERIAL = bytes(range(160, 192))
WORD = "correct horse battery staple"
SECRETS: list[Callable[[], Secret]] = [
    lambda: Secret(MATERIAL),
    lambda: DigestKey(MATERIAL, epoch=3),
    lambda: CommitmentKey(MATERIAL, epoch=3),
    lambda: Passphrase(MATERIAL.hex()),
]


@dataclass(frozen=True)
class Holder:
    secret: Secret


def print_to_text(thing: object) -> str:
    return "\n".join([repr(thing), str(thing), f"{thing!r}", f"{thing!s}", ascii(thing), pprint.pformat(thing)])


def log_to_text(thing: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("test", logging.DEBUG)
    logger.addHandler(handler)
    logger.debug("thing %s %r", thing, thing)
    logger.debug("json %s", json.dumps({"thing": thing}, default=repr))
    return stream.getvalue()


def raise_to_text(thing: object) -> str:
    try:
        raise RuntimeError(thing)
    except RuntimeError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


PACKAGE = Path(pvdm.__file__).parent


def locals_of_package_frames(tb: TracebackType | None) -> str:
    """The locals of every frame of the package. The test's own frames are left out: they hold the secret."""
    found = []
    while tb is not None:
        if Path(tb.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
            found.append(repr(tb.tb_frame.f_locals))
        tb = tb.tb_next
    return "\n".join(found)


def text_of_error(error: BaseException | None) -> str:
    """The texts of the error, the locals of its frames, and the same of every error that caused it."""
    found = []
    while error is not None:
        found += [repr(error), str(error), repr(error.args), repr(vars(error))]
        found += [locals_of_package_frames(error.__traceback__)]
        found += [json.dumps(error.to_json())] if isinstance(error, PvdmError) else []
        error = error.__cause__ or error.__context__
    return "\n".join(found)


@pytest.mark.parametrize("show", [print_to_text, log_to_text, raise_to_text], ids=lambda show: show.__name__)
def test_plain_bytes_are_found_in_every_text_that_is_searched(show: Callable[[object], str]) -> None:
    assert traces(MATERIAL, show(MATERIAL)) != []


def test_plain_bytes_in_the_locals_of_a_frame_are_found() -> None:
    with pytest.raises(InputError) as caught:
        canonical_json.parse(MATERIAL, size_max_bytes=1)
    assert traces(MATERIAL, text_of_error(caught.value)) != []


@pytest.mark.parametrize("make", SECRETS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("show", [print_to_text, log_to_text, raise_to_text], ids=lambda show: show.__name__)
def test_no_text_shows_a_secret(make: Callable[[], Secret], show: Callable[[object], str]) -> None:
    secret = make()
    assert [*traces(MATERIAL, show(secret)), *traces(MATERIAL, show(Holder(secret)))] == []


@for_each("make", SECRETS, ids=lambda make: type(make()).__name__)
@for_each(
    "leak",
    [
        lambda secret: secret == secret,  # noqa: PLR0124
        lambda secret: secret != MATERIAL,
        hash,
        pickle.dumps,
        lambda secret: pickle.dumps(secret, protocol=0),
        copy.copy,
        copy.deepcopy,
        lambda secret: f"{secret}",
        lambda secret: f"{secret:>40}",
        lambda secret: secret.__getstate__(),
        lambda secret: dataclasses.asdict(Holder(secret)),
        lambda secret: dataclasses.astuple(Holder(secret)),
        lambda secret: pickle.dumps(Holder(secret)),
        lambda secret: pickle.dumps(RuntimeError(secret)),
        bytes,
        iter,
        vars,
        json.dumps,
    ],
    ids=[
        "eq",
        "ne",
        "hash",
        "pickle",
        "pickle0",
        "copy",
        "deepcopy",
        "f-string",
        "format",
        "getstate",
        "asdict",
        "astuple",
        "holder",
        "error",
        "bytes",
        "iter",
        "vars",
        "json",
    ],
)
def test_an_operation_that_could_leak_a_secret_is_refused(
    make: Callable[[], Secret], leak: Callable[[Secret], object]
) -> None:
    with pytest.raises(TypeError) as caught:
        leak(make())
    assert traces(MATERIAL, text_of_error(caught.value)) == []


@pytest.mark.parametrize("kind", [DigestKey, CommitmentKey])
def test_a_key_of_the_wrong_length_does_not_show_in_the_error(kind: type[DigestKey | CommitmentKey]) -> None:
    with pytest.raises(InputError) as caught:
        kind(MATERIAL[:31], epoch=1)
    assert traces(MATERIAL[:31], text_of_error(caught.value)) == []


def test_a_passphrase_that_is_too_long_does_not_show_in_the_error() -> None:
    with pytest.raises(InputError) as caught:
        Passphrase(WORD * 60)
    assert traces(WORD.encode(), text_of_error(caught.value)) == []


def test_no_text_shows_the_keys_of_an_attempt(tmp_path: Path) -> None:
    keys = release_keys(keystore(tmp_path / "keys"), attempt_context(), ended=True)
    secrets = [key.reveal() for _, key in (*keys.row_hash, *keys.commitment)]
    shown = print_to_text(keys) + log_to_text(keys) + raise_to_text(keys)
    assert [name for secret in secrets for name in traces(secret, shown)] == []


def test_the_keys_of_an_attempt_cannot_be_pickled(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(release_keys(keystore(tmp_path / "keys"), attempt_context(), ended=True))


def test_the_keys_of_an_attempt_are_not_compared_by_value() -> None:
    assert AttemptKeys((), ()) != AttemptKeys((), ())


def secrets_of(service: KeyService) -> list[bytes]:
    store = service._home
    assert isinstance(store, FileKeystore)
    return [secret.reveal() for secret in (*store._load_content().keys.values(), *store._pending.values())]


@pytest.mark.parametrize("word", [None, WORD], ids=["open", "sealed"])
@pytest.mark.parametrize("point", ["keys.disk.after_temp", "keys.disk.after_rename", "keys.after_make"])
def test_a_write_that_fails_shows_no_key(tmp_path: Path, point: str, word: str | None) -> None:
    service = keystore(tmp_path / "keys", word)
    full = fault.armed(point, fault.Raise(OSError(28, "No space left on device")))
    with full, pytest.raises((PvdmError, OSError)) as caught:
        service.create_epoch("fails")
    shown = text_of_error(caught.value)
    # A keystore file is hex of a document that holds hex: search for both.
    found = [
        name for secret in secrets_of(service) for name in traces(secret, shown) + traces(secret.hex().encode(), shown)
    ]
    assert found == []


def test_a_damaged_keystore_shows_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    secrets = secrets_of(keystore(path))
    path.write_bytes(path.read_bytes()[:-3] + b'0"}')
    with pytest.raises(PvdmError) as caught:
        open_file_keys(path)
    shown = text_of_error(caught.value)
    assert [name for secret in secrets for name in traces(secret, shown) + traces(secret.hex().encode(), shown)] == []


def test_a_wrong_passphrase_shows_neither_the_right_nor_the_wrong_one(tmp_path: Path) -> None:
    keystore(tmp_path / "keys", WORD)
    wrong = "wrong horse battery staple"
    with pytest.raises(PvdmError) as caught:
        open_file_keys(tmp_path / "keys", Passphrase(wrong))
    shown = text_of_error(caught.value)
    assert traces(WORD.encode(), shown) + traces(wrong.encode(), shown) == []


class _ShortHome(FileKeystore):
    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        return super().mac(entry, message)[:31]


def test_a_key_home_that_returns_too_few_bytes_is_refused_without_showing_them(tmp_path: Path) -> None:
    service = keystore(tmp_path / "keys")
    whole = service.row_hash_key(attempt_context(), ProjectionName.CONTENT).reveal()
    short = _ShortHome.open(tmp_path / "keys")
    with pytest.raises(PvdmError) as caught:
        KeyService(short, short).row_hash_key(attempt_context(), ProjectionName.CONTENT)
    assert (caught.value.reason, traces(whole[:31], text_of_error(caught.value))) == ("key_home_inconsistent", [])


def test_no_text_shows_an_operators_key(tmp_path: Path) -> None:
    create_key_pair(tmp_path / "glass.pem")
    key = open_key_pair(tmp_path / "glass.pem")
    seed = key._private.private_bytes_raw()  # type: ignore[union-attr]
    assert traces(seed, print_to_text(key) + log_to_text(key) + raise_to_text(key)) == []


@pytest.mark.parametrize("leak", [pickle.dumps, copy.deepcopy, dataclasses.asdict], ids=lambda leak: leak.__name__)
def test_an_operators_key_cannot_be_copied(tmp_path: Path, leak: Callable[[object], object]) -> None:
    create_key_pair(tmp_path / "glass.pem")
    with pytest.raises(TypeError):
        leak(open_key_pair(tmp_path / "glass.pem"))


def test_the_service_shows_no_key(tmp_path: Path) -> None:
    service = keystore(tmp_path / "keys")
    shown = print_to_text(service) + print_to_text(service.signer(KeyRole.SIGNING, 1)) + print_to_text(service.book())
    assert [name for secret in secrets_of(service) for name in traces(secret, shown)] == []
