"""Policies of an object store, as moto evaluates them: what a session may do, and which writes a seal denies."""

from __future__ import annotations

import json

import pytest

from pvdm.errors import InputError, UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.roles import (
    BUCKET_POLICY_MAX_BYTES,
    DENIED_ACTIONS,
    SEAL_STEP_SECONDS,
    Role,
    VendingSettings,
    is_sealed,
    policy_with_seal,
    session_policy,
)
from pvdm.lake.stores.s3_client import S3Settings
from tests.support.for_each import for_each

ROLE = Role("arn:aws:iam::123456789012:role/producers")
OTHER = Role("arn:aws:iam::123456789012:role/others")
TABLE = parse_location("s3://lake/warehouse/sales/orders")
PREFIX, NEIGHBOUR = TABLE.child("pvdm", "aa"), TABLE.child("pvdm", "aab")
NOW = 1_800_000_000


def permits(policy: str, action: str, key: str) -> bool:
    """Whether the policy without its conditions allows the action, as moto evaluates it."""
    access = pytest.importorskip("moto.iam.access_control")
    document = json.loads(policy)
    for each in document["Statement"]:
        each.pop("Condition", None)
    found = access.IAMPolicy(json.dumps(document)).is_action_permitted(action, f"arn:aws:s3:::{key}")
    return found is access.PermissionResult.PERMITTED


def denies(policy: str, action: str, key: str) -> bool:
    access = pytest.importorskip("moto.iam.access_control")
    found = access.IAMPolicy(policy).is_action_permitted(action, f"arn:aws:s3:::{key}")
    return found is access.PermissionResult.DENIED


@for_each(
    ("action", "key", "allowed"),
    [
        ("s3:PutObject", "lake/warehouse/sales/orders/pvdm/aa/data/x", True),
        ("s3:DeleteObject", "lake/warehouse/sales/orders/pvdm/aa/data/x", True),
        ("s3:PutObject", "lake/warehouse/sales/orders/pvdm/aab/data/x", False),
        ("s3:PutObject", "lake/warehouse/sales/orders/data/x", False),
        ("s3:GetObject", "lake/warehouse/sales/orders/data/x", True),
        ("s3:GetObject", "lake/warehouse/sales/orders2/data/x", False),
        ("s3:PutObject", "lake/warehouse/sales/orders/pvdm/aa", False),
        ("s3:PutBucketPolicy", "lake", False),
        ("s3:DeleteObjectVersion", "lake/warehouse/sales/orders/pvdm/aa/data/x", False),
        ("s3:BypassGovernanceRetention", "lake/warehouse/sales/orders/pvdm/aa/data/x", False),
    ],
)
def test_a_session_may_write_its_prefix_and_read_its_table_only(action: str, key: str, allowed: bool) -> None:
    assert permits(session_policy(ROLE, write=[PREFIX], read=[TABLE]), action, key) is allowed


def test_a_session_for_reading_cannot_write() -> None:
    policy = session_policy(ROLE, write=[], read=[TABLE])
    assert not permits(policy, "s3:PutObject", "lake/warehouse/sales/orders/data/x")


def test_a_star_in_a_key_is_escaped() -> None:
    policy = session_policy(ROLE, write=[parse_location("s3://lake/a*b")], read=[])
    assert '"arn:aws:s3:::lake/a${*}b/*"' in policy


def test_a_session_may_list_only_the_prefix_that_it_writes() -> None:
    (listing,) = [
        each
        for each in json.loads(session_policy(ROLE, write=[PREFIX], read=[TABLE]))["Statement"]
        if each["Action"] == ["s3:ListBucket"]
    ]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["warehouse/sales/orders/pvdm/aa/*"]}}


def test_a_session_for_reading_cannot_list() -> None:
    assert not permits(session_policy(ROLE, write=[], read=[TABLE]), "s3:ListBucket", "lake")


def test_a_session_policy_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        session_policy(ROLE, write=[parse_location(f"s3://lake/{'x' * 1_000}")], read=[TABLE])
    assert caught.value.reason == "session_policy_too_long"


def test_a_seal_denies_every_way_to_change_a_file_below_the_prefix_and_nothing_beside_it() -> None:
    policy = policy_with_seal(None, ROLE, PREFIX, until=NOW + 60, now=NOW)
    inside, beside = "lake/warehouse/sales/orders/pvdm/aa/data/x", "lake/warehouse/sales/orders/pvdm/aab/data/x"
    assert all(denies(policy, action, inside) for action in DENIED_ACTIONS)
    assert not any(denies(policy, action, beside) for action in DENIED_ACTIONS)
    assert not denies(policy, "s3:GetObject", inside)
    assert json.loads(policy)["Statement"][0]["Principal"] == {"AWS": ROLE.arn}


