"""Loads the producer's function that a text `module:function` names."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import types
from typing import TYPE_CHECKING, Final

from pvdm.errors import Code

if TYPE_CHECKING:
    from pvdm.durable.coordinator import Build

_NAMES_MAX: Final = 10  # names of functions in a hint


def load_job(text: str) -> Build:
    """The function that `module:function` names; the module may be in the current folder."""
    module, sign, name = text.partition(":")
    if not sign or not module or not name.isidentifier():
        raise Code.JOB_INVALID("the job's name cannot be read", expected="module:function", got=ascii(text)[:120])
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # SystemExit: a script that runs at its import may end the process
        message = f"the module of {ascii(text)[1:-1][:120]} cannot be imported"
        got, hint = f"{type(error).__name__}: {error}"[:200], _import_hint(module, name, here)
        raise Code.JOB_INVALID(message, reason="job_not_importable", got=got, hint=hint) from error
    if not callable(function):
        got = type(function).__name__ if function else "none"
        hint = _functions_hint(module, name)
        raise Code.JOB_INVALID(f"{module} has no such function", expected=name, got=got, hint=hint)
    build: Build = function
    return build


def _import_hint(module: str, function: str, here: str) -> str:
    """The next step: leave .py out of the name, or change to the folder of the module."""
    if module.endswith(".py"):
        return f"name the module without .py: {module.removesuffix('.py').replace('/', '.')}:{function}"
    return f"it was looked for in {here} and among the installed modules; change to the folder that holds it"


def _functions_hint(module: str, wanted: str) -> str:
    """A hint with the names of the module's functions, the names most like the wanted one first."""
    functions = (name for name, value in vars(sys.modules[module]).items() if isinstance(value, types.FunctionType))
    names = difflib.get_close_matches(wanted, [name for name in functions if name[0] != "_"], _NAMES_MAX, cutoff=0)
    return f"its functions: {', '.join(names)}" if names else f"{module} has no function"
