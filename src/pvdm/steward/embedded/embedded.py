"""A Steward inside the caller's process: the same service on a loopback port, with all of its files in one folder."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import secrets
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from pvdm.api.service import ClockConfirmation, TrustRootVersion
from pvdm.client import AccessToken, LentToken, StewardClient
from pvdm.errors import Code, PvdmError, UnavailableError, expect
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.model.host import is_loopback
from pvdm.model.role import Role
from pvdm.model.secret import Secret
from pvdm.steward import server
from pvdm.steward.access import TOKEN_LIFETIME_MAX_SECONDS
from pvdm.steward.config.steward import StewardConfig, load_config, parse_config
from pvdm.steward.embedded.root import Person, require_people, update_trust_root
from pvdm.steward.locks import ProcessLock
from pvdm.steward.notary import Notary, create_notary, open_notary
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from pvdm.trust.keys import disk
from pvdm.trust.keys.pem import PemKeyPair, create_key_pair, open_key_pair

__all__ = ["EmbeddedSteward", "Person", "start", "start_as"]

_S = TypeVar("_S", bound="EmbeddedSteward")

TOKEN_SECONDS: Final = 24 * 3600
OWN_NAME: Final = "embedded"
# Names in the Steward's folder.
_CONFIG_FILE: Final = "steward.toml"
_LOCK_FILE: Final = ".lock"
_ROOT_SIGNER_FILE: Final = "root-signer.pem"
_OUTSIDE_FOLDER: Final = "outside"
# Fields of StewardConfig, with their names in steward.toml. A field that the `StoreFile` lacks must have its default.
_ALWAYS_COMPARED: Final = {"catalog": "catalog", "s3": "s3", "vending": "s3.vending"}
_STORE_SECTIONS: Final = ("catalog", "s3", "service", "spark")  # those that a `StoreFile` may have


class EmbeddedSteward(StewardClient):
    """A client with the role of operator, and the Steward behind it; `close` stops both."""

    development: ClassVar[bool] = False

    def __init__(
        self,
        notary: Notary,
        running: server.RunningServer,
        lock: ProcessLock,
        folder: Path,
        root_signer: PemKeyPair,
        people: Sequence[Person],
    ) -> None:
        self._notary = notary
        self._people = tuple(people)
        self._running = running
        self._lock = lock
        self._folder = folder
        self._root_signer = root_signer
        self._close_lock = threading.Lock()
        self._issued_token_ids: list[str] = []
        self._lend_lock = threading.Lock()
        self._lent: dict[tuple[Role, str], LentToken] = {}
        super().__init__(running.url, self._token_issuer(Role.OPERATOR, EVERY_DOMAIN, OWN_NAME))
        atexit.register(self.close)

    @classmethod
    def open_own_people(cls, folder: Path) -> tuple[Person, ...]:
        """People whose private keys are in the Steward's folder; only a development Steward has such a person."""
        del folder
        return ()

    @property
    def folder(self) -> Path:
        """The folder of all files of the Steward."""
        return self._folder

    @property
    def config(self) -> Path:
        """The path of `steward.toml`, for commands of `pvdm`. Before such a command runs, close this Steward."""
        return self.folder / _CONFIG_FILE

    @property
    def notary(self) -> Notary:
        """The Steward itself. All code of this process can reach its keys, so its proofs say `embedded`."""
        return self._notary

    @property
    def pin(self) -> str:
        """The SHA-256 of the first trust root, which offline checks of this Steward's proofs need."""
        return expect(self._notary.config.trust_root_sha256, "a started Steward has its pin")

    def token_for(self, role: Role, domain: str = EVERY_DOMAIN, *, name: str = OWN_NAME) -> AccessToken:
        """A token for a role, for example for a Spark job; it ends after a day, or with this Steward.

        If the process is killed, the next start in its folder revokes the token.
        """
        return self._token_issuer(role, domain, name)()

    def write_token(
        self, path: Path | str, role: Role | str, domain: str = EVERY_DOMAIN, *, name: str = OWN_NAME
    ) -> None:
        """Write a token for a role to a file that only its owner may read; an old file is replaced."""
        disk.write(Path(path), self.token_for(Role(role), domain, name=name), mode=disk.PRIVATE_MODE)

    def as_role(self, role: Role, domain: str = EVERY_DOMAIN, *, name: str = OWN_NAME) -> StewardClient:
        """Another client with another role, for a process that is producer, publisher and auditor at once."""
        return self.with_token(self._token_issuer(role, domain, name))

    def lend(self, role: Role | None = None, domain: str | None = None) -> LentToken:
        """A token of any role for an engine of this process, such as Spark; valid until this Steward is closed.

        The default is the operator's role. Each call with the same role and domain returns the same token, because
        Spark's second session in a process still uses the token of the first.
        """
        role, domain = Role.OPERATOR if role is None else role, EVERY_DOMAIN if domain is None else domain
        with self._lend_lock:
            if (role, domain) not in self._lent:
                token, grant = self._issue(role, domain, OWN_NAME, TOKEN_LIFETIME_MAX_SECONDS)
                self._lent[role, domain] = LentToken(token, grant.token_id)
            return self._lent[role, domain]

    def renew_trust_root(self, people: Sequence[Person] = ()) -> TrustRootVersion:
        """Sign a new trust root if keys were added or revoked, or half of its lifetime is over; returns the newest.

        The keys are those of the Steward's epochs and of `people`.
        """
        require_people(people)
        root = update_trust_root(self._notary, self._root_signer, people)
        return TrustRootVersion(version=root.version, sha256=root.sha256)

    def confirm_clock(self, reason: str) -> ClockConfirmation:
        """Confirm that the clock is correct. This needs no token, since none is issued while the time is in doubt."""
        confirmation = self._notary.clock.confirm(operator=OWN_NAME, reason=reason)
        # The start skips these steps while the time is in doubt.
        self._notary.epochs.log_missing("logged after the clock was confirmed")
        self.renew_trust_root(self._people)
        return ClockConfirmation(at=confirmation.at_micros, confirmed=confirmation.had_jumped)

    def close(self) -> None:
        """Stop the service, revoke the tokens that it issued, and release the folder; a second call does nothing."""
        with self._close_lock:
            super().close()
            if not self._lock.is_held:  # a second call, or a forked child
                return
            atexit.unregister(self.close)
            self._running.stop()
            for token_id in self._issued_token_ids:
                with contextlib.suppress(PvdmError):
                    self._notary.access.revoke(token_id)
            self._notary.close()
            self._lock.release()

    def _token_issuer(self, role: Role, domain: str, name: str) -> Callable[[], AccessToken]:
        return lambda: self._issue(role, domain, name, TOKEN_SECONDS)[0]

    def _issue(self, role: Role, domain: str, name: str, seconds: int) -> tuple[AccessToken, Grant]:
        token, grant = self._notary.access.issue(role, domain=domain, name=name, lifetime_seconds=seconds)
        self._issued_token_ids.append(grant.token_id)
        return AccessToken(token.reveal()), grant


