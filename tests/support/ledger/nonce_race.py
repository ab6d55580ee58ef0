"""A race: many processes reserve the same nonces in one ledger, and some of them are killed.

The race runs as its own program (`python -m`), because it forks its racers, and pytest's process has threads.
"""

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
LONG_TIMEOUTS = Timeouts(connect_seconds=10, busy_seconds=60, statement_seconds=60)


@dataclass(frozen=True, slots=True)
class Race:
    """How many processes (racers) try to reserve how many nonces, and how many kills there are.

    Each nonce has one racer that always tries it. Every other racer tries it with probability `share`.
    Each racer writes the nonces that it won to a file in `folder`.
    """

    url: str
    folder: str
    nonces: int
    processes: int = 16
    kills: int = 0
    seed: int = 0
    share: float = 0.2


@contextlib.contextmanager
def run_race(race: Race) -> Iterator[subprocess.Popen[bytes]]:
    """Run the race in a new process group, which is killed afterwards. Its exit code is 0 if no racer failed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.support.ledger.nonce_race", json.dumps(asdict(race))]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def find_violations(race: Race) -> list[str]:
    """What is wrong after a race. Empty if the ledger and the racers' files agree on one winner for each nonce.

    A racer can be killed between its commit and its write, so only a race without kills requires a written win.
    """
    ledger = open_ledger(race.url)
    with ledger.read() as unit:
        holders = {row["nonce"]: row["holder"] for row in unit.rows(select(table.c.nonce, table.c.holder))}
    ledger.close()
    racer_files = Path(race.folder).glob("racer-*")
    wins = [(nonce, path.name) for path in racer_files for nonce in path.read_text().splitlines()]
    times_won = Counter(nonce for nonce, _ in wins)
    wrong = [f"won {times} times: {nonce}" for nonce, times in times_won.items() if times > 1]
    wrong += [f"lost: {nonce} of {racer}" for nonce, racer in wins if holders.get(nonce) != racer]
    wrong += [f"not won: {number}" for number in range(race.nonces) if hex32(number) not in holders]
    if race.kills == 0:
        wrong += [f"won by {racer}, but not written: {n}" for n, racer in holders.items() if n not in times_won]
    return wrong


def _run_racers(race: Race) -> int:
    """Start every racer, kill random ones, and start each killed one again. Returns 1 if one failed, otherwise 0."""
    random = Random(race.seed)
    running = {_fork(race, random, number): number for number in range(race.processes)}  # numbers by process id
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
    """Start a racer as a child process and return its process id."""
    seed = random.random()
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        _reserve_nonces(race, Random(seed), number)
        status = 0
    finally:
        os._exit(status)


def _reserve_nonces(race: Race, random: Random, racer_number: int) -> None:
    """Try this racer's nonces in random order, and write each nonce that it won to the racer's file."""
    me = f"racer-{os.getpid()}-{random.randrange(10**9)}"
    order = [n for n in range(race.nonces) if n % race.processes == racer_number or random.random() < race.share]
    random.shuffle(order)
    notes = os.open(Path(race.folder) / me, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ledger = _open_ledger(race.url)
    for number in order:
        if _reserve(ledger, hex32(number), me):
            os.write(notes, f"{hex32(number)}\n".encode())
    ledger.close()


def _open_ledger(url: str) -> Ledger:
    """Open the ledger; tries again while its server is down."""
    while True:
        with contextlib.suppress(UnavailableError):
            return open_ledger(url, timeouts=LONG_TIMEOUTS)
        time.sleep(0.05)


def _reserve(ledger: Ledger, nonce: str, me: str) -> bool:
    """Reserve the nonce; returns whether this racer has it. Tries again until the ledger gives an answer.

    After a commit with an unknown outcome the racer first reads who has the nonce.
    """
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
    sys.exit(_run_racers(Race(**json.loads(sys.argv[1]))))
