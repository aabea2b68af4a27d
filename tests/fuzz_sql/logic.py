"""Aerostat alone: answers that must add up.

TLP: the rows of a query are those where a predicate is true, false and unknown, together. NoREC: as
many rows satisfy a condition in WHERE, where it may be optimised, as when it is computed for each row.
"""

from .compare import Difference, same_rows, normal


class Logic:
    def __init__(self, dice, queries, side):
        self.dice = dice
        self.queries = queries
        self.side = side

    def check(self):
        """A difference and the statements that show it, or nothing."""
        source, scope = self.queries.source(None, 1)
        if not scope.relations:
            return None
        condition = self.queries.make("bool", scope, 2).text()
        source = source.text()
        return self.norec(source, condition) if self.dice.random() < 0.4 else self.tlp(source, scope, condition)

    def norec(self, source, condition):
        fast = f"SELECT count(*){source} WHERE {condition}"
        slow = f"SELECT count(*) FILTER (WHERE b) FROM (SELECT ({condition}) AS b{source}) AS s"
        answers = [self.side.ask(sql) for sql in (fast, slow)]
        if any(answer.code for answer in answers) or answers[0].rows == answers[1].rows:
            return None
        return Difference("norec", f"{answers[0].rows} {answers[1].rows}"), [fast, slow]

    def tlp(self, source, scope, condition):
        kind = self.queries.expressions.kind(scope)
        item = self.queries.make(kind, scope, 1).text()
        if self.dice.random() < 0.3:
            return self.tlp_of_counts(source, condition, item)
        whole = f"SELECT {item}{source}"
        parts = [f"{whole} WHERE {condition}", f"{whole} WHERE NOT ({condition})", f"{whole} WHERE ({condition}) IS NULL"]
        everything, together = self.side.ask(whole), self.side.ask(" UNION ALL ".join(parts))
        if everything.code or together.code:
            return None
        rows = [[normal(row, each.types, False) for row in each.rows] for each in (everything, together)]
        if len(rows[0]) == len(rows[1]) and same_rows(*rows, everything.types):
            return None
        return Difference("tlp", f"{len(rows[0])} rows, {len(rows[1])} rows"), [whole, " UNION ALL ".join(parts)]

    def tlp_of_counts(self, source, condition, item):
        parts = [condition, f"NOT ({condition})", f"({condition}) IS NULL"]
        whole = f"SELECT count({item}){source}"
        sums = " + ".join(f"(SELECT count({item}){source} WHERE {part})" for part in parts)
        answers = [self.side.ask(sql) for sql in (whole, f"SELECT {sums}")]
        if any(answer.code for answer in answers) or answers[0].rows == answers[1].rows:
            return None
        return Difference("tlp", f"{answers[0].rows} {answers[1].rows}"), [whole, f"SELECT {sums}"]
