"""Each durable write, catalog call and file operation has a fault point nearby, or a listed reason for an exception.

An *operation* is a call that changes something which outlives the process: a file or folder, an object of a store, the
ledger, a catalog, or the Steward by a request. A call of a hook of `WriteHooks` counts as a point.

- On the Steward's side a function with an operation has a point.
- On the producer's side there is a point before the first operation of a function, after the last, and between two.
- A function may leave its points to its only caller, where the call then counts as an operation.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.for_each import for_each

SOURCE = Path(__file__).parents[2] / "src" / "pvdm"
PRODUCER = ("client", "durable", "physical")
OS_CALLS = frozenset(
    {"link", "makedirs", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "truncate", "unlink"}
)
SHUTIL_CALLS = frozenset({"copy", "copy2", "copyfile", "copyfileobj", "copytree", "move", "rmtree"})
PATH_CALLS = frozenset({"mkdir", "rmdir", "symlink_to", "touch", "unlink", "write_bytes", "write_text"})
PATH_CALLS_OF_ONE_ARGUMENT = frozenset({"rename", "replace"})  # `str.replace` has two
STORE_READS = ("get_", "head_", "list_", "assume_role", "read")
SPARK_WRITES = frozenset({"overwrite", "overwritePartitions", "sql"})
POINTS = frozenset({"fault.point", "hooks.after_name", "hooks.after_temp", "hooks.before_sync", "before_sync"})

STAGER_POINTS = ("stager.before_write", "stager.after_write")

LOCKS = "the file only carries a lock; nothing reads it"
SCRATCH = "a temporary file of one process, which the next start removes or ignores"
COMMANDS = "a file for a person, written whole; no workload depends on it"
EVALUATION = "the evaluation's attacks and reports are not the product"
EMPTY_FOLDER = "an empty folder has no meaning; writes into the folder have points"
SETS_UP = "creates a Steward's folder or database once, before anything is in it"
REQUEST = "one request of a person; the Steward has points where it handles the request"
IN_CALLER = "the caller has the points: "

# Functions, modules and packages with operations that lack points, and the reasons.
WITHOUT_POINTS = {
    "catalog.purge": "a purge deletes files of a dropped table that was never protected, and reports what is left",
    "cli": COMMANDS,
    "client.audit:AuditCalls.report_audit": REQUEST,
    "client.calls:new_post": "builds a request; the functions that send it have points",
    "client.steward": REQUEST,
    "client.table:_create": REQUEST,
    "client.work:WorkCalls.abandon_workload": REQUEST,
    "client.work:WorkCalls.publish_override": REQUEST,
    "client.work:WorkCalls.remove_orphans": REQUEST,
    "client.work:WorkCalls.remove_quarantined": REQUEST,
    "evaluation": EVALUATION,
    "lake.prefix:LocalPrefix._open_or_create": EMPTY_FOLDER,
    "lake.prefix:_remove_empty": EMPTY_FOLDER,
    "lake.spark": SCRATCH,
    "lake.stores.health": "a trial file that nothing reads",
    "lake.stores.local:Folders.make": EMPTY_FOLDER,
    "lake.stores.s3:S3Store._write": IN_CALLER + "lake.stores.s3:S3Store.put_new",
    "lake.stores.s3:S3Store.abort_uploads": IN_CALLER + "lake.stores.seal:Seals.seal",
    "lake.stores.seal:Seals._add_seal": IN_CALLER + "lake.stores.seal:Seals.seal",
    "lake.stores.seal:Seals._require_in_force": IN_CALLER + "lake.stores.seal:Seals.seal",
    "lake.stores.stores:ObjectPath.put": IN_CALLER + "trust.log.disk:write_atomically",
    "lake.stores.stores:ObjectPath.swap": IN_CALLER + "trust.log.disk:replace_durably",
    "lake.vault:Vault.remove": EMPTY_FOLDER,
    "ledger.connection:TransactionConnection.commit": IN_CALLER + "ledger.unit:Unit.commit",
    "ledger.engine": SETS_UP,
    "ledger.locks": LOCKS,
    "physical.spark:_write": IN_CALLER + "physical.spark:SparkStager._stage",
    "steward.embedded": SETS_UP,
    "steward.locks": LOCKS,
    "steward.pipeline.spark": SCRATCH,
    "steward.record.log:Archive._lock_folder": LOCKS,
    "trust.keys.disk:hold_lock": "removes what a crashed writer left; no key is in it",
    "trust.keys.disk:_write_synced": IN_CALLER + "trust.keys.disk:write",
    "trust.keys.service:KeyService._change": "the book of epochs is a file or a row of the ledger; both have points",
    "trust.log.disk:drop_leftovers": "removes what a crashed writer left; nothing names it",
    "trust.log.disk:make_folders": EMPTY_FOLDER,
    "trust.log.export:_drop_partials": "removes tiles whose full tile is there",
    "verify.spark": SCRATCH,
}


@dataclass(frozen=True)
class Function:
    """A function or method of a module, with the functions inside it."""

    module: str
    name: str
    node: ast.AST

    @property
    def full_name(self) -> str:
        return f"{self.module}:{self.name}"

    @property
    def is_on_producers_side(self) -> bool:
        return self.module.split(".")[0] in PRODUCER

    @functools.cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        return tuple(node for node in ast.walk(self.node) if isinstance(node, ast.Call))

    def point_lines(self, without: Sequence[ast.Call] = ()) -> list[int]:
        """The lines of the function's points, except the calls in `without`."""
        return [call.lineno for call in self.calls if ast.unparse(call.func) in POINTS and call not in without]

    def operations(self) -> list[ast.Call]:
        """The function's operations in order, and its calls of functions that leave their points to this function."""
        callees = {
            listed.rpartition(":")[2].rpartition(".")[2]
            for listed, reason in WITHOUT_POINTS.items()
            if reason == IN_CALLER + self.full_name
        }
        found = [call for call in self.calls if is_operation(call) or _last_name(call) in callees]
        return sorted(found, key=lambda call: call.lineno)

    def find_uncovered(self, without: Sequence[ast.Call] = ()) -> list[str]:
        """The operations that lack a point, ignoring the points in `without`."""
        points, operations = self.point_lines(without), self.operations()
        if not self.is_on_producers_side:
            return [] if points else [self._describe(call) for call in operations]
        ends = [*(call.lineno for call in operations[1:]), sys.maxsize]
        starts = [0, *(call.lineno for call in operations)]
        return [
            self._describe(call)
            for call, start, end in zip(operations, starts, ends, strict=False)
            if not any(start < at < call.lineno for at in points) or not any(call.lineno < at < end for at in points)
        ]

    def _describe(self, call: ast.Call) -> str:
        return f"{self.full_name}, line {call.lineno}: {ast.unparse(call.func)}"


