"""Memory that moves between database servers, beside servers of a fixed size.

    scripts/setup analytics participants
    PYTHONPATH=benchmarks .venv-analytics/bin/python -m balloons --binary target/release/aerostat

collocated  Four MariaDB servers with a base load on a fifth of their rows each, and a broker. One after the other gets an
            extra load on all rows for a while ("Application Level Ballooning", figure 10). When does the broker notice,
            when has the server the memory, and when has it the throughput of a server that has memory for all rows?
overhead    The same queries on a server that gave memory back down to a size, and on one that was started with it
            (figure 6): pages that had to be read for each query, and time.
moves       How long 2 GB take that a MariaDB or a JVM gives to the broker, as the kernel counts, and how long until
            it has them again in use (table 2). `--move` says how much.
tiers       A request runs queries on a MariaDB and then evaluates XPath expressions on a document of auctions in a JVM,
            both of which want the same memory: of fixed sizes, and with memory moved between the two halves (table 1).

Each needs some minutes. Servers read their files around the system's page cache. Everything is private and on loopback, and
stopped and removed at the end.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

import pymysql

from servers import Server

MIB = 1 << 20
ROW_BYTES = 1600
SERVERS = 4
#: Queries of one call: short enough that loads end soon, long enough that clients cost little.
QUERIES = 200
#: Of all rows, as most of TPC-H's queries are, in a request of tiers.
SCANS = 20
PROCEDURE = """CREATE PROCEDURE d.some(first INT, ids INT, queries INT)
BEGIN
    DECLARE n INT DEFAULT 0;
    WHILE n < queries DO
        SET n = n + 1, @id = first + FLOOR(RAND() * ids);
        SELECT pad INTO @pad FROM d.t WHERE id = @id;
    END WHILE;
