"""Reasons in requests: text of any script is accepted, text without a visible character is refused."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from pvdm.api.base import Reason
from tests.support.for_each import for_each

REASON: TypeAdapter[str] = TypeAdapter(Reason)


@for_each("text", ["late data", "订单", "заказ", "한국", "ｆｕｌｌ", "naïve"])
def test_text_of_any_script_is_accepted(text: str) -> None:
    assert REASON.validate_python(text) == text


@for_each("text", ["", "  ", "\u3000", "\u200b", "\u00a0", "\u2028", "two\nlines", "a\x01"])
def test_text_without_visible_characters_or_with_control_characters_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        REASON.validate_python(text)
