"""Power loss: record a process's file calls, then lose what was not synced at some point, and look."""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias

from pvdm.ledger import open_ledger
from pvdm.ledger.work import nonces
from tests.support.services import require

ROOT = Path(__file__).parents[3]
SECTOR = 512
ACKNOWLEDGED = "acknowledged"
_NO_CHANGE = "co"  # a file that is made is empty until it is written to
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


class Folder:
    """A folder: its entries stand with those of the disk."""


class Disk:
    """A tree of folders whose entries, too, are durable only after a sync of the folder that holds them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: dict[str, list[File | Folder | None]] = {}
        self._open: dict[int, File | str] = {}
        self._moving: File | Folder | None = None

    def apply(self, call: Call) -> None:
        match call.kind:
            case "o":
                self._opened(call)
            case "m":
                self._states(call).append(Folder())
            case "u":
                self._states(call).append(None)
            case "r":
                self._moving = self._states(call)[-1]
                self._states(call).append(None)
            case "R":
                self._states(call).append(self._moving)
            case "c":
                self._open.pop(call.descriptor)
            case _:
                self._changed(call, self._open[call.descriptor])

    def lose_power(self, random: Random) -> dict[str, bytes]:
        """What a restart finds: for each name one entry since the last sync, for each file some of its writes."""
        chance = random.choice((0.0, 0.0, 0.5, 0.9, 1.1))
        found, folders = {}, {"."}
        for name, states in sorted(self._names.items()):  # a folder comes before what is in it
            entry = random.choice(states) if random.random() < 0.7 else states[0]
            if str(Path(name).parent) not in folders or name == ACKNOWLEDGED:
                continue
            if isinstance(entry, File):
                found[name] = entry.survive(chance, random)
            elif entry is not None:
                folders.add(name)
        return found

    def notes(self) -> list[str]:
        """What the process had acknowledged; it is told to someone else, so no loss here takes it back."""
        newest = self._names.get(ACKNOWLEDGED, [None])[-1]
        return newest.survive(1.1, Random(0)).decode().split() if isinstance(newest, File) else []

    def _states(self, call: Call) -> list[File | Folder | None]:
        return self._names.setdefault(self._name(call), [None])

    def _name(self, call: Call) -> str:
        return os.path.relpath(call.data.decode(), self._folder)

    def _changed(self, call: Call, held: File | str) -> None:
        if isinstance(held, str):
            for name, states in self._names.items():
                if str(Path(name).parent) == held:
                    del states[:-1]
        elif call.kind == "s":
            held.sync()
        else:
            held.pending.append((call.kind, call.offset, call.data))

    def _opened(self, call: Call) -> None:
        name = self._name(call)
        states = self._names.setdefault(name, [Folder() if name == "." else None])
        if states[-1] is None:
            if not call.offset & os.O_CREAT:
                raise AssertionError(f"{name} was opened, but nobody made it")
            states.append(File())
        found = states[-1]
        if isinstance(found, File) and call.offset & os.O_TRUNC:
            found.pending.append(("t", 0, b""))
        self._open[call.descriptor] = found if isinstance(found, File) else name


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


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


def record(folder: Path, seed: int, weakness: str, worker: str = "tests.support.ledger.worker") -> list[Call]:
    """Run the worker (`tests/support/ledger/worker.py`) with this seed and return what it did to its files."""
    data, trace = folder / "data", folder / "trace"
    data.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim()),
        "PVDM_RECORD_ROOT": str(data),
        "PVDM_RECORD_TO": str(trace),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [sys.executable, "-m", worker, str(data), str(seed), weakness]
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
    return list(_calls(trace.read_bytes()))


def _calls(data: bytes) -> Iterator[Call]:
    at = 0
    while at < len(data):
        kind, descriptor, offset, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Call(kind.decode(), descriptor, offset, data[at : at + length])
        at += length


# What is wrong in a folder after a loss, in view of what had been acknowledged.
Wrong: TypeAlias = Callable[[Path, list[str]], Iterator[str]]


def losses(calls: list[Call], folder: Path, seed: int, wrong: Wrong | None = None) -> list[str]:
    """Cut the power once, at a point and with an outcome that the seed decides; what is wrong afterwards."""
    random = Random(seed)
    disk = Disk(str(folder / "data"))
    for call in calls[: random.randrange(1, len(calls) + 1)]:
        disk.apply(call)
    return _after_loss(disk, folder, random, wrong or ledger_wrong)


def losses_at_each_call(calls: list[Call], folder: Path, seed: int, wrong: Wrong) -> Iterator[str]:
    """Cut the power after every single call from the first acknowledgement on; what is wrong afterwards."""
    disk = Disk(str(folder / "data"))
    for number, call in enumerate(calls):
        disk.apply(call)
        if call.kind not in _NO_CHANGE and disk.notes():
            found = _after_loss(disk, folder, Random(f"{seed} {number}"), wrong)
            yield from (f"call {number}: {each}" for each in found)


def _after_loss(disk: Disk, folder: Path, random: Random, wrong: Wrong) -> list[str]:
    after = Path(tempfile.mkdtemp(dir=folder))
    for name, content in disk.lose_power(random).items():
        (after / name).parent.mkdir(parents=True, exist_ok=True)
        (after / name).write_bytes(content)
        (after / name).chmod(0o600)  # a mode is not lost
    try:
        return list(wrong(after, disk.notes()))
    finally:
        shutil.rmtree(after)


def ledger_wrong(after: Path, notes: list[str]) -> Iterator[str]:
    """Open the ledger as a restart does and compare it with what was acknowledged."""
    path = after / "ledger.db"
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
