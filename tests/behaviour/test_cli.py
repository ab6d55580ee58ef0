"""The command line: every error is an envelope with an exit code and no traceback, and docs/cli.md shows the help."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from pvdm import __version__
from pvdm.cli import main
from pvdm.cli.app import pvdm
from pvdm.cli.common.options import pick_engine
from pvdm.errors import InputError, PvdmError, UnavailableError, VerificationError
from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
ENVELOPE = {"code", "reason", "message", "expected", "got", "hint", "details"}
INTERRUPTED = "error: interrupted before the end (interrupted)\nhint: run the same command again"
Capture = pytest.CaptureFixture[str]


def commands(group: click.Group = pvdm, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every group and command below `group`, each with the words that call it."""
    yield above, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name), command


COMMANDS = [words for words, command in commands() if not isinstance(command, click.Group)]
GROUPS = [words for words, command in commands() if isinstance(command, click.Group)]


def function_raising(error: BaseException) -> Callable[..., Any]:
    def stand_in(*_words: object, **_named: object) -> Any:
        raise error

    return stand_in


@pytest.fixture
def fail_demo_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `pvdm demo` fail with the error it is called with."""
    monkeypatch.delenv("PVDM_DEBUG", raising=False)
    return lambda error: monkeypatch.setattr("pvdm.cli.demo.demo.play", function_raising(error))


def test_the_version_is_the_package_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pvdm {__version__}\n"


@for_each("words", [words for words, _ in commands()], ids=" ".join)
def test_every_command_has_help_with_examples(words: tuple[str, ...], capsys: Capture) -> None:
    assert main([*words, "--help"]) == 0
    assert "Examples:" in capsys.readouterr().out


@for_each("words", COMMANDS, ids=" ".join)
def test_every_command_takes_json(words: tuple[str, ...], capsys: Capture) -> None:
    main([*words, "--help"])
    assert "--json" in capsys.readouterr().out


@for_each("words", COMMANDS, ids=" ".join)
def test_a_usage_error_of_every_command_is_an_envelope_under_json(words: tuple[str, ...], capsys: Capture) -> None:
    assert main([*words, "--json", "--no-such-option"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["reason"], set(error)) == ("usage", ENVELOPE)


@for_each("words", GROUPS, ids=lambda words: " ".join(words) or "pvdm")
def test_a_group_without_a_command_is_a_usage_error(words: tuple[str, ...], capsys: Capture) -> None:
    assert main(list(words)) == 2
    assert capsys.readouterr().err.startswith("error: a command is missing (usage)\nhint: `pvdm")


def test_the_garbage_collector_is_adjusted_only_in_a_process_of_the_command_itself() -> None:
    program = "import gc, sys; from pvdm.cli import main; main({}); print(gc.get_threshold()[0], gc.get_freeze_count())"
    own, within = (
        subprocess.run(
            [sys.executable, "-c", program.format(words), "--version"], capture_output=True, text=True, check=True
        ).stdout.split("\n")[1]
        for words in ("", "['--version']")
    )
    assert (own.split()[0], int(own.split()[1]) > 0, within) == ("20000", True, "700 0")


def test_an_unknown_command_is_a_usage_error(capsys: Capture) -> None:
    assert main(["publsh"]) == 2
    assert capsys.readouterr().err.startswith("error: no such command")


def test_the_hint_of_a_usage_error_names_the_commands_help(capsys: Capture) -> None:
    main(["demo", "--rows", "many"])
    assert capsys.readouterr().err.endswith("hint: `pvdm demo --help` shows how to call it\n")


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InputError("cast_refused", "no"), 2),
        (VerificationError("coverage_probe_failed", "no"), 3),
        (KeyboardInterrupt(), 4),
        (UnavailableError("kernel_missing", "no"), 7),
        (PvdmError("bug", "no"), 1),
        (ZeroDivisionError("no"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_outcome_has_its_exit_code(
    error: BaseException, exit_code: int, fail_demo_with: Callable[[BaseException], None], capsys: Capture
) -> None:
    fail_demo_with(error)
    assert main(["demo"]) == exit_code


def test_an_error_for_people_has_expected_got_details_and_hint(
    fail_demo_with: Callable[[BaseException], None], capsys: Capture
) -> None:
    fail_demo_with(
        InputError("cast_refused", "no cast", expected="long", got="double", hint="widen it", source_column="[red]")
    )
    main(["demo"])
    assert capsys.readouterr().err.endswith(
        "error: no cast (cast_refused)\n  expected long, got double\n  source column: [red]\nhint: widen it\n"
    )


def test_an_error_for_people_leaves_standard_output_empty(
    fail_demo_with: Callable[[BaseException], None], capsys: Capture
) -> None:
    fail_demo_with(InputError("cast_refused", "no cast"))
    main(["demo"])
    assert capsys.readouterr().out == ""


def test_an_error_under_json_is_the_errors_own_envelope(
    fail_demo_with: Callable[[BaseException], None], capsys: Capture
) -> None:
    error = InputError("cast_refused", "no cast", expected="long", got="double", column="amount")
    fail_demo_with(error)
    main(["demo", "--json"])
    assert json.loads(capsys.readouterr().out) == {"error": error.to_json()}


def test_a_bug_shows_no_traceback(fail_demo_with: Callable[[BaseException], None], capsys: Capture) -> None:
    fail_demo_with(ZeroDivisionError("by nothing"))
    main(["demo"])
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert "a bug: unexpected ZeroDivisionError: by nothing" in shown


def test_a_bug_shows_its_traceback_on_request(
    fail_demo_with: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_demo_with(ZeroDivisionError("by nothing"))
    monkeypatch.setenv("PVDM_DEBUG", "1")
    main(["demo"])
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_is_reported_in_one_sentence(
    fail_demo_with: Callable[[BaseException], None], capsys: Capture
) -> None:
    fail_demo_with(KeyboardInterrupt())
    main(["demo"])
    assert f"{INTERRUPTED}\n" in capsys.readouterr().err


def interrupt(program: str, *before: Path) -> tuple[int, str]:
    """Runs a Python program until it prints `ready`, sends Ctrl-C, and returns the exit code and standard error."""
    run = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env(*before)
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        time.sleep(0.3)
        run.send_signal(signal.SIGINT)
        _, shown = run.communicate(timeout=60)
    finally:
        run.kill()
    return run.returncode, shown


def env(*before: Path) -> dict[str, str]:
    """The environment of a child process, with the folders `before` first on Python's path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, before), *sys.path]))}


