"""A Steward whose secrets are all known, calls to all of its routes, and all places where a secret could be left.

A planted secret (`PLANTED`) is left in these places on purpose, to show that the search finds secrets there.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http import client as http_client
from pathlib import Path

import httpx
from sqlalchemy import select

from pvdm.client import StewardClient
from pvdm.errors import PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import wall_micros
from pvdm.ledger.record import events
from pvdm.ledger.schema import metadata
from pvdm.ledger.work import attempts
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.config.steward import FileKeys, StewardConfig
from pvdm.steward.notary import create_notary, open_notary
from pvdm.steward.record.log import LedgerLogReader
from pvdm.trust.keys.file import FileKeystore
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.log.export import export
from tests.support.steward.load import challenge_body, signed_attestation
from tests.support.steward.notary import (
    LOG_ORIGIN,
    NOTARY,
    Stand,
    Time,
    config_at,
    context_of,
    failed,
    override_of,
    root_naming,
    signed_override,
    signed_root,
)
from tools.proof_kit import NOW

ROOT = Path(__file__).parents[3]
PASSPHRASE = "correct horse 7 battery staple"
PLANTED = b"planted-secret-0815-4711"
FORMS = (PLANTED.decode(), PLANTED.hex(), base64.urlsafe_b64encode(PLANTED).decode().rstrip("="))
ATTESTOR = "source-payments"
START_SECONDS = 60


@dataclass(slots=True)
class Search:
    """The secrets by name, and the bytes found at each place by the name of the place."""

    secrets: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, bytes] = field(default_factory=dict)
    count: int = 0

    def secret(self, name: str, value: str | bytes) -> None:
        """Add a secret to search for."""
        self.count += 1
        self.secrets[f"{name} {self.count}"] = value.encode() if isinstance(value, str) else value

    def place(self, name: str, *texts: str | bytes) -> None:
        """Add texts to a place that is searched."""
        for text in texts:
            data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            self.places[name] = self.places.get(name, b"") + b"\n" + data

    def files(self, name: str, folder: Path, *, without: tuple[Path, ...] = ()) -> None:
        """Add all files of a folder, with their names, to a place."""
        for path in sorted(folder.rglob("*")):
            self.place(name, str(path.relative_to(folder)))
            if path.is_file() and path not in without:
                self.place(name, path.read_bytes())


# The Steward before it is served: with real time, a sealed keystore, and what its routes need.


def create_steward(folder: Path, search: Search, *, ledger_url: str | None = None) -> Stand:
    """Create a Steward on the real time, with a sealed keystore whose passphrase is added to the search."""
    folder.mkdir(parents=True)
    passphrase = folder / "passphrase"
    passphrase.touch(0o600)
    passphrase.write_text(PASSPHRASE + "\n")
    keys = FileKeys(folder / "keys", passphrase)
    config = replace(config_at(folder, ledger_url=ledger_url, keys=keys), archive=folder / "archive")
    notary = create_notary(config, reason="the first epoch")
    active = notary.epochs.book().active
    assert active is not None
    root, shift = root_naming(active), wall_micros() - NOW
    moved = [replace(key, valid_from=key.valid_from + shift, valid_until=key.valid_until + shift) for key in root.keys]
    root = replace(root, issued_at=root.issued_at + shift, expires_at=root.expires_at + shift, keys=tuple(moved))
    notary.trust.accept(signed_root(root), pin=root.sha256)
    search.secret("passphrase", PASSPHRASE)
    return Stand(folder, config, Time(wall_micros()), notary)


def note_keys(stand: Stand, search: Search) -> None:
    """Add the four keys of every epoch, read from the sealed keystore, to the search."""
    assert isinstance(stand.config.keys, FileKeys)
    for reference, key in (
        FileKeystore.open(stand.config.keys.path, Passphrase(PASSPHRASE))._load_content().keys.items()
    ):
        search.secret(f"key {reference[:4]}", key.reveal())


@dataclass(frozen=True, slots=True)
class Targets:
    """The ids and documents that the requests name."""

    attempt_id: str
    proof_id: str
    override: bytes
    workload_id: str


def prepare_targets(stand: Stand, search: Search) -> Targets:
    """Create a live attempt, a FAIL proof of an ended attempt with an override, and a handle that a worker redeemed."""
    live = stand.verifying("live")
    core = failed(stand.verifying("closed"))
    recorded = stand.record(core)

    def end(unit: Unit) -> None:
        attempts.end(unit, core.attempt.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL")

    stand.notary.ledger.transact(end, at_micros=stand.notary.clock.now_micros())
    handle = stand.notary.handles.issue("job", redemptions=2)
    search.secret("handle", handle)
    search.secret("handle", bytes.fromhex(handle))
    stand.notary.handles.freeze("job", context_of(live, 1))
    for key in stand.notary.handles.redeem(handle, job_id="job", worker="w-1").values():
        search.secret("worker's key", key.reveal())
    search.place("exceptions", *texts_of_refused_handles(stand, handle))
    override = signed_override(override_of(recorded, core, wall_micros()))
    return Targets(live.attempt.attempt_id, recorded.statement_id, override, core.attempt.workload_id)


def texts_of_refused_handles(stand: Stand, handle: str) -> list[str]:
    """The texts of the errors of handles that must be refused."""
    handles = stand.notary.handles
    return [
        *texts_of_refusal(lambda: handles.redeem(handle, job_id="another", worker="w-2")),
        *texts_of_refusal(lambda: handles.redeem(handle, job_id="job", worker="w-1")),
        *texts_of_refusal(lambda: handles.redeem(handle + "0", job_id="job", worker="w-3")),
        *texts_of_refusal(lambda: handles.issue("job", redemptions=2)),
    ]


def token_files(stand: Stand, folder: Path, search: Search) -> dict[Role, Path]:
    """Write a token of every role to its own file, as `pvdm` does. Their holders' names contain the planted secret."""
    folder.mkdir()
    found = {}
    for role in Role:
        name = ATTESTOR if role is Role.ATTESTOR else ".".join(FORMS)
        text, grant = stand.token(role, "*", name)
        path = folder / f"{role.value}.token"
        path.touch(0o600)
        path.write_text(text + "\n")
        search.secret(f"{role.value}'s token {grant.token_id[:4]}", text)
        found[role] = path
    return found


