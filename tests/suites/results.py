"""Outcomes of tests, and the lists of those that are known to fail on Aerostat.

A list has a line `test id<TAB>reason` for each test that passes on PostgreSQL and fails here; tests that
are lines of a script stand together, as `script:12,15,27`. A reason is `absent: …`, a feature that Aerostat
does not have, `follows: …`, where a test before was refused one, `order: …`, of rows without ORDER BY, `limit: …`,
which docs/sql.md tells, or `defect: …`, which is to be mended.
"""

import collections
import json
import pathlib
import re

KNOWN = pathlib.Path(__file__).parent / "known"
LINES = re.compile(r"(\w+):([\d,]+)")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Results:
    """Outcome and message by test id, of one suite on one server."""

    def __init__(self):
        self.outcomes = {}
        self.messages = {}

    def add(self, test, outcome, message=""):
        # A test that fails in its tear-down, after it has passed, has failed.
        if self.outcomes.get(test) == FAILED:
            return
        self.outcomes[test] = outcome
        if message:
            self.messages[test] = message

    def read(self, path):
        """Takes the lines that a runner wrote, one for each test."""
        if not path.exists():
            return self
        for line in path.read_text(errors="replace").splitlines():
            try:
                each = json.loads(line)
            except ValueError:
                continue  # The last line of a runner that was killed.
            self.add(each["id"], each["outcome"], each.get("message", ""))
        return self

    def write(self, path):
        lines = [json.dumps({"id": test, "outcome": outcome, "message": self.messages.get(test, "")}) for test, outcome in self.outcomes.items()]
        path.write_text("\n".join(lines) + "\n")

    def renamed(self, pattern, replacement):
        """The same with other names, where a runner puts the server's version into them."""
        twin = Results()
        for test, outcome in self.outcomes.items():
            twin.add(re.sub(pattern, replacement, test), outcome, self.messages.get(test, ""))
        return twin

    def passed(self):
        return {test for test, outcome in self.outcomes.items() if outcome == PASSED}


class Verdict:
    """What a suite says: PostgreSQL is the control, the list says which failures are known."""

    def __init__(self, name, postgres, aerostat):
        self.name = name
        self.postgres = postgres
        self.aerostat = aerostat
        self.known = read_known(name)
        self.failures = sorted(postgres.passed() - aerostat.passed())
        self.unexplained = [test for test in self.failures if test not in self.known]
        self.mended = sorted(test for test in self.known if test in aerostat.passed())
        self.unsteady = []

    def confirmed(self, again):
        """The verdict of a second run, without the new failures that only one of the two had."""
        again.unsteady = sorted(set(self.unexplained) ^ set(again.unexplained))
        again.failures = [test for test in again.failures if test not in again.unsteady]
        again.unexplained = [test for test in again.unexplained if test not in again.unsteady]
        return again

    def message(self, test):
        """Why a test failed: by its own message, or that of its file or app, which could not be set up."""
        names = (test, test.split("::")[0], test.split(".")[0])
        return next((self.aerostat.messages[name] for name in names if name in self.aerostat.messages), "did not run")

    def row(self):
        """The suite's line in the table."""
        wanted = len(self.postgres.passed())
        return [self.name, wanted, wanted - len(self.failures), len(self.unexplained), len(self.mended)]


def read_known(name):
    path = KNOWN / f"{name}.txt"
    known = {}
    if path.exists():
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                tests, reason = line.split("\t", 1)
                known.update(dict.fromkeys(expanded(tests), reason))
    return known


def expanded(tests):
    """The tests of one line of a list."""
    lines = LINES.fullmatch(tests)
    return [f"{lines[1]}:{line}" for line in lines[2].split(",")] if lines else [tests]


def write_known(name, reasons):
    """Writes a list anew; `reasons` by test id."""
    KNOWN.mkdir(exist_ok=True)
    together, lines = collections.defaultdict(list), []
    for test, reason in reasons.items():
        if line := LINES.fullmatch(test):
            together[line[1], reason].append(int(line[2]))
        else:
            lines.append(f"{test}\t{reason}")
    for (script, reason), numbers in together.items():
        lines.append(f"{script}:{','.join(map(str, sorted(numbers)))}\t{reason}")
    (KNOWN / f"{name}.txt").write_text("\n".join(sorted(lines)) + "\n")
