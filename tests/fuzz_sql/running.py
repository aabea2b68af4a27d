"""Runs cases on both sides, in a schema whose tables both have."""

from psycopg.pq import TransactionStatus

from .compare import Difference, difference
from .sides import both

SCHEMA = "fuzz"


class Round:
    """Both sides with the same tables."""

    def __init__(self, sides, tables, indexes=(), layout="row", frozen=False):
        self.sides = sides
        self.tables = tables
        self.indexes = list(indexes)
        self.layout = layout
        self.frozen = frozen
        self.zone = None

    def set_up(self):
        """Makes the tables; tells what one side refused."""
        self.zone = None
        setup = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", f"SET search_path = {SCHEMA}"]
        self.sides[1].ask(f"SET aerostat.default_layout = '{self.layout}'")
        for table in self.tables:
            setup += [statement for statement in (table.create(), table.insert()) if statement]
        setup += self.indexes
        if self.frozen:
            setup += [f"VACUUM (FREEZE) {table.name}" for table in self.tables]
        for statement in setup:
            answers = both(self.sides, statement)
            for side, answer in zip(self.sides, answers):
                if answer.code:
                    return f"{side.server.name}: {answer.message}: {statement}"
        return None

    def run(self, case):
        """The first difference of a case and the number of its statement. A transaction in which there
        is one is rolled back, so that both sides stay the same; others are kept."""
        self.set_zone(case.zone)
        block = bool(case.changed)
        if block:
            both(self.sides, "BEGIN")
        found = self.statements(case) or self.contents(case)
        if block:
            # A statement that took too long on one side alone would leave other rows there.
            failed = any(not self.healthy(side) for side in self.sides)
            both(self.sides, "ROLLBACK" if found or failed else "COMMIT")
        return found

    def set_zone(self, zone):
        if zone != self.zone:
            both(self.sides, f"SET timezone = '{zone}'")
            self.zone = zone

    def statements(self, case):
        for at, statement in enumerate(case.statements):
            text, values = statement.message()
            for _ in range(statement.times):
                answers = both(self.sides, text, values, statement.binary)
                found = difference(*answers, statement.ordered)
                if found:
                    return found, at
        return None

    def contents(self, case):
        """Whether changed tables have the same rows, unless the block has failed."""
        if not case.changed or any(not self.healthy(side) for side in self.sides):
            return None
        for name in case.changed:
            found = difference(*both(self.sides, f"SELECT * FROM {name}"), False)
            if found:
                return Difference("contents", found.detail, found.wanted, found.got), len(case.statements) - 1
        return None

    @staticmethod
    def healthy(side):
        return side.connection is not None and side.connection.pgconn.transaction_status != TransactionStatus.INERROR

    def rolled_back(self, case):
        """The difference of a case that leaves the tables as they were."""
        self.set_zone(case.zone)
        both(self.sides, "BEGIN")
        found = self.statements(case) or self.contents(case)
        both(self.sides, "ROLLBACK")
        return found


def current(tables, side):
    """The tables with the rows that a side has now."""
    for table in tables:
        answer = side.ask(f"SELECT * FROM {table.name} ORDER BY id")
        rows = [[literal(value) for value in row] for row in answer.rows]
        table.rows = rows
    return tables


def literal(value):
    if value is None:
        return "NULL"
    return "'" + value.decode().replace("'", "''") + "'"