# The requests.


def call_every_route(url: str, tokens: dict[Role, Path], targets: Targets, search: Search, *, nonce: str) -> None:
    """Call every route with `StewardClient`. Keys and tokens that it returns are secrets; its objects are searched."""
    with contextlib.ExitStack() as stack:
        clients = {role: stack.enter_context(StewardClient(url, token_file=path)) for role, path in tokens.items()}
        results = _read_all(clients, targets, search)
        results += _request_secrets(clients, targets, search, nonce)
        results += [clients[Role.OPERATOR].submit_override(targets.override), clients[Role.OPERATOR].overrides()]
        results += [
            clients[Role.OPERATOR].create_epoch("once more"),
            clients[Role.OPERATOR].confirm_clock("it is right"),
        ]
        results += [clients[Role.PRODUCER].identity(), clients[Role.ATTESTOR].attestations()]
        results += [clients[Role.OPERATOR].submit_trust_root(clients[Role.OPERATOR].trust_root().chain[-1])]
        for number, call in ((2, clients[Role.OPERATOR].retire_epoch), (2, clients[Role.OPERATOR].revoke_epoch)):
            results += texts_of_refusal(lambda: call(number, "no more"))  # noqa: B023 - called at once
        results += texts_of_refusal(lambda: clients[Role.OPERATOR].activate_epoch(77, "there is none"))
        search.place("client objects", *(repr(each) for each in (*clients.values(), *results)))
        search.place("client objects", *(repr(vars(client)) + repr(vars(client._wire)) for client in clients.values()))
        search.place("openapi", httpx.get(f"{url}/v1/openapi.json", trust_env=False).content)
        search.place("metrics", clients[Role.AUDITOR].metrics())
        _refuse_client(clients, targets, search)


