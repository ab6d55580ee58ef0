"""An epoch book (the list of a Steward's key epochs) in a file, for tests of key homes without a ledger."""

from __future__ import annotations

import threading
from pathlib import Path

from pvdm.errors import Code, InputError
from pvdm.model.secret import Secret
from pvdm.trust.keys import disk
from pvdm.trust.keys.epochs import BOOK_SIZE_MAX_BYTES, EpochBook


class FileEpochStore:
    """Stores an epoch book in one file."""

    __slots__ = ("_lock", "_path", "_seen")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._seen = -1

    @classmethod
    def create(cls, path: Path) -> FileEpochStore:
        """Create a file with a book without epochs. An existing file is never overwritten."""
        with disk.hold_lock(path):
            disk.write(path, Secret(EpochBook().to_bytes()), mode=disk.PRIVATE_MODE, fresh=True)
        return cls(path)

    def load(self) -> EpochBook:
        """The current book of the file. A missing file is an error."""
        with self._lock:
            data = disk.read_own(self._path, size_max_bytes=BOOK_SIZE_MAX_BYTES)
            try:
                book = EpochBook.parse(data)
            except InputError as error:
                raise Code.KEY_FILES_DAMAGED(
                    f"{self._path.name} is truncated or was changed",
                    reason="epoch_book_damaged",
                    expected=error.expected,
                    got=error.got,
                    hint="restore the last good copy",
                ) from None
            if book.revision < self._seen:
                raise Code.KEY_FILES_DAMAGED(
                    f"{self._path.name} is older than what this process has seen",
                    reason="epoch_book_rolled_back",
                    expected=f"revision {self._seen} or later",
                    got=f"revision {book.revision}",
                    hint="the file was replaced by an old copy; revoked epochs may be usable in it",
                )
            self._seen = book.revision
            return book

    def replace(self, book: EpochBook) -> bool:
        """Store this book if the file's book has the previous revision; returns whether it did."""
        with self._lock, disk.hold_lock(self._path):
            if book.revision != self.load().revision + 1:
                return False
            disk.write(self._path, Secret(book.to_bytes()), mode=disk.PRIVATE_MODE)
            return True