def start_as(
    kind: type[_S],
    path: Path | str,
    *,
    outside: Path | str | None = None,
    people: Sequence[Person] = (),
    store: Path | str | None = None,
) -> _S:
    """Start the Steward of that folder, or create one there; a second start is refused while it runs.

    `outside` names a folder on another disk for the outside checkpoint. By default the checkpoint is in the Steward's
    folder; then it is lost or restored together with the ledger. `store` is a file with sections such as [catalog] and
    [s3], which are appended to a new configuration. A later start with other values or another `kind` is refused.
    """
    require_people(people)
    with contextlib.ExitStack() as undo:
        folder = _open_folder(Path(path))
        lock = ProcessLock(
            folder / _LOCK_FILE,
            in_use=lambda holder: Code.EMBEDDED_IN_USE(got=f"process {holder}"),
            unavailable=_folder_error,
        )
        undo.callback(lock.release)
        store_file = None if store is None else StoreFile.read(Path(store))
        outside_folder = None if outside is None else Path(outside)
        config = _load_or_create_config(folder, outside_folder, store_file, kind.development)
        people = (*people, *kind.open_own_people(folder))
        if config.trust_root_sha256 is None:  # the first start, or a start after an interrupted first one
            notary = create_notary(config, reason="first start of an embedded Steward")
        else:
            notary = open_notary(config)
        undo.callback(notary.close)
        if not (folder / _ROOT_SIGNER_FILE).exists():
            create_key_pair(folder / _ROOT_SIGNER_FILE)
        signer = open_key_pair(folder / _ROOT_SIGNER_FILE)
        notary = replace(notary, config=_pin_trust_root(notary, signer, people, folder))
        # A process that was killed could not revoke its tokens, so they are revoked now.
        now = notary.clock.trusted_micros()
        for grant in notary.access.list_tokens():
            if grant.parent_id is None and grant.revoked_micros is None and grant.expires_micros > now:
                notary.access.revoke(grant.token_id)
        running = server.start(notary)
        undo.callback(running.stop)
        steward = kind(notary, running, lock, folder, signer, people)
        undo.pop_all()
        return steward


