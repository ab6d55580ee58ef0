"""Verification at the Steward: verdicts, the records of them, and the states of attempts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import parse_location
from pvdm.ledger import Unit
from pvdm.ledger.record import proofs, shared_settings
from pvdm.ledger.work import attempts, nonces, verified
from pvdm.model import canonical_json
from pvdm.model.role import Role
from pvdm.model.statements.core import ProofCore
from pvdm.model.states import AttemptState, HandleState
from pvdm.steward.pipeline.proposals import read_verified
from pvdm.steward.work.opened import decode_refusal
from pvdm.trust.keys.context import AttemptContext
from pvdm.verify.fetch import Fetched, Files, HashedFile
from tests.support import fault
from tests.support.verify.attempts import RAW, ROWS, SALES, Bench, Row, bench_at, with_changed_row, write

pytest.importorskip("pvdm_kernel")


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One Steward for tests whose attempts do not affect each other; each has its own workload id."""
    with bench_at(tmp_path_factory.mktemp("verify"), shown=ROWS[:3]) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path) as made:
        yield made


def test_intended_rows_pass_and_wait_for_the_gate(shared_bench: Bench) -> None:
    attempt, paths = shared_bench.staged(ROWS[:60], ROWS[60:], workload_id="passes")
    core = shared_bench.verify(attempt)
    assert core.verdict.passed
    assert (core.rows.intent, core.rows.staged) == (100, 100)
    assert [each.staged_path for each in core.files.added] == [f"file://{path}" for path in paths]
    assert [each.published_path for each in core.files.added] == [each.staged_path for each in core.files.added]
    assert core.target.base_snapshot_id == shared_bench.state().metadata.current_snapshot_id
    assert str(core.staged.snapshot_id) == attempt.staged_snapshot_id
    assert shared_bench.now(attempt).state is AttemptState.COMMITTING


