"""A process that has everything loaded and forks others that run at once: Stewards, producers, commands."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
SERVE = "tests.support.servers.starter:serve"
_MESSAGE_MAX_BYTES = 65_536
_END_SECONDS = 60
_PR_SET_PDEATHSIG = 1


class Process:
    """A forked process, held by a descriptor: a signal never meets another process with the same number."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, number: signal.Signals) -> None:
        """Send the signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, number)

    def ended(self, seconds: float = 0) -> bool:
        """Whether the process has ended, waiting for it so long."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.send(signal.SIGKILL)
        if not self.ended(_END_SECONDS):
            raise AssertionError("a process survives SIGKILL")


class Ran(NamedTuple):
    """A command that has ended; `code` is None for one that did not end in time."""

    code: int | None
    out: str

    @property
    def json(self) -> Any:
        """The document that it printed."""
        return json.loads(self.out)


class Starter:
    """Forks processes of itself, each of which calls one function."""

    def __init__(self, folder: Path, *preload: str) -> None:
        """`preload` are modules to load beside those of the command line and the Steward."""
        here, there = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PVDM_")}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-m", "tests.support.servers.starter", str(there.fileno()), *preload]
        with there:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[there.fileno()])
        self._control = here
        self._folder = folder
        self._commands = 0

    def start(self, function: str, *arguments: object, log: Path) -> Process:
        """A process that calls `module:function`; what it prints is appended to `log`."""
        self._control.sendall(pickle.dumps((function, arguments, str(log))))
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        return Process(descriptors[0])

    def command(self, *words: object, env: dict[str, str], seconds: float = 120) -> Ran:
        """A command of `pvdm` in a process of its own."""
        self._commands += 1
        out = self._folder / f"command-{self._commands}"
        spoken = [str(word) for word in words]
        process = self.start("tests.support.servers.starter:command", spoken, env, str(out), log=out)
        if not process.ended(seconds):
            process.kill()
            return Ran(None, f"{' '.join(spoken)}: no end within {seconds} seconds: {out.read_text()[-2000:]}")
        code, text = int(out.with_suffix(".code").read_text()), out.read_text()
        return Ran(code, text)

    def close(self) -> None:
        """End the starter, and with it every process that it has forked."""
        self._control.close()
        self._process.wait(_END_SECONDS)


@contextlib.contextmanager
def opened_starter(folder: Path, *preload: str) -> Iterator[Starter]:
    """A starter, ended afterwards."""
    with contextlib.closing(Starter(folder, *preload)) as made:
        yield made


def serve(config: str) -> None:
    """`pvdm steward serve`."""
    from pvdm.cli import main

    main(["steward", "serve", "--config", config])


def wait_for_address(process: Process, log: Path) -> str:
    """The address that a Steward's log gives, once it serves."""
    while not process.ended(0.02):
        for line in log.read_text("utf-8").splitlines() if log.exists() else []:
            with contextlib.suppress(json.JSONDecodeError, KeyError):
                return str(json.loads(line)["address"])
    raise AssertionError(log.read_text("utf-8"))


def command(words: list[str], env: dict[str, str], out: str) -> None:
    """Any command of `pvdm`; its exit code goes to a file beside its output."""
    from pvdm.cli import main

    os.environ.update(env)
    code = main(words)
    sys.stdout.flush()
    Path(out).with_suffix(".code").write_text(str(code))


def _main(descriptor: int, *preload: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # this process does not wait for its children
    for name in ("pvdm.cli.steward.steward", "pvdm.steward.server", *preload):
        importlib.import_module(name)
    with socket.socket(fileno=descriptor) as control:
        while message := control.recv(_MESSAGE_MAX_BYTES):
            child = os.fork()
            if child == 0:
                control.close()
                _become(*pickle.loads(message))
            with contextlib.closing(os.fdopen(os.pidfd_open(child), "rb", closefd=True)) as process:
                socket.send_fds(control, [b"."], [process.fileno()])


def _become(function: str, arguments: tuple[Any, ...], log: str) -> None:
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        module, _, name = function.partition(":")
        getattr(importlib.import_module(module), name)(*arguments)
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]), *sys.argv[2:])
