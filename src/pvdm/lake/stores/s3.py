"""Files in an S3-compatible store. Every write is conditional. After a lost response the object is read to check it."""

from __future__ import annotations

import contextlib
import errno
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pvdm import fault
from pvdm.lake.paths import Location
from pvdm.lake.stores.circuit_breaker import breaker_of
from pvdm.lake.stores.s3_client import S3Settings, call_store, open_client
from pvdm.lake.stores.store import PIECE_BYTES, FileFacts, FileStream, ListedFile, WriteHooks

_WRITE_TRIES: Final = 4  # of `put`; a try fails if another writer creates, changes or deletes the object meanwhile


class S3Store:
    """Objects by their keys. Every write has a condition: that no object is there, or an object with a given ETag."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self.client = open_client(settings)
        weakref.finalize(self, self.client.close)

    def start_reading(self, place: Location) -> FileStream:
        """Begin to read one version. After a broken connection, reading continues at the same byte of this version."""
        answer = call_store(self.client.get_object, **_object_arguments(place))
        return FileStream(answer.get("VersionId"), self._read_pieces(place, answer))

    def _read_pieces(self, place: Location, answer: Any) -> Iterator[bytes]:
        tag, size, seen = answer["ETag"], answer["ContentLength"], 0
        for tries_left in reversed(range(self.settings.tries)):
            try:
                while piece := self._read_piece(place, answer, PIECE_BYTES):
                    seen += len(piece)
                    yield piece
                return
            except OSError:
                if tries_left == 0 or seen >= size:  # no range can begin after the last byte
                    raise
            finally:
                answer["Body"].close()  # also if the caller stops before the end
            answer = call_store(self.client.get_object, **_object_arguments(place), Range=f"bytes={seen}-", IfMatch=tag)

    def _read_and_close(self, place: Location, answer: Any, max_bytes: int | None = None) -> bytes:
        """The body of a response, or its first `max_bytes` bytes."""
        with contextlib.closing(answer["Body"]):
            return self._read_piece(place, answer, max_bytes)

    def _read_piece(self, place: Location, answer: Any, max_bytes: int | None) -> bytes:
        """The next bytes of a response body. The circuit breaker counts a server that stops sending as silent."""
        begun = time.monotonic()
        try:
            found: bytes = call_store(answer["Body"].read, of_bucket=place.authority, amt=max_bytes)
        except TimeoutError:
            breaker_of(self.client.meta.endpoint_url).record_silence(begun)
            raise
        return found

    def read_end(self, place: Location, size: int) -> bytes:
        """The last `size` bytes; no other bytes are read."""
        if size == 0 or self.facts(place).size == 0:
            return b""
        answer = call_store(self.client.get_object, **_object_arguments(place), Range=f"bytes=-{size}")
        return self._read_and_close(place, answer)

    def facts(self, place: Location) -> FileFacts:
        """The size and the current version."""
        answer = call_store(self.client.head_object, **_object_arguments(place))
        return FileFacts(answer["ContentLength"], answer.get("VersionId"))

    def read_tagged(self, place: Location, max_bytes: int) -> tuple[bytes, str]:
        """The bytes, at most one more than `max_bytes`, and the object's ETag, for `swap`."""
        answer = call_store(self.client.get_object, **_object_arguments(place))
        return self._read_and_close(place, answer, max_bytes + 1), answer["ETag"]

    def put_new(self, place: Location, data: bytes, hooks: WriteHooks) -> None:
        """Write a new object. Raises FileExistsError if it exists, even if this call wrote it and lost the response."""
        hooks.before_sync()
        hooks.after_temp()  # an object has no temporary file
        self._write(place, data, IfNoneMatch="*")
        hooks.after_name()

    def put(self, place: Location, data: bytes, hooks: WriteHooks) -> None:
        """Write a new object, or replace exactly the object that was read just before."""
        hooks.before_sync()
        hooks.after_temp()
        for _ in range(_WRITE_TRIES):
            try:
                self._write(place, data, IfNoneMatch="*")
                break
            except FileExistsError:
                pass
            try:
                found, tag = self.read_tagged(place, len(data))
            except FileNotFoundError:
                continue  # deleted since: there is nothing to replace
            if found == data or self.swap(place, data, tag):
                break
        else:
            raise OSError(errno.EIO, "others write the same object")
        hooks.after_name()

    def swap(self, place: Location, data: bytes, tag: str) -> bool:
        """Replace the object if it has this ETag. Returns whether the object has `data` now."""
        try:
            self._write(place, data, IfMatch=tag)
        except (FileExistsError, FileNotFoundError):
            # An earlier try may have succeeded with its response lost.
            return self._has_bytes(place, data)
        return True

    def _write(self, place: Location, data: bytes, **condition: str) -> None:
        """Write under a condition. Writes that conflict are sent again; AWS's library may also send a write twice."""
        for tries_left in reversed(range(self.settings.tries)):
            try:
                call_store(self.client.put_object, **_object_arguments(place), Body=data, **condition)
                return
            except (FileExistsError, FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                is_conflict = "ConditionalRequestConflict" in str(error.strerror)
                if is_conflict and tries_left:
                    continue
                # The outcome is unknown: the write happened if the object has these bytes.
                if self._has_bytes(place, data):
                    return
                raise

    def _has_bytes(self, place: Location, data: bytes) -> bool:
        try:
            return self.read_tagged(place, len(data))[0] == data
        except FileNotFoundError:
            return False

    def files(self, folder: Location) -> list[ListedFile]:
        """The objects directly below the prefix."""
        return list(self.walk(folder, Delimiter="/"))

    def folders(self, folder: Location) -> list[str]:
        """The last parts of the common prefixes directly below the prefix."""
        pages = self._list_pages(folder, Delimiter="/")
        found = (str(each["Prefix"]) for page in pages for each in page.get("CommonPrefixes", []))
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)

    def versions(self, folder: Location) -> dict[Location, str]:
        """The current version of every object below the prefix."""
        found: dict[Location, str] = {}
        prefix, start = _key_prefix(folder), dict[str, str]()
        while True:
            page = call_store(self.client.list_object_versions, Bucket=folder.authority, Prefix=prefix, **start)
            for each in page.get("Versions", []):
                if each["IsLatest"]:
                    found[Location("s3", folder.authority, tuple(each["Key"].split("/")))] = each["VersionId"]
            if not page.get("IsTruncated"):
                return found
            after = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
            start = _next_page(folder, start, after)

    def abort_uploads(self, folder: Location) -> None:
        """Abort every multipart upload below the prefix."""
        bucket, aborted = folder.authority, set[tuple[str, str]]()
        while True:
            page = call_store(self.client.list_multipart_uploads, Bucket=bucket, Prefix=_key_prefix(folder))
            listed = {(each["Key"], each["UploadId"]) for each in page.get("Uploads", [])}
            if not listed:
                return
            if listed <= aborted:
                raise OSError(errno.EIO, f"the store of the bucket {bucket} still lists aborted uploads")
            for key, upload in sorted(listed - aborted):
                with contextlib.suppress(FileNotFoundError):
                    call_store(self.client.abort_multipart_upload, Bucket=bucket, Key=key, UploadId=upload)
            aborted |= listed

    def walk(self, folder: Location, **options: str) -> Iterator[ListedFile]:
        """Every object below the prefix, at any depth unless an option limits it."""
        for page in self._list_pages(folder, **options):
            for each in page.get("Contents", []):
                if each["Key"] != _key_prefix(folder):  # an object of this name only stands for the folder
                    place = Location(folder.scheme, folder.authority, tuple(str(each["Key"]).split("/")))
                    yield ListedFile(place, each["Size"], each["LastModified"].timestamp())

    def _list_pages(self, folder: Location, **options: str) -> Iterator[dict[str, Any]]:
        arguments, start = {"Bucket": folder.authority, "Prefix": _key_prefix(folder), **options}, dict[str, str]()
        while True:
            page = call_store(self.client.list_objects_v2, **arguments, **start)
            yield page
            if not page.get("IsTruncated"):
                return
            start = _next_page(folder, start, {"ContinuationToken": page["NextContinuationToken"]})

    def make_durable(self, places: Sequence[Location]) -> None:
        """Do nothing: an object that can be read is durable."""

    def remove(self, place: Location) -> None:
        """Remove an object. A store that keeps versions keeps the object's versions."""
        objects = {"Objects": [{"Key": "/".join(place.parts)}], "Quiet": True}
        answer = call_store(self.client.delete_objects, Bucket=place.authority, Delete=objects)
        fault.point("stores.after_remove")
        if errors := answer.get("Errors"):
            code = str(errors[0].get("Code", "an error"))[:80]
            if code == "AccessDenied":
                raise PermissionError(errno.EACCES, f"the store of the bucket {place.authority} refuses: {code}")
            raise OSError(errno.EIO, f"the store of the bucket {place.authority} answers {code}")


def _object_arguments(place: Location) -> dict[str, str]:
    """The arguments of a call that name the object."""
    if place.scheme != "s3" or not place.parts:
        raise OSError(errno.EINVAL, "no object has this location")
    return {"Bucket": place.authority, "Key": "/".join(place.parts)}


def _key_prefix(folder: Location) -> str:
    return "".join(f"{part}/" for part in folder.parts)


def _next_page(folder: Location, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """The markers of the next page. Raises if they equal this page's, since the list would never end."""
    if after == before:
        raise OSError(errno.EIO, f"the store of the bucket {folder.authority} returns the same page twice")
    return after
