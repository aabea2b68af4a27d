"""What a second node costs and gives: pgbench with and without a copy, SSB on one node and on both, a copy that catches up, and a database
that moves.

    python3 benchmarks/copies.py --binary target/release/aerostat [commits] [commits-apart] [reads] [catch-up] [catch-up-apart] [routed] [moving] [secured]

Everything runs on this machine. Nodes of a pair have a core each (reads, commits-apart, catch-up-apart), or they share all of them. Standard library only; psql and pgbench are PostgreSQL 15's (scripts/setup postgres).
"""

import argparse
import collections
import contextlib
import functools
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

from servers import PROGRAMS, Aerostat, on_cores

DATABASE = "aerostat"


class Pair:
    """Two nodes of one cluster, or more; `cores` for each. The second may have a folder on another disk."""

    def __init__(self, binary, folder, cores=(None, None), flags=(), other_disk=None, sessions="here", own=None):
        self.other_disk = other_disk
        # Flags of one node.
        self.own = own or {}
        self.sessions = sessions
        self.binary, self.folder, self.cores, self.flags = binary, pathlib.Path(folder), cores, flags
        self.nodes = [None for _ in cores]
        for at in range(len(cores)):
            self.start(at)
        self.wait_for_members(len(cores))

    def start(self, at):
        folder = pathlib.Path(self.other_disk if self.other_disk and at == 1 else self.folder) / "abc"[at]
        folder.mkdir(exist_ok=True)
        with on_cores(self.cores[at]):
            self.nodes[at] = Aerostat(self.binary, str(folder), "--cluster", f"file://{self.folder}/shared", "--node-name", "abc"[at],
                                      "--peer-listen", "127.0.0.1:0", "--copies", "all", "--sessions", self.sessions, *self.flags, *self.own.get("abc"[at], ()))

    def wait_for_members(self, count, database=DATABASE):
        sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                if self.nodes[0].psql(sql, database) == str(count - 1):
                    return
            time.sleep(0.1)

    def stop(self):
        for node in self.nodes:
            node.stop()


class Machine:
    """When no processor ran anything: on each there is a thread that sleeps for some milliseconds at a time, and sees when that takes longer."""

    def __init__(self):
        self.late = {}
        for processor in os.sched_getaffinity(0):
            threading.Thread(target=self.look, args=(processor, self.late.setdefault(processor, [])), daemon=True).start()

    @staticmethod
    def look(processor, late):
        os.sched_setaffinity(0, {processor})
        while True:
            began = time.time()
            time.sleep(0.005)
            ended = time.time()
            if ended - began > 0.02:
                late.append((began + 0.005, ended))

    def away(self, since, until):
        """The seconds of a span for which all were late, at the most."""

        def overlap(gaps):
            return sum(max(0, min(until, ended) - max(since, began)) for began, ended in gaps)

        return min(overlap(gaps) for gaps in self.late.values())


