"""`steward.toml`: how its fields are read, their defaults, and files that are refused with the name of the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.roles import VendingSettings
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.upstream import GlueSettings
from pvdm.model.host import is_loopback
from pvdm.model.statements.proof import Isolation
from pvdm.steward.config.resources import open_mounts
from pvdm.steward.config.sections import RestUpstreamConfig, UpstreamConfig
from pvdm.steward.config.steward import (
    CONFIG_SIZE_MAX_BYTES,
    CatalogConfig,
    FileKeys,
    Limits,
    Pkcs11Keys,
    ServiceConfig,
    StewardConfig,
    load_config,
    require_tls_or_loopback,
)
from pvdm.trust.keys.kms import KmsSettings
from pvdm.trust.keys.public import Algorithm

SMALL = """
notary = "steward-one"
origin = "steward-one.example/log"
ledger = "sqlite:///ledger.db"
outside = "outside/checkpoint"

[keys]
home = "file"
path = "keys"
"""

WHOLE = """
notary = "steward-one"
origin = "steward-one.example/log"
isolation = "account"
ledger = "postgresql://steward@db.example/pvdm"
outside = "/srv/outside/checkpoint"
archive = "archive"
trust_root_sha256 = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

[keys]
home = "pkcs11"
library = "/usr/lib/softhsm/libsofthsm2.so"
token = "pvdm"
pin_file = "pin"
algorithm = "ecdsa-p256"

[service]
host = "0.0.0.0"
port = 443
tls_certificate = "tls/certificate.pem"
tls_key = "tls/key.pem"

