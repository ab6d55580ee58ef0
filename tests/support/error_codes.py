"""Reads from source text which error codes can be raised, with which exit code, through whatever helpers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from pvdm import errors

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

ERRORS = "pvdm.errors"
CLASSES = {
    name: kind.exit_code
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.PvdmError)
}


@dataclass(frozen=True, order=True)
class Raised:
    """A code in the source as a pattern (`partial_{what}_mismatch` fits several codes), and its exit code."""

    pattern: str
    exit_code: int
    where: str


@dataclass(frozen=True, order=True)
class Maker:
    """What makes an error of a code: a class, or a function whose argument at `place` ends as one."""

    module: str
    name: str
    place: int
    keyword: str
    exit_code: int


class Scope(NamedTuple):
    """A module and the functions around a place in it, outermost first."""

    module: Module
    functions: tuple[Function, ...] = ()


@dataclass
class Module:
    """One source file, and what its names mean."""

    name: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    functions: dict[str, list[Function]] = field(default_factory=dict)
    methods: set[int] = field(default_factory=set)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, text: str) -> Module:
        made = cls(name, ast.parse(text))
        for node in ast.walk(made.tree):
            match node:
                case ast.ImportFrom(module=str(source), names=names):
                    made.imports |= {each.asname or each.name: (source, each.name) for each in names}
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    made.functions.setdefault(node.name, []).append(node)
                case ast.ClassDef():
                    made.classes[node.name] = node
                    made.methods |= {id(each) for each in node.body if not _static(each)}
        for statement in made.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(target)], value=value):
                    made.constants[target] = value
                case ast.AnnAssign(target=ast.Name(target), value=ast.expr() as value):
                    made.constants[target] = value
        return made


def _static(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in decorators)


class UnreadableError(Exception):
    """A code comes about in a way that this reader does not know."""


class Reader:
    """Follows codes from where they are written to where an error is made of them, until nothing new is found."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._modules = {name: Module.read(name, text) for name, text in texts.items()}
        self._makers = {Maker(ERRORS, name, 0, "code", code) for name, code in CLASSES.items()}
        self.raised: set[Raised] = set()
        self.unread: set[tuple[str, str]] = set()
        self.passed_on: set[str] = set()
        self._add_classes()
        known = 0
        while known != len(self._makers):
            known = len(self._makers)
            for module in self._modules.values():
                self._visit(module.tree, Scope(module))

    def _add_classes(self) -> None:
        """Errors that a module derives for itself."""
        found = True
        while found:
            found = False
            for module in self._modules.values():
                for node in module.classes.values():
                    bases = [maker for base in node.bases for maker in self._named(base, Scope(module))]
                    new = {Maker(module.name, node.name, 0, "code", _own_exit(node, each)) for each in bases}
                    found = found or not new <= self._makers
                    self._makers |= new

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                self._call(child, scope)
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = Scope(scope.module, (*scope.functions, child))
            self._visit(child, inner)

    def _call(self, call: ast.Call, scope: Scope) -> None:
        for maker in self._named(call.func, scope):
            where = f"{scope.module.name}:{call.lineno}"
            try:
                code = self._argument(call, maker)
                for text in self._codes(code, scope, maker.exit_code):
                    self.raised.add(Raised(text, maker.exit_code, where))
            except UnreadableError as error:
                self.unread.add((scope.module.name, str(error)))

    def _named(self, called: ast.expr, scope: Scope) -> list[Maker]:
        """The makers that an expression names in this module."""
        module = scope.module
        match called:
            case ast.Name(name) if name in module.functions or name in module.classes:
                home = (module.name, name)
            case ast.Name(name) if name in module.imports:
                home = module.imports[name]
            case ast.Attribute(ast.Name("self" | "cls"), name):
                home = (module.name, name)
            case ast.Attribute(ast.Name(of), name) if of in module.imports:
                home = (".".join(module.imports[of]), name)
            case _:
                return []
        return [maker for maker in sorted(self._makers) if (maker.module, maker.name) == home]

    def _argument(self, call: ast.Call, maker: Maker) -> ast.expr:
        for keyword in call.keywords:
            if keyword.arg == maker.keyword:
                return keyword.value
        if len(call.args) > maker.place:
            before = call.args[: maker.place + 1]
            if not any(isinstance(each, ast.Starred) for each in before):
                return before[-1]
        home = self._modules.get(maker.module)
        for function in home.functions.get(maker.name, []) if home else []:
            default = _default(function, maker.keyword)
            if default is not None:
                return default
        raise UnreadableError("the code is not among the arguments")

    def _codes(self, code: ast.expr, scope: Scope, exit_code: int) -> Iterator[str]:
        match code:
            case ast.Constant(str(text)):
                yield re.escape(text)
            case ast.JoinedStr(parts):
                yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else "[a-z]+" for p in parts)
            case ast.IfExp(body=first, orelse=second):
                yield from self._codes(first, scope, exit_code)
                yield from self._codes(second, scope, exit_code)
            case ast.Name(name):
                yield from self._name(name, scope, exit_code)
            case ast.Attribute(attr="code"):
                # Another error's own code under another class: whoever gave it is found in its own place.
                self.passed_on.add(scope.module.name)
            case ast.Subscript(value=table):
                for value in _values(self._constant(table, scope)):
                    yield from self._codes(value, scope, exit_code)
            case _:
                raise UnreadableError(ast.unparse(code))

    def _name(self, name: str, scope: Scope, exit_code: int) -> Iterator[str]:
        module, functions = scope
        for depth in range(len(functions), 0, -1):
            function = functions[depth - 1]
            place = _place(function, name)
            if place is not None:
                shift = 1 if id(function) in module.methods else 0
                self._makers.add(Maker(module.name, function.name, place - shift, name, exit_code))
                return
            bound = list(self._bound(function, name, scope))
            if bound:
                for value in bound:
                    yield from self._codes(value, Scope(module, functions[:depth]), exit_code)
                return
        yield from self._codes(self._constant(ast.Name(name), scope), scope, exit_code)

    def _constant(self, named: ast.expr, scope: Scope) -> ast.expr:
        """The value of a module's constant, its own or imported."""
        match named:
            case ast.Name(name) if name in scope.module.constants:
                return scope.module.constants[name]
            case ast.Name(name) if name in scope.module.imports:
                source, other = scope.module.imports[name]
                if source in self._modules and other in self._modules[source].constants:
                    return self._modules[source].constants[other]
        raise UnreadableError(ast.unparse(named))

    def _bound(self, function: Function, name: str, scope: Scope) -> Iterator[ast.expr]:
        """Every value that a local name is given in a function."""
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from _unpacked(target, value, name)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    yield from _unpacked(target, value, name)
                case ast.NamedExpr(target=target, value=value):
                    yield from _unpacked(target, value, name)
                case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                    if _holds(target, name):
                        for value in self._elements(source, scope):
                            yield from _unpacked(target, value, name)

    def _elements(self, source: ast.expr, scope: Scope) -> Iterable[ast.expr]:
        match source:
            case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
                return elements
            case ast.Call(func=ast.Attribute(table, "items"), args=[]):
                found = self._constant(table, scope)
                if isinstance(found, ast.Dict):
                    pairs = zip(found.keys, found.values, strict=True)
                    return [ast.Tuple([key, value]) for key, value in pairs if key is not None]
            case ast.Name():
                return self._elements(self._constant(source, scope), scope)
        raise UnreadableError(ast.unparse(source))