def start(
    path: Path | str,
    *,
    outside: Path | str | None = None,
    people: Sequence[Person] = (),
    store: Path | str | None = None,
) -> EmbeddedSteward:
    """Start the embedded Steward of that folder, as `start_as` does."""
    return start_as(EmbeddedSteward, path, outside=outside, people=people, store=store)


def _folder_error(error: OSError) -> PvdmError:
    return Code.STORAGE_UNAVAILABLE(reason="embedded_folder_unavailable", got=str(error.strerror))


def _open_folder(path: Path) -> Path:
    """The folder, created with mode 0700. Raises if others can read it, or if it has files but no `steward.toml`."""
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=True)
        found = path.stat()
        names = [each.name for each in path.iterdir() if not each.name.startswith(".")]
    except OSError as error:
        raise _folder_error(error) from None
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid() or mode & 0o077:
        raise Code.EMBEDDED_FOLDER_MODE(
            expected=f"mode 0700 and user {os.geteuid()}", got=f"mode {mode:04o} and user {found.st_uid}"
        )
    if names and _CONFIG_FILE not in names:
        expected, got = f"no folder yet, an empty one, or one with {_CONFIG_FILE}", ascii(min(names))[:80]
        raise Code.EMBEDDED_SETTINGS_INVALID(reason="embedded_folder_foreign", expected=expected, got=got)
    return path.resolve()


def _load_or_create_config(
    folder: Path, outside: Path | None, store: StoreFile | None, development: bool
) -> StewardConfig:
    """The folder's configuration. The first start writes it, with a random and so unique name of the notary."""
    path = folder / _CONFIG_FILE
    if not path.exists():
        if outside is not None and not outside.is_dir():
            raise Code.EMBEDDED_SETTINGS_INVALID(reason="embedded_outside_missing", got=ascii(str(outside))[:200])
        name = f"embedded-{secrets.token_hex(6)}"
        checkpoint = _checkpoint_path(folder, outside, name)
        _write_config(path, _config_text(path, name, checkpoint, store, development=development), store)
    config = _apply_store(load_config(path), path, store)
    if config.development != development:
        raise Code.DEVELOPMENT_DIFFERS(
            expected="a development Steward" if development else "a Steward that was not created for development",
            got="a development Steward" if config.development else "one that was not created for development",
            hint=f"open it with pvdm.Steward.{'development' if config.development else 'embedded'}, "
            "or name another folder",
        )
    if outside is not None and config.outside_path != _checkpoint_path(folder, outside, config.notary):
        expected, got = (ascii(str(each))[:200] for each in (config.outside_path.parent, outside))
        raise Code.EMBEDDED_SETTINGS_INVALID(reason="embedded_outside_differs", expected=expected, got=got)
    if not is_loopback(config.service.host):
        raise Code.EMBEDDED_NOT_LOOPBACK(got=ascii(config.service.host)[:80])
    if config.outside_path.parent == folder / _OUTSIDE_FOLDER:
        config.outside_path.parent.mkdir(mode=0o700, exist_ok=True)
    return config


def _apply_store(config: StewardConfig, path: Path, store: StoreFile | None) -> StewardConfig:
    """Require that the configuration agrees with the store file; after an interrupted first start, write it again."""
    if store is None:
        return config
    text = _config_text(path, config.notary, config.outside_path, store, development=config.development)
    was_interrupted = config.trust_root_sha256 is None
    # A configuration with `outside_store_location` was edited, and writing it again would lose the edit.
    if was_interrupted and config.outside_store_location is None:
        return _write_config(path, text, store)
    require_same_store(config, parse_config(text, path, named_in_errors=store.path), store, path)
    return config


def _write_config(path: Path, text: bytes, store: StoreFile | None) -> StewardConfig:
    """Check the configuration, write and return it. An invalid file would make every later start fail."""
    config = parse_config(text, path, named_in_errors=None if store is None else store.path)
    disk.write(path, Secret(text), mode=disk.PRIVATE_MODE)
    return config