[service.limits]
rate_per_second = 7
wait_seconds = 0
"""


def write_config(folder: Path, text: str) -> Path:
    path = folder / "steward.toml"
    path.write_text(text)
    return path


def load_text(folder: Path, text: str) -> StewardConfig:
    return load_config(write_config(folder, text))


def refusal_of(call: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as caught:
        call()
    return caught.value


def test_a_small_file_has_all_defaults(tmp_path: Path) -> None:
    assert load_text(tmp_path, SMALL) == StewardConfig(
        notary="steward-one",
        origin="steward-one.example/log",
        ledger_url=f"sqlite:///{tmp_path}/ledger.db",
        keys=FileKeys(tmp_path / "keys"),
        outside_path=tmp_path / "outside" / "checkpoint",
        catalog=CatalogConfig(f"file://{tmp_path}/warehouse", tmp_path / "catalog"),
        isolation=Isolation.PROCESS,
        archive=None,
        trust_root_sha256=None,
        service=ServiceConfig("127.0.0.1", 8181, None, None, Limits()),
    )


def test_a_whole_file_is_read_field_by_field(tmp_path: Path) -> None:
    assert load_text(tmp_path, WHOLE) == StewardConfig(
        notary="steward-one",
        origin="steward-one.example/log",
        ledger_url="postgresql://steward@db.example/pvdm",
        keys=Pkcs11Keys("/usr/lib/softhsm/libsofthsm2.so", "pvdm", tmp_path / "pin", Algorithm.ECDSA_P256),
        outside_path=Path("/srv/outside/checkpoint"),
        catalog=CatalogConfig(f"file://{tmp_path}/warehouse", tmp_path / "catalog"),
        isolation=Isolation.ACCOUNT,
        archive=tmp_path / "archive",
        trust_root_sha256="00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        service=ServiceConfig(
            "0.0.0.0",
            443,
            tmp_path / "tls" / "certificate.pem",
            tmp_path / "tls" / "key.pem",
            replace(Limits(), rate_per_second=7, wait_seconds=0),
        ),
    )


def test_a_catalog_is_read_and_its_default_folders_are_beside_the_file(tmp_path: Path) -> None:
    catalog = load_text(tmp_path, SMALL + "[catalog]\n").catalog
    assert catalog == CatalogConfig(f"file://{tmp_path}/warehouse", tmp_path / "catalog", "lake")
    text = SMALL + f'[catalog]\nname = "shop"\nwarehouse = "file://{tmp_path}/w"\nmetadata = "/srv/pvdm/catalog"\n'
    assert load_text(tmp_path, text).catalog == CatalogConfig(f"file://{tmp_path}/w", Path("/srv/pvdm/catalog"), "shop")


def test_the_default_vault_is_beside_the_metadata(tmp_path: Path) -> None:
    catalog = load_text(tmp_path, SMALL + '[catalog]\nmetadata = "/srv/pvdm/catalog"\n').catalog
    assert catalog.vault == Path("/srv/pvdm/vault")
    catalog_with_vault = load_text(tmp_path, SMALL + '[catalog]\nvault = "kept"\n').catalog
    assert catalog_with_vault is not None
    assert catalog_with_vault.vault == tmp_path / "kept"


@pytest.mark.parametrize(
    ("vault", "expected"),
    [
        ("warehouse/vault", "vault outside of warehouse"),
        (".", "vault outside of warehouse"),
        ("catalog/vault", "vault outside of metadata"),
        ("catalog", "vault outside of metadata"),
    ],
)
def test_a_vault_that_overlaps_warehouse_or_metadata_is_refused(tmp_path: Path, vault: str, expected: str) -> None:
    error = refusal_of(lambda: load_text(tmp_path, SMALL + f'[catalog]\nvault = "{vault}"\n'))
    assert (error.reason, error.expected) == ("config_invalid", expected)


@pytest.mark.parametrize("warehouse", ["s3://lake/tables", "s3a://lake", "gs://lake/x", "abfss://c.example/x"])
def test_a_warehouse_in_another_kind_of_store_than_the_vault_is_refused(tmp_path: Path, warehouse: str) -> None:
    error = refusal_of(lambda: load_text(tmp_path, SMALL + f'[catalog]\nwarehouse = "{warehouse}"\n'))
    assert (error.reason, error.message) == ("config_invalid", "warehouse, metadata and vault lie in one kind of store")


IN_BUCKET = '[catalog]\nwarehouse = "s3a://lake/w"\nmetadata = "s3://lake/steward/catalog"\n'
STORE = '[s3]\nregion = "eu-central-1"\nendpoint = "https://minio.example"\npath_style = true\n'
ROLES = (
    '[s3.vending]\nproducer_role = "arn:aws:iam::111122223333:role/p"\n'
    'consumer_role = "arn:aws:iam::111122223333:role/c"\n'
)


def test_tables_in_a_bucket_are_read_with_their_store_and_roles(tmp_path: Path) -> None:
    config = load_text(tmp_path, SMALL + IN_BUCKET + STORE + ROLES)
    place = parse_location("s3://lake/steward/catalog")
    assert config.catalog == CatalogConfig("s3://lake/w", place, "lake", parse_location("s3://lake/steward/vault"))
    assert config.s3 == S3Settings("eu-central-1", "https://minio.example", path_style=True)
    assert config.vending == VendingSettings("arn:aws:iam::111122223333:role/p", "arn:aws:iam::111122223333:role/c")


def test_tables_in_a_bucket_without_an_s3_section_are_refused(tmp_path: Path) -> None:
    error = refusal_of(lambda: load_text(tmp_path, SMALL + IN_BUCKET))
    assert (error.reason, error.expected) == ("config_invalid", "a table [s3] with its region")


@pytest.mark.parametrize("lines", ["path_style = 1", "tries = 99", 'access_key = "x"'])
def test_invalid_settings_of_a_store_are_refused(tmp_path: Path, lines: str) -> None:
    text = SMALL + IN_BUCKET + f'[s3]\nregion = "eu-central-1"\n{lines}\n'
    assert refusal_of(lambda: load_text(tmp_path, text)).reason == "config_invalid"


def test_keys_in_kms_are_configured_by_region(tmp_path: Path) -> None:
    text = SMALL.replace('home = "file"\npath = "keys"', 'home = "kms"\nregion = "eu-west-1"\ntries = 2')
    assert load_text(tmp_path, text).keys == KmsSettings("eu-west-1", None, 5, 2)


def test_a_passphrase_is_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    text = SMALL + 'passphrase_file = "passphrase"\n'
    assert load_text(tmp_path, text).keys == FileKeys(tmp_path / "keys", tmp_path / "passphrase")


def test_a_path_is_relative_to_the_folder_of_the_file_not_to_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("steward.toml")).outside_path == tmp_path / "outside" / "checkpoint"


def test_an_absolute_ledger_file_stays_where_it_is(tmp_path: Path) -> None:
    text = SMALL.replace("sqlite:///ledger.db", "sqlite:////srv/ledger.db")
    assert load_text(tmp_path, text).ledger_url == "sqlite:////srv/ledger.db"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('notary = "steward-one"\n', "", "notary"),
        ('notary = "steward-one"', 'notary = "Steward One"', "notary"),
        ('notary = "steward-one"', "notary = 7", "notary"),
        ('notary = "steward-one"', 'notary = "steward-one\\n"', "notary"),
        ('origin = "steward-one.example/log"', 'origin = ""', "origin"),
        ('ledger = "sqlite:///ledger.db"\n', "", "ledger"),
        ('outside = "outside/checkpoint"\n', "", "outside"),
        ('outside = "outside/checkpoint"', 'outside = "outside/checkpoint"\nisolation = "none"', "isolation"),
        ('outside = "outside/checkpoint"', 'outside = "outside/checkpoint"\nunknown = 1', "unknown"),
        ('outside = "outside/checkpoint"', 'outside = "o"\ntrust_root_sha256 = "abc"', "trust_root_sha256"),
        ('home = "file"', 'home = "memory"', "keys"),
        ('path = "keys"', 'path = "keys"\nregion = "x"', "keys.region"),
        ('path = "keys"', 'path = "keys"\n[service]\nport = 65536', "service.port"),
        ('path = "keys"', 'path = "keys"\n[service]\nport = "8181"', "service.port"),
        ('path = "keys"', 'path = "keys"\n[service.limits]\nburst = 0', "service.limits.burst"),
        ('path = "keys"', 'path = "keys"\n[service.limits]\nbody_max_bytes = 10', "service.limits.body_max_bytes"),
        ('path = "keys"', 'path = "keys"\n[service.limits]\nsomething = 1', "service.limits.something"),
    ],
)
def test_an_invalid_field_is_refused_by_name(tmp_path: Path, old: str, new: str, field: str) -> None:
    assert old in SMALL
    error = refusal_of(lambda: load_text(tmp_path, SMALL.replace(old, new)))
    assert (error.reason, error.message) == ("config_invalid", f"steward.toml: {field} cannot be accepted")


@pytest.mark.parametrize("table", ["keys", "service.limits", "catalog"])
def test_a_top_level_field_below_a_table_is_refused_with_a_hint(tmp_path: Path, table: str) -> None:
    line = f'trust_root_sha256 = "{"0" * 64}"'
    below = f"\n[{table}]" if table != "keys" else ""
    error = refusal_of(lambda: load_text(tmp_path, f"{SMALL}{below}\n{line}\n"))
    assert (error.reason, error.message) == (
        "config_invalid",
        f"steward.toml: {table}.trust_root_sha256 cannot be accepted",
    )
    assert error.hint == (
        "a line belongs to the table above it: "
        f"move trust_root_sha256 out of [{table}], to the top of steward.toml, above the first [table]"
    )
    assert load_text(tmp_path, f"{line}\n{SMALL}").trust_root_sha256 == "0" * 64


def test_an_unknown_field_is_refused_without_a_hint(tmp_path: Path) -> None:
    assert refusal_of(lambda: load_text(tmp_path, f"{SMALL}\nsomething = 1\n")).hint is None


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('notary = "steward-one"\n', "", "expected a value, got nothing"),
        ('notary = "steward-one"', "notary = 7", "expected text, got a whole number"),
        (
            'outside = "outside/checkpoint"',
            'outside = "o"\nunknown = 1',
            "a field of steward.toml, got unknown",
        ),
        ('outside = "outside/checkpoint"', 'outside = "o"\ntrust_root_sha256 = "abc"', "64 lower-case hex digits, got"),
        ('notary = "steward-one"', 'notary = "Steward One"', "the first a letter or digit, got another text"),
        ('outside = "outside/checkpoint"', 'outside = "o"\nisolation = "none"', "'embedded', 'process' or 'account'"),
        ('home = "file"', 'home = "memory"', 'expected home = "file", "kms" or "pkcs11", got another home'),
        ('home = "file"\n', "", 'expected home = "file", "kms" or "pkcs11", got no home'),
        ('path = "keys"', 'path = "keys"\n[service]\nport = 65536', "expected at most 65535, got more"),
        ('path = "keys"', 'path = "keys"\n[service]\nport = "x"', "expected a whole number, got text"),
        ('path = "keys"', 'path = "keys"\n[service.limits]\nburst = 0', "expected at least 1, got less"),
        ('path = "keys"', 'path = "keys"\n[service]\nlimits = 1', "expected a table, got a whole number"),
        ('path = "keys"', 'path = "keys"\n[alerts]\ncommand = "mail"', "expected a list, got text"),
    ],
)
def test_the_error_of_an_invalid_field_says_expected_and_got(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in SMALL
    assert text in str(refusal_of(lambda: load_text(tmp_path, SMALL.replace(old, new))))


def test_the_error_of_an_invalid_field_does_not_show_its_value(tmp_path: Path) -> None:
    """It could be a password in the wrong place."""
    text = SMALL.replace('path = "keys"', 'path = "keys"\npassphrase = "geheim"')
    assert "geheim" not in repr(refusal_of(lambda: load_text(tmp_path, text)).__dict__)


@pytest.mark.parametrize("content", [b"notary = ", b"\xff\xfe", b"a = 1\na = 2"], ids=["cut", "not-text", "twice"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "steward.toml"
    path.write_bytes(content)
    error = refusal_of(lambda: load_config(path))
    assert (error.reason, error.expected) == ("config_invalid", "TOML")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    error = refusal_of(lambda: load_config(tmp_path / "steward.toml"))
    assert (error.reason, error.expected) == ("config_invalid", "a file that can be read")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    text = SMALL + "#" * CONFIG_SIZE_MAX_BYTES
    assert refusal_of(lambda: load_text(tmp_path, text)).got == "more"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "steward.example", "192.168.1.1", "127.0.0.1.example"])
def test_a_host_other_than_loopback_needs_a_certificate(tmp_path: Path, host: str) -> None:
    text = SMALL + f'[service]\nhost = "{host}"\n'
    assert refusal_of(lambda: load_text(tmp_path, text)).reason == "tls_missing"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_no_certificate(tmp_path: Path, host: str) -> None:
    assert is_loopback(host)
    assert load_text(tmp_path, SMALL + f'[service]\nhost = "{host}"\n').service.host == host


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key"])
def test_a_certificate_without_its_key_or_reverse_is_refused(tmp_path: Path, name: str) -> None:
    text = SMALL + f'[service]\n{name} = "file.pem"\n'
    error = refusal_of(lambda: load_text(tmp_path, text))
    assert (error.reason, error.got) == ("config_invalid", "one of them")


def test_a_service_config_from_code_needs_a_certificate_too() -> None:
    service = ServiceConfig(host="0.0.0.0")
    assert refusal_of(lambda: require_tls_or_loopback(service)).reason == "tls_missing"
    require_tls_or_loopback(replace(service, tls_certificate=Path("c"), tls_key=Path("k")))


def test_the_default_service_of_the_file_is_the_default_of_the_class(tmp_path: Path) -> None:
    assert load_text(tmp_path, SMALL).service == ServiceConfig()


def test_the_repr_of_a_configuration_does_not_show_the_databases_password() -> None:
    config = StewardConfig(
        notary="steward-one",
        origin="steward-one.example/log",
        ledger_url="postgresql://steward:hunter2@db/ledger",
        keys=FileKeys(Path("keys")),
        outside_path=Path("outside"),
        catalog=CatalogConfig("file:///warehouse", Path("catalog")),
    )
    assert "hunter2" not in f"{config!r} {config}"


REST = """
[[catalog.upstreams]]
kind = "rest"
name = "prod"
namespace = ["prod"]
uri = "https://catalog.example"
token_file = "prod.token"
"""
GLUE = """
[[catalog.upstreams]]
kind = "glue"
name = "glue"
namespace = ["aws", "eu"]
there = ["shop"]
region = "eu-central-1"
timeout_seconds = 5
"""


def test_upstream_catalogs_are_read_with_their_files(tmp_path: Path) -> None:
    (tmp_path / "steward.toml").write_text(f"{SMALL}{REST}{GLUE}")
    found = load_config(tmp_path / "steward.toml").catalog
    assert found is not None
    assert found.upstreams == (
        UpstreamConfig(
            "prod",
            ("prod",),
            (),
            RestUpstreamConfig("https://catalog.example", token_file=tmp_path / "prod.token"),
        ),
        UpstreamConfig("glue", ("aws", "eu"), ("shop",), GlueSettings("eu-central-1", timeout_seconds=5)),
    )


@pytest.mark.parametrize(
    "lines",
    [
        REST + REST,
        REST + GLUE.replace('["aws", "eu"]', '["prod", "eu"]'),
        REST.replace('"rest"', '"hive"'),
        REST.replace('kind = "rest"', ""),
        REST.replace('["prod"]', "[]"),
        REST.replace("uri", "url"),
        GLUE.replace("timeout_seconds = 5", "timeout_seconds = 0"),
    ],
    ids=["name twice", "one below the other", "another kind", "no kind", "no namespace", "unknown key", "no time"],
)
def test_invalid_upstream_catalogs_are_refused(tmp_path: Path, lines: str) -> None:
    (tmp_path / "steward.toml").write_text(f"{SMALL}{lines}")
    with pytest.raises(InputError) as caught:
        load_config(tmp_path / "steward.toml")
    assert caught.value.reason == "config_invalid"


def test_an_upstream_needs_places_if_credentials_are_vended(tmp_path: Path) -> None:
    with_places = REST + 'places = ["s3a://lake/prod/"]\n'
    config = load_text(tmp_path, SMALL + IN_BUCKET + with_places + STORE + ROLES).catalog
    assert config is not None
    assert [each.places for each in config.upstreams] == [(parse_location("s3://lake/prod"),)]
    error = refusal_of(lambda: load_text(tmp_path, SMALL + IN_BUCKET + REST + STORE + ROLES))
    assert (error.reason, error.got) == ("config_invalid", "none")
    assert load_text(tmp_path, SMALL + IN_BUCKET + REST + STORE).catalog is not None


def test_a_missing_secret_file_of_an_upstream_is_refused(tmp_path: Path) -> None:
    settings = RestUpstreamConfig("https://catalog.example", token_file=tmp_path / "none")
    with pytest.raises(InputError) as caught:
        open_mounts([UpstreamConfig("prod", ("prod",), (), settings)])
    assert caught.value.reason == "config_invalid"
