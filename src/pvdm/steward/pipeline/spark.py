"""Runs the Steward's own Spark application, and gives its workers the address and token to fetch keys."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.model.role import Role
from pvdm.model.secret import Secret
from pvdm.steward.access import Access
from pvdm.trust.keys import disk
from pvdm.verify.fetch import Files
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application
from pvdm.verify.spark.extracting import SparkExtraction
from pvdm.verify.spark.reader import SparkReader
from pvdm.verify.spark.settings import SparkSettings
from pvdm.verify.spark.task import KeyEndpoint

_TOKEN_FILE: Final = "worker.token"  # noqa: S105 - the name of its file
_GRANT_NAME: Final = "spark-workers"


class SparkVerifier:
    """One Spark application for all jobs; its driver ends a while after the last job."""

    def __init__(self, settings: SparkSettings, access: Access, files: Files, store: StoreAccess) -> None:
        self._settings = settings
        self._access = access
        self._lock = threading.Lock()
        self._address = settings.address
        self._token_id: str | None = None
        self._issued_at = 0.0
        self.application = Application(settings, store.config)
        self.reader = SparkReader(settings, self.application, files, self._make_key_endpoint, store)
        self.extraction = SparkExtraction(settings, self.application, files, self._make_key_endpoint, store)

    def set_service_address(self, url: str) -> None:
        """Set the Steward's address for the workers; an address in the configuration has precedence."""
        if self._settings.address is None:
            self._address = url

    def close(self) -> None:
        """End the application, and revoke the token that was issued for its workers."""
        self.application.close()
        with self._lock:
            if self._token_id is not None:
                with contextlib.suppress(PvdmError):
                    self._access.revoke(self._token_id)
                self._token_file().unlink(missing_ok=True)
                self._token_id = None

    def _make_key_endpoint(self, job_id: str, handle: str) -> KeyEndpoint:
        """The address, handle and token with which a job's workers get keys. Raises if the Steward does not serve."""
        if self._address is None:
            raise Code.SPARK_EXTRACTION_FAILED(reason="key_endpoint_closed", got="a Steward that does not serve")
        authorities = None if self._settings.authorities is None else str(self._settings.authorities)
        token = str(self._settings.worker_token or self._write_token())
        return KeyEndpoint(self._address, job_id, handle, token, authorities)

    def _write_token(self) -> Path:
        """Write a token for workers on this host to a file that only the Steward's user can read; returns its path.

        A token is valid four times as long as a job may run. After half of that time, a call writes a new token.
        """
        lifetime = 4 * self._settings.job_seconds
        with self._lock:
            if self._token_id is None or time.monotonic() - self._issued_at > lifetime / 2:
                token, grant = self._access.issue(
                    Role.WORKER, domain=EVERY_DOMAIN, name=_GRANT_NAME, lifetime_seconds=lifetime
                )
                self._settings.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
                disk.write(self._token_file(), Secret(token.reveal().encode()), mode=disk.PRIVATE_MODE)
                self._token_id, self._issued_at = grant.token_id, time.monotonic()
            return self._token_file()

    def _token_file(self) -> Path:
        return self._settings.scratch / _TOKEN_FILE
