"""What it costs to give frozen rows' memory back and to take it again: SSB, one node.

    PYTHONPATH=benchmarks .venv-analytics/bin/python -m evictions --binary target/dist/aerostat

All rows are frozen and have images. Measured are the 13 queries in memory; giving all back and taking it
again, with what readers by key wait meanwhile; each query right after everything was evicted, beside a program that reads the same
number of bytes from the images in order; and all queries with memory for a share of the frozen bytes. Every answer is
compared with that in memory. The images are dropped from the system's page cache before a query, or not.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import tempfile
import threading
import time

import psycopg
from analytics import node
from analytics.suite import suite
from servers import Aerostat

MIB = 1 << 20


def options():
    parser = argparse.ArgumentParser(prog="evictions", description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/dist/aerostat")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--runs", type=int, default=7, help="of each query and state")
    parser.add_argument("--shares", default="50,25", help="of the frozen bytes, in percent")
    return parser.parse_args()


def timed(work):
    started = time.perf_counter()
    result = work()
    return (time.perf_counter() - started) * 1000, result


class Bench:
    def __init__(self, arguments, server, folder):
        self.arguments, self.server = arguments, server
        self.admin = psycopg.connect(server.url("aerostat"), autocommit=True)
        self.connection = psycopg.connect(server.url(node.TENANT), autocommit=True, cursor_factory=psycopg.RawCursor)
        self.cursor = self.connection.cursor(binary=True)
        self.images = sorted(pathlib.Path(folder).glob("**/checkpoint/*.img"))

    def query(self, sql):
        return timed(lambda: self.cursor.execute(sql, prepare=False).fetchall())

    def one(self, sql):
        return self.cursor.execute(sql, prepare=False).fetchone()

    def resident(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) << 10

    def limit(self, size):
        """Of the database; what is beyond is evicted at once."""
        self.admin.execute(f"ALTER DATABASE {node.TENANT} SET (memory_max = '{size}kB')")

    def evict_all(self):
        took, _ = timed(lambda: self.limit(1024))
        self.limit(64 << 20)
        return took

    def frozen(self):
        used, evicted = self.one("SELECT sum(bytes_frozen - bytes_evicted)::bigint, sum(bytes_evicted)::bigint FROM aerostat.tables")
        return used, evicted

    def read_back(self):
        return self.one(f"SELECT bytes_read_back_total FROM aerostat.evictions WHERE database = '{node.TENANT}'")[0]

    def forget_files(self):
        """Takes the images out of the system's page cache."""
        for image in self.images:
            with open(image, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read_in_order(self, size):
        """Reads so many bytes of the images, one after the other."""
        buffer = bytearray(4 * MIB)
        left = size
        for image in self.images:
            with open(image, "rb", buffering=0) as file:
                while left > 0 and (count := file.readinto(memoryview(buffer)[:min(left, len(buffer))])):
                    left -= count
        return size - left


@contextlib.contextmanager
def readers(bench, threads=2):
    """Read single rows by key, from memory; what each waited, in milliseconds."""
    waits, stop = [], threading.Event()

    def read():
        with psycopg.connect(bench.server.url(node.TENANT), autocommit=True) as connection:
            while not stop.is_set():
                took, _ = timed(lambda: connection.execute("SELECT v FROM points WHERE k = %s", [7]).fetchall())
                waits.append(took)

    running = [threading.Thread(target=read) for _ in range(threads)]
    for thread in running:
        thread.start()
    yield waits
    stop.set()
    for thread in running:
        thread.join()


def p99(waits):
    return statistics.quantiles(waits, n=100)[98]


def main():
    arguments = options()
    loaded = suite("ssb", arguments.scale)
    queries = loaded.queries(arguments.binary)
    with tempfile.TemporaryDirectory() as folder:
        server = Aerostat(arguments.binary, folder, "--freezer", "0%")
        try:
            node.load(arguments.binary, server, loaded, "column", 2)
            node.rest(server, True)
            with psycopg.connect(server.url(node.TENANT), autocommit=True) as connection:
                connection.execute("CREATE TABLE points (k int PRIMARY KEY, v int)")
                connection.execute("INSERT INTO points SELECT n, n FROM generate_series(1, 1000) AS s(n)")
                connection.execute("CHECKPOINT")
            measure(Bench(arguments, server, folder), queries)
        finally:
            server.stop()


def measure(bench, queries):
    runs = bench.arguments.runs
    whole, _ = bench.frozen()
    answers = {query.id: bench.query(query.sql)[1] for query in queries}
    print(f"frozen {whole / MIB:.0f} MiB in {len(bench.images)} images")

    given, taken, freed = [], [], []
    texts = "SELECT count(*), " + ", ".join(f"max({column})" for (column,) in bench.cursor.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'lineorder'::regclass AND attnum > 0").fetchall()) + " FROM lineorder"
    # Beside the same scans in memory.
    with readers(bench) as waits:
        for _ in range(3 * runs):
            bench.query(texts)
    calm = p99(waits)
    with readers(bench) as waits:
        for _ in range(runs):
            bench.query(texts)
            bench.evict_all()
            bench.query(texts)
    # By itself, as the scan in memory is.
    for _ in range(runs):
        before = bench.resident()
        given.append(bench.evict_all())
        freed.append(before - bench.resident())
        taken.append(bench.query(texts)[0])
    in_memory = statistics.median(bench.query(texts)[0] for _ in range(runs))
    size = statistics.median(freed) / (1 << 30)
    print(f"given back {size * 1024:.0f} MiB in {statistics.median(given):.1f} ms, {statistics.median(given) / size:.0f} ms a GiB")
    print(f"taken again by a scan of all columns in {statistics.median(taken):.0f} ms, {in_memory:.0f} in memory, "
          f"{(statistics.median(taken) - in_memory) / size:.0f} more a GiB, from the system's cache")
    print(f"readers by key meanwhile: p99 {p99(waits):.2f} ms, {calm:.2f} beside scans in memory, {p99(waits) / calm:.2f} times")

    print(f"\n{'query':6} {'memory':>8} {'evicted':>8} {'MiB':>6} {'in order':>8} {'times':>6} {'cold':>8} {'in order':>8} {'times':>6}")
    ratios = {False: [], True: []}
    for query in queries:
        warm = statistics.median(bench.query(query.sql)[0] for _ in range(runs))
        line = f"{query.id:6} {warm:8.1f}"
        for cold in (False, True):
            own, reads = [], []
            for _ in range(runs):
                bench.evict_all()
                if cold:
                    bench.forget_files()
                before = bench.read_back()
                took, answer = bench.query(query.sql)
                own.append(took)
                size = bench.read_back() - before
                assert answer == answers[query.id], query.id
                if cold:
                    bench.forget_files()
                reads.append(timed(lambda: bench.read_in_order(size))[0])
            own, read = statistics.median(own), statistics.median(reads)
            # What the query does beside reading, it does in memory, too.
            ratios[cold].append((own - warm) / read)
            line += f" {own:8.1f}" + (f" {size / MIB:6.1f}" if not cold else "") + f" {read:8.1f} {ratios[cold][-1]:6.2f}"
        print(line, flush=True)
    for cold, which in ((False, "from the system's cache"), (True, "from the disk")):
        print(f"evicted, less what it takes in memory, by reading as many bytes in order, {which}: {statistics.geometric_mean(ratios[cold]):.2f}")

    for share in (int(share) for share in bench.arguments.shares.split(",")):
        bench.evict_all()
        beside = bench.one(f"SELECT bytes FROM aerostat.tenants WHERE name = '{node.TENANT}'")[0] - bench.frozen()[0]
        bench.limit((whole * share // 100 + beside + 8 * MIB) >> 10)
        times = {query.id: [] for query in queries}
        before = bench.read_back()
        for _ in range(runs):
            for query in queries:
                took, answer = bench.query(query.sql)
                assert answer == answers[query.id], query.id
                times[query.id].append(took)
        total = sum(statistics.median(own) for own in times.values())
        read = (bench.read_back() - before) / runs
        resident, evicted = bench.frozen()
        print(f"memory for {share}% of the frozen bytes: {total:.0f} ms for all queries, {read / MIB:.0f} MiB read back for each round of them; "
              f"{resident / MIB:.0f} MiB in memory, {evicted / MIB:.0f} evicted")
    bench.limit(64 << 20)
    for query in queries:
        bench.query(query.sql)
    total = sum(statistics.median(bench.query(query.sql)[0] for _ in range(runs)) for query in queries)
    print(f"memory for all: {total:.0f} ms for all queries")


if __name__ == "__main__":
    main()
