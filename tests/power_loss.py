"""Power loss for SQLite: record a process's file calls, then lose what was not synced at a random point, and look."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pvdm.store import nonces, open_ledger
from tests.services import require

ROOT = Path(__file__).parents[1]
SECTOR = 512
ACKNOWLEDGED = "acknowledged"
_HEAD = struct.Struct("<ciqq")


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded file call."""

    kind: str
    descriptor: int
    offset: int
    data: bytes


@dataclass(eq=False, slots=True)
class File:
    """What is surely on the disk, and the changes since, each of which may or may not have reached it."""

    durable: bytes = b""
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def survive(self, chance: float, random: Random) -> bytes:
        """The content after the loss: each change whole, torn between sectors, or gone."""
        content = bytearray(self.durable)
        for kind, offset, data in self.pending:
            if kind == "t":
                if random.random() < chance:
                    content[offset:] = b"" if offset <= len(content) else bytes(offset - len(content))
                continue
            for at in range(0, len(data), SECTOR):
                if random.random() < chance:
                    _put(content, offset + at, data[at : at + SECTOR])
        return bytes(content)

    def sync(self) -> None:
        self.durable = self.survive(1.1, Random(0))
        self.pending.clear()


class Disk:
    """A folder whose entries, too, are durable only after a sync of the folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: dict[str, list[File | None]] = {}
        self._open: dict[int, File | None] = {}
        self.acknowledged: list[str] = []

    def apply(self, call: Call) -> None:
        if call.kind == "o":
            self._opened(call)
        elif call.kind == "u":
            self._names[_name(call)].append(None)
        elif call.kind == "c":
            self._open.pop(call.descriptor)
        elif (file := self._open[call.descriptor]) is None:
            self._names = {name: states[-1:] for name, states in self._names.items()}
        elif call.kind == "s":
            file.sync()
        else:
            file.pending.append((call.kind, call.offset, call.data))

    def lose_power(self, random: Random) -> dict[str, bytes]:
        """What a restart finds: for each name one entry since the last sync, for each file some of its writes."""
        chance = random.choice((0.0, 0.0, 0.5, 0.9, 1.1))
        found = {}
        for name, states in self._names.items():
            entry = random.choice(states) if random.random() < 0.7 else states[0]
            if entry is not None and name != ACKNOWLEDGED:
                found[name] = entry.survive(chance, random)
        return found

    def notes(self) -> list[str]:
        """What the process had acknowledged; it is told to someone else, so no loss here takes it back."""
        states = self._names.get(ACKNOWLEDGED, [None])
        return states[-1].survive(1.1, Random(0)).decode().split() if states[-1] is not None else []

    def _opened(self, call: Call) -> None:
        path = call.data.decode()
        if path.rstrip("/") == self._folder:
            self._open[call.descriptor] = None
            return
        states = self._names.setdefault(_name(call), [None])
        if states[-1] is None:
            if not call.offset & os.O_CREAT:
                raise AssertionError(f"{path} was opened, but nobody made it")
            states.append(File())
        file = states[-1]
        assert file is not None
        if call.offset & os.O_TRUNC:
            file.pending.append(("t", 0, b""))
        self._open[call.descriptor] = file


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _name(call: Call) -> str:
    return Path(call.data.decode()).name


@functools.cache
def shim() -> Path:
    """The compiled recorder; skips where it cannot be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    require(compiler is not None, "no C compiler, which the power-loss recorder needs")
    require(sys.platform == "linux", "the power-loss recorder needs Linux")
    assert compiler is not None
    folder = tempfile.mkdtemp(prefix="pvdm-shim-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / "record_files.so"
    source = ROOT / "tests" / "shim" / "record_files.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(source), "-ldl"], check=True)
    return target


def record(folder: Path, seed: int, synchronous: str) -> list[Call]:
    """Run the worker (`tests/ledger_worker.py`) with this seed and return what it did to its files."""
    data, trace = folder / "data", folder / "trace"
    data.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim()),
        "PVDM_RECORD_ROOT": str(data),
        "PVDM_RECORD_TO": str(trace),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [sys.executable, "-m", "tests.ledger_worker", str(data), str(seed), synchronous]
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
    return list(_calls(trace.read_bytes()))


def _calls(data: bytes) -> Iterator[Call]:
    at = 0
    while at < len(data):
        kind, descriptor, offset, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Call(kind.decode(), descriptor, offset, data[at : at + length])
        at += length


def losses(calls: list[Call], folder: Path, seed: int) -> list[str]:
    """Cut the power once, at a point and with an outcome that the seed decides; what is wrong afterwards."""
    random = Random(seed)
    disk = Disk(str(folder / "data"))
    for call in calls[: random.randrange(1, len(calls) + 1)]:
        disk.apply(call)
    after = Path(tempfile.mkdtemp(dir=folder))
    for name, content in disk.lose_power(random).items():
        (after / name).write_bytes(content)
    try:
        return list(_wrong(after / "ledger.db", disk.notes()))
    finally:
        shutil.rmtree(after)


def _wrong(path: Path, notes: list[str]) -> Iterator[str]:
    """Open the ledger as a restart does and compare it with what was acknowledged."""
    if not notes:
        return
    try:
        with sqlite3.connect(path, isolation_level=None) as raw:
            faults = (
                raw.execute("PRAGMA integrity_check").fetchall() + raw.execute("PRAGMA foreign_key_check").fetchall()
            )
        raw.close()
        yield from (f"inconsistent: {fault}" for fault in faults if fault != ("ok",))
        ledger = open_ledger(f"sqlite:///{path}")
        with ledger.read() as unit:
            for note in notes:
                state, _, nonce = note.partition(":")
                found = nonces.find(unit, nonce) if nonce else None
                later = {"RESERVED": ("RESERVED", "COMMITTED", "ABORTED")}.get(state, (state,))
                if nonce and (found is None or found.state not in later):
                    yield f"lost: {note}, found {found and found.state}"
        ledger.close()
    except Exception as error:
        yield f"unreadable: {type(error).__name__}: {error}"
