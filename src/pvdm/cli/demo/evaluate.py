"""`pvdm eval`: runs the experiments, prints their figures, and writes them to a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.options import engine_option, number_option, path_option, pick_engine, seed_option
from pvdm.cli.common.screen import progress_bars, say_result
from pvdm.errors import Code
from pvdm.evaluation import birthday, collision
from pvdm.evaluation.lattice import KEY_COUNT, require_lattice, write_new_collision
from pvdm.evaluation.record import require_writable, write_json

OUT: Final = Path("build/eval/collision.json")
MULTISETS_MAX: Final = 1_000_000


@command_group("eval")
def evaluate() -> None:
    """Run the paper's experiments, seeded; each writes its figures as JSON.

    \b
    Examples:
      pvdm eval collision
      pvdm eval collision --lattice --json
    """


def _parse_widths(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """Widths in bits, separated by commas."""
    try:
        widths = tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"expected whole numbers separated by commas, got {value!r}") from None
    for width in widths:
        if not birthday.BITS_MIN <= width <= birthday.BITS_MAX:
            raise click.BadParameter(f"expected {birthday.BITS_MIN} to {birthday.BITS_MAX} bits, got {width}")
    if len(set(widths)) != len(widths):
        raise click.BadParameter(f"expected each width once, got {value}")
    return widths


@evaluate.command("collision", short_help="Can a wrong write keep its digest?")
@seed_option(collision.SEED)
@number_option(
    "--multisets",
    collision.MULTISETS,
    least=1,
    most=MULTISETS_MAX,
    help_text="Random multisets; each gets one drop, one duplicate and one mutation.",
)
@click.option(
    "--bits",
    callback=_parse_widths,
    metavar="BITS",
    default=",".join(map(str, collision.BITS)),
    show_default=True,
    help=f"Widths of the truncated hashes: {birthday.BITS_MIN} to {birthday.BITS_MAX}, separated by commas, each once.",
)
@click.option("--lattice", is_flag=True, help="Also attack with leaked row contributions (needs pvdm[lattice]).")
@path_option("--write-collision", help="With --lattice: make a new unkeyed collision, write it here and use it.")
@path_option("--out", default=OUT, show_default=True, help="Where the figures go.")
@engine_option
def evaluate_collision(
    *,
    seed: int,
    multisets: int,
    bits: tuple[int, ...],
    lattice: bool,
    write_collision: Path | None,
    out: Path,
    engine_name: str,
) -> None:
    """Measure whether a wrong write can keep its digest (the paper's section 7.6).

    \b
    1. single-row faults in random multisets, each digested again
    2. truncated hashes against the birthday prediction
    3. a crafted collision that an unkeyed sum accepts and the keyed digest rejects
    4. with --lattice: an attack with leaked row contributions (what each row adds to the digest's sum)

    Takes about ten seconds with the kernel and under a minute with the reference. A terminal shows the progress.

    \b
    Examples:
      pvdm eval collision
      pvdm eval collision --lattice
      pvdm eval collision --multisets 100 --bits 16 --engine reference
    """
    if write_collision is not None and not lattice:
        raise click.UsageError("--write-collision needs --lattice")
    if lattice:
        require_lattice()
    require_writable(out)
    engine = pick_engine(engine_name)
    with progress_bars() as report:
        if write_collision is not None:
            require_writable(write_collision)
            write_new_collision(write_collision, seed=seed, engine=engine)
        study = collision.collision_study(
            engine=engine,
            seed=seed,
            multisets=multisets,
            bits=bits,
            keys=KEY_COUNT,
            lattice=lattice,
            collision_file=write_collision,
            report=report,
        )
    record = study.to_json()
    write_json(out, record)
    if failures := study.failures():
        raise Code.COLLISION_STUDY_FAILED(got="; ".join(failures), figures=str(out))
    say_result(record, [*_lines(study), "", f"figures: {out}"])


def _lines(study: collision.CollisionStudy) -> Iterator[str]:
    faults, crafted, leak = study.faults, study.crafted, study.leak
    yield f"collision study, seed {study.seed}, engine {study.engine}, {study.seconds:.1f} s"
    yield ""
    yield f"1. single-row faults in {faults.multisets:,} random multisets ({faults.rows:,} rows)"
    yield f"   {faults.caught:,} of {faults.injected:,} caught, by the sums alone, without looking at row counts"
    yield f"   {'':<10}{'injected':>10}{'caught':>10}{'identity differs':>19}{'content differs':>18}"
    for tally in faults.tallies:
        yield (
            f"   {tally.fault.value:<10}{tally.injected:>10,}{tally.caught:>10,}"
            f"{tally.identity_differs:>19,}{tally.content_differs:>18,}"
        )
    yield "   a mutation changes identity only where it hits a key column"
    yield ""
    yield "2. truncated element hashes: elements minus distinct values, against n - 2^b (1 - (1 - 2^-b)^n)"
    yield f"   {'bits':>4}{'elements':>11}{'observed':>11}{'expected':>11}   95 % interval"
    for width in study.birthdays:
        low, high = width.interval
        position = "inside" if width.inside else "outside, as one run in twenty is"
        figures = f"{width.bits:>4}{width.elements:>11,}{width.observed:>11,}{width.expected:>11,.1f}"
        yield f"   {figures}   {low:,.1f} to {high:,.1f}: {position}"
    yield ""
    yield f"3. crafted collision: two different multisets of {crafted.rows_in_each_multiset:,} payments"
    yield "   unkeyed sum of SHA-256: equal, so the wrong one is accepted"
    yield f"   keyed digest: differs under {crafted.keyed_rejected:,} of {crafted.keys:,} keys, so it is rejected"
    if leak is None:
        return
    yield ""
    yield f"4. {leak.leaked_contributions} leaked row contributions under one key"
    multisets = f"two different multisets of {leak.rows_in_each_multiset:,} rows with one digest"
    yield f"   {multisets}, found in {leak.seconds:.2f} s"
    yield "   under a fresh attempt key the same two differ"
    yield "   so a digest never leaves the Steward, and every attempt has a key of its own"
