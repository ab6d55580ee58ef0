"""An S3-compatible server on a loopback port: moto's server with its IAM enforcement on, and roles for credentials.

moto enforces signatures, policies of users and roles with their resources, who may assume a role, a Deny of a bucket's
policy on an object's key, conditional writes, and versions. Two rules of AWS that moto lacks are added here:
- a session's own policy limits the session (`_session_policies`; moto stores the policy and ignores it);
- a Deny of a bucket's policy applies only to the principal that it names (`_principals`; moto applies it to everyone).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pvdm.lake.paths import parse_location
from pvdm.lake.stores import s3_client
from pvdm.lake.stores.roles import VendingSettings
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3Credentials, S3Settings, open_client
from pvdm.lake.stores.stores import Stores
from pvdm.model.secret import Secret
from pvdm.steward.config.steward import CatalogConfig, StewardConfig
from tests.support.services import require

REGION = "eu-central-1"
ACCOUNT = "123456789012"
PRODUCERS = f"arn:aws:iam::{ACCOUNT}:role/producers"
CONSUMERS = f"arn:aws:iam::{ACCOUNT}:role/consumers"
_ALL: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:*", "sts:*"], "Resource": "*"}],
}
_READ: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:Get*", "s3:Head*", "s3:List*"], "Resource": "*"}],
}
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Bucket:
    """One bucket of the server."""

    server: S3Server
    name: str

    @property
    def root(self) -> str:
        return f"s3://{self.name}"

    def config(self) -> Callable[[StewardConfig], StewardConfig]:
        """A change of a configuration: tables, metadata and vault in the bucket, and credentials are vended."""
        catalog = CatalogConfig(
            f"{self.root}/warehouse",
            parse_location(f"{self.root}/steward/catalog"),
            "lake",
            parse_location(f"{self.root}/steward/vault"),
        )
        vending = VendingSettings(PRODUCERS, CONSUMERS, self.server.endpoint, 900)
        return lambda config: replace(config, catalog=catalog, s3=self.server.steward, vending=vending)

    def store_file(self, path: Path) -> Path:
        """Write the same for an embedded Steward: the TOML tables of its `steward.toml`, without credentials."""
        catalog = f'[catalog]\nwarehouse = "{self.root}/warehouse"\nmetadata = "{self.root}/steward/catalog"\n'
        path.write_text(catalog + self.server.config_lines())
        return path


@dataclass(frozen=True)
class S3Server:
    """The server, and settings with credentials of two users: the Steward and an administrator."""

    endpoint: str
    steward: S3Settings
    admin: S3Settings

    def bucket(self, *, versioned: bool = True) -> Bucket:
        name = f"lake-{next(_NUMBERS)}"
        client = self.store.client
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        if versioned:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return Bucket(self, name)

    def config_lines(self) -> str:
        """The TOML tables `[s3]` and `[s3.vending]` of a `steward.toml`, without credentials."""
        return (
            f'[s3]\nregion = "{REGION}"\nendpoint = "{self.endpoint}"\npath_style = true\n'
            f'[s3.vending]\nproducer_role = "{PRODUCERS}"\nconsumer_role = "{CONSUMERS}"\n'
            f'sts_endpoint = "{self.endpoint}"\nlifetime_seconds = 900\n'
        )

    def lend_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the Steward's credentials into the environment, where the AWS library looks for them.

        The library caches credentials of an earlier test, so the test gets a new session.
        """
        monkeypatch.setattr(s3_client, "_session", functools.cache(s3_client._session.__wrapped__))
        credentials = self.steward.credentials
        assert credentials is not None
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", credentials.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", credentials.secret_access_key.reveal().decode())

    @cached_property
    def stores(self) -> Stores:
        """Local files, and the server with the rights of an administrator."""
        return Stores(self.admin)

    @property
    def store(self) -> S3Store:
        """The object store with the rights of an administrator."""
        return self.stores.object_store(parse_location("s3://any/thing"))


def _user(iam: Any, name: str, policy: dict[str, Any]) -> S3Credentials:
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return S3Credentials(key["AccessKeyId"], Secret(key["SecretAccessKey"].encode()))


def _role(iam: Any, name: str, policy: dict[str, Any]) -> None:
    trusted = {"AWS": f"arn:aws:iam::{ACCOUNT}:user/steward"}
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": trusted, "Action": "sts:AssumeRole"}],
    }
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust), MaxSessionDuration=43_200)
    iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=json.dumps(policy))


