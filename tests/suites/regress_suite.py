"""PostgreSQL's regression SQL, statement by statement: the same rows, or an error of the same class.

Each file runs in a database of its own after the files that make what it needs. psql's own commands are
passed over; data behind COPY … FROM stdin are sent. A test is `file:line`, where its statement begins.
"""

import pathlib
import re
import sys
import time

import psycopg

from . import sources
from .regress_script import statements
from .results import FAILED, PASSED, Results

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from fuzz_sql.compare import difference  # noqa: E402
from fuzz_sql.sides import Answer  # noqa: E402

SETUP = "test_setup"
SAMPLE = ["boolean", "int4", "case", "union", "join", "with", "insert_conflict", "merge", "window", "date"]
STATEMENT_MS_MAX = 8_000
FILE_SECONDS_MAX = 150
# They are about files of the server, replication, other programs, or the machine.
LEFT_OUT = {"largeobject", "tablespace", "stats", "psql", "psql_crosstab", "sysviews", "misc", "create_function_c", "compression", "event_trigger", "oidjoins", "sanity_check", "opr_sanity", "type_sanity", "misc_sanity"}  # fmt: skip


CREATED = re.compile(r"\bcreate\s+(?:\w+\s+)*?(table|view|type|domain|function|sequence|index|schema|role|user|operator|aggregate|procedure)\s+(?:if not exists\s+)?\"?([\w.]+)", re.I)
PLANS = re.compile(r"explain\b", re.I)
SETTING = re.compile(r"set\s+(?:local\s+|session\s+)?(datestyle|intervalstyle|timezone|time zone|bytea_output|extra_float_digits|standard_conforming_strings)", re.I)
MISSING = re.compile(r"\"?([\w.]+)\"?(?:\([^)]*\))? does not exist")


class Regress:
    """Runs on both servers at once, as each statement's answer is the other's test."""

    name = "postgresql"
    together = True

    def __init__(self):
        self.causes = Causes()

    def get(self):
        self.folder = sources.debian_source(sources.POSTGRESQL) / "src" / "test" / "regress"

    def files(self, sample):
        schedule = (self.folder / "parallel_schedule").read_text()
        names = [name for line in re.findall(r"^test:(.*)$", schedule, re.M) for name in line.split()]
        names = [name for name in names if name not in LEFT_OUT and (self.folder / "sql" / f"{name}.sql").exists()]
        return [name for name in names if name in SAMPLE or name == SETUP] if sample else names

    def run_both(self, postgres, aerostat, work, sample, seconds):
        control, results = Results(), Results()
        deadline = time.monotonic() + seconds
        pair = [Connection(postgres), Connection(aerostat)]
        for name in self.files(sample):
            if time.monotonic() > deadline:
                results.add("schedule", FAILED, f"the suite's time was over before {name}")
                control.add("schedule", PASSED)
                break
            script = (self.folder / "sql" / f"{name}.sql").read_text(errors="replace")
            self.file(name, statements(self.named(script)), pair, control, results, work)
        return control, results

    def named(self, script):
        """The variables that psql would have replaced."""
        for name in ("abs_srcdir", "abs_builddir"):
            script = script.replace(f":'{name}'", f"'{self.folder}'")
        return script

    def file(self, name, found, pair, control, results, work):
        deadline = time.monotonic() + FILE_SECONDS_MAX
        self.causes.style_refused = False
        for each in pair:
            each.open()
        for statement in found:
            if hasattr(statement, "file"):
                statement.data = [(self.folder / statement.file.lstrip("/")).read_text(errors="replace")]
        with open(work / "log", "a") as log:
            for statement in found:
                if time.monotonic() > deadline:
                    break
                if PLANS.match(statement.text):
                    continue
                wanted, got = (each.ask(statement) for each in pair)
                test = f"{name}:{statement.line}"
                control.add(test, PASSED)
                unlike = difference(wanted, got, ordered(statement.text))
                said = self.causes.traced(statement, message(unlike, wanted, got), got)
                results.add(test, FAILED if unlike else PASSED, said)
                if unlike:
                    log.write(f"{test}\t{said}\t{' '.join(statement.text.split())[:400]}\n")


class Causes:
    """What a failure follows from: a table or setting that was refused, or what ended the transaction."""

    def __init__(self):
        self.refused = {}
        self.ended = ""
        self.style_refused = False  # in the file at hand

    def traced(self, statement, said, got):
        if not got.code:
            return f"{said}, after a SET that was refused" if said.startswith("rows") and self.style_refused else said
        self.style_refused |= SETTING.match(statement.text) is not None
        if got.code == "25P02":
            return f"follows from {self.ended.removeprefix('follows from ')}"[:400]
        if (missing := MISSING.search(got.message)) and missing[1].lower() in self.refused:
            said = f"follows from {self.refused[missing[1].lower()].removeprefix('follows from ')}"
        for _, name in CREATED.findall(statement.text):
            self.refused.setdefault(name.lower(), said)
        self.ended = said
        return said[:400]


def ordered(sql):
    return re.search(r"\border\s+by\b[^()]*$", sql, re.I) is not None


def message(unlike, wanted, got):
    if unlike is None:
        return ""
    if got.code:
        return f"{unlike.kind}: {got.code} {got.message}"
    if wanted.code:
        return f"{unlike.kind}: no error, where PostgreSQL says {wanted.code} {wanted.message}"
    return f"{unlike.kind}: {unlike.detail}"


class Connection:
    def __init__(self, server):
        self.server = server
        self.connection = None

    def open(self):
        if self.connection is not None:
            self.connection.close()
        for _ in range(100):
            try:
                self.connection = psycopg.connect(self.server.dsn("suite"), autocommit=True, connect_timeout=10)
                break
            except psycopg.OperationalError:
                time.sleep(0.2)
        self.connection.pgconn.exec_(b"SET client_min_messages = error")
        self.connection.pgconn.exec_(b"SET statement_timeout = %d" % STATEMENT_MS_MAX)

    def ask(self, statement):
        pgconn = self.connection.pgconn
        try:
            pgconn.send_query(statement.text.encode())
            last = None
            while (result := pgconn.get_result()) is not None:
                if result.status == psycopg.pq.ExecStatus.COPY_IN:
                    pgconn.put_copy_data("".join(statement.data or []).encode())
                    pgconn.put_copy_end()
                elif result.status == psycopg.pq.ExecStatus.COPY_OUT:
                    while pgconn.get_copy_data(0)[0] > 0:
                        pass
                last = result
            if last is not None and pgconn.status == psycopg.pq.ConnStatus.OK:
                return Answer(last)
        except psycopg.Error:
            pass
        self.open()
        return Lost()


class Lost:
    """The connection was lost in a statement."""

    code, message = "08006", "connection lost"
    types = names = rows = tag = None
    binary = False
