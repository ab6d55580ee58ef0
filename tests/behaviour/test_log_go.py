"""Go's transparency-log packages accept our notes, tiles and proofs, and refuse them when one byte is changed."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pvdm.trust.log.export import export
from tests.support.ledger.log_storage import KEY, EcdsaSigner, MemoryStorage, entries, log_grown_to, open_log
from tests.support.services import require

MODULE = Path(__file__).parents[1] / "go" / "tlogcheck"
SIZES = [1, 2, 7, 255, 256, 300, 700, 1_031]


def go_command() -> str | None:
    found = shutil.which("go")
    usual = Path("/usr/local/go/bin/go")
    return found or (str(usual) if usual.exists() else None)


@pytest.fixture(scope="session")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = go_command()
    require(go, "Go is not installed")
    assert go is not None
    program = tmp_path_factory.mktemp("go") / "tlogcheck"
    quick = ["-gcflags=all=-N -l", "-ldflags=-w"]  # unoptimized: a machine without Go's cache compiles its library too
    build = [go, "build", "-buildvcs=false", "-mod=readonly", *quick, "-o", str(program), "."]
    built = subprocess.run(build, cwd=MODULE, capture_output=True, text=True, check=False)
    # Not a fault of the log: the module is not in the cache, and no module proxy can be reached.
    unreachable = built.returncode != 0 and "golang.org/x/mod@" in built.stderr
    require(not unreachable, "Go cannot fetch golang.org/x/mod")
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture
def question(tmp_path: Path) -> dict[str, Any]:
    """The input of the Go program: a log folder that was exported at every size, and proofs by our own code."""
    storage, log, checkpoints = log_grown_to(SIZES[:1])
    folder = tmp_path / "log"
    export(storage, folder)
    for size in SIZES[1:]:
        checkpoints.append(log.append(entries(log.size(), size)).checkpoint)
        export(storage, folder)
    size = SIZES[-1]
    inclusion = [
        {
            "index": index,
            "entry": storage.entries[index].decode(),
            "hashes": encode_hashes(log.prove_inclusion(index, size).hashes),
        }
        for index in [*range(0, size, 17), size - 1]
    ]
    consistency = [
        {
            "old_note": signed.note.decode(),
            "hashes": encode_hashes(log.prove_consistency(signed.checkpoint.size, size).hashes),
        }
        for signed in checkpoints
    ]
    return {
        "vkey": KEY.to_vkey(),
        "folder": str(folder),
        "inclusion": inclusion,
        "consistency": consistency,
    }


def encode_hashes(hashes: tuple[bytes, ...]) -> list[str]:
    return [base64.b64encode(value).decode() for value in hashes]


def ask(checker: Path, question: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([checker], input=json.dumps(question), capture_output=True, text=True, check=False)


def test_go_accepts_our_checkpoint_tiles_and_proofs(checker: Path, question: dict[str, Any]) -> None:
    answer = ask(checker, question)
    assert (answer.stdout, answer.stderr) == ("ok 1031 entries 62 inclusion 8 consistency\n", "")


def test_go_accepts_a_checkpoint_under_an_ecdsa_key(checker: Path, tmp_path: Path) -> None:
    storage = MemoryStorage()
    log = open_log(storage, EcdsaSigner(1))
    log.append(entries(0, 300))
    export(storage, tmp_path)
    asked = {"vkey": log.key.to_vkey(), "folder": str(tmp_path), "inclusion": [], "consistency": []}
    assert ask(checker, asked).stdout == "ok 300 entries 0 inclusion 0 consistency\n"
    flip(tmp_path, "checkpoint", 20)
    assert "invalid signature" in ask(checker, asked).stderr


def flip(folder: Path, place: str, at: int) -> None:
    data = bytearray((folder / place).read_bytes())
    data[at] ^= 1
    (folder / place).write_bytes(data)


def spoil_proof(question: dict[str, Any], kind: str) -> None:
    hashes = question[kind][3]["hashes"]
    hashes[0] = encode_hashes((b"\x00" * 32,))[0]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda asked: flip(Path(asked["folder"]), "checkpoint", 20), "invalid signature", id="size"),
        pytest.param(lambda asked: flip(Path(asked["folder"]), "tile/0/001", 3), "tile/0/001 differs", id="tile"),
        pytest.param(
            lambda asked: flip(Path(asked["folder"]), "tile/1/000.p/4", 3), "tile/1/000.p/4 differs", id="upper-tile"
        ),
        pytest.param(lambda asked: flip(Path(asked["folder"]), "tile/entries/001", 30), "entries: root", id="entry"),
        pytest.param(lambda asked: spoil_proof(asked, "inclusion"), "inclusion of 51", id="inclusion"),
        pytest.param(lambda asked: spoil_proof(asked, "consistency"), "consistency with 255", id="consistency"),
        pytest.param(lambda asked: asked.update(vkey=asked["vkey"][:-1] + "A"), "verifier", id="key"),
    ],
)
def test_go_refuses_what_was_changed(
    checker: Path, question: dict[str, Any], spoil: Callable[[dict[str, Any]], None], reason: str
) -> None:
    spoil(question)
    answer = ask(checker, question)
    assert answer.returncode == 1
    assert reason in answer.stderr
