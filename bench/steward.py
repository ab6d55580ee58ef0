"""Measures the Steward's speed: nonces, proofs (signed, recorded, checked), the log, inclusion proofs, the service."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import text

from bench import steward_http, steward_ledger, steward_log, steward_proofs
from bench.steward_log import Growth, InclusionFigure
from bench.steward_measure import Figure, Ratio, measure
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from pvdm.ledger import Ledger
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.log.note import NoteKey
from tests.support.ledger.databases import ledger_at
from tests.support.steward.notary import stand_at

ORIGIN = "log.example/bench"
SEED = 0
PACKAGES = ("cryptography", "SQLAlchemy", "psycopg", "fastapi", "uvicorn", "python-pkcs11")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each repetition does."""

    repetitions: int
    syncs: int = 500
    reservations: int = 150
    signed_small: int = 300
    signed_big: int = 20
    checked_small: int = 200
    checked_big: int = 10
    recorded: int = 40
    appended_singles: int = 100
    appended_batches: int = 8
    history: int = 65_536
    log_sizes: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    proofs: int = 200
    requests: int = 100


TINY = Sizes(
    repetitions=2,
    syncs=8,
    reservations=8,
    signed_small=2,
    signed_big=1,
    checked_small=2,
    checked_big=1,
    recorded=4,
    appended_singles=2,
    appended_batches=1,
    history=16,
    log_sizes=(16, 64, 512),
    proofs=5,
    requests=4,
)


