"""Simulated power losses: record a process's file calls, lose what was not synced at some point, and check the rest.

The process (a worker, `tests/support/ledger/worker.py` or another) writes what it acknowledged to the file
`acknowledged`, one note a line. Damage is a text about an acknowledged change that is missing, or about an
inconsistent file.
"""

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
"""A disk writes so many bytes whole or not at all."""
ACKNOWLEDGED = "acknowledged"
_EVERY_CHANGE = 1.1  # a probability above every value of random()
_LATER_NAME_CHANCE = 0.7  # that a name has any of its entries after the loss, and not surely the synced one
_NOT_TRIED_AFTER = "co"  # close and open: a new file is empty, so its loss is tried after the first write
_RECORD_HEAD = struct.Struct("<ciqq")  # kind, descriptor, offset, length of the data


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded file call (tests/shim/record_files.c). `offset` has the flags of an open, the size of a truncate."""

    kind: str
    """o open, c close, w write, t truncate, s sync, u unlink, m mkdir; r and R the old and new name of a rename"""
    descriptor: int
    offset: int
    data: bytes
    """the bytes written, or a path"""


@dataclass(eq=False, slots=True)
class File:
    """A file: its content at the last sync, and the calls since (kind, offset, data), which may be lost."""

    durable: bytes = b""
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def content_after_loss(self, chance: float, random: Random) -> bytes:
        """The content if each sector and each truncation since the last sync survives with probability `chance`."""
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
        self.durable = self.content_after_loss(_EVERY_CHANGE, Random(0))
        self.pending.clear()


class Folder:
    """A folder. Its entries are in `Disk`."""


class Disk:
    """A tree of files and folders. A new, moved or removed name is durable only after a sync of its folder.

    For each name, `_entries` has the entry at the last sync of its folder, and then each later one. None is no entry.
    `_open` has for each descriptor the file, or the name of the folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._entries: dict[str, list[File | Folder | None]] = {}
        self._open: dict[int, File | str] = {}
        self._moving: File | Folder | None = None

    def apply(self, call: Call) -> None:
        """Change files and names as the call did."""
        match call.kind:
            case "o":
                self._apply_open(call)
            case "m":
                self._entries_of(call).append(Folder())
            case "u":
                self._entries_of(call).append(None)
            case "r":
                self._moving = self._entries_of(call)[-1]
                self._entries_of(call).append(None)
            case "R":
                self._entries_of(call).append(self._moving)
            case "c":
                self._open.pop(call.descriptor)
            case _:
                self._apply_to_open(call, self._open[call.descriptor])

    def lose_power(self, random: Random) -> dict[str, bytes]:
        """The files that a restart finds, by name: one of each name's entries, and some of each file's changes."""
        chance = random.choice((0.0, 0.0, 0.5, 0.9, _EVERY_CHANGE))
        found, folders = {}, {"."}
        for name, entries in sorted(self._entries.items()):  # sorted: a folder comes before its files
            entry = random.choice(entries) if random.random() < _LATER_NAME_CHANCE else entries[0]
            if str(Path(name).parent) not in folders or name == ACKNOWLEDGED:
                continue
            if isinstance(entry, File):
                found[name] = entry.content_after_loss(chance, random)
            elif entry is not None:
                folders.add(name)
        return found

    def notes(self) -> list[str]:
        """What the process acknowledged. A power loss does not change this: a client already has the answer."""
        newest = self._entries.get(ACKNOWLEDGED, [None])[-1]
        if not isinstance(newest, File):
            return []
        return newest.content_after_loss(_EVERY_CHANGE, Random(0)).decode().split()

    def _entries_of(self, call: Call) -> list[File | Folder | None]:
        return self._entries.setdefault(self._name(call), [None])

    def _name(self, call: Call) -> str:
        return os.path.relpath(call.data.decode(), self._folder)

    def _apply_to_open(self, call: Call, target: File | str) -> None:
        """Apply a write, truncate or sync of a file, or the sync of a folder (`target` is its name)."""
        if isinstance(target, str):
            for name, entries in self._entries.items():
                if str(Path(name).parent) == target:
                    del entries[:-1]
        elif call.kind == "s":
            target.sync()
        else:
            target.pending.append((call.kind, call.offset, call.data))

    def _apply_open(self, call: Call) -> None:
        name = self._name(call)
        entries = self._entries.setdefault(name, [Folder() if name == "." else None])
        if entries[-1] is None:
            if not call.offset & os.O_CREAT:
                raise AssertionError(f"{name} was opened, but no recorded call created it")
            entries.append(File())
        found = entries[-1]
        if isinstance(found, File) and call.offset & os.O_TRUNC:
            found.pending.append(("t", 0, b""))
        self._open[call.descriptor] = found if isinstance(found, File) else name


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@functools.cache
def compiled_recorder() -> Path:
    """The compiled recorder, a library for LD_PRELOAD. Skips the test where it cannot be compiled."""
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
    """Run the worker with this seed and weakness (a setting that syncs less), and return its file calls."""
    data, trace = folder / "data", folder / "trace"
    data.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(compiled_recorder()),
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
        kind, descriptor, offset, length = _RECORD_HEAD.unpack_from(data, at)
        at += _RECORD_HEAD.size
        yield Call(kind.decode(), descriptor, offset, data[at : at + length])
        at += length