END"""


def options():
    parser = argparse.ArgumentParser(prog="balloons", description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", default=["collocated", "overhead"])
    parser.add_argument("--binary", default="target/release/aerostat")
    parser.add_argument("--mib", type=int, default=320, help="of rows in each server")
    parser.add_argument("--extra", type=int, default=60, help="seconds of extra load on each server")
    parser.add_argument("--move", type=int, default=2048, help="MiB that are moved by moves")
    parser.add_argument("--jvm", default="G1,ZGC,Shenandoah", help="collectors in moves")
    parser.add_argument("--runs", type=int, default=5, help="of overhead, the two by turns")
    parser.add_argument("--out", help="a file for throughput by second, as JSON")
    return parser.parse_args()


def program(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        raise SystemExit(f"there is no {name}: scripts/setup participants")
    return found


class MariaDb(Server):
    """A server in a folder of its own, with a buffer pool of so many bytes."""

    kind = "mariadb"

    @property
    def reached(self):
        return f"socket={self.socket},user=root"

    def __init__(self, name, folder, pool):
        self.name, self.folder = name, folder
        self.socket = folder / "socket"
        self.user = ["--user=root"] if os.geteuid() == 0 else []
        if not (folder / "data").exists():
            install = [program("mariadb-install-db"), "--no-defaults", f"--datadir={folder}/data", *self.user]
            install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            subprocess.run(install, check=True, capture_output=True)
        self.start(pool)

    def start(self, pool):
        command = [program("mariadbd"), "--no-defaults", f"--datadir={self.folder}/data", f"--socket={self.socket}"]
        command += ["--skip-networking", "--skip-log-bin", "--innodb-flush-method=O_DIRECT", *self.user]
        command += ["--innodb-flush-log-at-trx-commit=0", f"--innodb-buffer-pool-size={pool}"]
        command += ["--innodb-buffer-pool-dump-at-shutdown=OFF", "--innodb-buffer-pool-load-at-startup=OFF"]
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait(self.is_ready)

    def is_ready(self):
        with contextlib.suppress(pymysql.err.OperationalError):
            self.connect().close()
            return True
        return False

    def connect(self):
        return pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)

    def fill(self, rows):
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("USE d")
            cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(2000)) ENGINE=InnoDB")
            cursor.execute(f"INSERT INTO t SELECT seq, REPEAT(MD5(seq), {ROW_BYTES // 32}) FROM seq_1_to_{rows}")
            cursor.execute(PROCEDURE)

    def status(self, name):
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
            return int(cursor.fetchone()[1])

    def pool(self):
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@innodb_buffer_pool_size")
            return int(cursor.fetchone()[0])


class Load:
    """A client that runs queries on rows of a server until it is stopped, and notes when it had done how many."""

    def __init__(self, server, ids, pause, done):
        self.server, self.ids, self.pause, self.done = server, ids, pause, done
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with self.server.connect() as connection, connection.cursor() as cursor:
            while not self.stopping.is_set():
                cursor.execute(f"CALL d.some(1, {self.ids}, {QUERIES})")
                self.done.append(time.time())
                if self.pause:
                    self.stopping.wait(self.pause)

    def stop(self):
        self.stopping.set()
        self.thread.join()


def rate(done, begin, end):
    """Queries a second."""
    return sum(begin <= at < end for at in done) * QUERIES / (end - begin)


class Broker:
    def __init__(self, binary, folder, memory, *flags):
        self.binary, self.folder, self.processes = binary, folder / "broker", []
        self.log = open(folder / "broker.log", "w")
        self.spawn("run", "--memory", str(memory), *flags)
        while not (self.folder / "broker.sock").exists():
            time.sleep(0.05)

    def spawn(self, *arguments):
        command = [self.binary, "broker", *arguments, "--data", str(self.folder)]
        self.processes.append(subprocess.Popen(command, stdout=self.log, stderr=self.log))

    def adapt(self, server, floor, ceiling):
        self.spawn("adapter", server.kind, f"name={server.name},{server.reached},floor={floor},ceiling={ceiling}")
        while not self.granted(server.name):
            time.sleep(0.1)

    def move(self, name, mib):
        """Has a participant live by so much; seconds until the ledger says so."""
        began = time.time()
        self.run("pin", name, f"{mib}MB")
        bytes_asked = mib * MIB
        while abs(self.granted(name) - bytes_asked) > bytes_asked // 50:
            if time.time() > began + 120:
                raise SystemExit(self.run("status"))
            time.sleep(0.02)
        return time.time() - began

    def run(self, *arguments):
        command = [self.binary, "broker", *arguments, "--data", str(self.folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def audit(self, since=0):
        path = self.folder / "audit.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["at"] >= since]

    def granted(self, name):
        participants = json.loads(self.run("status", "--json"))["participants"]
        return next((one["granted"] for one in participants if one["name"] == name), 0)

    def processor_s(self):
        """Of the broker alone."""
        fields = pathlib.Path(f"/proc/{self.processes[0].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(timeout=60)
        self.log.close()


class Java:
    """A program that keeps, makes garbage and evaluates XPath expressions as it is told."""

    kind = "jvm"

    def __init__(self, name, *flags):
        self.name = name
        source = pathlib.Path(__file__).with_name("balloons.java")
        self.process = subprocess.Popen([program("java"), *flags, source], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.tell("garbage 1")

    @property
    def reached(self):
        return f"pid={self.process.pid}"

    def tell(self, command):
        """The seconds that it took."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("done "):
            raise SystemExit(f"{self.name}: {command}: {answer}{self.process.stdout.read()}")
        return float(answer.split()[1])

    def stop(self):
        self.process.kill()
        self.process.wait()


COLLECTORS = {
    "G1": ["-XX:+UseG1GC"],
    "ZGC": ["-XX:+UseZGC", "-XX:ZUncommitDelay=1"],
    "Shenandoah": ["-XX:+UseShenandoahGC"],
}


