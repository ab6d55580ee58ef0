"""Files in an S3-compatible store: every write has a condition, and one without an answer is settled by reading."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pvdm.lake.paths import Location
from pvdm.lake.stores.s3_client import S3Settings, asked, open_client
from pvdm.lake.stores.store import PIECE_BYTES, Facts, Listed, Moments, Reading
from pvdm.lake.stores.timeouts import line_to

_REMOVED_AT_ONCE: Final = 1_000
_WRITE_TRIES: Final = 4


class S3Store:
    """Objects by their keys; nothing is ever written without saying what it may replace."""

    def __init__(self, settings: S3Settings, client: Any = None) -> None:
        self.settings = settings
        self._client = client or open_client(settings)
        self._tries = settings.tries
        if client is None:
            # Whoever lets go of a store lets go of its connections.
            weakref.finalize(self, self._client.close)

    @property
    def client(self) -> Any:
        """The client itself, for what is no file: policies, versions."""
        return self._client

    def reading(self, place: Location) -> Reading:
        """One version; a connection that breaks is taken up where it broke, on the same version."""
        answer = asked(self._client.get_object, **_named(place))
        return Reading(answer.get("VersionId"), self._pieces(place, answer))

    def _pieces(self, place: Location, answer: Any) -> Iterator[bytes]:
        tag, size, seen = answer["ETag"], answer["ContentLength"], 0
        for left in reversed(range(self._tries)):
            try:
                while piece := self._some(place, answer, PIECE_BYTES):
                    seen += len(piece)
                    yield piece
                return
            except OSError:
                if left == 0 or seen >= size:
                    raise
            finally:
                answer["Body"].close()  # whoever stops in the middle leaves nothing open
            answer = asked(self._client.get_object, **_named(place), Range=f"bytes={seen}-", IfMatch=tag)

    def _body(self, place: Location, answer: Any, most: int | None = None) -> bytes:
        """All that is wanted of an answer; one that is longer leaves no connection open."""
        with contextlib.closing(answer["Body"]):
            return self._some(place, answer, most)

    def _some(self, place: Location, answer: Any, most: int | None) -> bytes:
        """Bytes of an answer that has begun; a server that falls silent in the middle is silent as any other."""
        begun = time.monotonic()
        try:
            found: bytes = asked(answer["Body"].read, of_bucket=place.authority, amt=most)
        except TimeoutError:
            line_to(self._client).was_silent(begun)
            raise
        return found

    def end(self, place: Location, size: int) -> bytes:
        """The last bytes of the object, by one request."""
        if size == 0 or self.facts(place).size == 0:
            return b""
        answer = asked(self._client.get_object, **_named(place), Range=f"bytes=-{size}")
        return self._body(place, answer)

    def facts(self, place: Location) -> Facts:
        """Size, and the version that is shown."""
        answer = asked(self._client.head_object, **_named(place))
        return Facts(answer["ContentLength"], answer.get("VersionId"))

    def read_tagged(self, place: Location, most: int) -> tuple[bytes, str]:
        """The bytes and the tag that stands for them, for `swap`."""
        answer = asked(self._client.get_object, **_named(place))
        return self._body(place, answer, most + 1), answer["ETag"]

    def put_new(self, place: Location, data: bytes, at: Moments) -> None:
        """Only where nothing lies; who tries again after a lost answer finds its own bytes, and may compare them."""
        at.before_sync()
        at.after_temp()
        self._write(place, data, IfNoneMatch="*")
        at.after_name()

    def put(self, place: Location, data: bytes, at: Moments) -> None:
        """New if nothing lies there; else in the place of exactly what was seen there."""
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
        """Replace what bears this tag; False if something else lies there by now."""
        try:
            self._write(place, data, IfMatch=tag)
        except (FileExistsError, FileNotFoundError):
            # A first try may have been made whose answer was lost.
            return self._holds(place, data)
        return True

    def _write(self, place: Location, data: bytes, **condition: str) -> None:
        """One conditional write. Doing it again does no harm: the library may, and so may we."""
        for left in reversed(range(self._tries)):
            try:
                asked(self._client.put_object, **_named(place), Body=data, **condition)
                return
            except (FileExistsError, FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                conflict = "ConditionalRequestConflict" in str(error.strerror)
                if conflict and left:
                    continue
                # Whether it happened is not known: the store is asked, and a write that is there was ours.
                if self._holds(place, data):
                    return
                raise

    def _holds(self, place: Location, data: bytes) -> bool:
        try:
            found, _ = self.read_tagged(place, len(data))
        except FileNotFoundError:
            return False
        return hashlib.sha256(found).digest() == hashlib.sha256(data).digest()

    def files(self, folder: Location) -> list[Listed]:
        """The objects right below the prefix."""
        return [_listed(folder, each) for page in self._pages(folder, Delimiter="/") for each in page["Contents"]]

    def folders(self, folder: Location) -> list[str]:
        """The common prefixes below the prefix."""
        pages = self._pages(folder, Delimiter="/")
        return sorted(str(each["Prefix"]).rstrip("/").rpartition("/")[2] for page in pages for each in page["Folders"])

    def walk(self, folder: Location) -> Iterator[Listed]:
        """Every object below the prefix, however deep."""
        for page in self._pages(folder):
            for each in page["Contents"]:
                yield _listed(folder, each)

    def versions(self, folder: Location) -> dict[Location, str]:
        """The version of every object below the prefix that is shown now."""
        found: dict[Location, str] = {}
        prefix, at = "".join(f"{part}/" for part in folder.parts), dict[str, str]()
        while True:
            page = asked(self._client.list_object_versions, Bucket=folder.authority, Prefix=prefix, **at)
            for each in page.get("Versions", []):
                if each["IsLatest"]:
                    found[Location("s3", folder.authority, tuple(each["Key"].split("/")))] = each["VersionId"]
            if not page.get("IsTruncated"):
                return found
            at = _onward(
                folder, at, {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
            )

    def abort_uploads(self, folder: Location) -> int:
        """End every upload in parts below the prefix; says how many there were."""
        bucket, prefix = folder.authority, "".join(f"{part}/" for part in folder.parts)
        ended: set[tuple[str, str]] = set()
        while uploads := asked(self._client.list_multipart_uploads, Bucket=bucket, Prefix=prefix).get("Uploads", []):
            new = {(each["Key"], each["UploadId"]) for each in uploads} - ended
            if not new:
                raise OSError(errno.EIO, f"the store of the bucket {bucket} lists uploads that were ended")
            for key, upload in sorted(new):
                with contextlib.suppress(FileNotFoundError):
                    asked(self._client.abort_multipart_upload, Bucket=bucket, Key=key, UploadId=upload)
            ended |= new
        return len(ended)

    def _pages(self, folder: Location, **more: str) -> Iterator[dict[str, Any]]:
        prefix = "".join(f"{part}/" for part in folder.parts)
        token: dict[str, str] = {}
        while True:
            page = asked(self._client.list_objects_v2, Bucket=folder.authority, Prefix=prefix, **more, **token)
            own = [each for each in page.get("Contents", []) if each["Key"] != prefix]
            yield {"Contents": own, "Folders": page.get("CommonPrefixes", [])}
            if not page.get("IsTruncated"):
                return
            token = _onward(folder, token, {"ContinuationToken": page["NextContinuationToken"]})

    def make_durable(self, places: Sequence[Location]) -> None:
        """Nothing: an object that can be read is durable."""

    def remove(self, place: Location) -> None:
        """Take it out of sight; where the store keeps versions, they stay with it."""
        self.remove_all([place])

    def remove_all(self, places: list[Location]) -> None:
        """The same for many, by as few requests as can be."""
        for start in range(0, len(places), _REMOVED_AT_ONCE):
            some = places[start : start + _REMOVED_AT_ONCE]
            wanted = {"Objects": [{"Key": "/".join(each.parts)} for each in some], "Quiet": True}
            bucket = some[0].authority
            answer = asked(self._client.delete_objects, Bucket=bucket, Delete=wanted)
            if wrong := answer.get("Errors"):
                code = str(wrong[0].get("Code", "an error"))[:80]
                if code == "AccessDenied":
                    raise PermissionError(errno.EACCES, f"the store of the bucket {bucket} refuses: {code}")
                raise OSError(errno.EIO, f"the store of the bucket {bucket} answers {code}")


def _named(place: Location) -> dict[str, str]:
    if place.scheme != "s3" or not place.parts:
        raise OSError(errno.EINVAL, "no object has this location")
    return {"Bucket": place.authority, "Key": "/".join(place.parts)}


def _onward(folder: Location, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Where the next page begins; a store that gives the same one again would never come to an end."""
    if after == before:
        raise OSError(errno.EIO, f"the store of the bucket {folder.authority} gives one page again and again")
    return after


def _listed(folder: Location, entry: Any) -> Listed:
    place = Location(folder.scheme, folder.authority, tuple(str(entry["Key"]).split("/")))
    return Listed(place, entry["Size"], entry["LastModified"].timestamp())