def _last_name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def is_operation(call: ast.Call) -> bool:
    """Whether the call changes something that outlives the process."""
    receiver, _, name = ast.unparse(call.func).rpartition(".")
    first = call.args[0] if call.args else None
    match receiver, name:
        case "os", _:
            return name in OS_CALLS or (name == "open" and "O_CREAT" in ast.unparse(call))
        case "shutil", _:
            return name in SHUTIL_CALLS
        case "", "call_store":
            return not ast.unparse(call.args[0]).rpartition(".")[2].startswith(STORE_READS)
        case "", "new_post":
            return True
        case "", "Call" | "_call":
            return isinstance(first, ast.Constant) and first.value != "GET"
        case "", "WriteHooks":
            return not call.args and not call.keywords  # a write without hooks reaches no point
        case _, "commit":
            return receiver.endswith(("_connection", "upstreams"))
        case _, "begin":
            return receiver.endswith("engine")
        case "writer", "append":
            return True
        case _, "open":
            return bool(set(_mode(call)) & set("awx+"))
    if name in SPARK_WRITES:
        return True
    return bool(receiver) and (
        name in PATH_CALLS or (name in PATH_CALLS_OF_ONE_ARGUMENT and len(call.args) == 1 and not call.keywords)
    )


def _mode(call: ast.Call) -> str:
    """The mode of `open(path, mode)` or `path.open(mode)`; empty if there is none."""
    position = 1 if isinstance(call.func, ast.Name) else 0
    given = [*call.args[position : position + 1], *(each.value for each in call.keywords if each.arg == "mode")]
    return next((str(each.value) for each in given if isinstance(each, ast.Constant)), "")


@functools.cache
def functions() -> tuple[Function, ...]:
    """Every function of the source that is not inside another one."""
    found: list[Function] = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        tree = ast.parse(path.read_text("utf-8"))
        found += (Function(module, name, node) for name, node in _outermost(tree))
    return tuple(found)


