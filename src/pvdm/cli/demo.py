"""`pvdm demo`: what a digest sees that an exit code does not."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from pvdm.cli.options import PlaceType, engine_option, json_option, pick_engine, seed_option
from pvdm.cli.screen import notice, say, say_json
from pvdm.digest import Engine
from pvdm.errors import InputError, VerificationError
from pvdm.evaluation.scenes import DROPPED_ROWS, Scene, doubled_rows, play

ROWS_KERNEL: Final = 200_000
ROWS_REFERENCE: Final = 2_000
ROWS_MIN: Final = 10
ROWS_MAX: Final = 2_000_000
SEED: Final = 7

NEXT: Final = "`pvdm eval collision` measures how far such a digest can be trusted"


@click.command(short_help="Lose, double and change rows, and see what the digest says.")
@json_option
@seed_option(SEED)
@click.option(
    "--rows",
    type=click.IntRange(ROWS_MIN, ROWS_MAX),
    help=f"Orders to make.  [default: {ROWS_KERNEL}, or {ROWS_REFERENCE} without the kernel]",
)
@click.option(
    "--keep",
    type=PlaceType(folder=True),
    metavar="DIR",
    help="Keep the Parquet files in this new or empty folder.",
)
@engine_option
def demo(*, as_json: bool, seed: int, rows: int | None, keep: Path | None, engine_name: str) -> None:
    """Write a file of orders well once and wrongly three times, and let the digests judge.

    Every write ends without an error. Only equal or differs is shown, never a digest: a digest is a secret.

    \b
    Examples:
      pvdm demo
      pvdm demo --rows 5000 --keep orders
      pvdm demo --json | jq '.scenes[] | {title, verdict, class}'
    """
    engine = pick_engine(engine_name)
    count = rows if rows is not None else _default_rows(engine)
    with _temporary_folder() if keep is None else _kept_folder(keep) as folder:
        scenes = play(folder, rows=count, seed=seed, engine=engine)
    _require_expected(scenes, count)
    if as_json:
        say_json(_to_json(scenes, rows=count, seed=seed, engine=engine, keep=keep))
    else:
        _tell(scenes, rows=count, keep=keep)


def _default_rows(engine: Engine) -> int:
    if engine.name == "kernel":
        return ROWS_KERNEL
    notice(f"the reference is slow: the demo makes {ROWS_REFERENCE:,} orders instead of {ROWS_KERNEL:,} (--rows)")
    return ROWS_REFERENCE


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="pvdm-demo-") as folder:
            yield Path(folder)
    except OSError as error:
        raise _not_writable("the temporary folder", error) from error


@contextlib.contextmanager
def _kept_folder(keep: Path) -> Iterator[Path]:
    """A folder whose files move to `keep` when all are there; an end before that leaves no file and no new folder."""
    missing = [folder for folder in (keep, *keep.parents) if not folder.exists()]
    try:
        keep.mkdir(parents=True, exist_ok=True)
        _require_empty(keep)
        with tempfile.TemporaryDirectory(prefix=".pvdm-demo-", dir=keep) as folder:
            yield Path(folder)
            for file in sorted(Path(folder).iterdir()):
                file.rename(keep / file.name)
    except BaseException as error:
        for made in missing:
            with contextlib.suppress(OSError):
                made.rmdir()
        if isinstance(error, OSError):
            raise _not_writable(str(keep), error) from error
        raise


def _require_empty(folder: Path) -> None:
    if any(folder.iterdir()):
        raise InputError(
            "folder_not_empty",
            f"{folder} has files in it",
            expected="a new or empty folder",
            got="one that is in use",
            hint="name another folder with --keep",
        )


def _not_writable(folder: str, error: OSError) -> InputError:
    return InputError(
        "folder_not_writable",
        f"{folder} cannot be used",
        expected="a folder to write into",
        got=error.strerror or str(error),
        hint="name another folder with --keep",
    )


def _require_expected(scenes: list[Scene], rows: int) -> None:
    """A demo that shows something else than it says is a failed verification."""
    expected = {
        "relaid": (rows, True, True),
        "dropped": (rows - DROPPED_ROWS, False, False),
        "doubled": (rows + doubled_rows(rows), False, False),
        "changed": (rows, True, False),
    }
    for scene in scenes:
        if (scene.rows_written, scene.identity_equal, scene.content_equal) != expected[scene.name]:
            raise VerificationError(
                "demo_failed",
                f"the digests do not tell the truth about: {scene.title}",
                expected=_compared(*expected[scene.name]),
                got=_compared(scene.rows_written, scene.identity_equal, scene.content_equal),
            )


def _compared(rows: int, identity_equal: bool, content_equal: bool) -> str:
    words = {True: "equal", False: "differs"}
    return f"{rows:,} rows, identity {words[identity_equal]}, content {words[content_equal]}"


def _to_json(scenes: list[Scene], *, rows: int, seed: int, engine: Engine, keep: Path | None) -> dict[str, object]:
    return {
        "rows": rows,
        "seed": seed,
        "engine": engine.name,
        "kept": None if keep is None else str(keep),
        "scenes": [{**scene.to_json(), "meaning": _meaning(scene)} for scene in scenes],
        "hint": NEXT,
    }


def _tell(scenes: list[Scene], *, rows: int, keep: Path | None) -> None:
    say(f"intended: {rows:,} orders, digested by their key (identity) and by every column (content)")
    for number, scene in enumerate(scenes, 1):
        passed = scene.failure is None
        say()
        say(f"{number}. {scene.title}", style="bold")
        say(f"   {_compared(scene.rows_written, scene.identity_equal, scene.content_equal)}")
        verdict = "PASS" if passed else f"FAIL ({scene.failure})"
        say(f"   {verdict}: {_meaning(scene)}", style="green" if passed else "red")
    say()
    say("all four writes ended without an error; an exit code says nothing about the rows")
    if keep is not None:
        say(f"the files are in {keep}")
    say(f"hint: {NEXT}")


def _meaning(scene: Scene) -> str:
    difference = abs(scene.rows_written - scene.rows_intended)
    match scene.failure:
        case None:
            return "the same rows, each as often as intended; order and file layout do not matter"
        case "missing":
            return f"{difference:,} intended rows were not written"
        case "added":
            return f"{difference:,} rows more than intended, new or doubled"
        case _:
            return "every intended order is there, but a value in it is another; counting rows would not have shown it"
