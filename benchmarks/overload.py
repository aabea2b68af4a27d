#!/usr/bin/env python3
"""Throughput and latency when far more clients ask than a node has cores for, with and without limits.

    benchmarks/overload.py --binary target/release/aerostat --seconds 5 --runs 3

A node of its own is started in a private folder on a free port. Each workload runs with `--clients` clients (4), and
with four and sixteen times as many, under each setting of the database, all in turns, `--runs` times; medians are
printed. Clients are of a role that is no superuser, send one statement after another by the simple protocol, and wait
a little after one that was refused (53300). All are sockets of this one process, whose own time bounds what is reached.

    read      an aggregate over 2,000 rows, planned
    write     an UPDATE of three rows that all clients update, planned
    by key    a SELECT by primary key, on the fast path
"""

import argparse
import heapq
import pathlib
import selectors
import socket
import statistics
import struct
import tempfile
import time

from servers import Aerostat

WORKLOADS = {
    "read": "SELECT v % 10, count(*), sum(id) FROM t GROUP BY 1",
    "write": "UPDATE c SET n = n + 1 WHERE id <= 3",
    "by key": "SELECT v FROM t WHERE id = 77",
}
SETTINGS = {
    "no limit": "RESET (statements_max, queue_max)",
    "4 run, others wait": "SET (statements_max = 4, queue_max = -1)",
    "4 run, 8 wait": "SET (statements_max = 4, queue_max = 8)",
}
BACK_OFF_S = 0.02


class Session:
    """A client's connection, which has one statement under way or none."""

    def __init__(self, port, database):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = struct.pack("!I", 196608) + b"user\0plain\0database\0" + database.encode() + b"\0\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self.bytes, self.error = b"", None
        while not self.answered():
            pass
        self.socket.setblocking(False)

    def ask(self, text):
        body = text.encode() + b"\0"
        self.began, self.error = time.perf_counter(), None
        self.socket.sendall(b"Q" + struct.pack("!I", len(body) + 4) + body)

    def answered(self):
        """Reads what is there; whether the server waits for the next statement."""
        received = self.socket.recv(65536)
        if not received:
            raise SystemExit("the node has ended a session")
        self.bytes += received
        at, ready = 0, False
        while len(self.bytes) - at >= 5:
            length = struct.unpack_from("!I", self.bytes, at + 1)[0]
            if len(self.bytes) - at < length + 1:
                break
            kind = self.bytes[at : at + 1]
            if kind == b"E":
                fields = self.bytes[at + 5 : at + 1 + length].split(b"\0")
                self.error = next(field[1:].decode() for field in fields if field[:1] == b"C")
            ready = ready or kind == b"Z"
            at += length + 1
        self.bytes = self.bytes[at:]
        return ready


def run(port, database, text, clients, seconds):
    """Statements done and refused a second, and the 99th percentile in ms of those done."""
    sessions = [Session(port, database) for _ in range(clients)]
    selector = selectors.DefaultSelector()
    for session in sessions:
        selector.register(session.socket, selectors.EVENT_READ, session)
        session.ask(text)
    times, refused, resting = [], 0, []
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        while resting and resting[0][0] <= now:
            heapq.heappop(resting)[2].ask(text)
        wait = max(0, resting[0][0] - now) if resting else 0.1
        for key, _ in selector.select(min(wait, 0.1)):
            session = key.data
            if not session.answered():
                continue
            if session.error == "53300":
                refused += 1
                heapq.heappush(resting, (now + BACK_OFF_S, id(session), session))
                continue
            if session.error:
                raise SystemExit(f"{text}: {session.error}")
            times.append(time.perf_counter() - session.began)
            session.ask(text)
    for session in sessions:
        session.socket.close()
    times.sort()
    p99 = times[int(len(times) * 0.99)] * 1000 if times else float("nan")
    return len(times) / seconds, refused / seconds, p99


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="those alone; all if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = Aerostat(options.binary.resolve(), folder, "--memory", "2GB")
        try:
            measure(node, options)
        finally:
            node.stop()


def measure(node, options):
    node.psql("CREATE USER plain", "aerostat")
    node.psql("CREATE DATABASE d WITH (durability = 'none') OWNER plain", "aerostat")
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT g, g % 100 FROM generate_series(1, 2000) AS g",
        "CREATE TABLE c (id int PRIMARY KEY, n int)",
        "INSERT INTO c SELECT g, 0 FROM generate_series(1, 10) AS g",
        "GRANT ALL ON t, c TO plain",
    ]:
        node.psql(sql, "d")
    found = {}
    for _ in range(options.runs):
        for workload in options.workload or WORKLOADS:
            text = WORKLOADS[workload]
            for times in (1, 4, 16):
                for setting, change in SETTINGS.items():
                    node.psql(f"ALTER DATABASE d {change}", "aerostat")
                    got = run(node.port, "d", text, options.clients * times, options.seconds)
                    found.setdefault((workload, times, setting), []).append(got)
    print("| workload | clients | setting | done/s | refused/s | p99 in ms |")
    print("|---|---|---|---|---|---|")
    for (workload, times, setting), runs in found.items():
        done, refused, p99 = (statistics.median(values) for values in zip(*runs))
        print(f"| {workload} | {options.clients * times} | {setting} | {done:.0f} | {refused:.0f} | {p99:.1f} |")


if __name__ == "__main__":
    main()
