"""Trees, comparison and the generator: PYTHONPATH=tests python3 -m unittest fuzz_sql.test_fuzz_sql"""

import pathlib
import random
import unittest

from . import schema
from .compare import difference
from .explained import EXPLAINED
from .tree import Many, Tree, smaller


class Answer:
    def __init__(self, rows=None, types=(23,), code=None, message="", tag="SELECT 1"):
        self.code, self.message, self.binary, self.tag = code, message, False, tag
        self.types, self.names = list(types), ["a"] * len(types)
        self.rows = rows and [tuple(None if cell is None else cell.encode() for cell in row) for row in rows]


def kind(wanted, got, ordered=0):
    found = difference(wanted, got, ordered)
    return found and found.kind


class Comparison(unittest.TestCase):
    def test_rows_are_multisets_unless_an_order_is_said(self):
        one, other = Answer([("1",), ("2",)]), Answer([("2",), ("1",)])
        self.assertIsNone(kind(one, other))
        self.assertEqual(kind(one, other, ordered=1), "order")
        tied, twin = Answer([("1", "1"), ("1", "2")], [23, 23]), Answer([("1", "2"), ("1", "1")], [23, 23])
        self.assertIsNone(kind(tied, twin, ordered=1))
        self.assertEqual(kind(tied, twin, ordered=2), "order")
        self.assertEqual(kind(one, Answer([("1",), ("1",)])), "rows")

    def test_numbers_are_compared_by_value(self):
        self.assertIsNone(kind(Answer([("1.50",)], [1700]), Answer([("1.5000",)], [1700])))
        self.assertIsNone(kind(Answer([("0.3",)], [701]), Answer([("0.30000000000000004",)], [701])))
        self.assertEqual(kind(Answer([("NaN",)], [701]), Answer([("0",)], [701])), "rows")
        self.assertEqual(kind(Answer([("1.51",)], [1700]), Answer([("1.5",)], [1700])), "rows")
        self.assertEqual(kind(Answer([(None,)], [701]), Answer([("0",)], [701])), "rows")

    def test_last_digits_of_floats_may_order_rows(self):
        of = lambda *rows: Answer(list(rows), [701, 23])
        wanted = of(("1.0000000000001", "8"), ("1.0000000000002", "2"), ("3", "1"))
        self.assertIsNone(kind(wanted, of(("1.0000000000002", "2"), ("1.0000000000002", "8"), ("3", "1")), ordered=2))
        self.assertEqual(kind(wanted, of(("1.0000000000001", "8"), ("3", "1"), ("1.0000000000002", "2")), ordered=2), "order")
        tied = of(("1", "1"), ("1", "2"), ("3", "1"))
        self.assertEqual(kind(tied, of(("1", "2"), ("1", "1"), ("3", "1")), ordered=2), "order")

    def test_types_and_errors(self):
        self.assertEqual(kind(Answer([("1",)]), Answer([("1",)], [20])), "types")
        self.assertIsNone(kind(Answer(code="22012"), Answer(code="22003")))
        self.assertEqual(kind(Answer(code="22012"), Answer(code="42601")), "code")
        self.assertEqual(kind(Answer([("1",)]), Answer(code="XX000", message="no")), "error")


class Trees(unittest.TestCase):
    def test_trees_shrink_to_what_may_stand_there(self):
        inner = Tree("int", "a.b", simple="0")
        tree = Tree("statement", "SELECT ", Tree("int", "abs(", inner, ")", simple="0"), Tree("where", " WHERE x", optional=True))
        found = {each.text() for each in smaller(tree)}
        self.assertEqual(found, {"SELECT 0 WHERE x", "SELECT a.b WHERE x", "SELECT abs(0) WHERE x", "SELECT abs(a.b)"})

    def test_lists_keep_their_least(self):
        self.assertEqual([each.text() for each in smaller(Many("m", ["a", "b"]))], ["b", "a"])
        self.assertEqual(list(smaller(Many("m", ["a", "b"], least=2))), [])


class Generator(unittest.TestCase):
    def test_a_seed_makes_the_same_statements(self):
        try:
            from .case import Cases
        except ImportError:
            self.skipTest("no psycopg")
        texts = []
        for _ in range(2):
            dice = random.Random("7/1")
            cases = Cases(dice, schema.tables(dice))
            texts.append([statement.text() for _ in range(200) for statement in cases.make().statements])
        self.assertEqual(*texts)
        self.assertFalse([text for text in texts[0] if "«" in text])

    def test_explanations_name_their_place(self):
        """Words of docs/sql.md, or `defect`."""
        known = " ".join((pathlib.Path(__file__).parents[2] / "docs/sql.md").read_text().split())
        for name, words, _ in EXPLAINED:
            self.assertTrue(words.startswith("defect: ") or words in known, name)


if __name__ == "__main__":
    unittest.main()
