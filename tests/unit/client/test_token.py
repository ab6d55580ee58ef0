"""The caller's token: its form, its file, its renewal, and that no text, error or log shows it."""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import pickle
import pprint
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

import pvdm
from pvdm.api.service import Identity
from pvdm.client import AccessToken, StewardClient
from pvdm.client.responses import read_response
from pvdm.client.token import TokenSource, read_token
from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.model.role import TOKEN_MAX_CHARACTERS
from tests.support.for_each import for_each
from tests.support.steward.secret_search import traces
from tests.unit.client.examples import INFO, TOKEN, client
from tests.unit.client.peer import Behaviour, Peer, answer, drop, error

SECRET = TOKEN.encode()
PACKAGE = Path(pvdm.__file__).parent


def locals_of_package_frames(tb: TracebackType | None) -> str:
    """The locals of every frame of the package. The test's own frames are left out: they hold the token."""
    found = []
    while tb is not None:
        if Path(tb.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
            found.append(repr(tb.tb_frame.f_locals))
        tb = tb.tb_next
    return "\n".join(found)


def text_of_error(error: BaseException | None) -> str:
    found = []
    while error is not None:
        found += [repr(error), str(error), repr(error.args), repr(vars(error))]
        found += [locals_of_package_frames(error.__traceback__)]
        found += [json.dumps(error.to_json())] if isinstance(error, PvdmError) else []
        error = error.__cause__ or error.__context__
    return "\n".join(found)


def test_a_token_in_the_text_of_an_error_is_found() -> None:
    with pytest.raises(UnavailableError) as caught:
        read_response(Identity, TOKEN)
    planted = text_of_error(caught.value).replace("an object", TOKEN)
    assert traces(SECRET, planted) != []


@for_each(
    "show",
    [repr, str, ascii, pprint.pformat, lambda token: repr(TokenSource(lambda: token, renewable=False))],
    ids=["repr", "str", "ascii", "pprint", "source"],
)
def test_no_text_form_of_a_token_shows_it(show: Callable[[object], str]) -> None:
    assert traces(SECRET, show(AccessToken(TOKEN))) == []


@for_each(
    "leak",
    [
        lambda token: token == token,  # noqa: PLR0124
        hash,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda token: f"{token}",
        json.dumps,
    ],
    ids=["eq", "hash", "pickle", "copy", "deepcopy", "format", "json"],
)
def test_comparing_pickling_copying_or_formatting_a_token_is_refused(leak: Callable[[object], object]) -> None:
    with pytest.raises(TypeError):
        leak(AccessToken(TOKEN))


@for_each("text", ["", " ", "a b", "a\r\nx: y", "a\x00", "ä", "=", "a" * (TOKEN_MAX_CHARACTERS + 1)])
def test_a_text_that_is_no_bearer_token_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        AccessToken(text)
    assert caught.value.reason == "token_malformed"


def test_the_longest_token_is_accepted() -> None:
    assert AccessToken("a" * TOKEN_MAX_CHARACTERS).text == "a" * TOKEN_MAX_CHARACTERS


MALFORMED = f"{TOKEN}\n{TOKEN}"


@for_each(
    "work",
    [
        lambda: AccessToken(MALFORMED),
        lambda: StewardClient("http://127.0.0.1:1", MALFORMED),
        lambda: StewardClient("ftp://nowhere", TOKEN),
        lambda: StewardClient("http://127.0.0.1:1", TOKEN, token_file=Path("token")),
        lambda: StewardClient("http://127.0.0.1:1").with_token(MALFORMED),
        lambda: StewardClient("http://127.0.0.1:1", lambda: MALFORMED).info(),
        lambda: StewardClient("http://127.0.0.1:1").exchange("id", MALFORMED),
        lambda: pvdm.Steward.connect("ftp://nowhere", TOKEN),
        lambda: pvdm.Steward.connect("http://127.0.0.1:1", MALFORMED),
    ],
    ids=["token", "client", "address", "twice", "with_token", "callable", "exchange", "door", "door's token"],
)
def test_no_frame_of_the_package_holds_a_refused_token(work: Callable[[], object]) -> None:
    with pytest.raises(PvdmError) as caught:
        work()
    assert traces(SECRET, text_of_error(caught.value)) == []


KEY = "c7" * 32


@for_each(
    ("behaviour", "work"),
    [
        (drop, lambda steward: steward.info()),
        (drop, lambda steward: steward.create_epoch("r")),
        (drop, lambda steward: steward.exchange("id", TOKEN)),
        (answer(INFO | {"notary": 7}), lambda steward: steward.info()),
        (error(403, "not_allowed"), lambda steward: steward.info()),
        (answer({"access_token": f"{TOKEN} ", "token_type": "bearer"}), lambda steward: steward.exchange("id", "x")),
        (answer({"identity": {}}), lambda steward: steward.attempt_token("ab" * 16)),
        (answer({"context": {"epoch": KEY, "token": TOKEN}}), lambda steward: steward.open_proof("ab" * 32, "r")),
    ],
    ids=["lost", "lost change", "lost exchange", "unreadable", "refused", "bad token", "bad attempt identity", "keys"],
)
def test_no_frame_of_the_package_holds_the_token_when_a_call_fails(
    behaviour: Behaviour, work: Callable[[StewardClient], object]
) -> None:
    with Peer(behaviour) as peer, client(peer.url) as steward, pytest.raises(PvdmError) as caught:
        work(steward)
    text = text_of_error(caught.value)
    text += "".join(traceback.format_exception(caught.value))
    assert traces(SECRET, text) == []
    assert KEY not in text


def test_the_libraries_below_log_no_token() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        exchanged = answer({"access_token": TOKEN, "token_type": "bearer", "issued_token_type": "t", "expires_in": 1})
        with Peer(exchanged) as peer, client(peer.url) as steward:
            steward.exchange("id", TOKEN)
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
    assert "send_request_headers" in stream.getvalue()
    assert traces(SECRET, stream.getvalue()) == []


def write_token_file(tmp_path: Path, content: str = f"{TOKEN}\n", mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_token_file_that_only_its_owner_can_read_is_accepted(tmp_path: Path, mode: int) -> None:
    assert read_token(write_token_file(tmp_path, mode=mode)).text == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666])
