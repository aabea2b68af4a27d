#!/usr/bin/env python3
"""INSERT statements of many sizes against Aerostat and PostgreSQL 15, in turns on the same machine.

    benchmarks/inserts.py --binary target/release/aerostat --rows 1,100,1000

For each number of rows, of 3 and of 17 columns, a statement is timed from its first byte to
ReadyForQuery: as one text, as a text with parameters (Parse, Bind and Execute each time, up to
65,535 parameters), as an upsert whose rows are there already, as one that does nothing, and as
INSERT … SELECT FROM unnest. Both servers are started in private folders, commits are not
durable, and they take turns; shown are medians in milliseconds. The client is a socket: its
messages are made before the clock runs, and cost both servers the same.
Needs PostgreSQL 15 (scripts/setup postgres).
"""

import argparse
import socket
import statistics
import struct
import sys
import tempfile
import time

from oltp import DATABASE, aerostat, counts, postgres

# Columns beside the key, as a loader of TPC-C or TPC-H has them: name, type, literal of a row.
NARROW = [("a", "integer", lambda n: str(n % 1000)), ("b", "varchar(40)", lambda n: f"'value {n} of b'")]
WIDE = [(f"{kind[0]}{at}", *kind[1:]) for at in range(4) for kind in [
    ("n", "integer", lambda n: str(n % 1000)),
    ("d", "numeric(12,2)", lambda n: f"{n % 5000}.{n % 100:02}"),
    ("c", "varchar(40)", lambda n: f"'it''s value {n}'"),
    ("t", "timestamp", lambda n: f"'2024-0{n % 9 + 1}-1{n % 10} 10:{n % 60:02}:00'")]]


# Upserts come behind the text whose rows they meet.
WAYS = ["text", "upsert", "do nothing", "parameters", "unnest"]


class Client:
    """A connection that knows as much of the protocol as this takes."""

    def __init__(self, server):
        self.socket = socket.create_connection((server.host, server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = b"".join(part.encode() + b"\0" for part in ("user", server.user, "database", DATABASE)) + b"\0"
        self.socket.sendall(struct.pack("!ii", len(start) + 8, 196608) + start)
        self.until_ready()

    def until_ready(self):
        """Reads up to ReadyForQuery; an error ends the benchmark."""
        buffer = b""
        while True:
            buffer += self.socket.recv(1 << 16)
            while len(buffer) >= 5 and len(buffer) > (length := struct.unpack("!i", buffer[1:5])[0]):
                kind, body, buffer = buffer[:1], buffer[5:length + 1], buffer[length + 1:]
                if kind == b"E":
                    sys.exit(body.decode())
                if kind == b"Z":
                    return

    def run(self, message):
        started = time.perf_counter()
        self.socket.sendall(message)
        self.until_ready()
        return time.perf_counter() - started


def message(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


def query(text):
    return message(b"Q", text.encode() + b"\0")


def extended(text, values):
    """Parse, Bind, Execute and Sync of an unnamed statement, its values as text."""
    bound = b"".join(struct.pack("!i", len(value)) + value for value in (value.encode() for value in values))
    return (message(b"P", b"\0" + text.encode() + b"\0" + struct.pack("!h", 0))
            + message(b"B", b"\0\0" + struct.pack("!hH", 0, len(values)) + bound + struct.pack("!h", 0))
            + message(b"E", b"\0" + struct.pack("!i", 0)) + message(b"S", b""))


def unquoted(literal):
    return literal[1:-1].replace("''", "'") if literal[0] == "'" else literal


def statements(columns, first, rows):
    """Each way of inserting `rows` rows from key `first` on, as the bytes that are sent."""
    names = ", ".join(["k", *(name for name, _, _ in columns)])
    head = f"INSERT INTO t ({names})"
    cells = [[str(key), *(literal(key) for _, _, literal in columns)] for key in range(first, first + rows)]
    text = f"{head} VALUES " + ", ".join(f"({', '.join(row)})" for row in cells)
    update = ", ".join(f"{name} = excluded.{name}" for name, _, _ in columns)
    yield "text", query(text)
    yield "upsert", query(f"{text} ON CONFLICT (k) DO UPDATE SET {update}")
    yield "do nothing", query(f"{text} ON CONFLICT DO NOTHING")
    values = [unquoted(cell) for row in cells for cell in row]
    if len(values) <= 65535:
        width = len(columns) + 1
        holes = (f"({', '.join(f'${row * width + at + 1}' for at in range(width))})" for row in range(rows))
        yield "parameters", extended(f"{head} VALUES {', '.join(holes)}", values)
    arrays = ["{" + ",".join('"' + unquoted(row[at]) + '"' for row in cells) + "}" for at in range(len(columns) + 1)]
    types = ["bigint", *(kind.split("(")[0] for _, kind, _ in columns)]
    unnest = ", ".join(f"${at + 1}::{kind}[]" for at, kind in enumerate(types))
    yield "unnest", extended(f"{head} SELECT * FROM unnest({unnest})", arrays)


def measured(both, columns, rows, runs, ways):
    """The medians of each way, by server."""
    clients = {server.name: Client(server) for server in both}
    definition = ", ".join(f"{name} {kind}" for name, kind, _ in columns)
    times = {}
    # Small statements come often on one table, as they do in use.
    turns = max(1, min(20, 400 // rows))
    # The upserts meet the rows of the text; the others have keys of their own.
    offsets = {"parameters": 1, "unnest": 2}
    for run in range(runs + 1):
        for name, client in clients.items():
            client.run(query("DROP TABLE IF EXISTS t"))
            client.run(query(f"CREATE TABLE t (k bigint PRIMARY KEY, {definition})"))
            client.run(query("INSERT INTO t (k) VALUES (-1)"))
            for turn in range(turns):
                first = turn * rows * 3
                made = {at: dict(statements(columns, first + at * rows, rows)) for at in (0, *offsets.values())}
                for way in ways:
                    given = made[offsets.get(way, 0)].get(way)
                    seconds = given and client.run(given)
                    # The first run warms up.
                    if given and run:
                        times.setdefault(way, {}).setdefault(name, []).append(seconds)
    return {way: {name: statistics.median(taken) for name, taken in by.items()} for way, by in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/dist/aerostat")
    parser.add_argument("--rows", type=counts, default=[1, 10, 50, 100, 200, 1000, 10000])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=WAYS, help="some of " + ",".join(WAYS))
    arguments = parser.parse_args()
    print("| columns | rows | way | Aerostat ms | PostgreSQL ms | times as fast |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        both = []
        try:
            both.append(aerostat(arguments.binary, folder, False))
            both.append(postgres(folder, False))
            for columns in (NARROW, WIDE):
                for rows in arguments.rows:
                    for way, by in measured(both, columns, rows, arguments.runs, arguments.ways).items():
                        ours, theirs = (by[server.name] * 1e3 for server in both)
                        print(f"| {len(columns) + 1} | {rows:,} | {way} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} |",
                              flush=True)
        finally:
            for server in both:
                server.stop()


if __name__ == "__main__":
    main()
