"""The files that an attempt adds and removes, bound by path, size and SHA-256."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, decimal, invalid, require_long, require_sequence, require_sha256, require_text

FILES_MAX: Final = 20_000
_PINNED: Final = "version_id"
_KEYS: Final = (
    "staged_path",
    "staged_size_bytes",
    "staged_sha256",
    "published_path",
    "published_size_bytes",
    "published_sha256",
)


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A verified data file: path and exact bytes as it was staged, and as it is published.

    With storage `copied` the Steward publishes a file of its own, with the staged page bodies. Otherwise both are the
    same. With storage `sealed` also the version of it that the store showed when it was frozen.
    """

    staged_path: str
    staged_size_bytes: int
    staged_sha256: str
    published_path: str
    published_size_bytes: int
    published_sha256: str
    version: str | None = None

    def __post_init__(self) -> None:
        require_text(self.staged_path, "the staged path")
        require_long(self.staged_size_bytes, "the size of a staged file")
        require_sha256(self.staged_sha256, "the hash of a staged file")
        require_text(self.published_path, "the published path")
        require_long(self.published_size_bytes, "the size of a published file")
        require_sha256(self.published_sha256, "the hash of a published file")
        if self.version is not None:
            require_text(self.version, "the version of a file")
        if self.staged_path == self.published_path and self.staged_bytes != self.published_bytes:
            raise invalid("a file that is published in place", "one size and one hash", "two")

    @classmethod
    def in_place(cls, path: str, size_bytes: int, sha256: str, version: str | None = None) -> AddedFile:
        """A staged file that is published as it is, where it is."""
        return cls(path, size_bytes, sha256, path, size_bytes, sha256, version)

    @property
    def staged_bytes(self) -> tuple[int, str]:
        """Size and SHA-256 of the file that the producer wrote."""
        return self.staged_size_bytes, self.staged_sha256

    @property
    def published_bytes(self) -> tuple[int, str]:
        """Size and SHA-256 of the file that consumers read."""
        return self.published_size_bytes, self.published_sha256

    def to_json(self) -> dict[str, Value]:
        """The file in a proof; a version stands there only if one is pinned."""
        pinned: dict[str, Value] = {} if self.version is None else {_PINNED: self.version}
        return {
            "staged_path": self.staged_path,
            "staged_size_bytes": decimal(self.staged_size_bytes),
            "staged_sha256": self.staged_sha256,
            "published_path": self.published_path,
            "published_size_bytes": decimal(self.published_size_bytes),
            "published_sha256": self.published_sha256,
            **pinned,
        }

    @classmethod
    def from_json(cls, value: Value) -> AddedFile:
        """The file that `to_json` wrote."""
        pinned = isinstance(value, Mapping) and _PINNED in value
        fields = Fields(value, "an added file", (*_KEYS, *((_PINNED,) if pinned else ())))
        return cls(
            fields.text("staged_path"),
            fields.decimal("staged_size_bytes"),
            fields.text("staged_sha256"),
            fields.text("published_path"),
            fields.decimal("published_size_bytes"),
            fields.text("published_sha256"),
            fields.text(_PINNED) if pinned else None,
        )


@dataclass(frozen=True, slots=True)
class FileSet:
    """What an attempt adds, in order of published path, and which live paths it removes."""

    added: tuple[AddedFile, ...]
    removed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        published = [file.published_path for file in self.added]
        staged = [file.staged_path for file in self.added]
        require_sequence(published, "the added files", least=0, most=FILES_MAX)
        require_sequence(sorted(staged), "the staged paths", least=0, most=FILES_MAX)
        require_sequence(self.removed, "the removed files", least=0, most=FILES_MAX)
        for path in self.removed:
            require_text(path, "a removed path")
        if both := sorted(set(self.removed).intersection(published, staged)):
            raise invalid("the removed files", "none of the added ones", both[0])

    @property
    def staged_hashes(self) -> tuple[str, ...]:
        """The SHA-256 of each staged file, sorted; equal bytes count as often as they occur."""
        return tuple(sorted(file.staged_sha256 for file in self.added))

    @property
    def published_hashes(self) -> tuple[str, ...]:
        """The same of the published files."""
        return tuple(sorted(file.published_sha256 for file in self.added))

    def to_json(self) -> dict[str, Value]:
        """The files in a proof."""
        return {"added": [file.to_json() for file in self.added], "removed": list(self.removed)}

    @classmethod
    def from_json(cls, value: Value) -> FileSet:
        """The files that `to_json` wrote."""
        fields = Fields(value, "the files", ("added", "removed"))
        added = fields.items("added")
        if len(added) > FILES_MAX:
            raise invalid("the added files", f"at most {FILES_MAX}", str(len(added)))
        return cls(tuple(AddedFile.from_json(file) for file in added), fields.texts("removed"))