def pgbench(node, *flags):
    command = [PROGRAMS / "pgbench", *node.address(), "-n", *flags, DATABASE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def tps(node, clients, seconds):
    text = pgbench(node, "-c", str(clients), "-j", "1", "-T", str(seconds))
    found = {}
    for line in text.splitlines():
        if line.startswith("tps"):
            found["tps"] = float(line.split()[2])
        if line.startswith("latency average"):
            found["ms"] = float(line.split()[3])
    return found["tps"]


def median_of(rounds):
    return {name: statistics.median(values) for name, values in rounds.items()}


def commits(arguments, apart=False):
    """pgbench, tpcb-like, in turns: alone with `none` and `fsync`, and with a copy with `memory2`.

    `apart`: whoever takes changes has a core, its copy and pgbench have another.
    """
    leader, copy = ({0}, {1}) if apart else (None, None)
    flags = ("--memory", "2GB", *(("--threads", "1") if apart else ()))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("alone", "pair"):
            pathlib.Path(folder, name).mkdir()
        with on_cores(leader):
            alone = Aerostat(arguments.binary, f"{folder}/alone", *flags)
        pair = Pair(arguments.binary, f"{folder}/pair", cores=(leader, copy), flags=flags)
        for node in (alone, pair.nodes[0]):
            pgbench(node, "-i", "-q", "-s", "10")
        cases = [("none", alone, "none"), ("fsync", alone, "fsync"), ("memory2", pair.nodes[0], "memory2"),
                 ("memory2+fsync", pair.nodes[0], "memory2+fsync")]
        for clients in (1, 4, 8):
            rounds = collections.defaultdict(list)
            for _ in range(arguments.rounds):
                for name, node, durability in cases:
                    node.psql(f"ALTER DATABASE {DATABASE} SET (durability = '{durability}')", DATABASE)
                    with on_cores(copy):
                        rounds[name].append(tps(node, clients, arguments.seconds))
            found = median_of(rounds)
            for name in found:
                print(f"tpcb-like{', apart' if apart else ''}, {clients} clients, {name:14} {found[name]:8.0f}/s  {found[name] / found['none']:.2f} of none  {found[name] / found['fsync']:.2f} of fsync", flush=True)
        pair.stop()
        alone.stop()


def routed(arguments):
    """pgbench, select-only: at the node that leads, and through the other one, which passes on what clients say."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(arguments.binary, folder, flags=("--memory", "2GB"), sessions="leader")
        pgbench(pair.nodes[0], "-i", "-q", "-s", "10")
        for mode in ("simple", "prepared"):
            for clients in (1, 4):
                rounds = collections.defaultdict(list)
                for _ in range(arguments.rounds):
                    for name, node in zip(("leader", "other"), pair.nodes, strict=True):
                        text = pgbench(node, "-S", "-M", mode, "-c", str(clients), "-j", str(clients), "-T", str(arguments.seconds))
                        rounds[name].append(next(float(line.split()[3]) * 1000 for line in text.splitlines() if line.startswith("latency average")))
                found = median_of(rounds)
                print(f"select-only, {mode:8}, {clients} clients: {found['leader']:4.0f} us at the leader, {found['other']:4.0f} us through the other node, {found['other'] - found['leader']:+.0f} us", flush=True)
        pair.stop()


def secured(arguments):
    """Nodes that know each other by certificates, beside nodes that say everything in the clear: commits, and statements that are passed on."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = {}
        for name in ("clear", "secured"):
            where = pathlib.Path(folder, name)
            where.mkdir()
            flags = {at: () for at in "ab"}
            if name == "secured":
                for words in (("ca",), ("node", "a"), ("node", "b")):
                    subprocess.run([arguments.binary, "cert", *words, "--dir", where / "certs"], check=True, capture_output=True)
                flags = {at: ("--peer-certs", f"{where}/certs/{at}") for at in "ab"}
            pairs[name] = Pair(arguments.binary, where, flags=("--memory", "2GB"), sessions="leader", own=flags)
            pgbench(pairs[name].nodes[0], "-i", "-q", "-s", "10")
            pairs[name].nodes[0].psql(f"ALTER DATABASE {DATABASE} SET (durability = 'memory2')", DATABASE)
        for clients in (1, 4, 8):
            rounds = collections.defaultdict(list)
            for _ in range(arguments.rounds):
                for name, pair in pairs.items():
                    rounds[name].append(tps(pair.nodes[0], clients, arguments.seconds))
            found = median_of(rounds)
            print(f"tpcb-like, memory2, {clients} clients: {found['clear']:.0f}/s in the clear, {found['secured']:.0f}/s with TLS, {found['secured'] / found['clear']:.2f} of it", flush=True)
        rounds = collections.defaultdict(list)
        for _ in range(arguments.rounds):
            for name, pair in pairs.items():
                for node, which in zip(pair.nodes, ("leader", "other"), strict=True):
                    text = pgbench(node, "-S", "-M", "prepared", "-c", "1", "-T", str(arguments.seconds))
                    rounds[name, which].append(next(float(line.split()[3]) * 1000 for line in text.splitlines() if line.startswith("latency average")))
        found = median_of(rounds)
        for name in pairs:
            leader, other = found[name, "leader"], found[name, "other"]
            print(f"select-only, prepared, {name:8}: {leader:.0f} us at the leader, {other:.0f} us through the other node, {other - leader:+.0f} us", flush=True)
        for pair in pairs.values():
            pair.stop()


def ssb(arguments, nodes, users):
    """Queries per second of all nodes together, with so many users at each."""
    found = []

    def run(node):
        with tempfile.NamedTemporaryFile() as report:
            command = [arguments.binary, "bench", "ssb", "--tenant", "ssb", "--users", str(users), "--duration", str(arguments.seconds * 2), "--warm-up", "1",
                       "--json", report.name, "--url", node.url()]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found.append(json.load(open(report.name)))

    threads = [threading.Thread(target=run, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(queries_per_second(report) for report in found)


def queries_per_second(report):
    return report["total"]["done"] / report["duration_s"]


def reads(arguments):
    """SSB by eight users: all at one node, or four at each."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(arguments.binary, folder, cores=({0}, {1}), flags=("--memory", "4GB", "--threads", "1"))
        load = [arguments.binary, "load", "ssb", "--scale", str(arguments.scale), "--tenant", "ssb", "--url", pair.nodes[0].url()]
        subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
        pair.wait_for_members(2, "ssb")
        at = pair.nodes[0].psql("SELECT pg_current_wal_lsn()", "ssb")
        pair.nodes[1].psql(f"SELECT aerostat.wait_for_lsn('{at}', 60000)", "ssb")
        # Both have frozen what they have.
        time.sleep(12)
        rounds = collections.defaultdict(list)
        for _ in range(arguments.rounds):
            rounds["one"].append(ssb(arguments, pair.nodes[:1], 8))
            rounds["both"].append(ssb(arguments, pair.nodes, 4))
        found = median_of(rounds)
        print(f"SSB {arguments.scale}, 8 users: one node {found['one']:.1f}/s, both {found['both']:.1f}/s, {found['both'] / found['one']:.2f} times")
        pair.stop()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def catch_up(arguments, apart=False):
    """Small updates at the leader while a load of a gigabyte goes on, its copy dies in the middle of it, and comes back.

    `apart`: the leader and its clients have a core and the disk, the copy has another core, and memory for a disk.
    """
    leader_core, copy_core = ({0}, {1}) if apart else (None, None)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as other, on_cores(leader_core):
        pair = Pair(arguments.binary, folder, cores=(leader_core, copy_core), flags=("--memory", "5GB", *(("--threads", "1") if apart else ())), other_disk=other if apart else None)
        leader = pair.nodes[0]
        leader.psql(f"ALTER DATABASE {DATABASE} SET (durability = 'memory2')", DATABASE)
        pgbench(leader, "-i", "-q", "-s", "2")
        leader.psql("CREATE TABLE big (id bigint PRIMARY KEY, filler text)", DATABASE)
        marks, log = [], f"{folder}/log"

        def mark(name):
            marks.append((time.time(), name))

        small = subprocess.Popen([PROGRAMS / "pgbench", *leader.address(), "-n", "-c", "2", "-T", str(int(arguments.minutes * 60)), "-N", "-R", "100",
                                  "-l", "--log-prefix", log, DATABASE], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        mark("quiet")
        time.sleep(8)
        mark("load")
        rows = 0
        loading = threading.Event()

        def load():
            nonlocal rows
            # 1 GB in all: 40 statements of 25 MB.
            for part in range(40):
                leader.psql(f"INSERT INTO big SELECT g, repeat(md5(g::text), 30) FROM generate_series({part * 25000}, {part * 25000 + 24999}) g", DATABASE)
                rows += 25000
                if part == 12:
                    loading.set()

        loader = threading.Thread(target=load)
        loader.start()
        loading.wait()
        mark("load, copy killed")
        pair.nodes[1].process.kill()
        pair.nodes[1].process.wait()
        loader.join()
        mark("copy away")
        time.sleep(5)
        mark("catching up")
        started = time.time()
        pair.start(1)
        pair.wait_for_members(2)
        took = time.time() - started
        mark("caught up")
        time.sleep(8)
        mark("end")
        # Its log is whole when it ends by itself.
        small.wait()
        latencies = collections.defaultdict(list)
        for file in pathlib.Path(folder).glob("log.*"):
            for line in file.read_text().splitlines():
                fields = line.split()
                if len(fields) < 6 or not fields[2].isdigit():
                    continue
                at = float(fields[4]) + float(fields[5]) / 1e6
                name = [name for (since, name) in marks if since <= at][-1:]
                if name and name[0] != "end":
                    latencies[name[0]].append(int(fields[2]) / 1000)
        for _, name in marks[:-1]:
            values = latencies[name]
            if values:
                print(f"{name:18} {len(values):6} updates  p50 {percentile(values, 0.5):7.2f} ms  p99 {percentile(values, 0.99):7.2f} ms")
        same = [node.psql("SELECT count(*), sum(length(filler)) FROM big", DATABASE) for node in pair.nodes]
        print(f"caught up with {rows} rows in {took:.1f} s; both have {same[0]}" if same[0] == same[1] else f"not the same: {same}")
        pair.stop()


def moving(arguments):
    """Updates in a database of a gigabyte that goes from two nodes to others, through a node that stays: its leader changes each time."""
    rate = arguments.rate
    with tempfile.TemporaryDirectory() as folder:
        three = Pair(arguments.binary, folder, cores=(None, None, None), flags=("--memory", "3GB"), sessions="leader")
        gate = three.nodes[2]
        gate.psql("CREATE DATABASE shop WITH (nodes = 'a, b', durability = 'memory2')", DATABASE)
        subprocess.run([PROGRAMS / "pgbench", *gate.address(), "-i", "-q", "-s", "10", "shop"], check=True, capture_output=True)
        gate.psql("CREATE TABLE big (id bigint PRIMARY KEY, filler text)", "shop")
        for part in range(40):
            gate.psql(f"INSERT INTO big SELECT g, repeat(md5(g::text), 30) FROM generate_series({part * 25000}, {part * 25000 + 24999}) g", "shop")
        marks = []
        machine = Machine()
        load = subprocess.Popen([PROGRAMS / "pgbench", *gate.address(), "-n", "-c", "4", "-T", "900", "-N", "-M", "prepared", "-R", str(rate), "-l", "--log-prefix", f"{folder}/log", "shop"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def is_on(nodes):
            found = gate.psql("SELECT members FROM aerostat.cluster_databases WHERE name = 'shop'", DATABASE)
            return sorted(found.split(", ")) == nodes

        def mark(name):
            marks.append((time.time(), name))

        time.sleep(5)
        for nodes in (["b", "c"], ["a", "c"], ["a", "b"]) * arguments.turns:
            mark("settled")
            time.sleep(10)
            began = time.time()
            mark("moving")
            names = ", ".join(nodes)
            gate.psql(f"ALTER DATABASE shop SET (nodes = '{names}')", DATABASE)
            while not is_on(nodes):
                time.sleep(0.2)
            print(f"on {names} after {time.time() - began:.1f} s", flush=True)
        mark("settled")
        time.sleep(10)
        mark("end")
        running = load.poll() is None
        load.send_signal(2)
        text, _ = load.communicate()
        latencies, ends = collections.defaultdict(list), []
        for file in pathlib.Path(folder).glob("log.*"):
            for line in file.read_text().splitlines():
                fields = line.split()
                if len(fields) < 7 or not fields[2].isdigit():
                    continue
                at = float(fields[4]) + float(fields[5]) / 1e6
                name = [name for (since, name) in marks if since <= at][-1:]
                if name and name[0] != "end":
                    # Without the time that it was late by pgbench's own schedule.
                    latencies[name[0]].append((int(fields[2]) - int(fields[6])) / 1000)
                    ends.append(at)
        spans = collections.defaultdict(float)
        for (since, name), (until, _) in zip(marks, marks[1:]):
            spans[name] += until - since
        rates = {name: len(values) / spans[name] for name, values in latencies.items()}
        for name, values in latencies.items():
            print(f"{name:8} {rates[name]:7.1f} updates/s  p50 {percentile(values, 0.5):6.2f} ms  p99 {percentile(values, 0.99):6.2f} ms  longest {max(values):6.1f} ms")
        ends.sort()
        pauses = sorted(((later - sooner, sooner) for sooner, later in zip(ends, ends[1:])), reverse=True)
        for pause, at in pauses[:5]:
            since, name = [mark for mark in marks if mark[0] <= at][-1]
            print(f"no update ended for {pause * 1000:4.0f} ms, {at - since:4.1f} s into {name}; "
                  f"for {machine.away(at, at + pause) * 1000:4.0f} ms of them no processor ran anything")
        failed = [line for line in text.splitlines() if "aborted" in line or "ERROR" in line or "FATAL" in line]
        print(f"throughput while it moves: {rates['moving'] / rates['settled']:.3f} of that when it does not; {len(failed)} clients aborted, {'all' if running else 'not all'} went on to the end")
        three.stop()


def main():
    parser = argparse.ArgumentParser(prog="copies", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["commits", "commits-apart", "reads", "catch-up"])
    parser.add_argument("--binary", default="target/release/aerostat")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--scale", type=float, default=0.1, help="of SSB")
    parser.add_argument("--rate", type=int, default=400, help="of updates in a database that moves, per second")
    parser.add_argument("--turns", type=int, default=1, help="of three moves")
    parser.add_argument("--minutes", type=float, default=1, help="of small updates beside a copy that catches up")
    arguments = parser.parse_args()
    arguments.binary = str(pathlib.Path(arguments.binary).resolve())
    for what in arguments.what:
        {"commits": commits, "commits-apart": functools.partial(commits, apart=True), "reads": reads, "catch-up": catch_up,
         "catch-up-apart": functools.partial(catch_up, apart=True), "routed": routed, "moving": moving, "secured": secured}[what](arguments)


if __name__ == "__main__":
    main()
