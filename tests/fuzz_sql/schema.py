"""Random tables with rows, the same on both sides."""

from . import values


class Table:
    """`key` is its primary key, `k` a column of small numbers that joins find partners by."""

    def __init__(self, name, columns, rows, unique=(), checks=(), reference=None):
        self.name = name
        self.columns = columns  # [(name, kind, SQL type)]
        self.rows = rows  # [[literal]]
        self.unique = unique
        self.checks = checks
        self.reference = reference  # name of the table whose id `k` refers to

    def kinds(self):
        return [(name, kind) for name, kind, _ in self.columns]

    def create(self):
        parts = []
        for name, _, sql_type in self.columns:
            parts.append(f"{name} {sql_type}{' PRIMARY KEY' if name == 'id' else ''}")
        parts += [f"UNIQUE ({name})" for name in self.unique if name in dict(self.kinds())]
        parts += [f"CHECK ({check})" for check in self.checks]
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"

    def insert(self):
        if not self.rows:
            return None
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows)
        return f"INSERT INTO {self.name} ({', '.join(name for name, _, _ in self.columns)}) VALUES {rows}"

    def indexes(self, dice):
        made = []
        for name, kind, _ in self.columns[1:]:
            if dice.random() < 0.15:
                method = "hash" if dice.random() < 0.2 else "btree"
                made.append(f"CREATE INDEX ON {self.name} USING {method} ({name})")
        return made

    def without_row(self, at):
        return Table(self.name, self.columns, self.rows[:at] + self.rows[at + 1 :], self.unique, self.checks)

    def without_rows(self, start, stop):
        return Table(self.name, self.columns, self.rows[:start] + self.rows[stop:], self.unique, self.checks)

    def without_column(self, at):
        rows = [row[:at] + row[at + 1 :] for row in self.rows]
        return Table(self.name, self.columns[:at] + self.columns[at + 1 :], rows, self.unique, self.checks)


def literal(dice, kind, edges):
    if dice.random() < 0.15:
        return "NULL"
    _, ordinary, rare = values.KINDS[kind]
    return dice.choice(rare if rare and dice.random() < edges else ordinary)


def tables(dice):
    """Three to five tables whose columns come from one pool, so that NATURAL joins find partners."""
    pool = []
    for at in range(10):
        kind = values.ALL[dice.randrange(len(values.ALL))]
        pool.append((f"c{at}", kind, dice.choice(values.KINDS[kind][0])))
    edges = dice.choice([0, 0.05, 0.25])
    return [table(dice, f"t{at}", pool, edges) for at in range(dice.randint(3, 5))]


def table(dice, name, pool, edges):
    count = dice.choice([0, 1, 3, 8, 8, 12, 24])
    columns = [("id", "int", "integer"), ("k", "int", "integer"), *sorted(dice.sample(pool, dice.randint(2, 6)))]
    rows = []
    for number in range(count):
        key = str(number + 1)
        k = "NULL" if dice.random() < 0.15 else str(dice.randint(0, 6))
        rows.append([key, k, *(literal(dice, kind, edges) for _, kind, _ in columns[2:])])
    return Table(name, columns, rows)
