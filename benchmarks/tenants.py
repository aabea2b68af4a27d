"""What tenants cost that nobody uses: memory, threads, start and processor time of a node alone and of nodes of a cluster.

    python3 benchmarks/tenants.py --binary target/release/aerostat [alone] [cluster] [--tenants 1000] [--nodes 2] [--space etcd://127.0.0.1:2379/name]

Tenants with a small table each are made, all nodes are stopped and started again, and then left alone. Memory is what the kernel counts: RSS of all pages, PSS with shared ones divided.
A first statement is one by key of a database that nobody has used since the start, by a connection of its own. Standard library only; psql is PostgreSQL 15's.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import pathlib
import socket
import statistics
import struct
import subprocess
import tempfile
import time
import urllib.request

from servers import Aerostat, Server, free_port

TABLE = "CREATE TABLE IF NOT EXISTS t (id bigint PRIMARY KEY, s text); INSERT INTO t SELECT i, 'some text' FROM generate_series(1, 100) AS i ON CONFLICT DO NOTHING"

# Sessions that make tenants at once.
MAKERS = 4


class Node(Aerostat):
    """A node that says when it serves, and of which the kernel is asked."""

    def __init__(self, binary, folder, *flags):
        pathlib.Path(folder).mkdir(exist_ok=True)
        self.port, self.http = free_port(), free_port()
        given = ["--data", f"{folder}/aerostat", "--listen", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{self.http}", "--socket-dir", folder, *flags]
        with open(f"{folder}/node.log", "a") as log:
            self.process = subprocess.Popen([binary, "serve", *given], stderr=log)
        self.began = time.monotonic()

    def await_ready(self):
        """Seconds since it was started."""
        def ready():
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.http}/healthz", timeout=5)
            except OSError:
                return None
        Server.wait(self, ready)
        return time.monotonic() - self.began

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()

    def memory(self):
        """RSS and PSS, in MiB."""
        lines = dict(line.split(":") for line in self.proc("smaps_rollup").splitlines()[1:])
        return [int(lines[name].split()[0]) / 1024 for name in ("Rss", "Pss")]

    def threads(self):
        names = [pathlib.Path(path, "comm").read_text().strip() for path in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()]
        return collections.Counter(names)

    def copies(self):
        """How many databases this node leads with so many members, by that number."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=60).read().decode()
        members = [line for line in text.splitlines() if line.startswith("aerostat_copy_members{")]
        return collections.Counter(int(float(line.split()[-1])) for line in members)

    def first(self, database):
        """Milliseconds until a statement by key is answered, from connecting on."""
        began = time.monotonic()
        with socket.create_connection((self.host, self.port)) as stream:
            words = b"".join(word.encode() + b"\0" for word in ("user", self.user, "database", database)) + b"\0"
            stream.sendall(struct.pack("!II", len(words) + 8, 196608) + words)
            stream = stream.makefile("rwb")
            for statement in (None, b"SELECT s FROM t WHERE id = 7\0"):
                if statement:
                    stream.write(b"Q" + struct.pack("!I", len(statement) + 4) + statement)
                    stream.flush()
                kind = b""
                while kind != b"Z":
                    kind, length = struct.unpack("!cI", stream.read(5))
                    body = stream.read(length - 4)
                    if kind == b"E":
                        raise RuntimeError(body)
        return (time.monotonic() - began) * 1000


def percentiles(values):
    values = sorted(values)
    return f"median {statistics.median(values):.1f} ms, p99 {values[int(len(values) * 0.99)]:.1f} ms, longest {values[-1]:.1f} ms"


