"""Hypothesis strategies for proofs and their parts, for property tests of signed documents."""

from __future__ import annotations

from hypothesis import strategies as st

from pvdm.model.projection import Exclusion, Projection, ProjectionName
from pvdm.model.statements.core import (
    AddedFile,
    Attempt,
    ExtractionPath,
    FileSet,
    Method,
    Operation,
    Profile,
    ProofCore,
    ProvedProjection,
    RowCounts,
    StagedBranch,
    Target,
)
from pvdm.model.statements.proof import PROOF_LIFETIME_MAX_MICROS, Commitments, Isolation, NotaryPart, Proof, Storage
from pvdm.model.statements.table import SourceSnapshot, TableRef
from pvdm.model.statements.verdict import FailureClass, Outcome, Verdict

LONGS = st.integers(0, 2**63 - 1)
SHA256 = st.integers(0, 2**256 - 1).map("{:064x}".format)
RANDOM = st.integers(0, 2**128 - 1).map("{:032x}".format)
# Few characters on purpose: of one to four bytes in UTF-8, and one that sorts differently in UTF-16.
TEXT = st.text("aB0 -/é☃\ufb33\U0001f600", min_size=1, max_size=6).filter(str.strip)
FREE = st.text('ab"\\\n\x00é\U0001f600', max_size=6)
IDS = st.text("AZaz09._-", min_size=1, max_size=12).filter(lambda text: text.strip(".") != "")
NAMES = st.text("az09", min_size=1, max_size=6)
UUIDS = st.uuids().map(str)
TABLES = st.builds(TableRef, TEXT, UUIDS, TEXT)
PAIRS = st.dictionaries(TEXT, FREE | st.none(), max_size=2).map(lambda found: tuple(sorted(found.items())))


NUMBERS = LONGS | st.none()
FILES = st.dictionaries(TEXT, st.tuples(LONGS, SHA256), max_size=3)
PATHS = st.lists(TEXT.map("s3://old/{}".format), unique=True, max_size=2).map(sorted).map(tuple)
COLUMNS = st.lists(TEXT, unique=True, min_size=1, max_size=4).map(sorted)
KINDS = st.lists(st.sampled_from(ProjectionName), unique=True, min_size=1).map(
    lambda names: sorted(names, key=lambda name: name.value)
)
FAILURES = st.lists(st.sampled_from(FailureClass), min_size=1, max_size=3).map(lambda found: Verdict.failed(*found))
VERDICTS = st.just(Verdict(Outcome.PASS)) | FAILURES
COUNTS = st.builds(RowCounts, NUMBERS, NUMBERS)
SOURCES = st.lists(
    st.builds(SourceSnapshot, TABLES, LONGS, SHA256), min_size=1, max_size=2, unique_by=lambda source: source.table.uuid
).map(lambda found: tuple(sorted(found, key=lambda source: (source.table.catalog, source.table.uuid))))
CHECKS = st.lists(NAMES, unique=True, max_size=4).map(sorted).map(tuple)
ATTEMPTS = st.builds(Attempt, SHA256, PAIRS, IDS, SHA256, TEXT, RANDOM, st.integers(1, 1_000_000), RANDOM)
TARGETS = st.builds(
    Target,
    TABLES,
    TEXT,
    NUMBERS,
    st.sampled_from(Operation),
    PAIRS,
    SHA256,
    st.integers(0, 2**31 - 1),
    st.integers(1, 3),
)
STAGED = st.builds(StagedBranch, TEXT, NUMBERS)
METHODS = st.builds(
    Method,
    st.sampled_from(Profile),
    st.sampled_from(("stored", "portable")),
    st.sampled_from(("hmac-sha256", "blake3")),
    st.sampled_from(ExtractionPath),
    NAMES,
)
PARTS = st.tuples(
    LONGS,
    st.sampled_from(Isolation),
    st.sampled_from(Storage),
    st.integers(0, 2**52),
    st.integers(1, PROOF_LIFETIME_MAX_MICROS),
)


def _file_set(found: dict[str, tuple[int, str]], removed: tuple[str, ...]) -> FileSet:
    added = [
        AddedFile(f"s3://staged/{name}", *facts, f"s3://published/{name}", *facts) for name, facts in found.items()
    ]
    return FileSet(tuple(sorted(added, key=lambda file: file.published_path)), removed)


@st.composite
def projections(draw: st.DrawFn) -> tuple[ProvedProjection, ...]:
    proved = []
    for name in draw(KINDS):
        columns = draw(COLUMNS)
        excluded = tuple(Exclusion(column, "a reason") for column in columns[2:])
        proved.append(ProvedProjection(Projection(name, tuple(columns[:2]), excluded), draw(SHA256)))
    return tuple(proved)


PROJECTIONS = projections()


@st.composite
def cores(draw: st.DrawFn) -> ProofCore:
    verdict, target, rows = draw(VERDICTS), draw(TARGETS), draw(LONGS)
    removed = () if target.operation is Operation.APPEND else draw(PATHS)
    return ProofCore(
        attempt=draw(ATTEMPTS),
        target=target,
        staged=draw(STAGED),
        files=_file_set(draw(FILES), removed),
        rows=RowCounts(rows, rows) if verdict.passed else draw(COUNTS),
        sources=draw(SOURCES),
        method=draw(METHODS),
        projections=draw(PROJECTIONS),
        checks=draw(CHECKS),
        verdict=verdict,
    )


CORES = cores()


@st.composite
def proofs(draw: st.DrawFn) -> Proof:
    core = draw(CORES)
    commitments = []
    for proved in core.projections:
        intent = draw(SHA256)
        staged = intent if core.verdict.passed else draw(SHA256)
        commitments.append(Commitments(proved.projection.name, intent, staged))
    epoch, isolation, storage, issued, life = draw(PARTS)
    return Proof(core, NotaryPart("notary-a", epoch, tuple(commitments), isolation, storage, issued, issued + life))
