"""`pvdm eval collision`: faults, truncated hashes, crafted and leaked collisions, and a failed study as exit code 3."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.cli import main
from pvdm.digest import Accumulator, Engine, Plan, reference_engine
from pvdm.errors import InputError, UnavailableError
from pvdm.evaluation import lattice, rows
from pvdm.evaluation.birthday import Birthday, birthday_study, elements_for, predict_collisions
from pvdm.evaluation.faults import Fault, fault_study
from pvdm.evaluation.lattice import (
    crafted_study,
    find_relation,
    leak_study,
    require_lattice,
    split_relation,
    write_new_collision,
)
from pvdm.model.projection import ProjectionName
from tests.support.for_each import for_each

Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class MaskedEngine:
    """The reference engine with only the bits of `mask` left in its sums. With 0 every sum is 0."""

    mask: int
    name: str = "masked"

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        return reference_engine().encode(plan, projection, batch)

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> Accumulator:
        return _MaskedAccumulator(self.mask, reference_engine().start(plan, element_keys))


@dataclass(frozen=True)
class _MaskedAccumulator:
    mask: int
    inner: Accumulator

    def update(self, batch: pa.RecordBatch) -> None:
        self.inner.update(batch)

    def totals(self) -> Mapping[ProjectionName, tuple[int, int]]:
        return {name: (count, total & self.mask) for name, (count, total) in self.inner.totals().items()}


# --- faults ---


def test_every_fault_in_every_multiset_is_caught(engine: Engine) -> None:
    study = fault_study(seed=1, multisets=60, engine=engine)
    assert (study.injected, study.caught, study.holds) == (180, 180, True)


def test_drops_and_duplicates_are_seen_by_both_projections(engine: Engine) -> None:
    tallies = {tally.fault: tally for tally in fault_study(seed=1, multisets=40, engine=engine).tallies}
    seen = [
        (tallies[fault].identity_differs, tallies[fault].content_differs) for fault in (Fault.DROP, Fault.DUPLICATE)
    ]
    assert seen == [(40, 40), (40, 40)]


def test_a_mutation_is_seen_by_identity_only_where_it_hits_a_key(engine: Engine) -> None:
    mutation = fault_study(seed=1, multisets=60, engine=engine).tallies[-1]
    assert 0 < mutation.identity_differs < mutation.content_differs == 60
    assert mutation.wrong_projection == 0


def test_a_study_with_a_digest_that_misses_every_fault_does_not_hold() -> None:
    study = fault_study(seed=1, multisets=5, engine=MaskedEngine(0))
    assert (study.caught, study.holds) == (0, False)


def test_the_same_seed_gives_the_same_study(engine: Engine) -> None:
    assert fault_study(seed=5, multisets=10, engine=engine) == fault_study(seed=5, multisets=10, engine=engine)


def test_a_mutated_row_differs_in_one_column() -> None:
    rng = random.Random(1)
    row = rows.random_row(rng)
    changed, column = rows.mutate(row, rng)
    assert [name for name in row if row[name] != changed[name]] == [column]


# --- truncated hashes ---


def exact_mean_and_variance(elements: int, bins: int) -> tuple[Fraction, Fraction]:
    """Mean and variance of the collisions, from the exact distribution of occupied bins after each element."""
    occupied = {0: Fraction(1)}
    for _ in range(elements):
        after: dict[int, Fraction] = {}
        for count, chance in occupied.items():
            after[count] = after.get(count, Fraction(0)) + chance * Fraction(count, bins)
            after[count + 1] = after.get(count + 1, Fraction(0)) + chance * Fraction(bins - count, bins)
        occupied = after
    mean = sum((elements - count) * chance for count, chance in occupied.items())
    variance = sum((elements - count - mean) ** 2 * chance for count, chance in occupied.items())
    return Fraction(mean), Fraction(variance)


@for_each(("elements", "bits"), [(1, 3), (5, 3), (20, 4), (40, 5)])
def test_the_prediction_is_the_exact_mean_and_deviation(elements: int, bits: int) -> None:
    mean, variance = exact_mean_and_variance(elements, 1 << bits)
    predicted, deviation = predict_collisions(elements, bits)
    assert predicted == pytest.approx(float(mean), rel=1e-12, abs=1e-12)
    assert deviation**2 == pytest.approx(float(variance), rel=1e-9, abs=1e-12)


def test_the_predicted_deviation_is_the_one_of_random_numbers() -> None:
    rng = random.Random(7)
    seen = [2_000 - len({rng.getrandbits(16) for _ in range(2_000)}) for _ in range(400)]
    mean, deviation = predict_collisions(2_000, 16)
    assert statistics.mean(seen) == pytest.approx(mean, abs=5 * deviation / 20)
    assert statistics.stdev(seen) == pytest.approx(deviation, rel=0.2)


@for_each(("bits", "elements"), [(12, 20_000), (16, 20_000), (20, 40_000), (24, 80_000), (28, 80_000)])
def test_tens_of_thousands_of_elements_are_hashed_at_each_width(bits: int, elements: int) -> None:
    assert elements_for(bits) == elements


def test_the_predictions_are_those_of_the_paper() -> None:
    assert [round(predict_collisions(elements_for(bits), bits)[0]) for bits in (16, 24)] == [2764, 190]


def test_collisions_at_16_bits_are_what_chance_predicts(engine: Engine) -> None:
    (found,) = birthday_study(seed=2, bits=[16], engine=engine)
    assert found.holds


def test_hashes_with_a_stuck_bit_are_not_taken_for_uniform() -> None:
    (found,) = birthday_study(seed=2, bits=[16], engine=MaskedEngine((1 << 255) - 1))
    assert not found.holds


@for_each(("observed", "inside"), [(80, False), (81, True), (100, True), (119, True), (120, False)])
def test_the_interval_is_1_96_deviations_wide(observed: int, inside: bool) -> None:
    assert Birthday(16, 1_000, observed, 100.0, 10.0).inside is inside


# --- the crafted collision ---


def encode_by_hand(payment: dict[str, Any]) -> bytes:
    """A payment's canonical bytes (spec/canonical.md): amount, payee, payment_id, each as tag, length, bytes."""
    cells = ((0x03, f"{payment['amount']:.2f}"), (0x0C, payment["payee"]), (0x02, str(payment["payment_id"])))
    return b"".join(bytes((tag, len(text.encode()))) + text.encode() for tag, text in cells)


