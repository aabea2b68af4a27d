"""Moves of two gigabytes, and a request that wants the same memory twice."""

import statistics
import time

from .programs import COLLECTORS, MIB, ROW_BYTES, Broker, Java, MariaDb, account

#: Of all rows, as most of TPC-H's queries are, in a request of tiers.
SCANS = 20


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
