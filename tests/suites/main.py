"""Foreign test suites against PostgreSQL 15 and Aerostat. `scripts/suites --help`.

A test that passes on PostgreSQL and fails on Aerostat must be in the suite's list of known failures
(`known/NAME.txt`), or the run fails. Tests of the list that pass now are told, so that it can be cut.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import sys
import tempfile
import time

import psycopg

import servers

from . import classify, results, sources
from .node_suite import NodePostgres
from .pgx_suite import Pgx
from .processes import Watch
from .python_suites import Asyncpg, Django, SqlAlchemy
from .regress_suite import Regress

SUITES = [Asyncpg, Django, SqlAlchemy, Pgx, NodePostgres, Regress]
DATABASE = "suite"
SECONDS_MAX = {"asyncpg": 900, "django": 3600, "sqlalchemy": 1800, "pgx": 1500, "node-postgres": 300, "postgresql": 3600}
# Six times what the longest takes on two cores: a slow machine is no reason to fail.
SAMPLE_SECONDS_MAX = 300
SHOWN_MAX = 40
# Their archives leave the tests out, and Debian's source packages are no longer served.
WITHOUT_TESTS = {"psycopg": "its archive on PyPI has no tests, and Debian's source package cannot be had"}


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="scripts/suites", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(suite.name for suite in SUITES)}; all without")
    parser.add_argument("--sample", action="store_true", help="a few minutes of them")
    parser.add_argument("--write", action="store_true", help="write the lists of known failures anew")
    parser.add_argument("--groups", action="store_true", help="count failures by what the server said")
    parser.add_argument("--judge", action="store_true", help="run nothing: judge the outcomes that --keep has of another run")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs and outcomes")
    return parser.parse_args(arguments)


def prepared(server, suite):
    """Makes the databases that suites expect to be there."""
    with psycopg.connect(server.dsn(server.database), autocommit=True) as connection:
        for name in (DATABASE, "postgres"):
            try:
                connection.execute(f"CREATE DATABASE {name}")
            except psycopg.errors.DuplicateDatabase:
                pass
    if hasattr(suite, "prepare"):
        with psycopg.connect(server.dsn(DATABASE), autocommit=True) as connection:
            suite.prepare(connection)


def on_server(suite, make, folder, options):
    """A suite's outcomes on a server of its own, and the ends of that server."""
    work = folder / suite.name / make.name
    work.mkdir(parents=True, exist_ok=True)
    for name in ("lines.jsonl", "log"):
        (work / name).unlink(missing_ok=True)
    with make() as server, Watch(server) as watch:
        prepared(server, suite)
        seconds = SAMPLE_SECONDS_MAX if options.sample else SECONDS_MAX[suite.name]
        return suite.run(server, DATABASE, work, options.sample, seconds), watch.ends


def both(suite, folder, options):
    """PostgreSQL's outcomes, Aerostat's, and the ends of Aerostat's node."""
    if getattr(suite, "together", False):
        work = folder / suite.name
        work.mkdir(parents=True, exist_ok=True)
        (work / "log").unlink(missing_ok=True)
        with servers.Postgres() as postgres, servers.Aerostat() as aerostat, Watch(aerostat) as watch:
            for server in (postgres, aerostat):
                prepared(server, suite)
            seconds = SAMPLE_SECONDS_MAX if options.sample else SECONDS_MAX[suite.name]
            return *suite.run_both(postgres, aerostat, work, options.sample, seconds), watch.ends
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(on_server, suite, make, folder, options) for make in (servers.Postgres, servers.Aerostat)]
        (wanted, _), (got, ends) = (job.result() for job in jobs)
    return wanted, got, ends


def outcomes(suite, folder, options):
    """The outcomes of a run, which are kept, or of one that was kept."""
    paths = [folder / suite.name / f"{name}.jsonl" for name in ("postgresql", "aerostat")]
    if options.judge:
        return *(results.Results().read(path) for path in paths), []
    wanted, got, ends = both(suite, folder, options)
    for path, found in zip(paths, (wanted, got)):
        found.write(path)
    return wanted, got, ends


def judged(suite, folder, options):
    """The verdict on a suite, and the ends of Aerostat's node.

    A sample with new failures is run a second time, and those that do not come again are told and do
    not count: the sample is a gate of every change, the full run is the one that looks for races.
    """
    wanted, got, ends = outcomes(suite, folder, options)
    verdict = results.Verdict(suite.name, wanted, got)
    if verdict.unexplained and options.sample and not options.judge:
        wanted, got, more = outcomes(suite, folder, options)
        verdict, ends = verdict.confirmed(results.Verdict(suite.name, wanted, got)), ends + more
    return verdict, ends


def report(verdict, ends, options):
    print(f"\n== {verdict.name}", flush=True)
    for test in verdict.unsteady:
        print(f"fails in one of two runs: {test}")
    for test in verdict.unexplained[:SHOWN_MAX]:
        print(f"fails: {test}: {classify.group(verdict.message(test))}")
    if len(verdict.unexplained) > SHOWN_MAX:
        print(f"… and {len(verdict.unexplained) - SHOWN_MAX} more")
    for test in verdict.mended[:SHOWN_MAX]:
        print(f"passes now, and is in known/{verdict.name}.txt: {test}")
    if len(verdict.mended) > SHOWN_MAX:
        print(f"… and {len(verdict.mended) - SHOWN_MAX} more that pass now")
    for log in ends:
        print(f"the node ended:\n{log}")
    if options.groups:
        groups = collections.Counter(classify.group(verdict.message(test)) for test in verdict.failures)
        for name, count in groups.most_common(SHOWN_MAX):
            print(f"{count:6} {name}")


def rewritten(verdict, sample):
    """The list with the reasons that were there, and drafts of those that were not."""
    reasons = {test: verdict.known.get(test) or classify.reason(verdict.message(test)) for test in verdict.failures}
    if sample:
        reasons = {**verdict.known, **reasons}
        reasons = {test: why for test, why in reasons.items() if test not in verdict.aerostat.passed()}
    results.write_known(verdict.name, reasons)


def table(rows):
    heads = ["suite", "PostgreSQL passes", "Aerostat passes", "unexplained", "listed, pass now"]
    widths = [max(len(str(row[at])) for row in [heads, *rows]) for at in range(len(heads))]
    for row in [heads, *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)))


def main(arguments):
    options = parsed(arguments)
    chosen = [suite() for suite in SUITES if not options.suites or suite.name in options.suites]
    folder = options.keep.resolve() if options.keep else pathlib.Path(tempfile.mkdtemp(prefix="aerostat-suites-"))
    rows, failed = [], False
    if not servers.Postgres.installed():
        print(f"skipped: foreign suites (no {servers.PROGRAMS}/initdb; scripts/setup postgres)")
        return 0
    if not options.suites:
        for name, why in WITHOUT_TESTS.items():
            print(f"skipped: {name}'s tests ({why})")
    for suite in chosen:
        started = time.monotonic()
        try:
            if not options.judge:
                suite.get()
        except sources.Missing as missing:
            print(f"skipped: {suite.name}'s tests ({missing})", flush=True)
            continue
        verdict, ends = judged(suite, folder, options)
        report(verdict, ends, options)
        print(f"-- {suite.name}: {time.monotonic() - started:.0f} s", flush=True)
        if options.write:
            rewritten(verdict, options.sample)
        rows.append(verdict.row())
        failed |= bool(verdict.unexplained or ends) or not verdict.postgres.passed()
    print()
    table(rows)
    return int(failed and not options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
