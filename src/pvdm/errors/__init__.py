"""Every error that pvdm raises: its class, code, expected and actual value, and next step. Calls no other package."""

from pvdm.errors.codes import Code
from pvdm.errors.kinds import (
    ConflictError,
    DevelopmentWarning,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    SegmentEndedError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
    comparison,
    expect,
)

__all__ = [
    "Code",
    "ConflictError",
    "DevelopmentWarning",
    "InputError",
    "NotAllowedError",
    "PvdmError",
    "RolledBackError",
    "SegmentEndedError",
    "StateUnknownError",
    "UnavailableError",
    "VerificationError",
    "comparison",
    "expect",
]
