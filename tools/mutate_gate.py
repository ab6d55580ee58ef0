"""Removes the checks of the gate and of protection one at a time, in a copy, and prints which tests then fail.

    python -m tools.mutate_gate [CHECK …]

The exit code is 1 if a check can be removed and no test fails.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_GATE: Final = "tests/behaviour/gate"
TESTS: Final[dict[str, tuple[str, ...]]] = {
    **{
        part: (f"{_GATE}/test_gate_{part}.py",)
        for part in ("statements", "table", "ledger", "moved", "override", "workload", "sources")
    },
    "found": (f"{_GATE}/test_found_attacks.py", f"{_GATE}/test_found_manifests.py"),
    "protectable": (f"{_GATE}/test_protectable_tables.py", f"{_GATE}/test_reader_settings.py"),
    "sealed": ("tests/behaviour/stores/test_sealed.py",),
}
"""The tests of each part, which are run when a check of that part is removed."""
FAILING_TESTS_MAX: Final = 8
"""A run stops after this many failures."""
SOURCES: Final = "src/pvdm"
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """A function whose body is replaced. With `inside`, only the calls to it in that other function are removed.

    `check` is the mutation's name, and `part` names the tests that are run.
    """

    check: str
    file: str
    function: str
    body: str = "return None"
    inside: str | None = None
    part: str = "statements"


# Bodies for checks whose results later checks need: they return the result without checking anything.
LENIENT_ENVELOPES: Final = """
import base64, json
from pvdm.trust.envelope import Signature
def lenient(data):
    made = json.loads(data)
    signatures = tuple(Signature(part["keyid"], base64.b64decode(part["sig"])) for part in made["signatures"])
    return Envelope(made["payloadType"], base64.b64decode(made["payload"]), signatures)
statement = proposal.workload_statement
return PerStatement(
    tuple(tuple(lenient(logged.envelope) for logged in part.proofs) for part in proposal.parts),
    None if statement is None else lenient(statement.envelope),
)
"""
ANY_KEYS: Final = """
def key(envelope):
    found = trust.root.find(envelope.signature.key_id)
    return found or next(trusted for trusted in trust.root.keys if RootRole.NOTARY in trusted.roles)
return PerStatement(
    tuple(tuple(map(key, of_part)) for of_part in envelopes.proofs),
    None if envelopes.workload is None else key(envelopes.workload),
)
"""
ANY_STATEMENTS: Final = """
import json
def read(kind, envelope, key):
    predicate = kind.from_json(json.loads(envelope.payload)["predicate"])
    return VerifiedStatement(predicate, envelope.payload_sha256, envelope, key)
