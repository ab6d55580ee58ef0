"""pvdm: proof-gated publication for Apache Iceberg tables on Spark. Exported names are imported at their first use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pvdm.version import __version__

# Without a handler, Python would print this library's warnings to standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pvdm.client import AccessToken, Retries, StewardClient, TimeOuts
    from pvdm.client.token import TokenGiver
    from pvdm.durable.chunk import Chunk
    from pvdm.durable.coordinator import Coordinator, resume_workload
    from pvdm.durable.outcome import Committed, Outcome, RolledBack, VerificationFailed
    from pvdm.metadata.gate.gate import validate_then_commit
    from pvdm.model.contract import DataProductContract
    from pvdm.model.role import Role
    from pvdm.steward.embedded.development import DevelopmentSteward
    from pvdm.steward.embedded.embedded import EmbeddedSteward, Person
    from pvdm.trust.bundle import CheckedBundle
    from pvdm.trust.root import TrustRoot

__all__ = [
    "Chunk",
    "Committed",
    "Coordinator",
    "Outcome",
    "RolledBack",
    "Steward",
    "VerificationFailed",
    "__version__",
    "check_proof",
    "load_contract",
    "resume_workload",
    "spark_session",
    "validate_then_commit",
]

_MODULE_OF_NAME = {
    "Chunk": "pvdm.durable.chunk",
    "Committed": "pvdm.durable.outcome",
    "Coordinator": "pvdm.durable.coordinator",
    "Outcome": "pvdm.durable.outcome",
    "RolledBack": "pvdm.durable.outcome",
    "resume_workload": "pvdm.durable.coordinator",
    "VerificationFailed": "pvdm.durable.outcome",
    "validate_then_commit": "pvdm.metadata.gate.gate",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)


class Steward:
    """Starts a Steward in this process, or connects to one at an address; each function returns a client."""

    def __init__(self) -> None:
        raise TypeError("use Steward.development(path), Steward.embedded(path) or Steward.connect(url, token)")

    @staticmethod
    def development(path: Path | str) -> DevelopmentSteward:
        """Start the development Steward of a folder in this process, or create one.

        It creates its own operator, whose key lies in the folder and signs every approval. Not for production.
        """
        from pvdm.steward.embedded.development import start_development

        return start_development(path)

    @staticmethod
    def embedded(
        path: Path | str,
        *,
        outside: Path | str | None = None,
        people: Sequence[Person] = (),
        store: Path | str | None = None,
    ) -> EmbeddedSteward:
        """Start the Steward of a folder in this process, or create one. It protects against mistakes, not attackers.

        `outside` is a folder for the log's newest checkpoint, best on another disk. The trust root gets the keys of
        `people`. `store` is a file with [catalog] and [s3] as in a `steward.toml`, for tables in an object store.
        """
        from pvdm.steward.embedded.embedded import start

        return start(path, outside=outside, people=people, store=store)

    @staticmethod
    def connect(
        url: str,
        token: str | AccessToken | TokenGiver | None = None,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        insecure: bool = False,
        time_outs: TimeOuts | None = None,
        retries: Retries | None = None,
    ) -> StewardClient:
        """Return a client for the Steward at `url`. The client sends no request before its first call."""
        # A traceback can show a frame's local variables, so none may hold the token while the client is created.
        holder, token = [token], None
        from pvdm.client import StewardClient

        return StewardClient(
            url,
            holder.pop(),
            token_file=token_file,
            ca_file=ca_file,
            insecure=insecure,
            time_outs=time_outs,
            retries=retries,
        )


def spark_session(
    steward: StewardClient,
    role: Role | str | None = None,
    domain: str | None = None,
    *,
    name: str = "lake",
    app_name: str = "pvdm",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session with the Steward's catalog as `name`; the catalog is added to a session that runs already.

    With an embedded Steward every role and domain is allowed; the default is operator of every domain. With a Steward
    at an address the session has the role and domain of the client's token; another role or domain raises.
    """
    from pvdm.client.table import uses_object_store
    from pvdm.errors import Code
    from pvdm.lake.spark import SparkCatalog
    from pvdm.lake.spark import spark_session as start_session
    from pvdm.model.role import Role

    try:
        wanted_role = None if role is None else Role(role)
    except ValueError:
        expected = " or ".join(Role)
        raise Code.CLIENT_SETTING_INVALID(reason="role_invalid", expected=expected, got=ascii(role)[:80]) from None
    engine_token = steward.lend(wanted_role, domain)
    catalog = SparkCatalog(name, f"{steward.url}/catalog", engine_token.token, engine_token.token_id)
    return start_session(
        [catalog],
        app_name=app_name,
        master=master,
        config=config,
        object_store=uses_object_store(steward),
        ca_file=steward.ca_file,
    )


def load_contract(path: Path | str) -> DataProductContract:
    """Read and check the contract in a file; errors name file, line and column."""
    import pathlib

    from pvdm.model.contract import parse_contract, read_contract

    return parse_contract(read_contract(pathlib.Path(path)), str(path))


def check_proof(
    bundle: bytes,
    trust_root: TrustRoot | Sequence[bytes],
    *,
    pin: str | None = None,
    origin: str | None = None,
    threshold: int | None = None,
    now: int | None = None,
) -> CheckedBundle:
    """Check a bundle (a proof with its place in the log) offline: returns what is proved and what is not, or raises.

    `trust_root` is a verified trust root, or the envelopes of its versions, oldest first, together with the `pin`: the
    SHA-256 of the first version, from another channel. `origin` is the log's name; by default the trust root names it.
    `threshold` notaries must have signed, by default as many as the trust root says. `now` is in microseconds.
    """
    import time

    from pvdm.errors import Code
    from pvdm.trust.bundle import check_bundle, log_checker, resolve_log_origin
    from pvdm.trust.root import TrustRoot, follow_roots

    checked_at = time.time_ns() // 1_000 if now is None else now
    if not isinstance(trust_root, TrustRoot):
        if pin is None:
            message = "a chain of trust roots cannot be verified without a pin"
            expected = "the SHA-256 of the first trust root as `pin`, from another channel"
            raise Code.TRUST_ROOT_PIN_INVALID(message, reason="trust_root_pin_missing", expected=expected, got="none")
        trust_root = follow_roots(trust_root, sha256=pin, now=checked_at)
    checker = log_checker(trust_root, origin=resolve_log_origin(trust_root, origin))
    needed = trust_root.thresholds.notary if threshold is None else threshold
    return check_bundle(bundle, trust_root, checker, threshold=needed, now=checked_at)