# A study far too long to end by itself; it prints `ready` when its imports are done. For the first array PyArrow
# imports pandas, and a Ctrl-C that comes during this import is lost.
STUDY = """
import sys, pyarrow, pvdm.cli.demo.evaluate
pyarrow.array([0.5])
print('ready', flush=True)
sys.exit(pvdm.cli.main(
    ['eval', 'collision', '--multisets', '1000000', '--engine', 'reference', '--out', '/dev/null']
))
"""


def test_ctrl_c_ends_a_real_run_with_code_4_and_no_traceback() -> None:
    code, shown = interrupt(STUDY)
    assert (code, shown.strip()) == (4, INTERRUPTED)


def test_ctrl_c_while_the_program_starts_ends_with_code_4_and_no_traceback(tmp_path: Path) -> None:
    # A pyarrow that takes a minute to import stands in for a slow disk.
    (tmp_path / "pyarrow.py").write_text("import time; print('ready', flush=True); time.sleep(60)")
    code, shown = interrupt("import sys; from pvdm.cli import main; sys.exit(main(['demo']))", tmp_path)
    assert (code, shown.strip()) == (4, INTERRUPTED)


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    program = "import sys, pvdm.cli; print(sorted({'click', 'pathlib', 'pyarrow', 'rich'} & sys.modules.keys()))"
    # Without `site`, which may import much itself.
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=env())
    assert done.stdout == "[]\n"


def test_help_and_version_load_no_command() -> None:
    for words in (["--version"], ["--help"]):
        loaded = "print({'pyarrow', 'sqlalchemy'} & sys.modules.keys())"
        program = f"import sys; from pvdm.cli import main; main({words}); {loaded}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env())
        assert done.stdout.endswith("set()\n")


