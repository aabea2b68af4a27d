"""A case: statements that run one after another over known tables, as trees until the last moment."""

from .changes import Changes
from .queries import Queries
from .tree import Tree
from .values import ZONES


class Statement:
    """A tree; by how many columns its rows are ordered, if their order counts; how it is sent."""

    def __init__(self, tree, ordered=False, parameters=False, times=1, binary=False):
        self.tree = tree
        # A tree whose ORDER BY was taken away decides no order.
        self.ordered = places(tree) if ordered else 0
        self.parameters = parameters
        self.times = times
        self.binary = binary

    def with_tree(self, tree):
        return Statement(tree, self.ordered, self.parameters, self.times, self.binary)

    def plain(self):
        """The same, sent once and by its text."""
        return Statement(self.tree, self.ordered)

    def text(self):
        return self.tree.text()

    def message(self):
        """Text and the values of its parameters."""
        if not self.parameters:
            return self.text(), None
        values = []
        return numbered(self.tree, values), values


def places(tree):
    """By how many columns the rows of a query are ordered."""
    orders = [part for part in tree.children() if part.tag == "order"]
    return sum(len(part.parts) for order in orders for part in order.children() if part.tag == "places")


def numbered(tree, values):
    """The text with literals replaced by parameters, whose types are said by a cast."""
    if tree.parameter is not None and len(values) < 20:
        sql_type, value = tree.parameter
        values.append(value)
        return f"${len(values)}::{sql_type}"
    if hasattr(tree, "separator"):
        return tree.separator.join(part if isinstance(part, str) else numbered(part, values) for part in tree.parts)
    return "".join(part if isinstance(part, str) else numbered(part, values) for part in tree.parts)


class Case:
    """`changes` say that the case is a transaction, whose tables are looked at in its end."""

    def __init__(self, statements, zone="UTC", changed=()):
        self.statements = statements
        self.zone = zone
        self.changed = list(changed)

    def with_statements(self, statements):
        return Case(statements, self.zone, self.changed)


class Cases:
    """Makes the cases of a round."""

    def __init__(self, dice, tables):
        self.dice = dice
        self.tables = tables
        self.queries = Queries(dice, tables)
        self.changes = Changes(dice, tables, self.queries)
        self.zone = dice.choice(["UTC", "UTC", *ZONES])

    def make(self):
        if self.dice.random() < 0.75:
            return Case([self.query()], self.zone)
        return self.transaction()

    def query(self):
        tree, ordered = self.queries.statement()
        parameters = self.dice.random() < 0.25
        times = 3 if self.dice.random() < 0.08 else 1
        return Statement(tree, ordered, parameters, times, binary=self.dice.random() < 0.15)

    def transaction(self):
        statements, changed, saved = [], set(), False
        for _ in range(self.dice.choice([1, 1, 1, 2, 4])):
            roll = self.dice.random()
            if statements and roll < 0.12:
                statements.append(Statement(Tree("statement", "ROLLBACK TO SAVEPOINT s" if saved else "SAVEPOINT s")))
                saved = True
            elif statements and roll < 0.25:
                statements.append(self.query())
            else:
                tree, table = self.changes.statement()
                changed.add(table.name)
                statements.append(Statement(tree, False, self.dice.random() < 0.2))
        return Case(statements, self.zone, sorted(changed))