def account(pid):
    """What the kernel counts of a process, in MiB."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) // 1024


def moves(arguments, folder, stack):
    move = arguments.move
    broker = Broker(arguments.binary, folder, 16 << 30, "--policy", "static")
    stack.callback(broker.stop)
    print(f"{move} MiB; as the kernel counts, seconds from the command to the ledger")
    print(f"{'who':>22} {'before':>8} {'given':>8} {'in s':>8} {'granted':>8} {'used again':>11}")

    def measure(who, server, pid, most, use):
        broker.adapt(server, "100MB", f"{2 * most}MB")
        broker.move(server.name, most)
        use()
        before = account(pid)
        gave = broker.move(server.name, before - move)
        after = account(pid)
        granted = broker.move(server.name, most)
        used = use()
        print(f"{who:>22} {before:>8} {before - after:>8} {gave:>8.2f} {granted:>8.2f} {used:>11.2f}", flush=True)

    rows = (move + 200) * MIB // ROW_BYTES
    (folder / "db").mkdir()
    server = MariaDb("db", folder / "db", (move + 700) * MIB)
    server.fill(rows)

    def scan():
        began = time.time()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT SUM(LENGTH(pad)) FROM d.t")
        return time.time() - began

    time.sleep(20)
    measure("MariaDB", server, server.process.pid, move + 1200, scan)
    server.stop()
    for collector in arguments.jvm.split(","):
        # ZGC's heap is counted three times.
        java = Java(collector.lower(), f"-Xmx{move + 1400}m", "-Xms16m", *COLLECTORS[collector])
        most = (move + 1500) * (3 if collector == "ZGC" else 1)
        measure(collector, java, java.process.pid, most, lambda: java.tell(f"garbage {move + 600}"))
        # What it is granted it may keep, or it would end with an OutOfMemoryError.
        java.tell(f"keep {move + 600}")
        java.stop()


def tiers(arguments, folder, stack):
    rows = arguments.mib * MIB // ROW_BYTES
    (folder / "db").mkdir()
    database = MariaDb("db", folder / "db", 3 * arguments.mib // 2 * MIB)
    stack.callback(database.stop)
    database.fill(rows)
    # The document's tree has about the rows' size, so the heap needs twice that.
    java = Java("app", f"-Xmx{3 * arguments.mib}m", "-Xms16m", *COLLECTORS["G1"])
    stack.callback(java.stop)
    java.tell(f"document {arguments.mib}")
    broker = Broker(arguments.binary, folder, 8 << 30, "--policy", "static")
    stack.callback(broker.stop)
    for server in (database, java):
        broker.adapt(server, "100MB", "6GB")

    def request(before_database, before_xml):
        taken = [0.0, 0.0, 0.0]
        taken[2] += before_database()
        began = time.time()
        with database.connect() as connection, connection.cursor() as cursor:
            for _ in range(SCANS):
                cursor.execute("SELECT SUM(LENGTH(pad)) FROM d.t")
        taken[0] = time.time() - began
        taken[2] += before_xml()
        taken[1] = java.tell("query 3")
        return taken

    large, small = 4 * arguments.mib, 2 * arguments.mib
    pool, none = 120 + arguments.mib // 2, 120 + 3 * arguments.mib // 2

    def to(first, second):
        # Who gives comes first, so that nobody has more than there is.
        return sum(broker.move(name, mib) for name, mib in (first, second))

    to(("db", pool), ("app", large))
    fixed = [request(lambda: 0.0, lambda: 0.0) for _ in range(arguments.runs)]
    moved = [request(lambda: to(("app", small), ("db", none)), lambda: to(("db", pool), ("app", large)))
             for _ in range(arguments.runs)]
    print(f"{arguments.mib} MiB of rows, a pool of {arguments.mib // 2} or {3 * arguments.mib // 2} MiB; {arguments.runs} requests, medians, seconds")
    print(f"{'':>9} {'database':>9} {'XML':>9} {'moves':>9} {'total':>9}")
    totals = []
    for name, runs in (("static", fixed), ("dynamic", moved)):
        of = [statistics.median(column) for column in zip(*runs)]
        totals.append(statistics.median(sum(run) for run in runs))
        print(f"{name:>9} {of[0]:>9.2f} {of[1]:>9.2f} {of[2]:>9.2f} {totals[-1]:>9.2f}")
    print(f"dynamic is {totals[0] / totals[1]:.2f} times static")


def collocated(arguments, folder, stack):
    rows = arguments.mib * MIB // ROW_BYTES
    servers = []
    for at in range(SERVERS):
        home = folder / f"db{at + 1}"
        home.mkdir()
        servers.append(MariaDb(f"db{at + 1}", home, 128 * MIB))
        stack.callback(servers[-1].stop)
        servers[-1].fill(rows)
    # What a server with memory for all rows does with both loads, beside the base load of the others.
    done = [[] for _ in servers]
    loads = [Load(server, rows // 5, 0.05, done) for server, done in zip(servers, done)]
    stack.callback(lambda: [load.stop() for load in loads])
    with servers[0].connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL innodb_buffer_pool_size = {2 * arguments.mib * MIB}")
        extra = [Load(servers[0], rows, 0.02, done[0]) for _ in range(2)]
        time.sleep(25)
        ample = rate(done[0], time.time() - 10, time.time())
        [load.stop() for load in extra]
        cursor.execute(f"SET GLOBAL innodb_buffer_pool_size = {128 * MIB}")
    small = 128 + 112
    budget = (SERVERS * small + arguments.mib + 120) * MIB
    broker = Broker(arguments.binary, folder, budget, "--dwell", "10")
    stack.callback(broker.stop)
    for server in servers:
        broker.adapt(server, f"{small}MB", f"{2 * arguments.mib}MB")
    time.sleep(40)
    print(f"{SERVERS} servers, {arguments.mib} MiB of rows each, {budget // MIB} MiB for all; with memory for all rows: {ample:,.0f} queries/s")
    print(f"{'server':>8} {'noticed':>9} {'has it':>9} {'before':>9} {'lowest':>9} {'at the end':>11} {'of ample':>9} {'90% after':>10}")
    begun = time.time()
    idle_cpu = broker.processor_s()
    rows_of = []
    for server, done_here in zip(servers, done):
        before = broker.granted(server.name)
        begin = time.time()
        base = rate(done_here, begin - 10, begin)
        extra = [Load(server, rows, 0.02, done_here) for _ in range(2)]
        noticed = has_it = None
        while time.time() < begin + arguments.extra:
            time.sleep(0.1)
            events = broker.audit(begin)
            if noticed is None and any(event["what"] in ("asked", "granted") for event in events):
                noticed = time.time() - begin
            if has_it is None and broker.granted(server.name) >= before + (arguments.mib - 128) * MIB // 2:
                has_it = time.time() - begin
        [load.stop() for load in extra]
        end = begin + arguments.extra
        seconds = [rate(done_here, begin + at, begin + at + 3) for at in range(arguments.extra - 3)]
        good = next((at + 3 for at, one in enumerate(seconds) if at >= 1 and one >= 0.9 * ample), None)
        last = rate(done_here, end - 10, end)
        shown = [f"{value:.1f} s" if value is not None else "never" for value in (noticed, has_it)]
        reached = f"{good} s" if good is not None else "never"
        print(f"{server.name:>8} {shown[0]:>9} {shown[1]:>9} {base:>9,.0f} {min(seconds):>9,.0f} {last:>11,.0f} {last / ample:>9.2f} {reached:>10}")
        rows_of.append({"server": server.name, "by second": seconds, "ample": ample, "base": base})
        time.sleep(10)
    share = (broker.processor_s() - idle_cpu) / (time.time() - begun)
    moves = sum(event["what"] == "asked" for event in broker.audit(begun))
    print(f"{moves} requests to give; the broker took {100 * share:.2f}% of a core")
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(rows_of))


def overhead(arguments, folder, stack):
    rows = arguments.mib * MIB // ROW_BYTES
    home = folder / "ballooned"
    home.mkdir()
    ballooned = MariaDb("ballooned", home, 3 * arguments.mib // 2 * MIB)
    ballooned.fill(rows)
    ballooned.stop()
    shutil.copytree(home / "data", folder / "fixed/data")
    ballooned.start(3 * arguments.mib // 2 * MIB)
    stack.callback(ballooned.stop)
    broker = Broker(arguments.binary, folder, 8 << 30)
    stack.callback(broker.stop)
    broker.adapt(ballooned, "160MB", "4GB")
    # A load that fills the pool, which is then taken.
    with ballooned.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT SUM(LENGTH(pad)) FROM d.t")
    time.sleep(5)
    began = time.time()
    broker.run("pin", "ballooned", f"{112 + arguments.mib // 2}MB")
    size = ballooned.pool()
    while size > arguments.mib * MIB and time.time() < began + 60:
        time.sleep(0.1)
        size = ballooned.pool()
    time.sleep(3)
    size = ballooned.pool()
    fixed = MariaDb("fixed", folder / "fixed", size)
    stack.callback(fixed.stop)
    print(f"pools of {size // MIB} MiB, {arguments.mib} MiB of rows; {arguments.runs} runs by turns, medians")
    measured = {"ballooned": [], "fixed": []}
    chosen = random.Random(7)
    for run in range(arguments.runs + 1):
        order = [ballooned, fixed]
        chosen.shuffle(order)
        for server in order:
            misses = server.status("Innodb_buffer_pool_reads")
            with server.connect() as connection, connection.cursor() as cursor:
                started = time.perf_counter()
                cursor.execute(f"CALL d.some(1, {rows}, 40000)")
                took = time.perf_counter() - started
            misses = server.status("Innodb_buffer_pool_reads") - misses
            if run > 0:
                measured[server.name].append((misses / 40000, took))
    of = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in measured.items()}
    for name, (misses, took) in of.items():
        print(f"{name:>10}: {misses:.4f} reads a query, {took:.2f} s for 40,000 queries")
    reads, times = (of["ballooned"][at] / of["fixed"][at] for at in (0, 1))
    print(f"ballooned beside fixed: {reads:.3f} of the reads, {times:.3f} of the time")


def main():
    arguments = options()
    for name in arguments.experiments:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            {"collocated": collocated, "overhead": overhead, "moves": moves, "tiers": tiers}[name](arguments, pathlib.Path(folder), stack)


if __name__ == "__main__":
    main()