def _read_all(clients: dict[Role, StewardClient], targets: Targets, search: Search) -> list[object]:
    clients[Role.CONSUMER].health()
    auditor = clients[Role.AUDITOR]
    found: list[object] = [auditor.readiness(), auditor.identity(), auditor.info(), auditor.trust_root()]
    found += [auditor.epochs(), auditor.events(limit=1_000), auditor.workloads(), auditor.workload(targets.workload_id)]
    found += [auditor.attempt(targets.attempt_id), auditor.proofs(), auditor.overrides(), auditor.log_checkpoint()]
    proof_id = targets.proof_id
    found += [auditor.proof(proof_id), auditor.proof_envelope(proof_id), auditor.proof_bundle(proof_id)]
    size = auditor.info().log_size
    found += [auditor.log_tile(f"0/000.p/{size}"), auditor.log_tile(f"entries/000.p/{size}"), auditor.log_proof(0)]
    found += [auditor.log_consistency(1, size), auditor.attestations()]
    search.place("answers", *(repr(each) for each in found))
    return found


def _request_secrets(clients: dict[Role, StewardClient], targets: Targets, search: Search, nonce: str) -> list[object]:
    """Request keys and tokens, and add them to the search; returns the client's objects."""
    opened = clients[Role.AUDITOR].open_proof(targets.proof_id, "an audit")
    challenge = challenge_body(nonce)
    drawn = clients[Role.ATTESTOR].challenge(
        nonce=nonce,
        catalog=challenge["catalog"],
        table_uuid=challenge["table_uuid"],
        snapshot_id=int(challenge["snapshot_id"]),
        mode=challenge["mode"],
        fingerprints={ProjectionName(name): value for name, value in challenge["fingerprints"].items()},
    )
    for name, keys in (*opened.keys.items(), *drawn.keys.items()):
        search.secret(f"released {name.value} key", keys.row_hash.reveal())
        search.secret(f"released {name.value} commitment key", keys.commitment.reveal())
    attested = clients[Role.ATTESTOR].submit_attestation(
        signed_attestation(nonce, epoch=drawn.epoch, now=wall_micros(), attestor=ATTESTOR)
    )
    attempt_token = clients[Role.PRODUCER].attempt_token(targets.attempt_id)
    search.secret("attempt's token", attempt_token.token.text)
    secret = next(value for name, value in search.secrets.items() if name.startswith("consumer's token"))
    exchanged = clients[Role.CONSUMER].exchange(clients[Role.CONSUMER].identity().token_id, secret.decode())
    search.secret("exchanged token", exchanged.access_token.text)
    with StewardClient(clients[Role.PRODUCER].url, attempt_token.token) as bound:
        search.place("client objects", repr(bound), repr(bound.attempt(targets.attempt_id)))
    return [opened, drawn, attested, attempt_token, exchanged]


def _refuse_client(clients: dict[Role, StewardClient], targets: Targets, search: Search) -> None:
    """Collect the texts of errors that the client raises, with the locals of their frames."""
    url, text = clients[Role.CONSUMER].url, next(iter(search.secrets.values())).decode("latin-1")
    consumer, operator = clients[Role.CONSUMER], clients[Role.OPERATOR]
    calls: list[Callable[[], object]] = [
        lambda: consumer.create_epoch("not mine"),
        lambda: consumer.workload("nobody"),
        lambda: consumer.proof("00" * 32),
        lambda: operator.submit_override(b'{"payload":"","payloadType":"x","signatures":[]}'),
        lambda: operator.submit_override(b"no envelope"),
        lambda: consumer.exchange("00" * 16, clients[Role.OPERATOR]._wire.tokens.current()[0]),  # type: ignore[union-attr]
        lambda: StewardClient(url, text + "\n"),
        lambda: StewardClient("http://127.0.0.1:9", consumer._wire.tokens.current()[0]).identity(),  # type: ignore[union-attr]
        *(lambda form=form: operator.workload(form) for form in FORMS),
        lambda: operator.abort_attempt(targets.attempt_id, "an operator may not", 1),
    ]
    for call in calls:
        search.place("exceptions", *texts_of_refusal(call))