@contextlib.contextmanager
def _session_policies() -> Iterator[None]:
    """Make moto refuse what a session's own policy does not allow, as AWS does."""
    from moto.iam.access_control import AssumedRoleAccessKey, IAMPolicy, IAMRequestBase, PermissionResult
    from moto.sts.models import sts_backends

    inner = IAMRequestBase.check_action_permitted

    def check_session_too(self: Any, resource: str) -> None:
        inner(self, resource)
        key = self._access_key
        if not isinstance(key, AssumedRoleAccessKey):
            return
        sessions = sts_backends[key.account_id][key.partition].assumed_roles
        for each in sessions:
            if each.access_key_id != key._access_key_id or not each.policy:
                continue
            document = json.loads(each.policy)
            for statement in document["Statement"]:
                statement.pop("Condition", None)  # moto knows no `s3:prefix`
            if (
                IAMPolicy(json.dumps(document)).is_action_permitted(self._action, resource)
                != PermissionResult.PERMITTED
            ):
                self._raise_access_denied()

    IAMRequestBase.check_action_permitted = check_session_too  # type: ignore[method-assign]
    try:
        yield
    finally:
        IAMRequestBase.check_action_permitted = inner  # type: ignore[method-assign]


@contextlib.contextmanager
def _principals() -> Iterator[None]:
    """Make moto apply a statement of a bucket's policy only to the principal that it names, as AWS does."""
    import flask
    from moto.iam.access_control import IAMPolicy, PermissionResult
    from moto.s3.models import FakeBucket
    from moto.sts.models import sts_backends

    inner = FakeBucket.get_permission

    def role_of_caller() -> str | None:
        found = re.search(r"Credential=([^/]+)/", flask.request.headers.get("Authorization", ""))
        sessions = sts_backends[ACCOUNT]["aws"].assumed_roles
        return next((each.role_arn for each in sessions if found and each.access_key_id == found[1]), None)

    def permission_of_principal(self: Any, action: str, resource: str) -> Any:
        if self.policy is None:
            return PermissionResult.NEUTRAL
        document = json.loads(self.policy.decode())
        own = role_of_caller()
        named = [each for each in document["Statement"] if each["Principal"] in ("*", {"AWS": "*"}, {"AWS": own})]
        return IAMPolicy(json.dumps({**document, "Statement": named})).is_action_permitted(action, resource)

    FakeBucket.get_permission = permission_of_principal  # type: ignore[method-assign]
    try:
        yield
    finally:
        FakeBucket.get_permission = inner  # type: ignore[method-assign]


@contextlib.contextmanager
def _enforced(port: int) -> Iterator[None]:
    """Turn IAM on for this server's port only. moto has one switch for all servers of a process."""
    import flask
    from moto import settings
    from moto.core.authorization import ActionAuthenticatorMixin

    inner = ActionAuthenticatorMixin._authenticate_and_authorize_action

    def authorize_at_port(self: Any, iam_request_cls: type, resource: str = "*") -> None:
        if flask.has_request_context() and flask.request.environ.get("SERVER_PORT") == str(port):
            inner(self, iam_request_cls, resource)

    before = settings.INITIAL_NO_AUTH_ACTION_COUNT
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    ActionAuthenticatorMixin._authenticate_and_authorize_action = authorize_at_port  # type: ignore[method-assign]
    try:
        yield
    finally:
        ActionAuthenticatorMixin._authenticate_and_authorize_action = inner  # type: ignore[method-assign]
        settings.INITIAL_NO_AUTH_ACTION_COUNT = before


@functools.cache
def started_s3() -> S3Server:
    """The server, in a thread of this process, until the process ends. IAM is on once users and roles are created."""
    require(importlib.util.find_spec("moto"), "moto is not installed (object stores are not tested)")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    first = S3Settings(REGION, endpoint, path_style=True, credentials=S3Credentials("first", Secret(b"first")))
    iam = open_client(first, "iam")
    admin, steward = _user(iam, "admin", _ALL), _user(iam, "steward", _ALL)
    _role(iam, "producers", _ALL)
    _role(iam, "consumers", _READ)
    iam.close()
    running = contextlib.ExitStack()
    for each in (_enforced(int(port)), _session_policies(), _principals()):
        running.enter_context(each)
    atexit.register(running.close)
    return S3Server(endpoint, replace(first, credentials=steward), replace(first, credentials=admin))


@pytest.fixture(scope="session")
def s3_server() -> S3Server:
    """The S3 server of this test worker."""
    return started_s3()
