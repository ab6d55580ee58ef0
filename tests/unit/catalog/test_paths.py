"""Locations: one normal form for each place, and no spelling that leads out of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.errors import InputError
from pvdm.lake.paths import LOCATION_MAX_CHARACTERS, Location, parse_location
from tests.support.for_each import for_each

HOME = parse_location("/lake/sales/orders")


@for_each(
    "text",
    [
        "/lake/sales/orders",
        "/lake/sales/orders/",
        "/lake//sales///orders",
        "file:/lake/sales/orders",
        "file:///lake/sales/orders",
        "FILE:///lake/sales/orders",
        "file://localhost/lake/sales/orders",
    ],
)
def test_every_spelling_of_a_local_place_is_one_place(text: str) -> None:
    assert parse_location(text) == HOME


@pytest.mark.parametrize("text", ["s3://lake/orders", "s3a://lake/orders", "S3N://lake/orders/"])
def test_every_name_of_the_object_store_is_one_scheme(text: str) -> None:
    assert parse_location(text) == Location("s3", "lake", ("orders",))


@for_each(
    "text",
    [
        "",
        "relative/path",
        "file:relative",
        "file://otherhost/lake",
        "file://localhost",
        "/lake/../etc",
        "/lake/./orders",
        "s3://lake/a/../b",
        "/lake/%2e%2e/etc",
        "/lake/%2E%2E/etc",
        "/lake/.%2e/etc",
        "/lake/%2e/etc",
        "/lake/a%2Fb",
        "/lake/%6frders",
        "/lake/%4F",
        "/lake/x%30",
        "/lake/x%5f",
        "/lake/a\\b",
        "/lake/a?b",
        "/lake/a#b",
        "/lake/a\x00b",
        "/lake/a\nb",
        "s3:lake/a",
        "s3:///a",
        "s3://user:secret@lake/a",
        "s3://*/a",
        "s3://la?ke/a",
        "/" + "x" * LOCATION_MAX_CHARACTERS,
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_a_location_that_could_mean_two_places_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_location(text)
    assert caught.value.reason == "location_invalid"


@for_each("name", ["at=10%3A00", "a%20b", "100%", "x%zz", "%7Bid%7D"])
def test_an_escape_that_a_partition_value_needs_is_kept_as_it_is(name: str) -> None:
    assert parse_location(f"/lake/{name}").parts == ("lake", name)


@pytest.mark.parametrize("text", ["/lake/sales/orders", "/lake/sales/orders/metadata/x.avro"])
def test_a_place_inside_a_folder_is_under_it(text: str) -> None:
    assert parse_location(text).is_under(HOME)


@for_each(
    "text",
    ["/lake/sales", "/lake/sales/orders2/x", "/lake/sales/order", "/other/lake/sales/orders", "s3://lake/sales/orders"],
)
def test_a_place_beside_or_above_a_folder_is_not_under_it(text: str) -> None:
    assert not parse_location(text).is_under(HOME)


def test_the_same_path_in_another_bucket_is_not_under_the_folder() -> None:
    assert not parse_location("s3://b/x/y").is_under(parse_location("s3://a/x"))


@pytest.mark.parametrize(
    ("other", "overlaps"), [("/lake", True), ("/lake/sales/orders/x", True), ("/lake/sales/x", False)]
)
def test_a_location_overlaps_the_folders_above_and_below_it(other: str, overlaps: bool) -> None:
    assert HOME.overlaps(parse_location(other)) is overlaps


def test_a_place_is_written_in_one_way() -> None:
    assert str(parse_location("file:/lake//x/")) == "file:///lake/x"
    assert str(parse_location("s3a://lake/x")) == "s3://lake/x"


def test_a_child_lies_inside() -> None:
    assert HOME.child("metadata", "x") == parse_location("/lake/sales/orders/metadata/x")


def test_a_bucket_has_no_local_path() -> None:
    with pytest.raises(InputError) as caught:
        _ = parse_location("s3://lake/x").local
    assert caught.value.reason == "location_invalid"


def test_a_link_below_the_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "home" / "deep").mkdir(parents=True)
    (tmp_path / "home" / "deep" / "link").symlink_to(tmp_path)
    home = parse_location(str(tmp_path / "home"))
    assert home.child("deep", "link", "x").link_below(home) == tmp_path / "home" / "deep" / "link"


def test_a_folder_that_is_itself_a_link_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "real")
    home = parse_location(str(tmp_path / "home"))
    assert home.child("deep", "x").link_below(home) is None


@pytest.mark.parametrize("name", ["missing", "x" * 300])
def test_a_missing_path_is_not_a_link(tmp_path: Path, name: str) -> None:
    home = parse_location(str(tmp_path))
    assert home.child(name, "y").link_below(home) is None


@for_each(
    "text",
    [
        "s3://AKIAKEY:secret@lake/a",
        "s3://AKIAKEY:se/cret@lake/a",
        f"s3://AKIAKEY:{'x' * 300}secret@lake/a",
        "s3://lake/a?X-Amz-Signature=secret",
        "file://AKIAKEY:secret@host/a",
    ],
)
def test_a_credential_in_a_location_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_location(text)
    error_text = str(caught.value.to_json())
    assert "secret" not in error_text
    assert "AKIAKEY" not in error_text
    assert caught.value.got is not None
    assert "lake/a" in caught.value.got or "host/a" in caught.value.got
