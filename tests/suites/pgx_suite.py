"""pgx's tests, package by package: a test binary that hangs is ended and goes on behind the test it hung in."""

import os
import re
import subprocess
import threading
import time

from . import processes, sources
from .results import FAILED, PASSED, SKIPPED, Results

PACKAGES = [".", "pgtype", "pgconn", "pgxpool", "stdlib"]
SAMPLE = ["pgxpool"]
# They wait for a time and look then at what a thread has done by it, which a busy machine does later.
SAMPLE_WITHOUT = ["Background", "Lifetime", "Idle", "Expired", "Ping", "MinPoolSize", "ConcurrentLoad", "Fatally", "AfterRelease"]
SILENCE_SECONDS_MAX = 25
HANGS_MAX = 60
OUTCOMES = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}


class Pgx:
    name = "pgx"

    def get(self):
        self.folder = sources.go_module(sources.PGX)
        self.binaries = {package: self.build(package) for package in PACKAGES}

    def build(self, package):
        name = {".": "pgx"}.get(package, package)
        binary = sources.FOLDER / "go" / f"{name}.test"
        if not binary.exists():
            sources.run("go", "test", "-c", "-o", binary, f"./{package}", cwd=self.folder)
        return binary

    def run(self, server, database, work, sample, seconds):
        url = f"host=127.0.0.1 port={server.port} user={server.user} dbname={database} sslmode=disable"
        env = processes.environment(server, database, PGX_TEST_DATABASE=url, PGX_TEST_TCP_CONN_STRING=url)
        results, deadline = Results(), time.monotonic() + seconds
        for package in SAMPLE if sample else PACKAGES:
            left_out = SAMPLE_WITHOUT if sample else []
            Binary(self.binaries[package], self.folder / package, env, work / "log", package, left_out, results).run(deadline)
        return results


class Binary:
    """Runs of one test binary, until each of its tests has an outcome."""

    def __init__(self, binary, folder, env, log, package, left_out, results):
        self.binary, self.folder, self.env, self.log = binary, folder, env, log
        self.package = package
        self.left_out = left_out
        self.results = results
        self.over = []

    def run(self, deadline):
        for _ in range(HANGS_MAX):
            before = len(self.over)
            if self.ended_well(deadline) or time.monotonic() > deadline:
                return
            if self.running is not None:
                self.note(self.running, FAILED, f"timeout: silent for {SILENCE_SECONDS_MAX} s, or ended the process")
                self.over.append(self.running)
            elif len(self.over) == before:
                return

    def note(self, test, outcome, message=""):
        self.results.add(f"{'pgx' if self.package == '.' else self.package}/{test}", outcome, message)

    def ended_well(self, deadline):
        """Runs what is not over; whether the process came to its end, and did not hang or panic."""
        skip = "|".join([f"^{re.escape(test)}$" for test in self.over] + self.left_out) or "^$"
        command = [str(self.binary), "-test.v", "-test.parallel=1", f"-test.skip={skip}"]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self.running, self.spoke, output = None, time.monotonic(), []
        reader = threading.Thread(target=self.read, args=(process, output), daemon=True)
        reader.start()
        while process.poll() is None:
            now = time.monotonic()
            if now - self.spoke > SILENCE_SECONDS_MAX or now > deadline:
                process.kill()
            time.sleep(0.1)
        reader.join(5)
        with open(self.log, "a") as log:
            log.writelines(output)
        return process.returncode in (0, 1)

    def read(self, process, output):
        said = []
        for line in process.stdout:
            self.spoke = time.monotonic()
            output.append(line)
            if started := re.match(r"=== (?:RUN|CONT) +([^/\s]+)$", line.strip()):
                self.running, said = started[1], []
            elif ended := re.match(r"--- (PASS|FAIL|SKIP): (\S+)", line):
                self.note(ended[2], OUTCOMES[ended[1]], "".join(said)[-600:] if ended[1] == "FAIL" else "")
                self.over.append(ended[2])
                self.running = None
            else:
                said.append(line)
