#!/usr/bin/env python3
"""SSB beside DuckDB: the same rows, all 13 answers compared, both times printed.

    benchmarks/ssb_duckdb.py --scale 1 --binary target/release/aerostat

Starts a node of its own, loads SSB into one tenant, exports every table by
COPY TO (CSV) and loads that into DuckDB, so both evaluate the rows that the node
says it has. Times are medians of --runs runs after one warm-up run; the node is
measured through psql's protocol, DuckDB in process, which favours DuckDB by a
connection's round trip. Needs psql and `pip install duckdb`.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import duckdb

TABLES = ["dates", "customer", "supplier", "part", "lineorder"]
TENANT = "ssb"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """A node of this script's own, ended when the script ends."""

    def __init__(self, binary, folder):
        self.port, http = free_port(), free_port()
        self.http = f"http://127.0.0.1:{http}"
        self.url = f"postgres://aerostat@127.0.0.1:{self.port}"
        self.log = open(os.path.join(folder, "node.log"), "w")
        flags = ["--data", os.path.join(folder, "data"), "--listen", f"127.0.0.1:{self.port}",
                 "--http", f"127.0.0.1:{http}"]
        self.process = subprocess.Popen([binary, "serve", *flags], stderr=self.log)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"the node ended; see {self.log.name}")
            try:
                urllib.request.urlopen(self.http + "/healthz", timeout=1)
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("the node does not answer")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)

    def psql(self, *arguments, text=None):
        command = ["psql", "-X", "-q", "-A", "-t", "-F", "|", "-v", "ON_ERROR_STOP=1", f"{self.url}/{TENANT}", *arguments]
        return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def queries(binary):
    """The 13 queries as the binary itself runs them."""
    listed = subprocess.run([binary, "bench", "queries"], check=True, capture_output=True, text=True).stdout
    return [(entry["id"], entry["sql"]) for entry in json.loads(listed)]


def export(node, folder):
    for table in TABLES:
        path = os.path.join(folder, f"{table}.csv")
        node.psql("-c", f"\\copy {table} TO '{path}' WITH (FORMAT csv, HEADER)")


def load_duckdb(node, folder, threads):
    connection = duckdb.connect(config={"threads": threads})
    for table in TABLES:
        columns = node.psql("-c", f"""
            SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
            FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0""").strip()
        connection.execute(f"CREATE TABLE {table} ({columns})")
        path = os.path.join(folder, f"{table}.csv")
        connection.execute(f"COPY {table} FROM '{path}' (FORMAT csv, HEADER)")
        # COPY writes char(n) padded, as PostgreSQL does; DuckDB's VARCHAR would compare the blanks.
        texts = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = ? AND data_type = 'VARCHAR'",
            [table]).fetchall()
        trimmed = ", ".join(f"rtrim({name}) AS {name}" for (name,) in texts)
        if trimmed:
            connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * REPLACE ({trimmed}) FROM {table}")
    return connection


def normal(value):
    return "" if value is None else str(value).rstrip(" ")


def node_rows(node, sql):
    return sorted(tuple(cell.rstrip(" ") for cell in line.split("|")) for line in node.psql("-c", sql).splitlines())


def duckdb_rows(connection, sql):
    return sorted(tuple(normal(cell) for cell in row) for row in connection.execute(sql).fetchall())


def node_times(node, sql, runs):
    """Milliseconds of each run, as psql's \\timing sees them, in one session."""
    script = "\\timing on\n\\o /dev/null\n" + (sql + ";\n") * (runs + 1)
    shown = node.psql(text=script)
    times = [float(line.split()[1]) for line in shown.splitlines() if line.startswith("Time:")]
    assert len(times) == runs + 1, shown
    return times[1:]


def duckdb_times(connection, sql, runs):
    times = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        connection.execute(sql).fetchall()
        times.append((time.perf_counter() - started) * 1000)
    return times[1:]


def show_memory(node):
    print("\nmemory of each table (bytes in use / raw fixed-width and string bytes)")
    rows = node.psql("-c", "SELECT table_name, rows, bytes_used, bytes_raw FROM aerostat.tables ORDER BY bytes_used DESC")
    for line in rows.splitlines():
        name, count, used, raw = line.split("|")
        print(f"  {name:<10} {int(count):>12,} rows {int(used):>15,} {int(raw):>15,}  {int(used) / max(int(raw), 1):.2f}")


def run(arguments, folder):
    node = Node(arguments.binary, folder)
    try:
        started = time.perf_counter()
        command = [arguments.binary, "load", "ssb", "--scale", str(arguments.scale), "--tenant", TENANT,
                   "--layout", arguments.layout, "--url", node.url]
        subprocess.run(command, check=True)
        print(f"loaded in {time.perf_counter() - started:.1f} s; exporting for DuckDB {duckdb.__version__}")
        export(node, folder)
        connection = load_duckdb(node, folder, os.cpu_count())
        wrong = 0
        totals = [0.0, 0.0]
        print(f"{'query':<6} {'rows':>6} {'aerostat ms':>12} {'duckdb ms':>12} {'ratio':>6}  same")
        for name, sql in queries(arguments.binary):
            ours, theirs = node_rows(node, sql), duckdb_rows(connection, sql)
            same = ours == theirs
            wrong += not same
            times = (statistics.median(node_times(node, sql, arguments.runs)),
                     statistics.median(duckdb_times(connection, sql, arguments.runs)))
            totals = [total + each for total, each in zip(totals, times)]
            print(f"{name:<6} {len(ours):>6} {times[0]:>12.1f} {times[1]:>12.1f} {times[0] / times[1]:>6.2f}  {'yes' if same else 'NO'}")
        print(f"{'all':<6} {'':>6} {totals[0]:>12.1f} {totals[1]:>12.1f} {totals[0] / totals[1]:>6.2f}")
        show_memory(node)
        if arguments.users:
            subprocess.run([arguments.binary, "bench", "ssb", "--tenant", TENANT, "--users", str(arguments.users),
                            "--duration", str(arguments.duration), "--url", node.url], check=True)
        print(f"{13 - wrong} of 13 answers are DuckDB's")
        return wrong
    finally:
        node.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/aerostat")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--layout", default="column")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--users", type=int, default=0, help="then drive this many users")
    parser.add_argument("--duration", type=float, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aerostat-ssb-") as folder:
        sys.exit(run(arguments, folder) > 0)


if __name__ == "__main__":
    main()
