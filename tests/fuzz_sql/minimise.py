"""Makes a case small while both sides still differ in the same way: statements, trees, rows, columns."""

import time

from .running import Round
from .sides import Died
from .tree import smaller

SECONDS_MAX = 12


class Minimiser:
    def __init__(self, round_, signature, seconds=SECONDS_MAX):
        self.round = round_
        self.signature = signature
        self.deadline = time.monotonic() + seconds

    def late(self):
        return time.monotonic() > self.deadline

    def differs(self, case):
        found = self.round.rolled_back(case)
        return found is not None and found[0].signature() == self.signature

    def minimal(self, case):
        """The smallest case that was found, and tables that are enough for it."""
        case = self.fewer_statements(case)
        case = self.plain(case)
        case = self.smaller_trees(case)
        tables = self.smaller_tables(case)
        self.round = Round(self.round.sides, tables)
        self.round.set_up()
        return self.smaller_trees(case), tables

    def fewer_statements(self, case):
        at = len(case.statements) - 1
        while at >= 0 and len(case.statements) > 1:
            fewer = case.with_statements(case.statements[:at] + case.statements[at + 1 :])
            if self.differs(fewer):
                case = fewer
            at -= 1
        return case

    def plain(self, case):
        """Without parameters, repetition, and a zone, if these do not matter."""
        plainer = case.with_statements([each.plain() for each in case.statements])
        case = plainer if self.differs(plainer) else case
        if case.zone != "UTC":
            utc = case.with_statements(case.statements)
            utc.zone = "UTC"
            case = utc if self.differs(utc) else case
        return case

    def smaller_trees(self, case):
        progress = True
        while progress and not self.late():
            progress = False
            for at, statement in enumerate(case.statements):
                for tree in smaller(statement.tree):
                    if self.late():
                        return case
                    if len(tree.text()) >= len(statement.text()):
                        continue
                    statements = list(case.statements)
                    statements[at] = statement.with_tree(tree)
                    if self.differs(case.with_statements(statements)):
                        case = case.with_statements(statements)
                        progress = True
                        break
        return case

    # Tables

    def still(self, case, tables):
        trial = Round(self.round.sides, tables)
        try:
            if trial.set_up() is not None:
                return False
            found = trial.rolled_back(case)
        except Died:
            return False
        return found is not None and found[0].signature() == self.signature

    def smaller_tables(self, case):
        text = " ".join(statement.text() for statement in case.statements)
        named = [table for table in self.round.tables if table.name in text] or self.round.tables[:1]
        tables = named if self.still(case, named) else list(self.round.tables)
        for at in range(len(tables)):
            tables = self.fewer_rows(case, tables, at)
            tables = self.fewer_columns(case, tables, at, text)
        return tables

    def fewer_rows(self, case, tables, at):
        size = len(tables[at].rows)
        while size >= 1:
            start = 0
            while start < len(tables[at].rows) and not self.late():
                trial = list(tables)
                trial[at] = tables[at].without_rows(start, start + size)
                if self.still(case, trial):
                    tables = trial
                else:
                    start += size
            size //= 2
        return tables

    def fewer_columns(self, case, tables, at, text):
        for column in range(len(tables[at].columns) - 1, 0, -1):
            if self.late():
                break
            trial = list(tables)
            trial[at] = tables[at].without_column(column)
            if self.still(case, trial):
                tables = trial
        return tables


def script(case, tables, difference):
    """The reproduction as SQL, with both answers as comments."""
    lines = [f"-- {difference.kind}: {difference.detail}"]
    for name, answer in (("PostgreSQL", difference.wanted), ("Aerostat", difference.got)):
        lines.append(f"--   {name}: {shown(answer)}")
    if case.zone != "UTC":
        lines.append(f"SET timezone = '{case.zone}';")
    for table in tables:
        if any(table.name in statement.text() for statement in case.statements):
            lines += [f"{statement};" for statement in (table.create(), table.insert()) if statement]
    for statement in case.statements:
        text, values = statement.message()
        how = f"  -- parameters {values}" if values else ""
        how += "  -- binary" if statement.binary else ""
        lines += [f"{text};{how}"] * statement.times
    return "\n".join(lines)


def shown(answer, rows_max=6):
    if answer is None:
        return "ended"
    if answer.code:
        return f"{answer.code} {answer.message}".replace("\n", " ")[:300]
    rows = [tuple(cell(value, answer.binary) for value in row) for row in answer.rows]
    return f"{answer.names} {answer.types} {rows[:rows_max]}{' …' if len(rows) > rows_max else ''} {answer.tag}"[:600]


def cell(value, binary):
    if value is None:
        return "NULL"
    return bytes(value).hex() if binary else value.decode(errors="replace")
