"""The store file of an embedded Steward, with its settings of catalog and stores: it takes effect or is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError, PvdmError, UnavailableError
from pvdm.steward.config import resources
from pvdm.steward.embedded import embedded
from pvdm.steward.embedded.embedded import EmbeddedSteward, Person
from pvdm.trust.keys.pem import create_key_pair
from pvdm.trust.root import RootRole, sign_root

FIRST = '[catalog]\nname = "lake"\nwarehouse = "tables"\n'
UPSTREAM = """
[[catalog.upstreams]]
kind = "rest"
name = "prod"
namespace = ["prod"]
uri = "http://127.0.0.1:9/"
"""


def store_file(folder: Path, text: str) -> Path:
    path = folder / "store.toml"
    path.write_text(text)
    return path


def refusal_of(folder: Path, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        embedded.start(folder / "s", store=store_file(folder, text))
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The parent folder of a Steward that was started once with the first store file."""
    embedded.start(tmp_path / "s", store=store_file(tmp_path, FIRST)).close()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        (FIRST + UPSTREAM, "catalog.upstreams"),
        (FIRST.replace("tables", "elsewhere"), "catalog.warehouse"),
        (FIRST + '[s3]\nregion = "eu-central-1"\n', "s3"),
        ("", "catalog.warehouse"),
        (FIRST + "[service.limits]\nburst = 7\n", "service.limits.burst"),
        (FIRST + '[spark]\nmaster = "local[1]"\n', "spark"),
    ],
    ids=["upstream", "warehouse", "store", "nothing", "limits", "spark"],
)
def test_a_second_start_with_another_store_file_is_refused_and_names_what_differs(
    folder: Path, text: str, setting: str
) -> None:
    error = refusal_of(folder, text)
    assert (error.reason, error.got) == ("embedded_store_differs", f"other values of {setting}")
    assert str(folder / "s" / "steward.toml") in str(error.expected)
    assert error.hint is not None
    assert "edit steward.toml" in error.hint


@pytest.mark.parametrize("text", [FIRST, FIRST + 'metadata = "catalog"\n# a note\n'], ids=["same", "defaults written"])
def test_a_second_start_with_the_same_settings_in_its_store_file_succeeds(folder: Path, text: str) -> None:
    with embedded.start(folder / "s", store=store_file(folder, text)) as steward:
        assert steward.readiness().ready


def test_a_second_start_without_a_store_file_keeps_the_configuration(folder: Path) -> None:
    with embedded.start(folder / "s") as steward:
        assert warehouse(steward) == folder / "s" / "tables"


def test_after_an_edit_of_steward_toml_the_old_store_file_is_refused(folder: Path) -> None:
    config = folder / "s" / "steward.toml"
    config.write_text(config.read_text() + UPSTREAM)
    embedded.start(folder / "s").close()
    assert refusal_of(folder, FIRST).got == "other values of catalog.upstreams"
    embedded.start(folder / "s", store=store_file(folder, FIRST + UPSTREAM)).close()


def test_after_an_invalid_store_file_a_start_with_a_valid_one_succeeds(tmp_path: Path) -> None:
    error = refusal_of(tmp_path, FIRST + '[s3]\nregon = "eu-central-1"\n')
    assert (error.reason, error.message, error.got) == (
        "config_invalid",
        "store.toml: s3.regon cannot be accepted",
        "regon",
    )
    with embedded.start(tmp_path / "s", store=store_file(tmp_path, FIRST)) as steward:
        assert warehouse(steward) == tmp_path / "s" / "tables"


@pytest.mark.parametrize(
    ("text", "message", "got"),
    [
        ('notary = "mine"\n' + FIRST, "store.toml: notary cannot be accepted", "another line"),
        # In steward.toml this line would become part of [service], the table before it.
        ("port = 8181\n" + FIRST, "store.toml: port cannot be accepted", "another line"),
        (FIRST + '[keys]\nhome = "file"\n', "store.toml: keys cannot be accepted", "another table"),
        ("[catalog]\nwarehouse = here\n", "store.toml cannot be accepted", "Invalid value (at line 2, column 13)"),
    ],
    ids=["line", "service's line", "table", "no TOML"],
)
def test_a_store_file_with_an_unknown_line_or_table_or_without_toml_is_refused(
    tmp_path: Path, text: str, message: str, got: str
) -> None:
    error = refusal_of(tmp_path, text)
    assert (error.reason, error.message, error.got) == ("config_invalid", message, got)


def test_after_a_failed_first_start_another_store_file_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_open(*_: object) -> None:
        raise UnavailableError("upstream_not_installed", "upstream catalogs need PyIceberg")

    with monkeypatch.context() as patched:
        patched.setattr(resources, "_open_upstream", fail_to_open)
        with pytest.raises(PvdmError, match="PyIceberg"):
            embedded.start(tmp_path / "s", store=store_file(tmp_path, FIRST + UPSTREAM))
    with embedded.start(tmp_path / "s", store=store_file(tmp_path, FIRST)) as steward:
        assert warehouse(steward) == tmp_path / "s" / "tables"
        assert steward.notary.config.catalog.upstreams == ()


def test_a_person_whose_key_the_trust_root_revoked_is_refused(tmp_path: Path) -> None:
    create_key_pair(tmp_path / "ruth")
    ruth = Person.from_file("operator-ruth", RootRole.OPERATOR, tmp_path / "ruth.pub")
    with embedded.start(tmp_path / "s", people=[ruth]) as steward:
        notary = steward.notary
        root, now = notary.trust.current(), notary.clock.now_micros()
        keys = tuple(replace(key, revoked_at=now) if key.public == ruth.public else key for key in root.keys)
        after = replace(root, version=2, previous_sha256=root.sha256, issued_at=now, keys=keys)
        notary.trust.accept(sign_root(after, [steward._root_signer]).to_bytes())
    with pytest.raises(InputError) as caught:
        embedded.start(tmp_path / "s", people=[ruth])
    assert caught.value.reason == "embedded_person_ended"
    embedded.start(tmp_path / "s").close()


def warehouse(steward: EmbeddedSteward) -> Path:
    catalog = steward.notary.config.catalog
    return Path(catalog.warehouse.removeprefix("file://"))
