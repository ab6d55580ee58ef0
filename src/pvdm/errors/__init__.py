"""Every error that pvdm raises: its class, its code, what was expected, what was got, one next step. Calls no room."""

from pvdm.errors.codes import Code
from pvdm.errors.kinds import (
    ConflictError,
    DevelopmentWarning,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
    comparison,
)

__all__ = [
    "Code",
    "ConflictError",
    "DevelopmentWarning",
    "InputError",
    "NotAllowedError",
    "PvdmError",
    "RolledBackError",
    "StateUnknownError",
    "UnavailableError",
    "VerificationError",
    "comparison",
]
