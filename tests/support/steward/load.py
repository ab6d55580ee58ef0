"""Many clients at one Steward, or at several on one ledger: what was sent, what was answered, what the ledger holds."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
from sqlalchemy import select

from pvdm.client import Retries, StewardClient
from pvdm.errors import PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.clock import wall_micros
from pvdm.ledger.schema.record import attestations, challenges, statements
from pvdm.ledger.schema.work import NoncePurpose, nonces
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.config.steward import load_config
from pvdm.steward.notary import log_keys, open_notary
from pvdm.steward.record.log import LedgerLogReader
from pvdm.steward.server import run
from pvdm.trust.log.entry import parse_entry
from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.verify import sign_statement
from tests.support.steward.notary import LOG_ORIGIN, NOTARY, Stand
from tools.proof_kit import NOW, SIGNERS, SOURCE, fixed

ROOT = Path(__file__).parents[3]
FINGERPRINT = fixed("content schema")
ATTESTORS = ("source-payments", "source-other")
CHALLENGES, ATTESTATIONS = "/v1/attestations/challenges", "/v1/attestations"
START_SECONDS = 30


def challenge_body(nonce: str, snapshot_id: int = 77) -> dict[str, Any]:
    """A request for the keys of one attestation."""
    return {
        "nonce": nonce,
        "catalog": SOURCE.catalog,
        "table_uuid": SOURCE.uuid,
        "snapshot_id": str(snapshot_id),
        "mode": "stored",
        "fingerprints": {"content": FINGERPRINT},
    }


def signed_attestation(
    nonce: str, *, epoch: int, now: int, attestor: str = ATTESTORS[0], snapshot_id: int = 77
) -> bytes:
    """The source's answer to that challenge."""
    said = SourceAttestation(
        attestor=attestor,
        table=SOURCE,
        snapshot_id=snapshot_id,
        row_count=48_210,
        projection=ProjectionName.CONTENT,
        schema_fingerprint=FINGERPRINT,
        mode="stored",
        construction="hmac-sha256",
        epoch=epoch,
        nonce=nonce,
        commitment=fixed(f"commitment {nonce}"),
        issued_at=now,
    )
    return sign_statement(said, SIGNERS[attestor]).to_bytes()


# The Steward, as a process of its own.


def write_config(stand: Stand, **limits: int) -> Path:
    """The stand's configuration as a file; every limit that is not named is as by default."""
    text = f"""
        notary = "{NOTARY}"
        origin = "{LOG_ORIGIN}"
        ledger = "{stand.config.ledger_url}"
        outside = "outside/checkpoint"
        [keys]
        home = "file"
        path = "keys"
        [service]
        port = 0
        [service.limits]
    """
    text += "\n".join(f"{name} = {value}" for name, value in limits.items())
    path = stand.folder / "steward.toml"
    path.write_text("\n".join(line.strip() for line in text.splitlines()))
    return path


@contextlib.contextmanager
def running(config: Path, *, count: int = 1) -> Iterator[list[str]]:
    """So many Stewards of this configuration; gives their addresses. Their clock goes on from that of the examples."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    offset = NOW - wall_micros()
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            lines = config.parent / f"steward-{number}.log"
            command = [sys.executable, "-m", "tests.support.steward.load", str(config), str(offset)]
            process = stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stack.enter_context(lines.open("wb")))
            )
            stack.callback(process.send_signal, signal.SIGTERM)
            found.append(wait_for_address(lines, process))
        yield found


def logged(config: Path, status: int) -> int:
    """How many requests the Stewards say they answered with this status."""
    lines = [line for path in config.parent.glob("steward-*.log") for line in path.read_text().splitlines()]
    return sum(json.loads(line).get("status") == status for line in lines)


def wait_for_address(lines: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that a started Steward says in its log."""
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        for line in lines.read_text().splitlines():
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if told["event"] == "started":
                    return str(told["address"])
        time.sleep(0.05)
    raise AssertionError(lines.read_text()[-2_000:])


# The clients.


@dataclass(frozen=True, slots=True)
class Caller:
    """One identity at the door: an attestor's token, a reader's token, and a source snapshot of its own."""

    attestor: str
    token: str
    reader: str
    snapshot_id: int


