"""Private servers of the test programs: a node of Aerostat and a PostgreSQL 15.

Each has a folder of its own and a free port on the loopback, and ends with its `stop` (or with the
`with` around it). A server that has died can be started again over the same folder.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import psycopg

PROGRAMS = pathlib.Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534  # PostgreSQL does not run as root; every Linux has this user.
START_SECONDS_MAX = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A process that listens on `port`, with its log in `folder/log`."""

    name = ""
    user = "aerostat"
    database = ""  # one that is there from the beginning

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"aerostat-{self.name}-"))
        self.port = free_port()
        self.log = self.folder / "log"
        self.process = None
        self.starts = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def dsn(self, database):
        return f"host=127.0.0.1 port={self.port} user={self.user} dbname={database}"

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        self.prepare()
        self.starts += 1
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self.process_options()
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.listening():
            if not self.alive() or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not start:\n{self.log_end()}")
            time.sleep(0.05)

    def listening(self):
        try:
            psycopg.connect(self.dsn(self.database), connect_timeout=2).close()
            return True
        except psycopg.OperationalError:
            return False

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self):
        if self.alive():
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def log_end(self, lines=40):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def prepare(self):
        """What has to be there before the process starts."""

    def process_options(self):
        return {}

    def command(self):
        raise NotImplementedError


class Aerostat(Server):
    """A node of the binary that AEROSTAT_BIN names, or of the release build."""

    name = "aerostat"
    database = "aerostat"

    def __init__(self, memory="3GB"):
        super().__init__()
        self.memory = memory
        self.http = free_port()

    def command(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        binary = os.environ.get("AEROSTAT_BIN", target / "release" / "aerostat")
        return [
            str(binary), "serve",
            "--data", str(self.folder / "data"),
            "--listen", f"127.0.0.1:{self.port}",
            "--http", f"127.0.0.1:{self.http}",
            "--memory", self.memory,
        ]  # fmt: skip


class Postgres(Server):
    """A PostgreSQL 15 with the superuser `user`, ordered by bytes, letters as Unicode has them, in which nothing is synced."""

    name = "postgres"
    database = "postgres"

    def __init__(self, user="aerostat", options=()):
        super().__init__()
        self.user = user
        self.options = options

    @staticmethod
    def installed():
        return (PROGRAMS / "initdb").exists()

    def process_options(self):
        return {"user": NOBODY, "group": NOBODY, "cwd": self.folder} if os.getuid() == 0 else {"cwd": self.folder}

    def prepare(self):
        if (self.folder / "data").exists():
            return
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        command = [
            PROGRAMS / "initdb", "--pgdata", self.folder / "data", "--username", self.user,
            "--auth=trust", "--encoding=UTF8", "--locale=C", "--lc-ctype=C.UTF-8", "--no-sync",
        ]  # fmt: skip
        made = subprocess.run(command, capture_output=True, text=True, **self.process_options())
        if made.returncode != 0:
            raise SystemExit(f"initdb failed:\n{made.stdout}{made.stderr}")

    def command(self):
        settings = [
            "listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories=", "fsync=off",
            "synchronous_commit=off", "full_page_writes=off", "max_connections=120", "shared_buffers=64MB",
            "jit=off", *self.options,
        ]  # fmt: skip
        return [str(PROGRAMS / "postgres"), "-D", str(self.folder / "data"), *(f"-c{each}" for each in settings)]