def test_the_stored_pair_collides_without_any_code_of_ours() -> None:
    pair = lattice.load_collision()
    hashes = [
        int.from_bytes(hashlib.sha256(encode_by_hand(payment)).digest(), "big") for payment in pair.payments.to_pylist()
    ]
    left, right = (
        sum(each * times for each, times in zip(hashes, side, strict=True)) % 2**256 for side in (pair.left, pair.right)
    )
    assert left == right


def test_the_stored_multisets_differ_and_have_the_same_size() -> None:
    pair = lattice.load_collision()
    assert pair.left != pair.right
    assert sum(pair.left) == sum(pair.right) > 0


def test_the_unkeyed_sum_accepts_the_pair_and_the_keyed_digest_does_not(engine: Engine) -> None:
    study = crafted_study(seed=1, engine=engine, keys=25)
    assert (study.unkeyed_sums_equal, study.keyed_rejected, study.holds) == (True, 25, True)


def test_a_stored_pair_that_does_not_collide_fails_the_study(tmp_path: Path) -> None:
    stored = json.loads(Path(lattice.__file__).with_name("unkeyed_collision.json").read_text())
    stored["rows"][0][2] = "0.01"
    (tmp_path / "other.json").write_text(json.dumps(stored))
    study = crafted_study(seed=1, engine=reference_engine(), keys=1, path=tmp_path / "other.json")
    assert (study.unkeyed_sums_equal, study.holds) == (False, False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": {"type": "struct", "fields": []}}'])
def test_a_file_that_is_no_collision_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError):
        lattice.load_collision(tmp_path / "bad.json")


# --- lattice reduction ---


def skip_without_flint() -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; pip install 'pvdm[lattice]'")


def test_a_relation_is_balanced_and_sums_to_zero() -> None:
    skip_without_flint()
    rng = random.Random(3)
    values = [rng.getrandbits(256) for _ in range(64)]
    relation = find_relation(values)
    assert any(relation)
    assert (sum(relation), sum(z * v for z, v in zip(relation, values, strict=True)) % 2**256) == (0, 0)


def test_the_two_sides_of_a_relation_are_multiplicities() -> None:
    assert split_relation([2, -1, 0, -1]) == ((2, 0, 0, 0), (0, 1, 0, 1))


