"""Errors about an upstream show its name and the kind of failure, never its address."""

from __future__ import annotations

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.upstream import GlueSettings, TableIdentifier, rejected_error, unavailable_error, unknown_outcome_error
from pvdm.lake.upstream.glue import GlueUpstream
from pvdm.lake.upstream.rest import RestSettings, RestUpstream

PLACE = TableIdentifier(("sales",), "orders")


def test_the_error_of_an_unreachable_upstream_has_its_name_and_not_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_message_of_an_upstream_is_escaped_to_one_line_and_keeps_its_quotes() -> None:
    found = rejected_error("prod", PLACE, 'it\'s "so"\n\x1b[31m\u202e')
    assert found.got == 'it\'s "so" \\x1b[31m\\u202e'


@pytest.mark.parametrize(
    "error_for",
    [lambda why: unknown_outcome_error("prod", PLACE, why), lambda why: unavailable_error("prod", "it", why)],
)
def test_only_the_class_of_an_exception_is_shown(error_for: object) -> None:
    assert error_for(OSError("http://secret.internal")).got == "OSError"  # type: ignore[operator]
