#!/usr/bin/env python3
"""pgbench and sysbench against Aerostat and PostgreSQL 15, in turns on the same machine.

    benchmarks/oltp.py --binary target/dist/aerostat --seconds 10 --runs 3

Both servers are started in private folders on free ports, with commits durable and
without, and every measurement is taken of one and then of the other, `--runs` times; the
medians and their ratio are printed. `--pin` gives the servers the machine's first core and
the clients its second; otherwise all run where the kernel puts them. Clients come through
TCP, or with `--local` through Unix-domain sockets. A client's own
processor time bounds what any server can reach, so it stands beside the servers'.
With `--analytics` every workload runs alone and beside an analytical query in a loop.
Needs PostgreSQL 15 with pgbench, and sysbench (scripts/setup postgres clients).
"""

import argparse
import contextlib
import json
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from servers import PROGRAMS, Aerostat, Postgres, on_cores

DATABASE = "bench"
SERVERS_CORES, CLIENTS_CORES = {0}, {1}
ANALYTICS = "SELECT bid, count(*), sum(abalance), max(aid) FROM pgbench_accounts GROUP BY bid"


def pgbench(server, options, *, script, mode, clients, seconds):
    """Transactions a second and the 99th percentile of their times in ms."""
    with tempfile.TemporaryDirectory() as logs:
        command = [PROGRAMS / "pgbench", *server.address(), "-n", "-b", script, "-M", mode, "-c", str(clients),
                   "-j", "1", "-T", str(seconds), "-l", "--log-prefix", f"{logs}/log", *options, DATABASE]
        out = subprocess.run(command, capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(f"{server.name}: {out.stderr}")
        times = sorted(int(line.split()[2]) for path in pathlib.Path(logs).iterdir() for line in path.open())
    tps = float(re.search(r"tps = ([\d.]+)", out.stdout)[1])
    return tps, times[int(len(times) * 0.99)] / 1000


def sysbench(server, *, script, clients, seconds, action="run"):
    """As `pgbench`; `prepare` makes the tables, which all scripts share."""
    command = ["sysbench", "--db-driver=pgsql", f"--pgsql-host={server.host}", f"--pgsql-port={server.port}",
               f"--pgsql-user={server.user}", f"--pgsql-db={DATABASE}", "--tables=4", "--table-size=100000", "--auto-inc=off",
               f"--threads={clients}", f"--time={seconds}", "--percentile=99", script, action]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if action != "run":
        return None
    tps = float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", out)[1])
    return tps, float(re.search(r"99th percentile:\s+([\d.]+)", out)[1])


@contextlib.contextmanager
def analytics(server):
    """Runs the analytical query in a loop meanwhile; gives the times of its runs."""
    stop, runs = threading.Event(), []

    def loop():
        while not stop.is_set():
            started = time.monotonic()
            server.psql(ANALYTICS, DATABASE)
            runs.append(time.monotonic() - started)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield runs
    finally:
        stop.set()
        thread.join()


def client_seconds():
    """Processor time of the clients that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measurements(arguments):
    """Name, whether it writes, and how it is run, for each number of clients."""
    for clients in arguments.clients:
        for name, writes, measure in workloads(clients, arguments.seconds):
            yield name if len(arguments.clients) == 1 else f"{name}, {clients}", writes, measure


def workloads(clients, seconds):
    at = {"clients": clients, "seconds": seconds}
    for mode in ("prepared", "simple"):
        yield f"pgbench select-only, {mode}", False, lambda s, mode=mode: pgbench(s, [], script="select-only", mode=mode, **at)
    for script in ("simple-update", "tpcb-like"):
        yield f"pgbench {script}, prepared", True, lambda s, script=script: pgbench(s, [], script=script, mode="prepared", **at)
    if shutil.which("sysbench"):
        for script in ("oltp_point_select", "oltp_read_write"):
            yield f"sysbench {script}", script != "oltp_point_select", lambda s, script=script: sysbench(s, script=script, **at)


def aerostat(binary, folder, durable):
    node = Aerostat(binary, folder)
    durability = "fsync" if durable else "none"
    node.psql(f"CREATE DATABASE {DATABASE} WITH (durability = '{durability}')", "aerostat")
    return node


def postgres(folder, durable):
    sync = "on" if durable else "off"
    server = Postgres(folder, {"shared_buffers": "2GB", "max_wal_size": "8GB", "max_connections": 200,
                               "synchronous_commit": sync, "fsync": sync})
    server.psql(f"CREATE DATABASE {DATABASE}", "postgres")
    return server


@contextlib.contextmanager
def servers(arguments, durable):
    """Both, with pgbench's tables."""
    with tempfile.TemporaryDirectory() as folder:
        with on_cores(SERVERS_CORES if arguments.pin else None):
            both = [aerostat(arguments.binary, folder, durable), postgres(folder, durable)]
        try:
            for server in both:
                if shutil.which("sysbench"):
                    sysbench(server, script="oltp_read_write", clients=1, seconds=1, action="prepare")
                if arguments.local:
                    server.host = folder
                subprocess.run([PROGRAMS / "pgbench", *server.address(), "-i", "-q", "-s", str(arguments.scale), DATABASE],
                               check=True, capture_output=True)
            with on_cores(CLIENTS_CORES if arguments.pin else None):
                yield both
        finally:
            for server in both:
                server.stop()


def taken(server, measure, seconds):
    """Transactions a second, p99 in ms, processor time in us a transaction of server and client."""
    before, clients = server.cpu_seconds(), client_seconds()
    tps, p99 = measure(server)
    spent = [server.cpu_seconds() - before, client_seconds() - clients]
    return tps, p99, *(one / (tps * seconds) * 1e6 for one in spent)


def medians(runs):
    return [statistics.median(column) for column in zip(*runs)]


def compare(arguments, durable):
    """Every workload, in turns on both."""
    with servers(arguments, durable) as both:
        for name, writes, measure in measurements(arguments):
            if durable and not writes:
                continue
            runs = {server.name: [] for server in both}
            for _ in range(arguments.runs):
                for server in both:
                    runs[server.name].append(taken(server, measure, arguments.seconds))
            ours, theirs = (medians(runs[server.name]) for server in both)
            label = f"{name}{', durable' if durable else ''}"
            print(f"| {label} | {ours[0]:,.0f} | {theirs[0]:,.0f} | {ours[0] / theirs[0]:.2f} | {ours[1]:.2f} | {theirs[1]:.2f} "
                  f"| {ours[2]:.0f} | {theirs[2]:.0f} | {ours[3]:.0f} | {theirs[3]:.0f} |", flush=True)
            yield {"name": label, **runs}


def beside(arguments, durable):
    """pgbench alone and beside the analytical query, in turns, on both."""
    with servers(arguments, durable) as both:
        for name, writes, measure in measurements(arguments):
            if durable and not writes or "pgbench" not in name:
                continue
            for server in both:
                alone, together, scans = [], [], []
                for _ in range(arguments.runs):
                    alone.append(measure(server))
                    with analytics(server) as times:
                        together.append(measure(server))
                    scans += times
                (tps, p99), (beside_tps, beside_p99) = medians(alone), medians(together)
                label = f"{name}{', durable' if durable else ''}"
                print(f"| {label} | {server.name} | {tps:,.0f} | {beside_tps:,.0f} | {beside_tps / tps:.2f} | {p99:.2f} "
                      f"| {beside_p99:.2f} | {beside_p99 / p99:.1f} | {statistics.median(scans) * 1e3:.0f} |", flush=True)
                yield {"name": label, "server": server.name, "alone": alone, "beside": together, "scans": scans}


def counts(text):
    return [int(count) for count in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/dist/aerostat")
    parser.add_argument("--scale", type=int, default=10, help="pgbench's: 100,000 accounts each")
    parser.add_argument("--clients", type=counts, default=[4], help="how many at once; 1,4,16 measures with each")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--durable", choices=["both", "yes", "no"], default="both")
    parser.add_argument("--pin", action="store_true", help="a core for the servers, another for the clients")
    parser.add_argument("--local", action="store_true", help="through Unix-domain sockets, not TCP")
    parser.add_argument("--analytics", action="store_true", help="alone and beside an analytical query in a loop")
    parser.add_argument("--json", help="a file for all numbers")
    arguments = parser.parse_args()
    if arguments.analytics:
        run, columns = beside, "workload | server | tps | beside | ratio | p99 ms | beside | ratio | a scan, ms"
    else:
        run, columns = compare, ("workload | Aerostat tps | PostgreSQL tps | ratio | p99 ms | PostgreSQL's | CPU us a transaction "
                                 "| PostgreSQL's | client's | client's of PostgreSQL")
    if not shutil.which("sysbench"):
        print("skipped: sysbench is not installed (scripts/setup clients)")
    print(f"| {columns} |")
    print("|---" * (columns.count("|") + 1) + "|")
    results = []
    for durable in (False, True):
        if arguments.durable in ("both", "yes" if durable else "no"):
            results += run(arguments, durable)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
