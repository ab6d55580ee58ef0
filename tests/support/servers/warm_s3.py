"""Makes the clients of S3 and STS once when it is imported: forked Stewards then find the library's models loaded."""

from __future__ import annotations

from pvdm.lake.stores import s3_client
from tests.support.stores.s3_server import REGION

for service in ("s3", "sts"):
    s3_client._session(None).client(service, region_name=REGION)
