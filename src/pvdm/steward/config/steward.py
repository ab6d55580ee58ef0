"""`steward.toml`: names of notary and log, keys, ledger, outside checkpoint, catalog and service."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, ValidationError

from pvdm.errors import Code, PvdmError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.roles import VENDED_LEAST_SECONDS, VENDED_MAX_SECONDS, VendingSettings
from pvdm.lake.stores.s3_client import S3_TIMEOUT_MAX_SECONDS, S3_TRIES_MAX, S3Settings
from pvdm.lake.stores.stores import ConfiguredPath
from pvdm.model.host import is_loopback
from pvdm.model.statements.proof import Isolation
from pvdm.steward.config import sections
from pvdm.steward.config.alerts import AlertsConfig, AlertsSection, make_alerts_config
from pvdm.steward.config.lineage import LineageConfig, LineageSection, make_lineage_config
from pvdm.trust.keys.kms import KMS_TIMEOUT_MAX_SECONDS, KMS_TRIES_MAX, KmsSettings
from pvdm.trust.keys.public import Algorithm
from pvdm.verify.spark.settings import SparkSettings

CONFIG_SIZE_MAX_BYTES: Final = 65_536

_SHA256: Final = r"[0-9a-f]{64}"
_OBJECT_STORE_URL: Final = re.compile(r"s3[an]?://", re.IGNORECASE)
# What an error message says about the values that a pattern accepts.
_PATTERN_DESCRIPTIONS: Final = {
    f"^{sections.IDENTITY}$": "1 to 128 of a to z, 0 to 9 and . _ @ / : -, the first a letter or digit",
    f"^{_SHA256}$": "64 lower-case hex digits",
}
# The name of each type of value in error messages.
_TYPE_NAMES: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
# Pydantic's error types for a value of a wrong type, each with the type that the field requires.
_EXPECTED_TYPES: Final = {
    "string_type": str,
    "path_type": str,
    "int_type": int,
    "bool_type": bool,
    "list_type": list,
}
# Pydantic's error types for an unknown field: of a model, and of a dataclass.
_UNKNOWN_FIELD: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


@dataclass(frozen=True, slots=True)
class FileKeys:
    """A keystore file; its passphrase, if any, is in a separate file."""

    path: Path
    passphrase_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Pkcs11Keys:
    """Keys in a PKCS#11 token; its PIN is in a separate file."""

    library: str
    token: str
    pin_file: Path
    algorithm: Algorithm = Algorithm.ED25519


KeysConfig: TypeAlias = FileKeys | KmsSettings | Pkcs11Keys


@dataclass(frozen=True, slots=True)
class Limits:
    """The section [service.limits]. `rate_per_second`, `burst` and `concurrent` are for one caller's requests."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    body_max_bytes: Annotated[int, Field(strict=True, ge=1_024, le=67_108_864)] = 65_536
    # The limit for requests to the catalog and for signed statements: a trust root of 1 MiB, base64 and signatures.
    envelope_max_bytes: Annotated[int, Field(strict=True, ge=1_024, le=67_108_864)] = 2_097_152
    rate_per_second: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 100
    burst: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 400
    concurrent: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 32
    in_flight: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 512  # requests of all callers
    peer_connections: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 256  # from one address
    wait_seconds: Annotated[int, Field(strict=True, ge=0, le=600)] = 10  # how long a request above `concurrent` waits
    request_seconds: Annotated[int, Field(strict=True, ge=1, le=3_600)] = 60
    shutdown_seconds: Annotated[int, Field(strict=True, ge=1, le=3_600)] = 20


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The section [service]: address of the HTTP service; without a certificate only loopback is allowed."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 8181
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """The section [retention]: for how many days the Steward keeps files that it does not need any more."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    quarantine_days: Annotated[int, Field(strict=True, ge=7, le=36_500)] = 90
    metadata_days: Annotated[int, Field(strict=True, ge=1, le=365)] = 7


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """The catalog's name, the warehouse of its tables, and the two folders that only the Steward writes.

    The vault holds published manifests, copied data files and quarantined files. Its default is `vault` beside the
    metadata folder.
    """

    warehouse: str
    metadata: ConfiguredPath
    name: str = "lake"
    vault: ConfiguredPath = Path()  # an empty path means the default
    upstreams: tuple[sections.UpstreamConfig, ...] = ()

    def __post_init__(self) -> None:
        if self.vault == Path():
            object.__setattr__(self, "vault", _default_vault(self.metadata))


