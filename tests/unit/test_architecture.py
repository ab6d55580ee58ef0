"""Properties of the repository that the documents promise: sizes, docstrings, imports, pins and versions."""

from __future__ import annotations

import ast
import graphlib
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pvdm
from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "tools", "bench", "examples")
RUST_SOURCES = sorted((ROOT / "kernel" / "src").rglob("*.rs"))
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FILE_MAX_LINES = 500
FUNCTION_MAX_LINES = 70
DOCSTRING = re.compile(r'(?:#.*\n|\s)*"""')


def project() -> dict[str, object]:
    parsed: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return parsed


def requirement_name(text: str) -> str:
    return re.split(r"[<>=!~ \[]", text, maxsplit=1)[0].lower().replace("_", "-")


def relative_names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def test_every_package_is_described() -> None:
    packages = {path.stem for path in (ROOT / "src" / "pvdm").iterdir() if not path.name.startswith(("_", "py.typed"))}
    described = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE))
    assert packages <= described


def test_no_file_is_too_long_to_read() -> None:
    generated = ROOT / "src" / "pvdm" / "errors" / "codes.py"
    files = [path for path in (*SOURCES, *RUST_SOURCES) if path != generated]
    assert relative_names([path for path in files if len(path.read_text().splitlines()) >= FILE_MAX_LINES]) == []


def test_every_function_fits_on_a_screen() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_MAX_LINES
    ]
    assert long == []


def test_every_rust_function_fits_on_a_screen() -> None:
    # rustfmt puts the closing brace of a function at the indentation of its first line.
    function = re.compile(r"^( *)(?:pub(?:\([a-z]+\))? )?(?:const )?fn (\w+)[^;]*?\{\n(?:.*\n)*?\1\}$", re.MULTILINE)
    found = [(path, match) for path in RUST_SOURCES for match in function.finditer(path.read_text())]
    assert len(found) > 500
    long = [
        f"{path.relative_to(ROOT)} {match[2]}" for path, match in found if match[0].count("\n") >= FUNCTION_MAX_LINES
    ]
    assert long == []


def test_unsafe_code_is_allowed_at_three_places_of_the_kernel() -> None:
    lints = tomllib.loads((ROOT / "kernel" / "Cargo.toml").read_text())["lints"]
    assert lints["rust"]["unsafe_code"] == lints["clippy"]["undocumented_unsafe_blocks"] == "deny"
    allowed = {
        str(path.relative_to(ROOT)): count
        for path in RUST_SOURCES
        if (count := path.read_text().count("allow(unsafe_code)"))
    }
    assert allowed == {"kernel/src/hash/sha256.rs": 2, "kernel/src/python.rs": 1}
    safety = re.compile(r"// SAFETY: .*\n(?: *//.*\n)* *(?:let \w+ = )?unsafe \{")
    assert {path: len(safety.findall((ROOT / path).read_text())) for path in allowed} == allowed


def rust_imports() -> list[tuple[str, str]]:
    """Pairs of modules of the kernel, as paths from its root, of which the first imports the second."""
    source = ROOT / "kernel" / "src"
    modules = {path.relative_to(source).with_suffix("").as_posix(): path for path in RUST_SOURCES}
    found = []
    for module, path in modules.items():
        if module.endswith("tests"):
            continue
        code = path.read_text().partition("#[cfg(test)]\nmod tests")[0]
        for prefix, single, names in re.findall(
            r"^ *use crate::([\w:]*?)(?:::(\w+)|::\{([^{}]*)\}|::\*);", code, re.MULTILINE
        ):
            for name in re.findall(r"\w+", single or names) or [""]:
                target = "/".join([*prefix.split("::"), name])
                found.append((module, target if target in modules else target.rpartition("/")[0]))
    assert {target for _, target in found} <= modules.keys()
    return found


def test_no_rust_modules_and_no_folders_import_each_other() -> None:
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, target in rust_imports():
        graphs["modules"][module].add(target)
        one, other = module.split("/"), target.split("/")
        shared = next((at for at, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) == 2), None)
        if shared is not None:
            graphs["/".join(one[:shared])][one[shared]].add(other[shared])
    assert len(graphs) > 5
    for graph in graphs.values():
        graphlib.TopologicalSorter(graph).prepare()


def test_every_module_begins_with_a_docstring() -> None:
    assert relative_names([path for path in RUST_SOURCES if not path.read_text().startswith("//! ")]) == []
    assert relative_names([path for path in SOURCES if DOCSTRING.match(path.read_text()) is None]) == []


def test_every_direct_dependency_has_an_exact_pin() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {requirement_name(line) for line in lines if "==" in line and not line.startswith("#")}
    wanted = project()
    extras = wanted["optional-dependencies"]
    assert isinstance(extras, dict)
    assert isinstance(wanted["dependencies"], list)
    direct = {requirement_name(text) for text in [*wanted["dependencies"], *extras["dev"], *extras["lattice"]]}
    assert direct - pinned == set()


@for_each("name", ["constraints.txt", "pyproject.toml", "kernel/pyproject.toml", "Makefile", ".ci/run"])
def test_no_package_index_is_named(name: str) -> None:
    assert re.findall(r"https?://|--(?:extra-)?index-url|--find-links", (ROOT / name).read_text()) == []


def test_package_and_kernel_have_one_version() -> None:
    kernel = tomllib.loads((ROOT / "kernel" / "Cargo.toml").read_text())["package"]["version"]
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    assert (kernel, extras["kernel"]) == (pvdm.__version__, [f"pvdm-kernel=={pvdm.__version__}"])
