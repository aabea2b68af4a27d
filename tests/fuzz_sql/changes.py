"""Random changes: INSERT with ON CONFLICT, UPDATE, DELETE, MERGE, and changes in WITH, mostly with RETURNING."""

from . import schema
from .expressions import Relation, Scope
from .tree import Many, Tree


class Changes:
    def __init__(self, dice, tables, queries):
        self.dice = dice
        self.tables = tables
        self.queries = queries

    def chance(self, probability):
        return self.dice.random() < probability

    def statement(self):
        make = self.dice.choice([self.insert, self.insert, self.update, self.update, self.delete, self.merge, self.in_with])
        return make()

    def scope(self, table, alias):
        return Scope([Relation(alias, table.kinds(), "id")])

    def returning(self, table, alias):
        if self.chance(0.3):
            return ""
        scope = self.scope(table, alias)
        items = [self.queries.make(self.queries.expressions.kind(scope), scope, 1) for _ in range(self.dice.randint(1, 2))]
        items = [f"{alias}.id", *items] if self.chance(0.7) else ["*"]
        return Tree("returning", " RETURNING ", Many("items", items), optional=True)

    def insert(self):
        table = self.dice.choice(self.tables)
        names = [name for name, _, _ in table.columns]
        chosen = ["id", *[name for name in names[1:] if self.chance(0.8)]]
        kinds = dict(table.kinds())
        if self.chance(0.65):
            rows = [self.row(chosen, kinds) for _ in range(self.dice.choice([1, 1, 2, 4]))]
            source = Tree("values", "VALUES ", Many("rows", rows))
        else:
            source = self.selected(chosen, kinds)
        conflict = self.on_conflict(table) if self.chance(0.6) else ""
        parts = [f"INSERT INTO {table.name} ({', '.join(chosen)}) ", source, conflict, self.returning(table, table.name)]
        return Tree("statement", *[part for part in parts if part != ""]), table

    def row(self, chosen, kinds):
        cells = [str(self.dice.randint(1, 30))]
        for name in chosen[1:]:
            if name == "k":
                cells.append(str(self.dice.randint(0, 6)))
            elif self.chance(0.1):
                cells.append("DEFAULT")
            else:
                cells.append(schema.literal(self.dice, kinds[name], 0.1))
        return Tree("row", "(", Many("cells", cells, least=len(cells)), ")")

    def selected(self, chosen, kinds):
        other = self.dice.choice(self.tables)
        scope = self.scope(other, "o")
        items = [f"o.id + {self.dice.choice([0, 5, 100])}"] + [self.queries.make(kinds[name], scope, 1) for name in chosen[1:]]
        return Tree("select", "SELECT ", Many("items", items, least=len(items)), f" FROM {other.name} AS o", self.queries.where(scope, 1))

    def on_conflict(self, table):
        target = self.dice.choice([" ON CONFLICT (id)", " ON CONFLICT ON CONSTRAINT " + table.name + "_pkey"])
        if self.chance(0.35):
            return Tree("conflict", self.dice.choice([" ON CONFLICT", target]) + " DO NOTHING", optional=True)
        scope = Scope([Relation(table.name, table.kinds(), "id"), Relation("excluded", table.kinds(), "id")])
        where = self.queries.where(scope, 1) if self.chance(0.3) else ""
        return Tree("conflict", target, " DO UPDATE SET ", self.assignments(table, scope), where, optional=True)

    def assignments(self, table, scope):
        columns = table.kinds()[1:]
        made = []
        for name, kind in self.dice.sample(columns, self.dice.randint(1, min(2, len(columns)))):
            value = "DEFAULT" if self.chance(0.05) else self.queries.make(kind, scope, 2)
            made.append(Tree("assignment", f"{name} = ", value))
        if self.chance(0.1):
            made.append(Tree("assignment", "id = ", f"{table.name}.id + 1000" if scope.relations[-1].alias == "excluded" else "x.id + 1000"))
        return Many("assignments", made)

    def other(self, table):
        return self.dice.choice([each for each in self.tables if each is not table])

    def update(self):
        table = self.dice.choice(self.tables)
        scope = self.scope(table, "x")
        source, condition = "", self.queries.where(scope, 2)
        if self.chance(0.35):
            # Each row finds one partner at most, so that the values do not depend on the plan.
            other = self.other(table)
            scope = Scope([Relation("x", table.kinds(), "id"), Relation("o", other.kinds(), "id")])
            source = f" FROM {other.name} AS o"
            condition = Tree("where", " WHERE ", self.dice.choice(["x.id = o.id", "x.k = o.id", "o.id = x.k + 1"]))
            if self.chance(0.5):
                condition = Tree("where", *condition.parts, " AND ", self.queries.make("bool", scope, 1))
        parts = [f"UPDATE {table.name} AS x SET ", self.assignments(table, scope), source, condition, self.returning(table, "x")]
        return Tree("statement", *[part for part in parts if part != ""]), table

    def delete(self):
        table = self.dice.choice(self.tables)
        scope = self.scope(table, "x")
        using, condition = "", Tree("where", " WHERE ", self.queries.make("bool", scope, 2))
        if self.chance(0.3):
            other = self.other(table)
            scope = Scope([Relation("x", table.kinds(), "id"), Relation("o", other.kinds(), "id")])
            using = f" USING {other.name} AS o"
            condition = Tree("where", " WHERE x.k = o.id AND ", self.queries.make("bool", scope, 1))
        parts = [f"DELETE FROM {table.name} AS x", using, condition, self.returning(table, "x")]
        return Tree("statement", *[part for part in parts if part != ""]), table

    def merge(self):
        table = self.dice.choice(self.tables)
        other = self.other(table)
        both = Scope([Relation("x", table.kinds(), "id"), Relation("o", other.kinds(), "id")])
        actions = []
        for _ in range(self.dice.randint(1, 2)):
            condition = Tree("and", " AND ", self.queries.make("bool", both, 1), optional=True) if self.chance(0.6) else ""
            does = self.dice.choice(["DELETE", "DO NOTHING", None, None])
            act = does if does else Tree("act", "UPDATE SET ", self.assignments(table, both))
            actions.append(Tree("when", " WHEN MATCHED", condition, " THEN ", act))
        if self.chance(0.7):
            names = [name for name, _ in table.kinds()]
            source = Scope([Relation("o", other.kinds(), "id")])
            cells = ["o.id + 200"] + [self.queries.make(kind, source, 1) for _, kind in table.kinds()[1:]]
            act = Tree("act", f"INSERT ({', '.join(names)}) VALUES (", Many("cells", cells, least=len(cells)), ")")
            actions.append(Tree("when", " WHEN NOT MATCHED THEN ", act))
        on = self.dice.choice(["x.id = o.id", "x.id = o.id + 1", "o.id = x.id AND o.k = x.k"])
        head = f"MERGE INTO {table.name} AS x USING {other.name} AS o ON {on}"
        return Tree("statement", head, Many("whens", actions, separator="")), table

    def in_with(self):
        change, table = self.dice.choice([self.insert, self.update, self.delete])()
        text = change.text()
        if " RETURNING" not in text:
            change.parts.append(" RETURNING id")
        what = self.dice.choice(["count(*)", "count(*), (SELECT count(*) FROM {})", "*"]).format(table.name)
        return Tree("statement", "WITH changed AS (", change, f") SELECT {what} FROM changed"), table
