"""One process per engine, pinned to the cores it may use."""

import json
import os
import select
import signal
import subprocess
import sys


class Failed(Exception):
    """What an engine cannot do, in its words."""


class Engine:
    """An engine in a process of its own. One that does not answer in time is ended, and started again when it is
    needed."""

    def __init__(self, kind, threads, cores, folder, where=None):
        self.kind = kind
        self.options = {"kind": kind, "threads": threads, "cores": sorted(cores), "folder": folder, "where": where}
        self.process = None
        self.tables = []
        self.facts = {}

    def load(self, tables):
        self.tables = [{**vars(table), "file": str(table.file)} for table in tables]
        self.start()

    def start(self):
        threads = str(self.options["threads"])
        environment = {**os.environ, "POLARS_MAX_THREADS": threads}
        self.process = subprocess.Popen([sys.executable, "-m", "analytics.worker", json.dumps(self.options)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
                                        start_new_session=True)
        self.facts = self.order({"order": "load", "tables": self.tables}, 3600)

    def run(self, sql, seconds_max):
        """Milliseconds, and the rows, which are made into values outside of that time."""
        if self.process is None:
            self.start()
        answer = self.order({"order": "run", "sql": sql}, seconds_max)
        return answer["ms"], answer["rows"]

    def order(self, order, seconds_max):
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], seconds_max)
        if not ready:
            self.stop()
            raise Failed(f"over {seconds_max} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.process = None
            raise Failed(f"ended with {code}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def stop(self):
        if self.process is not None:
            # With its children.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
