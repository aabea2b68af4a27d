"""Django's runner with a limit for each test, which writes a line of JSON for each."""

import json
import os
import signal
import unittest

from django.test.runner import DiscoverRunner

SECONDS_MAX = int(os.environ.get("SUITE_SECONDS", "30"))


def write(test, outcome, message=""):
    with open(os.environ["SUITE_LINES"], "a") as out:
        out.write(json.dumps({"id": test, "outcome": outcome, "message": message[-600:]}) + "\n")


class Late(Exception):
    """A test ran for longer than its limit."""


def late(*_):
    raise Late(f"timeout: more than {SECONDS_MAX} s")


class LinesResult(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        signal.signal(signal.SIGALRM, late)
        signal.alarm(SECONDS_MAX)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        write(test.id(), "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        write(test.id(), "failed", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        write(test.id(), "failed", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        write(test.id(), "skipped")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            write(test.id(), "failed", self._exc_info_to_string(err, test))


class LinesRunner(DiscoverRunner):
    def get_resultclass(self):
        return LinesResult

    def setup_databases(self, **options):
        try:
            return super().setup_databases(**options)
        except BaseException as error:
            # All tests of the app fail with it: its name is theirs up to the first dot.
            write(os.environ["SUITE_APP"], "failed", f"set-up: {type(error).__name__}: {error}")
            raise
