"""Two builds of the node in one interleaved run: SSB, TPC-H and pgbench.

    PYTHONPATH=benchmarks .venv-analytics/bin/python -m versions --before OLD/aerostat --binary target/dist/aerostat

Both nodes stand at once, with the same rows. Each query, and each of pgbench's scripts, is measured on one and then on
the other, and who is first changes each time; for pgbench both are started several times, since two starts of one build
differ by some hundredths. A query's time is its median, as a client sees it; a suite's ratio is the
geometric mean of the queries' ratios, before over after: above 1 the new build is faster.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time

import oltp
import psycopg
from analytics import node
from analytics.suite import suite
from servers import Aerostat


def options():
    parser = argparse.ArgumentParser(prog="versions", description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, help="the build that is compared with")
    parser.add_argument("--binary", default="target/dist/aerostat", help="the build that is measured")
    parser.add_argument("--suites", default="ssb,tpch")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=11, help="of each query")
    parser.add_argument("--seconds", type=int, default=5, help="of each turn of pgbench; 0 for none")
    parser.add_argument("--turns", type=int, default=3, help="of pgbench, for each script and start")
    parser.add_argument("--starts", type=int, default=4, help="of both nodes, for pgbench")
    return parser.parse_args()


@contextlib.contextmanager
def nodes(binaries, *flags):
    """One of each build, in folders of their own."""
    with contextlib.ExitStack() as stack:
        both = []
        for binary in binaries:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            server = Aerostat(binary, folder, *flags)
            stack.callback(server.stop)
            both.append(server)
        yield both


def in_turns(both, runs):
    """Each of both in each run; who is first changes."""
    for run in range(runs):
        for at in (0, 1) if run % 2 == 0 else (1, 0):
            yield run, at, both[at]


def timed(cursor, sql):
    started = time.perf_counter()
    cursor.execute(sql, prepare=False).fetchall()
    return (time.perf_counter() - started) * 1000


def analytics(name, binaries, arguments):
    """By query, the medians of both in milliseconds."""
    with nodes(binaries, "--threads", str(arguments.threads)) as both:
        loaded = suite(name, arguments.scale)
        queries = loaded.queries(binaries[1])
        cursors = []
        for binary, server in zip(binaries, both):
            node.load(binary, server, loaded, "column", 2)
            node.rest(server, True)
            connection = psycopg.connect(server.url(node.TENANT), autocommit=True, cursor_factory=psycopg.RawCursor)
            cursors.append(connection.cursor(binary=True))
        for query in queries:
            times = [[], []]
            for run, at, cursor in in_turns(cursors, arguments.runs + 2):
                took = timed(cursor, query.sql)
                if run >= 2:
                    times[at].append(took)
            yield query.id, [statistics.median(own) for own in times]


SCRIPTS = [("select-only", "prepared"), ("select-only", "simple"), ("tpcb-like", "prepared"), ("simple-update", "prepared")]


def transactions(binaries, arguments):
    """By script, the medians of both in transactions a second: over the starts, of each one's turns."""
    medians = {script: [[], []] for script in SCRIPTS}
    for _ in range(arguments.starts):
        with nodes(binaries) as both:
            for server in both:
                server.psql(f"CREATE DATABASE {oltp.DATABASE} WITH (durability = 'none')", "aerostat")
                oltp.subprocess.run([oltp.PROGRAMS / "pgbench", *server.address(), "-i", "-q", "-s", "10", oltp.DATABASE],
                                    check=True, capture_output=True)
            for (script, mode), of_starts in medians.items():
                rates = [[], []]
                for _, at, server in in_turns(both, arguments.turns):
                    rates[at].append(oltp.pgbench(server, [], script=script, mode=mode, clients=4, seconds=arguments.seconds)[0])
                for of_start, own in zip(of_starts, rates):
                    of_start.append(statistics.median(own))
    for (script, mode), of_starts in medians.items():
        yield f"pgbench {script}, {mode}", [statistics.median(own) for own in of_starts]


def main():
    arguments = options()
    binaries = [arguments.before, arguments.binary]
    for name in filter(None, arguments.suites.split(",")):
        ratios = []
        for query, (before, after) in analytics(name, binaries, arguments):
            ratios.append(before / after)
            print(f"  {query:6} {before:8.2f} {after:8.2f} ms {ratios[-1]:6.2f}", flush=True)
        print(f"{name:32} {statistics.geometric_mean(ratios):6.3f} times as fast", flush=True)
    if arguments.seconds:
        for script, (before, after) in transactions(binaries, arguments):
            print(f"{script:32} {before:9,.0f} {after:9,.0f} a second {after / before:6.3f} times as fast", flush=True)


if __name__ == "__main__":
    main()
