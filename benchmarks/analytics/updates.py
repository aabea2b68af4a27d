"""The queries of SSB before, while and after rows of the fact table are updated, beside DuckDB with the same updates.

    PYTHONPATH=benchmarks .venv-analytics/bin/python -m analytics.updates --binary target/dist/aerostat

Each engine has its phases alone: `quiet`, over frozen rows; `updating`, while a share of the rows is updated by key
each second, and once more at the end of that; `after`, from some seconds after the last update on. Then the rows are
frozen again (`VACUUM FREEZE`), and one UPDATE changes every 37th row: `bulk`, right after it, and `bulk, later`.
A number is the geometric mean of the queries' medians in milliseconds, as a client sees them with prepared
statements; DuckDB is in the process of the client.

The node gets a statement for each row, a hundred in a transaction. DuckDB, which would look through all rows for each
key, gets as many keys at once as there are in a tenth of a second.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import statistics
import tempfile
import threading
import time

import duckdb
import psycopg
import pyarrow
from servers import Aerostat

from . import node
from .suite import suite

# Keys in a transaction of the node's.
AT_ONCE = 100
# Of a second, for DuckDB.
STEP_S = 0.1

ROW = "UPDATE lineorder SET lo_quantity = %s WHERE lo_orderkey = %s AND lo_linenumber = %s"
# 2.7% of the rows.
BULK = "UPDATE lineorder SET lo_quantity = lo_quantity % 50 + 1 WHERE lo_orderkey % 37 = 0"
KEYS = ("UPDATE lineorder SET lo_quantity = keys.q FROM keys "
        "WHERE lo_orderkey = keys.a AND lo_linenumber = keys.b")
ALL = "SELECT lo_orderkey, lo_linenumber FROM lineorder"
STATE = """SELECT rows, rows_frozen, rows_dead, bytes_used >> 20 AS mib, rows_to_merge, rows_due
FROM aerostat.tables WHERE table_name = 'lineorder'"""
# Of binaries that do not tell what the freezer has to do.
STATE_OLD = """SELECT rows, rows_frozen, rows_dead, bytes_used >> 20 AS mib FROM aerostat.tables
WHERE table_name = 'lineorder'"""


def options():
    parser = argparse.ArgumentParser(prog="analytics.updates", description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--binary", default="target/dist/aerostat", help="the node that is measured")
    parser.add_argument("--engines", default="aerostat,duckdb")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each engine")
    parser.add_argument("--share", type=float, default=0.001, help="of the rows, that is updated each second")
    parser.add_argument("--updating", type=float, default=20, help="seconds of updates")
    parser.add_argument("--pause", type=float, default=10, help="seconds between the last update and `after`")
    parser.add_argument("--runs", type=int, default=15, help="of each query in each phase")
    parser.add_argument("--data", help="a folder to keep data in for the next time; else a temporary one")
    return parser.parse_args()


def geometric_mean_ms(queries, run, runs=None, until=None):
    """All queries in turn, so often, or until a point in time."""
    times = [[] for _ in queries]
    while (runs is None or len(times[0]) < runs) and (until is None or time.perf_counter() < until):
        for query, own in zip(queries, times):
            started = time.perf_counter()
            run(query.sql)
            own.append((time.perf_counter() - started) * 1000)
    return statistics.geometric_mean(statistics.median(own) for own in times)


class Node:
    """Aerostat, over the wire."""

    def __init__(self, server):
        self.url = server.url(node.TENANT)
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.cursor = self.connection.cursor(binary=True)

    def run(self, sql):
        return self.cursor.execute(sql, prepare=True).fetchall()

    def keys(self):
        return self.connection.execute(ALL).fetchall()

    def bulk(self):
        self.connection.execute(BULK)

    def freeze(self):
        self.connection.execute("VACUUM FREEZE lineorder")

    def state(self):
        for text in (STATE, STATE_OLD):
            with contextlib.suppress(psycopg.Error):
                cursor = self.connection.execute(text)
                names = [column.name for column in cursor.description]
                return ", ".join(f"{name} {value}" for name, value in zip(names, cursor.fetchone()))
        return ""

    @contextlib.contextmanager
    def updating(self, keys, per_second):
        """Another process updates meanwhile, whose work is not the client's."""
        stop, done = multiprocessing.Event(), multiprocessing.Value("q", 0)
        process = multiprocessing.Process(target=update_node, args=(self.url, keys, per_second, stop, done))
        process.start()
        yield done
        stop.set()
        process.join()


