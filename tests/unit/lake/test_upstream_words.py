"""What is said of an upstream that does not answer: its name, and the kind of failure; never its address."""

from __future__ import annotations

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.upstream import GlueSettings, TableIdentifier, rejected, unavailable, unknown
from pvdm.lake.upstream.glue import GlueUpstream
from pvdm.lake.upstream.rest import RestSettings, RestUpstream

PLACE = TableIdentifier(("sales",), "orders")


def test_an_upstream_that_is_down_is_told_by_its_name_and_not_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    address = "http://127.0.0.1:9"
    for upstream in (
        RestUpstream("prod", RestSettings(address, timeout_seconds=20)),
        GlueUpstream("prod", GlueSettings("eu-central-1", endpoint=address, timeout_seconds=20)),
    ):
        with pytest.raises(UnavailableError) as caught:
            upstream.load(PLACE)
        upstream.close()
        assert "prod" in caught.value.message
        assert "127.0.0.1" not in str(caught.value.to_json())
        assert caught.value.got in ("ConnectionError", "EndpointConnectionError")


def test_words_of_an_upstream_are_told_on_one_line_with_their_quotes_as_they_are() -> None:
    found = rejected("prod", PLACE, 'it\'s "so"\n\x1b[31m\u202e')
    assert found.got == 'it\'s "so" \\x1b[31m\\u202e'


@pytest.mark.parametrize("made", [lambda why: unknown("prod", PLACE, why), lambda why: unavailable("prod", "it", why)])
def test_of_an_exception_only_its_kind_is_told(made: object) -> None:
    assert made(OSError("http://secret.internal")).got == "OSError"  # type: ignore[operator]
