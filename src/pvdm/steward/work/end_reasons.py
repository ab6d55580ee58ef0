"""Why an attempt ended, kept whole in its row: the refusal of verify or of the gate, or a plain sentence."""

from __future__ import annotations

import json

from pvdm.api.errors import RefusalView
from pvdm.errors import PvdmError
from pvdm.ledger.ids import REASON_MAX_CHARACTERS

_KEYS = ("code", "message", "expected", "got", "hint")
_PART_CHARACTERS = 600


def reason_of(error: PvdmError) -> str:
    """The error as the reason of an attempt's step; `refusal_in` reads it back."""
    parts = {key: getattr(error, key) for key in _KEYS}
    cut = {key: None if part is None else str(part)[:_PART_CHARACTERS] for key, part in parts.items()}
    text = json.dumps(cut, ensure_ascii=False).replace("\x00", "")
    # Escapes can make a part longer than it is: what does not fit is told by its code and its first words.
    short = json.dumps({**dict.fromkeys(_KEYS), "code": error.code, "message": str(error.message)[:80]})
    return text if len(text) <= REASON_MAX_CHARACTERS else short


def refusal_in(reason: str) -> RefusalView | None:
    """The refusal in a reason that `reason_of` wrote; None for a plain sentence."""
    if not reason.startswith('{"code"'):
        return None
    try:
        found = json.loads(reason)
        return RefusalView(**{key: found[key] for key in _KEYS})
    except (ValueError, KeyError):
        return None


def sentence_of(reason: str) -> str:
    """The reason for people: of a refusal its code and message."""
    found = refusal_in(reason)
    return reason if found is None else f"{found.code}: {found.message}"
