"""Many clients at one Steward, or at several on one ledger: their requests and answers, compared with the ledger."""

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
    """The source's signed attestation for a challenge with this nonce."""
    attestation = SourceAttestation(
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
    return sign_statement(attestation, SIGNERS[attestor]).to_bytes()


# The Steward, as a separate process.


def write_config(stand: Stand, **limits: int) -> Path:
    """Write the stand's configuration to a file, with these limits and otherwise the default ones."""
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
    """Run `count` Stewards with this configuration; yields their addresses. Their clock starts at the example time."""
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
    """The number of requests that the Stewards logged with this status."""
    lines = [line for path in config.parent.glob("steward-*.log") for line in path.read_text().splitlines()]
    return sum(json.loads(line).get("status") == status for line in lines)


def wait_for_address(lines: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until a Steward has started; returns the address from its log."""
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        for line in lines.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if entry["event"] == "started":
                    return str(entry["address"])
        time.sleep(0.05)
    raise AssertionError(lines.read_text()[-2_000:])


# The clients.


@dataclass(frozen=True, slots=True)
class Caller:
    """One identity: an attestor's token, a reader's token, and its own source snapshot."""

    attestor: str
    token: str
    reader: str
    snapshot_id: int


@dataclass(slots=True)
class Answers:
    """The answers to all requests. `statuses` counts them by kind of request, status and error code.

    `drawn` are nonces of issued challenges, and `attested` tuples of nonce, statement id and log index. `unknown` are
    nonces of requests without an answer.
    """

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

    def others_than(self, *wanted: tuple[int, str]) -> dict[tuple[str, int, str], int]:
        """The counts of answers with other statuses and codes than these."""
        return {key: count for key, count in self.statuses.items() if (key[1], key[2]) not in wanted}


def callers(stand: Stand, count: int) -> list[Caller]:
    """`count` identities, of two attestors in turn."""
    found = []
    for number in range(count):
        attestor = ATTESTORS[number % 2]
        token, _ = stand.token(Role.ATTESTOR, "*", attestor)
        reader, _ = stand.token(Role.AUDITOR, "sales", f"reader-{number}")
        found.append(Caller(attestor, token, reader, 1_000 + number))
    return found


@dataclass(frozen=True, slots=True)
class Plan:
    """How many clients send how many random requests; Stewards and identities are used in turn."""

    urls: Sequence[str]
    callers: Sequence[Caller]
    proof_id: str
    clients: int = 200
    requests: int = 4
    seed: int = 1
    kinds: tuple[str, ...] = ("challenge", "attest", "attest", "proofs", "attestations", "bundle")


def send_requests(plan: Plan) -> Answers:
    """Run all clients at once, each with its own connection and without retries."""
    answers = Answers()
    asyncio.run(_run_clients(plan, answers))
    return answers


async def _run_clients(plan: Plan, answers: Answers) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(plan.clients):
            group.create_task(_client(plan, number, answers))


async def _client(plan: Plan, number: int, answers: Answers) -> None:
    random = Random(plan.seed * 1_000_003 + number)
    caller = plan.callers[number % len(plan.callers)]
    url = plan.urls[number % len(plan.urls)]
    async with httpx.AsyncClient(base_url=url, verify=False, trust_env=False, timeout=60) as http:
        challenges_left: list[tuple[str, int]] = []
        for request in range(plan.requests):
            kind = random.choice(plan.kinds)
            if kind == "attest" and not challenges_left:
                kind = "challenge"
            await _send(http, kind, _Step(plan, caller, _nonce(plan, number, request), challenges_left, answers))


@dataclass(slots=True)
class _Step:
    """One request of a client; `challenges_left` are nonce and epoch of its challenges without an attestation."""

    plan: Plan
    caller: Caller
    nonce: str
    challenges_left: list[tuple[str, int]]
    answers: Answers


async def _send(http: httpx.AsyncClient, kind: str, step: _Step) -> None:
    caller, answers, nonce = step.caller, step.answers, step.nonce
    own, reader = _bearer(caller.token), _bearer(caller.reader)
    began = time.monotonic()
    try:
        match kind:
            case "challenge":
                response = await http.post(CHALLENGES, json=challenge_body(nonce, caller.snapshot_id), headers=own)
            case "attest":
                nonce, epoch = step.challenges_left.pop()
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
        answers.statuses[kind, 0, type(error).__name__] += 1
        answers.unknown.append(nonce)
        return
    answers.seconds.append(time.monotonic() - began)
    _record(kind, nonce, response, step)


def _record(kind: str, nonce: str, response: httpx.Response, step: _Step) -> None:
    answer = response.json()
    code = "" if response.status_code == 200 else answer["error"]["reason"]
    step.answers.statuses[kind, response.status_code, code] += 1
    if kind not in ("challenge", "attest"):
        return
    if response.status_code != 200:
        step.answers.refused.append(f"{kind} {nonce}")
    elif kind == "challenge":
        step.answers.drawn.append(nonce)
        step.challenges_left.append((nonce, int(answer["epoch"])))
    else:
        step.answers.attested.append((nonce, answer["statement_id"], int(answer["log_index"])))


def _envelope(caller: Caller, nonce: str, epoch: int) -> bytes:
    return signed_attestation(nonce, epoch=epoch, now=NOW, attestor=caller.attestor, snapshot_id=caller.snapshot_id)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def send_by_typed_clients(plan: Plan, retries: Retries | None = None) -> Answers:
    """Draw challenges and attest with `StewardClient`, which retries. Threads share one client for each identity."""
    answers, barrier = Answers(), threading.Barrier(plan.clients)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(plan.clients) as pool:
        clients = [
            (caller, stack.enter_context(StewardClient(url, caller.token, retries=retries)))
            for number, caller in enumerate(plan.callers)
            for url in [plan.urls[number % len(plan.urls)]]
        ]
        futures = []
        for number in range(plan.clients):
            drawing = [_nonce(plan, number, request) for request in range(plan.requests)]
            futures.append(pool.submit(_attest_each, *clients[number % len(clients)], drawing, answers, barrier))
        for future in futures:
            future.result()
    return answers


def _attest_each(
    caller: Caller, client: StewardClient, drawing: list[str], answers: Answers, barrier: threading.Barrier
) -> None:
    """Draw a challenge for each of these nonces, and submit its attestation."""
    barrier.wait()
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
            answers.drawn.append(drawn.nonce)
            recorded = client.submit_attestation(_envelope(caller, nonce, drawn.epoch))
            answers.attested.append((nonce, recorded.statement_id, recorded.log_index))
            answers.statuses["both", 200, ""] += 1
        except PvdmError as error:
            answers.statuses["both", 0, error.reason] += 1
            answers.unknown.append(nonce)


def _nonce(plan: Plan, client: int, request: int) -> str:
    return hashlib.sha256(f"{plan.seed} {client} {request}".encode()).hexdigest()[:32]


# The ledger afterwards.


def find_errors(stand: Stand, answers: Sequence[Answers]) -> list[str]:
    """The differences between answers and ledger: acknowledged facts that are missing or doubled, and unknown ones."""
    drawn = [nonce for each in answers for nonce in each.drawn]
    attested = [answer for each in answers for answer in each.attested]
    unknown = {nonce for each in answers for nonce in each.unknown}
    refused = {line for each in answers for line in each.refused}
    with stand.notary.ledger.read() as unit:
        stored = _stored(unit)
    wrong = [f"drawn {times} times: {nonce}" for nonce, times in Counter(drawn).items() if times > 1]
    wrong += [f"attested {times} times: {nonce}" for (nonce, *_), times in Counter(attested).items() if times > 1]
    wrong += [f"drawn, but gone: {nonce}" for nonce in drawn if nonce not in stored.challenges]
    wrong += [f"there, but not answered: {nonce}" for nonce in stored.challenges - set(drawn) - unknown]
    wrong += [f"a nonce without its challenge: {nonce}" for nonce in stored.nonces - stored.challenges]
    for nonce, statement_id, index in attested:
        if stored.attested.get(nonce) != (statement_id, index):
            wrong.append(f"attested as {statement_id} at {index}, stored as {stored.attested.get(nonce)}")
    attested_nonces = {nonce for nonce, *_ in attested}
    wrong += [f"attested, but not answered: {nonce}" for nonce in set(stored.attested) - attested_nonces - unknown]
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
    """Run a Steward whose clock is ahead of the real time by `offset` microseconds."""
    with contextlib.closing(open_notary(load_config(Path(config)), wall=lambda: wall_micros() + int(offset))) as notary:
        run(notary)


if __name__ == "__main__":
    main(*sys.argv[1:])