pairs = zip(envelopes.proofs, keys.proofs)
return PerStatement(
    tuple(tuple(read(Proof, *pair) for pair in zip(of_part, their_keys)) for of_part, their_keys in pairs),
    None if envelopes.workload is None else read(WorkloadStatement, envelopes.workload, keys.workload),
)
"""
ANY_NOTARIES: Final = """
chunks = [
    SignedChunk(part, VerifiedProof(proofs[0].predicate.core, proofs[:1]))
    for part, proofs in zip(proposal.parts, statements.proofs)
]
return SignedProposal(proposal, tuple(chunks), statements.workload, trust)
"""

READ_WITHOUT_COMPARING: Final = """
data = self._inner.read(location, max_bytes=max_bytes)
self.hashes[location] = hashlib.sha256(data).hexdigest()
return data
"""
_GATE_FILE: Final = "metadata/gate/gate.py"
_STATEMENTS: Final = "metadata/gate/checks_statements.py"
_TABLE: Final = "metadata/gate/checks_table.py"
_FOUND: Final = "lake/read/found_manifests.py"
_PROTECTABLE: Final = "lake/format/table/protectable.py"

MUTATIONS: Final = (
    Mutation("1", _STATEMENTS, "check_1_envelopes", LENIENT_ENVELOPES),
    Mutation("1 whole plan", _STATEMENTS, "require_complete", part="workload"),
    Mutation("2 signatures", _STATEMENTS, "check_2_signatures", ANY_KEYS),
    Mutation("2 signature of the workload statement", _STATEMENTS, "check_2_signatures", ANY_KEYS, part="workload"),
    Mutation("2 notaries", _STATEMENTS, "check_2_notaries", ANY_NOTARIES),
    Mutation("2 notary of the workload statement", _STATEMENTS, "check_2_notaries", ANY_NOTARIES, part="workload"),
    Mutation("2 in the transaction", _STATEMENTS, "check_2_again"),
    Mutation("3", _STATEMENTS, "check_3_statements", ANY_STATEMENTS),
    Mutation("3 workload statement", _STATEMENTS, "check_3_statements", ANY_STATEMENTS, part="workload"),
    Mutation("4", _STATEMENTS, "check_4_verdict", "return signed"),
    Mutation("5", _STATEMENTS, "check_5_target", part="table"),
    Mutation("5 in the transaction", _GATE_FILE, "check_5_target", inside="check_in_transaction", part="table"),
    Mutation("5 workload statement", _STATEMENTS, "require_workload_statement", part="workload"),
    Mutation("6", _STATEMENTS, "check_6_expiry"),
    Mutation("6 in the transaction", _GATE_FILE, "check_6_expiry", inside="check_in_transaction"),
    Mutation("6 workload statement", _STATEMENTS, "check_6_expiry", part="workload"),
    Mutation("6 override", _STATEMENTS, "require_override_unexpired", inside="check_6_expiry", part="override"),
    Mutation("7", _TABLE, "check_7_structure", part="table"),
    Mutation("8", _TABLE, "check_8_branch", part="table"),
    Mutation("9", _TABLE, "check_9_files", part="table"),
    Mutation("9 files", _TABLE, "require_bound_files", part="table"),
    Mutation("9 copies", _TABLE, "require_copies", part="table"),
    Mutation("9 boundary", _TABLE, "check_9_boundary", part="table"),
    Mutation("9 once", _TABLE, "require_files_once", part="table"),
    Mutation("9 verified for this proof", _TABLE, "require_verified_core", part="table"),
    Mutation("5, 7–9 on a moved base", _GATE_FILE, "_check_base", inside="make_snapshot", part="table"),
    Mutation("10", _TABLE, "check_10_bytes", part="ledger"),
    Mutation("10 versions", _TABLE, "require_versions", part="sealed"),
    Mutation("11", _TABLE, "check_11_logged"),
    Mutation("12 nonce", _TABLE, "check_12_nonces", part="ledger"),
    Mutation("12 nonce and chunk", _TABLE, "check_12_chunk", part="ledger"),
    Mutation("12 source", _TABLE, "check_12_source", part="sources"),
    Mutation("12 claim", _TABLE, "check_12_claim", part="ledger"),
    Mutation("12 override", _TABLE, "check_12_override", part="override"),
    Mutation("14", _TABLE, "check_14_shown", part="ledger"),
    Mutation("nothing but the publication", "metadata/gate/publication.py", "require_no_other_change", part="ledger"),
    Mutation("found sequence numbers", _FOUND, "_require_not_ahead", part="found"),
    Mutation("found row ids apart", _FOUND, "finish", part="found"),
    Mutation("found row ids given away", _FOUND, "require_row_ids", part="found"),
    Mutation("found list", _FOUND, "require_list_of", part="found"),
    Mutation("found headers", _FOUND, "require_header", part="found"),
    Mutation("found files read twice", _FOUND, "read", READ_WITHOUT_COMPARING, part="found"),
    Mutation("found at the first publication", "metadata/gate/publication.py", "require_as_found", part="found"),
    Mutation("column names", _PROTECTABLE, "_require_names", part="protectable"),
    Mutation("reader settings", _PROTECTABLE, "require_no_reader_settings", part="protectable"),
    Mutation("partitions of fixed", _PROTECTABLE, "_require_partitions", part="protectable"),
)


class _BodyReplacer(ast.NodeTransformer):
    """Replaces the body of the mutation's function."""

    def __init__(self, mutation: Mutation) -> None:
        self.mutation = mutation
        self.hits = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Replace the body of the function itself; search others for it."""
        self.generic_visit(node)
        if node.name == self.mutation.function:
            self.hits += 1
            node.body = ast.parse(f"def it():\n{textwrap.indent(self.mutation.body, '    ')}").body[0].body  # type: ignore[attr-defined]
        return node


class _CallRemover(ast.NodeTransformer):
    """Removes the calls in one function that are statements of their own."""

    def __init__(self, mutation: Mutation) -> None:
        self.mutation = mutation
        self.within = False
        self.hits = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Note whether the visited code lies in the one function."""
        outer, self.within = self.within, self.within or node.name == self.mutation.inside
        self.generic_visit(node)
        self.within = outer
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Replace a statement that is a call to the mutation's function by `pass`."""
        called = node.value.func if isinstance(node.value, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        if self.within and name == self.mutation.function:
            self.hits += 1
            return ast.copy_location(ast.Pass(), node)
        return node


def mutate(source: str, mutation: Mutation) -> str:
    """The source without the check. Raises unless the check is found exactly once."""
    tree = ast.parse(source)
    transformer = _BodyReplacer(mutation) if mutation.inside is None else _CallRemover(mutation)
    changed = ast.fix_missing_locations(transformer.visit(tree))
    if transformer.hits != 1:
        raise LookupError(f"{mutation.function} was found {transformer.hits} times in {mutation.file}")
    return ast.unparse(changed)


def find_failing(copy: Path, parts: Sequence[str]) -> list[str]:
    """Run the tests of these parts in the copy, and return those that fail."""
    tests = [path for part in parts for path in TESTS[part]]
    options = ["-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", f"--maxfail={FAILING_TESTS_MAX}"]
    paths = f"{copy}/src:{copy}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env={"PYTHONPATH": paths, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stdout[-2_000:] + done.stderr[-2_000:])
    return sorted(set(_FAILED.findall(done.stdout)))


def run(wanted: Sequence[str], say: Callable[[str], None]) -> int:
    """Try every mutation, or those whose check number is in `wanted`; returns how many no test noticed."""
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="pvdm-mutants-") as folder:
        copy = Path(folder)
        for part in ("src", "tests", "tools", "spec", "vectors", "pyproject.toml"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / part)
        if failing := find_failing(copy, tuple(TESTS)):
            raise RuntimeError(f"the gate's tests fail without a mutation: {failing[:5]}")
        for mutation in MUTATIONS:
            if wanted and mutation.check.split()[0] not in wanted:
                continue
            path = copy / SOURCES / mutation.file
            original = path.read_text()
            path.write_text(mutate(original, mutation))
            failing = find_failing(copy, [mutation.part])
            path.write_text(original)
            unnoticed += not failing
            result = f"{len(failing)} tests fail" if failing else "NOT NOTICED"
            say(f"{mutation.check} ({mutation.function}): {result}")
            for name in failing:
                say(f"    {name.partition('::')[2]}")
    return unnoticed


if __name__ == "__main__":
    sys.exit(1 if run(sys.argv[1:], lambda line: print(line, flush=True)) else 0)
