"""What the client does when the Steward, or a gateway in front of it, answers wrongly, late or not at all."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.client import Retries, TimeOuts
from pvdm.client.table import TableClient
from pvdm.client.wire import Response
from pvdm.errors import InputError, NotAllowedError, PvdmError, StateUnknownError, UnavailableError
from tests.support.for_each import for_each
from tests.unit.client.examples import ATTEMPT, CHANGES, ID, IDENTITY, INFO, TOKEN, client
from tests.unit.client.peer import Behaviour, Peer, answer, drop, endless, error, raw, silence, trickle

GOOD = answer(INFO)
RESPONSE_HEAD = b"HTTP/1.1 200 Said\r\ncontent-type: application/json\r\nconnection: close\r\n"
BUSY = error(429, "unavailable")
NOT_READY = error(503, "unavailable")
GATEWAY = answer(status=502, body=b"bad gateway")
ENVELOPE = b'{"payload":"eA==","payloadType":"t","signatures":[]}'
CUT_RESPONSE = RESPONSE_HEAD + b"content-length: 1000\r\n\r\n{"


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


def test_a_request_that_needs_no_token_has_none() -> None:
    with Peer(answer({"alive": True})) as peer, client(peer.url) as steward:
        steward.health()
        assert "authorization" not in peer.requests[0].headers


def test_a_path_of_the_address_is_kept_in_front_of_every_route() -> None:
    with Peer(GOOD) as peer, client(f"{peer.url}/behind/a/proxy/") as steward:
        steward.info()
        assert peer.requests[0].target == "/behind/a/proxy/v1/steward"


def test_a_port_without_a_listener_is_unreachable_and_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with client(f"http://127.0.0.1:{port}") as steward, pytest.raises(UnavailableError) as caught:
        steward.create_epoch("rotation")
    assert (caught.value.reason, caught.value.details["tries"]) == ("steward_unreachable", 1)
    assert "nothing was sent" in caught.value.message


def test_an_error_about_an_unreachable_steward_says_that_an_earlier_try_was_sent() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def drop_first_request_and_stop() -> None:
        connection, _ = listener.accept()
        listener.close()
        with connection:
            connection.recv(65_536)

    stopping = threading.Thread(target=drop_first_request_and_stop)
    stopping.start()
    with client(f"http://127.0.0.1:{port}") as steward, pytest.raises(UnavailableError) as caught:
        steward.info()
    stopping.join()
    assert (caught.value.reason, caught.value.details["tries"]) == ("steward_unreachable", 3)
    assert caught.value.message.endswith("; an earlier try was sent, so it may have happened or not")


def test_an_unknown_host_name_is_unreachable() -> None:
    with client("https://steward.invalid") as steward, pytest.raises(UnavailableError) as caught:
        steward.info()
    assert caught.value.reason == "steward_unreachable"


@for_each(
    "first",
    [
        drop,
        raw(b"HTTP/1.1 200"),
        raw(CUT_RESPONSE),
        raw(b"not http at all\r\n\r\n"),
        error(429, "unavailable"),
        error(503, "unavailable"),
    ],
    ids=["no word", "half a line", "half a body", "nonsense", "429", "503"],
)
def test_a_repeatable_request_is_sent_again_after_a_passing_failure(first: Behaviour) -> None:
    with Peer(first, GOOD) as peer, client(peer.url) as steward:
        assert steward.info().notary == "notary-1"
        assert len(peer.requests) == 2


def test_all_tries_of_a_request_have_one_request_id() -> None:
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


@for_each(("status", "kind"), [(400, "input"), (403, "not_allowed"), (409, "conflict"), (500, "bug")])
def test_a_refused_request_is_not_sent_again(status: int, kind: str) -> None:
    with Peer(error(status, kind)) as peer:
        info_error(peer)
        assert len(peer.requests) == 1


def test_a_request_with_an_unknown_outcome_is_not_sent_again() -> None:
    with Peer(error(503, "state_unknown")) as peer:
        assert isinstance(info_error(peer), StateUnknownError)
        assert len(peer.requests) == 1


def test_the_client_waits_as_long_as_retry_after_says() -> None:
    started = time.monotonic()
    with Peer(error(429, "unavailable", headers={"retry-after": "1"}), GOOD) as peer, client(peer.url) as steward:
        steward.info()
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("asked", ["31", "999999999"])
def test_a_retry_after_longer_than_the_limit_ends_the_call(asked: str) -> None:
    started = time.monotonic()
    with Peer(error(429, "unavailable", headers={"retry-after": asked})) as peer:
        assert info_error(peer).reason == "some_code"
        assert len(peer.requests) == 1
    assert time.monotonic() - started < 5


@for_each("asked", ["soon", "-1", "1e3", "9" * 400, "²"])
def test_a_retry_after_that_is_no_number_is_ignored(asked: str) -> None:
    headers = {"retry-after": asked.encode().decode("latin-1")}
    with Peer(error(503, "unavailable", headers=headers), GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert len(peer.requests) == 2


@for_each(
    "behaviour",
    [
        drop,
        raw(CUT_RESPONSE),
        raw(RESPONSE_HEAD + b"content-length: 4\r\n\r\nnull"),
        answer({"changes": "none"}),
        answer(status=502, body=b"bad gateway"),
    ],
    ids=["no word", "half a body", "null", "wrong type", "a gateway"],
)
def test_a_request_that_may_not_be_repeated_is_sent_once_and_its_lost_answer_is_reported(behaviour: Behaviour) -> None:
    with Peer(behaviour) as peer:
        found = epoch_error(peer)
        assert (type(found), found.reason, len(peer.requests)) == (StateUnknownError, "answer_lost", 1)
        assert found.hint is not None
        assert "epochs()" in found.hint


def test_a_late_answer_to_a_request_that_may_not_be_repeated_is_lost() -> None:
    with Peer(silence(1)) as peer:
        found = epoch_error(peer, time_outs=TimeOuts(read_seconds=0.2))
        assert (found.reason, len(peer.requests)) == ("answer_lost", 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_request_that_may_not_be_repeated_is_sent_once_to_a_busy_steward(status: int) -> None:
    with Peer(error(status, "unavailable")) as peer:
        assert epoch_error(peer).reason == "some_code"
        assert len(peer.requests) == 1


def test_an_error_status_without_an_envelope_is_an_invalid_answer() -> None:
    with Peer(answer(status=404, body=b"<html>")) as peer:
        found = epoch_error(peer)
        assert (type(found), found.reason) == (UnavailableError, "steward_answer_invalid")


def test_an_idempotent_change_is_sent_again_with_the_same_body() -> None:
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
    [RESPONSE_HEAD + b"content-length: 500\r\n\r\n" + b" " * 500, b"HTTP/1.1 200 Said\r\nx: " + b"y" * 500],
    ids=["body", "head"],
)
def test_an_answer_that_trickles_is_ended_by_the_total_time(data: bytes) -> None:
    started = time.monotonic()
    with Peer(trickle(data, every_seconds=0.02)) as peer:
        limits = TimeOuts(read_seconds=5, total_seconds=0.4)
        assert info_error(peer, time_outs=limits, retries=Retries(tries=1)).reason == "steward_timeout"
    assert time.monotonic() - started < 8


def test_one_long_silence_is_ended_by_the_total_time() -> None:
    started = time.monotonic()
    with Peer(silence(4)) as peer:
        limits = TimeOuts(read_seconds=60, total_seconds=0.3)
        assert info_error(peer, time_outs=limits, retries=Retries(tries=1)).reason == "steward_timeout"
        assert time.monotonic() - started < 3


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with Peer(endless) as peer:
        found = info_error(peer, answer_max_bytes=200_000)
        assert (type(found), found.reason, len(peer.requests)) == (UnavailableError, "steward_answer_too_large", 1)


def test_an_answer_of_exactly_the_largest_size_is_read() -> None:
    size = len(json.dumps(INFO))
    with Peer(GOOD) as peer, client(peer.url, answer_max_bytes=size) as steward:
        steward.info()
    with Peer(GOOD) as peer:
        assert info_error(peer, answer_max_bytes=size - 1).reason == "steward_answer_too_large"


def test_a_compressed_answer_is_refused_since_it_may_be_a_bomb() -> None:
    with Peer(answer(INFO, headers={"content-encoding": "gzip"})) as peer:
        assert info_error(peer).reason == "steward_answer_invalid"
        assert peer.requests[0].headers["accept-encoding"] == "identity"


def test_a_call_of_a_closed_client_is_refused() -> None:
    with Peer(GOOD) as peer:
        steward = client(peer.url)
        steward.close()
        steward.close()
        with pytest.raises(InputError) as caught:
            steward.info()
    assert caught.value.reason == "client_closed"


def test_proxies_and_netrc_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Peer(GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert peer.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_rotated_token_is_read_again_after_a_refusal() -> None:
    tokens = iter(["pvdm_old", "pvdm_new"])
    refused = error(401, "not_allowed", "token_expired")
    with Peer(refused, answer(CHANGES)) as peer, client(peer.url, token=lambda: next(tokens)) as steward:
        assert steward.create_epoch("rotation")[0].epoch == 2
        sent = [request.headers["authorization"] for request in peer.requests]
    assert sent == ["Bearer pvdm_old", "Bearer pvdm_new"]


def test_a_token_that_is_refused_twice_is_not_read_a_third_time() -> None:
    with Peer(error(401, "not_allowed", "token_revoked")) as peer:
        found = info_error(peer, token=lambda: "pvdm_some")
        assert (type(found), found.reason, len(peer.requests)) == (NotAllowedError, "token_revoked", 2)


def test_a_plain_token_that_is_refused_is_sent_once() -> None:
    with Peer(error(401, "not_allowed", "token_revoked")) as peer:
        info_error(peer)
        assert len(peer.requests) == 1


def test_the_answer_that_the_steward_is_not_ready_is_not_requested_again() -> None:
    reason = {"code": "clock_jumped", "reason": "clock_jumped", "message": "m", "kind": "unavailable"}
    with Peer(answer({"ready": False, "reasons": [reason]}, status=503)) as peer, client(peer.url) as steward:
        assert [found.reason for found in steward.readiness().reasons] == ["clock_jumped"]
        assert len(peer.requests) == 1


def test_an_answer_that_does_not_call_itself_json_is_refused() -> None:
    with Peer(answer(INFO, headers={"content-type": "text/html"})) as peer:
        assert info_error(peer).reason == "steward_answer_invalid"


def test_a_request_is_sent_again_after_a_gateway_error() -> None:
    with Peer(GATEWAY, GOOD) as peer, client(peer.url) as steward:
        steward.info()
        assert len(peer.requests) == 2


@for_each("body", [json.dumps(INFO).replace('"notary"', '"notary":"other","notary"', 1), "NaN", "[Infinity]", "{} {}"])
def test_a_body_that_two_readers_read_differently_is_refused(body: str) -> None:
    with Peer(answer(body=body.encode())) as peer:
        assert info_error(peer).reason == "steward_answer_invalid"


def test_the_repr_of_a_response_does_not_show_its_body() -> None:
    assert "c7c7" not in repr(Response(200, None, "r", "application/json", b"c7c7"))


PATIENT = Retries(tries=2, total_seconds=20, restart_seconds=15, first_wait_seconds=0.01, longest_wait_seconds=0.02)


@pytest.mark.parametrize("failure", [drop, GATEWAY], ids=["no word", "a proxy's word"])
def test_a_call_of_a_job_waits_for_a_steward_that_restarts(failure: Behaviour) -> None:
    with Peer(*[failure] * 8, answer(ATTEMPT)) as peer, client(peer.url, retries=PATIENT) as steward:
        assert steward.staged(ID).attempt_id == ID
        assert len(peer.requests) == 9


def test_a_call_of_a_job_waits_no_longer_than_restart_seconds() -> None:
    soon = replace(PATIENT, restart_seconds=0.3)
    with Peer(drop) as peer, client(peer.url, retries=soon) as steward, pytest.raises(UnavailableError) as caught:
        steward.staged(ID)
    assert caught.value.reason == "steward_connection_lost"
    assert len(peer.requests) > 2


def test_a_call_that_is_not_a_jobs_does_not_wait_for_a_restart() -> None:
    with Peer(drop) as peer:
        assert info_error(peer, retries=PATIENT).details["tries"] == 2


def test_a_call_of_a_job_does_not_wait_for_a_steward_that_refuses() -> None:
    with Peer(BUSY) as peer, client(peer.url, retries=PATIENT) as steward, pytest.raises(UnavailableError):
        steward.staged(ID)
    assert len(peer.requests) == 2


def test_all_tries_to_get_a_token_for_an_attempt_send_the_hash_of_one_secret() -> None:
    with Peer(drop, drop, answer({"identity": IDENTITY})) as peer, client(peer.url, retries=PATIENT) as steward:
        issued = steward.attempt_token(ID)
        bodies = {request.body for request in peer.requests}
    (body,) = bodies
    assert json.loads(body) == {"secret_sha256": hashlib.sha256(issued.token.text.encode()).hexdigest()}


@pytest.mark.parametrize(("wished", "asked"), [(19.4, "20"), (0.3, "1"), (1_000_000.0, "25")])
def test_a_wait_for_an_attempt_is_rounded_up_within_the_time_outs(wished: float, asked: str) -> None:
    with Peer(answer(ATTEMPT)) as peer, client(peer.url, time_outs=TimeOuts()) as steward:
        steward.attempt(ID, wait_seconds=wished)
        (request,) = peer.requests
    assert request.target.endswith(f"?wait={asked}")


def test_a_request_for_a_token_of_an_attempt_waits_for_a_restart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    soon = replace(PATIENT, restart_seconds=0.3)
    with client(f"http://127.0.0.1:{port}", retries=soon) as steward, pytest.raises(UnavailableError) as caught:
        steward.attempt_token(ID)
    assert int(caught.value.details["tries"]) > 2


def test_all_tries_to_open_an_attempt_send_one_id() -> None:
    with Peer(drop, drop, answer(ATTEMPT)) as peer, client(peer.url) as steward:
        steward.next_attempt("orders-1", "all", "the first", 1)
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
def test_a_refusal_of_the_catalog_keeps_class_and_message(status: int, kind: str, expected: type[PvdmError]) -> None:
    body = {"error": {"message": "not now", "type": kind, "code": status, "pvdm-code": "catalog_says"}}
    with Peer(answer(body, status=status)) as peer, client(peer.url) as steward, pytest.raises(expected) as caught:
        TableClient(steward, ["sales"], "orders").load()
    assert (caught.value.reason, caught.value.message) == ("catalog_says", "not now")


def test_a_refusal_in_the_stewards_own_form_is_read_from_the_catalog_too() -> None:
    with Peer(BUSY) as peer, client(peer.url) as steward, pytest.raises(UnavailableError) as caught:
        TableClient(steward, ["sales"], "orders").load()
    assert caught.value.reason == "some_code"
