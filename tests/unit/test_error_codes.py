"""The reader of error codes finds a code whichever way it takes to its error, and says where it cannot."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.error_codes import Reader
from tests.support.for_each import for_each

HELPERS = """
    from pvdm.errors import InputError, VerificationError
    LATE = "too_late"
    def refused(code, message):
        return VerificationError(code, message)
    def require(found, wanted, code):
        if found != wanted:
            raise refused(code, "other")
"""

WAYS = {
    "at the class": ('raise InputError("at_class", "x")', {("at_class", 2)}),
    "by keyword": ('raise InputError(message="x", code="by_keyword")', {("by_keyword", 2)}),
    "through an imported helper": ('raise refused("by_helper", "x")', {("by_helper", 3)}),
    "through two helpers, as the third argument": ('require(1, 2, "by_two")', {("by_two", 3)}),
    "through a module": ('raise helpers.refused("by_module", "x")', {("by_module", 3)}),
    "as a constant": ('raise InputError(OWN, "x")', {("own_constant", 2)}),
    "as an imported constant": ('raise InputError(LATE, "x")', {("too_late", 2)}),
    "as a choice": ('raise InputError("one" if True else "two", "x")', {("one", 2), ("two", 2)}),
    "as a local name": ('code = "one"\nif 1:\n    code = "two"\nraise InputError(code, "x")', {("one", 2), ("two", 2)}),
    "as a part of a pair": ('got, code = 1, "paired"\nraise InputError(code, str(got))', {("paired", 2)}),
    "as a row of a table": (
        'for code, got in (("first", 1), ("second", 2)):\n    require(got, 3, code)',
        {("first", 3), ("second", 3)},
    ),
    "as a value of a constant table": ('raise InputError(TABLE[1], "x")', {("in_table", 2), ("there_too", 2)}),
    "as a pattern": ('raise InputError(f"bad_{1}_thing", "x")', {("bad_[a-z]+_thing", 2)}),
    "in an error of its own": ('raise OwnError("derived", "x")', {("derived", 7)}),
    "through a method": ('Desk()._refuse("lost")', set()),
}


def read(body: str) -> Reader:
    module = f"""
from pvdm.errors import InputError, UnavailableError
from sample import helpers
from sample.helpers import LATE, refused, require
OWN: str = "own_constant"
TABLE = {{1: "in_table", 2: "there_too"}}
class OwnError(UnavailableError):
    pass
class Desk:
    def _refuse(self, code):
        raise InputError(code, "x")
    def ask(self):
        self._refuse("by_method")
def run():
{textwrap.indent(body, "    ")}
"""
    return Reader({"sample.helpers": textwrap.dedent(HELPERS), "sample.desk": module})


@for_each("way", WAYS)
def test_a_code_is_found(way: str) -> None:
    body, expected = WAYS[way]
    found = {(each.pattern, each.exit_code) for each in read(body).raised}
    assert found == expected | {("by_method", 2)}


@pytest.mark.parametrize(
    "body",
    [
        'raise InputError("a" + "b", "x")',
        'raise InputError(*("a", "x"))',
        'raise InputError(unheard_of, "x")',
        'code, _ = run()\nraise InputError(code, "x")',
        'for code in run():\n    raise InputError(code, "x")',
        'raise InputError(table["a"], "x")',
    ],
)
def test_a_code_that_cannot_be_read_is_reported(body: str) -> None:
    assert len(read(body).unread) == 1


def test_a_code_that_is_passed_on_is_no_new_code() -> None:
    reader = read('error = run()\nraise InputError(error.code, "x")')
    assert (reader.passed_on, reader.unread) == ({"sample.desk"}, set())


def test_an_exit_code_of_its_own_counts() -> None:
    text = "from pvdm.errors import InputError\nclass Own(InputError):\n    exit_code = 9\nraise Own('own', 'x')\n"
    assert {each.exit_code for each in Reader({"sample": text}).raised} == {9}


def test_a_default_is_read_where_no_code_is_given() -> None:
    text = """
from pvdm.errors import InputError
def refused(message, code="by_default"):
    return InputError(code, message)
def named(message, *, code="by_name"):
    return InputError(code, message)
raise refused("x")
raise named("x")
"""
    assert {each.pattern for each in Reader({"sample": text}).raised} == {"by_default", "by_name"}
