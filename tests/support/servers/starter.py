"""A process with all modules loaded that forks Stewards, producers and commands, so that they start at once."""

from __future__ import annotations

import contextlib
import ctypes
import gc
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
    """A forked process, known by a descriptor (pidfd): a reused process id cannot get its signals."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, number: signal.Signals) -> None:
        """Send the signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, number)

    def has_ended(self, seconds: float = 0) -> bool:
        """Whether the process has ended; waits so many seconds for its end."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.send(signal.SIGKILL)
        if not self.has_ended(_END_SECONDS):
            raise AssertionError("a process survives SIGKILL")


class CommandResult(NamedTuple):
    """Exit code and output of a command. The code is None if the command did not end in time."""

    code: int | None
    out: str

    @property
    def json(self) -> Any:
        """The JSON document that the command printed."""
        return json.loads(self.out)


class Starter:
    """A process that forks others, each of which calls one function. The test sends it requests over a socket."""

    def __init__(self, folder: Path, *preload: str) -> None:
        """Start the process. `preload` names modules to load, besides those of the command line and the Steward."""
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
        """Start a process that calls `module:function`. Its output is appended to `log`."""
        self._control.sendall(pickle.dumps((function, arguments, str(log))))
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        return Process(descriptors[0])

    def run_command(self, *words: object, env: dict[str, str], seconds: float = 120) -> CommandResult:
        """Run a command of `pvdm` in a new process. It is killed if it does not end within `seconds`."""
        self._commands += 1
        out = self._folder / f"command-{self._commands}"
        arguments = [str(word) for word in words]
        process = self.start("tests.support.servers.starter:run_command", arguments, env, str(out), log=out)
        if not process.has_ended(seconds):
            process.kill()
            late = f"{' '.join(arguments)}: no end within {seconds} seconds: {out.read_text()[-2000:]}"
            return CommandResult(None, late)
        return CommandResult(int(out.with_suffix(".code").read_text()), out.read_text())

    def close(self) -> None:
        """End the starter. The kernel then kills every process that it has forked (PR_SET_PDEATHSIG)."""
        self._control.close()
        self._process.wait(_END_SECONDS)


@contextlib.contextmanager
def running_starter(folder: Path, *preload: str) -> Iterator[Starter]:
    """Run a starter; it is ended afterwards."""
    with contextlib.closing(Starter(folder, *preload)) as starter:
        yield starter


def serve(config: str) -> None:
    """Run `pvdm steward serve` in this process."""
    from pvdm.cli import main

    main(["steward", "serve", "--config", config])


def wait_for_address(process: Process, log: Path) -> str:
    """Wait until a Steward's log names the address that it serves; returns the address. Raises if the process ends."""
    while not process.has_ended(0.02):
        for line in log.read_text("utf-8").splitlines() if log.exists() else []:
            with contextlib.suppress(json.JSONDecodeError, KeyError):
                return str(json.loads(line)["address"])
    raise AssertionError(log.read_text("utf-8"))


def run_command(words: list[str], env: dict[str, str], out: str) -> None:
    """Run a command of `pvdm` in this process, and write its exit code to a file beside its output."""
    from pvdm.cli import main

    os.environ.update(env)
    code = main(words)
    sys.stdout.flush()
    Path(out).with_suffix(".code").write_text(str(code))


def _main(descriptor: int, *preload: str) -> None:
    """Fork a process for each request on the socket, and send its pidfd back."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # this process does not wait for its children
    for name in ("pvdm.cli.steward.steward", "pvdm.steward.server", *preload):
        importlib.import_module(name)
    for name in ("pandas", "pvdm_kernel"):  # PyArrow and the Steward import them at their first use, if they are there
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # a search for garbage would copy every page that the children share
    with socket.socket(fileno=descriptor) as control:
        while message := control.recv(_MESSAGE_MAX_BYTES):
            known, tell = os.pipe()  # the child begins when its descriptor is open: of an ended child there is none
            child = os.fork()
            if child == 0:
                control.close()
                os.close(tell)
                os.read(known, 1)
                os.close(known)
                _call_and_exit(*pickle.loads(message))
            os.close(known)
            with contextlib.closing(os.fdopen(os.pidfd_open(child), "rb", closefd=True)) as process:
                os.close(tell)
                socket.send_fds(control, [b"."], [process.fileno()])


def _call_and_exit(function: str, arguments: tuple[Any, ...], log: str) -> None:
    """Call the function in the forked process, with output to the log, and end the process."""
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