def test_ctrl_c_leaves_no_files_of_the_demo_behind(
    fail_demo_with: Callable[[BaseException], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fail_demo_with(KeyboardInterrupt())
    main(["demo"])
    assert list(tmp_path.iterdir()) == []


# --- standard output that cannot be written ---

VALIDATE = f"validate {shlex.quote(str(ROOT / 'examples' / 'orders.yaml'))}"
# Commands that print something to standard output.
PRINTING = [VALIDATE, f"{VALIDATE} --json", "--help", "--version"]


def run_redirected(words: str, redirection: str) -> subprocess.CompletedProcess[str]:
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f"{shlex.quote(sys.executable)} -m pvdm.cli {words} {redirection}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=env())


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_standard_output_that_cannot_be_written_is_output_not_writable(words: str, redirection: str) -> None:
    done = run_redirected(words, redirection)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: standard output cannot be written (output_not_writable)"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_name_that_would_steer_a_terminal_is_shown_with_escapes(more: list[str], capsys: Capture) -> None:
    name = "no\x1b[2J\u202e\x9b\nerror: fine.yaml"
    assert main(["validate", name, *more]) == 2
    output = "".join(capsys.readouterr())
    assert not [each for each in output if not each.isprintable() and each != "\n"]
    assert not [line for line in output.splitlines() if line.startswith("error: fine")]
    if more:
        assert name in json.loads(output)["error"]["message"]
    else:
        assert "no\\x1b[2J\\u202e\\x9b\\nerror: fine.yaml" in output


def test_letters_that_the_outputs_encoding_lacks_are_shown_as_escapes() -> None:
    for words, code in ((["--help"], 0), (["validate", "no…file.yaml", "--json"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "pvdm.cli", *words],
            capture_output=True,
            check=False,
            env={**env(), "PYTHONIOENCODING": "latin-1"},
        )
        output = done.stdout.decode("latin-1")
        assert (done.returncode, b"bug" in done.stderr) == (code, False)
        assert "\\u2026" in output
        assert code == 0 or "no…file.yaml" in json.loads(output)["error"]["message"]


@pytest.mark.parametrize("words", PRINTING)
def test_a_pipe_that_its_reader_closed_changes_no_outcome(words: str) -> None:
    done = run_redirected(words, '| true; exit "${PIPESTATUS[0]}"')
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_keeps_its_exit_code_if_the_reader_closed_the_pipe() -> None:
    done = run_redirected("demo --json --no-such-option", '| true; exit "${PIPESTATUS[0]}"')
    assert (done.returncode, done.stderr) == (2, "")


def test_an_error_that_standard_output_cannot_take_goes_to_standard_error() -> None:
    done = run_redirected("demo --json --no-such-option", "> /dev/full")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: no such option '--no-such-option' (usage)")


def test_standard_error_that_cannot_be_written_changes_no_outcome() -> None:
    assert run_redirected(VALIDATE, "2> /dev/full").returncode == 0


def test_a_full_disk_elsewhere_is_not_blamed_on_standard_output(
    fail_demo_with: Callable[[BaseException], None], capsys: Capture
) -> None:
    fail_demo_with(OSError(errno.ENOSPC, "no space"))
    assert main(["demo", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "folder_not_writable"


def test_a_missing_kernel_that_was_asked_for_is_unavailable(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(
        "pvdm.cli.common.options.kernel_engine", function_raising(UnavailableError("kernel_missing", "no kernel"))
    )
    assert main(["eval", "collision", "--engine", "kernel", "--out", os.devnull, "--json"]) == 7
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "kernel_missing"


def test_a_missing_kernel_is_a_notice_if_any_engine_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(
        "pvdm.cli.common.options.kernel_engine", function_raising(UnavailableError("kernel_missing", "no kernel"))
    )
    assert pick_engine("auto").name == "reference"
    assert capsys.readouterr().err.startswith("notice: no kernel; the Python reference computes")


def test_the_package_can_be_run_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pvdm.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=env(),
    )
    assert done.stdout == f"pvdm {__version__}\n"


@for_each("words", [words for words, _ in commands()], ids=lambda words: " ".join(words) or "pvdm")
def test_the_docs_show_the_help_of_every_command(
    words: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main([*words, "--help"])
    shown = capsys.readouterr().out
    title = " ".join(["pvdm", *words])
    documented = re.search(
        rf"^## `{re.escape(title)}`\n.*?```text\n(.*?)```",
        (ROOT / "docs" / "cli.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert documented is not None
    assert documented[1] == shown


def test_the_docs_show_no_other_command() -> None:
    titles = re.findall(r"^## `(pvdm.*)`$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert sorted(titles) == sorted(" ".join(["pvdm", *words]) for words, _ in commands())