@dataclass(frozen=True, slots=True)
class StewardConfig:
    """The whole configuration of a Steward."""

    notary: str
    origin: str  # the name of the log
    ledger_url: str = field(repr=False)  # it may hold a password
    keys: KeysConfig
    outside_path: Path  # of the outside checkpoint
    catalog: CatalogConfig
    isolation: Isolation = Isolation.PROCESS  # how far the Steward is separated from producers; proofs state it
    development: bool = False  # whether the operator's key is in the Steward's folder and signs every approval
    archive: Path | None = None
    trust_root_sha256: str | None = None  # the hash of the first trust root; the Steward accepts no other first one
    service: ServiceConfig = field(default_factory=ServiceConfig)
    s3: S3Settings | None = None
    vending: VendingSettings | None = None
    spark: SparkSettings | None = None
    alerts: AlertsConfig | None = None
    lineage: LineageConfig | None = None
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    # The locations of outside checkpoint and archive in an object store. Each replaces its path above, if it is set.
    outside_store_location: Location | None = None
    archive_store_location: Location | None = None


class _FileKeys(sections.StrictSection):
    home: Literal["file"]
    path: str
    passphrase_file: str | None = None


class _KmsKeys(sections.StrictSection):
    home: Literal["kms"]
    region: str
    endpoint: str | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=KMS_TIMEOUT_MAX_SECONDS)] = 5
    tries: Annotated[int, Field(ge=1, le=KMS_TRIES_MAX)] = 4


class _Pkcs11Keys(sections.StrictSection):
    home: Literal["pkcs11"]
    library: str
    token: str
    pin_file: str
    algorithm: Literal["ed25519", "ecdsa-p256"] = "ed25519"


class _Catalog(sections.StrictSection):
    name: Annotated[str, Field(pattern=f"^{sections.IDENTITY}$")] = "lake"
    warehouse: Annotated[str, Field(min_length=1, max_length=4_096)] = "warehouse"
    metadata: Annotated[str, Field(min_length=1, max_length=4_096)] = "catalog"
    vault: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    upstreams: list[sections.UpstreamSection] = Field(default_factory=list, max_length=sections.UPSTREAMS_MAX)


class _Vending(sections.StrictSection):
    producer_role: Annotated[str, Field(min_length=1, max_length=2_048)]
    consumer_role: Annotated[str, Field(min_length=1, max_length=2_048)]
    sts_endpoint: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    lifetime_seconds: Annotated[int, Field(ge=VENDED_LEAST_SECONDS, le=VENDED_MAX_SECONDS)] = 3_600


class _S3(sections.StrictSection):
    region: Annotated[str, Field(min_length=1, max_length=64)]
    endpoint: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    path_style: bool = False
    profile: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=S3_TIMEOUT_MAX_SECONDS)] = 10
    tries: Annotated[int, Field(ge=1, le=S3_TRIES_MAX)] = 4
    vending: _Vending | None = None


class _ConfigFile(sections.StrictSection):
    notary: Annotated[str, Field(pattern=f"^{sections.IDENTITY}$")]
    origin: Annotated[str, Field(pattern=f"^{sections.IDENTITY}$")]
    isolation: Literal["embedded", "process", "account"] = "process"
    development: bool = False
    ledger: str
    outside: str
    archive: str | None = None
    trust_root_sha256: Annotated[str, Field(pattern=f"^{_SHA256}$")] | None = None
    keys: Annotated[_FileKeys | _KmsKeys | _Pkcs11Keys, Field(discriminator="home")]
    service: ServiceConfig = ServiceConfig()
    catalog: _Catalog = _Catalog()
    s3: _S3 | None = None
    spark: sections.SparkSection | None = None
    alerts: AlertsSection | None = None
    lineage: LineageSection | None = None
    retention: RetentionConfig = RetentionConfig()


def load_config(path: Path) -> StewardConfig:
    """Load a configuration file; relative paths are relative to its folder."""
    try:
        data = path.read_bytes()[: CONFIG_SIZE_MAX_BYTES + 1]
    except OSError as error:
        raise _file_error(path, "a file that can be read", error.strerror or "none") from None
    return parse_config(data, path)


def parse_config(data: bytes, path: Path, *, named_in_errors: Path | None = None) -> StewardConfig:
    """Parse the text of the configuration file `path`; errors name the file `named_in_errors` instead, if given."""
    folder, path = path.resolve().parent, named_in_errors or path
    if len(data) > CONFIG_SIZE_MAX_BYTES:
        raise _file_error(path, f"at most {CONFIG_SIZE_MAX_BYTES} bytes", "more")
    try:
        parsed = _ConfigFile.model_validate(tomllib.loads(data.decode()))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _file_error(path, "TOML", str(error)) from None
    except ValidationError as error:
        raise _field_error(path, error) from None
    return _make_config(parsed, folder)


