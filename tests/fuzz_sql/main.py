"""The differential fuzzer: Aerostat beside PostgreSQL 15. `scripts/fuzz-sql --help`."""

import argparse
import collections
import multiprocessing
import pathlib
import random
import re
import sys
import time

import servers

from . import schema
from .case import Cases
from .compare import Difference
from .explained import explanation
from .logic import Logic
from .minimise import Minimiser, script
from .running import Round, current
from .sides import Died, Side

CASES_PER_ROUND = 150
# Differences of one signature that nothing explains and that are made small; more of it are only counted.
EACH_MAX = 4


class Findings:
    """What was found, by what is probably one defect."""

    def __init__(self, folder):
        self.folder = folder
        self.met = collections.Counter()
        self.shapes = {}
        self.unexplained = collections.Counter()
        self.explained = collections.Counter()

    def enough(self, signature):
        self.met[signature] += 1
        limit = EACH_MAX * 8 if signature in ("rows", "order", "contents") else EACH_MAX
        return self.unexplained[signature] >= limit

    def add(self, signature, shape, seed, text):
        self.unexplained[signature] += 1
        if shape in self.shapes:
            return
        self.shapes[shape] = seed
        print(f"\n== difference {len(self.shapes)} ({signature}), seed {seed}\n{text}", flush=True)
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{seed.replace('/', '-')}-{len(self.shapes)}.sql").write_text(text + "\n")


class Fuzzer:
    def __init__(self, options, worker=0):
        self.options = options
        self.worker = worker
        self.findings = Findings(options.keep)
        self.statements = 0
        self.deaths = 0

    def run(self):
        with servers.Postgres() as postgres, servers.Aerostat(memory=self.options.memory) as aerostat:
            self.sides = [Side(postgres, postgres.database), Side(aerostat, aerostat.database)]
            number = self.worker
            while self.statements < self.options.statements:
                seed = f"{self.options.seed}/{number}"
                try:
                    self.round(seed)
                except Died as died:
                    self.died(died.side, seed)
                number += self.options.jobs
        return self.findings, self.statements, self.deaths

    def died(self, side, seed):
        self.deaths += side.server.name == "aerostat"
        print(f"\n== {side.server.name} ended or closed the connection, seed {seed}\n{side.server.log_end(15)}", flush=True)
        for each in self.sides:
            each.close()
            if not each.server.alive():
                each.server.start()

    def round(self, seed):
        dice = random.Random(seed)
        tables = schema.tables(dice)
        indexes = [index for table in tables for index in table.indexes(dice)]
        layout = dice.choice(["row", "column", "mixed"])
        round_ = Round(self.sides, tables, indexes, layout, dice.random() < 0.3)
        refused = round_.set_up()
        if refused:
            print(f"\n== set-up of seed {seed}: {refused}", flush=True)
            self.findings.met["set-up"] += 1
            self.statements += 1
            return
        cases = Cases(dice, tables)
        logic = Logic(dice, cases.queries, self.sides[1])
        for number in range(CASES_PER_ROUND):
            if self.options.case is not None and number > self.options.case:
                break
            if dice.random() < 0.1:
                self.logic(logic, f"{seed}/{number}")
                continue
            self.case(round_, cases.make(), f"{seed}/{number}")

    def logic(self, logic, seed):
        self.statements += 2
        found = logic.check()
        if found is None:
            return
        difference, statements = found
        if not self.findings.enough(difference.kind):
            tables = current(list(logic.queries.tables), self.sides[1])
            setup = [f"{each};" for table in tables if table.name in statements[0] for each in (table.create(), table.insert()) if each]
            text = "\n".join([f"-- {difference.kind}: {difference.detail}", *setup, *(f"{each};" for each in statements)])
            self.findings.add(difference.kind, seed, seed, text)

    def case(self, round_, case, seed):
        self.statements += sum(statement.times for statement in case.statements)
        try:
            found = round_.run(case)
        except Died as died:
            text = script(case, current(round_.tables, self.sides[0]), Difference("died", died.side.server.name))
            self.findings.add("died", f"died {text[:80]}", seed, text)
            raise
        if found is None:
            return
        difference, at = found
        case = case.with_statements(case.statements[: at + 1])
        text = told(case)
        signature = difference.signature()
        said = explanation(text, difference)
        # Of rows only the smallest statement tells why they differ.
        if said and difference.kind not in ("rows", "contents", "order", "tag"):
            self.findings.explained[said] += 1
            return
        if self.findings.enough(signature):
            return
        self.minimise(round_, case, difference, seed)

    def minimise(self, round_, case, difference, seed):
        current(round_.tables, self.sides[0])
        signature = difference.signature()
        minimiser = Minimiser(round_, signature)
        if not minimiser.differs(case):
            self.findings.add(f"unsteady {signature}", f"unsteady {signature}", seed, script(case, round_.tables, difference))
            return
        small, tables = minimiser.minimal(case)
        found = minimiser.round.rolled_back(small)
        difference = found[0] if found else difference
        text, whole = told(small), script(small, tables, difference)
        difference.tables = whole
        said = explanation(text, difference)
        if said:
            self.findings.explained[said] += 1
        else:
            self.findings.add(signature, shape(text, signature), seed, whole)
        round_.set_up()


def told(case):
    """A case's statements, and whether literals were sent as parameters."""
    sent = ["-- parameters"] if any(statement.parameters for statement in case.statements) else []
    return "; ".join([*(statement.text() for statement in case.statements), *sent])


def shape(text, signature):
    """A statement without names and literals: equal ones are taken for one finding."""
    text = re.sub(r"\b[a-z]\d+\b(\.\w+)?", "x", text)
    text = re.sub(r"'(?:[^']|'')*'", "'…'", text)
    return f"{signature} {re.sub(r'[0-9]+', '0', text)}"


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="scripts/fuzz-sql", description=__doc__)
    parser.add_argument("--statements", type=int, default=20_000, help="how many, over all jobs")
    parser.add_argument("--seed", default=str(time.time_ns() % 10**9))
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with servers of its own")
    parser.add_argument("--round", type=int, help="only this round of the seed")
    parser.add_argument("--case", type=int, help="with --round: stop after this case")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the reproductions")
    parser.add_argument("--memory", default="2GB", help="the node's")
    return parser.parse_args(arguments)


def work(job):
    options, worker = job
    fuzzer = Fuzzer(options, worker)
    if options.round is not None:
        fuzzer.worker, options.statements = options.round, 1
    findings, statements, deaths = fuzzer.run()
    return findings.met, findings.shapes, findings.explained, statements, deaths


def main(arguments):
    options = parsed(arguments)
    print(f"seed {options.seed}", flush=True)
    options.statements = max(1, options.statements // options.jobs)
    started = time.monotonic()
    with multiprocessing.Pool(options.jobs) as pool:
        results = pool.map(work, [(options, worker) for worker in range(options.jobs)])
    met = sum((result[0] for result in results), collections.Counter())
    shapes = {shape for result in results for shape in result[1]}
    explained = sum((result[2] for result in results), collections.Counter())
    statements, deaths = sum(result[3] for result in results), sum(result[4] for result in results)
    print(f"\n{statements} statements in {time.monotonic() - started:.0f} s, seed {options.seed}")
    for title, counter in (("met", met), ("explained", explained)):
        for name, count in counter.most_common(60):
            print(f"  {title} {count:6} {name}")
    print(f"{len(shapes)} unexplained differences, {deaths} ends of the node")
    return int(bool(shapes) or bool(deaths))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
