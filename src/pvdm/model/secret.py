"""Secret bytes that cannot be printed, compared, pickled or copied into an exception."""

from __future__ import annotations

from typing import Any, ClassVar, Final, NoReturn

from pvdm.errors import Code

KEY_BYTES: Final = 32
EPOCH_MAX: Final = 2**63 - 1


class NoCopies:
    """A base class whose objects cannot be pickled or copied, because they hold a key."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError("secret keys are not pickled")

    def __getstate__(self) -> NoReturn:
        raise TypeError("secret keys are not pickled")

    def __copy__(self) -> NoReturn:
        raise TypeError("secret keys are not copied")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise TypeError("secret keys are not copied")


class Secret(NoCopies):
    """Bytes that only `reveal` returns. Comparing, hashing, formatting, pickling and copying raise a TypeError."""

    __slots__ = ("_material",)

    def __init__(self, material: bytes) -> None:
        self._material = bytes(material)

    def reveal(self) -> bytes:
        """The bytes. Call it only to pass them to a hash or a cipher."""
        return self._material

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> NoReturn:
        # `other` may be the bytes themselves: they must not be in this frame when it raises.
        del other
        raise TypeError("secret keys are not compared")

    def __hash__(self) -> NoReturn:
        raise TypeError("secret keys are not hashed")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("secret keys are not formatted")


class _EpochKey(Secret):
    """A 32-byte key, with the epoch (key generation) of the root key from which it was derived."""

    __slots__ = ("epoch",)
    _name: ClassVar[str] = "key"

    def __init__(self, material: bytes, *, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(material)
        # A traceback may show the locals of the frame that raises: the raw bytes must not be among them.
        del material
        if len(self._material) != KEY_BYTES:
            message, size = f"the {self._name} has the wrong length", len(self._material)
            raise Code.KEY_INVALID(message, reason="key_length", expected=f"{KEY_BYTES} bytes", got=str(size))
        if not 0 <= epoch <= EPOCH_MAX:
            raise Code.EPOCH_INVALID(expected="0 to 2^63-1", got=str(epoch))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epoch={self.epoch})"


class DigestKey(_EpochKey):
    """The key of one projection's digest. The element key, which hashes the rows, is derived from it."""

    __slots__ = ()
    _name = "digest key"


class CommitmentKey(_EpochKey):
    """The key of a proof's commitments: keyed hashes of the digests of one projection. It never hashes rows."""

    __slots__ = ()
    _name = "commitment key"
