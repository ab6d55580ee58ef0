"""What the client does when the Steward, or what stands in its place, answers badly, late or not at all."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.client import Retries, TimeOuts
from pvdm.client.table import TableClient
from pvdm.client.wire import Response
from pvdm.errors import InputError, NotAllowedError, PvdmError, StateUnknownError, UnavailableError
from tests.unit.client.examples import ATTEMPT, CHANGES, ID, IDENTITY, INFO, TOKEN, client
from tests.unit.client.peer import Behaviour, Peer, answer, drop, endless, error, raw, silence, trickle

GOOD = answer(INFO)
HEAD = b"HTTP/1.1 200 Said\r\ncontent-type: application/json\r\nconnection: close\r\n"
BUSY = error(429, "unavailable")
NOT_READY = error(503, "unavailable")
GATEWAY = answer(status=502, body=b"bad gateway")
ENVELOPE = b'{"payload":"eA==","payloadType":"t","signatures":[]}'
CUT = HEAD + b"content-length: 1000\r\n\r\n{"


def info_error(peer: Peer, **options: object) -> PvdmError:
    with client(peer.url, **options) as steward, pytest.raises(PvdmError) as caught:
        steward.info()
    return caught.value


def epoch_error(peer: Peer, **options: object) -> PvdmError:
    with client(peer.url, **options) as steward, pytest.raises(PvdmError) as caught:
        steward.create_epoch("rotation")
    return caught.value


def test_an_answer_comes_back_as_a_typed_value() -> None:
    with Peer(GOOD) as peer, client(peer.url) as steward:
        assert steward.info().log_size == 9_007_199_254_740_993


def test_the_token_goes_into_the_header_and_nowhere_else() -> None:
    with Peer(GOOD) as peer, client(peer.url) as steward:
        steward.info()
        request = peer.requests[0]
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    others = {name: value for name, value in request.headers.items() if name != "authorization"}
    assert TOKEN not in f"{request.target} {others} {request.body!r}"


def test_a_route_that_needs_no_token_is_not_sent_one() -> None:
    with Peer(answer({"alive": True})) as peer, client(peer.url) as steward:
        steward.health()
        assert "authorization" not in peer.requests[0].headers


def test_a_path_of_the_address_is_kept_in_front_of_every_route() -> None:
    with Peer(GOOD) as peer, client(f"{peer.url}/behind/a/proxy/") as steward:
        steward.info()
        assert peer.requests[0].target == "/behind/a/proxy/v1/steward"


def test_nobody_listening_is_unreachable_and_says_that_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with client(f"http://127.0.0.1:{port}") as steward, pytest.raises(UnavailableError) as caught:
        steward.create_epoch("rotation")
    assert (caught.value.reason, caught.value.details["tries"]) == ("steward_unreachable", 1)
    assert "nothing was sent" in caught.value.message


def test_a_name_that_nobody_knows_is_unreachable() -> None:
    with client("https://steward.invalid") as steward, pytest.raises(UnavailableError) as caught:
        steward.info()
    assert caught.value.reason == "steward_unreachable"


@pytest.mark.parametrize(
    "first",
    [
        drop,
        raw(b"HTTP/1.1 200"),
        raw(CUT),
        raw(b"not http at all\r\n\r\n"),
        error(429, "unavailable"),
        error(503, "unavailable"),
    ],
    ids=["no word", "half a line", "half a body", "nonsense", "429", "503"],
)
def test_a_question_is_asked_again_after_a_failure_that_passes(first: Behaviour) -> None:
    with Peer(first, GOOD) as peer, client(peer.url) as steward:
        assert steward.info().notary == "notary-1"
        assert len(peer.requests) == 2


def test_tries_of_one_question_have_one_request_id() -> None:
    with Peer(drop, GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert len({request.headers["x-request-id"] for request in peer.requests}) == 1


def test_tries_are_bounded_in_number() -> None:
    with Peer(drop) as peer:
        found = info_error(peer)
        assert (found.reason, found.details["tries"], len(peer.requests)) == ("steward_connection_lost", 3, 3)


def test_tries_are_bounded_in_time() -> None:
    retries = Retries(tries=100, total_seconds=1.5, first_wait_seconds=0.2, longest_wait_seconds=0.2)
    started = time.monotonic()
    with Peer(drop) as peer:
        info_error(peer, retries=retries)
        assert 2 <= len(peer.requests) < 100
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(("status", "kind"), [(400, "input"), (403, "not_allowed"), (409, "conflict"), (500, "bug")])
def test_a_refusal_is_not_asked_again(status: int, kind: str) -> None:
    with Peer(error(status, kind)) as peer:
        info_error(peer)
        assert len(peer.requests) == 1


def test_a_state_that_is_unknown_is_never_asked_again_whatever_its_status() -> None:
    with Peer(error(503, "state_unknown")) as peer:
        assert isinstance(info_error(peer), StateUnknownError)
        assert len(peer.requests) == 1


def test_the_steward_is_left_in_peace_for_as_long_as_it_asks() -> None:
    started = time.monotonic()
    with Peer(error(429, "unavailable", headers={"retry-after": "1"}), GOOD) as peer, client(peer.url) as steward:
        steward.info()
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("asked", ["31", "999999999"])
def test_who_asks_for_more_patience_than_there_is_gets_no_second_try(asked: str) -> None:
    started = time.monotonic()
    with Peer(error(429, "unavailable", headers={"retry-after": asked})) as peer:
        assert info_error(peer).reason == "some_code"
        assert len(peer.requests) == 1
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("asked", ["soon", "-1", "1e3", "9" * 400, "²"])
def test_a_retry_after_that_is_no_number_is_passed_over(asked: str) -> None:
    headers = {"retry-after": asked.encode().decode("latin-1")}
    with Peer(error(503, "unavailable", headers=headers), GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert len(peer.requests) == 2


@pytest.mark.parametrize(
    "behaviour",
    [
        drop,
        raw(CUT),
        raw(HEAD + b"content-length: 4\r\n\r\nnull"),
        answer({"changes": "none"}),
        answer(status=502, body=b"bad gateway"),
    ],
    ids=["no word", "half a body", "null", "wrong type", "a gateway"],
)
def test_a_lost_answer_to_what_cannot_be_repeated_says_so_and_is_sent_once(behaviour: Behaviour) -> None:
    with Peer(behaviour) as peer:
        found = epoch_error(peer)
        assert (type(found), found.reason, len(peer.requests)) == (StateUnknownError, "answer_lost", 1)
        assert found.hint is not None
        assert "epochs()" in found.hint


def test_a_late_answer_to_what_cannot_be_repeated_is_lost() -> None:
    with Peer(silence(1)) as peer:
        found = epoch_error(peer, time_outs=TimeOuts(read_seconds=0.2))
        assert (found.reason, len(peer.requests)) == ("answer_lost", 1)


@pytest.mark.parametrize("status", [429, 503])
def test_what_cannot_be_repeated_is_not_repeated_when_the_steward_is_busy(status: int) -> None:
    with Peer(error(status, "unavailable")) as peer:
        assert epoch_error(peer).reason == "some_code"
        assert len(peer.requests) == 1


def test_a_refusal_without_an_envelope_is_still_a_refusal() -> None:
    with Peer(answer(status=404, body=b"<html>")) as peer:
        found = epoch_error(peer)
        assert (type(found), found.reason) == (UnavailableError, "steward_answer_invalid")


def test_what_is_idempotent_by_content_is_sent_again_with_the_same_body() -> None:
    done = answer({"version": 1, "sha256": "ab" * 32})
    with Peer(drop, error(503, "unavailable"), done) as peer, client(peer.url) as steward:
        assert steward.submit_trust_root(ENVELOPE, sha256="ab" * 32).version == 1
        assert len(peer.requests) == 3
        assert len({request.body for request in peer.requests}) == 1


@pytest.mark.parametrize("target", ["https://elsewhere.example/v1/steward", "/v1/other"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int, target: str) -> None:
    with Peer(answer({}, status=status, headers={"location": target})) as peer:
        assert info_error(peer).reason == "steward_redirected"
        assert len(peer.requests) == 1


def test_an_answer_that_never_comes_is_a_time_out() -> None:
    with Peer(silence(2)) as peer:
        found = info_error(peer, time_outs=TimeOuts(read_seconds=0.1), retries=Retries(tries=1))
        assert (type(found), found.reason) == (UnavailableError, "steward_timeout")


@pytest.mark.parametrize(
    "data",
    [HEAD + b"content-length: 500\r\n\r\n" + b" " * 500, b"HTTP/1.1 200 Said\r\nx: " + b"y" * 500],
    ids=["body", "head"],
)
def test_an_answer_that_trickles_is_ended_by_the_total_time(data: bytes) -> None:
    started = time.monotonic()
    with Peer(trickle(data, every_seconds=0.02)) as peer:
        limits = TimeOuts(read_seconds=5, total_seconds=0.4)
        assert info_error(peer, time_outs=limits, retries=Retries(tries=1)).reason == "steward_timeout"
    assert time.monotonic() - started < 8


def test_one_long_silence_is_ended_by_the_total_time_too() -> None:
    started = time.monotonic()
    with Peer(silence(4)) as peer:
        limits = TimeOuts(read_seconds=60, total_seconds=0.3)
        assert info_error(peer, time_outs=limits, retries=Retries(tries=1)).reason == "steward_timeout"
        assert time.monotonic() - started < 3


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with Peer(endless) as peer:
        found = info_error(peer, answer_max_bytes=200_000)
        assert (type(found), found.reason, len(peer.requests)) == (UnavailableError, "steward_answer_too_large", 1)


def test_an_answer_of_just_the_size_that_is_allowed_is_read() -> None:
    size = len(json.dumps(INFO))
    with Peer(GOOD) as peer, client(peer.url, answer_max_bytes=size) as steward:
        steward.info()
    with Peer(GOOD) as peer:
        assert info_error(peer, answer_max_bytes=size - 1).reason == "steward_answer_too_large"


def test_a_compressed_answer_is_refused_since_it_may_be_a_bomb() -> None:
    with Peer(answer(INFO, headers={"content-encoding": "gzip"})) as peer:
        assert info_error(peer).reason == "steward_answer_invalid"
        assert peer.requests[0].headers["accept-encoding"] == "identity"


def test_a_closed_client_says_so() -> None:
    with Peer(GOOD) as peer:
        steward = client(peer.url)
        steward.close()
        steward.close()
        with pytest.raises(InputError) as caught:
            steward.info()
    assert caught.value.reason == "client_closed"


def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Peer(GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert peer.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_token_that_was_rotated_is_asked_for_once_more() -> None:
    tokens = iter(["pvdm_old", "pvdm_new"])
    refused = error(401, "not_allowed", "token_expired")
    with Peer(refused, answer(CHANGES)) as peer, client(peer.url, token=lambda: next(tokens)) as steward:
        assert steward.create_epoch("rotation")[0].epoch == 2
        sent = [request.headers["authorization"] for request in peer.requests]
    assert sent == ["Bearer pvdm_old", "Bearer pvdm_new"]


def test_a_token_that_is_refused_twice_is_not_asked_for_a_third_time() -> None:
    with Peer(error(401, "not_allowed", "token_revoked")) as peer:
        found = info_error(peer, token=lambda: "pvdm_some")
        assert (type(found), found.reason, len(peer.requests)) == (NotAllowedError, "token_revoked", 2)


def test_a_plain_token_that_is_refused_is_sent_once() -> None:
    with Peer(error(401, "not_allowed", "token_revoked")) as peer:
        info_error(peer)
        assert len(peer.requests) == 1


def test_not_being_ready_is_an_answer_and_asked_for_once() -> None:
    reason = {"code": "clock_jumped", "reason": "clock_jumped", "message": "m", "kind": "unavailable"}
    with Peer(answer({"ready": False, "reasons": [reason]}, status=503)) as peer, client(peer.url) as steward:
        assert [found.reason for found in steward.readiness().reasons] == ["clock_jumped"]
        assert len(peer.requests) == 1


def test_an_answer_that_does_not_call_itself_json_is_refused() -> None:
    with Peer(answer(INFO, headers={"content-type": "text/html"})) as peer:
        assert info_error(peer).reason == "steward_answer_invalid"


def test_a_gateway_that_fails_is_asked_again() -> None:
    with Peer(GATEWAY, GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert len(peer.requests) == 2


@pytest.mark.parametrize(
    "body", [json.dumps(INFO).replace('"notary"', '"notary":"other","notary"', 1), "NaN", "[Infinity]", "{} {}"]
)
def test_a_body_that_two_readers_read_differently_is_refused(body: str) -> None:
    with Peer(answer(body=body.encode())) as peer:
        assert info_error(peer).reason == "steward_answer_invalid"


def test_an_answer_does_not_show_its_body() -> None:
    assert "c7c7" not in repr(Response(200, None, "r", "application/json", b"c7c7"))


AWAY = Retries(tries=2, total_seconds=20, restart_seconds=15, first_wait_seconds=0.01, longest_wait_seconds=0.02)


@pytest.mark.parametrize("away", [drop, GATEWAY], ids=["no word", "a proxy's word"])
def test_a_jobs_call_waits_for_a_steward_that_starts_again(away: Behaviour) -> None:
    with Peer(*[away] * 8, answer(ATTEMPT)) as peer, client(peer.url, retries=AWAY) as steward:
        assert steward.staged(ID).attempt_id == ID
        assert len(peer.requests) == 9


def test_a_jobs_call_waits_no_longer_than_it_may() -> None:
    soon = replace(AWAY, restart_seconds=0.3)
    with Peer(drop) as peer, client(peer.url, retries=soon) as steward, pytest.raises(UnavailableError) as caught:
        steward.staged(ID)
    assert caught.value.reason == "steward_connection_lost"
    assert len(peer.requests) > 2


def test_another_question_does_not_wait_for_a_start() -> None:
    with Peer(drop) as peer:
        assert info_error(peer, retries=AWAY).details["tries"] == 2


def test_a_steward_that_refuses_is_not_taken_for_one_that_is_away() -> None:
    with Peer(BUSY) as peer, client(peer.url, retries=AWAY) as steward, pytest.raises(UnavailableError):
        steward.staged(ID)
    assert len(peer.requests) == 2


def test_the_tries_of_a_token_for_an_attempt_name_one_secret_by_its_hash() -> None:
    with Peer(drop, drop, answer({"identity": IDENTITY})) as peer, client(peer.url, retries=AWAY) as steward:
        made = steward.attempt_token(ID)
        bodies = {request.body for request in peer.requests}
    (body,) = bodies
    assert json.loads(body) == {"secret_sha256": hashlib.sha256(made.token.text.encode()).hexdigest()}


@pytest.mark.parametrize(("wished", "asked"), [(19.4, "20"), (0.3, "1"), (1_000_000.0, "25")])
def test_a_wait_for_an_attempt_is_rounded_up_within_the_time_outs(wished: float, asked: str) -> None:
    with Peer(answer(ATTEMPT)) as peer, client(peer.url, time_outs=TimeOuts()) as steward:
        steward.attempt(ID, wait_seconds=wished)
        (request,) = peer.requests
    assert request.target.endswith(f"?wait={asked}")


def test_a_token_for_an_attempt_waits_for_a_steward_that_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    soon = replace(AWAY, restart_seconds=0.3)
    with client(f"http://127.0.0.1:{port}", retries=soon) as steward, pytest.raises(UnavailableError) as caught:
        steward.attempt_token(ID)
    assert int(caught.value.details["tries"]) > 2


def test_the_tries_of_a_new_attempt_name_one_id() -> None:
    with Peer(drop, drop, answer(ATTEMPT)) as peer, client(peer.url) as steward:
        steward.next_attempt("orders-1", "all", "the first")
        bodies = {request.body for request in peer.requests}
    (body,) = bodies
    assert len(json.loads(body)["attempt_id"]) == 32


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (503, "ServiceUnavailableException", UnavailableError),
        (429, "TooManyRequestsException", UnavailableError),
        (401, "NotAuthorizedException", NotAllowedError),
    ],
)
def test_a_refusal_of_the_catalog_is_told_as_it_is(status: int, kind: str, expected: type[PvdmError]) -> None:
    said = {"error": {"message": "not now", "type": kind, "code": status, "pvdm-code": "catalog_says"}}
    with Peer(answer(said, status=status)) as peer, client(peer.url) as steward, pytest.raises(expected) as caught:
        TableClient(steward, ["sales"], "orders").load()
    assert (caught.value.reason, caught.value.message) == ("catalog_says", "not now")


def test_a_refusal_before_the_catalog_is_told_as_it_is() -> None:
    with Peer(BUSY) as peer, client(peer.url) as steward, pytest.raises(UnavailableError) as caught:
        TableClient(steward, ["sales"], "orders").load()
    assert caught.value.reason == "some_code"
