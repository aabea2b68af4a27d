"""Where a query's time goes: a table of classes of functions (`perf`), with the bytes of the columns that it reads.

    PYTHONPATH=benchmarks .venv-analytics/bin/python -m analytics.profile --data DIR --binary target/release/aerostat

The folder is one that `analytics --data` has made. The query runs again and again over one connection, its rows in
binary, one query thread and the client on a core each. The binary must have its symbols, as `make dist` leaves them
in; `perf` is Debian's linux-perf.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile
import time

import psycopg
from servers import Aerostat, on_cores

from . import node
from .suite import suite

# The first that matches a function counts.
CLASSES = [
    ("codes, by vector instructions", r"aerostat_segment::(kernel::simd|input::condition|frozen::(pack|blocks))"),
    ("rest of storage", r"aerostat_(segment|storage|txn|memory|types)"),
    ("sides, groups, aggregates", r"aerostat_query::star|groups_accumulator|group_values|GroupValues|NullState"
                                  r"|arrow_(arith|select|ord|cast)|aerostat_semantics|physical_expr::expressions"),
    ("memory", r"\bmi_|_mi_|mem(set|cpy|move|cmp)|clear_page|alloc::raw_vec"),
    ("kernel", r"\[k\]"),
    ("protocol, planning, tasks", r""),
]


def options():
    parser = argparse.ArgumentParser(prog="analytics.profile", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=["ssb", "tpch"], default="ssb")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--queries", default="Q1.1,Q2.1,Q3.1,Q4.1", help="one of each of SSB's flights unless given")
    parser.add_argument("--data", required=True, help="a folder that `analytics --data` has made")
    parser.add_argument("--binary", required=True, help="the node, with symbols")
    parser.add_argument("--seconds", type=float, default=5, help="that each query is sampled")
    return parser.parse_args()


def column_bytes(connection, sql):
    """Bytes in storage of the columns that a text names, by table."""
    wanted = set(re.findall(r"[a-z]+_[a-z0-9]+", sql.lower()))
    sizes = "SELECT table_name, column_name, sum(bytes)::bigint FROM aerostat.segment_columns GROUP BY 1, 2"
    found = {}
    for table, column, size in connection.execute(sizes).fetchall():
        if column in wanted:
            found[table] = found.get(table, 0) + size
    return found


def repeat(connection, sql, seconds):
    """Milliseconds of each run."""
    cursor, runs = connection.cursor(binary=True), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        cursor.execute(sql, prepare=True)
        runs.append((time.perf_counter() - started) * 1000)
    return runs


def sampled(pid, seconds, run):
    """Shares of samples by class while `run` runs."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "perf.data")
        record = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-p", str(pid), "-o", data,
                                   "--", "sleep", str(seconds)], stderr=subprocess.DEVNULL)
        run()
        record.wait()
        report = ["perf", "report", "-i", data, "--no-children", "--sort", "sym", "-g", "none", "--stdio"]
        lines = subprocess.run(report, check=True, capture_output=True, text=True).stdout.splitlines()
    shares = dict.fromkeys((name for name, _ in CLASSES), 0.0)
    for line in lines:
        if match := re.match(r"\s+([\d.]+)%\s+(.*)", line):
            name = next(name for name, pattern in CLASSES if re.search(pattern, match[2]))
            shares[name] += float(match[1])
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def main():
    arguments = options()
    queries = [query for query in suite(arguments.suite, arguments.scale).queries(arguments.binary)
               if query.id in arguments.queries.split(",")]
    cores = sorted(os.sched_getaffinity(0))
    with on_cores(cores[:1]):
        server = Aerostat(arguments.binary, arguments.data, "--threads", "1")
    os.sched_setaffinity(0, cores[-1:])
    try:
        node.rest(server, True)
        with psycopg.connect(server.url(node.TENANT), autocommit=True) as connection:
            names = [name for name, _ in CLASSES]
            print("| query | ms | " + " | ".join(names) + " | MB | GB/s |")
            print("|" + "---|" * (len(names) + 4))
            for query in queries:
                repeat(connection, query.sql, 1)
                runs = []
                shares = sampled(server.process.pid, arguments.seconds,
                                 lambda: runs.extend(repeat(connection, query.sql, arguments.seconds)))
                median = sorted(runs)[len(runs) // 2]
                size = sum(column_bytes(connection, query.sql).values())
                parts = " | ".join(f"{share * 100:.0f}%" for share in shares.values())
                print(f"| {query.id} | {median:.1f} | {parts} | {size / 1e6:.1f} | {size / 1e6 / median:.1f} |",
                      flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
