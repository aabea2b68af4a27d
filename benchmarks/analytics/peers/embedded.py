"""Aerostat in process: `aerostat sql` on a copy of the node's data folder, which no two processes may have open.

The interface in process is Rust's, so a program of ours is the process, a child of this one on the same cores. It
tells how long its call took, until all rows were there as Arrow batches; the lines of JSON between the two are not
in that.
"""

import datetime
import decimal
import json
import subprocess
import time

from . import Peer
from ..node import TENANT, embedded_copy

# How long one that was killed may take to let go of the folder.
SECONDS_TO_OPEN = 60


class Embedded(Peer):
    def version(self):
        return self.order("SELECT version()")["rows"][0][0]

    def load(self, tables):
        """The folder has its rows already."""
        ends = time.monotonic() + SECONDS_TO_OPEN
        while True:
            self.process = subprocess.Popen(
                [self.where, "sql", "--data", embedded_copy(self.folder), "--database", TENANT,
                 "--threads", str(self.threads), "--pin-threads", "on", "--json-lines"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                return self.order("SELECT 1")
            except EOFError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.2)

    def order(self, sql):
        try:
            self.process.stdin.write(json.dumps({"sql": sql, "rows": True}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"aerostat sql ended with {self.process.wait()}")
        answer = json.loads(line, parse_float=decimal.Decimal)
        if "error" in answer:
            raise RuntimeError("{code}: {message}".format(**answer["error"]))
        return answer

    def timed(self, sql):
        answer = self.order(sql)
        return float(answer["ms"]), answer

    def rows(self, answer):
        read = [reader(column["type"]) for column in answer["columns"]]
        return [[None if cell is None else one(cell) for one, cell in zip(read, row)] for row in answer["rows"]]


def reader(kind):
    """What makes a value of a type of what JSON has of it."""
    base = (kind or "").partition("(")[0]
    if base == "numeric":
        return decimal.Decimal
    if base in ("real", "double precision"):
        return float
    if base.startswith("timestamp"):
        return datetime.datetime.fromisoformat
    return lambda cell: cell
