"""A plugin of pytest that writes a line of JSON for each test, as soon as it is over.

What is written stays if the run is killed, so that it can be taken up behind the last test.
"""

import json
import os

import pytest

OUT = os.environ.get("SUITE_LINES")
DONE = set()


def pytest_configure(config):
    config.option.maxfail = 0
    if OUT and os.path.exists(OUT):
        for line in open(OUT):
            DONE.add(json.loads(line)["id"])


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.nodeid not in DONE]


def write(**line):
    with open(OUT, "a") as out:
        out.write(json.dumps(line) + "\n")


def pytest_collectreport(report):
    if report.failed:
        write(id=report.nodeid, outcome="failed", message=str(report.longrepr)[-600:])


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "skipped"
        write(id=report.nodeid, outcome=outcome, message=shortened(report) if outcome == "failed" else "")


def shortened(report):
    """Beginning and end of what went wrong: the error of the server stands in one of them."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line for line in text.splitlines() if "Error" in line or "errors." in line][:2]
    return "\n".join([*lines, text[-300:]])[:900]
