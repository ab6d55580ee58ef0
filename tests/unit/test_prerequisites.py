"""The prerequisites script, run with a PATH that has only fake programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "prerequisites.sh"
SHELL = shutil.which("sh")

PROGRAMS = {
    "python3": "echo 3.12",
    "java": """echo 'openjdk version "17.0.15" 2025-04-15' >&2""",
    "cargo": "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'",
    "cc": "exit 0",
}
NO_VENV = 'case "$2" in *ensurepip*) exit 1 ;; esac; echo 3.12'


class Machine:
    """A folder of fake programs; the script runs with this folder as its PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, body in PROGRAMS.items():
            self.add(name, body)

    def add(self, name: str, body: str) -> None:
        program = self.folder / name
        program.write_text(f"#!{SHELL}\n{body}\n")
        program.chmod(0o755)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def check(self, *parts: str) -> subprocess.CompletedProcess[str]:
        assert SHELL is not None
        return subprocess.run(
            [SHELL, str(SCRIPT), *parts], env={"PATH": str(self.folder)}, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_complete_machine_passes_without_output(machine: Machine) -> None:
    result = machine.check()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["python", "java", "cargo", "cc"])
def test_an_empty_machine_reports_every_part(machine: Machine, name: str) -> None:
    for program in PROGRAMS:
        machine.remove(program)
    result = machine.check()
    assert result.returncode == 1
    assert any(line.startswith(f"{name}: ") and "not found" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("part", "program", "body"),
    [
        ("python", "python3", "echo 3.10"),
        ("python", "python3", "echo 2.7"),
        ("java", "java", """echo 'java version "1.8.0_402"' >&2"""),
        ("java", "java", """echo 'openjdk version "11.0.22" 2024-01-16' >&2"""),
        ("java", "java", "echo 'No Java runtime present' >&2; exit 1"),
        ("cargo", "cargo", "echo 'cargo 1.63.0'"),
        ("cargo", "cargo", "echo 'cargo 0.99.0'"),
        ("cargo", "cargo", "echo 'no default toolchain' >&2; exit 1"),
    ],
)
def test_an_old_or_broken_program_is_reported(machine: Machine, part: str, program: str, body: str) -> None:
    machine.add(program, body)
    result = machine.check(part)
    assert result.returncode == 1
    assert result.stdout.startswith(f"{part}: ")


@pytest.mark.parametrize(
    ("part", "program", "body"),
    [
        ("python", "python3", "echo 3.11"),
        ("python", "python3", "echo 4.0"),
        ("java", "java", """echo 'openjdk version "21" 2023-09-19' >&2"""),
        ("java", "java", """echo 'openjdk version "25-ea" 2025-09-16' >&2"""),
        ("cargo", "cargo", "echo 'cargo 1.89.0-nightly (abc 2025-06-01)'"),
        ("cargo", "cargo", "echo 'cargo 2.0.0'"),
    ],
)
def test_a_new_enough_program_is_accepted(machine: Machine, part: str, program: str, body: str) -> None:
    machine.add(program, body)
    assert machine.check(part).returncode == 0


@pytest.mark.parametrize(
    ("part", "program", "body", "packages"),
    [
        (
            "python",
            "python3",
            None,
            ["apt-get install python3 python3-venv", "dnf install python3", "brew install python@3.12"],
        ),
        (
            "python",
            "python3",
            "echo 3.9",
            ["apt-get install python3.11 python3.11-venv", "dnf install python3.12", "brew install python@3.12"],
        ),
        (
            "python",
            "python3",
            NO_VENV,
            ["apt-get install python3.12-venv", "dnf install python3-libs", "brew reinstall python@3.12"],
        ),
        (
            "java",
            "java",
            None,
            [
                "apt-get install openjdk-17-jre-headless",
                "dnf install java-21-openjdk-headless",
                "brew install openjdk@17",
            ],
        ),
        (
            "cargo",
            "cargo",
            None,
            [
                "apt-get install rustup && rustup default stable",
                "dnf install rustup && rustup-init -y",
                "brew install rustup && rustup default stable",
            ],
        ),
        ("cc", "cc", None, ["apt-get install build-essential", "dnf install gcc", "xcode-select --install"]),
    ],
)
def test_each_part_names_its_package_on_each_system(
    machine: Machine, part: str, program: str, body: str | None, packages: list[str]
) -> None:
    if body is None:
        machine.remove(program)
    else:
        machine.add(program, body)
    lines = machine.check(part).stdout.splitlines()
    for system, package in zip(("Debian, Ubuntu", "Fedora", "macOS"), packages, strict=True):
        assert any(line.strip().startswith(f"{system}:") and package in line for line in lines)


def test_a_newer_python_beside_an_old_one_is_suggested(machine: Machine) -> None:
    machine.add("python3", "echo 3.9")
    machine.add("python3.13", "echo 3.13")
    assert "run make with PYTHON=python3.13" in machine.check("python").stdout


def test_only_the_named_parts_are_checked(machine: Machine) -> None:
    machine.remove("java")
    assert machine.check("python", "cargo", "cc").returncode == 0


def test_the_required_rust_version_is_that_of_the_kernels_manifest(machine: Machine, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "tools").mkdir(parents=True)
    (checkout / "kernel").mkdir()
    (checkout / "kernel" / "Cargo.toml").write_text('[package]\nname = "k"\nrust-version = "1.96"\n')
    script = shutil.copy(SCRIPT, checkout / "tools")
    assert SHELL is not None
    result = subprocess.run(
        [SHELL, str(script), "cargo"], env={"PATH": str(machine.folder)}, capture_output=True, text=True, check=False
    )
    assert result.stdout.startswith("cargo: found 1.95.0; Rust 1.96 or newer is needed")


def test_an_unknown_part_is_a_usage_error(machine: Machine) -> None:
    assert machine.check("perl").returncode == 2
