"""The process of one engine: reads orders as JSON lines, answers each with one line.

`load` with tables, then `run` with a text as often as wanted. Standard output is the channel, so what an engine
prints goes to standard error.
"""

import datetime
import decimal
import importlib
import json
import os
import pathlib
import sys
import time

from .peers import KINDS
from .suite import Table


def plain(value):
    """A value that JSON has: numbers as they are, decimals as their digits, the rest as text without blanks behind."""
    if isinstance(value, decimal.Decimal):
        return {"n": str(value)}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, datetime.datetime):
        # Some engines have no dates apart from timestamps.
        return value.replace(tzinfo=None).isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(value, bytes):
        value = value.decode()
    return str(value).rstrip(" ")


class Worker:
    def __init__(self, kind, threads, folder, where):
        module, name = KINDS[kind]
        self.peer = getattr(importlib.import_module(module), name)(threads, folder, where)

    def load(self, tables):
        started = time.perf_counter()
        self.peer.load([Table(**{**table, "file": pathlib.Path(table["file"])}) for table in tables])
        return {"seconds": time.perf_counter() - started, "version": self.peer.version()}

    def run(self, sql):
        ms, result = self.peer.timed(sql)
        return {"ms": ms, "rows": [[plain(value) for value in row] for row in self.peer.rows(result)]}


def main():
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    options = json.loads(sys.argv[1])
    os.sched_setaffinity(0, options.pop("cores"))
    worker = Worker(**options)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("order"))(**order)
        except BaseException as error:  # Rust panics reach Python as BaseException.
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