def _outermost(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.ClassDef(name=name):
                yield from _outermost(node, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, node


def _entry_of(function: Function) -> str | None:
    """The key in `WITHOUT_POINTS` that names this function, its module or one of its packages."""
    parts = function.module.split(".")
    names = (function.full_name, *(".".join(parts[:end]) for end in range(len(parts), 0, -1)))
    return next((name for name in names if name in WITHOUT_POINTS), None)


def test_each_operation_has_a_point_near_it_or_a_listed_reason() -> None:
    found = [each for function in functions() if _entry_of(function) is None for each in function.find_uncovered()]
    assert found == []


def test_no_entry_of_the_list_is_out_of_date() -> None:
    assert {_entry_of(function) for function in functions() if function.find_uncovered()} == set(WITHOUT_POINTS)


def test_a_function_that_leaves_its_points_to_its_caller_is_called_by_a_caller_with_points() -> None:
    by_name = {function.full_name: function for function in functions()}
    callers = [(each, reason.removeprefix(IN_CALLER)) for each, reason in WITHOUT_POINTS.items() if IN_CALLER in reason]
    for listed, caller in callers:
        called = {_last_name(call) for call in by_name[caller].operations()}
        assert listed.rpartition(":")[2].rpartition(".")[2] in called, (listed, caller)
        assert by_name[caller].point_lines(), caller


def _named_points(function: Function) -> list[ast.Call]:
    return [call for call in function.calls if ast.unparse(call.func) == "fault.point"]


def test_removing_any_point_on_the_producers_side_is_noticed() -> None:
    """If a removed point's name is used nowhere else, `tests/unit/test_fault.py` fails instead."""
    uses = Counter(ast.unparse(call) for function in functions() for call in _named_points(function))
    unnoticed = [
        f"{function.full_name}: {ast.unparse(point)}"
        for function in functions()
        if function.is_on_producers_side
        for point in _named_points(function)
        if not function.find_uncovered(without=[point]) and uses[ast.unparse(point)] > 1
    ]
    assert unnoticed == [f"physical.small:_Staging.run: fault.point('{name}')" for name in STAGER_POINTS]


def test_each_stager_has_the_points_around_its_writes() -> None:
    for module in ("physical.small", "physical.spark"):
        calls = {ast.unparse(call) for each in functions() if each.module == module for call in _named_points(each)}
        assert {f"fault.point('{name}')" for name in STAGER_POINTS} <= calls


def test_removing_all_points_of_a_function_of_the_steward_is_noticed() -> None:
    own = [each for each in functions() if each.operations() and _named_points(each) and not each.is_on_producers_side]
    assert len(own) > 5
    assert [each.full_name for each in own if not each.find_uncovered(without=_named_points(each))] == []


@for_each(
    "statement",
    [
        "os.replace(a, b)",
        "path.unlink(missing_ok=True)",
        "temporary.replace(path)",
        "path.open('ab')",
        "path.open(mode='ab')",
        "open(path, 'w')",
        "shutil.copyfileobj(source, target)",
        "os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)",
        "call_store(self.client.put_object, Bucket=name)",
        "self._connection.commit()",
        "self._catalog.upstreams.commit(row, seen, [], [])",
        "new_post(path, body)",
        "_call('POST', path)",
        "writer.append()",
        "store.put_new(place, data, WriteHooks())",
    ],
)
def test_an_operation_without_a_point_is_reported(statement: str) -> None:
    function = Function("catalog.new", "change", ast.parse(f"def change():\n    {statement}"))
    assert function.find_uncovered()


def test_on_the_producers_side_one_point_is_not_enough() -> None:
    text = "def change():\n    fault.point('a.b')\n    path.unlink()\n"
    assert Function("catalog.new", "change", ast.parse(text)).find_uncovered() == []
    assert Function("physical.new", "change", ast.parse(text)).find_uncovered()
    assert Function("physical.new", "change", ast.parse(text + "    fault.point('a.c')\n")).find_uncovered() == []


@for_each(
    "statement",
    [
        "text.replace('a', 'b')",
        "path.open('rb')",
        "open(path)",
        "os.open(path, os.O_RDONLY)",
        "call_store(client.get_object)",
        "_call('GET', path)",
        "names.append(name)",
    ],
)
def test_a_call_that_changes_nothing_durable_is_no_operation(statement: str) -> None:
    assert Function("catalog.new", "look", ast.parse(f"def look():\n    {statement}")).operations() == []