def test_a_token_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(NotAllowedError) as caught:
        read_token(write_token_file(tmp_path, mode=mode))
    assert caught.value.reason == "token_file_mode"


def test_a_token_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_token_file(tmp_path)
    if os.geteuid() == 0:
        os.chown(path, 54_320, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    with pytest.raises(NotAllowedError) as caught:
        read_token(path)
    assert caught.value.reason == "token_file_mode"


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_a_token_file_that_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "token"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    with pytest.raises(InputError) as caught:
        read_token(path)
    assert caught.value.reason == "token_file_invalid"


@pytest.mark.parametrize("content", ["", "two words", "a\nb\n", "a" * (TOKEN_MAX_CHARACTERS + 1)])
def test_a_token_file_that_holds_no_token_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError) as caught:
        read_token(write_token_file(tmp_path, content))
    assert caught.value.reason == "token_malformed"


def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    path = write_token_file(tmp_path, "pvdm_old")
    with Peer(error(401, "not_allowed", "token_expired"), answer(INFO)) as peer:
        with client(peer.url, token=None, token_file=path) as steward:
            path.chmod(0o600)
            steward._wire.tokens.current()  # type: ignore[union-attr]
            path.write_text("pvdm_new")
            steward.info()
        assert [request.headers["authorization"][-3:] for request in peer.requests] == ["old", "new"]


def test_threads_that_are_refused_at_the_same_time_read_one_new_token() -> None:
    calls: list[int] = []

    def give() -> AccessToken:
        calls.append(1)
        return AccessToken(f"pvdm_{len(calls)}")

    source = TokenSource(give, renewable=True)
    _, number = source.current()
    threads = [threading.Thread(target=lambda: (source.renew(number), source.current())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 2


def test_a_token_and_a_token_file_together_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        StewardClient("http://127.0.0.1:1", "a", token_file=Path("b"))
    assert caught.value.reason == "token_given_twice"
