"""Files in an S3-compatible store. Every write is conditional; after a lost response the object is read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pvdm.lake.paths import Location
from pvdm.lake.stores.circuit_breaker import breaker_of
from pvdm.lake.stores.s3_client import S3Settings, call_store, open_client
from pvdm.lake.stores.store import PIECE_BYTES, FileFacts, ListedFile, Reading, WriteHooks

_WRITE_TRIES: Final = 4


class S3Store:
    """Objects by their keys. Every write says what it may replace."""

    def __init__(self, settings: S3Settings, client: Any = None) -> None:
        self.settings = settings
        self.client = client or open_client(settings)
        if client is None:
            # The connections are closed with the store.
            weakref.finalize(self, self.client.close)

    def reading(self, place: Location) -> Reading:
        """One version. After a broken connection reading continues at the same place of the same version."""
        answer = call_store(self.client.get_object, **_named(place))
        return Reading(answer.get("VersionId"), self._pieces(place, answer))

    def _pieces(self, place: Location, answer: Any) -> Iterator[bytes]:
        tag, size, seen = answer["ETag"], answer["ContentLength"], 0
        for left in reversed(range(self.settings.tries)):
            try:
                while piece := self._some(place, answer, PIECE_BYTES):
                    seen += len(piece)
                    yield piece
                return
            except OSError:
                if left == 0 or seen >= size:
                    raise
            finally:
                answer["Body"].close()  # also if the caller stops before the end
            answer = call_store(self.client.get_object, **_named(place), Range=f"bytes={seen}-", IfMatch=tag)

    def _body(self, place: Location, answer: Any, most: int | None = None) -> bytes:
        """The first bytes of a response, which is closed then."""
        with contextlib.closing(answer["Body"]):
            return self._some(place, answer, most)

    def _some(self, place: Location, answer: Any, most: int | None) -> bytes:
        """Bytes of a response body. A server that stops sending counts as silent."""
        begun = time.monotonic()
        try:
            found: bytes = call_store(answer["Body"].read, of_bucket=place.authority, amt=most)
        except TimeoutError:
            breaker_of(self.client.meta.endpoint_url).record_silence(begun)
            raise
        return found

    def end(self, place: Location, size: int) -> bytes:
        """The last bytes of the object, in one request."""
        if size == 0 or self.facts(place).size == 0:
            return b""
        answer = call_store(self.client.get_object, **_named(place), Range=f"bytes=-{size}")
        return self._body(place, answer)

    def facts(self, place: Location) -> FileFacts:
        """The size and the current version."""
        answer = call_store(self.client.head_object, **_named(place))
        return FileFacts(answer["ContentLength"], answer.get("VersionId"))

    def read_tagged(self, place: Location, most: int) -> tuple[bytes, str]:
        """The bytes and their tag, for `swap`."""
        answer = call_store(self.client.get_object, **_named(place))
        return self._body(place, answer, most + 1), answer["ETag"]

    def put_new(self, place: Location, data: bytes, at: WriteHooks) -> None:
        """Write a new object. Raises FileExistsError if there is one, which after a lost response may be this one."""
        at.before_sync()
        at.after_temp()
        self._write(place, data, IfNoneMatch="*")
        at.after_name()

    def put(self, place: Location, data: bytes, at: WriteHooks) -> None:
        """Write an object, or replace exactly the one that was read before."""
        at.before_sync()
        at.after_temp()
        for left in reversed(range(_WRITE_TRIES)):
            try:
                self._write(place, data, IfNoneMatch="*")
                break
            except FileExistsError:
                found, tag = self.read_tagged(place, len(data))
            if found == data or self.swap(place, data, tag):
                break
            if left == 0:
                raise OSError(errno.EIO, "others write the same object")
        at.after_name()

    def swap(self, place: Location, data: bytes, tag: str) -> bool:
        """Replace the object with this tag; False if there is another one now."""
        try:
            self._write(place, data, IfMatch=tag)
        except (FileExistsError, FileNotFoundError):
            # An earlier try may have succeeded with its response lost.
            return self._holds(place, data)
        return True

    def _write(self, place: Location, data: bytes, **condition: str) -> None:
        """One conditional write. It may be repeated, and the library may repeat it too."""
        for left in reversed(range(self.settings.tries)):
            try:
                call_store(self.client.put_object, **_named(place), Body=data, **condition)
                return
            except (FileExistsError, FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                conflict = "ConditionalRequestConflict" in str(error.strerror)
                if conflict and left:
                    continue
                # It is not known whether it happened: if the object has these bytes, it did.
                if self._holds(place, data):
                    return
                raise

    def _holds(self, place: Location, data: bytes) -> bool:
        try:
            found, _ = self.read_tagged(place, len(data))
        except FileNotFoundError:
            return False
        return hashlib.sha256(found).digest() == hashlib.sha256(data).digest()

    def files(self, folder: Location) -> list[ListedFile]:
        """The objects directly below the prefix."""
        return [_listed(folder, each) for page in self._pages(folder, Delimiter="/") for each in page["Contents"]]

    def folders(self, folder: Location) -> list[str]:
        """The common prefixes below the prefix."""
        pages = self._pages(folder, Delimiter="/")
        return sorted(str(each["Prefix"]).rstrip("/").rpartition("/")[2] for page in pages for each in page["Folders"])

    def walk(self, folder: Location) -> Iterator[ListedFile]:
        """Every object below the prefix at any depth."""
        for page in self._pages(folder):
            for each in page["Contents"]:
                yield _listed(folder, each)

    def versions(self, folder: Location) -> dict[Location, str]:
        """The current version of every object below the prefix."""
        found: dict[Location, str] = {}
        prefix, at = _prefix(folder), dict[str, str]()
        while True:
            page = call_store(self.client.list_object_versions, Bucket=folder.authority, Prefix=prefix, **at)
            for each in page.get("Versions", []):
                if each["IsLatest"]:
                    found[Location("s3", folder.authority, tuple(each["Key"].split("/")))] = each["VersionId"]
            if not page.get("IsTruncated"):
                return found
            after = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
            at = _next_page(folder, at, after)

    def abort_uploads(self, folder: Location) -> int:
        """Abort every multipart upload below the prefix. Returns their number."""
        bucket, prefix = folder.authority, _prefix(folder)
        ended: set[tuple[str, str]] = set()
        while uploads := call_store(self.client.list_multipart_uploads, Bucket=bucket, Prefix=prefix).get(
            "Uploads", []
        ):
            new = {(each["Key"], each["UploadId"]) for each in uploads} - ended
            if not new:
                raise OSError(errno.EIO, f"the store of the bucket {bucket} lists uploads that were ended")
            for key, upload in sorted(new):
                with contextlib.suppress(FileNotFoundError):
                    call_store(self.client.abort_multipart_upload, Bucket=bucket, Key=key, UploadId=upload)
            ended |= new
        return len(ended)

    def _pages(self, folder: Location, **more: str) -> Iterator[dict[str, Any]]:
        prefix = _prefix(folder)
        token: dict[str, str] = {}
        while True:
            page = call_store(self.client.list_objects_v2, Bucket=folder.authority, Prefix=prefix, **more, **token)
            own = [each for each in page.get("Contents", []) if each["Key"] != prefix]
            yield {"Contents": own, "Folders": page.get("CommonPrefixes", [])}
            if not page.get("IsTruncated"):
                return
            token = _next_page(folder, token, {"ContinuationToken": page["NextContinuationToken"]})

    def make_durable(self, places: Sequence[Location]) -> None:
        """Do nothing: an object that can be read is durable."""

    def remove(self, place: Location) -> None:
        """Remove an object. A store that keeps versions keeps them."""
        wanted = {"Objects": [{"Key": "/".join(place.parts)}], "Quiet": True}
        answer = call_store(self.client.delete_objects, Bucket=place.authority, Delete=wanted)
        if wrong := answer.get("Errors"):
            code = str(wrong[0].get("Code", "an error"))[:80]
            if code == "AccessDenied":
                raise PermissionError(errno.EACCES, f"the store of the bucket {place.authority} refuses: {code}")
            raise OSError(errno.EIO, f"the store of the bucket {place.authority} answers {code}")


def _named(place: Location) -> dict[str, str]:
    if place.scheme != "s3" or not place.parts:
        raise OSError(errno.EINVAL, "no object has this location")
    return {"Bucket": place.authority, "Key": "/".join(place.parts)}


def _prefix(folder: Location) -> str:
    return "".join(f"{part}/" for part in folder.parts)


def _next_page(folder: Location, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """The start of the next page. Raises if it is the same again, since the list would never end."""
    if after == before:
        raise OSError(errno.EIO, f"the store of the bucket {folder.authority} gives one page again and again")
    return after


def _listed(folder: Location, entry: Any) -> ListedFile:
    place = Location(folder.scheme, folder.authority, tuple(str(entry["Key"]).split("/")))
    return ListedFile(place, entry["Size"], entry["LastModified"].timestamp())
