#!/usr/bin/env python3
"""pgbench and sysbench against Aerostat and PostgreSQL 15, in turns on the same machine.

    benchmarks/oltp.py --binary target/release/aerostat --seconds 10 --runs 3

Both servers are started in private folders on free ports, with commits durable and
without, and every measurement is taken of one and then of the other, `--runs` times; the
medians and their ratio are printed. Clients run on the same cores as the servers. Beside
pgbench's transactions an analytical query runs in a loop if `--analytics` is given.
Needs PostgreSQL 15 with pgbench, and sysbench (scripts/setup postgres clients).
"""

import argparse
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

PROGRAMS = pathlib.Path("/usr/lib/postgresql/15/bin")
DATABASE = "bench"
ANALYTICS = "SELECT bid, count(*), sum(abalance), max(aid) FROM pgbench_accounts GROUP BY bid"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server of this script's own, ended when the script ends."""

    def wait(self, ready):
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended")
            if ready():
                return
            time.sleep(0.05)
        sys.exit(f"{self.name} does not answer")

    def psql(self, sql, database=DATABASE):
        command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *self.address(), "-d", database, "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def address(self):
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.user]

    def cpu_seconds(self):
        """Of the process and all its children."""
        ticks = os.sysconf("SC_CLK_TCK")
        total = 0
        pids = [str(self.process.pid)]
        pids += subprocess.run(["pgrep", "-P", pids[0]], capture_output=True, text=True).stdout.split()
        for pid in pids:
            with contextlib.suppress(OSError):
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
        return total / ticks

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)


class Aerostat(Server):
    name, user = "aerostat", "aerostat"

    def __init__(self, binary, folder, durable):
        self.port, http = free_port(), free_port()
        flags = ["--data", f"{folder}/aerostat", "--listen", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{http}"]
        self.process = subprocess.Popen([binary, "serve", *flags], stderr=subprocess.DEVNULL)

        def ready():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{http}/healthz", timeout=1)

        self.wait(ready)
        durability = "fsync" if durable else "none"
        self.psql(f"CREATE DATABASE {DATABASE} WITH (durability = '{durability}')", "aerostat")


class Postgres(Server):
    name, user = "postgresql", "postgres"

    def __init__(self, _, folder, durable):
        self.port = free_port()
        data = pathlib.Path(folder, "postgres")
        data.mkdir()
        own = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chmod(folder, 0o755)
            os.chown(data, nobody.pw_uid, nobody.pw_gid)
            own = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        initdb = [PROGRAMS / "initdb", "-D", data, "-U", self.user, "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **own)
        settings = {
            "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": self.port,
            "shared_buffers": "2GB", "max_wal_size": "8GB", "max_connections": 200,
            "synchronous_commit": "on" if durable else "off", "fsync": "on" if durable else "off",
        }
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen(
            [PROGRAMS / "postgres", "-D", data, *flags], stderr=subprocess.DEVNULL, **own)
        probe = [PROGRAMS / "pg_isready", "-q", *self.address()]
        self.wait(lambda: subprocess.run(probe).returncode == 0)
        self.psql(f"CREATE DATABASE {DATABASE}", "postgres")


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


def sysbench(server, *, script, clients, seconds):
    base = ["sysbench", "--db-driver=pgsql", "--pgsql-host=127.0.0.1", f"--pgsql-port={server.port}",
            f"--pgsql-user={server.user}", f"--pgsql-db={DATABASE}", "--tables=4", "--table-size=100000", "--auto-inc=off",
            f"--threads={clients}", f"--time={seconds}", "--percentile=99", script]
    if not server.prepared:
        subprocess.run([*base, "prepare"], check=True, stdout=subprocess.DEVNULL)
        server.prepared = True
    out = subprocess.run([*base, "run"], check=True, capture_output=True, text=True).stdout
    tps = float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", out)[1])
    return tps, float(re.search(r"99th percentile:\s+([\d.]+)", out)[1])


@contextlib.contextmanager
def analytics(server, wanted):
    """Runs the analytical query in a loop; the count of its runs is in the list that it gives."""
    stop, runs = threading.Event(), []

    def loop():
        while not stop.is_set():
            started = time.monotonic()
            server.psql(ANALYTICS)
            runs.append(time.monotonic() - started)

    thread = threading.Thread(target=loop)
    if wanted:
        thread.start()
    try:
        yield runs
    finally:
        stop.set()
        if wanted:
            thread.join()


def measurements(arguments):
    """Name, whether it writes, and how it is run."""
    at = {"clients": arguments.clients, "seconds": arguments.seconds}
    for mode in ("prepared", "simple"):
        yield f"pgbench select-only, {mode}", False, lambda s, mode=mode: pgbench(s, [], script="select-only", mode=mode, **at)
    for script in ("simple-update", "tpcb-like"):
        yield f"pgbench {script}, prepared", True, lambda s, script=script: pgbench(s, [], script=script, mode="prepared", **at)
    if shutil.which("sysbench"):
        for script in ("oltp_point_select", "oltp_read_write"):
            yield f"sysbench {script}", script != "oltp_point_select", lambda s, script=script: sysbench(s, script=script, **at)
    else:
        print("skipped: sysbench is not installed (scripts/setup clients)")


def compare(arguments, durable, results):
    with tempfile.TemporaryDirectory() as folder:
        servers = [kind(arguments.binary, folder, durable) for kind in (Aerostat, Postgres)]
        try:
            for server in servers:
                server.prepared = False
                subprocess.run([PROGRAMS / "pgbench", *server.address(), "-i", "-q", "-s", str(arguments.scale), DATABASE],
                               check=True, capture_output=True)
            for name, writes, measure in measurements(arguments):
                if durable and not writes:
                    continue
                taken = {server.name: [] for server in servers}
                for _ in range(arguments.runs):
                    for server in servers:
                        before = server.cpu_seconds()
                        with analytics(server, arguments.analytics) as scans:
                            tps, p99 = measure(server)
                        cpu = (server.cpu_seconds() - before) / (tps * arguments.seconds) * 1e6
                        taken[server.name].append((tps, p99, cpu, len(scans)))
                ours, theirs = ([statistics.median(column) for column in zip(*taken[s.name])] for s in servers)
                label = f"{name}{', durable' if durable else ''}"
                print(f"| {label} | {ours[0]:,.0f} | {theirs[0]:,.0f} | {ours[0] / theirs[0]:.2f} "
                      f"| {ours[1]:.2f} | {theirs[1]:.2f} | {ours[2]:.0f} | {theirs[2]:.0f} |"
                      + (f" {ours[3]:.0f} | {theirs[3]:.0f} |" if arguments.analytics else ""), flush=True)
                results.append({"name": label, "aerostat": taken["aerostat"], "postgresql": taken["postgresql"]})
        finally:
            for server in servers:
                server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/aerostat")
    parser.add_argument("--scale", type=int, default=10, help="pgbench's: 100,000 accounts each")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--durable", choices=["both", "yes", "no"], default="both")
    parser.add_argument("--analytics", action="store_true", help="an analytical query in a loop beside")
    parser.add_argument("--json", help="a file for all numbers")
    arguments = parser.parse_args()
    beside = " scans | PostgreSQL's |" if arguments.analytics else ""
    print("| workload | Aerostat tps | PostgreSQL tps | ratio | p99 ms | PostgreSQL's | CPU us a transaction | PostgreSQL's |" + beside)
    print("|---" * (8 + 2 * arguments.analytics) + "|")
    results = []
    for durable in (False, True):
        if arguments.durable in ("both", "yes" if durable else "no"):
            compare(arguments, durable, results)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