class PairedFiles(Files):
    """Gives out a file only while another thread waits for one too."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2, timeout=20)

    def fetch_frozen(self, frozen: HashedFile) -> Fetched:
        self._both.wait()
        return super().fetch_frozen(frozen)


def test_a_staged_file_and_one_of_the_source_are_read_at_the_same_time(shared_bench: Bench) -> None:
    attempt, _ = shared_bench.staged(ROWS, workload_id="side-by-side")
    job = shared_bench.verification.load_job(attempt.attempt_id)
    assert len(job.source.scan.files) == 1
    shared_bench.verifying(files=PairedFiles()).verify(attempt.attempt_id)
    assert shared_bench.now(attempt).state is AttemptState.COMMITTING


def test_the_verified_manifest_has_observed_facts_and_not_the_producers(shared_bench: Bench) -> None:
    attempt, _ = shared_bench.staged(ROWS, workload_id="facts")
    core = shared_bench.verify(attempt)
    record = shared_bench.record(attempt)
    (file,) = read_verified(shared_bench.vault, record)
    assert (file.file_path, file.file_size_in_bytes) == (
        core.files.added[0].published_path,
        core.files.added[0].published_size_bytes,
    )
    assert file.record_count == 100
    assert file.value_counts is not None  # the staged entry had none
    assert (record.files, record.rows, record.findings) == (1, 100, ())


CLASSES: list[tuple[str, Sequence[Sequence[Row]], tuple[str, ...]]] = [
    ("missing", [ROWS[:94]], ("missing",)),
    ("nothing", [], ("missing",)),
    ("added", [[*ROWS, (1_000, "new", None)]], ("added",)),
    ("one-twice", [[*ROWS, ROWS[7]]], ("duplicated",)),
    ("twice", [ROWS, ROWS], ("duplicated",)),
    ("three-times", [ROWS, [*ROWS, *ROWS]], ("duplicated",)),
    ("amount", [with_changed_row(ROWS, 5, amount=17.0)], ("modified",)),
    ("key", [with_changed_row(ROWS, 5, id=500)], ("added", "missing")),
    (
        "everything",
        [[*with_changed_row(ROWS[:90], 5, amount=17.0), ROWS[7], (1_000, "new", None)]],
        ("added", "duplicated", "missing", "modified"),
    ),
    ("replaced", [[*ROWS[:99], (777, "other", None)]], ("added", "missing")),
]


@pytest.mark.parametrize(("name", "parts", "classes"), CLASSES, ids=[name for name, _, _ in CLASSES])
def test_each_failure_has_every_class_of_its_rows(
    shared_bench: Bench, name: str, parts: Sequence[Sequence[Row]], classes: tuple[str, ...]
) -> None:
    attempt, _ = shared_bench.staged(*parts, workload_id=f"class-{name}")
    assert shared_bench.classes(attempt) == classes
    assert shared_bench.now(attempt).state is AttemptState.VERIFICATION_FAILED


def with_facts(**facts: Any) -> Callable[[DataFile], DataFile]:
    return lambda file: replace(file, **facts)


LIES: list[tuple[str, Callable[[DataFile], DataFile], str]] = [
    ("records", with_facts(record_count=99), "record_count_lies"),
    ("size", lambda file: replace(file, file_size_in_bytes=file.file_size_in_bytes // 2), "file_size_lies"),
    ("format", with_facts(file_format="ORC"), "file_format_other"),
    ("elsewhere", with_facts(file_path="file:///etc/hosts"), "file_outside_prefix"),
    ("gone", lambda file: replace(file, file_path=f"{file.file_path}.gone"), "file_missing"),
]


@pytest.mark.parametrize(("name", "change", "code"), LIES, ids=[name for name, _, _ in LIES])
def test_a_wrong_fact_about_a_file_fails_and_its_finding_is_stored(
    shared_bench: Bench, name: str, change: Callable[[DataFile], DataFile], code: str
) -> None:
    attempt, _ = shared_bench.staged(ROWS, workload_id=f"lie-{name}", change=change)
    core = shared_bench.verify(attempt)
    assert not core.verdict.passed
    assert code in shared_bench.codes(attempt)
    (found,) = [each for each in shared_bench.record(attempt).findings if each.code == code]
    assert found.expected
    assert found.got


def test_a_chunk_without_rows_passes_with_nothing_staged(tmp_path: Path) -> None:
    with bench_at(tmp_path, source=[()]) as bench:
        attempt, _ = bench.staged()
        core = bench.verify(attempt)
        assert core.verdict.passed
        assert core.staged.snapshot_id is None
        assert read_verified(bench.vault, bench.record(attempt)) == ()
        assert bench.now(attempt).state is AttemptState.COMMITTING


def test_the_first_write_to_a_table_that_shows_nothing_passes(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    core = bench.verify(attempt)
    assert core.verdict.passed
    assert core.target.base_snapshot_id is None


def test_a_table_of_format_3_is_verified_like_any_other(tmp_path: Path) -> None:
    with bench_at(tmp_path, version=3, shown=ROWS[:2]) as bench:
        attempt, _ = bench.staged(ROWS)
        assert bench.verify(attempt).verdict.passed
        assert read_verified(bench.vault, bench.record(attempt))[0].first_row_id is None


def test_a_producer_sees_only_classes_and_counts(shared_bench: Bench) -> None:
    attempt, _ = shared_bench.staged(ROWS[:94], workload_id="told")
    shared_bench.verify(attempt)
    refusal = decode_refusal(shared_bench.now(attempt).reason)
    assert refusal is not None
    assert (refusal.reason, refusal.expected, refusal.got) == (
        "verification_failed",
        "100 rows as intended",
        "94 rows staged",
    )
    assert "missing" in refusal.message


def test_a_fail_before_any_digest_derives_no_key(shared_bench: Bench) -> None:
    attempt, _ = shared_bench.staged(ROWS, workload_id="no-key", change=with_facts(file_format="ORC"))
    core = shared_bench.verify(attempt)
    with shared_bench.scene.notary.ledger.read() as unit:
        (proof,) = proofs.list_by_attempt(unit, attempt.attempt_id)
        assert shared_settings.find_handle_of_job(unit, f"verify:{core.attempt.nonce}:0") is None
    assert proof.context is None
    assert (core.rows.intent, core.rows.staged) == (None, None)


def test_keys_are_bound_to_both_freeze_roots_and_their_handle_has_ended(shared_bench: Bench) -> None:
    attempt, _ = shared_bench.staged(ROWS, workload_id="bound")
    core = shared_bench.verify(attempt)
    with shared_bench.scene.notary.ledger.read() as unit:
        (proof,) = proofs.list_by_attempt(unit, attempt.attempt_id)
        handle = shared_settings.find_handle_of_job(unit, f"verify:{core.attempt.nonce}:0")
    assert handle is not None
    assert handle.state is HandleState.ENDED
    assert handle.context == proof.context
    context = AttemptContext.parse(canonical_json.parse(str(proof.context).encode(), size_max_bytes=10_000))
    assert context.intent_root.hex() == core.sources[0].freeze_root_sha256


class MeddlingFiles(Files):
    """Files that are changed after each was frozen, and again after each was fetched."""

    def __init__(self, after_freeze: Callable[[Path], None], after_fetch: Callable[[Path], None]) -> None:
        super().__init__()
        self._after_freeze = after_freeze
        self._after_fetch = after_fetch

    def hash(self, location: str, *, pinned: bool = False) -> HashedFile:
        seen = super().hash(location, pinned=pinned)
        self._after_freeze(parse_location(location).local)
        return seen

    def fetch_frozen(self, frozen: HashedFile) -> Fetched:
        fetched = super().fetch_frozen(frozen)
        self._after_fetch(parse_location(frozen.location).local)
        return fetched


def do_nothing(path: Path) -> None:
    pass


def rewrite_staged(rows: Sequence[Row]) -> Callable[[Path], None]:
    """A function that writes these rows to a file, if it is a staged one: attempts have folders below `pvdm`."""

    def act(path: Path) -> None:
        if "pvdm" in path.parts:
            write(path, rows)

    return act


def verify_meddled(bench: Bench, name: str, after_freeze: Any = do_nothing, after_fetch: Any = do_nothing) -> ProofCore:
    attempt, _ = bench.staged(ROWS, workload_id=name)
    bench.verifying(MeddlingFiles(after_freeze, after_fetch)).verify(attempt.attempt_id)
    (core,) = bench.cores(attempt)
    return core


def test_bytes_that_were_swapped_before_the_freeze_are_judged_as_they_are(shared_bench: Bench) -> None:
    attempt, (path,) = shared_bench.staged(ROWS, workload_id="before-freeze")
    write(path, with_changed_row(ROWS, 0, amount=9.0))
    assert "modified" in shared_bench.classes(attempt)


def test_bytes_that_are_swapped_between_freeze_and_digest_are_physical(shared_bench: Bench) -> None:
    core = verify_meddled(shared_bench, "between", rewrite_staged(with_changed_row(ROWS, 0, amount=9.0)))
    assert [each.value for each in core.verdict.classes] == ["physical"]
    assert core.rows.staged is None


def test_bytes_that_are_good_only_while_they_are_digested_do_not_pass(tmp_path: Path) -> None:
    """Wrong bytes are frozen. The right ones are there only for the digest."""
    bad = with_changed_row(ROWS, 0, amount=9.0)
    with bench_at(tmp_path) as bench:
        attempt, (path,) = bench.staged(ROWS)
        write(path, bad)
        files = MeddlingFiles(rewrite_staged(ROWS), rewrite_staged(bad))
        bench.verifying(files).verify(attempt.attempt_id)
        (core,) = bench.cores(attempt)
        assert [each.value for each in core.verdict.classes] == ["physical"]


def test_bytes_that_are_swapped_after_the_digest_are_not_those_that_the_proof_binds(shared_bench: Bench) -> None:
    core = verify_meddled(shared_bench, "after", do_nothing, rewrite_staged(with_changed_row(ROWS, 0, amount=9.0)))
    assert core.verdict.passed
    assert Files().hash(core.files.added[0].published_path).sha256 != core.files.added[0].published_sha256


def test_a_file_that_grows_after_the_freeze_is_not_read_further(shared_bench: Bench) -> None:
    def grow(path: Path) -> None:
        if "pvdm" in path.parts:
            path.write_bytes(path.read_bytes() + b"x" * 1_000)

    core = verify_meddled(shared_bench, "grown", grow)
    with shared_bench.scene.notary.ledger.read() as unit:
        (found,) = verified.get(unit, core.attempt.nonce).findings
    assert (found.failure, found.code) == ("physical", "file_changed")
    assert str(found.got).startswith("more than")


def test_a_file_that_vanishes_after_the_freeze_is_physical(shared_bench: Bench) -> None:
    def vanish(path: Path) -> None:
        if "pvdm" in path.parts:
            path.unlink()

    core = verify_meddled(shared_bench, "vanished", vanish)
    assert [each.value for each in core.verdict.classes] == ["physical"]


def test_a_symbolic_link_in_the_place_of_a_file_fails(shared_bench: Bench) -> None:
    attempt, (path,) = shared_bench.staged(ROWS, workload_id="linked")
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))
    core = shared_bench.verify(attempt)
    assert not core.verdict.passed
    assert shared_bench.codes(attempt) == ["file_behind_link"]


def test_a_link_that_is_put_there_after_the_freeze_is_physical(shared_bench: Bench) -> None:
    def link(path: Path) -> None:
        if "pvdm" in path.parts:
            path.rename(path.with_name("real"))
            path.symlink_to(path.with_name("real"))

    core = verify_meddled(shared_bench, "linked-later", link)
    assert [each.value for each in core.verdict.classes] == ["physical"]


def test_a_source_that_changes_between_freeze_and_digest_gives_no_verdict(bench: Bench) -> None:
    def rewrite_source(path: Path) -> None:
        if "orders" in str(path) and path.suffix == ".parquet":
            write(path, ROWS[:5])

    attempt, _ = bench.staged(ROWS)
    with pytest.raises(UnavailableError) as caught:
        bench.verifying(MeddlingFiles(rewrite_source, do_nothing)).verify(attempt.attempt_id)
    assert (caught.value.reason, caught.value.details["cause"]) == ("source_unreadable", "file_changed")
    assert bench.now(attempt).state is AttemptState.VERIFYING
    assert bench.cores(attempt) == []


def test_a_source_file_that_is_gone_gives_no_verdict(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    place = parse_location(bench.state("orders", RAW).metadata.location).local
    (place / "data" / "0.parquet").unlink()
    with pytest.raises(UnavailableError):
        bench.verification.verify(attempt.attempt_id)
    assert bench.now(attempt).state is AttemptState.VERIFYING


def test_copied_storage_publishes_the_stewards_own_copies(tmp_path: Path) -> None:
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, paths = bench.staged(ROWS[:50], ROWS[50:])
        core = bench.verify(attempt)
        assert core.verdict.passed
        assert [each.published_path for each in core.files.added] == [
            f"file://{each}" for each in bench.copies(attempt)
        ]
        for each in core.files.added:
            assert parse_location(each.published_path).is_under(bench.vault.root)
            assert Files().hash(each.published_path).sha256 == each.published_sha256
        assert [each.file_path for each in read_verified(bench.vault, bench.record(attempt))] == [
            each.published_path for each in core.files.added
        ]
        write(paths[0], ROWS[:1])
        assert Files().hash(core.files.added[0].published_path).sha256 == core.files.added[0].published_sha256


def test_copies_are_made_of_the_bytes_that_were_digested(tmp_path: Path) -> None:
    """Even if the staged file is changed afterwards, the copy has the bytes of the digest."""
    with bench_at(tmp_path, storage="copied") as bench:
        core = verify_meddled(bench, "work", do_nothing, rewrite_staged(with_changed_row(ROWS, 0, amount=9.0)))
        assert core.verdict.passed
        assert Files().hash(core.files.added[0].published_path).sha256 == core.files.added[0].published_sha256


def test_two_staged_files_with_the_same_bytes_have_two_copies(tmp_path: Path) -> None:
    with bench_at(tmp_path, source=[ROWS, ROWS], storage="copied") as bench:
        attempt, _ = bench.staged(ROWS, ROWS)
        core = bench.verify(attempt)
        assert core.verdict.passed
        assert len({each.published_path for each in core.files.added}) == 2


def test_an_attempt_that_is_abandoned_during_its_verification_gets_no_proof(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)

    def abandon() -> None:
        bench.workloads.abandon(bench.scene.grant(Role.PRODUCER, "sales"), "work", "not needed")

    with fault.armed("verify.after_manifest", fault.Call(abandon)):
        bench.verification.verify(attempt.attempt_id)
    assert bench.cores(attempt) == []
    assert bench.now(attempt).state is AttemptState.ROLLED_BACK
    assert bench.left(attempt) == []


def test_an_attempt_that_is_not_being_verified_is_left_alone(bench: Bench) -> None:
    attempt = bench.attempt()
    bench.stage(attempt, ROWS)
    bench.verification.verify(attempt.attempt_id)
    assert bench.now(attempt).state is AttemptState.STAGING
    assert bench.left(attempt)


def test_a_branch_that_moved_since_it_was_handed_in_is_verified_as_it_was(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    prefix = parse_location(attempt.prefix).local
    more = write(prefix / "data" / "more.parquet", ROWS[:1])
    bench.write_snapshot("sums", SALES, attempt.branch, [more], home=prefix / "metadata", role=Role.STEWARD)
    core = bench.verify(attempt)
    assert core.verdict.passed
    assert str(core.staged.snapshot_id) == attempt.staged_snapshot_id


def test_a_staged_snapshot_that_is_gone_is_a_fail(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    updates = [
        {"action": "remove-snapshot-ref", "ref-name": attempt.branch},
        {"action": "remove-snapshots", "snapshot-ids": [int(str(attempt.staged_snapshot_id))]},
    ]
    bench.commit("sums", SALES, updates, Role.STEWARD)
    assert bench.classes(attempt) == ("metadata",)
    assert bench.codes(attempt) == ["staged_snapshot_gone"]


def test_an_append_is_verified_on_its_own_base_after_main_has_moved(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        first, _ = bench.staged(ROWS, workload_id="first")
        second, _ = bench.staged(ROWS, workload_id="second")
        base = bench.verify(first).target.base_snapshot_id
        bench.publish(first)
        core = bench.verify(second)
        assert core.verdict.passed
        assert core.target.base_snapshot_id == base


def test_an_overwrite_fails_if_main_has_changed_within_its_boundary(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3], operation="overwrite", atomicity="workload") as bench:
        path = parse_location(bench.state().metadata.location).local / "data" / "old-0.parquet"
        old = frozenset([write(path, ROWS[:3]).file_path])
        first, _ = bench.staged(ROWS, workload_id="first", removed=old)
        second, _ = bench.staged(ROWS, workload_id="second", removed=old)
        assert bench.verify(first).files.removed == tuple(old)
        bench.publish(first)
        assert bench.classes(second) == ("metadata",)
        assert bench.codes(second) == ["boundary_moved"]


def test_a_second_verification_has_its_own_nonce_and_its_own_proof(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    first = bench.verify(attempt)

    def again(unit: Unit) -> None:
        attempts.begin_verifying(
            unit,
            attempt.attempt_id,
            nonce="ab" * 16,
            staged_snapshot_id=attempt.staged_snapshot_id,
            reason="the proof ran out",
        )

    notary = bench.scene.notary
    notary.ledger.transact(again, at_micros=notary.clock.now_micros())
    bench.verification.verify(attempt.attempt_id)
    cores = {core.attempt.nonce for core in bench.cores(attempt)}
    assert cores == {first.attempt.nonce, "ab" * 16}
    with notary.ledger.read() as unit:
        current = nonces.find_current(unit, attempt.attempt_id)
    assert current is not None
    assert current.nonce == "ab" * 16


def test_a_verdict_does_not_move_an_attempt_that_is_verified_under_another_nonce(bench: Bench) -> None:
    """Another Steward was first with the same proof, and the attempt is being verified again since."""
    attempt, _ = bench.staged(ROWS)
    notary = bench.scene.notary

    def meanwhile(unit: Unit) -> None:
        attempts.begin_committing(unit, attempt.attempt_id, reason="PASS")
        attempts.begin_verifying(
            unit,
            attempt.attempt_id,
            nonce="ab" * 16,
            staged_snapshot_id=attempt.staged_snapshot_id,
            reason="the proof ran out",
        )

    def act() -> None:
        notary.ledger.transact(meanwhile, at_micros=notary.clock.now_micros())

    with fault.armed("verify.after_proof", fault.Call(act)):
        bench.verification.verify(attempt.attempt_id)
    assert bench.now(attempt).state is AttemptState.VERIFYING


def test_a_verification_of_a_committing_attempt_changes_nothing(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    bench.verify(attempt)
    bench.verify(attempt)
    assert bench.now(attempt).state is AttemptState.COMMITTING