class OwnSigner:
    """A log key for this run only."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        der = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.public = PublicKey(Algorithm.ED25519, der)

    def sign(self, message: bytes, /) -> bytes:
        """The signature over these bytes."""
        return self._key.sign(message)


@dataclass(frozen=True, slots=True)
class Measurements:
    """The results of one run."""

    figures: Mapping[str, Figure]
    inclusion: Sequence[InclusionFigure]
    build_seconds: float
    left_out: Mapping[str, str]
    load: tuple[float, float]
    versions: Mapping[str, str | None]

    @property
    def growth(self) -> list[Growth]:
        """How the time of an inclusion proof grew from size to size."""
        return steward_log.growth(self.inclusion)


def measure_all(sizes: Sizes, folder: Path) -> Measurements:
    """Measure every figure in this folder; all cases take turns, so that a busy machine slows both sides of a ratio."""
    random, left_out, signer = Random(SEED), dict[str, str](), OwnSigner()
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        ledgers = stack.enter_context(steward_ledger.ledgers(folder, left_out))
        log = stack.enter_context(ledger_at(f"sqlite:///{folder}/appends.db"))
        homes = stack.enter_context(steward_proofs.key_homes(folder, left_out))
        stand = stack.enter_context(stand_at(folder / "steward"))
        service = stack.enter_context(steward_http.service(folder / "service", left_out))
        steward_proofs.fill(stand, sizes.history)
        cases = [steward_ledger.sync_case(folder, sizes.syncs)]
        for ledger in ledgers.values():
            cases += steward_ledger.reservation_cases(ledger, sizes.reservations, random)
        cases += steward_proofs.signing_cases(homes, sizes.signed_small, sizes.signed_big)
        cases += steward_proofs.checking_cases(stand, sizes.checked_small, sizes.checked_big)
        cases += steward_proofs.recording_cases(stand, sizes.recorded)
        cases += steward_ledger.append_cases(log, ORIGIN, signer, sizes.appended_singles, sizes.appended_batches)
        if service is not None:
            cases += steward_http.request_cases(service, sizes.requests, random)
        figures, software = measure(cases, sizes.repetitions), _versions(ledgers)
    with steward_log.open_logs(folder, sizes.log_sizes, ORIGIN, signer) as (logs, build_seconds):
        inclusion = steward_log.measure_inclusion(
            logs,
            repetitions=sizes.repetitions,
            samples=sizes.proofs,
            random=random,
            key=NoteKey(ORIGIN, signer.public.der),
        )
    return Measurements(figures, inclusion, build_seconds, left_out, (load, os.getloadavg()[0]), software)


def record(found: Measurements, sizes: Sizes, file_system: str) -> dict[str, object]:
    """The record that is written as JSON."""
    return {
        "figures": {name: figure.to_json() for name, figure in found.figures.items()},
        "ratios": {name: asdict(ratio) for name, ratio in ratios(found.figures).items()},
        "inclusion": [figure.to_json() for figure in found.inclusion],
        "growth": [growth.to_json() for growth in found.growth],
        "log_build_seconds": found.build_seconds,
        "left_out": dict(found.left_out),
        "seed": SEED,
        "repetitions": sizes.repetitions,
        "sizes": asdict(sizes),
        "file_system": file_system,
        "load_before_and_after": list(found.load),
        "machine": machine(),
        "versions": dict(found.versions),
    }


def ratios(figures: Mapping[str, Figure]) -> dict[str, Ratio]:
    """Ratios of two rates of one repetition, if both were measured."""
    wanted = {
        "syncs_in_the_time_of_a_reservation_sqlite": ("disk_syncs", "reservations_sqlite_1"),
        "eight_threads_over_one_reservations_sqlite": ("reservations_sqlite_8", "reservations_sqlite_1"),
        "eight_threads_over_one_reservations_postgresql": ("reservations_postgresql_8", "reservations_postgresql_1"),
        "postgresql_over_sqlite_reservations_8": ("reservations_postgresql_8", "reservations_sqlite_8"),
        "batch_over_single_log_entries": (
            f"log_entries_batch_{steward_ledger.BATCH_ENTRIES}",
            "log_entries_single",
        ),
        "bare_signatures_over_signed_proofs": ("bare_ed25519_signatures", "signed_file_ed25519"),
        "p256_over_ed25519_signed_pkcs11": ("signed_pkcs11_p256", "signed_pkcs11_ed25519"),
        "small_over_big_proofs_checked": (
            f"checked_{steward_proofs.SMALL_FILES}_files",
            f"checked_{steward_proofs.BIG_FILES}_files",
        ),
        "syncs_in_the_time_of_a_recorded_proof": ("disk_syncs", "recorded_1"),
        "signed_over_recorded": ("signed_file_ed25519", "recorded_1"),
        "eight_threads_over_one_recorded": ("recorded_8", "recorded_1"),
        "eight_connections_over_one_get": ("http_get_log_checkpoint_8", "http_get_log_checkpoint_1"),
        "eight_connections_over_one_challenge": ("http_post_challenge_8", "http_post_challenge_1"),
    }
    return {
        name: Ratio.of(figures[over], figures[under])
        for name, (over, under) in wanted.items()
        if over in figures and under in figures
    }


def _versions(ledgers: Mapping[str, Ledger]) -> dict[str, str | None]:
    found = versions() | {"sqlite": sqlite3.sqlite_version, "postgresql": None}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    if "postgresql" in ledgers:
        with ledgers["postgresql"].read() as unit:
            found["postgresql"] = str(unit.execute(text("SHOW server_version")).scalar_one())
    return found


def show(found: Measurements, written: Mapping[str, object]) -> None:
    """Print the figures as text."""
    print(f"median of {written['repetitions']} repetitions in turn, smallest and largest in brackets\n")
    print(f"{'':<32} {'a second':>10}  {'':<20} {'ms each':>9}  processor")
    for name, figure in found.figures.items():
        spread = f"[{figure.per_second_min:,.0f} - {figure.per_second_max:,.0f}]"
        each = 1e3 / figure.per_second
        print(f"{name:<32} {figure.per_second:>10,.0f}  {spread:<20} {each:>9.3f}  {figure.processor_share:>8.0%}")
    print("\n(ms each: wall time over operations. processor: of one core, this process only, without its servers.)")
    for name, reason in found.left_out.items():
        print(f"left out: {name}: {reason}")
    print()
    for name, ratio in ratios(found.figures).items():
        print(f"{name:<48} {ratio.median:>8.2f}  [{ratio.least:.2f} - {ratio.most:.2f}]")
    show_inclusion(found)
    for name in ("file_system", "load_before_and_after", "machine", "versions", "seed", "sizes"):
        print(f"{name}: {json.dumps(written[name])}")


def show_inclusion(found: Measurements) -> None:
    """Print the times of inclusion proofs, and whether they grow no faster than the logarithm of the log's size."""
    print(f"\ninclusion proofs; the largest log was built in {found.build_seconds:.0f} s\n")
    for figure in found.inclusion:
        spread = f"[{figure.median_micros_min:,.0f} - {figure.median_micros_max:,.0f}]"
        print(
            f"{figure.size:>11,} entries  median {figure.median_micros:>7,.0f} us {spread:<17}"
            f" p99 {figure.p99_micros:>7,.0f} us  of {figure.samples}"
        )
    print()
    for growth in found.growth:
        verdict = "no faster than the logarithm" if growth.holds else "FASTER THAN THE LOGARITHM"
        print(
            f"{growth.smaller:>11,} to {growth.larger:<9,}  time x {growth.time_ratio:.2f},"
            f" log2 x {growth.logarithm_ratio:.2f}: {growth.over_logarithm:.2f}, {verdict}"
        )
    print()


def report(sizes: Sizes, out: Path) -> None:
    """Measure, then print and write the figures."""
    require_writable(out)
    with tempfile.TemporaryDirectory(prefix="steward-", dir=out.parent) as name:
        found = measure_all(sizes, Path(name))
        written = record(found, sizes, steward_ledger.filesystem(Path(name)))
    write_json(out, written)
    show(found, written)
    print(f"written to {out}")


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Ledgers and logs are made beside the result, on its disk, and removed again (1 GB at most).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench/steward.json"), help="where the figures go")
    parser.add_argument("--repetitions", type=int, default=5, help="how often each case is measured, all in turn")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, to test whether the benchmark runs")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        steward_http.serve(options.serve)
    else:
        report(TINY if options.tiny else Sizes(repetitions=options.repetitions), options.out)


if __name__ == "__main__":
    main()
