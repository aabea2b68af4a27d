"""Random queries whose answers do not depend on a plan: every LIMIT is below an ORDER BY of all columns."""

from . import grammar, values
from .expressions import Expressions, Relation, Scope
from .tree import Many, Tree

LIKE_COLUMNS = ["k", *(f"c{at}" for at in range(10))]


class Queries:
    def __init__(self, dice, tables):
        self.dice = dice
        self.tables = tables
        self.expressions = Expressions(dice, self.subquery)
        self.names = 0

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def alias(self, prefix):
        """A relation's name, now and then one that columns have."""
        if self.chance(0.06):
            self.names += 1
            return LIKE_COLUMNS[self.names % len(LIKE_COLUMNS)]
        return self.name(prefix)

    def chance(self, probability):
        return self.dice.random() < probability

    def make(self, kind, scope, depth=2):
        return self.expressions.make(kind, scope, depth)

    # Statements

    def statement(self):
        """A query, and whether the order of its rows is decided."""
        with_queries, relations = ([], []) if self.chance(0.8) else self.with_queries()
        kinds = [self.dice.choice(values.ALL) for _ in range(self.dice.randint(1, 4))]
        if self.chance(0.15):
            body = self.set_operation(kinds, relations)
        else:
            body = self.select(kinds, None, 2, relations, free=True)[0]
        order, ordered = self.order_and_limit(body)
        head = Tree("with", "WITH RECURSIVE ", Many("ctes", with_queries), " ", optional=True) if with_queries else ""
        return Tree("statement", *[part for part in (head, body, order) if part != ""]), ordered

    def order_and_limit(self, body):
        count = body.simple_width
        if count == 0 or self.chance(0.5):
            return "", False
        places = [f"{at + 1}{self.dice.choice(['', '', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])}" for at in range(count)]
        limit = Tree("limit", self.dice.choice([" LIMIT 3", " LIMIT 10", " OFFSET 2", " LIMIT 2 OFFSET 1", " FETCH FIRST 2 ROWS ONLY", " LIMIT 0"]), optional=True)
        parts = [" ORDER BY ", Many("places", places, least=len(places)), *([limit] if self.chance(0.4) else [])]
        return Tree("order", *parts, optional=True), True

    def with_queries(self):
        made, relations = [], []
        for _ in range(self.dice.randint(1, 2)):
            kinds = [self.dice.choice(values.ALL) for _ in range(self.dice.randint(1, 3))]
            name = self.name("w")
            if self.chance(0.2):
                made.append(Tree("cte", f"{name}(c0) AS (SELECT 1 UNION ALL SELECT c0 + 1 FROM {name} WHERE c0 < 5)"))
                relations.append(Relation(name, [("c0", "int")], "c0"))
                continue
            body, columns, key = self.select(kinds, None, 1, relations, names="c")
            how = self.dice.choice(["", "", " MATERIALIZED", " NOT MATERIALIZED"])
            made.append(Tree("cte", f"{name} AS{how} (", body, ")"))
            relations.append(Relation(name, columns, key))
        return made, relations

    def set_operation(self, kinds, relations):
        left = self.select(kinds, None, 1, relations)[0]
        parts = [left]
        for _ in range(self.dice.randint(1, 2)):
            operator = self.dice.choice([" UNION ", " UNION ALL ", " INTERSECT ", " EXCEPT "])
            right = self.select(kinds, None, 1, relations)[0]
            parts.append(Tree("operand", operator, right, optional=len(parts) > 1))
        return Body(len(kinds), "query", *parts)

    # SELECT

    def select(self, kinds, outer, depth, relations=(), free=False, names=None, tag="query"):
        """A SELECT of these kinds: the tree, its columns, and a column that tells rows apart or None."""
        source, scope = self.source(outer, depth, relations)
        if self.chance(0.25):
            return self.grouped(kinds, source, scope, depth, names, tag)
        if free and self.chance(0.12):
            return self.star(source, scope), [], None
        windows = free and self.chance(0.2)
        items = [self.window(scope) if windows and self.chance(0.6) else self.make(kind, scope, depth) for kind in kinds]
        columns = [(f"c{at}", item.tag) for at, item in enumerate(items)]
        head = "SELECT DISTINCT " if self.chance(0.12) else "SELECT "
        listed = [Tree("item", item, f" AS c{at}" if names or self.chance(0.3) else "") for at, item in enumerate(items)]
        tree = Body(len(kinds), tag, head, Many("items", listed), source, self.where(scope, depth))
        return tree, columns, None

    def star(self, source, scope):
        """All columns, or those that a join has merged, by their bare names."""
        names = [name for each in scope.relations for name, _ in each.columns]
        bare = "id" if "USING (id)" in (source if isinstance(source, str) else source.text()) else "*"
        item = bare if names else "1"
        if scope.relations and scope.relations[0].key == "id" and self.chance(0.3):
            first = scope.relations[0]
            kind = dict(first.columns).get("k", "int")
            key = f"{first.alias}.k" if kind == "int" else f"{first.alias}.id"
            order = Tree("order", f" ORDER BY {key}, {', '.join(scope.total_order() or ['1'])}")
            if scope.total_order():
                return Body(0, "query", f"SELECT DISTINCT ON ({key}) ", Many("items", [f"{key}", f"{first.alias}.*"]), source, self.where(scope, 1), order)
        return Body(0, "query", "SELECT ", item, source, self.where(scope, 2))

    def where(self, scope, depth):
        if self.chance(0.45):
            return ""
        return Tree("where", " WHERE ", self.make("bool", scope, depth), optional=True)

    def grouped(self, kinds, source, scope, depth, names, tag):
        keys = []
        for _ in range(self.dice.choice([0, 1, 1, 2, 2])):
            kind = self.expressions.kind(scope)
            if kind not in ("interval",):
                keys.append(self.key(kind, scope))
        items = [self.group_item(kind, keys, scope, depth) for kind in kinds]
        if keys and self.chance(0.15):
            items[-1] = Tree("int", "grouping(", self.dice.choice(keys).text(), ")", simple="0")
        columns = [(f"c{at}", item.tag) for at, item in enumerate(items)]
        listed = [Tree("item", item, f" AS c{at}" if names or self.chance(0.3) else "") for at, item in enumerate(items)]
        having = ""
        if self.chance(0.2):
            condition = self.comparison_of_aggregates(scope, depth)
            having = Tree("having", " HAVING ", condition, optional=True)
        parts = ["SELECT ", Many("items", listed), source, self.where(scope, 1), self.group_by(keys), having]
        return Body(len(kinds), tag, *parts), columns, None

    def key(self, kind, scope):
        """Mostly a column, since constants are no keys that people group by."""
        own = scope.columns(kind)[0]
        if own and self.chance(0.6):
            return self.expressions.leaf(kind, self.dice.choice(own))
        return self.make(kind, scope, 0 if self.chance(0.05) else 1)

    def group_by(self, keys):
        if not keys:
            return ""
        texts = [key.text() for key in keys]
        texts = [f"({each})" if each.lstrip("-").isdigit() or each.startswith("'") else each for each in texts]
        keys = Many("keys", texts)
        if self.chance(0.2):
            before, after = self.dice.choice([("ROLLUP (", ")"), ("CUBE (", ")"), ("GROUPING SETS ((", "), ())"), ("GROUPING SETS (", ")")])
            keys = Tree("keys", before, keys, after)
        return Tree("groupby", " GROUP BY ", keys, optional=True)

    def group_item(self, kind, keys, scope, depth):
        same = [key for key in keys if key.tag == kind]
        if same and self.chance(0.6):
            return self.dice.choice(same).copy()
        if keys and self.chance(0.3):
            return self.dice.choice(keys).copy()
        return self.aggregate(kind, scope, depth)

    def aggregate(self, kind, scope, depth):
        templates = grammar.AGGREGATES[kind]
        if not templates:
            kind, templates = "big", grammar.AGGREGATES["big"]
        scope = Scope(scope.relations) if self.chance(0.98) else scope
        made = self.expressions.fill(kind, self.expressions.pick(templates), scope, self.dice.choice([0, 0, 1]))
        if self.chance(0.12):
            condition = self.make("bool", scope, 1)
            made = Tree(kind, *made.parts, Tree("filter", " FILTER (WHERE ", condition, ")", optional=True), simple=made.simple)
        if self.chance(0.15):
            return Tree(kind, "coalesce(", made, ", ", self.expressions.constant(kind), ")", simple=made.simple)
        return made

    def comparison_of_aggregates(self, scope, depth):
        kind = self.dice.choice(["int", "big", "text", "date"])  # A sum of floats is never compared.
        left = self.aggregate(kind, scope, depth)
        return Tree("bool", "(", left, self.dice.choice([" > ", " <= ", " <> "]), self.expressions.constant(left.tag), ")")

    # Windows

    def window(self, scope):
        total = scope.total_order()
        by_rows = total is not None and self.chance(0.5)
        kind = self.dice.choice(list(grammar.WINDOWS_OF_ROWS if by_rows else grammar.WINDOWS))
        call = self.expressions.fill(kind, self.expressions.pick((grammar.WINDOWS_OF_ROWS if by_rows else grammar.WINDOWS)[kind]), scope, 0)
        parts = [call, " OVER ("]
        if self.chance(0.5):
            parts += [Tree("partition", "PARTITION BY ", self.make(self.expressions.kind(scope), scope, 0), " ", optional=True)]
        keys = [self.make(self.expressions.kind(scope), scope, 0).text() for _ in range(self.dice.randint(0, 1))]
        keys = [f"({each})" if each.lstrip("-").isdigit() else each for each in keys]
        keys = [each + self.dice.choice(["", " DESC", " NULLS FIRST"]) for each in keys] + (total if by_rows else [])
        if keys or self.chance(0.5):
            keys = keys or ["(1)"]
            parts += ["ORDER BY ", Many("keys", keys)]
            if self.chance(0.45):
                parts.append(Tree("frame", " ", self.frame(by_rows), optional=True))
        parts.append(")")
        made = Tree(kind, *parts, simple=grammar.SIMPLE[kind])
        return made

    def frame(self, by_rows):
        bounds = [
            "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "UNBOUNDED PRECEDING", "CURRENT ROW",
        ]  # fmt: skip
        counted = [
            "BETWEEN 1 PRECEDING AND 1 FOLLOWING", "BETWEEN 2 PRECEDING AND 1 PRECEDING",
            "BETWEEN 1 FOLLOWING AND 2 FOLLOWING", "2 PRECEDING", "BETWEEN 0 PRECEDING AND 0 FOLLOWING",
        ]  # fmt: skip
        if by_rows:
            return f"{self.dice.choice(['ROWS', 'GROUPS'])} {self.dice.choice(bounds + counted)}"
        unit = self.dice.choice(["RANGE", "GROUPS"])
        return f"{unit} {self.dice.choice(bounds + (counted if unit == 'GROUPS' else []))}"

    # FROM

    def source(self, outer, depth, relations=()):
        """The FROM clause and the scope that it makes."""
        if self.chance(0.06):
            return "", Scope((), outer)
        first, relation = self.item(outer, depth, relations, ())
        parts, there, merged = [first], [relation], None
        for _ in range(self.dice.choice([0, 0, 0, 1, 1, 2])):
            join, relation, merged = self.join(outer, depth, relations, there)
            parts.append(join)
            there = [*merged, relation] if merged is not None else [*there, relation]
        return Tree("from", " FROM ", *parts, optional=True), Scope(there, outer)

    def join(self, outer, depth, relations, there):
        before = Scope(there, outer)
        lateral = self.chance(0.12)
        item, relation = self.item(before if lateral else outer, depth, relations, there, lateral)
        roll = self.dice.random()
        if roll < 0.12 or lateral:
            how = self.dice.choice([", ", " CROSS JOIN "])
            if lateral and self.chance(0.5):
                return Tree("join", " LEFT JOIN ", item, " ON true", optional=True), relation, None
            return Tree("join", how, item, optional=True), relation, None
        kind = self.dice.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        if roll < 0.32:
            common = [name for name, _ in relation.columns if any(name in dict(each.columns) for each in there)]
            if common and roll < 0.24:
                return Tree("join", f" {kind} ", item, f" USING ({self.dice.choice(common[:2])})", optional=True), relation, None
            return Tree("join", f" NATURAL {kind} ", item, optional=True), relation, None
        condition = self.equality(there, relation)
        if kind != "FULL JOIN" and self.chance(0.3):
            condition = Tree("bool", "(", condition, " AND ", self.make("bool", Scope([*there, relation], outer), 1), ")")
        if kind != "FULL JOIN" and self.chance(0.15):
            condition = self.make("bool", Scope([*there, relation], outer), 1)
        return Tree("join", f" {kind} ", item, " ON ", condition, optional=True), relation, None

    def equality(self, there, relation):
        pairs = []
        for left in there:
            for name, kind in left.columns:
                for other, its in relation.columns:
                    if kind == its:
                        pairs.append((f"{left.alias}.{name}", f"{relation.alias}.{other}"))
        if not pairs:
            return Tree("bool", "true")
        left, right = self.dice.choice(pairs)
        return Tree("bool", f"{left} = {right}")

    def item(self, outer, depth, relations, there, lateral=False):
        roll = self.dice.random()
        if relations and roll < 0.6 and not lateral:
            chosen = self.dice.choice(relations)
            alias = self.alias("x")
            return Tree("relation", f"{chosen.alias} AS {alias}"), Relation(alias, chosen.columns, chosen.key)
        if depth > 0 and (lateral or roll < 0.75 and self.chance(0.25)):
            return self.derived(outer, depth - 1, relations, lateral)
        if self.chance(0.06):
            return self.row_list()
        table = self.dice.choice(self.tables)
        alias = self.alias("x")
        return Tree("relation", f"{table.name} AS {alias}"), Relation(alias, table.kinds(), "id")

    def derived(self, outer, depth, relations, lateral):
        alias = self.alias("s")
        kinds = [self.dice.choice(values.ALL) for _ in range(self.dice.randint(1, 3))]
        body, columns, key = self.select(kinds, outer if lateral else None, depth, relations, names="c")
        word = "LATERAL " if lateral else ""
        return Tree("relation", word, "(", body, f") AS {alias}"), Relation(alias, columns, key)

    def row_list(self):
        alias = self.name("v")
        if self.chance(0.5):
            step = self.dice.choice(["1, 4", "-2, 2", "5, 1, -2"])
            return Tree("relation", f"generate_series({step}) AS {alias}(n)"), Relation(alias, [("n", "int")], "n")
        kind = self.dice.choice(values.ALL)
        rows = [Tree("row", f"({at}, ", self.expressions.constant(kind), ")") for at in range(self.dice.randint(1, 3))]
        tree = Tree("relation", "(VALUES ", Many("rows", rows), f") AS {alias}(n, v)")
        return tree, Relation(alias, [("n", "int"), ("v", kind)], "n")

    # Subqueries in expressions

    def subquery(self, kind, scope, depth):
        if kind in ("ints", "texts", "dates"):
            return self.array_subquery(kind, scope)
        if kind == "bool" and self.chance(0.7):
            return self.predicate(scope, depth)
        table = self.dice.choice(self.tables)
        alias = self.name("q")
        inner = Scope([Relation(alias, table.kinds(), "id")], scope)
        simple = grammar.SIMPLE[kind]
        if self.chance(0.5) and grammar.AGGREGATES[kind]:
            # Of its own rows: an aggregate of outer columns alone would belong to the outer query.
            own = Scope(inner.relations) if self.chance(0.98) else inner
            item = self.expressions.fill(kind, self.expressions.pick(grammar.AGGREGATES[kind]), own, 0)
            condition = Tree("where", " WHERE ", self.link(inner, scope), optional=True)
            return Tree(kind, "(SELECT ", item, f" FROM {table.name} AS {alias}", condition, ")", simple=simple)
        item = self.make(kind, inner, 0)
        tail = f" FROM {table.name} AS {alias} WHERE {alias}.id = "
        return Tree(kind, "(SELECT ", item, tail, self.make("int", Scope((), scope), 0), ")", simple=simple)

    def link(self, inner, outer):
        """A condition between a subquery's rows and the outer row."""
        if self.chance(0.4):
            return self.make("bool", inner, 1)
        kind = self.expressions.kind(inner)
        own, outers = inner.columns(kind)
        if own and outers:
            operator = self.dice.choice(["=", "=", "=", "<", "<>", "IS NOT DISTINCT FROM"])
            return Tree("bool", f"{self.dice.choice(own)} {operator} {self.dice.choice(outers)}")
        return self.make("bool", inner, 1)

    def array_subquery(self, kind, scope):
        table = self.dice.choice(self.tables)
        alias = self.name("q")
        inner = Scope([Relation(alias, table.kinds(), "id")], scope)
        item = self.make(values.ARRAYS[kind], inner, 0)
        limit = self.dice.choice(["", "", " LIMIT 2", " OFFSET 1"])
        condition = Tree("where", " WHERE ", self.link(inner, scope), optional=True)
        return Tree(kind, "ARRAY(SELECT ", item, f" FROM {table.name} AS {alias}", condition, f" ORDER BY {alias}.id{limit})", simple=grammar.SIMPLE[kind])

    def predicate(self, scope, depth):
        table = self.dice.choice(self.tables)
        alias = self.name("q")
        inner = Scope([Relation(alias, table.kinds(), "id")], scope)
        condition = Tree("where", " WHERE ", self.link(inner, scope), optional=True)
        word = self.dice.choice(["", "NOT "])
        if self.chance(0.45):
            return Tree("bool", f"({word}EXISTS (SELECT 1 FROM {table.name} AS {alias}", condition, "))", simple="true")
        kind = self.expressions.kind(inner)
        left = self.make(kind, scope, 0)
        item = self.make(kind, inner, 0)
        operator = self.dice.choice(["IN", "NOT IN", "= ANY", "> ALL", "<> ALL", "<= ANY"])
        return Tree("bool", "(", left, f" {operator} (SELECT ", item, f" FROM {table.name} AS {alias}", condition, "))", simple="true")


class Body(Tree):
    """A query of `simple_width` columns."""

    __slots__ = ("simple_width",)

    def __init__(self, width, tag, *parts):
        super().__init__(tag, *[part for part in parts if part != ""])
        self.simple_width = width

    def copy(self):
        twin = super().copy()
        twin.simple_width = self.simple_width
        return twin