def _make_config(parsed: _ConfigFile, folder: Path) -> StewardConfig:
    service, vending = parsed.service, None if parsed.s3 is None else parsed.s3.vending
    config = StewardConfig(
        notary=parsed.notary,
        origin=parsed.origin,
        ledger_url=_make_ledger_url(parsed.ledger, folder),
        keys=_make_keys_config(parsed.keys, folder),
        outside_path=folder / parsed.outside,
        outside_store_location=_object_location(parsed.outside, parsed.s3),
        archive_store_location=None if parsed.archive is None else _object_location(parsed.archive, parsed.s3),
        isolation=Isolation(parsed.isolation),
        development=parsed.development,
        archive=_join_path(folder, parsed.archive),
        trust_root_sha256=parsed.trust_root_sha256,
        service=replace(
            service,
            tls_certificate=_join_path(folder, service.tls_certificate),
            tls_key=_join_path(folder, service.tls_key),
        ),
        catalog=_make_catalog_config(parsed, folder),
        s3=None if parsed.s3 is None else S3Settings(**parsed.s3.model_dump(exclude={"vending"})),
        vending=None if vending is None else VendingSettings(**vending.model_dump()),
        spark=sections.make_spark_settings(parsed.spark, folder),
        alerts=make_alerts_config(parsed.alerts, folder),
        lineage=make_lineage_config(parsed.lineage, folder),
        retention=parsed.retention,
    )
    require_tls_or_loopback(config.service)
    if config.development and config.isolation is not Isolation.EMBEDDED:
        message, got = "a development Steward is an embedded one", f'isolation = "{parsed.isolation}"'
        raise Code.CONFIG_INVALID(message, expected='isolation = "embedded"', got=got)
    return config


def require_tls_or_loopback(service: ServiceConfig) -> None:
    """Refuse an address beyond loopback without TLS, since clients would send tokens unencrypted."""
    if (service.tls_certificate is None) != (service.tls_key is None):
        raise Code.CONFIG_INVALID("TLS needs both files", expected="tls_certificate and tls_key", got="one of them")
    if service.tls_certificate is None and not is_loopback(service.host):
        raise Code.CONFIG_INVALID(reason="tls_missing", got=service.host)


def _make_keys_config(parsed: _FileKeys | _KmsKeys | _Pkcs11Keys, folder: Path) -> KeysConfig:
    match parsed:
        case _FileKeys():
            return FileKeys(folder / parsed.path, _join_path(folder, parsed.passphrase_file))
        case _KmsKeys():
            return KmsSettings(**parsed.model_dump(exclude={"home"}))
        case _Pkcs11Keys():
            return Pkcs11Keys(parsed.library, parsed.token, folder / parsed.pin_file, Algorithm(parsed.algorithm))


def _make_catalog_config(parsed: _ConfigFile, folder: Path) -> CatalogConfig:
    section = parsed.catalog
    warehouse = parse_location(section.warehouse if ":" in section.warehouse else str(folder / section.warehouse))
    vault = Path() if section.vault is None else _parse_place(section.vault, folder)
    vends = parsed.s3 is not None and parsed.s3.vending is not None
    upstreams = sections.make_upstream_configs(section.upstreams, folder, vends=vends)
    config = CatalogConfig(str(warehouse), _parse_place(section.metadata, folder), section.name, vault, upstreams)
    own_folders = {"metadata": parse_location(str(config.metadata)), "vault": parse_location(str(config.vault))}
    _require_described_store({"warehouse": warehouse, **own_folders}, parsed.s3)
    for name, folder_location in own_folders.items():
        if warehouse.overlaps(folder_location):
            message = "producers write in the warehouse, so the catalog's own files cannot lie there"
            raise Code.CONFIG_INVALID(message, expected=f"{name} outside of warehouse", got="one inside the other")
    if own_folders["metadata"].overlaps(own_folders["vault"]):
        message = "metadata and vault must be two separate folders"
        raise Code.CONFIG_INVALID(message, expected="vault outside of metadata", got="one inside the other")
    return config


