"""TPC-H on MariaDB with more or less memory: queries that the source of the design used."""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import threading
import time

import psycopg
from analytics import node
from analytics.suite import suite

from servers import Aerostat

from .programs import MIB, Broker, MariaDb, account

#: Those of its experiments in flight: the others take minutes on MariaDB.
QUERIES = ["2", "3", "6", "11", "16", "17", "19", "20", "22"]
#: Keys as `aerostat load tpch` has them, and the indexes that joins need.
KEYS = {
    "region": ["PRIMARY KEY (r_regionkey)"],
    "nation": ["PRIMARY KEY (n_nationkey)", "KEY (n_regionkey)"],
    "part": ["PRIMARY KEY (p_partkey)"],
    "supplier": ["PRIMARY KEY (s_suppkey)", "KEY (s_nationkey)"],
    "partsupp": ["PRIMARY KEY (ps_partkey, ps_suppkey)", "KEY (ps_suppkey)"],
    "customer": ["PRIMARY KEY (c_custkey)", "KEY (c_nationkey)"],
    "orders": ["PRIMARY KEY (o_orderkey)", "KEY (o_custkey)"],
    "lineitem": ["PRIMARY KEY (l_orderkey, l_linenumber)", "KEY (l_partkey, l_suppkey)", "KEY (l_suppkey)"],
}
#: What the server has beside its pool, as the kernel counts.
BESIDE = 110 * MIB


def loaded(arguments, folder):
    """A folder with the data of a MariaDB that has TPC-H, the queries by number, and the bytes of its tables."""
    tables = suite("tpch", arguments.scale)
    (folder / "from").mkdir()
    source = Aerostat(arguments.binary, str(folder / "from"))
    (folder / "db").mkdir()
    server = MariaDb("db", folder / "db", 1 << 30)
    try:
        node.load(arguments.binary, source, tables, "column", 2)
        with psycopg.connect(source.url(node.TENANT)) as rows, server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("USE d")
            for table, keys in KEYS.items():
                copy(rows, cursor, table, keys, folder / "rows")
            cursor.execute("SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = 'd'")
            size = int(cursor.fetchone()[0])
    finally:
        source.stop()
        server.stop()
    shutil.rmtree(folder / "from")
    queries = {query.id.lower().lstrip("q0"): query.sql for query in tables.queries(arguments.binary)}
    return folder / "db", {name: queries[name] for name in QUERIES}, size


def copy(rows, cursor, table, keys, file):
    columns = rows.execute(node.COLUMNS, [table]).fetchall()
    lines = ", ".join([f"{name} {kind.replace('character varying', 'varchar')}" for name, kind in columns] + keys)
    cursor.execute(f"CREATE TABLE {table} ({lines}) ENGINE=InnoDB CHARSET=latin1")
    with open(file, "wb") as out, rows.cursor().copy(f"COPY {table} TO STDOUT") as texts:
        for text in texts:
            out.write(text)
    cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table}")
    cursor.execute(f"ANALYZE TABLE {table}")
    file.unlink()


def run(server, sql):
    began = time.perf_counter()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("USE d")
        cursor.execute(sql)
        cursor.fetchall()
    return time.perf_counter() - began


def medians(server, queries, runs):
    """Of each query, after one run that is not counted."""
    taken = {name: [] for name in queries}
    for at in range(runs + 1):
        for name, sql in queries.items():
            took = run(server, sql)
            if at > 0:
                taken[name].append(took)
    return {name: statistics.median(times) for name, times in taken.items()}


class Machine:
    """A control group as the memory of a machine, and a disk that its kernel pages to."""

    def __init__(self, folder, size):
        self.group = pathlib.Path("/sys/fs/cgroup/memory/aerostat-balloons")
        self.swap = folder / "swap"
        self.group.mkdir(exist_ok=True)
        subprocess.run(["fallocate", "-l", str(size), self.swap], check=True)
        self.swap.chmod(0o600)
        subprocess.run(["mkswap", self.swap], check=True, capture_output=True)
        subprocess.run(["swapon", self.swap], check=True)

    def holds(self, pid):
        (self.group / "cgroup.procs").write_text(str(pid))

    def has(self, size):
        for _ in range(100):
            # The kernel pages as much as it likes at a time.
            with contextlib.suppress(OSError):
                (self.group / "memory.limit_in_bytes").write_text(str(size))
                return
            time.sleep(0.1)
        raise SystemExit("the kernel does not page the server out")

    def stop(self):
        (self.group / "memory.limit_in_bytes").write_text("-1")
        subprocess.run(["swapoff", self.swap], check=True)
        self.group.rmdir()


