"""The programs whose memory moves, and the broker: private, on loopback, ended when the benchmark ends."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import pymysql

from servers import Server

MIB = 1 << 20
ROW_BYTES = 1600
#: Queries of one call: short enough that loads end soon, long enough that clients cost little.
QUERIES = 200
PROCEDURE = """CREATE PROCEDURE d.some(first INT, ids INT, queries INT)
BEGIN
    DECLARE n INT DEFAULT 0;
    WHILE n < queries DO
        SET n = n + 1, @id = first + FLOOR(RAND() * ids);
        SELECT pad INTO @pad FROM d.t WHERE id = @id;
    END WHILE;
END"""


def program(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        raise SystemExit(f"there is no {name}: scripts/setup participants")
    return found


class MariaDb(Server):
    """A server in a folder of its own, with a buffer pool of so many bytes."""

    kind = "mariadb"

    @property
    def reached(self):
        return f"socket={self.socket},user=root"

    def __init__(self, name, folder, pool):
        self.name, self.folder = name, folder
        self.socket = folder / "socket"
        self.user = ["--user=root"] if os.geteuid() == 0 else []
        if not (folder / "data").exists():
            install = [program("mariadb-install-db"), "--no-defaults", f"--datadir={folder}/data", *self.user]
            install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            subprocess.run(install, check=True, capture_output=True)
        self.start(pool)

    def start(self, pool):
        command = [program("mariadbd"), "--no-defaults", f"--datadir={self.folder}/data", f"--socket={self.socket}"]
        command += ["--skip-networking", "--skip-log-bin", "--innodb-flush-method=O_DIRECT", *self.user]
        command += ["--innodb-flush-log-at-trx-commit=0", f"--innodb-buffer-pool-size={pool}"]
        command += ["--innodb-buffer-pool-dump-at-shutdown=OFF", "--innodb-buffer-pool-load-at-startup=OFF"]
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait(self.is_ready)

    def is_ready(self):
        with contextlib.suppress(pymysql.err.OperationalError):
            self.connect().close()
            return True
        return False

    def connect(self):
        return pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True, local_infile=True)

    def fill(self, rows):
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("USE d")
            cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(2000)) ENGINE=InnoDB")
            cursor.execute(f"INSERT INTO t SELECT seq, REPEAT(MD5(seq), {ROW_BYTES // 32}) FROM seq_1_to_{rows}")
            cursor.execute(PROCEDURE)

    def status(self, name):
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
            return int(cursor.fetchone()[1])

    def pool(self):
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@innodb_buffer_pool_size")
            return int(cursor.fetchone()[0])


class Load:
    """A client that runs queries on rows of a server until it is stopped, and notes when it had done how many."""

    def __init__(self, server, ids, pause, done):
        self.server, self.ids, self.pause, self.done = server, ids, pause, done
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with self.server.connect() as connection, connection.cursor() as cursor:
            while not self.stopping.is_set():
                cursor.execute(f"CALL d.some(1, {self.ids}, {QUERIES})")
                self.done.append(time.time())
                if self.pause:
                    self.stopping.wait(self.pause)

    def stop(self):
        self.stopping.set()
        self.thread.join()


def rate(done, begin, end):
    """Queries a second."""
    return sum(begin <= at < end for at in done) * QUERIES / (end - begin)


class Broker:
    def __init__(self, binary, folder, memory, *flags):
        self.binary, self.folder, self.processes = binary, folder / "broker", []
        folder.mkdir(exist_ok=True)
        self.log = open(folder / "broker.log", "w")
        self.spawn("run", "--memory", str(memory), *flags)
        while not (self.folder / "broker.sock").exists():
            time.sleep(0.05)

    def spawn(self, *arguments):
        command = [self.binary, "broker", *arguments, "--data", str(self.folder)]
        self.processes.append(subprocess.Popen(command, stdout=self.log, stderr=self.log))

    def adapt(self, server, floor, ceiling):
        self.spawn("adapter", server.kind, f"name={server.name},{server.reached},floor={floor},ceiling={ceiling}")
        while not self.granted(server.name):
            time.sleep(0.1)

    def move(self, name, mib):
        """Has a participant live by so much; seconds until the ledger says so."""
        began = time.time()
        self.run("pin", name, f"{mib}MB")
        bytes_asked = mib * MIB
        while abs(self.granted(name) - bytes_asked) > bytes_asked // 50:
            if time.time() > began + 120:
                raise SystemExit(self.run("status"))
            time.sleep(0.02)
        return time.time() - began

    def run(self, *arguments):
        command = [self.binary, "broker", *arguments, "--data", str(self.folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def audit(self, since=0):
        path = self.folder / "audit.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["at"] >= since]

    def granted(self, name):
        participants = json.loads(self.run("status", "--json"))["participants"]
        return next((one["granted"] for one in participants if one["name"] == name), 0)

    def processor_s(self):
        """Of the broker alone."""
        fields = pathlib.Path(f"/proc/{self.processes[0].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(timeout=60)
        self.log.close()


class Java:
    """A program that does what it is told, such as keeping memory, making garbage and evaluating XPath expressions."""

    kind = "jvm"

    def __init__(self, name, *flags, source="Auctions.java", first="garbage 1"):
        self.name = name
        path = pathlib.Path(__file__).with_name(source)
        self.process = subprocess.Popen([program("java"), *flags, path], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.tell(first)

    @property
    def reached(self):
        return f"pid={self.process.pid}"

    def ask(self, command):
        """The seconds that it took, and what else it says of it."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("done "):
            raise SystemExit(f"{self.name}: {command}: {answer}{self.process.stdout.read()}")
        return [float(word) for word in answer.split()[1:]]

    def tell(self, command):
        """The seconds that it took."""
        return self.ask(command)[0]

    def stop(self):
        self.process.kill()
        self.process.wait()


COLLECTORS = {
    "G1": ["-XX:+UseG1GC"],
    "ZGC": ["-XX:+UseZGC", "-XX:ZUncommitDelay=1"],
    "Shenandoah": ["-XX:+UseShenandoahGC"],
}


def account(pid):
    """What the kernel counts of a process, in MiB."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) // 1024
