"""The files that an attempt adds and removes, bound by path, size and SHA-256."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.model.document import Value
from pvdm.model.fields import Fields, decimal, invalid, require_long, require_sequence, require_sha256, require_text

FILES_MAX: Final = 20_000
_PINNED: Final = "version_id"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A verified data file: where it was staged, where it is published, its exact bytes.

    With storage `sealed` also the version of it that the store showed when it was frozen.
    """

    staged_path: str
    published_path: str
    size_bytes: int
    sha256: str
    version: str | None = None

    def __post_init__(self) -> None:
        require_text(self.staged_path, "the staged path")
        require_text(self.published_path, "the published path")
        require_long(self.size_bytes, "the size of a file")
        require_sha256(self.sha256, "the hash of a file")
        if self.version is not None:
            require_text(self.version, "the version of a file")

    def to_json(self) -> dict[str, Value]:
        """The file in a proof; a version stands there only if one is pinned."""
        pinned: dict[str, Value] = {} if self.version is None else {_PINNED: self.version}
        return {
            "staged_path": self.staged_path,
            "published_path": self.published_path,
            "size_bytes": decimal(self.size_bytes),
            "sha256": self.sha256,
            **pinned,
        }

    @classmethod
    def from_json(cls, value: Value) -> AddedFile:
        """The file that `to_json` wrote."""
        pinned = isinstance(value, Mapping) and _PINNED in value
        keys = ("staged_path", "published_path", "size_bytes", "sha256", *((_PINNED,) if pinned else ()))
        fields = Fields(value, "an added file", keys)
        return cls(
            fields.text("staged_path"),
            fields.text("published_path"),
            fields.decimal("size_bytes"),
            fields.text("sha256"),
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
    def hashes(self) -> tuple[str, ...]:
        """The SHA-256 of each added file, sorted; equal bytes count as often as they occur."""
        return tuple(sorted(file.sha256 for file in self.added))

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
