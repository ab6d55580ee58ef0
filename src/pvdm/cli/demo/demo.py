"""`pvdm demo`: the whole path on real Spark and Iceberg, done right once and wrongly seven times."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pvdm.cli.common.options import PlaceType, json_option, seed_option
from pvdm.cli.common.screen import notice, say, say_json
from pvdm.cli.demo.text import audit_lines, begin_lines, end_lines, scene_lines
from pvdm.cli.proof.text import Line
from pvdm.errors import Code, InputError

if TYPE_CHECKING:
    from pvdm.evaluation.scenes import Scene
    from pvdm.evaluation.shop import Shop
    from pvdm.metadata.audit.report import AuditReport

ROWS: Final = 5_000
ROWS_MIN: Final = 100
ROWS_MAX: Final = 1_000_000
SEED: Final = 7


@click.command(short_help="Publish one good run on Spark, and see seven bad ones refused.")
@json_option
@seed_option(SEED)
@click.option(
    "--rows", type=click.IntRange(ROWS_MIN, ROWS_MAX), default=ROWS, show_default=True, help="Orders to make."
)
@click.option(
    "--keep",
    type=PlaceType(folder=True),
    metavar="DIR",
    help="Keep the Steward, its keys, the tables and the contracts in this new or empty folder.",
)
@click.option(
    "--store",
    type=PlaceType(),
    metavar="FILE",
    help="Tables in an object store: the tables [catalog] and [s3] of a steward.toml.",
)
def demo(*, as_json: bool, seed: int, rows: int, keep: Path | None, store: Path | None) -> None:
    """Run the main job with a Steward in this process, on real Spark and Iceberg: a clean backfill is published; then
    rows are dropped, doubled and changed, bytes swapped after their PASS, a proof replayed, main written past the
    gate, an unsigned override handed in.

    After each try it shows the error that a user gets and what a consumer sees through Spark, and at the end the audit
    of the table. A try that does not end as it is told makes the command end with 1. Needs Java 17 and pvdm[spark].

    \b
    Examples:
      pvdm demo
      pvdm demo --rows 100000 --keep demo
      pvdm demo --store store.toml
      pvdm demo --json | jq '.scenes[] | {title, outcome, code: .error.code, consumer}'
    """
    show = _unshown if as_json else _say
    with _temporary_folder() if keep is None else _kept_folder(keep) as folder:
        notice("Spark and a Steward are started; this takes about a minute")
        scenes, report = play(folder, rows=rows, seed=seed, show=show, store=store)
    if as_json:
        say_json(
            {
                "rows": rows,
                "seed": seed,
                "kept": None if keep is None else str(keep),
                "scenes": [scene.to_json() for scene in scenes],
                "audit": report.to_json(),
            }
        )
    elif keep is not None:
        say(f"everything is in {keep}; its Steward is served by `pvdm steward serve --config {_config(keep)}`")


def _config(keep: Path) -> Path:
    return keep / "steward" / "steward.toml"


Show = Callable[[Iterator[Line]], None]


def play(
    folder: Path, *, rows: int, seed: int, show: Show, store: Path | None = None
) -> tuple[list[Scene], AuditReport]:
    """Play all scenes in the folder and audit the table, each shown as soon as it is over."""
    # Only here: the Steward is slow to load, and no other command needs it.
    from pvdm.evaluation.scenes import play as scenes_of
    from pvdm.evaluation.shop import open_shop

    with open_shop(folder, rows=rows, seed=seed, store=store) as shop:
        show(begin_lines(rows))
        scenes: list[Scene] = []
        for number, scene in enumerate(scenes_of(shop), 1):
            show(scene_lines(number, scene))
            scenes.append(scene)
        report = audited(shop)
        show(audit_lines(report))
        show(end_lines(scenes))
    return scenes, report


def audited(shop: Shop) -> AuditReport:
    """The audit of the table with every live file read again, as `pvdm audit --rehash` does it, by an auditor."""
    from pvdm.cli.audit.service import ServedFiles, files_of, gather
    from pvdm.cli.common.times import now_micros
    from pvdm.cli.common.trust_roots import follow
    from pvdm.evaluation.scenes import FIRST, demo_failed
    from pvdm.evaluation.shop import DOMAIN, ORDERS
    from pvdm.metadata.audit.audit import AuditJudge, audit
    from pvdm.metadata.audit.evidence import table_document
    from pvdm.model.role import Role
    from pvdm.trust.bundle import origin_of

    with shop.steward.as_role(Role.AUDITOR, DOMAIN) as client:
        now = now_micros()
        root = follow(client.trust_root().chain, pin=shop.steward.pin, at=now)
        evidence = gather(client, ORDERS)
        lists = (snapshot.manifest_list for snapshot in table_document(evidence).snapshots)
        files = ServedFiles(client, ORDERS, frozenset(each for each in lists if each is not None))
        judge = AuditJudge(root, origin_of(root, None), now)
        report = audit(evidence, files, judge, again=files_of(client, evidence))
    walked = [each.workload_id for each in report.snapshots]
    if not report.holds or walked != [FIRST]:
        found = "holds" if report.holds else "does not hold"
        raise demo_failed("the audit is not what the demo says", f"[{FIRST!r}] holds", f"{walked} {found}")
    return report


def _say(lines: Iterator[Line]) -> None:
    for line, style in lines:
        say(line, style=style)


def _unshown(lines: Iterator[Line]) -> None:
    del lines


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        # Spark's process may still be taking files of its own away.
        with tempfile.TemporaryDirectory(prefix="pvdm-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    except OSError as error:
        raise _not_writable("the temporary folder", error) from error


@contextlib.contextmanager
def _kept_folder(keep: Path) -> Iterator[Path]:
    """The folder itself: tables name their files by full paths, so that nothing can be moved there at the end."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
        _require_empty(keep)
        yield keep.resolve()
    except OSError as error:
        raise _not_writable(str(keep), error) from error


def _require_empty(folder: Path) -> None:
    if any(folder.iterdir()):
        raise Code.FOLDER_NOT_EMPTY(f"{folder} has files in it", got="one that is in use")


def _not_writable(folder: str, error: OSError) -> InputError:
    return InputError(
        Code.FOLDER_NOT_WRITABLE,
        f"{folder} cannot be used",
        expected="a folder to write into",
        got=error.strerror or str(error),
        hint="name another folder with --keep",
    )
