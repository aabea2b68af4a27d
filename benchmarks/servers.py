"""Servers of a benchmark's own: Aerostat and PostgreSQL 15 in private folders on free ports.

Each is started with the cores that the caller has at that moment (`on_cores`), and ended by `stop`.
"""

import contextlib
import os
import pathlib
import pwd
import socket
import subprocess
import sys
import time
import urllib.request

PROGRAMS = pathlib.Path("/usr/lib/postgresql/15/bin")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def on_cores(cores):
    """Whatever is started within runs on these cores alone; `None` for all."""
    before = os.sched_getaffinity(0)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Server:
    """A server of the benchmark's own, ended when the benchmark ends."""

    host = "127.0.0.1"

    def wait(self, ready):
        for _ in range(2400):
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended")
            if ready():
                return
            time.sleep(0.05)
        sys.exit(f"{self.name} does not answer")

    def psql(self, sql, database):
        command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *self.address(), "-d", database, "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def address(self):
        return ["-h", self.host, "-p", str(self.port), "-U", self.user]

    def url(self, database=""):
        return f"postgres://{self.user}@127.0.0.1:{self.port}/{database}".rstrip("/")

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
    """A node over the data in `folder`; what it says goes to `node.log` there."""

    name, user = "aerostat", "aerostat"

    def __init__(self, binary, folder, *flags):
        self.port, http = free_port(), free_port()
        given = ["--data", f"{folder}/aerostat", "--listen", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{http}",
                 "--socket-dir", folder, *flags]
        with open(f"{folder}/node.log", "a") as log:
            self.process = subprocess.Popen([binary, "serve", *given], stderr=log)

        def ready():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{http}/healthz", timeout=1)

        self.wait(ready)


class Postgres(Server):
    """PostgreSQL 15 over a cluster in `folder`, made when it is not there."""

    name, user = "postgresql", "postgres"

    def __init__(self, folder, settings):
        self.port = free_port()
        data = pathlib.Path(folder, "postgres")
        own = {}
        fresh = not data.exists()
        data.mkdir(exist_ok=True)
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            # Its socket is there, and perhaps another server's.
            os.chmod(folder, 0o777)
            os.chown(data, nobody.pw_uid, nobody.pw_gid)
            own = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        if fresh:
            initdb = [PROGRAMS / "initdb", "-D", data, "-U", self.user, "-A", "trust", "-E", "UTF8", "--locale=C"]
            subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **own)
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "port": self.port, **settings}
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen([PROGRAMS / "postgres", "-D", data, *flags], stderr=subprocess.DEVNULL, **own)
        probe = [PROGRAMS / "pg_isready", "-q", *self.address()]
        self.wait(lambda: subprocess.run(probe).returncode == 0)

    def stop(self):
        # The fast shutdown, which waits for no client.
        self.process.send_signal(2)
        self.process.wait(timeout=120)