def _own_exit(node: ast.ClassDef, base: Maker) -> int:
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name("exit_code")], value=ast.Constant(int(code))):
                return code
    return base.exit_code


def _place(function: Function, name: str) -> int | None:
    """Where the parameter stands; one that is given by name only stands behind all others."""
    plain = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if name in plain:
        return plain.index(name)
    return 99 if name in [each.arg for each in function.args.kwonlyargs] else None


def _default(function: Function, name: str) -> ast.expr | None:
    arguments = function.args
    plain = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    if name in plain:
        behind = plain.index(name) - (len(plain) - len(arguments.defaults))
        return arguments.defaults[behind] if behind >= 0 else None
    named = {each.arg: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    return named.get(name)


def _holds(target: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target))


def _unpacked(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    match target, value:
        case ast.Name(found), _ if found == name:
            yield value
        case ((ast.Tuple(targets) | ast.List(targets)), (ast.Tuple(values) | ast.List(values))):
            if len(targets) == len(values):
                for each, part in zip(targets, values, strict=True):
                    yield from _unpacked(each, part, name)
        case ((ast.Tuple() | ast.List()), _) if _holds(target, name):
            raise UnreadableError(ast.unparse(value))


def _values(table: ast.expr) -> list[ast.expr]:
    match table:
        case ast.Dict(values=values):
            return list(values)
        case ast.Tuple(elements) | ast.List(elements):
            return list(elements)
        case _:
            raise UnreadableError(ast.unparse(table))