@dataclass(slots=True)
class Told:
    """Everything that was answered."""

    statuses: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    drawn: list[str] = field(default_factory=list)
    attested: list[tuple[str, str, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.statuses.values())

    def share(self, status: int) -> float:
        return sum(count for (_, found, _), count in self.statuses.items() if found == status) / self.total

    def beside(self, *wanted: tuple[int, str]) -> dict[tuple[str, int, str], int]:
        """The answers of any other status and code."""
        return {key: count for key, count in self.statuses.items() if (key[1], key[2]) not in wanted}


def callers(stand: Stand, count: int) -> list[Caller]:
    """So many identities, in turn of two sources."""
    made = []
    for number in range(count):
        attestor = ATTESTORS[number % 2]
        token, _ = stand.token(Role.ATTESTOR, "*", attestor)
        reader, _ = stand.token(Role.AUDITOR, "sales", f"reader-{number}")
        made.append(Caller(attestor, token, reader, 1_000 + number))
    return made


@dataclass(frozen=True, slots=True)
class Plan:
    """What the clients do: each its own draws, spread over the Stewards and the identities."""

    urls: Sequence[str]
    callers: Sequence[Caller]
    proof_id: str
    clients: int = 200
    requests: int = 4
    seed: int = 1
    kinds: tuple[str, ...] = ("challenge", "attest", "attest", "proofs", "attestations", "bundle")


def sent(plan: Plan) -> Told:
    """All clients at once, each with a connection of its own, none trying again."""
    told = Told()
    asyncio.run(_sent(plan, told))
    return told


async def _sent(plan: Plan, told: Told) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(plan.clients):
            group.create_task(_client(plan, number, told))


async def _client(plan: Plan, number: int, told: Told) -> None:
    random = Random(plan.seed * 1_000_003 + number)
    caller = plan.callers[number % len(plan.callers)]
    url = plan.urls[number % len(plan.urls)]
    async with httpx.AsyncClient(base_url=url, verify=False, trust_env=False, timeout=60) as http:
        mine: list[tuple[str, int]] = []
        for place in range(plan.requests):
            kind = random.choice(plan.kinds)
            if kind == "attest" and not mine:
                kind = "challenge"
            await _one(http, kind, _Step(plan, caller, _nonce(plan, number, place), mine, told))


@dataclass(slots=True)
class _Step:
    plan: Plan
    caller: Caller
    nonce: str
    mine: list[tuple[str, int]]
    told: Told


async def _one(http: httpx.AsyncClient, kind: str, step: _Step) -> None:
    caller, told, nonce = step.caller, step.told, step.nonce
    own, reader = _bearer(caller.token), _bearer(caller.reader)
    began = time.monotonic()
    try:
        match kind:
            case "challenge":
                response = await http.post(CHALLENGES, json=challenge_body(nonce, caller.snapshot_id), headers=own)
            case "attest":
                nonce, epoch = step.mine.pop()
                body = {"envelope": json.loads(_envelope(caller, nonce, epoch))}
                response = await http.post(ATTESTATIONS, json=body, headers=own)
            case "attestations":
                query = {"table_uuid": SOURCE.uuid, "snapshot_id": str(caller.snapshot_id)}
                response = await http.get(ATTESTATIONS, params=query, headers=own)
            case "identity":
                response = await http.get("/v1/identity", headers=own)
            case "proofs":
                response = await http.get("/v1/proofs?limit=20", headers=reader)
            case _:
                response = await http.get(f"/v1/proofs/{step.plan.proof_id}/bundle", headers=reader)
    except httpx.TransportError as error:
        told.statuses[kind, 0, type(error).__name__] += 1
        told.unknown.append(nonce)
        return
    told.seconds.append(time.monotonic() - began)
    _note(kind, nonce, response, step)


def _note(kind: str, nonce: str, response: httpx.Response, step: _Step) -> None:
    answer = response.json()
    code = "" if response.status_code == 200 else answer["error"]["reason"]
    step.told.statuses[kind, response.status_code, code] += 1
    if kind not in ("challenge", "attest"):
        return
    if response.status_code != 200:
        step.told.refused.append(f"{kind} {nonce}")
    elif kind == "challenge":
        step.told.drawn.append(nonce)
        step.mine.append((nonce, int(answer["epoch"])))
    else:
        step.told.attested.append((nonce, answer["statement_id"], int(answer["log_index"])))


def _envelope(caller: Caller, nonce: str, epoch: int) -> bytes:
    return signed_attestation(nonce, epoch=epoch, now=NOW, attestor=caller.attestor, snapshot_id=caller.snapshot_id)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def sent_by_clients(plan: Plan, retries: Retries | None = None) -> Told:
    """Draws and attestations by the typed client, which tries again: one an identity, a thread for each caller."""
    told, gate = Told(), threading.Barrier(plan.clients)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(plan.clients) as pool:
        made = [
            (caller, stack.enter_context(StewardClient(url, caller.token, retries=retries)))
            for number, caller in enumerate(plan.callers)
            for url in [plan.urls[number % len(plan.urls)]]
        ]
        waiting = [
            pool.submit(_typed, *made[number % len(made)], drawing, told, gate)
            for number in range(plan.clients)
            for drawing in [[_nonce(plan, number, place) for place in range(plan.requests)]]
        ]
        for future in waiting:
            future.result()
    return told


def _typed(caller: Caller, client: StewardClient, drawing: list[str], told: Told, gate: threading.Barrier) -> None:
    gate.wait()
    for nonce in drawing:
        try:
            drawn = client.challenge(
                nonce=nonce,
                catalog=SOURCE.catalog,
                table_uuid=SOURCE.uuid,
                snapshot_id=caller.snapshot_id,
                mode="stored",
                fingerprints={ProjectionName.CONTENT: FINGERPRINT},
            )
            told.drawn.append(drawn.nonce)
            made = client.submit_attestation(_envelope(caller, nonce, drawn.epoch))
            told.attested.append((nonce, made.statement_id, made.log_index))
            told.statuses["both", 200, ""] += 1
        except PvdmError as error:
            told.statuses["both", 0, error.reason] += 1
            told.unknown.append(nonce)


def _nonce(plan: Plan, client: int, place: int) -> str:
    return hashlib.sha256(f"{plan.seed} {client} {place}".encode()).hexdigest()[:32]


# The ledger afterwards.


def found_wrong(stand: Stand, told: Sequence[Told]) -> list[str]:
    """What does not hold: an acknowledged thing that is gone or twice there, a thing that nobody was told of."""
    drawn = [nonce for each in told for nonce in each.drawn]
    attested = [answer for each in told for answer in each.attested]
    unknown = {nonce for each in told for nonce in each.unknown}
    refused = {line for each in told for line in each.refused}
    with stand.notary.ledger.read() as unit:
        stored = _stored(unit)
    wrong = [f"drawn {times} times: {nonce}" for nonce, times in Counter(drawn).items() if times > 1]
    wrong += [f"attested {times} times: {nonce}" for (nonce, *_), times in Counter(attested).items() if times > 1]
    wrong += [f"drawn, but gone: {nonce}" for nonce in drawn if nonce not in stored.challenges]
    wrong += [f"there, but not told: {nonce}" for nonce in stored.challenges - set(drawn) - unknown]
    wrong += [f"a nonce without its challenge: {nonce}" for nonce in stored.nonces - stored.challenges]
    for nonce, statement_id, index in attested:
        if stored.attested.get(nonce) != (statement_id, index):
            wrong.append(f"attested as {statement_id} at {index}, stored as {stored.attested.get(nonce)}")
    told_of = {nonce for nonce, *_ in attested}
    wrong += [f"attested, but not told: {nonce}" for nonce in set(stored.attested) - told_of - unknown]
    wrong += [f"refused, but there: {line}" for line in refused if line.removeprefix("challenge ") in stored.challenges]
    wrong += [f"refused, but there: {line}" for line in refused if line.removeprefix("attest ") in stored.attested]
    return wrong + _wrong_in_log(stand, stored, attested)


@dataclass(frozen=True, slots=True)
class _Stored:
    nonces: set[str]
    challenges: set[str]
    attested: dict[str, tuple[str, int]]


def _stored(unit: Unit) -> _Stored:
    places = {row["statement_id"]: row["log_index"] for row in unit.rows(select(statements))}
    wanted = select(nonces.c.nonce).where(nonces.c.purpose == NoncePurpose.SOURCE_ATTESTATION)
    return _Stored(
        {row["nonce"] for row in unit.rows(wanted)},
        {row["nonce"] for row in unit.rows(select(challenges))},
        {
            row["nonce"]: (row["attestation_id"], places[row["attestation_id"]])
            for row in unit.rows(select(attestations))
        },
    )


def _wrong_in_log(stand: Stand, stored: _Stored, attested: Sequence[tuple[str, str, int]]) -> list[str]:
    reader = LedgerLogReader(stand.notary.ledger)
    size = reader.size()
    entries = [parse_entry(data) for data in reader.read_entries(0, size)]
    kinds = Counter(entry.kind for entry in entries)
    wrong = []
    if kinds[StatementKind.SOURCE_ATTESTATION] != len(stored.attested):
        wrong.append(
            f"{kinds[StatementKind.SOURCE_ATTESTATION]} attestations in the log, {len(stored.attested)} stored"
        )
    if [entry.time for entry in entries] != sorted(entry.time for entry in entries):
        wrong.append("times in the log run back")
    folder = stand.folder / f"exported-{time.monotonic_ns()}"
    export(reader, folder)
    book = stand.notary.keys.book()
    report = fsck(folder, [key.to_vkey() for key in log_keys(book, LOG_ORIGIN)])
    if report.size != size:
        wrong.append(f"{size} entries, {report.size} exported")
    outside = stand.notary.outside.load()
    covered = 0 if outside is None else outside.checkpoint.size
    if covered <= max((index for *_, index in attested), default=-1):
        wrong.append(f"acknowledged above {covered}, where the checkpoint outside ends")
    return wrong


def main(config: str, offset: str) -> None:
    """A Steward whose clock is off by so many microseconds."""
    with contextlib.closing(open_notary(load_config(Path(config)), wall=lambda: wall_micros() + int(offset))) as notary:
        run(notary)


if __name__ == "__main__":
    main(*sys.argv[1:])
