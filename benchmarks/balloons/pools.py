"""Servers whose pools grow under load, and pools that were made smaller."""

import json
import pathlib
import random
import shutil
import statistics
import time

from .programs import MIB, ROW_BYTES, Broker, Load, MariaDb, rate

SERVERS = 4


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
