"""Many processes after the same nonces, some killed on the way; a process of its own, so that forks are clean."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from sqlalchemy import select

from pvdm.errors import ConflictError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger, open_ledger
from pvdm.ledger.engine import Timeouts
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.schema.work import nonces as table
from pvdm.ledger.work import nonces
from tests.support.ledger.rows import hex32

ROOT = Path(__file__).parents[3]
NOW = 1_800_000_000_000_000
PATIENCE = Timeouts(connect_seconds=10, busy_seconds=60, statement_seconds=60)


@dataclass(frozen=True, slots=True)
class Race:
    """How many run after how many nonces, and how often one of them is killed.

    Each nonce has one racer who is sure to try it, and every other one tries it with a chance of `share`.
    """

    url: str
    folder: str
    nonces: int
    processes: int = 16
    kills: int = 0
    seed: int = 0
    share: float = 0.2


@contextlib.contextmanager
def started(race: Race) -> Iterator[subprocess.Popen[bytes]]:
    """The race in a process group of its own, gone afterwards; it ends with 0 when every racer is through."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.support.ledger.nonce_race", json.dumps(asdict(race))]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def found_wrong(race: Race) -> list[str]:
    """What does not hold afterwards: a nonce that nobody won, or an acknowledged win that is another's or gone."""
    ledger = open_ledger(race.url)
    with ledger.read() as unit:
        holders = {row["nonce"]: row["holder"] for row in unit.rows(select(table.c.nonce, table.c.holder))}
    ledger.close()
    wins = [(line, path.name) for path in Path(race.folder).glob("racer-*") for line in path.read_text().splitlines()]
    wrong = [f"won {times} times: {nonce}" for nonce, times in Counter(nonce for nonce, _ in wins).items() if times > 1]
    wrong += [f"lost: {nonce} of {who}" for nonce, who in wins if holders.get(nonce) != who]
    wrong += [f"not won: {number}" for number in range(race.nonces) if hex32(number) not in holders]
    if race.kills == 0:
        told = {nonce for nonce, _ in wins}
        wrong += [f"won by {who}, but not told: {nonce}" for nonce, who in holders.items() if nonce not in told]
    return wrong


def _run(race: Race) -> int:
    random = Random(race.seed)
    running = {_fork(race, random, number): number for number in range(race.processes)}
    kills, failed = race.kills, 0
    pause = 0.02
    while running:
        time.sleep(pause)
        if kills > 0 and running:
            victim = random.choice(sorted(running))
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                kills -= 1
            pause = random.uniform(0.02, 0.4)
        for process in list(running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                number = running.pop(process)
                if status == signal.SIGKILL:
                    running[_fork(race, random, number)] = number
                else:
                    failed += status != 0
    return 1 if failed else 0


def _fork(race: Race, random: Random, number: int) -> int:
    seed = random.random()
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        _chase(race, Random(seed), number)
        status = 0
    finally:
        os._exit(status)


def _chase(race: Race, random: Random, place: int) -> None:
    me = f"racer-{os.getpid()}-{random.randrange(10**9)}"
    order = [n for n in range(race.nonces) if n % race.processes == place or random.random() < race.share]
    random.shuffle(order)
    notes = os.open(Path(race.folder) / me, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ledger = _opened(race.url)
    for number in order:
        if _won(ledger, hex32(number), me):
            os.write(notes, f"{hex32(number)}\n".encode())
    ledger.close()


def _opened(url: str) -> Ledger:
    while True:
        with contextlib.suppress(UnavailableError):
            return open_ledger(url, timeouts=PATIENCE)
        time.sleep(0.05)


def _won(ledger: Ledger, nonce: str, me: str) -> bool:
    """Try until the ledger has an answer; an unknown commit is settled by reading, never by trying again blindly."""
    unknown = False
    while True:
        try:
            if unknown:
                with ledger.read() as unit:
                    found = nonces.find(unit, nonce)
                if found is not None:
                    return found.holder == me
                unknown = False
            with ledger.write(at_micros=NOW) as unit:
                nonces.reserve(unit, nonce, purpose=NoncePurpose.BREAK_GLASS, holder=me)
                unit.commit()
        except ConflictError as error:
            if error.reason == "nonce_taken":
                return False
            raise
        except StateUnknownError:
            unknown = True
        except UnavailableError:
            time.sleep(0.05)
        else:
            return True


if __name__ == "__main__":
    sys.exit(_run(Race(**json.loads(sys.argv[1]))))