# Checks the folder that a restart would find against the notes. Yields the damage.
FindDamage: TypeAlias = Callable[[Path, list[str]], Iterator[str]]


def damage_after_loss(calls: list[Call], folder: Path, seed: int, find_damage: FindDamage | None = None) -> list[str]:
    """Cut the power once, at a point and with losses that the seed decides, and return the damage."""
    random = Random(seed)
    disk = Disk(str(folder / "data"))
    for call in calls[: random.randrange(1, len(calls) + 1)]:
        disk.apply(call)
    return _lose_power(disk, folder, random, find_damage or find_ledger_damage)


def damage_after_each_call(
    calls: list[Call], folder: Path, seed: int, find_damage: FindDamage, *, every: int = 1
) -> Iterator[str]:
    """Cut the power after each call (or every second, …) from the first acknowledgement on, and yield the damage."""
    disk = Disk(str(folder / "data"))
    for number, call in enumerate(calls):
        disk.apply(call)
        if number % every == 0 and call.kind not in _NOT_TRIED_AFTER and disk.notes():
            damage = _lose_power(disk, folder, Random(f"{seed} {number}"), find_damage)
            yield from (f"call {number}: {each}" for each in damage)


def _lose_power(disk: Disk, folder: Path, random: Random, find_damage: FindDamage) -> list[str]:
    """Write the files that a restart would find to a new folder, and return the damage there."""
    after = Path(tempfile.mkdtemp(dir=folder))
    for name, content in disk.lose_power(random).items():
        (after / name).parent.mkdir(parents=True, exist_ok=True)
        (after / name).write_bytes(content)
        (after / name).chmod(0o600)  # the ledger's files have this mode; the simulation does not lose modes
    try:
        return list(find_damage(after, disk.notes()))
    finally:
        shutil.rmtree(after)


def find_ledger_damage(after: Path, notes: list[str]) -> Iterator[str]:
    """Open the ledger as a restart does, and compare its nonces with the notes (`STATE:nonce`)."""
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
                if not nonce:
                    continue
                found = nonces.find(unit, nonce)
                # A nonce that was reserved may have been committed or aborted since. Both are final.
                allowed = ("RESERVED", "COMMITTED", "ABORTED") if state == "RESERVED" else (state,)
                if found is None or found.state not in allowed:
                    yield f"lost: {note}, found {found and found.state}"
        ledger.close()
    except Exception as error:
        yield f"unreadable: {type(error).__name__}: {error}"