def call_crashing_routes(url: str, tokens: dict[Role, Path], targets: Targets, search: Search) -> None:
    """Call the routes that handle secrets, while each of them fails with a bug; collect the texts of the errors."""
    nonce, challenge = "33" * 16, challenge_body("33" * 16)
    fingerprints = {ProjectionName(name): value for name, value in challenge["fingerprints"].items()}
    source = {name: challenge[name] for name in ("catalog", "table_uuid", "mode")}
    with contextlib.ExitStack() as stack:
        clients = {role: stack.enter_context(StewardClient(url, token_file=path)) for role, path in tokens.items()}
        secret = clients[Role.CONSUMER]._wire.tokens.current()[0]  # type: ignore[union-attr]
        calls: list[Callable[[], object]] = [
            lambda: clients[Role.AUDITOR].open_proof(targets.proof_id, "an audit"),
            lambda: clients[Role.PRODUCER].attempt_token(targets.attempt_id),
            lambda: clients[Role.CONSUMER].exchange(clients[Role.CONSUMER].identity().token_id, secret),
            lambda: clients[Role.ATTESTOR].challenge(nonce=nonce, snapshot_id=77, fingerprints=fingerprints, **source),
        ]
        for call in calls:
            search.place("exceptions", *texts_of_refusal(call))


def send_refused_requests(url: str, tokens: dict[Role, Path], targets: Targets, search: Search) -> None:
    """Send requests that are refused, without the client; the planted secret is in request ids, which are logged."""
    token = tokens[Role.OPERATOR].read_text().strip()
    own = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
        answers = [
            http.get("/v1/identity", headers={"authorization": f"Bearer {token[:-1]}"}),
            http.get("/v1/identity", headers={"authorization": f"Basic {token}"}),
            http.get("/v1/identity", headers=[("authorization", own["authorization"])] * 2),
            http.post("/v1/epochs", headers=own, json={"reason": 5, "secret": token}),
            http.post("/v1/epochs", headers=own, json={"reason": [token]}),
            http.post("/v1/epochs", headers={**own, "content-type": "application/json"}, content=f'{{"{token}'),
            http.post("/v1/epochs", headers=own, content=token),
            http.post("/v1/overrides", headers=own, json={"envelope": {"payload": token}}),
            http.post("/catalog/v1/oauth/tokens", data={"grant_type": token, "client_secret": token}),
            http.post(
                "/catalog/v1/oauth/tokens", data={"grant_type": "client_credentials", "client_secret": token[:-1]}
            ),
            http.post(
                "/catalog/v1/oauth/tokens", data={"grant_type": "client_credentials", "client_secret": token * 9}
            ),
            http.post(
                "/catalog/v1/oauth/tokens",
                data={"grant_type": "client_credentials", "client_id": "0" * 32, "client_secret": token},
            ),
            http.request("BREW", f"/v1/attempts/{targets.attempt_id}", headers=own),
            *(http.get(f"/v1/workloads/{form}", headers={**own, "x-request-id": form}) for form in FORMS),
        ]
    assert {answer.status_code for answer in answers} <= {400, 401, 404, 405, 415}
    # Not with httpx, which itself logs the URLs.
    connection = http_client.HTTPConnection(httpx.URL(url).host, httpx.URL(url).port or 0, timeout=20)
    for query in (f"access_token={token}", f"limit={token}"):
        connection.request("GET", f"/v1/identity?{query}", headers=own)
        search.place("error answers", connection.getresponse().read())
    connection.close()
    search.place(
        "error answers", *(answer.content for answer in answers), *(repr(answer.headers) for answer in answers)
    )


# Places.


def texts_of_refusal(call: Callable[[], object]) -> list[str]:
    """The texts of the PvdmError that the call must raise."""
    try:
        call()
    except PvdmError as error:
        return texts_of_error(error)
    raise AssertionError("the call was not refused")


def texts_of_error(error: BaseException, *, without: tuple[str, ...] = ()) -> list[str]:
    """All texts of an error and its causes, with the locals of the frames in `pvdm`, but not of the tests' frames."""
    found = [repr(error), str(error), json.dumps(error.to_json()) if isinstance(error, PvdmError) else ""]
    current: BaseException | None = error
    while current is not None:
        stack = traceback.TracebackException.from_exception(current, capture_locals=True).stack
        found += [
            f"{frame.filename}:{frame.lineno} {frame.locals}"
            for frame in stack
            if "/src/pvdm/" in frame.filename and not frame.filename.endswith(without)
        ]
        current = current.__cause__ or current.__context__
    return found


