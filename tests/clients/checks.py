"""What the Python client programs share: named checks, and how they are told.

A program prints `ok NAME` for each check that held and `failed NAME` with the reason
for each that did not, and ends with 1 if any did not. It is told the server by its URL.
"""

import sys
import traceback

_checks = []


def check(function):
    """Registers a check; its name is the function's."""
    _checks.append(function)
    return function


def equal(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def raises(error, function):
    """Calls the function, which must raise this error, and gives the error."""
    try:
        function()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def run(*arguments):
    failed = 0
    for function in _checks:
        try:
            function(*arguments)
            print(f"ok {function.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"failed {function.__name__}\n{traceback.format_exc()}", flush=True)
    sys.exit(1 if failed else 0)