def update_node(url, keys, per_second, stop, done):
    with psycopg.connect(url) as connection:
        started = time.perf_counter()
        while not stop.is_set():
            with connection.cursor() as cursor:
                cursor.executemany(ROW, [(random.randint(1, 50), *key) for key in random.sample(keys, AT_ONCE)])
            connection.commit()
            done.value += AT_ONCE
            time.sleep(max(0, started + done.value / per_second - time.perf_counter()))


class Duck:
    """DuckDB, in process."""

    def __init__(self, tables, threads):
        self.connection = duckdb.connect(config={"threads": threads})
        for table in tables:
            self.connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM read_parquet('{table.file}')")

    def run(self, sql):
        return self.connection.sql(sql).to_arrow_table()

    def keys(self):
        return self.connection.sql(ALL).fetchall()

    def bulk(self):
        self.connection.execute(BULK)

    def freeze(self):
        self.connection.execute("CHECKPOINT")

    def state(self):
        return ""

    @contextlib.contextmanager
    def updating(self, keys, per_second):
        stop, done = threading.Event(), multiprocessing.Value("q", 0)
        arguments = (self.connection.cursor(), keys, per_second, stop, done)
        thread = threading.Thread(target=update_duck, args=arguments)
        thread.start()
        yield done
        stop.set()
        thread.join()


def update_duck(cursor, keys, per_second, stop, done):
    started = time.perf_counter()
    while not stop.is_set():
        some = random.sample(keys, int(per_second * STEP_S))
        first, second = zip(*some)
        values = [random.randint(1, 50) for _ in some]
        cursor.register("keys", pyarrow.table({"a": first, "b": second, "q": values}))
        cursor.execute(KEYS)
        done.value += len(some)
        time.sleep(max(0, started + done.value / per_second - time.perf_counter()))


def phases(engine, queries, arguments):
    """Yields phases with milliseconds and a remark."""
    keys = engine.keys()
    per_second = len(keys) * arguments.share

    def measured(name, **bounds):
        ms = geometric_mean_ms(queries, engine.run, **bounds)
        return name, ms, engine.state()

    geometric_mean_ms(queries, engine.run, runs=3)
    yield measured("quiet", runs=arguments.runs)
    with engine.updating(keys, per_second) as done:
        started = time.perf_counter()
        middle, end = started + arguments.updating / 2, started + arguments.updating
        yield measured("updating", until=middle)
        yield measured("updating, later", until=end)
        rate = done.value / (time.perf_counter() - started)
    ended = time.perf_counter()
    yield (f"({rate:,.0f} rows a second)", None, "")
    yield measured("after, at once", runs=3)
    geometric_mean_ms(queries, engine.run, until=ended + arguments.pause)
    yield measured("after", runs=arguments.runs)
    engine.freeze()
    yield measured("frozen again", runs=arguments.runs)
    engine.bulk()
    yield measured("bulk", runs=3)
    ended = time.perf_counter()
    geometric_mean_ms(queries, engine.run, until=ended + 2 * arguments.pause)
    yield measured("bulk, later", runs=arguments.runs)


def show(name, found):
    print(f"{name}")
    for phase, ms, remark in found:
        print(f"  {phase:24} {'' if ms is None else f'{ms:7.1f} ms'}  {remark}", flush=True)


def main():
    arguments = options()
    with contextlib.ExitStack() as stack:
        folder = arguments.data or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        ssb = suite("ssb", arguments.scale)
        queries = ssb.queries(arguments.binary)
        server = Aerostat(arguments.binary, folder, "--threads", str(arguments.threads))
        try:
            node.load(arguments.binary, server, ssb, "column", 2)
            node.rest(server, True)
            tables = node.tables(server, ssb, folder)
            if "aerostat" in arguments.engines:
                show("aerostat", phases(Node(server), queries, arguments))
        finally:
            server.stop()
        if "duckdb" in arguments.engines:
            show("duckdb", phases(Duck(tables, arguments.threads), queries, arguments))


if __name__ == "__main__":
    main()