def _require_described_store(locations: dict[str, Location], s3: _S3 | None) -> None:
    """Require one kind of store for all locations, since readers read table and vault. S3 needs `[s3]` too."""
    schemes = {location.scheme for location in locations.values()}
    if not schemes <= {"file", "s3"} or len(schemes) > 1:
        raise Code.CONFIG_INVALID(
            "warehouse, metadata and vault lie in one kind of store",
            expected="three folders, or three locations s3://bucket/…",
            got=", ".join(f"{name} in {location.scheme}:" for name, location in locations.items()),
        )
    if "s3" in schemes and s3 is None:
        raise Code.CONFIG_INVALID(
            "the object store is not described", expected="a table [s3] with its region", got="none"
        )


def _object_location(text: str, s3: _S3 | None) -> Location | None:
    """The object-store location that the text names; None for a local path."""
    if not _OBJECT_STORE_URL.match(text):
        return None
    location = parse_location(text)
    _require_described_store({"location": location}, s3)
    return location


def _parse_place(text: str, folder: Path) -> ConfiguredPath:
    """A local path, relative to `folder`, or a location in an object store."""
    return parse_location(text) if _OBJECT_STORE_URL.match(text) else folder / text


def _default_vault(metadata: ConfiguredPath) -> ConfiguredPath:
    if isinstance(metadata, Location):
        return Location(metadata.scheme, metadata.authority, (*metadata.parts[:-1], "vault"))
    return metadata.parent / "vault"


def _make_ledger_url(url: str, folder: Path) -> str:
    """The URL, with the relative path of a SQLite file made absolute."""
    scheme, separator, rest = url.partition(":///")
    if scheme == "sqlite" and separator and not rest.startswith("/"):
        return f"sqlite:///{folder / rest}"
    return url


def _join_path(folder: Path, path: str | Path | None) -> Path | None:
    return None if path is None else folder / path


def _field_error(path: Path, error: ValidationError) -> PvdmError:
    """The error about one wrong field; the field's value is not shown, since it may be a misplaced password."""
    errors: list[Any] = list(error.errors(include_url=False))
    # If a name is misspelled, the unknown field explains more than the missing field.
    first = min(errors, key=lambda each: each["type"] not in _UNKNOWN_FIELD)
    parts = [str(part) for part in first["loc"]]
    if parts[:1] == ["keys"] and len(parts) > 2:
        del parts[1]  # pydantic's name of the union member, which is not in the file
    expected, got = _expected_and_got(first, parts)
    name = ".".join(parts) or "the file"
    hint = _misplaced_hint(path, parts) if first["type"] in _UNKNOWN_FIELD else None
    return Code.CONFIG_INVALID(f"{path.name}: {name} cannot be accepted", expected=expected, got=got, hint=hint)


def _misplaced_hint(path: Path, parts: list[str]) -> str | None:
    """A hint for a top-level field that was written into a table, for example at the end of the file."""
    *table, name = parts
    if not table or name not in _ConfigFile.model_fields:
        return None
    where = f"out of [{'.'.join(table)}], to the top of {path.name}, above the first [table]"
    return f"a line belongs to the table above it: move {name} {where}"


def _expected_and_got(error: Any, parts: list[str]) -> tuple[str, str]:
    context, got_type = error.get("ctx", {}), _TYPE_NAMES.get(type(error["input"]), "something else")
    match error["type"]:
        case "missing":
            return "a value", "nothing"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "a field of steward.toml", parts[-1]
        case type_error if type_error in _EXPECTED_TYPES:
            return _TYPE_NAMES[_EXPECTED_TYPES[type_error]], got_type
        case "string_pattern_mismatch":
            return _PATTERN_DESCRIPTIONS[context["pattern"]], "another text"
        case "literal_error":
            return str(context["expected"]), "another value"
        case "greater_than_equal":
            return f"at least {context['ge']}", "less"
        case "less_than_equal":
            return f"at most {context['le']}", "more"
        case "string_too_short" | "too_short":
            return f"a length of at least {context['min_length']}", "less"
        case "string_too_long" | "too_long":
            return f"a length of at most {context['max_length']}", "more"
        case "union_tag_invalid" | "union_tag_not_found" if "upstreams" in parts:
            return 'kind = "rest" or "glue"', "no kind" if "not_found" in error["type"] else "another kind"
        case "union_tag_invalid" | "union_tag_not_found":
            return 'home = "file", "kms" or "pkcs11"', "no home" if "not_found" in error["type"] else "another home"
        case _:  # the file has no table where a section belongs
            return "a table", got_type


def _file_error(path: Path, expected: str, got: str) -> PvdmError:
    return Code.CONFIG_INVALID(f"{path.name} cannot be accepted", expected=expected, got=got)