def rows(ledger: Ledger) -> Iterator[bytes]:
    """Every value of every table of the ledger, and the payloads of signed envelopes."""
    with ledger.read() as unit:
        for table in metadata.sorted_tables:
            for row in unit.rows(select(table)):
                for value in row.values():
                    data = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                    yield data
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        yield base64.b64decode(json.loads(data)["payload"])


def plant(stand: Stand) -> None:
    """Leave the planted secret in the ledger, in the archive, and beside the outside checkpoint."""

    def note(unit: Unit) -> None:
        events.note(unit, "planted", "planted", "", dict(zip(("raw", "hex", "base64"), FORMS, strict=True)))

    stand.notary.ledger.transact(note, at_micros=stand.notary.clock.now_micros())
    assert stand.config.archive is not None
    for folder in (stand.config.archive, stand.config.outside_path.parent):
        folder.mkdir(exist_ok=True)
        (folder / "planted").write_text("\n".join(FORMS))


def collect_left_files(stand: Stand, search: Search) -> None:
    """Collect what is in the Steward's folder and in its ledger after it has stopped."""
    assert stand.config.archive is not None
    export(LedgerLogReader(stand.notary.ledger), stand.folder / "exported")
    search.place("ledger's rows", *rows(stand.notary.ledger))
    for path in sorted(stand.folder.glob("ledger.db*")):
        search.place("ledger's file", path.read_bytes())
    search.files("tiles and archive", stand.config.archive)
    search.files("tiles and archive", stand.folder / "exported")
    search.files("outside checkpoint", stand.config.outside_path.parent)


@contextlib.contextmanager
def serve_by_command(stand: Stand, search: Search) -> Iterator[str]:
    """Run `pvdm steward serve` with debug output, and collect its environment, command line and log lines."""
    config = stand.folder / f"{'.'.join(FORMS)}.toml"
    config.write_text(config_text(stand.config))
    lines = stand.folder / "stderr"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PVDM_DEBUG": "1", "PYTHONASYNCIODEBUG": "1"}
    environment |= {f"PLANTED_{number}": form for number, form in enumerate(FORMS)}
    command = [sys.executable, "-m", "pvdm.cli", "steward", "serve", "--config", str(config)]
    with lines.open("wb") as stream, subprocess.Popen(command, env=environment, stderr=stream) as process:
        try:
            yield _address(lines, process)
            for name, place in (("environ", "environment"), ("cmdline", "command line")):
                search.place(place, Path(f"/proc/{process.pid}/{name}").read_bytes())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    search.place("log lines", lines.read_bytes())


def config_text(config: StewardConfig) -> str:
    """The text of a configuration file."""
    assert isinstance(config.keys, FileKeys)
    return f"""
notary = "{NOTARY}"
origin = "{LOG_ORIGIN}"
ledger = "{config.ledger_url}"
outside = "{config.outside_path}"
archive = "{config.archive}"
[keys]
home = "file"
path = "{config.keys.path}"
passphrase_file = "{config.keys.passphrase_file}"
[service]
port = 0
"""


def _address(lines: Path, process: subprocess.Popen[bytes]) -> str:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        for line in lines.read_text().splitlines():
            if line.startswith("{") and '"started"' in line:
                return str(json.loads(line)["address"])
        time.sleep(0.05)
    raise AssertionError(lines.read_text()[-2_000:])


class AllLogLines(logging.Handler):
    """Collects the lines of all loggers, formatted with their arguments and exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextlib.contextmanager
def collect_all_logs() -> Iterator[AllLogLines]:
    """Set all loggers to DEBUG, and collect their lines."""
    handler, root = AllLogLines(), logging.getLogger()
    before = {logger: logger.level for logger in [root, *map(logging.getLogger, logging.root.manager.loggerDict)]}
    for logger in before:
        logger.setLevel(logging.DEBUG)
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)


def reopen(stand: Stand) -> None:
    """Open the Steward again, in this process."""
    stand.notary = open_notary(stand.config)