def _checkpoint_path(folder: Path, outside: Path | None, name: str) -> Path:
    return (folder / _OUTSIDE_FOLDER if outside is None else outside.resolve()) / f"{name}.checkpoint"


def _config_text(path: Path, name: str, checkpoint: Path, store: StoreFile | None, *, development: bool) -> bytes:
    lines = {"notary": name, "origin": f"{name}/log", "isolation": "embedded", "ledger": "sqlite:///ledger.sqlite"}
    # A path inside the folder is written as relative, so that the folder can be moved as a whole.
    is_inside = checkpoint.is_relative_to(path.parent)
    lines["outside"] = str(checkpoint.relative_to(path.parent) if is_inside else checkpoint)
    text = "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in lines.items())
    text += "development = true\n" if development else ""
    text += '\n[keys]\nhome = "file"\npath = "keystore.json"\n\n[service]\nhost = "127.0.0.1"\nport = 0\n'
    return f"{text}{'' if store is None else store.text}".encode()


def _pin_trust_root(notary: Notary, signer: PemKeyPair, people: Sequence[Person], folder: Path) -> StewardConfig:
    """Renew the trust root unless the time is in doubt; returns the configuration with the hash of the first root."""
    config = notary.config
    try:
        update_trust_root(notary, signer, people)
    except UnavailableError as error:
        if error.code != Code.CLOCK_JUMPED or config.trust_root_sha256 is None:
            raise
    if config.trust_root_sha256 is not None:
        return config
    first = parse_envelope(notary.trust.chain()[0], payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
    path, pin = folder / _CONFIG_FILE, first.payload_sha256
    before_tables, keys_heading, rest = path.read_text("utf-8").partition("\n[keys]\n")
    text = f'{before_tables}trust_root_sha256 = "{pin}"\n{keys_heading}{rest}'
    disk.write(path, Secret(text.encode()), mode=disk.PRIVATE_MODE)
    return load_config(path)


@dataclasses.dataclass(frozen=True, slots=True)
class StoreFile:
    """A file with sections of `steward.toml`, such as [s3], for a new Steward. `text`: a line feed and the content."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> StoreFile:
        """Read the file. Raises `config_invalid`."""
        try:
            text = path.read_text("utf-8")
            sections = tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            raise Code.CONFIG_INVALID(
                "the file of the store's settings cannot be read", expected=str(path), got=type(error).__name__
            ) from None
        except tomllib.TOMLDecodeError as error:
            got = str(error)[:200]
            raise Code.CONFIG_INVALID(f"{path.name} cannot be accepted", expected="TOML", got=got) from None
        # The text is appended to the configuration, where a line outside of a table would belong to another table.
        for name, value in sections.items():
            if name not in _STORE_SECTIONS or not isinstance(value, dict):
                raise Code.CONFIG_INVALID(
                    f"{path.name}: {ascii(name)[1:-1][:80]} cannot be accepted",
                    expected="the tables [catalog], [s3], [service.limits] and [spark], and nothing outside of them",
                    got="another table" if isinstance(value, dict) else "another line",
                )
        return cls(path, f"\n{text}")


def require_same_store(config: StewardConfig, given: StewardConfig, store: StoreFile, path: Path) -> None:
    """Refuse a store file that differs from `config`, which is in `path`. `given`: `config` with the file's values.

    The configuration is never changed to these values, since tables stay where the first start put them.
    """
    compared = _ALWAYS_COMPARED | {name: name for name in tomllib.loads(store.text) if name in ("service", "spark")}
    # Values are not shown: one may be a password in the wrong line.
    differing = [
        setting
        for name, shown_name in compared.items()
        for setting in _list_differing(shown_name, getattr(config, name), getattr(given, name))
    ]
    if differing:
        raise Code.EMBEDDED_SETTINGS_INVALID(
            reason="embedded_store_differs",
            expected=f"the values in {path}, or no `store`",
            got=f"other values of {', '.join(differing)}",
            hint=f"edit {path.name} itself; or, for tables in another place, start a Steward in another folder",
        )


def _list_differing(name: str, left: object, right: object) -> Iterator[str]:
    """The names of the settings that differ between two configurations, such as `s3.region`."""
    if dataclasses.is_dataclass(left) and type(left) is type(right):
        for field in dataclasses.fields(left):
            yield from _list_differing(f"{name}.{field.name}", getattr(left, field.name), getattr(right, field.name))
    elif left != right:
        yield name
