"""Served Stewards as separate processes: forked quickly, armed at a fault point, ended by SIGKILL."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

from pvdm.ledger.clock import wall_micros
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.notary import open_notary
from pvdm.steward.server import start
from tests.support import fault
from tools.proof_kit import NOW

ROOT = Path(__file__).parents[3]
ANSWER_SECONDS = 60
_MESSAGE_MAX_BYTES = 65_536


class StewardProcess:
    """A Steward in another process, for the test that started it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        control.settimeout(ANSWER_SECONDS)
        self._lines = control.makefile("r")
        self.url, process = self._line().split()
        self.process = int(process)

    def arm(self, point: str, passes: int = 0) -> None:
        """Let the process kill itself with SIGKILL when it reaches this point, after `passes` times without effect."""
        self._control.sendall(f"{point} {passes}\n".encode())
        assert self._line() == "armed"

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        """Wait until the process has ended: the operating system then closes its end of the socket."""
        assert self._lines.read() == ""

    def close(self) -> None:
        """End the process in order, if it still runs: its control socket is closed, and it stops serving."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            self._lines.read()
        self._lines.close()
        self._control.close()

    def _line(self) -> str:
        line = self._lines.readline()
        assert line.endswith("\n"), "the Steward did not start; its error is above"
        return line.strip()


class Starter:
    """A process that has loaded every module, and forks a Steward when it is asked."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.support.catalog.processes", str(there.fileno())]
        with there:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[there.fileno()])
        self._control = here

    @contextlib.contextmanager
    def serving(self, config: StewardConfig) -> Iterator[StewardProcess]:
        """A Steward with this configuration. Its clock starts at the tests' fixed time, and then runs."""
        here, there = socket.socketpair()
        with there:
            message = pickle.dumps((config, NOW - wall_micros()))
            socket.send_fds(self._control, [message], [there.fileno()])
            assert self._control.recv(1) == b".", "the starter did not fork"
        with contextlib.closing(StewardProcess(here)) as process:
            yield process

    def close(self) -> None:
        self._control.close()
        self._process.wait(ANSWER_SECONDS)


class RestartedSteward(threading.Thread):
    """A thread that kills a Steward `kills` times, at random moments, and starts it again each time."""

    def __init__(self, starter: Starter, config: StewardConfig, *, kills: int) -> None:
        super().__init__(daemon=True)
        self._starter, self._config, self._left = starter, config, kills
        self._url: str | None = None
        self._up, self._over = threading.Event(), threading.Event()
        self.kills = 0

    def run(self) -> None:
        random = Random(self._left)
        while not self._over.is_set():
            with self._starter.serving(self._config) as serving:
                self._url = serving.url
                self._up.set()
                self._over.wait(random.uniform(0.1, 0.6) if self.kills < self._left else None)
                if not self._over.is_set():
                    serving.kill()
                    self.kills += 1

    def urls(self) -> list[str]:
        """The URL of the Steward that was started last. It may have been killed since."""
        self._up.wait(ANSWER_SECONDS)
        assert self._url is not None
        return [self._url]

    def stop(self) -> None:
        self._over.set()
        self.join()


@contextlib.contextmanager
def starter() -> Iterator[Starter]:
    """A starter that is closed afterwards."""
    with contextlib.closing(Starter()) as process:
        yield process


def main(descriptor: int) -> None:
    """Fork a Steward for each message, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # this process does not wait for the Stewards
    importlib.import_module("tests.support.servers.warm")
    gc.freeze()  # a search for garbage would copy every page that the children share
    with socket.socket(fileno=descriptor) as control:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_MAX_BYTES, 1)
            if not message:
                return
            with socket.socket(fileno=descriptors[0]) as steward_control:
                if os.fork() == 0:
                    control.close()
                    _serve(message, steward_control)
            control.sendall(b".")


def _serve(message: bytes, control: socket.socket) -> None:
    """Serve until the test closes the socket, and arm the points that it names meanwhile."""
    try:
        config, offset = pickle.loads(message)
        with (
            contextlib.closing(open_notary(config, wall=lambda: wall_micros() + offset)) as notary,
            start(notary) as server,
            control.makefile("r") as lines,
        ):
            control.sendall(f"{server.url} {os.getpid()}\n".encode())
            for line in lines:
                point, passes = line.split()
                fault.arm(point, fault.Call(_die), passes=int(passes))
                control.sendall(b"armed\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # nothing more happens here until the signal arrives


if __name__ == "__main__":
    main(int(sys.argv[1]))