def test_a_seal_denies_the_actions_of_an_upload_in_parts() -> None:
    """AWS requires s3:PutObject to complete such an upload."""
    actions = {"s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:DeleteObjectVersion"}
    assert actions <= set(DENIED_ACTIONS)


def test_a_seal_keeps_the_other_statements_of_the_policy() -> None:
    own = {"Sid": "Own", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::l/*"}
    policy = policy_with_seal(
        json.dumps({"Version": "2012-10-17", "Id": "x", "Statement": own}), ROLE, PREFIX, until=NOW, now=0
    )
    found = json.loads(policy)
    assert (found["Id"], found["Statement"][0]) == ("x", own)


def test_seals_of_one_step_share_a_statement_and_ended_seals_are_removed() -> None:
    first = policy_with_seal(None, ROLE, PREFIX, until=NOW + 1, now=NOW)
    second = policy_with_seal(first, ROLE, NEIGHBOUR, until=NOW + 2, now=NOW)
    assert len(json.loads(second)["Statement"]) == 1
    assert is_sealed(second, ROLE, PREFIX, until=NOW + 1)
    later = NOW + 2 * SEAL_STEP_SECONDS
    third = policy_with_seal(second, ROLE, TABLE.child("pvdm", "c"), until=later + 60, now=later)
    assert not is_sealed(third, ROLE, PREFIX, until=0)
    assert len(json.loads(third)["Statement"]) == 1


@for_each(
    "change",
    [
        {"Effect": "Allow"},
        {"Principal": {"AWS": OTHER.arn}},
        {"Action": ["s3:PutObject"]},
        {"Resource": ["arn:aws:s3:::lake/warehouse/sales/orders/pvdm/aab/*"]},
        {"Sid": f"PvdmSealUntil{NOW - SEAL_STEP_SECONDS}"},
        {"Sid": "Another"},
    ],
    ids=["allow", "role", "actions", "resource", "ended", "no seal"],
)
def test_a_statement_that_differs_from_a_seal_of_the_prefix_is_no_seal(change: dict[str, object]) -> None:
    document = json.loads(policy_with_seal(None, ROLE, PREFIX, until=NOW, now=0))
    assert is_sealed(json.dumps(document), ROLE, PREFIX, until=NOW)
    document["Statement"][0] |= change
    assert not is_sealed(json.dumps(document), ROLE, PREFIX, until=NOW)


def test_a_seal_with_its_only_resource_as_a_plain_text_is_a_seal() -> None:
    document = json.loads(policy_with_seal(None, ROLE, PREFIX, until=NOW, now=0))
    document["Statement"][0]["Resource"] = document["Statement"][0]["Resource"][0]
    assert is_sealed(json.dumps(document), ROLE, PREFIX, until=NOW)


def test_a_seal_that_does_not_fit_into_the_policy_is_refused() -> None:
    policies = [""]

    def fill() -> None:
        for number in range(1_000):
            place = TABLE.child("pvdm", f"{number:032x}")
            policies.append(policy_with_seal(policies[-1] or None, ROLE, place, until=NOW, now=0))

    with pytest.raises(UnavailableError) as caught:
        fill()
    assert caught.value.reason == "seal_policy_full"
    assert len(policies) > 150
    assert len(policies[-1]) <= BUCKET_POLICY_MAX_BYTES


@pytest.mark.parametrize(
    "roles", [("arn:aws:iam::1:role/x", ROLE.arn), (ROLE.arn, ROLE.arn), ("*", ROLE.arn)], ids=["form", "one", "any"]
)
def test_invalid_or_equal_roles_are_refused(roles: tuple[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        VendingSettings(*roles)
    assert caught.value.reason == "s3_settings"


@for_each("endpoint", ["http://host:9000/path", "http://host?a=b", "http://me:secret@host", "ftp://host"])
def test_an_endpoint_with_more_than_a_host_is_refused(endpoint: str) -> None:
    with pytest.raises(InputError) as caught:
        S3Settings("eu-central-1", endpoint)
    assert caught.value.reason == "s3_settings"
    assert "secret" not in str(caught.value.to_json())
    S3Settings("eu-central-1", "http://host:9000/")