def make(node, tenants):
    began = time.monotonic()

    def one(at):
        node.psql(f"CREATE DATABASE d{at}", "aerostat")
        # The lead may go to another node just then.
        for again in range(5, -1, -1):
            try:
                node.psql(TABLE, f"d{at}")
                break
            except subprocess.CalledProcessError as error:
                print(f"  d{at}: {error.stderr.strip()}", flush=True)
                if not again:
                    raise
        if at % 100 == 99:
            print(f"  {at + 1} made in {time.monotonic() - began:.0f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(MAKERS) as makers:
        list(makers.map(one, range(tenants)))


def say(node, name, tenants, seconds):
    """Memory, threads and processor time of a node that nobody uses."""
    before, began = node.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    used = (node.cpu_seconds() - before) / (time.monotonic() - began)
    rss, pss = node.memory()
    threads = node.threads()
    most = ", ".join(f"{count} {thread}" for thread, count in threads.most_common(4))
    print(f"{name}: RSS {rss:.0f} MiB, PSS {pss:.0f} MiB, {sum(threads.values())} threads ({most}), {used * 100:.1f}% of a processor while {tenants} tenants rest", flush=True)


@contextlib.contextmanager
def ended():
    """Nodes that are ended with this, whatever happens."""
    started = []
    try:
        yield started
    finally:
        for node in started:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()


def alone(arguments):
    with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as folder, ended() as started:
        flags = ("--memory", "8GB")
        node = Node(arguments.binary, f"{folder}/a", *flags)
        started.append(node)
        node.await_ready()
        make(node, arguments.tenants)
        node.stop()
        node = Node(arguments.binary, f"{folder}/a", *flags)
        started.append(node)
        print(f"alone: starts in {node.await_ready():.1f} s", flush=True)
        say(node, "alone, none opened", arguments.tenants, arguments.seconds)
        firsts = [node.first(f"d{at}") for at in range(arguments.tenants)]
        print(f"alone, first statement of an unopened database: {percentiles(firsts)}", flush=True)
        say(node, "alone, all opened a moment ago", arguments.tenants, arguments.seconds)
        print(f"alone, first statement of a connection: {percentiles([node.first(f'd{at}') for at in range(arguments.tenants)])}", flush=True)
        node.stop()


def cluster(arguments):
    with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as folder, ended() as started:
        space = arguments.space or f"file://{folder}/shared"
        names = "abcdefgh"[:arguments.nodes]

        def start(name):
            flags = ("--cluster", space, "--node-name", name, "--peer-listen", "127.0.0.1:0", "--copies", "2", "--sessions", "leader", "--memory", "8GB")
            started.append(Node(arguments.binary, f"{folder}/{name}", *flags))
            return started[-1]

        def await_led(nodes):
            """Until all databases have a leader and another member."""
            while sum(node.copies()[2] for node in nodes) < arguments.tenants:
                time.sleep(0.1)

        nodes = [start(name) for name in names]
        for node in nodes:
            node.await_ready()
        make(nodes[0], arguments.tenants)
        await_led(nodes)
        for name, node in zip(names, nodes, strict=True):
            say(node, f"node {name}, tenants made", arguments.tenants, 1)
        for node in nodes:
            node.process.terminate()
        for node in nodes:
            node.process.wait(timeout=120)
        began = time.monotonic()
        nodes = [start(name) for name in names]
        ready = [node.await_ready() for node in nodes]
        await_led(nodes)
        print(f"cluster: nodes serve {max(ready):.1f} s after they are started at once, all databases have both members after {time.monotonic() - began:.1f} s", flush=True)
        # Threads that started it end.
        time.sleep(15)
        for name, node in zip(names, nodes, strict=True):
            say(node, f"node {name}", arguments.tenants, arguments.seconds)
        firsts = [nodes[at % arguments.nodes].first(f"d{at}") for at in range(arguments.tenants)]
        print(f"cluster, first statement of a database, through any node: {percentiles(firsts)}", flush=True)
        for name, node in zip(names, nodes, strict=True):
            say(node, f"node {name}, each used once", arguments.tenants, 1)
        for node in nodes:
            node.process.terminate()
        for node in nodes:
            node.process.wait(timeout=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["alone", "cluster"])
    parser.add_argument("--binary", default="target/release/aerostat")
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="for which nodes are left alone")
    parser.add_argument("--space", help="etcd, where the cluster's documents are not to be in a folder")
    parser.add_argument("--folder", help="on the disk in question")
    arguments = parser.parse_args()
    arguments.binary = str(pathlib.Path(arguments.binary).resolve())
    for what in arguments.what:
        {"alone": alone, "cluster": cluster}[what](arguments)


if __name__ == "__main__":
    main()