def test_leaked_contributions_break_that_key_and_no_other(engine: Engine) -> None:
    skip_without_flint()
    study = leak_study(seed=1, engine=engine)
    assert (study.same_digest_under_leaked_key, study.same_digest_under_fresh_key) == (True, False)


def test_a_pair_can_be_crafted_again(tmp_path: Path, engine: Engine) -> None:
    skip_without_flint()
    write_new_collision(tmp_path / "again.json", seed=9, engine=engine)
    assert crafted_study(seed=1, engine=engine, keys=3, path=tmp_path / "again.json").holds


def test_a_missing_lattice_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(UnavailableError) as caught:
        require_lattice()
    assert (caught.value.reason, caught.value.hint) == ("lattice_missing", "pip install 'pvdm[lattice]'")


# --- the command ---


@pytest.fixture
def few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand keys take the reference some ten seconds; the command itself is the same with ten."""
    monkeypatch.setattr("pvdm.cli.demo.evaluate.KEY_COUNT", 10)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "collision.json"


def run_study(out: Path, *options: str) -> int:
    return main(["eval", "collision", "--multisets", "20", "--bits", "16", "--out", str(out), *options])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the command prints as JSON, and what it writes, with seed 5."""
    file, printed = tmp_path_factory.mktemp("study") / "collision.json", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr("pvdm.cli.demo.evaluate.KEY_COUNT", 10)
        assert run_study(file, "--seed", "5", "--json") == 0
    return printed.getvalue(), file.read_text(encoding="utf-8")


@pytest.mark.usefixtures("few_keys")
def test_the_text_says_how_many_faults_were_caught(out: Path, capsys: Capture) -> None:
    assert run_study(out) == 0
    assert "60 of 60 caught" in capsys.readouterr().out


def test_the_file_and_the_json_are_the_same(study: tuple[str, str]) -> None:
    printed, written = study
    assert json.loads(printed) == json.loads(written)


def test_the_file_has_machine_versions_and_seed(study: tuple[str, str]) -> None:
    written = json.loads(study[1])
    assert written["seed"] == 5
    assert {"machine", "versions", "engine", "faults", "truncated", "crafted", "lattice"} <= written.keys()


def test_no_number_in_the_file_is_as_long_as_a_digest(study: tuple[str, str]) -> None:
    numbers = [int(word) for word in study[1].replace(",", " ").split() if word.isdigit()]
    assert max(numbers) < 2**64


@pytest.mark.usefixtures("few_keys")
def test_the_lattice_part_is_shown_on_request(out: Path, capsys: Capture) -> None:
    skip_without_flint()
    assert run_study(out, "--lattice") == 0
    assert "64 leaked row contributions under one key" in capsys.readouterr().out


@pytest.mark.usefixtures("few_keys")
def test_a_failed_study_is_a_failed_verification(out: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("pvdm.cli.demo.evaluate.pick_engine", lambda _name: MaskedEngine(0))
    assert run_study(out, "--json") == 3
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "collision_study_failed"


def test_a_missing_lattice_library_ends_the_command_as_unavailable(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    assert run_study(out, "--lattice") == 7
    assert "hint: pip install 'pvdm[lattice]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--bits", "8"),
        ("--bits", "x"),
        ("--bits", "16,16"),
        ("--multisets", "0"),
        ("--write-collision", "f"),
        ("--out", ""),
    ],
)
def test_bad_options_are_usage_errors(words: tuple[str, ...], out: Path, capsys: Capture) -> None:
    assert run_study(out, *words) == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("few_keys")
def test_on_a_terminal_the_study_shows_its_progress(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    run_study(out)
    parts = ("single-row faults", "hashes of 16 bits", "crafted collision")
    assert [part for part in parts if part not in terminal.getvalue()] == []


@pytest.mark.usefixtures("few_keys")
def test_without_a_terminal_the_study_shows_its_result_only(out: Path, capsys: Capture) -> None:
    run_study(out, "--engine", "reference")
    assert capsys.readouterr().err == ""


def test_a_study_reports_every_step() -> None:
    steps: list[tuple[str, int, int]] = []
    fault_study(seed=1, multisets=3, engine=reference_engine(), report=lambda *step: steps.append(step))
    assert steps == [("single-row faults", done, 3) for done in range(4)]


@pytest.mark.usefixtures("few_keys")
def test_a_result_that_cannot_be_written_is_bad_input(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert run_study(tmp_path / "file" / "collision.json", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "output_not_writable"
