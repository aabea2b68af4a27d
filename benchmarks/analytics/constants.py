"""The queries of SSB with new constants each time, beside the same text again, and DuckDB with new constants.

    PYTHONPATH=benchmarks .venv-analytics/bin/python -m analytics.constants --binary target/dist/aerostat

Strings, years and numbers that columns are compared with are drawn anew for each execution, of those that the columns
have. All ways take turns, query by query, and get the same constants; every answer is compared with DuckDB's. A number
is the geometric mean of the queries' medians in milliseconds, as a client sees them.

`the same text`    is the query as SSB has it, sent again and again
`new constants`    a new text each time, as a client without parameters sends it
`parameters`       a prepared statement whose constants are all parameters
"""

import argparse
import contextlib
import os
import random
import re
import statistics
import tempfile
import time

import duckdb
import psycopg
from servers import Aerostat

from . import node
from .suite import suite

# What is compared with a constant: a string, or a number, that stands behind an operator.
CONSTANT = re.compile(r"(?P<before>(?:=|<|>|\bbetween|\band)\s*)(?P<constant>'[^']*'|\d+)(?!\s*\*)", re.IGNORECASE)

# The bounds of a range, at the end of what stands before them.
LEAST = re.compile(r"(?:>=?|\bbetween)\s*$", re.IGNORECASE)
MOST = re.compile(r"(?:<=?|\band)\s*$", re.IGNORECASE)


def options():
    parser = argparse.ArgumentParser(prog="analytics.constants", description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--binary", default="target/dist/aerostat", help="the node that is measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each engine")
    parser.add_argument("--runs", type=int, default=15, help="of each query")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="a folder to keep data in for the next time; else a temporary one")
    return parser.parse_args()


def varied(constant, dice):
    """Another constant of the same kind: a name's last digit, a year, a small number."""
    if constant.startswith("'"):
        digits = re.search(r"\d(?='$)", constant)
        if digits and not constant.startswith(("'19", "'Dec")):
            return constant[:digits.start()] + str(dice.randint(1, 5)) + "'"
        regions = ["'AMERICA'", "'ASIA'", "'EUROPE'", "'AFRICA'", "'MIDDLE EAST'"]
        return dice.choice(regions) if constant in regions else constant
    number = int(constant)
    if 1992 <= number <= 1998:
        return str(dice.randint(1992, 1998))
    return str(max(1, number + dice.randint(-2, 2))) if number < 100 else constant


def parts(sql):
    """The text around constants, and these; only those behind WHERE."""
    start = re.search(r"\bwhere\b", sql, re.IGNORECASE).start()
    found = [match for match in CONSTANT.finditer(sql, start)]
    texts, constants, end = [], [], 0
    for match in found:
        texts.append(sql[end:match.start("constant")])
        constants.append(match.group("constant"))
        end = match.end("constant")
    return [*texts, sql[end:]], constants


def drawn(texts, own, dice):
    """Other constants; the two bounds of a range in order, since a range of nothing is no query."""
    constants = [varied(constant, dice) for constant in own]
    for at in range(len(constants) - 1):
        is_range = LEAST.search(texts[at]) and MOST.search(texts[at + 1])
        if is_range and constants[at].isdigit() and int(constants[at]) > int(constants[at + 1]):
            constants[at], constants[at + 1] = constants[at + 1], constants[at]
    return constants


def joined(texts, constants):
    return "".join(text + constant for text, constant in zip(texts, [*constants, ""]))


def plain(constant):
    return constant.strip("'") if constant.startswith("'") else int(constant)


class Ways:
    """Each way of asking takes the texts around constants, those of SSB, and those of this execution."""

    def __init__(self, server, tables, threads):
        self.connection = psycopg.connect(server.url(node.TENANT), autocommit=True, cursor_factory=psycopg.RawCursor)
        self.cursor = self.connection.cursor(binary=True)
        self.duck = duckdb.connect(config={"threads": threads})
        for table in tables:
            self.duck.execute(f"CREATE TABLE {table.name} AS SELECT * FROM read_parquet('{table.file}')")

    def same(self, texts, own, constants):
        return self.cursor.execute(joined(texts, own), prepare=False).fetchall()

    def new(self, texts, own, constants):
        return self.cursor.execute(joined(texts, constants), prepare=False).fetchall()

    def parameters(self, texts, own, constants):
        numbered = [f"${number}" for number in range(1, len(constants) + 1)]
        return self.cursor.execute(joined(texts, numbered), [plain(c) for c in constants], prepare=True).fetchall()

    def duckdb(self, texts, own, constants):
        return self.duck.execute(joined(texts, constants)).fetchall()

    def all(self):
        return {"the same text": self.same, "new constants": self.new, "parameters": self.parameters,
                "DuckDB, new constants": self.duckdb}


def measure(ways, queries, arguments):
    """By way, the times of each query."""
    dice = random.Random(arguments.seed)
    times = {name: [[] for _ in queries] for name in ways.all()}
    for run in range(arguments.runs + 3):
        for number, query in enumerate(queries):
            texts, own = parts(query.sql)
            constants = drawn(texts, own, dice)
            answers = {}
            for name, way in ways.all().items():
                started = time.perf_counter()
                answers[name] = way(texts, own, constants)
                if run >= 3:
                    times[name][number].append((time.perf_counter() - started) * 1000)
            compare(query.id, constants, answers)
    return times


def compare(query, constants, answers):
    def rows(name):
        # A `char(n)` has its blanks over the wire.
        return sorted(tuple(str(value).rstrip() for value in row) for row in answers[name])

    expected = rows("DuckDB, new constants")
    for name in ("new constants", "parameters"):
        if rows(name) != expected:
            raise SystemExit(f"{query} with {constants}: {name} gives {rows(name)[:3]}…, DuckDB {expected[:3]}…")


def main():
    arguments = options()
    with contextlib.ExitStack() as stack:
        folder = arguments.data or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        ssb = suite("ssb", arguments.scale)
        queries = ssb.queries(arguments.binary)
        server = Aerostat(arguments.binary, folder, "--threads", str(arguments.threads))
        try:
            node.load(arguments.binary, server, ssb, "column", 2)
            node.rest(server, True)
            tables = node.tables(server, ssb, folder)
            times = measure(Ways(server, tables, arguments.threads), queries, arguments)
        finally:
            server.stop()
    medians = {name: [statistics.median(own) for own in each] for name, each in times.items()}
    means = {name: statistics.geometric_mean(each) for name, each in medians.items()}
    for name, mean in means.items():
        print(f"{name:24} {mean:7.2f} ms   {means['DuckDB, new constants'] / mean:5.2f} of DuckDB's speed")
    for number, query in enumerate(queries):
        print(f"  {query.id:6}", *(f"{each[number]:8.2f}" for each in medians.values()))


if __name__ == "__main__":
    main()