def can_page():
    return os.geteuid() == 0 and pathlib.Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists()


def paging(arguments, folder, stack):
    home, queries, size = loaded(arguments, folder)
    ample = size * 5 // 4
    shares = (25, 50, 125)
    print(f"TPC-H at scale {arguments.scale:g}, {size // MIB} MiB with indexes; medians of {arguments.runs} runs, seconds")
    print(f"{'pool':>24}" + "".join(f"{'Q' + name:>8}" for name in queries), flush=True)

    def shown(name, times):
        print(f"{name:>24}" + "".join(f"{times[query]:>8.3f}" for query in queries), flush=True)

    for share in shares:
        server = MariaDb("db", home, size * share // 100)
        shown(f"{share}% of all, fixed", medians(server, queries, arguments.runs))
        server.stop()
    few = size // 2
    server = MariaDb("db", home, ample)
    broker = Broker(arguments.binary, folder, 16 << 30, "--policy", "static")
    broker.adapt(server, "100MB", "8GB")
    medians(server, queries, 1)
    less = account(server.process.pid) - few // MIB
    moved = broker.move("db", less)
    pool = server.pool()
    print(f"the broker has left {pool // MIB} MiB of pool after {moved:.1f} s")
    ballooned = medians(server, queries, arguments.runs)
    shown(f"{less} MiB, by the broker", ballooned)
    broker.stop()
    server.stop()
    server = MariaDb("db", home, pool)
    same = medians(server, queries, arguments.runs)
    server.stop()
    shown(f"{pool // MIB} MiB of pool, fixed", same)
    if not can_page():
        print("skipped: paging by the kernel (no control groups of version 1, or not root)")
        return
    machine = Machine(folder, 2 * ample)
    stack.callback(machine.stop)
    server = MariaDb("db", home, ample)
    stack.callback(server.stop)
    machine.holds(server.process.pid)
    medians(server, queries, 1)
    machine.has(less * MIB)
    paged = medians(server, queries, arguments.runs)
    shown(f"{less} MiB, by the kernel", paged)

    def beside(one, other):
        return statistics.geometric_mean(one[name] / other[name] for name in queries)

    print(f"by the broker {beside(ballooned, same):.2f} of a server with that pool, Q19 {ballooned['19'] / same['19']:.2f}; "
          f"by the kernel {beside(paged, ballooned):.2f} times the broker's, Q19 {paged['19'] / ballooned['19']:.2f}")


class Client:
    """Runs all queries over and over, and notes when each was done."""

    def __init__(self, server, queries):
        self.server, self.queries, self.done = server, queries, []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopping.is_set():
            for sql in self.queries.values():
                run(self.server, sql)
                self.done.append(time.time())

    def stop(self):
        self.stopping.set()
        self.thread.join()


def shift(arguments, folder, stack):
    home, queries, size = loaded(arguments, folder)
    (folder / "db2").mkdir()
    shutil.copytree(home / "data", folder / "db2/data")
    ample, few = size * 5 // 4, size // 2
    servers = [MariaDb("db", home, ample), MariaDb("db2", folder / "db2", ample)]
    for server in servers:
        stack.callback(server.stop)
    broker = Broker(arguments.binary, folder, 16 << 30, "--policy", "static")
    stack.callback(broker.stop)
    for server in servers:
        broker.adapt(server, "100MB", "8GB")
    large, small = ((bytes_ + BESIDE) // MIB for bytes_ in (ample, few))
    broker.move("db2", small)
    broker.move("db", large)
    clients = [Client(server, queries) for server in servers]
    stack.callback(lambda: [client.stop() for client in clients])
    print(f"TPC-H at scale {arguments.scale:g} on two servers, {size // MIB} MiB each; pools of {ample // MIB} and {few // MIB} MiB, {arguments.extra} s each")
    print(f"{'pools':>14} {'move s':>8} {'db q/s':>8} {'db2 q/s':>8}", flush=True)
    for large_at, took in ((0, 0.0), (1, None), (0, None)):
        if took is None:
            took = broker.move(servers[1 - large_at].name, small) + broker.move(servers[large_at].name, large)
        # Pools are warm in the second half.
        time.sleep(arguments.extra / 2)
        began = time.time()
        time.sleep(arguments.extra / 2)
        rates = [sum(at >= began for at in client.done) / (time.time() - began) for client in clients]
        names = "large, small" if large_at == 0 else "small, large"
        print(f"{names:>14} {took:>8.1f} {rates[0]:>8.2f} {rates[1]:>8.2f}", flush=True)
