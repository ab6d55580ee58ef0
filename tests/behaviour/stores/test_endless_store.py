"""A store whose lists never end: the call fails, so no thread of the Steward hangs in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3Credentials, S3Settings
from pvdm.model.secret import Secret

pytest.importorskip("boto3")

FOLDER = parse_location("s3://lake/orders/pvdm/a")
KEY = "orders/pvdm/a/data/0.parquet"
_WHEN = "<LastModified>2026-11-15T12:00:00.000Z</LastModified>"
_OBJECT = f"<Key>{KEY}</Key>{_WHEN}<ETag>e</ETag><Size>1</Size>"
_PAGES = {
    "list-type": f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    f"<Contents>{_OBJECT}</Contents></ListBucketResult>",
    "versions": f"<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>{KEY}</NextKeyMarker>"
    f"<NextVersionIdMarker>v</NextVersionIdMarker><Version>{_OBJECT}<VersionId>v</VersionId>"
    "<IsLatest>true</IsLatest></Version></ListVersionsResult>",
    "uploads": f"<ListMultipartUploadsResult><Upload><Key>{KEY}</Key><UploadId>u</UploadId></Upload>"
    "</ListMultipartUploadsResult>",
}
_REQUESTS_MAX = 50


class _EndlessStore(BaseHTTPRequestHandler):
    """Every page names itself as the next one, and aborted uploads stay listed. After 50 requests it answers 500."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        page = next(text for name, text in _PAGES.items() if name in query)
        self._answer(500 if self.requests > _REQUESTS_MAX else 200, page.encode())

    def do_DELETE(self) -> None:
        self._answer(204, b"")

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def store() -> Iterator[S3Store]:
    _EndlessStore.requests = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EndlessStore)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    settings = S3Settings(
        "eu-central-1",
        f"http://127.0.0.1:{server.server_port}",
        path_style=True,
        tries=1,
        credentials=S3Credentials("steward", Secret(b"secret")),
    )
    yield S3Store(settings)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: list(store.walk(FOLDER)), "returns the same page twice"),
        (lambda store: store.versions(FOLDER), "returns the same page twice"),
        (lambda store: store.abort_uploads(FOLDER), "still lists aborted uploads"),
    ],
    ids=["objects", "versions", "uploads"],
)
def test_a_list_that_never_ends_is_an_error(store: S3Store, call: Callable[[S3Store], object], message: str) -> None:
    with pytest.raises(OSError, match=message):
        call(store)
    assert _EndlessStore.requests <= 3
